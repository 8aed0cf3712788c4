"""
Quota usage: how much of the resources of a quota an object takes.
"""

import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final

from kopf._sandbox.meta import kinds
from kopf._sandbox.registry.plugins import resource_sums, subjects
from kopf._sandbox.registry.rules import pods

Body = Mapping[str, Any]
Usage = Mapping[str, str]

SERVICES: Final = kinds.Home('', 'services')

_COUNTED: Final = frozenset(
    ('configmaps', 'secrets', 'resourcequotas', 'replicationcontrollers', 'services')
)
"""The core resources that have names of their own in quotas."""

_COMPUTE: Final = ('cpu', 'memory', 'ephemeral-storage')
_DEMANDED: Final = ('cpu', 'memory')


def measure(home: kinds.Home, body: Body) -> dict[str, str]:
    """Return the amounts of all resources that an object takes, by their names in quotas."""
    usage = {f'count/{f"{home.plural}.{home.group}" if home.group else home.plural}': '1'}
    if not home.group and home.plural in _COUNTED:
        usage[home.plural] = '1'
    special = _SPECIAL.get(home)
    return usage if special is None else {**usage, **special(body)}


def find_unspecified(pod: Body, hard: Usage) -> dict[str, list[str]]:
    """Return the containers that must say what they request or are limited to, by resources."""
    missing: dict[str, list[str]] = {}
    for name in sorted(hard):
        side, _, resource = name.rpartition('.')
        if resource not in _DEMANDED or side not in ('', 'requests', 'limits'):
            continue
        without = [
            container['name']
            for container in subjects.list_containers(pod.get('spec') or {})
            if resource not in ((container.get('resources') or {}).get(side or 'requests') or {})
        ]
        if without:
            missing[name] = sorted(without)

    return missing


def is_selected(quota: Body, home: kinds.Home, body: Body) -> bool:
    """Return whether an object is in the scopes of a quota: only pods are in any."""
    spec = quota.get('spec') or {}
    selector = (spec.get('scopeSelector') or {}).get('matchExpressions') or ()
    scopes = [{'scopeName': name, 'operator': 'Exists'} for name in spec.get('scopes') or ()]
    terms = [*scopes, *selector]
    if not terms:
        return True
    return home == subjects.PODS and all(_is_in_scope(term, body) for term in terms)


def _is_in_scope(term: Body, pod: Body) -> bool:
    spec = pod.get('spec') or {}
    match term.get('scopeName'):
        case 'BestEffort':
            return pods.find_qos_class(spec) == 'BestEffort'
        case 'NotBestEffort':
            return pods.find_qos_class(spec) != 'BestEffort'
        case 'Terminating':
            return spec.get('activeDeadlineSeconds') is not None
        case 'NotTerminating':
            return spec.get('activeDeadlineSeconds') is None
        case 'PriorityClass':
            return _is_selected_by(term, spec.get('priorityClassName') or '')
        case _:
            return False


def _is_selected_by(term: Body, value: str) -> bool:
    values = term.get('values') or ()
    return {
        'In': value in values,
        'NotIn': value not in values,
        'Exists': bool(value),
        'DoesNotExist': not value,
    }.get(term.get('operator') or '', False)


def _measure_pod(pod: Body) -> dict[str, str]:
    """Measure a pod; when it has ended, it only counts as an object."""
    if (pod.get('status') or {}).get('phase') in ('Succeeded', 'Failed'):
        return {}

    spec = pod.get('spec') or {}
    usage = {'pods': '1'}
    for name, amount in resource_sums.sum_pod(spec, 'requests').items():
        usage[f'requests.{name}'] = amount
        if name in _COMPUTE or name.startswith('hugepages-'):
            usage[name] = amount

    for name, amount in resource_sums.sum_pod(spec, 'limits').items():
        usage[f'limits.{name}'] = amount
    return usage


def _measure_claim(claim: Body) -> dict[str, str]:
    spec = claim.get('spec') or {}
    size = ((spec.get('resources') or {}).get('requests') or {}).get('storage') or '0'
    usage = {'persistentvolumeclaims': '1', 'requests.storage': size}
    if spec.get('storageClassName'):
        prefix = f'{spec["storageClassName"]}.storageclass.storage.k8s.io'
        usage |= {f'{prefix}/{name}': amount for name, amount in usage.items()}
    return usage


def _measure_service(service: Body) -> dict[str, str]:
    spec = service.get('spec') or {}
    kind = spec.get('type')
    ports = spec.get('ports') or ()
    nodes = sum(bool(port.get('nodePort')) for port in ports)
    if kind == 'NodePort':
        nodes = len(ports)
    usage = {'services.nodeports': str(nodes) if kind in ('NodePort', 'LoadBalancer') else '0'}
    return {**usage, 'services.loadbalancers': '1' if kind == 'LoadBalancer' else '0'}


def subtract(new: Usage, old: Usage) -> dict[str, decimal.Decimal]:
    """Return by how much the usage grows."""
    grown = {
        name: resource_sums.parse(amount) - resource_sums.parse(old.get(name, '0'))
        for name, amount in new.items()
    }
    return {name: amount for name, amount in grown.items() if amount > 0}


_SPECIAL: Final[Mapping[kinds.Home, Callable[[Body], dict[str, str]]]] = {
    subjects.PODS: _measure_pod,
    subjects.CLAIMS: _measure_claim,
    SERVICES: _measure_service,
}
