"""
Clocks: the time of day that agrees with the event loop.

Durations are measured by the loop, moments are stored in UTC. Where the loop's time is simulated, so is the time
of day: whoever sleeps for an hour sees the time of day an hour later, however fast the loop has jumped there.
"""

import asyncio
import dataclasses
import datetime
import weakref
from collections.abc import Callable

Now = Callable[[], datetime.datetime]
"""Tells the current moment, with its timezone."""

_read_wall = datetime.datetime.now


class Clock:
    """
    Tells the time in UTC, going at least as fast as the event loop it was made in.

    All clocks of one loop agree. A wall clock that is set forward is followed; one that is set back is not, so that
    no duration is ever negative. If the time of the loop is virtual, the wall clock is not looked at any more.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._anchor = _anchors.setdefault(self._loop, _make_anchor(self._loop))

    def __call__(self) -> datetime.datetime:
        return self._anchor.tell(self._loop.time(), _read_wall(datetime.UTC))


@dataclasses.dataclass(slots=True)
class _Anchor:
    """Which time of day it was at which time of the loop. Changed by any clock of the loop."""

    since: float
    origin: datetime.datetime
    is_virtual: bool = False

    def tell(self, now: float, wall: datetime.datetime) -> datetime.datetime:
        """Tell the time of day; from now on, it is never earlier than that."""
        told = self.origin + datetime.timedelta(seconds=now - self.since)
        if self.is_virtual or wall <= told:
            return told
        self.since, self.origin = now, wall
        return wall


_anchors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Anchor] = (
    weakref.WeakKeyDictionary()
)


def detach(loop: asyncio.AbstractEventLoop) -> None:
    """Let the time of day go only with this loop: its time is virtual, so real moments do not shorten its delays."""
    _anchors[loop] = _make_anchor(loop, is_virtual=True)


def _make_anchor(loop: asyncio.AbstractEventLoop, *, is_virtual: bool = False) -> _Anchor:
    return _Anchor(loop.time(), _read_wall(datetime.UTC), is_virtual)
