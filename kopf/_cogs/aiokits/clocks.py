"""
Clocks: the time of day that agrees with the event loop.

Durations are measured by the loop, moments are stored in UTC. If the loop's time is simulated, so
is the time of day: a task that sleeps for an hour sees the time of day an hour later, however fast
the loop has jumped there.
"""

import asyncio
import dataclasses
import datetime
import weakref
from collections.abc import Callable

Now = Callable[[], datetime.datetime]
"""A function that returns the current moment, with its timezone."""

_read_wall = datetime.datetime.now


class Clock:
    """
    The time in UTC that runs at least as fast as the event loop where the clock was made.

    All clocks of one loop agree. They follow a wall clock that is set forward, but not one that is
    set back, so durations are never negative. If the time of the loop is virtual, the wall clock is
    not consulted.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._anchor = _anchors.setdefault(self._loop, _make_anchor(self._loop))

    def __call__(self) -> datetime.datetime:
        return self._anchor.tell(self._loop.time(), _read_wall(datetime.UTC))


@dataclasses.dataclass(slots=True)
class _Anchor:
    """The time of day at some time of the loop. Changed by any clock of the loop."""

    since: float
    origin: datetime.datetime
    is_virtual: bool = False

    def tell(self, now: float, wall: datetime.datetime) -> datetime.datetime:
        """Return the time of day; later calls never return an earlier one."""
        told = self.origin + datetime.timedelta(seconds=now - self.since)
        if self.is_virtual or wall <= told:
            return told
        self.since = now
        self.origin = wall
        return wall


_anchors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Anchor] = (
    weakref.WeakKeyDictionary()
)


def detach(loop: asyncio.AbstractEventLoop) -> None:
    """Bind the time of day only to this loop: its time is virtual and must ignore real moments."""
    _anchors[loop] = _make_anchor(loop, is_virtual=True)


def _make_anchor(loop: asyncio.AbstractEventLoop, *, is_virtual: bool = False) -> _Anchor:
    return _Anchor(loop.time(), _read_wall(datetime.UTC), is_virtual)
