"""
Watchdogs: stop operators that run in circles.

The activities are counted per object, since its last foreign change: by users, other controllers,
scenarios. An operator must come to rest after each of these, whatever the server does to its own
writes.
"""

import asyncio
import collections
import dataclasses
import re
from collections.abc import Callable

from kopf._kits.chaos import timelines

INVOCATION = re.compile(
    r"^(?P<object>\S+): (?:Handler|Daemon|Timer|Indexer) '(?P<id>.*)' is invoked\.$"
)
"""The log messages about the calls of handlers."""

RECONCILIATION = re.compile(r"^(?P<object>\S+): Reconciler '(?P<id>.*)' is invoked\.$")
"""The log messages about the calls of level-triggered handlers."""


class RestlessOperatorError(AssertionError):
    """The operator keeps writing or calling its handlers, though nothing is changed by others."""


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The limits of activities on one object with no foreign changes."""

    rate: int = 100  # writes, or calls of one handler, within a minute
    # Calls of one level-triggered handler within a minute, despite foreign changes: those of
    # children concern the object too, and can follow from the calls, as the collecting of garbage.
    reconciliations: int = 1000
    calls: int | None = None  # calls of one handler in total, for each start of the operator


@dataclasses.dataclass(frozen=True)
class Deed:
    """One activity of an operator on an object."""

    object: str  # with its namespace
    text: str


MINUTE = 60.0


class Watchdog:
    """Counts the activities of the operator in one run; on excess, keeps the error."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._starts = 1
        self._endless: frozenset[str] = frozenset()
        self._moments: dict[Deed, collections.deque[float]] = {}
        self._reconciliations: dict[Deed, collections.deque[float]] = {}
        self._counts: collections.Counter[Deed] = collections.Counter()
        self._total: collections.Counter[Deed] = collections.Counter()
        self.error: Exception | None = None
        self.tripped = asyncio.Event()

    def note_start(self, number: int, endless: frozenset[str]) -> None:
        """Remember the number of the start, and the ids of handlers that may be called forever."""
        self._starts = number
        self._endless = endless

    def note_foreign_change(self, object: str) -> None:
        """Reset the counters of this object."""
        for deed in [deed for deed in self._counts if deed.object == object]:
            del self._counts[deed]
            self._moments.pop(deed, None)

    def note_write(self, object: str, text: str) -> None:
        """Count a request of the operator that is meant to change the object."""
        self._note(Deed(object, text))

    def note_moment(self, moment: timelines.Moment) -> None:
        """Count a call of a handler, if the log message in the timeline is about one."""
        if moment.kind == 'log' and (reconciled := RECONCILIATION.match(moment.text)):
            self._note_reconciliation(reconciled['object'], reconciled['id'])
        found = INVOCATION.match(moment.text) if moment.kind == 'log' else None
        if found is None or found['id'] in self._endless:
            return
        deed = Deed(found['object'], f'the call of {found["id"]!r}')
        self._note(deed)
        most = None if self._bounds.calls is None else self._bounds.calls * self._starts
        if most is not None and self._counts[deed] > most:
            self._trip(f'{deed.text} for {deed.object} is done more than {most} times')

    def take_stock(self) -> collections.Counter[Deed]:
        """Return the counts of all activities since the beginning of the run."""
        return self._total.copy()

    def fail(self, error: Exception) -> None:
        """End the run with this error, unless there is one already."""
        if self.error is None:
            self.error = error
            self.tripped.set()

    def _note_reconciliation(self, object: str, id: str) -> None:
        deed = Deed(object, f'the call of {id!r}')
        most = self._bounds.reconciliations
        if self._is_excessive(self._reconciliations, deed, most):
            text = f'{deed.text} for {object} is done more than {most} times within a minute'
            self._trip(text, circumstances='')

    def _note(self, deed: Deed) -> None:
        if self._is_excessive(self._moments, deed, self._bounds.rate):
            self._trip(
                f'{deed.text} for {deed.object} is done more than {self._bounds.rate} times '
                f'within a minute'
            )

        self._counts[deed] += 1
        self._total[deed] += 1

    def _is_excessive(
        self, noted: dict[Deed, collections.deque[float]], deed: Deed, most: int
    ) -> bool:
        """Note the moment; return whether there were as many in the minute before."""
        now = self._clock()
        moments = noted.setdefault(deed, collections.deque(maxlen=most))
        is_full = len(moments) == most
        is_excessive = is_full and now - moments[0] < MINUTE
        moments.append(now)
        return is_excessive

    def _trip(self, text: str, circumstances: str = ', with no changes by others') -> None:
        self.fail(RestlessOperatorError(f'The operator runs in circles: {text}{circumstances}.'))


def describe_unrest(
    before: collections.Counter[Deed], after: collections.Counter[Deed], seconds: float
) -> str:
    """Describe the activities between the two moments; return an empty text if there were none."""
    done = after - before
    if not done:
        return ''

    parts = [
        f'{deed.text} for {deed.object} is done {count} times'
        for deed, count in sorted(done.items(), key=str)
    ]
    return (
        f'The operator is not at rest: within {seconds:g} s with no changes by others, '
        f'{"; ".join(parts)}.'
    )
