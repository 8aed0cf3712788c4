"""
Scaling: horizontal autoscalers, disruption budgets, priorities of pods.
"""

from collections.abc import Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, naming, quantities
from kopf._sandbox.registry.rules import checks, entries, pod_defaults

_HIGHEST_PRIORITY: Final = 1_000_000_000
_SYSTEM_PREFIX: Final = 'system-'
_SYSTEM_CLASSES: Final = ('system-node-critical', 'system-cluster-critical')
_SOURCES: Final = {
    'Object': 'object',
    'Pods': 'pods',
    'Resource': 'resource',
    'External': 'external',
    'ContainerResource': 'containerResource',
}
_SOURCE_TYPES: Final = ('ContainerResource', 'External', 'Object', 'Pods', 'Resource')
_TARGET_TYPES: Final = ('Utilization', 'Value', 'AverageValue')
_UP: Final = {'stabilizationWindowSeconds': 0, 'selectPolicy': 'Max'}
_DOWN: Final = {'selectPolicy': 'Max'}
_PERCENT_POLICY: Final = {'type': 'Percent', 'value': 100, 'periodSeconds': 15}
_PODS_POLICY: Final = {'type': 'Pods', 'value': 4, 'periodSeconds': 15}


def default_autoscaler(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    pod_defaults.fill(spec, {'minReplicas': 1})
    if not spec.get('metrics'):
        target = {'type': 'Utilization', 'averageUtilization': 80}
        spec['metrics'] = [{'type': 'Resource', 'resource': {'name': 'cpu', 'target': target}}]

    if 'behavior' in spec:
        rising, falling = (
            spec['behavior'].setdefault(name, {}) for name in ('scaleUp', 'scaleDown')
        )
        pod_defaults.fill(rising, _UP)
        pod_defaults.fill(falling, _DOWN)
        if not rising.get('policies'):
            rising['policies'] = [dict(_PODS_POLICY), dict(_PERCENT_POLICY)]
        if not falling.get('policies'):
            falling['policies'] = [dict(_PERCENT_POLICY)]


def validate_autoscaler(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    low = spec.get('minReplicas')
    high = spec.get('maxReplicas') or 0
    problems = []

    if low is not None and low < 1:
        problems.append(
            errors.invalid_value('spec.minReplicas', low, 'must be greater than or equal to 1')
        )

    if high < 1:
        problems.append(errors.invalid_value('spec.maxReplicas', high, 'must be greater than 0'))
    if low is not None and high < low:
        text = 'must be greater than or equal to `minReplicas`'
        problems.append(errors.invalid_value('spec.maxReplicas', high, text))

    problems += _validate_target_ref(spec.get('scaleTargetRef') or {}, 'spec.scaleTargetRef')
    problems += _validate_metrics(spec.get('metrics') or ())
    if low == 0 and not any(
        metric.get('type') in ('Object', 'External') for metric in spec.get('metrics') or ()
    ):
        problems.append(
            errors.forbidden_field(
                'spec.metrics',
                'must specify at least one Object or External metric to support scaling to zero '
                'replicas',
            )
        )

    return problems


def _validate_target_ref(ref: entries.Object, field: str) -> entries.Problems:
    problems = []
    for name in ('kind', 'name'):
        problems += checks.check_required_name(
            ref.get(name), f'{field}.{name}', naming.check_path_segment
        )

    version = ref.get('apiVersion') or ''
    if version.count('/') > 1:
        problems.append(
            errors.invalid_value(
                f'{field}.apiVersion', version, f'unexpected GroupVersion string: {version}'
            )
        )
    elif '/' not in version and not (
        version == 'v1' and ref.get('kind') == 'ReplicationController'
    ):
        problems.append(
            errors.invalid_value(
                f'{field}.apiVersion', version, 'apiVersion must specify API group'
            )
        )

    return problems


def _validate_metrics(metrics: Sequence[entries.Object]) -> entries.Problems:
    problems = []
    for index, metric in enumerate(metrics):
        field = f'spec.metrics[{index}]'
        kind = metric.get('type') or ''
        if not kind:
            problems.append(errors.required(f'{field}.type', 'must specify a metric source type'))
        if kind not in _SOURCES:
            problems += [errors.not_supported(f'{field}.type', kind, _SOURCE_TYPES)] * 2
        elif _SOURCES[kind] not in metric:
            text = 'must populate information for the given metric source'
            problems.append(errors.required(f'{field}.{_SOURCES[kind]}', text))
        elif kind == 'Resource':
            problems += _validate_resource_metric(metric['resource'], f'{field}.resource')

    return problems


def _validate_resource_metric(source: entries.Object, field: str) -> entries.Problems:
    target = source.get('target') or {}
    kind = target.get('type') or ''
    problems = []
    if not source.get('name'):
        problems.append(errors.required(f'{field}.name', 'must specify a resource name'))
    if not kind:
        text = 'must specify a metric target type'
        problems.append(errors.required(f'{field}.target.type', text))

    if kind not in _TARGET_TYPES:
        text = 'must be either Utilization, Value, or AverageValue'
        problems.append(errors.invalid_value(f'{field}.target.type', kind, text))

    return [
        *problems,
        *_validate_target_amounts(target, f'{field}.target'),
        *_validate_target_choice(target, f'{field}.target'),
    ]


def _validate_target_amounts(target: entries.Object, field: str) -> entries.Problems:
    share = target.get('averageUtilization')
    amount = target.get('averageValue')
    problems = []
    if amount is not None and quantities.parse_quantity(amount) <= 0:
        problems.append(errors.invalid_value(f'{field}.averageValue', amount, 'must be positive'))
    if share is not None and share < 1:
        text = 'must be greater than 0'
        problems.append(errors.invalid_value(f'{field}.averageUtilization', share, text))

    return problems


def _validate_target_choice(target: entries.Object, field: str) -> entries.Problems:
    """Check that exactly one of the two ways to set the target is used."""
    has_share = target.get('averageUtilization') is not None
    has_amount = target.get('averageValue') is not None
    if has_share and has_amount:
        text = 'may not set both a target raw value and a target utilization'
        return [errors.forbidden_field(f'{field}.averageValue', text)]

    if not has_share and not has_amount:
        text = 'must set either a target raw value or a target utilization'
        return [errors.required(f'{field}.averageUtilization', text)]

    return []


def validate_budget(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    problems = []
    if 'minAvailable' in spec and 'maxUnavailable' in spec:
        shown = {
            'MinAvailable': spec['minAvailable'],
            'Selector': spec.get('selector'),
            'MaxUnavailable': spec['maxUnavailable'],
            'UnhealthyPodEvictionPolicy': spec.get('unhealthyPodEvictionPolicy'),
        }
        problems.append(
            checks.invalid_struct(
                'spec', shown, 'minAvailable and maxUnavailable cannot be both set'
            )
        )

    for name in ('minAvailable', 'maxUnavailable'):
        problems += checks.check_count_or_percent(spec.get(name), f'spec.{name}')
        problems += checks.check_whole_at_most(spec.get(name), f'spec.{name}')

    problems += checks.check_selector(spec.get('selector'), 'spec.selector')
    return problems + checks.check_optional_enum(
        spec.get('unhealthyPodEvictionPolicy'),
        'spec.unhealthyPodEvictionPolicy',
        ('AlwaysAllow', 'IfHealthyBudget'),
    )


def default_priority(obj: dict[str, Any]) -> None:
    pod_defaults.fill(obj, {'preemptionPolicy': 'PreemptLowerPriority'})


def validate_priority(obj: entries.Object) -> entries.Problems:
    name = obj['metadata'].get('name') or ''
    value = obj.get('value') or 0
    problems = []

    if name.startswith(_SYSTEM_PREFIX) and name not in _SYSTEM_CLASSES:
        problems.append(
            errors.forbidden_field(
                'metadata.name',
                "priority class names with 'system-' prefix are reserved for system use only. "
                f'error: {name} is not a known system priority class',
            )
        )
    elif not name.startswith(_SYSTEM_PREFIX) and value > _HIGHEST_PRIORITY:
        problems.append(
            errors.forbidden_field(
                'value', f'maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}'
            )
        )

    return problems + checks.check_optional_enum(
        obj.get('preemptionPolicy'), 'preemptionPolicy', ('PreemptLowerPriority', 'Never')
    )


def validate_priority_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    problems = []
    if new.get('value') != old.get('value'):
        problems.append(errors.forbidden_field('value', 'may not be changed in an update.'))
    return problems + checks.check_immutable(
        new.get('preemptionPolicy'), old.get('preemptionPolicy'), 'preemptionPolicy'
    )


RULES: Final = {
    ('autoscaling', 'HorizontalPodAutoscaler'): entries.Rules(
        initial_status={'desiredReplicas': 0, 'currentMetrics': None},
        repeats_metadata=False,
        defaults=default_autoscaler,
        validate=validate_autoscaler,
    ),
    ('policy', 'PodDisruptionBudget'): entries.Rules(
        name_rule=None,
        standard_finalizers=False,
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        initial_status={
            'disruptionsAllowed': 0,
            'currentHealthy': 0,
            'desiredHealthy': 0,
            'expectedPods': 0,
        },
        repeats_update=False,
        allows_unconditional_update=False,
        validate=validate_budget,
    ),
    ('scheduling.k8s.io', 'PriorityClass'): entries.Rules(
        has_generation=True,
        repeats_metadata=False,
        validates_updated=False,
        defaults=default_priority,
        validate=validate_priority,
        validate_update=validate_priority_update,
    ),
}
