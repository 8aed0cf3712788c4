"""
Tables of pods: the number of ready containers, and the status in one word.

The status comes from, in the order of precedence: the deletion, the containers from the first to
the last, the failing or running init containers, the scheduling gates, the status' own reason, the
phase.
"""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import cells

_TERMINAL_PHASES = {
    'Succeeded': 'The pod has completed successfully.',
    'Failed': 'The pod failed.',
}


@dataclasses.dataclass
class _Restarts:
    """A counter of restarts. Modified only while one pod is being printed."""

    count: int = 0
    last: datetime.datetime | None = None

    def add(self, status: cells.Object) -> None:
        self.count += cells.number(status, 'restartCount')
        finished = cells.parse_time(cells.dig(status, 'lastState', 'terminated', 'finishedAt'))
        if finished is not None and (self.last is None or self.last < finished):
            self.last = finished

    def show(self, now: datetime.datetime) -> str:
        return (
            f'{self.count} ({cells.human(now - self.last)} ago)'
            if self.count and self.last
            else str(self.count)
        )


@dataclasses.dataclass
class _Summary:
    """The summary of a pod so far. Modified only while one pod is being printed."""

    reason: str
    ready: int = 0
    restarts: _Restarts = dataclasses.field(default_factory=_Restarts)


def print_pod(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    sidecars = _find_sidecars(obj)
    summary = _summarize(obj, sidecars)
    total = len(cells.items(obj, 'spec', 'containers')) + len(sidecars)
    ips = cells.items(obj, 'status', 'podIPs')

    return [
        cells.name(obj),
        f'{summary.ready}/{total}',
        _override_when_deleting(obj, summary.reason),
        summary.restarts.show(now),
        cells.age(obj, now),
        cells.text(ips[0], 'ip', default=cells.NONE) if ips else cells.NONE,
        cells.text(obj, 'spec', 'nodeName', default=cells.NONE),
        cells.text(obj, 'status', 'nominatedNodeName', default=cells.NONE),
        _show_gates(obj),
    ]


def print_template(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    template = cells.mapping(obj, 'template')
    return [
        cells.name(obj),
        *cells.containers(template),
        cells.labels(template, 'metadata', 'labels'),
    ]


def detect_conditions(obj: cells.Object) -> Sequence[cells.Object]:
    """Return the row conditions of completed pods, so that clients can hide them."""
    phase = cells.text(obj, 'status', 'phase')
    if phase not in _TERMINAL_PHASES:
        return ()
    return [
        {'type': 'Completed', 'status': 'True', 'reason': phase, 'message': _TERMINAL_PHASES[phase]}
    ]


def _find_sidecars(obj: cells.Object) -> frozenset[str]:
    """Return the names of the init containers that keep running beside the main containers."""
    found = cells.items(obj, 'spec', 'initContainers')
    return frozenset(
        cells.text(item, 'name') for item in found if item.get('restartPolicy') == 'Always'
    )


def _summarize(obj: cells.Object, sidecars: frozenset[str]) -> _Summary:
    summary = _Summary(reason=_get_own_reason(obj))
    sidecar_restarts = _Restarts()
    initializing = False

    for index, status in enumerate(cells.items(obj, 'status', 'initContainerStatuses')):
        is_sidecar = cells.text(status, 'name') in sidecars
        summary.restarts.add(status)
        if is_sidecar:
            sidecar_restarts.add(status)
        if cells.dig(status, 'state', 'terminated') is not None and _get_exit_code(status) == 0:
            continue
        if is_sidecar and cells.flag(status, 'started'):
            summary.ready += cells.flag(status, 'ready')
            continue
        summary.reason = _explain_initializing(obj, status, index)
        initializing = True
        break

    if not initializing or cells.has_condition(obj, 'Initialized'):
        summary.restarts = sidecar_restarts
        _summarize_containers(obj, summary)

    return summary


def _get_own_reason(obj: cells.Object) -> str:
    for condition in cells.items(obj, 'status', 'conditions'):
        if condition.get('type') == 'PodScheduled' and condition.get('reason') == 'SchedulingGated':
            return 'SchedulingGated'
    return cells.text(obj, 'status', 'reason') or cells.text(obj, 'status', 'phase')


def _explain_initializing(obj: cells.Object, status: cells.Object, index: int) -> str:
    if cells.dig(status, 'state', 'terminated') is not None:
        return f'Init:{_explain_termination(status)}'
    waiting = cells.text(status, 'state', 'waiting', 'reason')
    if waiting and waiting != 'PodInitializing':
        return f'Init:{waiting}'
    return f'Init:{index}/{len(cells.items(obj, "spec", "initContainers"))}'


def _explain_termination(status: cells.Object) -> str:
    signal = cells.number(status, 'state', 'terminated', 'signal')
    unexplained = f'Signal:{signal}' if signal else f'ExitCode:{_get_exit_code(status)}'
    return cells.text(status, 'state', 'terminated', 'reason') or unexplained


def _get_exit_code(status: cells.Object) -> int:
    return cells.number(status, 'state', 'terminated', 'exitCode')


def _summarize_containers(obj: cells.Object, summary: _Summary) -> None:
    failure = ''
    running = False
    for status in reversed(cells.items(obj, 'status', 'containerStatuses')):
        summary.restarts.add(status)
        if waiting := cells.text(status, 'state', 'waiting', 'reason'):
            summary.reason = waiting
        elif cells.dig(status, 'state', 'terminated') is not None:
            summary.reason = _explain_termination(status)
            failure = summary.reason if _get_exit_code(status) else failure
        elif cells.flag(status, 'ready') and cells.dig(status, 'state', 'running') is not None:
            running = True
            summary.ready += 1

    if summary.reason == 'Completed':
        summary.reason = _explain_completion(obj, failure, running)


def _explain_completion(obj: cells.Object, failure: str, running: bool) -> str:
    """Return the status of a pod with completed containers: others may be running or failed."""
    conditions = cells.items(obj, 'status', 'conditions')
    ready = any(item.get('type') == 'Ready' and item.get('status') == 'True' for item in conditions)
    if running and ready:
        return 'Running'
    return failure or ('NotReady' if running else 'Completed')


def _override_when_deleting(obj: cells.Object, reason: str) -> str:
    if not cells.is_deleting(obj):
        return reason
    if cells.text(obj, 'status', 'reason') == 'NodeLost':
        return 'Unknown'
    return reason if cells.text(obj, 'status', 'phase') in _TERMINAL_PHASES else 'Terminating'


def _show_gates(obj: cells.Object) -> str:
    gates = cells.items(obj, 'spec', 'readinessGates')
    passed = sum(cells.has_condition(obj, cells.text(gate, 'conditionType')) for gate in gates)
    return f'{passed}/{len(gates)}' if gates else cells.NONE


PRINTERS = {
    ('', 'Pod'): cells.Printer(
        [
            cells.NAME,
            cells.column('Ready', 'How many of the containers are ready.'),
            cells.column('Status', 'What the pod is doing.'),
            cells.column(
                'Restarts', 'How many times the containers were restarted, and when it was last.'
            ),
            cells.AGE,
            cells.wide('IP', 'The IP address of the pod.'),
            cells.wide('Node', 'The node where the pod runs.'),
            cells.wide(
                'Nominated Node', 'The node where the pod is expected to run after a preemption.'
            ),
            cells.wide(
                'Readiness Gates', 'How many of the additional conditions of readiness are true.'
            ),
        ],
        print_pod,
        detect_conditions,
    ),
    ('', 'PodTemplate'): cells.Printer(
        [
            cells.NAME,
            cells.column('Containers', 'The names of the containers in the template.'),
            cells.column('Images', 'The images of the containers in the template.'),
            cells.column('Pod Labels', 'The labels of the template.'),
        ],
        print_template,
    ),
}
