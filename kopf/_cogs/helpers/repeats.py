"""
Repeats: which log lines to write when others control how often they occur.

A tenant of the cluster can edit an object thousands of times, and each edit causes the same line.
Only a few of these lines are written in each period; the next line after that has the number of the
skipped ones. The time is passed in by the callers.
"""

import collections
import dataclasses
from collections.abc import Hashable

PERIOD = 600.0
"""Seconds in which lines are counted."""

MEMORY = 1024
"""How many different lines are remembered: the most recent ones."""


@dataclasses.dataclass(slots=True)
class _Window:
    """The lines of one kind since the beginning of its period."""

    since: float
    count: int = 1


class Repeats:
    """The counters of recent log lines. Belongs to one event loop, and is limited in size."""

    def __init__(self, burst: int = 1) -> None:
        self._burst = burst  # how many lines of one kind are written in a period
        self._windows: collections.OrderedDict[Hashable, _Window] = collections.OrderedDict()

    def admit(self, kind: Hashable, *, now: float) -> int | None:
        """Return how many lines of this kind were skipped before; ``None`` to skip this one too."""
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
    """Describe how many lines were skipped, as an ending of this one; empty if there are none."""
    return f' It was so {left_out} more times since it was reported last.' if left_out else ''
