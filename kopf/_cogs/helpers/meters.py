"""
Meters: how much of what has happened, as plain numbers, for whoever wants to read them.

The numbers only grow. They cost next to nothing when nobody reads them: no locks, no names, no texts. A meter belongs
to one operator and to its event loop. What can be counted by looking at it (e.g. queues), is not counted here.

Nothing is counted by objects: there can be any number of them.
"""

import bisect
import collections
from collections.abc import Sequence
from typing import Protocol

DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds up to which durations are told apart."""


class Histogram:
    """How many values were up to each of the bounds, and how many were beyond them all."""

    __slots__ = ('bounds', 'counts', 'total')

    def __init__(self, bounds: Sequence[float] = DURATIONS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # each is only of its own range
        self.total = 0.0

    def __len__(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.total += value


class Backlog(Protocol):
    """Objects that are to be handled, as they are at the moment."""

    @property
    def waiting(self) -> int:
        """How many objects wait for their workers."""

    @property
    def working(self) -> int:
        """How many objects are being handled."""

    @property
    def pending(self) -> int:
        """How many objects wait for their time, e.g. for the retries of their handlers."""


class Flow:
    """All that has happened to the objects of one resource."""

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
        self.events: collections.Counter[str | None] = (
            collections.Counter()
        )  # by types, as they come from streams
        self.cycles: collections.Counter[str] = collections.Counter()  # by how they have ended
        self.durations = Histogram()  # of the cycles, in seconds
        self.waits = (
            Histogram()
        )  # seconds from the first event, or from the planned time, to the cycle
        self.failures = self.reconnects = self.relists = 0  # of the streams
        self.misfits = 0  # how many times objects came that are not fit for handling
        self.loops = (
            0  # how many times objects were slowed down, as they were handled again and again
        )
        self.backlogs: list[Backlog] = []  # those that exist now


class Calls:
    """All requests to the API of one kind."""

    __slots__ = ('answers', 'durations', 'throttled', 'waits')

    def __init__(self) -> None:
        self.answers: collections.Counter[int | str] = (
            collections.Counter()
        )  # by codes, or by kinds of errors
        self.durations = (
            Histogram()
        )  # seconds from the request to the whole answer; for streams, to its beginning
        self.throttled = 0  # those that had to wait for their turn
        self.waits = 0.0  # seconds of waiting, in total


class Attempts:
    """All attempts of one handler."""

    __slots__ = ('durations', 'outcomes')

    def __init__(self) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.durations = Histogram()  # seconds


class Meter:
    """All that has happened in one operator."""

    __slots__ = ('attempts', 'calls', 'flows', 'pauses')

    def __init__(self) -> None:
        self.flows: collections.defaultdict[str, Flow] = collections.defaultdict(
            Flow
        )  # by resources
        self.calls: collections.defaultdict[str, Calls] = collections.defaultdict(Calls)  # by verbs
        self.attempts: collections.defaultdict[str, Attempts] = collections.defaultdict(
            Attempts
        )  # by handlers
        self.pauses: collections.Counter[tuple[str, str]] = (
            collections.Counter()
        )  # by scopes and reasons

    def count_call(self, verb: str, answer: int | str, seconds: float) -> None:
        calls = self.calls[verb]
        calls.answers[answer] += 1
        calls.durations.add(seconds)

    def count_attempt(self, handler: str, outcome: str, seconds: float) -> None:
        attempts = self.attempts[handler]
        attempts.outcomes[outcome] += 1
        attempts.durations.add(seconds)
