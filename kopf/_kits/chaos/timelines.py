"""
Timelines: what happened in a run, and when: requests, faults, crashes, changes of objects, calls of handlers.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

LONGEST = 150
"""How many lines are shown at most, half of them from the beginning, half from the end."""

OBJECTS, FRAMEWORK = 'kopf.objects', 'kopf'


@dataclasses.dataclass(frozen=True)
class Moment:
    """One thing that happened, at so many virtual seconds since the beginning of the run."""

    time: float
    kind: str  # start, ready, crash, end, fault, gap, rebirth, request, object, log
    text: str

    def __str__(self) -> str:
        return f'{self.time:9.3f}  {self.kind:8}  {self.text}'


class Timeline(list[Moment]):
    """What happened in a run, in the order of time."""

    def __init__(
        self, clock: Callable[[], float], listener: Callable[[Moment], None] | None = None
    ) -> None:
        super().__init__()
        self._clock = clock
        self._listener = listener

    def note(self, kind: str, text: str) -> None:
        moment = Moment(round(self._clock(), 3), kind, text)
        self.append(moment)
        if self._listener is not None:
            self._listener(moment)

    def format(self) -> list[str]:
        """Write it in lines; if there are too many, those in the middle are left out."""
        lines = list(map(str, self))
        half, left = LONGEST // 2, len(lines) - LONGEST
        return (
            lines if left <= 0 else [*lines[:half], f'{"":9}  ... {left} more ...', *lines[-half:]]
        )


@contextlib.contextmanager
def recorded(timeline: Timeline) -> Iterator[None]:
    """Put the messages of the framework to the timeline instead of anywhere else: above all, those of handlers."""
    framework, objects = logging.getLogger(FRAMEWORK), logging.getLogger(OBJECTS)
    before = framework.level, framework.propagate, objects.level
    recorder = _Recorder(timeline)
    framework.addHandler(recorder)
    framework.setLevel(logging.INFO)
    framework.propagate = False
    objects.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        framework.removeHandler(recorder)
        framework.level, framework.propagate, objects.level = before
        framework.setLevel(before[0])  # with the caches of levels forgotten
        objects.setLevel(before[2])


class _Recorder(logging.Handler):
    """Writes the messages to a timeline, with the names of their objects."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__()
        self._timeline = timeline

    def emit(self, record: logging.LogRecord) -> None:
        ref: dict[str, Any] = getattr(record, 'k8s_ref', None) or {}
        prefix = f'{ref.get("namespace", "")}/{ref.get("name", "")}: ' if ref else ''
        error = (
            f' {record.exc_info[1]!r}' if record.exc_info and record.exc_info[1] is not None else ''
        )
        self._timeline.note('log', f'{prefix}{record.getMessage()}{error}'[:300])
