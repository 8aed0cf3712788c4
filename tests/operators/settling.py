"""
Settling: waiting until an operator does nothing, in virtual time.

An operator that runs in circles with no delays makes the virtual time stand still.
So the number of calls and the real time are limited.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

QUIET = 60.0
"""For how many seconds nothing is called and written by an operator at rest."""

PATIENCE = 1200.0
"""How many seconds an operator has to come to rest: longer than all delays together."""

REAL_PATIENCE = 5.0
"""For how many seconds of the real time the virtual one may stand still."""

MOST_CALLS = 40
MOST_WRITES = 50
"""How many are too many for any test."""


class NoRestError(AssertionError):
    """The operator runs in circles."""


class Calls(list[Any]):
    """The calls of handlers, in order; it is noticed at once if there are too many."""

    def __init__(self) -> None:
        super().__init__()
        self.overflow = asyncio.Event()

    def append(self, call: Any) -> None:
        super().append(call)
        if len(self) > MOST_CALLS:
            self.overflow.set()


class _Alarm:
    """
    Notices that the virtual time stands still while the real one goes on.

    Everything but the waiting is done in the event loop.
    """

    def __init__(self, overflow: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._overflow = overflow
        self._is_cancelled = False
        self._timer = self._set()

    def cancel(self) -> None:
        self._is_cancelled = True
        self._timer.cancel()

    def _set(self) -> threading.Timer:
        timer = threading.Timer(REAL_PATIENCE, self._ring, [self._loop.time()])
        timer.daemon = True
        timer.start()
        return timer

    def _ring(self, since: float) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed if the test ends just now
            self._loop.call_soon_threadsafe(self._check, since)

    def _check(self, since: float) -> None:
        if self._is_cancelled:
            return
        if self._loop.time() < since + 1:
            self._overflow.set()
        else:
            self._timer = self._set()


async def pass_time(delay: float, calls: Calls, list_writes: Callable[[], Sequence[Any]]) -> None:
    """
    Let so many seconds pass.

    Raises `NoRestError` if too much happens in them: they may never end otherwise.
    """
    alarm = _Alarm(calls.overflow)
    try:
        async with asyncio.timeout(delay):
            await calls.overflow.wait()
    except TimeoutError:
        pass
    finally:
        alarm.cancel()

    written = len(list_writes())
    if calls.overflow.is_set() or written > MOST_WRITES:
        raise NoRestError(f'{len(calls)} calls and {written} writes, beginning with {calls[:3]}.')


async def settle(calls: Calls, list_writes: Callable[[], Sequence[Any]]) -> None:
    """
    Wait until nothing is called and written for `QUIET` seconds.

    Raises `NoRestError` if too much happens before that, or if it lasts too long.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE
    since = clock()
    seen = None
    while clock() < since + QUIET:
        await pass_time(QUIET / 6, calls, list_writes)
        activity = len(calls), len(list_writes())
        if activity != seen:
            since = clock()
            seen = activity
        if clock() > deadline:
            raise NoRestError(f'{activity[0]} calls and {activity[1]} writes after {PATIENCE} s.')
