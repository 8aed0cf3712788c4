"""
Tables of workloads: controllers of pods, autoscalers, and disruption budgets.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import cells

_SHOWN_METRICS = 2


def print_deployment(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        f'{cells.number(obj, "status", "readyReplicas")}/{cells.number(obj, "spec", "replicas")}',
        cells.number(obj, 'status', 'updatedReplicas'),
        cells.number(obj, 'status', 'availableReplicas'),
        cells.age(obj, now),
        *cells.containers(cells.dig(obj, 'spec', 'template')),
        cells.selector(obj, 'spec', 'selector', nothing=''),
    ]


def print_replica_set(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [*_print_replicas(obj, now), cells.selector(obj, 'spec', 'selector')]


def print_replication_controller(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [*_print_replicas(obj, now), cells.labels(obj, 'spec', 'selector')]


def _print_replicas(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.number(obj, 'spec', 'replicas'),
        cells.number(obj, 'status', 'replicas'),
        cells.number(obj, 'status', 'readyReplicas'),
        cells.age(obj, now),
        *cells.containers(cells.dig(obj, 'spec', 'template')),
    ]


def print_stateful_set(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        f'{cells.number(obj, "status", "readyReplicas")}/{cells.number(obj, "spec", "replicas")}',
        cells.age(obj, now),
        *cells.containers(cells.dig(obj, 'spec', 'template')),
    ]


def print_daemon_set(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.number(obj, 'status', 'desiredNumberScheduled'),
        cells.number(obj, 'status', 'currentNumberScheduled'),
        cells.number(obj, 'status', 'numberReady'),
        cells.number(obj, 'status', 'updatedNumberScheduled'),
        cells.number(obj, 'status', 'numberAvailable'),
        cells.labels(obj, 'spec', 'template', 'spec', 'nodeSelector'),
        cells.age(obj, now),
        *cells.containers(cells.dig(obj, 'spec', 'template')),
        cells.selector(obj, 'spec', 'selector'),
    ]


def print_controller_revision(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    owners = [
        owner
        for owner in cells.items(obj, 'metadata', 'ownerReferences')
        if owner.get('controller') is True
    ]
    controller = _show_owner(owners[0]) if owners else cells.NONE
    return [cells.name(obj), controller, cells.number(obj, 'revision'), cells.age(obj, now)]


def _show_owner(owner: cells.Object) -> str:
    group = cells.text(owner, 'apiVersion').rpartition('/')[0]
    kind = cells.text(owner, 'kind') + (f'.{group}' if group else '')
    return f'{kind.lower()}/{cells.text(owner, "name")}'


def print_job(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        _detect_job_state(obj),
        _show_completions(obj),
        _show_job_duration(obj, now),
        cells.age(obj, now),
        *cells.containers(cells.dig(obj, 'spec', 'template')),
        cells.selector(obj, 'spec', 'selector'),
    ]


def _detect_job_state(obj: cells.Object) -> str:
    states = {
        **{state: cells.has_condition(obj, state) for state in ('Complete', 'Failed')},
        'Terminating': cells.is_deleting(obj),
        **{
            state: cells.has_condition(obj, state)
            for state in ('Suspended', 'FailureTarget', 'SuccessCriteriaMet')
        },
    }
    return next((state for state, present in states.items() if present), 'Running')


def _show_completions(obj: cells.Object) -> str:
    succeeded = cells.number(obj, 'status', 'succeeded')
    if cells.dig(obj, 'spec', 'completions') is not None:
        return f'{succeeded}/{cells.number(obj, "spec", "completions")}'
    parallelism = cells.number(obj, 'spec', 'parallelism')
    return f'{succeeded}/1 of {parallelism}' if parallelism > 1 else f'{succeeded}/1'


def _show_job_duration(obj: cells.Object, now: datetime.datetime) -> str:
    started = cells.parse_time(cells.dig(obj, 'status', 'startTime'))
    completed = cells.parse_time(cells.dig(obj, 'status', 'completionTime'))
    return '' if started is None else cells.human((completed or now) - started)


def print_cron_job(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    suspended = cells.dig(obj, 'spec', 'suspend')
    last = cells.dig(obj, 'status', 'lastScheduleTime')
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'schedule'),
        cells.text(obj, 'spec', 'timeZone', default=cells.NONE),
        str(suspended) if isinstance(suspended, bool) else cells.UNSET,
        len(cells.items(obj, 'status', 'active')),
        cells.NONE if last is None else cells.since(last, now),
        cells.age(obj, now),
        *cells.containers(cells.dig(obj, 'spec', 'jobTemplate', 'spec', 'template')),
        cells.selector(obj, 'spec', 'jobTemplate', 'spec', 'selector'),
    ]


def print_disruption_budget(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    limits = [cells.dig(obj, 'spec', field) for field in ('minAvailable', 'maxUnavailable')]
    return [
        cells.name(obj),
        *('N/A' if limit is None else str(limit) for limit in limits),
        cells.number(obj, 'status', 'disruptionsAllowed'),
        cells.age(obj, now),
    ]


def print_scale(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    desired, available = (cells.number(obj, part, 'replicas') for part in ('spec', 'status'))
    return [cells.name(obj), desired, available, cells.age(obj, now)]


def print_autoscaler(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    least = cells.dig(obj, 'spec', 'minReplicas')
    target = cells.mapping(obj, 'spec', 'scaleTargetRef')
    return [
        cells.name(obj),
        f'{cells.text(target, "kind")}/{cells.text(target, "name")}',
        _show_metrics(*_read_metrics(obj)),
        cells.UNSET if least is None else str(least),
        cells.number(obj, 'spec', 'maxReplicas'),
        cells.number(obj, 'status', 'currentReplicas'),
        cells.age(obj, now),
    ]


def _read_metrics(obj: cells.Object) -> tuple[list[cells.Object], list[cells.Object]]:
    """Return the specs and statuses of the metrics; ``autoscaling/v1`` has only one."""
    target = cells.dig(obj, 'spec', 'targetCPUUtilizationPercentage')
    if target is None:
        return cells.items(obj, 'spec', 'metrics'), cells.items(obj, 'status', 'currentMetrics')

    current = cells.dig(obj, 'status', 'currentCPUUtilizationPercentage')
    spec = {
        'type': 'Resource',
        'resource': {'name': 'cpu', 'target': {'averageUtilization': target}},
    }
    status = {
        'type': 'Resource',
        'resource': {'name': 'cpu', 'current': {'averageUtilization': current}},
    }

    return [spec], [status]


def _show_metrics(specs: list[cells.Object], statuses: list[cells.Object]) -> str:
    padded = statuses + [{}] * len(specs)
    shown = [_show_metric(spec, status) for spec, status in zip(specs, padded, strict=False)]
    return cells.shorten(shown, limit=_SHOWN_METRICS, separator=', ') or cells.NONE


def _show_metric(spec: cells.Object, status: cells.Object) -> str:
    kind = cells.text(spec, 'type')
    source = kind[:1].lower() + kind[1:]
    target = cells.mapping(spec, source, 'target')
    current = cells.mapping(status, source, 'current')

    match kind:
        case 'Resource' | 'ContainerResource':
            return f'{cells.text(spec, source, "name")}: {_show_utilization(target, current)}'
        case 'Pods':
            return (
                f'{_show_amount(current, "averageValue")}/{cells.quantity(target, "averageValue")}'
            )
        case 'External' | 'Object' if target.get('averageValue') is not None:
            average = _show_amount(current, 'averageValue')
            return f'{average}/{cells.quantity(target, "averageValue")} (avg)'
        case 'External' | 'Object':
            return f'{_show_amount(current, "value")}/{cells.quantity(target, "value")}'
        case _:
            return '<unknown type>'


def _show_utilization(target: cells.Object, current: cells.Object) -> str:
    if target.get('averageValue') is not None:
        return f'{_show_amount(current, "averageValue")}/{cells.quantity(target, "averageValue")}'
    used = current.get('averageUtilization')
    wanted = target.get('averageUtilization')
    shown = cells.UNKNOWN if used is None else f'{used}%'
    return f'{shown}/{"<auto>" if wanted is None else f"{wanted}%"}'


def _show_amount(current: cells.Object, field: str) -> str:
    return cells.quantity(current, field) if current.get(field) is not None else cells.UNKNOWN


_REPLICAS = [
    cells.NAME,
    cells.column('Desired', 'How many pods are wanted.', 'integer'),
    cells.column('Current', 'How many pods there are.', 'integer'),
    cells.column('Ready', 'How many pods are ready.', 'integer'),
    cells.AGE,
    *cells.CONTAINERS,
    cells.SELECTOR,
]

PRINTERS = {
    ('apps', 'Deployment'): cells.Printer(
        [
            cells.NAME,
            cells.column('Ready', 'How many of the wanted pods are ready.'),
            cells.column('Up-to-date', 'How many pods are of the current template.'),
            cells.column('Available', 'How many pods have been ready for long enough.'),
            cells.AGE,
            *cells.CONTAINERS,
            cells.SELECTOR,
        ],
        print_deployment,
    ),
    ('apps', 'ReplicaSet'): cells.Printer(_REPLICAS, print_replica_set),
    ('', 'ReplicationController'): cells.Printer(_REPLICAS, print_replication_controller),
    ('apps', 'StatefulSet'): cells.Printer(
        [
            cells.NAME,
            cells.column('Ready', 'How many of the wanted pods are ready.'),
            cells.AGE,
            *cells.CONTAINERS,
        ],
        print_stateful_set,
    ),
    ('apps', 'DaemonSet'): cells.Printer(
        [
            cells.NAME,
            cells.column('Desired', 'How many nodes should run the pod.', 'integer'),
            cells.column('Current', 'How many of these nodes run the pod.', 'integer'),
            cells.column('Ready', 'How many of these nodes run a ready pod.', 'integer'),
            cells.column(
                'Up-to-date',
                'How many of these nodes run a pod of the current template.',
                'integer',
            ),
            cells.column(
                'Available',
                'How many of these nodes run a pod that has been ready for long enough.',
                'integer',
            ),
            cells.column('Node Selector', 'The labels of the nodes that should run the pod.'),
            cells.AGE,
            *cells.CONTAINERS,
            cells.SELECTOR,
        ],
        print_daemon_set,
    ),
    ('apps', 'ControllerRevision'): cells.Printer(
        [
            cells.NAME,
            cells.column('Controller', 'The object whose revision it is.'),
            cells.column('Revision', 'The number of the revision.'),
            cells.AGE,
        ],
        print_controller_revision,
    ),
    ('batch', 'Job'): cells.Printer(
        [
            cells.NAME,
            cells.column('Status', 'The state of the job.'),
            cells.column('Completions', 'How many pods have succeeded.'),
            cells.column('Duration', 'How long the job takes or took.'),
            cells.AGE,
            *cells.CONTAINERS,
            cells.SELECTOR,
        ],
        print_job,
    ),
    ('batch', 'CronJob'): cells.Printer(
        [
            cells.NAME,
            cells.column('Schedule', 'When the jobs are started, in the cron notation.'),
            cells.column('Timezone', 'The time zone of the schedule.'),
            cells.column('Suspend', 'Whether the schedule is suspended.', 'boolean'),
            cells.column('Active', 'How many jobs are running.', 'integer'),
            cells.column('Last Schedule', 'The time since a job was started last.'),
            cells.AGE,
            *cells.CONTAINERS,
            cells.SELECTOR,
        ],
        print_cron_job,
    ),
    ('policy', 'PodDisruptionBudget'): cells.Printer(
        [
            cells.NAME,
            cells.column('Min Available', 'How many pods must remain.'),
            cells.column('Max Unavailable', 'How many pods may be missing.'),
            cells.column('Allowed Disruptions', 'How many pods may be evicted now.', 'integer'),
            cells.AGE,
        ],
        print_disruption_budget,
    ),
    ('autoscaling', 'Scale'): cells.Printer(
        [
            cells.column('Name', cells.NAME.description),
            cells.column('Desired', 'How many replicas are wanted.', 'integer'),
            cells.column('Available', 'How many replicas there are.', 'integer'),
            cells.AGE,
        ],
        print_scale,
    ),
    ('autoscaling', 'HorizontalPodAutoscaler'): cells.Printer(
        [
            cells.NAME,
            cells.column('Reference', 'The object to scale.'),
            cells.column('Targets', 'The current and the wanted values of the metrics.'),
            cells.column('MinPods', 'The lower limit of pods.'),
            cells.column('MaxPods', 'The upper limit of pods.'),
            cells.column('Replicas', 'How many pods there are.'),
            cells.AGE,
        ],
        print_autoscaler,
    ),
}
