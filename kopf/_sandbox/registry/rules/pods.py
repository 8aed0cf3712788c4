"""
Pods: their preparation, and the restrictions of their updates.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, naming, quantities
from kopf._sandbox.registry.rules import checks, entries, pod_defaults, pod_specs

_GRACE: Final = 300
_TAINTS: Final = ('node.kubernetes.io/not-ready', 'node.kubernetes.io/unreachable')
_CHANGEABLE: Final = (
    '`spec.containers[*].image`',
    '`spec.initContainers[*].image`',
    '`spec.activeDeadlineSeconds`',
    '`spec.tolerations` (only additions to existing tolerations)',
    '`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)',
)
_ONLY_ADDED: Final = 'existing toleration can not be modified except its tolerationSeconds'
_QOS_RESOURCES: Final = ('cpu', 'memory')
_SYSTEM_PRIORITIES: Final = {
    'system-node-critical': 2000001000,
    'system-cluster-critical': 2000000000,
}


def prepare_pod(pod: dict[str, Any], site: entries.Site) -> None:
    """
    Prepare a new pod as admission plugins and the strategy do. Modifies the pod; raises 403 for
    wrong priorities.
    """
    spec = pod['spec']
    add_tolerations(spec)
    _set_priority(pod, site.priorities)
    if (spec.get('terminationGracePeriodSeconds') or 0) < 0:
        spec['terminationGracePeriodSeconds'] = 1
    pod['status'] = {'phase': 'Pending', 'qosClass': find_qos_class(spec)}
    if spec.get('schedulingGates'):
        pod['status']['conditions'] = [
            {
                'type': 'PodScheduled',
                'status': 'False',
                'lastProbeTime': None,
                'lastTransitionTime': site.now,
                'reason': 'SchedulingGated',
                'message': 'Scheduling is blocked due to non-empty scheduling gates',
            }
        ]


def prepare_pod_update(new: dict[str, Any], old: entries.Object, site: entries.Site) -> None:
    """Prepare an updated pod: keep the fields set by admission plugins. Modifies the new pod."""
    add_tolerations(new['spec'])
    known = old.get('spec') or {}
    pod_defaults.fill(
        new['spec'],
        {name: known[name] for name in ('priority', 'preemptionPolicy') if name in known},
    )


def add_tolerations(spec: dict[str, Any]) -> None:
    """Let pods tolerate lost nodes for a while, if they do not say anything else."""
    known = spec.get('tolerations') or []
    for key in _TAINTS:
        is_tolerated = any(
            toleration.get('key') in (None, key) and toleration.get('effect') in (None, 'NoExecute')
            for toleration in known
        )
        if not is_tolerated:
            known = [
                *known,
                {
                    'key': key,
                    'operator': 'Exists',
                    'effect': 'NoExecute',
                    'tolerationSeconds': _GRACE,
                },
            ]

    spec['tolerations'] = known


def _set_priority(pod: dict[str, Any], priorities: Mapping[str, entries.Object]) -> None:
    spec = pod['spec']
    title = pod['metadata'].get('name') or ''
    name = spec.get('priorityClassName') or ''
    chosen = priorities.get(name) or (
        {'value': _SYSTEM_PRIORITIES[name]} if name in _SYSTEM_PRIORITIES else None
    )
    if chosen is None and name:
        raise errors.forbidden('', 'pods', title, f'no PriorityClass with name {name} was found')

    if chosen is None:
        chosen = next((item for item in priorities.values() if item.get('globalDefault')), {})
        spec.update({'priorityClassName': chosen['metadata']['name']} if chosen else {})

    priority = chosen.get('value') or 0
    if spec.get('priority', priority) != priority:
        raise errors.forbidden(
            '',
            'pods',
            title,
            f'the integer value of priority ({spec["priority"]}) must not be '
            'provided in pod spec; priority admission controller computed '
            f'{priority} from the given PriorityClass name',
        )

    spec['priority'] = priority
    pod_defaults.fill(
        spec, {'preemptionPolicy': chosen.get('preemptionPolicy') or 'PreemptLowerPriority'}
    )


def find_qos_class(spec: entries.Object) -> str:
    """Return the quality-of-service class of a pod."""
    requests = set[str]()
    limits = set[str]()
    is_guaranteed = True

    for container in (*(spec.get('containers') or ()), *(spec.get('initContainers') or ())):
        resources = container.get('resources') or {}
        asked = _pick_amounts(resources.get('requests'))
        limited = _pick_amounts(resources.get('limits'))
        requests.update(asked)
        limits.update(limited)
        is_guaranteed = is_guaranteed and len(limited) == len(_QOS_RESOURCES) and asked == limited

    if not requests and not limits:
        return 'BestEffort'
    return 'Guaranteed' if is_guaranteed else 'Burstable'


def _pick_amounts(amounts: Mapping[str, str] | None) -> dict[str, Any]:
    values = {name: quantities.parse_quantity(amount) for name, amount in (amounts or {}).items()}
    return {name: values[name] for name in _QOS_RESOURCES if values.get(name)}


def validate_pod(pod: entries.Object) -> entries.Problems:
    spec = pod.get('spec') or {}
    problems = pod_specs.validate_spec(spec, 'spec')
    for group in ('containers', 'initContainers'):
        problems += [
            errors.invalid_value(
                f'spec.{group}[{index}].image',
                image,
                'must not have leading or trailing whitespace',
            )
            for index, container in enumerate(spec.get(group) or ())
            if (image := container.get('image') or '') != image.strip()
        ]

    return problems


def validate_new_pod(pod: entries.Object) -> entries.Problems:
    problems = []
    if checks.dig(pod, 'spec', 'ephemeralContainers'):
        problems.append(
            errors.forbidden_field('spec.ephemeralContainers', 'cannot be set on create')
        )

    if checks.dig(pod, 'spec', 'schedulingGates') and checks.dig(pod, 'spec', 'nodeName'):
        problems.append(
            errors.forbidden_field(
                'spec.nodeName', 'cannot be set until all schedulingGates have been cleared'
            )
        )

    return problems


def validate_pod_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    """Return the forbidden changes: only images, deadlines and tolerations may be changed."""
    spec = new.get('spec') or {}
    known = old.get('spec') or {}
    for group in ('containers', 'initContainers'):
        if len(spec.get(group) or ()) != len(known.get(group) or ()):
            return [
                errors.forbidden_field(
                    f'spec.{group}', 'pod updates may not add or remove containers'
                )
            ]

    problems = _validate_deadline(
        spec.get('activeDeadlineSeconds'), known.get('activeDeadlineSeconds')
    )
    problems += _validate_tolerations(spec.get('tolerations') or (), known.get('tolerations') or ())
    if _mask(spec) != _mask(known):
        listed = ','.join(_CHANGEABLE)
        problems.append(
            errors.forbidden_field(
                'spec', f'pod updates may not change fields other than {listed}\n'
            )
        )

    return problems


def _validate_deadline(new: int | None, old: int | None) -> entries.Problems:
    field = 'spec.activeDeadlineSeconds'
    if new is None:
        text = 'must not update from a positive integer to nil value'
        return [] if old is None else [errors.invalid_value(field, None, text)]

    if not 0 <= new < 2**31:
        return [errors.invalid_value(field, new, naming.between(0, 2**31 - 1))]
    if old is not None and old < new:
        return [errors.invalid_value(field, new, 'must be less than or equal to previous value')]
    return []


def _validate_tolerations(
    new: Sequence[entries.Object], old: Sequence[entries.Object]
) -> entries.Problems:
    stripped = [_strip_seconds(toleration) for toleration in new]
    if all(_strip_seconds(toleration) in stripped for toleration in old):
        return []
    return [errors.forbidden_field('spec.tolerations', _ONLY_ADDED)]


def _strip_seconds(toleration: entries.Object) -> dict[str, Any]:
    return {name: value for name, value in toleration.items() if name != 'tolerationSeconds'}


def _mask(spec: entries.Object) -> dict[str, Any]:
    """Return only the immutable parts."""
    rest = {
        name: value
        for name, value in spec.items()
        if name not in ('activeDeadlineSeconds', 'tolerations', 'schedulingGates')
    }
    for group in ('containers', 'initContainers'):
        if group in rest:
            rest[group] = [{**container, 'image': ''} for container in rest[group]]

    return rest


def default_pod_template(obj: dict[str, Any]) -> None:
    pod_defaults.default_template(obj.get('template'))


def validate_pod_template(obj: entries.Object) -> entries.Problems:
    return pod_specs.validate_template(obj.get('template') or {}, 'template')


def is_template_changed(new: entries.Object, old: entries.Object) -> bool:
    return new.get('template') != old.get('template')


RULES: Final = {
    ('', 'Pod'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        defaults=pod_defaults.default_pod,
        prepare_create=prepare_pod,
        prepare_update=prepare_pod_update,
        validate=validate_pod,
        validate_new=validate_new_pod,
        validate_update=validate_pod_update,
    ),
    ('', 'PodTemplate'): entries.Rules(
        has_generation=True,
        is_bumped=is_template_changed,
        repeats_metadata=False,
        defaults=default_pod_template,
        validate=validate_pod_template,
    ),
}
