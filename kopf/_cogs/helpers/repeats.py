"""
Repeats: which log lines are worth writing, when others decide how often there is a reason for them.

A tenant of the cluster can edit an object thousands of times, and each edit is worth the same line. Only a few of these
lines are written in each period; the next one after that has the number of those left out. Callers know the time.
"""

import collections
import dataclasses
from collections.abc import Hashable

PERIOD = 600.0
"""Seconds in which the lines are counted."""

MEMORY = 1024
"""How many different lines are remembered: the most recent ones."""


@dataclasses.dataclass(slots=True)
class _Window:
    """The lines of one kind since a moment."""

    since: float
    count: int = 1


class Repeats:
    """The lines that were written recently, and how many times. Belongs to one event loop, and is limited in size."""

    def __init__(self, burst: int = 1) -> None:
        self._burst = burst  # how many lines of one kind are written in a period
        self._windows: collections.OrderedDict[Hashable, _Window] = collections.OrderedDict()

    def admit(self, kind: Hashable, *, now: float) -> int | None:
        """Return how many lines of the kind were left out before this one, or ``None`` if it is left out itself."""
        window = self._windows.get(kind)
        if window is None or now - window.since >= PERIOD:
            left_out = 0 if window is None else max(0, window.count - self._burst)
            self._windows[kind] = _Window(now)
            self._windows.move_to_end(kind)
            if len(self._windows) > MEMORY:
                self._windows.popitem(last=False)
            return left_out
        window.count += 1
        return 0 if window.count <= self._burst else None


def describe(left_out: int) -> str:
    """Describe how many lines were left out before this one, as the end of it; empty if there are none."""
    return f' It was so {left_out} more times since it was reported last.' if left_out else ''
