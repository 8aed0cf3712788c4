"""
Pulses: whether an event loop turns, as it is seen from the outside.

A function that blocks the loop stops everything in it, so nothing in the loop can tell of that. A thread can: once
in a while, it asks the loop for an answer, and measures how long that takes. If there is none for too long, it tells
where the thread of the loop is stuck. The time is the real one, even if the time of the loop is simulated.
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
"""Seconds between the questions to the loop, at most."""

ENDING_TIMEOUT = 1.0
"""Seconds to wait for the end of the thread; it has nothing to do then, unless the logging is slow."""

LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds up to which lags are told apart."""

GetLimit = Callable[[], float | None]
"""Tells for how many seconds the loop can be blocked before it is worth a complaint; ``None`` if it never is."""


class Pulse:
    """
    The pulse of one event loop: made and read in the loop, felt in a thread, with one question to the loop at a time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._loop, self._clock = loop, clock
        self._place = threading.get_ident()
        self._asked: float | None = None  # when the question was asked that is not answered yet
        self._reported: float | None = (
            None  # the same, of the last question that was worth a complaint
        )
        self.get_limits: list[GetLimit] = []
        self.lag = 0.0  # seconds that the last answer took
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
        """Seconds between the questions: often enough to notice a blockage in time."""
        limit = self.limit
        return PERIOD if limit is None else min(PERIOD, max(0.01, limit / 2))

    def feel(self) -> None:
        """Ask the loop, or see if it owes an answer for too long. Called only in the thread."""
        asked, now, limit = self._asked, self._clock(), self.limit
        if asked is None:
            self._asked = now
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answer)
        elif limit is not None and now - asked >= limit and self._reported != asked:
            self._reported = asked
            self.blockages += 1
            logger.warning(
                'The event loop is blocked for %.1f s: nothing else can be done meanwhile. What takes long should be '
                'awaited, or be in functions that are not coroutines. Now it is here:\n%s',
                now - asked,
                describe_stack(self._place),
            )

    def _answer(self) -> None:
        assert self._asked is not None
        self.lag = self._clock() - self._asked
        self.lags.add(self.lag)
        if self._reported == self._asked:
            logger.warning('The event loop was blocked for %.1f s, and goes on.', self.lag)
        self._asked = None  # in the end: the thread goes on from here


@contextlib.contextmanager
def feeling_pulse(get_limit: GetLimit) -> Iterator[Pulse]:
    """
    Feel the pulse of the running loop within the block, in a thread, one for all who do so in the same loop.

    If their limits differ, the lowest one is in force.
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
"""Those who are being felt, in all loops of the process, and how to stop that."""


def _spawn_thread(pulse: Pulse) -> Callable[[], None]:
    """Start the thread, and return the function to stop it, which waits until it ends."""
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
    """Tell where the thread is now: the places in the code, but none of the values."""
    frame = sys._current_frames().get(thread)
    return 'nowhere' if frame is None else ''.join(traceback.format_stack(frame)).rstrip()
