"""
Limit ranges: the defaults and the limits of the resources of containers, pods and claims.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.meta import kinds
from kopf._sandbox.registry.plugins import resource_sums, subjects

RANGES: Final = kinds.Home('', 'limitranges')

_NOTE: Final = 'kubernetes.io/limit-ranger'
_SIDES: Final = (('requests', 'defaultRequest', 'request'), ('limits', 'default', 'limit'))

Amounts = Mapping[str, str]


def mutate(subject: subjects.Subject) -> None:
    """Set the default requests and limits of the containers in a new pod."""
    for item in _list_items(subject, 'Container'):
        notes = []
        for field, default, word in _SIDES:
            for container in subjects.list_containers(subject.obj['spec']):
                added = _fill(container, field, item.get(default) or {})
                if added:
                    listed = ', '.join(sorted(added))
                    notes.append(f'{listed} {word} for container {container["name"]}')
        if notes:
            annotations = subject.obj['metadata'].setdefault('annotations', {})
            annotations[_NOTE] = f'LimitRanger plugin set: {"; ".join(notes)}'


def _fill(container: dict[str, Any], field: str, defaults: Amounts) -> list[str]:
    resources = container.setdefault('resources', {})
    known = resources.get(field) or {}
    added = {name: amount for name, amount in defaults.items() if name not in known}
    if added:
        resources[field] = {**known, **added}
    return list(added)


def validate(subject: subjects.Subject) -> None:
    """Raise the API's 403 if a new pod or claim is out of the ranges."""
    check = _check_claim if subject.home == subjects.CLAIMS else _check_pod
    problems = list(check(subject))
    if problems:
        listed = problems[0] if len(problems) == 1 else f'[{", ".join(problems)}]'
        raise subject.forbid(listed)


def _check_claim(subject: subjects.Subject) -> Iterator[str]:
    requests = (subject.obj['spec'].get('resources') or {}).get('requests') or {}
    for item in _list_items(subject, 'PersistentVolumeClaim'):
        yield from _check_min(item, 'PersistentVolumeClaim', requests, {})
        for name, most in (item.get('max') or {}).items():
            yield from _check_requested(name, most, 'PersistentVolumeClaim', requests)


def _check_requested(name: str, most: str, kind: str, requests: Amounts) -> Iterator[str]:
    what = f'maximum {name} usage per {kind} is {most}'
    if name not in requests:
        yield f'{what}.  No request is specified'
    elif resource_sums.parse(requests[name]) > resource_sums.parse(most):
        yield f'{what}, but request is {requests[name]}'


def _check_pod(subject: subjects.Subject) -> Iterator[str]:
    spec = subject.obj['spec']
    for item in _list_items(subject, ''):
        if item.get('type') == 'Container':
            for container in subjects.list_containers(spec):
                resources = container.get('resources') or {}
                requests = resources.get('requests') or {}
                limits = resources.get('limits') or {}
                yield from _check_all(item, 'Container', requests, limits)
        elif item.get('type') == 'Pod':
            requests = resource_sums.sum_pod(spec, 'requests')
            limits = resource_sums.sum_pod(spec, 'limits')
            yield from _check_all(item, 'Pod', requests, limits)


def _check_all(item: subjects.Body, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _check_min(item, kind, requests, limits)
    yield from _check_max(item, kind, requests, limits)
    for name, most in (item.get('maxLimitRequestRatio') or {}).items():
        yield from _check_ratio(name, most, kind, requests, limits)


def _check_min(item: subjects.Body, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, least in (item.get('min') or {}).items():
        what = f'minimum {name} usage per {kind} is {least}'
        bound = resource_sums.parse(least)
        if name not in requests:
            yield f'{what}.  No request is specified'
        elif resource_sums.parse(requests[name]) < bound:
            yield f'{what}, but request is {requests[name]}'
        elif name in limits and resource_sums.parse(limits[name]) < bound:
            yield f'{what}, but limit is {limits[name]}'


def _check_max(item: subjects.Body, kind: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for name, most in (item.get('max') or {}).items():
        what = f'maximum {name} usage per {kind} is {most}'
        bound = resource_sums.parse(most)
        if name not in limits:
            yield f'{what}.  No limit is specified'
        elif resource_sums.parse(limits[name]) > bound:
            yield f'{what}, but limit is {limits[name]}'
        elif name in requests and resource_sums.parse(requests[name]) > bound:
            yield f'{what}, but request is {requests[name]}'


def _check_ratio(
    name: str, most: str, kind: str, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    what = f'{name} max limit to request ratio per {kind} is {most}'
    requested = resource_sums.parse(requests.get(name) or '0')
    limited = resource_sums.parse(limits.get(name) or '0')

    if not requested:
        yield f'{what}, but no request is specified or request is 0'
    elif not limited:
        yield f'{what}, but no limit is specified or limit is 0'
    elif limited / requested > resource_sums.parse(most):
        yield f'{what}, but provided ratio is {limited / requested:.6f}'


def _list_items(subject: subjects.Subject, kind: str) -> list[dict[str, Any]]:
    """Return the limits of all ranges in the namespace, of one type or of all types."""
    return [
        item
        for body in subject.list(RANGES, subject.request.namespace)
        for item in (body.get('spec') or {}).get('limits') or ()
        if kind in ('', item.get('type'))
    ]
