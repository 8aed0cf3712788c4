"""
Timelines: the record of a run: requests, faults, crashes, changes of objects, calls of handlers.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

LONGEST = 150
"""The maximum number of shown lines, half from the beginning, half from the end."""

OBJECTS = 'kopf.objects'
FRAMEWORK = 'kopf'


@dataclasses.dataclass(frozen=True)
class Moment:
    """One event of a run, with its virtual seconds since the beginning."""

    time: float
    kind: str  # start, ready, crash, end, fault, gap, rebirth, request, object, log
    text: str

    def __str__(self) -> str:
        return f'{self.time:9.3f}  {self.kind:8}  {self.text}'


class Timeline(list[Moment]):
    """The events of a run, in the order of time."""

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
        """Return the timeline as lines; if there are too many, the middle ones are left out."""
        lines = list(map(str, self))
        half = LONGEST // 2
        left = len(lines) - LONGEST
        return (
            lines if left <= 0 else [*lines[:half], f'{"":9}  ... {left} more ...', *lines[-half:]]
        )


@contextlib.contextmanager
def recorded(timeline: Timeline) -> Iterator[None]:
    """Redirect the log messages of the framework, including those of handlers, to the timeline."""
    framework = logging.getLogger(FRAMEWORK)
    objects = logging.getLogger(OBJECTS)
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
        framework.setLevel(before[0])  # resets the cached levels of loggers
        objects.setLevel(before[2])


class _Recorder(logging.Handler):
    """Writes log messages to a timeline, with the names of their objects."""

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
