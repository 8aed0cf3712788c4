"""
Workloads: the kinds that keep pods running: deployments, replica sets, stateful sets, daemon sets.
"""

from typing import Any, Final

from kopf._sandbox.meta import errors, naming
from kopf._sandbox.registry.rules import checks, entries, pod_defaults, pod_specs, storages

_GENERATION: Final = 'deprecated.daemonset.template.generation'
_MUTABLE: Final = (
    'replicas',
    'template',
    'updateStrategy',
    'minReadySeconds',
    'ordinals',
    'revisionHistoryLimit',
    'persistentVolumeClaimRetentionPolicy',
)
_STATEFUL_ONLY: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)
_ROLLING: Final = 'RollingUpdate'


def default_replicated(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    pod_defaults.fill(spec, {'replicas': 1})
    pod_defaults.default_template(spec.get('template'))


def default_controller(obj: dict[str, Any]) -> None:
    """Set the defaults of a replication controller; its selector and labels come from its pods."""
    default_replicated(obj)
    labels = checks.dig(obj, 'spec', 'template', 'metadata', 'labels')
    if labels:
        pod_defaults.fill(obj['spec'], {'selector': dict(labels)})
        pod_defaults.fill(obj['metadata'], {'labels': dict(labels)})


def default_deployment(obj: dict[str, Any]) -> None:
    default_replicated(obj)
    pod_defaults.fill(obj['spec'], {'revisionHistoryLimit': 10, 'progressDeadlineSeconds': 600})
    strategy = obj['spec'].setdefault('strategy', {})
    pod_defaults.fill(strategy, {'type': _ROLLING})

    if strategy['type'] == _ROLLING:
        pod_defaults.fill(
            strategy.setdefault('rollingUpdate', {}), {'maxUnavailable': '25%', 'maxSurge': '25%'}
        )


def default_stateful_set(obj: dict[str, Any]) -> None:
    default_replicated(obj)
    spec = obj['spec']
    pod_defaults.fill(spec, {'podManagementPolicy': 'OrderedReady', 'revisionHistoryLimit': 10})
    strategy = spec.setdefault('updateStrategy', {})
    pod_defaults.fill(strategy, {'type': _ROLLING})
    if strategy['type'] == _ROLLING:
        pod_defaults.fill(strategy.setdefault('rollingUpdate', {}), {'partition': 0})
    pod_defaults.fill(
        spec.setdefault('persistentVolumeClaimRetentionPolicy', {}),
        {'whenDeleted': 'Retain', 'whenScaled': 'Retain'},
    )
    for claim in spec.get('volumeClaimTemplates') or ():
        claim.update(kind='PersistentVolumeClaim', apiVersion='v1')
        storages.default_claim(claim)


def default_daemon_set(obj: dict[str, Any]) -> None:
    # In new objects, the creator owns the annotation, as if it was in the manifest.
    if not obj['metadata'].get('uid'):
        obj['metadata'].setdefault('annotations', {}).setdefault(_GENERATION, '1')
    spec = obj.setdefault('spec', {})
    pod_defaults.default_template(spec.get('template'))
    pod_defaults.fill(spec, {'revisionHistoryLimit': 10})
    strategy = spec.setdefault('updateStrategy', {})
    pod_defaults.fill(strategy, {'type': _ROLLING})

    if strategy['type'] == _ROLLING:
        pod_defaults.fill(
            strategy.setdefault('rollingUpdate', {}), {'maxUnavailable': 1, 'maxSurge': 0}
        )


def prepare_daemon_set(obj: dict[str, Any], site: entries.Site) -> None:
    obj['metadata'].setdefault('annotations', {})[_GENERATION] = '1'


def prepare_daemon_set_update(new: dict[str, Any], old: entries.Object, site: entries.Site) -> None:
    """Count the changes of the template in the annotation. Modifies the new object."""
    counted = str(checks.dig(old, 'metadata', 'annotations', _GENERATION) or '1')
    generation = (
        int(counted) if counted.isascii() and counted.isdigit() and len(counted) < 19 else 1
    )
    if checks.dig(new, 'spec', 'template') != checks.dig(old, 'spec', 'template'):
        generation += 1
    new['metadata'].setdefault('annotations', {})[_GENERATION] = str(generation)


def _validate_pods(
    spec: entries.Object, kind: str, *, owner: str, text: str = 'invalid label selector'
) -> entries.Problems:
    """Check the selector, and the template that it must match."""
    selector = spec.get('selector')
    template = spec.get('template') or {}
    problems = []

    if selector is None:
        problems.append(errors.required('spec.selector'))
    else:
        problems += checks.check_selector(selector, 'spec.selector')
        if checks.is_empty_selector(selector):
            problems.append(
                errors.invalid_value(
                    'spec.selector', selector, f'empty selector is invalid for {kind}'
                )
            )

    if checks.check_selector(selector, ''):
        return [*problems, errors.invalid_value('spec.selector', selector, text)]

    labels = checks.dig(template, 'metadata', 'labels')
    if not checks.matches(selector, labels or {}):
        problems.append(
            errors.invalid_value('spec.template.metadata.labels', labels, checks.MISMATCH)
        )

    return [
        *problems,
        *pod_specs.validate_template(template, 'spec.template'),
        *_validate_policy(template, owner),
    ]


def _validate_policy(template: entries.Object, owner: str) -> entries.Problems:
    spec = template.get('spec') or {}
    problems = checks.check_optional_enum(
        spec.get('restartPolicy') or '', 'spec.template.spec.restartPolicy', ('Always',)
    )
    if spec.get('activeDeadlineSeconds') is not None:
        problems.append(
            errors.forbidden_field(
                'spec.template.spec.activeDeadlineSeconds',
                f'activeDeadlineSeconds in {owner} is not Supported',
            )
        )

    return problems


def validate_deployment(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    problems = [
        *checks.check_counts(spec, 'spec', 'replicas'),
        *_validate_pods(spec, 'deployment', owner='ReplicaSet'),
        *_validate_strategy(spec.get('strategy') or {}),
        *checks.check_counts(
            spec, 'spec', 'minReadySeconds', 'revisionHistoryLimit', 'progressDeadlineSeconds'
        ),
    ]
    deadline = spec.get('progressDeadlineSeconds')

    if deadline is not None and deadline <= (spec.get('minReadySeconds') or 0):
        problems.append(
            errors.invalid_value(
                'spec.progressDeadlineSeconds', deadline, 'must be greater than minReadySeconds'
            )
        )

    return problems


def _validate_strategy(strategy: entries.Object) -> entries.Problems:
    rolling = strategy.get('rollingUpdate')
    if strategy.get('type') == 'Recreate':
        text = "may not be specified when strategy `type` is 'Recreate'"
        return (
            [] if rolling is None else [errors.forbidden_field('spec.strategy.rollingUpdate', text)]
        )

    if strategy.get('type') != _ROLLING:
        shown = {'Type': strategy.get('type') or '', 'RollingUpdate': rolling}
        return [checks.unsupported_struct('spec.strategy', shown, ('Recreate', _ROLLING))]

    return _validate_rolling(rolling or {}, 'spec.strategy.rollingUpdate')


def _validate_rolling(rolling: entries.Object, field: str) -> entries.Problems:
    unavailable = rolling.get('maxUnavailable')
    surge = rolling.get('maxSurge')
    problems = [
        *checks.check_count_or_percent(unavailable, f'{field}.maxUnavailable'),
        *checks.check_count_or_percent(surge, f'{field}.maxSurge'),
    ]

    if unavailable in (0, '0%') and surge in (0, '0%'):
        problems.append(
            errors.invalid_value(
                f'{field}.maxUnavailable', unavailable, 'may not be 0 when `maxSurge` is 0'
            )
        )

    return problems + checks.check_whole_at_most(unavailable, f'{field}.maxUnavailable')


def validate_replica_set(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    return [
        *checks.check_counts(spec, 'spec', 'replicas', 'minReadySeconds'),
        *_validate_pods(spec, 'deployment', owner='ReplicaSet'),
    ]


def validate_selector_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    return checks.check_immutable(
        checks.dig(new, 'spec', 'selector'), checks.dig(old, 'spec', 'selector'), 'spec.selector'
    )


def validate_stateful_set(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    policy = spec.get('podManagementPolicy')
    strategy = spec.get('updateStrategy') or {}
    problems = []

    if policy not in ('OrderedReady', 'Parallel'):
        problems.append(
            errors.invalid_value(
                'spec.podManagementPolicy', policy, "must be 'OrderedReady' or 'Parallel'"
            )
        )

    if strategy.get('type') not in (_ROLLING, 'OnDelete'):
        shown = {'Type': strategy.get('type') or '', 'RollingUpdate': strategy.get('rollingUpdate')}
        problems.append(
            checks.invalid_struct(
                'spec.updateStrategy', shown, "must be 'RollingUpdate' or 'OnDelete'"
            )
        )

    for index, claim in enumerate(spec.get('volumeClaimTemplates') or ()):
        problems += storages.validate_claim_spec(
            claim.get('spec') or {}, f'spec.volumeClaimTemplates[{index}].spec'
        )

    problems += checks.check_counts(spec, 'spec', 'replicas', 'minReadySeconds')
    problems += checks.check_name(spec.get('serviceName'), 'spec.serviceName', naming.check_label)
    return problems + _validate_pods(_add_claims(spec), 'statefulset', owner='StatefulSet', text='')


def _add_claims(spec: entries.Object) -> entries.Object:
    """Add the claimed volumes to the pod template, so that containers may mount them."""
    claims = [
        checks.dig(claim, 'metadata', 'name') or ''
        for claim in spec.get('volumeClaimTemplates') or ()
    ]
    if not claims:
        return spec

    template = spec.get('template') or {}
    pod = template.get('spec') or {}
    added = [{'name': name, 'persistentVolumeClaim': {'claimName': name}} for name in claims]
    others = [volume for volume in pod.get('volumes') or () if volume.get('name') not in claims]

    return {**spec, 'template': {**template, 'spec': {**pod, 'volumes': [*added, *others]}}}


def validate_stateful_set_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    kept, known = (
        {name: value for name, value in (obj.get('spec') or {}).items() if name not in _MUTABLE}
        for obj in (new, old)
    )
    return [] if kept == known else [errors.forbidden_field('spec', _STATEFUL_ONLY)]


def validate_daemon_set(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    selector = spec.get('selector')
    template = spec.get('template') or {}
    labels = checks.dig(template, 'metadata', 'labels')
    problems = checks.check_selector(selector, 'spec.selector')

    if not problems and not checks.matches(selector, labels or {}):
        problems.append(
            errors.invalid_value('spec.template.metadata.labels', labels, checks.MISMATCH)
        )

    if selector is not None and checks.is_empty_selector(selector):
        problems.append(
            errors.invalid_value(
                'spec.selector', selector, 'empty selector is invalid for daemonset'
            )
        )

    problems += [
        *pod_specs.validate_template(template, 'spec.template'),
        *_validate_policy(template, 'DaemonSet'),
        *checks.check_counts(spec, 'spec', 'minReadySeconds'),
    ]
    strategy = spec.get('updateStrategy') or {}
    if strategy.get('type') not in (_ROLLING, 'OnDelete'):
        shown = {'Type': strategy.get('type') or '', 'RollingUpdate': strategy.get('rollingUpdate')}
        problems.append(
            checks.unsupported_struct('spec.updateStrategy', shown, (_ROLLING, 'OnDelete'))
        )
    elif strategy['type'] == _ROLLING:
        problems += _validate_daemon_rolling(
            strategy.get('rollingUpdate') or {}, 'spec.updateStrategy.rollingUpdate'
        )

    return problems + checks.check_counts(spec, 'spec', 'revisionHistoryLimit')


def _validate_daemon_rolling(rolling: entries.Object, field: str) -> entries.Problems:
    unavailable = rolling.get('maxUnavailable')
    surge = rolling.get('maxSurge')
    if unavailable in (0, '0%') and surge in (0, '0%'):
        return [errors.required(f'{field}.maxUnavailable', 'cannot be 0 when maxSurge is 0')]

    problems = []
    for name, value in (('maxUnavailable', unavailable), ('maxSurge', surge)):
        problems += checks.check_count_or_percent(value, f'{field}.{name}')
        problems += checks.check_whole_at_most(value, f'{field}.{name}')

    if unavailable not in (0, '0%') and surge not in (0, '0%'):
        text = 'may not be set when maxUnavailable is non-zero'
        problems.append(errors.invalid_value(f'{field}.maxSurge', surge, text))

    return problems


def validate_revision(obj: entries.Object) -> entries.Problems:
    problems = [] if obj.get('data') is not None else [errors.required('data', 'data is mandatory')]
    return problems + checks.check_counts(obj, '', 'revision')


def is_deployment_changed(new: entries.Object, old: entries.Object) -> bool:
    """Return whether the generation changes: by the spec, or by the annotations."""
    return entries.bumped_by_spec(new, old) or (
        checks.dig(new, 'metadata', 'annotations') or {}
    ) != (checks.dig(old, 'metadata', 'annotations') or {})


RULES: Final = {
    ('', 'ReplicationController'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        initial_status={'replicas': 0},
        defaults=default_controller,
    ),
    ('apps', 'Deployment'): entries.Rules(
        has_generation=True,
        is_bumped=is_deployment_changed,
        initial_status={},
        repeats_metadata=False,
        defaults=default_deployment,
        validate=validate_deployment,
        validate_update=validate_selector_update,
    ),
    ('apps', 'ReplicaSet'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        initial_status={'replicas': 0},
        repeats_metadata=False,
        defaults=default_replicated,
        validate=validate_replica_set,
        validate_update=validate_selector_update,
    ),
    ('apps', 'StatefulSet'): entries.Rules(
        name_rule=naming.check_label,
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        repeats_metadata=False,
        initial_status={'replicas': 0, 'availableReplicas': 0},
        defaults=default_stateful_set,
        validate=validate_stateful_set,
        validate_update=validate_stateful_set_update,
    ),
    ('apps', 'DaemonSet'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        repeats_metadata=False,
        changes_first=True,
        initial_status={
            'currentNumberScheduled': 0,
            'numberMisscheduled': 0,
            'desiredNumberScheduled': 0,
            'numberReady': 0,
        },
        defaults=default_daemon_set,
        prepare_create=prepare_daemon_set,
        prepare_update=prepare_daemon_set_update,
        validate=validate_daemon_set,
        validate_update=validate_selector_update,
    ),
    ('apps', 'ControllerRevision'): entries.Rules(validate=validate_revision),
}
