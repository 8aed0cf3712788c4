"""
Meters: plain counters of events in the operator, for the readers of metrics.

The numbers only grow. Counting is almost free: no locks, no names, no texts. A meter belongs to one
operator and to its event loop. Values that can be read on demand (e.g. the lengths of queues) are
not counted here. Nothing is counted per object: the number of objects is unlimited.
"""

import bisect
import collections
from collections.abc import Sequence
from typing import Protocol

DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The bounds of the histograms of durations, in seconds."""


class Histogram:
    """How many values were up to each of the bounds, and how many were beyond all of them."""

    __slots__ = ('bounds', 'counts', 'total')

    def __init__(self, bounds: Sequence[float] = DURATIONS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # per range, not cumulative
        self.total = 0.0

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


class Backlog(Protocol):
    """The current numbers of objects to be handled."""

    @property
    def waiting(self) -> int:
        """How many objects wait for their workers."""

    @property
    def working(self) -> int:
        """How many objects are being handled."""

    @property
    def pending(self) -> int:
        """How many objects wait for a planned time, e.g. for the retries of their handlers."""


class Flow:
    """Everything that happened to the objects of one resource."""

    __slots__ = (
        'backlogs',
        'cycles',
        'durations',
        'events',
        'failures',
        'loops',
        'misfits',
        'reconnects',
        'relists',
        'waits',
    )

    def __init__(self) -> None:
        # By types, as they come from streams.
        self.events: collections.Counter[str | None] = collections.Counter()
        self.cycles: collections.Counter[str] = collections.Counter()  # by results
        self.durations = Histogram()  # of the cycles, in seconds
        # Seconds from the first event, or from the planned time, to the cycle.
        self.waits = Histogram()
        self.failures = self.reconnects = self.relists = 0  # of the streams
        self.misfits = 0  # how many times objects unfit for handling came
        # How many times objects were slowed down because they were handled again and again.
        self.loops = 0
        self.backlogs: list[Backlog] = []  # those that exist now


class Calls:
    """All requests to the API of one kind."""

    __slots__ = ('answers', 'durations', 'throttled', 'waits')

    def __init__(self) -> None:
        # By status codes, or by kinds of errors.
        self.answers: collections.Counter[int | str] = collections.Counter()
        # Seconds from the request to the end of the response; for streams, to its beginning.
        self.durations = Histogram()
        self.throttled = 0  # the requests that had to wait for their turn
        self.waits = 0.0  # seconds of waiting in total


class Attempts:
    """All attempts of one handler."""

    __slots__ = ('durations', 'outcomes')

    def __init__(self) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.durations = Histogram()  # seconds


class Meter:
    """Everything that happened in one operator."""

    __slots__ = ('attempts', 'calls', 'conversion_errors', 'flows', 'pauses')

    def __init__(self) -> None:
        # By resources.
        self.flows: collections.defaultdict[str, Flow] = collections.defaultdict(Flow)
        self.calls: collections.defaultdict[str, Calls] = collections.defaultdict(Calls)  # by verbs
        # By handlers.
        self.attempts: collections.defaultdict[str, Attempts] = collections.defaultdict(Attempts)
        # By scopes and reasons.
        self.pauses: collections.Counter[tuple[str, str]] = collections.Counter()
        # The calls that were not made because of objects that do not fit, by resources.
        self.conversion_errors: collections.Counter[str] = collections.Counter()

    def count_call(self, verb: str, answer: int | str, seconds: float) -> None:
        calls = self.calls[verb]
        calls.answers[answer] += 1
        calls.durations.add(seconds)

    def count_attempt(self, handler: str, outcome: str, seconds: float) -> None:
        attempts = self.attempts[handler]
        attempts.outcomes[outcome] += 1
        attempts.durations.add(seconds)
