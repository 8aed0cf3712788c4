"""
Clusters: namespaces, nodes, accounts, quotas, leases, events.
"""

from typing import Any, Final

from kopf._sandbox.meta import errors, metadata, naming
from kopf._sandbox.registry.rules import checks, entries, pod_defaults

_NAMESPACE_LABEL: Final = 'kubernetes.io/metadata.name'
_NOT_READY: Final = {'key': 'node.kubernetes.io/not-ready', 'effect': 'NoSchedule'}
_NODE_FACTS: Final = (
    'machineID',
    'systemUUID',
    'bootID',
    'kernelVersion',
    'osImage',
    'containerRuntimeVersion',
    'kubeletVersion',
    'kubeProxyVersion',
    'operatingSystem',
    'architecture',
)
_EVENT_ALIASES: Final = (
    ('eventTime', 'eventTime'),
    ('involvedObject', 'regarding'),
    ('message', 'note'),
    ('reportingComponent', 'reportingController'),
    ('source', 'deprecatedSource'),
    ('count', 'deprecatedCount'),
    ('firstTimestamp', 'deprecatedFirstTimestamp'),
    ('lastTimestamp', 'deprecatedLastTimestamp'),
)
_IMMUTABLE_IN_EVENTS: Final = (
    'involvedObject',
    'reason',
    'message',
    'source',
    'firstTimestamp',
    'lastTimestamp',
    'count',
    'reason',
    'type',
    'eventTime',
    'action',
    'related',
    'reportingComponent',
    'reportingInstance',
)
_EVENT_TEXT_LIMITS: Final = {
    'reportingInstance': 128,
    'action': 128,
    'reason': 128,
    'message': 1024,
}
_OTHER_NAMESPACE: Final = 'does not match event.namespace'


def default_namespace(obj: dict[str, Any]) -> None:
    name = obj['metadata'].get('name')
    if name:
        obj['metadata'].setdefault('labels', {})[_NAMESPACE_LABEL] = name
    pod_defaults.fill(obj.setdefault('status', {}), {'phase': 'Active'})


def prepare_namespace(obj: dict[str, Any], site: entries.Site) -> None:
    default_namespace(obj)
    finalizers = obj.setdefault('spec', {}).setdefault('finalizers', [])
    if 'kubernetes' not in finalizers:
        finalizers.append('kubernetes')
    obj['status'] = {'phase': 'Active'}


def prepare_namespace_update(new: dict[str, Any], old: entries.Object, site: entries.Site) -> None:
    """Keep the finalizers: only the endpoint ``finalize`` changes them. Modifies the new object."""
    new['spec'] = {
        **(new.get('spec') or {}),
        'finalizers': checks.dig(old, 'spec', 'finalizers') or [],
    }


def default_node(obj: dict[str, Any]) -> None:
    status = obj.setdefault('status', {})
    if 'allocatable' not in status and status.get('capacity'):
        status['allocatable'] = dict(status['capacity'])
    spec = obj.setdefault('spec', {})
    if spec.get('podCIDR') and not spec.get('podCIDRs'):
        spec['podCIDRs'] = [spec['podCIDR']]
    status.setdefault('daemonEndpoints', {}).setdefault('kubeletEndpoint', {}).setdefault('Port', 0)
    pod_defaults.fill(status.setdefault('nodeInfo', {}), dict.fromkeys(_NODE_FACTS, ''))


def prepare_node(obj: dict[str, Any], site: entries.Site) -> None:
    taints = obj['spec'].setdefault('taints', [])
    if _NOT_READY not in taints:
        taints.append(dict(_NOT_READY))


def validate_node(obj: entries.Object) -> entries.Problems:
    problems = []
    for index, taint in enumerate(checks.dig(obj, 'spec', 'taints') or ()):
        field = f'metadata.taints[{index}]'
        problems += [
            errors.invalid_value(f'{field}.key', taint.get('key') or '', text)
            for text in naming.check_key(taint.get('key') or '')
        ]
        problems += checks.check_name(
            taint.get('value'), f'{field}.value', naming.check_label_value
        )
        problems += checks.check_enum(
            taint.get('effect'), f'{field}.effect', ('NoSchedule', 'PreferNoSchedule', 'NoExecute')
        )

    return problems


def default_limits(obj: dict[str, Any]) -> None:
    """Set the limits of containers: defaults from maximums, requests from defaults and minimums."""
    for item in checks.dig(obj, 'spec', 'limits') or ():
        if item.get('type') != 'Container':
            continue
        filled = {**(item.get('max') or {}), **(item.get('default') or {})}
        requests = {**(item.get('min') or {}), **filled, **(item.get('defaultRequest') or {})}
        for name, amounts in (('default', filled), ('defaultRequest', requests)):
            if amounts:
                item[name] = amounts


def default_api_service(obj: dict[str, Any]) -> None:
    service = checks.dig(obj, 'spec', 'service')
    if service is not None:
        pod_defaults.fill(service, {'port': 443})


def validate_quota(obj: entries.Object) -> entries.Problems:
    hard = checks.dig(obj, 'spec', 'hard') or {}
    scopes = checks.dig(obj, 'spec', 'scopes') or []
    problems = checks.check_amounts(hard, 'spec.hard')
    if 'BestEffort' in scopes and any(name != 'pods' for name in hard):
        text = 'unsupported scope applied to resource'
        problems.append(errors.invalid_value('spec.scopes', scopes, text))
    return problems


def validate_lease(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    duration = spec.get('leaseDurationSeconds')
    problems = []

    if duration is not None and duration <= 0:
        problems.append(
            errors.invalid_value('spec.leaseDurationSeconds', duration, 'must be greater than 0')
        )

    problems += checks.check_counts(spec, 'spec', 'leaseTransitions')
    if spec.get('preferredHolder') and not spec.get('strategy'):
        text = 'may only be specified if `strategy` is defined'
        problems.append(errors.forbidden_field('spec.preferredHolder', text))

    return problems


def validate_runtime_class(obj: entries.Object) -> entries.Problems:
    handler = obj.get('handler') or ''
    return [errors.invalid_value('handler', handler, text) for text in naming.check_label(handler)]


def validate_runtime_class_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    return checks.check_immutable(new.get('handler'), old.get('handler'), 'handler')


def validate_event(
    obj: entries.Object, reporter_field: str = 'reportingComponent'
) -> entries.Problems:
    """Validate an event in the shape of ``v1``, as it is stored."""
    namespace = obj['metadata'].get('namespace') or ''
    about = checks.dig(obj, 'involvedObject', 'namespace') or ''
    is_modern = obj.get('eventTime') is not None
    problems = []
    if _is_misplaced(namespace, about, is_modern=is_modern):
        problems.append(errors.invalid_value('involvedObject.namespace', about, _OTHER_NAMESPACE))
    if not is_modern:
        return problems

    problems += _validate_reporter(obj.get('reportingComponent') or '', reporter_field)
    for name, limit in _EVENT_TEXT_LIMITS.items():
        problems += _validate_event_text(obj, name, limit)
    return problems


def _is_misplaced(namespace: str, about: str, *, is_modern: bool) -> bool:
    """Return whether the namespace is wrong; modern events of namespaced objects can be in any."""
    if about:
        return not is_modern and namespace != about
    homes = ('default', 'kube-system') if is_modern else ('default', '')
    return namespace not in homes


def _validate_reporter(reporter: str, field: str) -> entries.Problems:
    problems = [] if reporter else [errors.required(field)]
    texts = naming.check_key(reporter)
    return problems + [errors.invalid_value(field, reporter, text) for text in texts]


def _validate_event_text(obj: entries.Object, name: str, limit: int) -> entries.Problems:
    text = obj.get(name) or ''
    problems = []
    if not text and name != 'message':
        problems.append(errors.required(name))
    if len(text.encode('utf-8', 'surrogatepass')) > limit:
        problems.append(errors.invalid_value(name, '', f'can have at most {limit} characters'))
    return problems


def validate_modern_event(obj: entries.Object) -> entries.Problems:
    """Validate an event in the shape of ``events.k8s.io``, read as that of ``v1``."""
    return validate_event({**obj, **_read_core(obj)}, 'reportingController')


def validate_new_modern_event(obj: entries.Object) -> entries.Problems:
    """Validate a new event in the shape of ``events.k8s.io``, for which the rules are stricter."""
    core = _read_core(obj)
    problems = metadata.validate_metadata(
        obj['metadata'], namespaced=True, standard_finalizers=True
    )
    problems += _validate_series(obj)
    if core['eventTime'] is None:
        problems.append(errors.required('eventTime'))
    if obj.get('type') not in ('Normal', 'Warning'):
        problems.append(
            errors.invalid_value('type', '', f'has invalid value: {obj.get("type") or ""}')
        )

    return problems + [
        errors.invalid_value(name, '', 'needs to be unset')
        for name in ('firstTimestamp', 'lastTimestamp', 'count', 'source')
        if core[name]
    ]


def validate_modern_event_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    """Validate an update of an event in ``events.k8s.io``: only its series may change."""
    problems = metadata.validate_metadata_update(new['metadata'], old['metadata'])
    if new.get('series') != old.get('series'):
        problems += _validate_series(new)
    now = {**new, **_read_core(new)}
    then = {**old, **_read_core(old)}
    for name in _IMMUTABLE_IN_EVENTS:
        field = 'reportingController' if name == 'reportingComponent' else name
        problems += checks.check_immutable(now.get(name), then.get(name), field)

    return problems


def _read_core(obj: entries.Object) -> dict[str, Any]:
    return {name: obj.get(name, obj.get(alias)) for name, alias in _EVENT_ALIASES}


def _validate_series(obj: entries.Object) -> entries.Problems:
    series = obj.get('series')
    if series is None:
        return []
    problems = []
    if (series.get('count') or 0) < 2:
        problems.append(errors.invalid_value('series.count', '', 'should be at least 2'))
    if series.get('lastObservedTime') is None:
        problems.append(errors.required('series.lastObservedTime'))
    return problems


RULES: Final = {
    ('', 'Namespace'): entries.Rules(
        name_rule=naming.check_label,
        defaults=default_namespace,
        prepare_create=prepare_namespace,
        prepare_update=prepare_namespace_update,
    ),
    ('', 'Node'): entries.Rules(
        defaults=default_node, prepare_create=prepare_node, validate=validate_node
    ),
    ('', 'ServiceAccount'): entries.Rules(),
    ('', 'LimitRange'): entries.Rules(
        repeats_metadata=False, defaults=default_limits, allows_create_on_update=True
    ),
    ('', 'ResourceQuota'): entries.Rules(
        initial_status={}, repeats_metadata=False, validate=validate_quota
    ),
    ('', 'Event'): entries.Rules(
        name_rule=None,
        standard_finalizers=False,
        repeats_update=False,
        allows_create_on_update=True,
        validate=validate_event,
    ),
    ('events.k8s.io', 'Event'): entries.Rules(
        name_rule=None,
        standard_finalizers=False,
        repeats_update=False,
        allows_create_on_update=True,
        validate=validate_modern_event,
        validate_new=validate_new_modern_event,
        validate_update=validate_modern_event_update,
    ),
    ('certificates.k8s.io', 'CertificateSigningRequest'): entries.Rules(initial_status={}),
    ('apiregistration.k8s.io', 'APIService'): entries.Rules(
        standard_finalizers=False,
        initial_status={},
        defaults=default_api_service,
        allows_unconditional_update=False,
    ),
    ('coordination.k8s.io', 'Lease'): entries.Rules(
        standard_finalizers=False,
        repeats_metadata=False,
        allows_unconditional_update=False,
        allows_create_on_update=True,
        validate=validate_lease,
    ),
    ('node.k8s.io', 'RuntimeClass'): entries.Rules(
        standard_finalizers=False,
        allows_unconditional_update=False,
        allows_create_on_update=True,
        validate=validate_runtime_class,
        validate_update=validate_runtime_class_update,
    ),
}
