"""
Jobs: the kinds that run pods to completion, once or by a schedule.
"""

from typing import Any, Final

from kopf._sandbox.meta import errors
from kopf._sandbox.registry.rules import checks, crons, entries, pod_defaults, pod_specs

_UID_LABELS: Final = ('batch.kubernetes.io/controller-uid', 'controller-uid')
_NAME_LABELS: Final = ('batch.kubernetes.io/job-name', 'job-name')
_FINITE: Final = ('OnFailure', 'Never')
_MODES: Final = ('NonIndexed', 'Indexed')
_CONCURRENCY: Final = ('Allow', 'Forbid', 'Replace')
_COUNTS: Final = (
    'parallelism',
    'completions',
    'activeDeadlineSeconds',
    'backoffLimit',
    'ttlSecondsAfterFinished',
    'backoffLimitPerIndex',
    'maxFailedIndexes',
)
_IMMUTABLE: Final = (
    'completionMode',
    'podFailurePolicy',
    'backoffLimitPerIndex',
    'managedBy',
    'successPolicy',
)
_NAME_LIMIT: Final = 52
_NOT_GENERATED: Final = '`selector` not auto-generated'


def default_job(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    if 'completions' not in spec and 'parallelism' not in spec:
        spec['completions'] = 1
    pod_defaults.fill(
        spec,
        {
            'parallelism': 1,
            'completionMode': 'NonIndexed',
            'suspend': False,
            'manualSelector': False,
            'backoffLimit': 2**31 - 1 if 'backoffLimitPerIndex' in spec else 6,
            'podReplacementPolicy': 'Failed'
            if 'podFailurePolicy' in spec
            else 'TerminatingOrFailed',
        },
    )
    _default_job_template(spec)
    labels = checks.dig(spec, 'template', 'metadata', 'labels')
    if labels:
        pod_defaults.fill(obj['metadata'], {'labels': dict(labels)})


def default_cron_job(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    pod_defaults.fill(
        spec,
        {
            'concurrencyPolicy': 'Allow',
            'suspend': False,
            'successfulJobsHistoryLimit': 3,
            'failedJobsHistoryLimit': 1,
        },
    )
    _default_job_template(checks.dig(spec, 'jobTemplate', 'spec') or {})


def _default_job_template(spec: dict[str, Any]) -> None:
    pod_defaults.default_template(spec.get('template'))
    for rule in checks.dig(spec, 'podFailurePolicy', 'rules') or ():
        for condition in rule.get('onPodConditions') or ():
            condition['status'] = condition.get('status') or 'True'


def prepare_job(obj: dict[str, Any], site: entries.Site) -> None:
    """Make the job select only its own pods, unless its selector is manual. Modifies the job."""
    meta = obj['metadata']
    spec = obj['spec']
    if not spec.get('manualSelector'):
        labels = dict.fromkeys(_UID_LABELS, meta['uid']) | dict.fromkeys(
            _NAME_LABELS, meta.get('name') or ''
        )
        template = spec.setdefault('template', {}).setdefault('metadata', {})
        is_same = (meta.get('labels') or {}) == (template.get('labels') or {})
        template['labels'] = {**(template.get('labels') or {}), **labels}
        spec.setdefault('selector', {}).setdefault('matchLabels', {})[_UID_LABELS[0]] = meta['uid']
        if is_same:
            meta['labels'] = dict(template['labels'])


def validate_job(obj: entries.Object) -> entries.Problems:
    return [
        *_validate_generated(obj),
        *_validate_job_spec(obj.get('spec') or {}, 'spec', selected=True),
    ]


def _validate_generated(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    meta = obj['metadata']
    selector = spec.get('selector')
    if spec.get('manualSelector') or selector is None or checks.check_selector(selector, ''):
        return []

    expected = dict.fromkeys(_UID_LABELS, meta.get('uid')) | dict.fromkeys(
        _NAME_LABELS, meta.get('name')
    )
    if checks.matches(selector, expected):
        return []
    return [errors.invalid_value('spec.selector', selector, _NOT_GENERATED)]


def _validate_job_spec(spec: entries.Object, field: str, *, selected: bool) -> entries.Problems:
    template = spec.get('template') or {}
    problems = checks.check_counts(spec, field, *_COUNTS)
    if spec.get('maxFailedIndexes') is not None and spec.get('backoffLimitPerIndex') is None:
        problems.append(
            errors.required(f'{field}.backoffLimitPerIndex', 'when maxFailedIndexes is specified')
        )

    problems += checks.check_optional_enum(
        spec.get('completionMode'), f'{field}.completionMode', _MODES
    )
    if spec.get('completionMode') == 'Indexed':
        if spec.get('completions') is None:
            problems.append(
                errors.required(f'{field}.completions', 'when completion mode is Indexed')
            )
    else:
        problems += [
            errors.invalid_value(f'{field}.{name}', spec[name], 'requires indexed completion mode')
            for name in ('backoffLimitPerIndex', 'maxFailedIndexes')
            if spec.get(name) is not None
        ]

    problems += checks.check_optional_enum(
        spec.get('podReplacementPolicy'),
        f'{field}.podReplacementPolicy',
        ('Failed', 'TerminatingOrFailed'),
    )
    problems += pod_specs.validate_template(template, f'{field}.template')
    problems += _validate_policy(template, f'{field}.template.spec.restartPolicy')

    return problems + (_validate_selected(spec, template, field) if selected else [])


def _validate_policy(template: entries.Object, field: str) -> entries.Problems:
    policy = checks.dig(template, 'spec', 'restartPolicy')
    if policy in (None, 'Always'):
        return [errors.required(field, 'valid values: "OnFailure", "Never"')]
    return checks.check_optional_enum(policy, field, _FINITE)


def _validate_selected(
    spec: entries.Object, template: entries.Object, field: str
) -> entries.Problems:
    selector = spec.get('selector')
    labels = checks.dig(template, 'metadata', 'labels')
    problems = checks.check_selector(selector, f'{field}.selector')
    if selector is None:
        problems.append(errors.required(f'{field}.selector'))
    if not checks.check_selector(selector, '') and not checks.matches(selector, labels or {}):
        problems.append(
            errors.invalid_value(f'{field}.template.metadata.labels', labels, checks.MISMATCH)
        )

    return problems


def validate_job_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    """Return the forbidden changes, and again the problems of the new spec, as the API does."""
    spec = new.get('spec') or {}
    known = old.get('spec') or {}
    problems = _validate_job_spec(spec, 'spec', selected=True)
    problems += _validate_completions(spec, known)
    problems += checks.check_immutable(spec.get('selector'), known.get('selector'), 'spec.selector')
    template = spec.get('template') or {}
    before = known.get('template') or {}

    if known.get('suspend') and 'startTime' not in (old.get('status') or {}):
        template = _mask_scheduling(template)
        before = _mask_scheduling(before)

    problems += checks.check_immutable(template, before, 'spec.template')
    for name in _IMMUTABLE:
        problems += checks.check_immutable(spec.get(name), known.get(name), f'spec.{name}')
    return problems


def _validate_completions(spec: entries.Object, known: entries.Object) -> entries.Problems:
    completions = spec.get('completions')
    field = 'spec.completions'
    if spec.get('completionMode') != 'Indexed':
        return checks.check_immutable(completions, known.get('completions'), field)
    if completions in (None, known.get('completions'), spec.get('parallelism')):
        return []
    return [
        errors.invalid_value(
            field, completions, 'can only be modified in tandem with spec.parallelism'
        )
    ]


def _mask_scheduling(template: entries.Object) -> dict[str, Any]:
    """Return the parts of the template that are immutable even in jobs that have not started."""
    pod = {
        name: value
        for name, value in (template.get('spec') or {}).items()
        if name not in ('nodeSelector', 'tolerations', 'schedulingGates', 'affinity')
    }
    meta = {
        name: value
        for name, value in (template.get('metadata') or {}).items()
        if name not in ('labels', 'annotations')
    }
    return {'metadata': meta, 'spec': pod}


def validate_cron_job(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    problems = [
        *_validate_schedule(spec.get('schedule')),
        *checks.check_counts(spec, 'spec', 'startingDeadlineSeconds'),
        *_validate_zone(spec.get('timeZone')),
        *checks.check_enum(spec.get('concurrencyPolicy'), 'spec.concurrencyPolicy', _CONCURRENCY),
        *_validate_job_spec(
            checks.dig(spec, 'jobTemplate', 'spec') or {}, 'spec.jobTemplate.spec', selected=False
        ),
        *checks.check_counts(spec, 'spec', 'successfulJobsHistoryLimit', 'failedJobsHistoryLimit'),
    ]
    name = obj['metadata'].get('name') or ''

    if len(name) > _NAME_LIMIT:
        problems.append(
            errors.invalid_value('metadata.name', name, 'must be no more than 52 characters')
        )

    return problems


def _validate_schedule(schedule: str | None) -> entries.Problems:
    if not schedule:
        return [errors.required('spec.schedule')]

    problems = []
    try:
        crons.check_schedule(schedule)
    except crons.ScheduleError as e:
        problems.append(errors.invalid_value('spec.schedule', schedule, str(e)))

    if 'TZ' in schedule:
        problems.append(
            errors.invalid_value(
                'spec.schedule',
                schedule,
                'cannot use TZ or CRON_TZ in schedule, use timeZone field instead',
            )
        )

    return problems


def _validate_zone(zone: str | None) -> entries.Problems:
    field = 'spec.timeZone'
    if zone is None:
        return []
    if not zone:
        return [errors.invalid_value(field, zone, 'timeZone must be nil or non-empty string')]

    if zone.lower() == 'local':
        text = (
            'timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones'
        )
        return [errors.invalid_value(field, zone, text)]

    return (
        []
        if crons.is_time_zone(zone)
        else [errors.invalid_value(field, zone, f'unknown time zone {zone}')]
    )


RULES: Final = {
    ('batch', 'Job'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        initial_status={},
        defaults=default_job,
        prepare_create=prepare_job,
        validate=validate_job,
        validate_update=validate_job_update,
    ),
    ('batch', 'CronJob'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        initial_status={},
        repeats_metadata=False,
        defaults=default_cron_job,
        validate=validate_cron_job,
    ),
}
