"""
Pod states: what controllers want to know about pods, and the conditions of any objects. All pure.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.registry import deletion

Object = Mapping[str, Any]
Body = dict[str, Any]

ENDED = ('Succeeded', 'Failed')


def get_phase(pod: Object) -> str:
    return str((pod.get('status') or {}).get('phase') or '')


def is_leaving(body: Object) -> bool:
    """Return whether an object is being deleted."""
    return body['metadata'].get('deletionTimestamp') is not None


def is_active(pod: Object) -> bool:
    """Return whether a pod has not ended, and is not being deleted."""
    return get_phase(pod) not in ENDED and not is_leaving(pod)


def find_condition(body: Object, type: str) -> Object | None:
    conditions = (body.get('status') or {}).get('conditions') or ()
    return next((item for item in conditions if item.get('type') == type), None)


def is_true(body: Object, type: str) -> bool:
    """Return whether the object has this condition, and it is true."""
    return (find_condition(body, type) or {}).get('status') == 'True'


def is_ready(pod: Object) -> bool:
    return is_true(pod, 'Ready')


def measure_availability(pod: Object, min_ready: int, now: datetime.datetime) -> float | None:
    """
    Return in how many seconds a pod becomes available: 0 if it is; ``None`` if it is not ready.
    """
    condition = find_condition(pod, 'Ready')
    if condition is None or condition.get('status') != 'True':
        return None

    since = parse_time(condition.get('lastTransitionTime'))
    if not min_ready or since is None:
        return 0.0
    return max(0.0, (since - now).total_seconds() + min_ready)


def is_available(pod: Object, min_ready: int, now: datetime.datetime) -> bool:
    return measure_availability(pod, min_ready, now) == 0.0


def find_next_availability(
    pods: Sequence[Object], min_ready: int, now: datetime.datetime
) -> float | None:
    """Return in how many seconds the next of the ready pods becomes available, if any."""
    waits = [measure_availability(pod, min_ready, now) for pod in pods]
    return min((wait for wait in waits if wait), default=None)


def parse_time(text: str | None) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(text) if text else None


def format_time(moment: datetime.datetime) -> str:
    return deletion.format_time(moment)


def get_created(body: Object) -> str:
    """Return the time of creation: it is sortable as a text."""
    return body['metadata'].get('creationTimestamp') or ''


def sort_by_age(bodies: Sequence[Body]) -> list[Body]:
    """Sort objects: the oldest ones first, then by names."""
    return sorted(bodies, key=lambda body: (get_created(body), body['metadata']['name']))


def sort_for_deletion(pods: Sequence[Body], crowds: Mapping[str, int]) -> list[Body]:
    """
    Sort pods by how little is lost with them: not assigned, pending, not ready, cheap by their
    annotation, on crowded nodes, not ready for long, restarted, new.
    """
    phases = {'Pending': 0, 'Unknown': 1, 'Running': 2}

    def rank(pod: Body) -> tuple[Any, ...]:
        spec = pod.get('spec') or {}
        meta = pod['metadata']
        since = (find_condition(pod, 'Ready') or {}).get('lastTransitionTime') or ''

        return (
            bool(spec.get('nodeName')),
            phases.get(get_phase(pod), 3),
            is_ready(pod),
            get_deletion_cost(meta),
            -crowds.get(spec.get('nodeName') or '', 0),
            _Reversed(since) if is_ready(pod) else _Reversed(''),
            -count_restarts(pod),
            _Reversed(get_created(pod)),
            meta['name'],
        )

    return sorted(pods, key=rank)


def get_deletion_cost(meta: Object) -> int:
    text = (meta.get('annotations') or {}).get('controller.kubernetes.io/pod-deletion-cost') or '0'
    try:
        return int(text)
    except ValueError:
        return 0


def count_restarts(pod: Object) -> int:
    statuses = (pod.get('status') or {}).get('containerStatuses') or ()
    return max((status.get('restartCount') or 0 for status in statuses), default=0)


class _Reversed(str):
    """A text that sorts in the opposite direction."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str(self) > str(other)

    def __gt__(self, other: str) -> bool:
        return str(self) < str(other)


def scale_value(value: Any, total: int, *, up: bool) -> int:
    """Return a number of pods given as such or as a percentage of the total."""
    if isinstance(value, str) and value.endswith('%'):
        product = total * int(value[:-1])
        return -(-product // 100) if up else product // 100
    return int(value or 0)


def drop_zeros(status: Body) -> Body:
    """Remove the zeros and the empty values, which the API does not store in some fields."""
    return {name: value for name, value in status.items() if value}
