"""
Pulses: a watchdog of event loops.

A function that blocks the loop stops everything in it, so nothing in the loop can report that. A
thread can: it periodically schedules a call in the loop, and measures how long the call is delayed.
If it takes too long, the thread reports where the thread of the loop is stuck. The time is real,
even if the time of the loop is simulated.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from kopf._cogs.helpers import meters

logger = logging.getLogger(__name__)

PERIOD = 1.0
"""Seconds between the checks of the loop, at most."""

ENDING_TIMEOUT = 1.0
"""Seconds to wait for the end of the thread; it ends immediately, unless the logging is slow."""

LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The bounds of the histogram of lags, in seconds."""

GetLimit = Callable[[], float | None]
"""A function that returns how many seconds the loop may be blocked; ``None`` for any time."""


class Pulse:
    """
    The pulse of one event loop: made and read in the loop, checked in a thread.

    There is one pending call in the loop at a time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._place = threading.get_ident()
        self._asked: float | None = None  # when the pending call was scheduled
        # The same for the last call that was reported as delayed.
        self._reported: float | None = None
        self.get_limits: list[GetLimit] = []
        self.lag = 0.0  # the delay of the last call, in seconds
        self.lags = meters.Histogram(LAGS)
        self.blockages = 0

    @property
    def limit(self) -> float | None:
        return min(
            (limit for get_limit in self.get_limits if (limit := get_limit()) is not None),
            default=None,
        )

    @property
    def period(self) -> float:
        """Seconds between the checks: short enough to notice a blockage in time."""
        limit = self.limit
        return PERIOD if limit is None else min(PERIOD, max(0.01, limit / 2))

    def feel(self) -> None:
        """Schedule a call in the loop, or report an overdue one. Called only in the thread."""
        asked = self._asked
        now = self._clock()
        limit = self.limit

        if asked is None:
            self._asked = now
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answer)
        elif limit is not None and now - asked >= limit and self._reported != asked:
            self._reported = asked
            self.blockages += 1
            logger.warning(
                'The event loop is blocked for %.1f s: nothing else can be done meanwhile. What '
                'takes long should be awaited, or be in functions that are not coroutines. Now it '
                'is here:\n%s',
                now - asked,
                describe_stack(self._place),
            )

    def _answer(self) -> None:
        assert self._asked is not None
        self.lag = self._clock() - self._asked
        self.lags.add(self.lag)
        if self._reported == self._asked:
            logger.warning('The event loop was blocked for %.1f s, and goes on.', self.lag)
        self._asked = None  # must be last: the thread continues from here


@contextlib.contextmanager
def feeling_pulse(get_limit: GetLimit) -> Iterator[Pulse]:
    """
    Check the pulse of the running loop within the block, in a thread shared by all users of the
    same loop.

    If their limits differ, the lowest one applies.
    """
    loop = asyncio.get_running_loop()
    pulse = next((pulse for pulse in _pulses if pulse._loop is loop), None)
    if pulse is None:
        pulse = Pulse(loop)
        _pulses[pulse] = _spawn_thread(pulse)

    pulse.get_limits.append(get_limit)
    try:
        yield pulse
    finally:
        pulse.get_limits.remove(get_limit)
        if not pulse.get_limits:
            _pulses.pop(pulse)()


_pulses: dict[Pulse, Callable[[], None]] = {}
"""The pulses of all loops of the process that are being checked, with functions to stop that."""


def _spawn_thread(pulse: Pulse) -> Callable[[], None]:
    """Start the thread, and return a function that stops it and waits for its end."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(pulse.period):
            pulse.feel()

    def stop() -> None:
        is_over.set()
        thread.join(ENDING_TIMEOUT)

    thread = threading.Thread(target=run, name='pulse of the event loop', daemon=True)
    thread.start()
    return stop


def describe_stack(thread: int) -> str:
    """Describe where the thread is now: the lines of code, without any values."""
    frame = sys._current_frames().get(thread)
    return 'nowhere' if frame is None else ''.join(traceback.format_stack(frame)).rstrip()
