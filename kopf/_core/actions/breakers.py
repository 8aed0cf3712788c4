"""
Breakers: slow down objects that are handled repeatedly with no changes by other writers.

Handlers that react to their own changes, or to the cluster's reaction to these, could loop forever,
as fast as the cluster responds. Pure arithmetic: callers count the cycles, measure the time and do
the waiting.
"""

import dataclasses
import math

from kopf._cogs.configs import settings

TICK = 0.001
"""Seconds not worth waiting for: clocks and timers are not that precise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Breaker:
    """The cycles of one object since the last change by another writer."""

    moments: tuple[float, ...] = ()  # loop times of the latest cycles
    pauses: int = 0  # how many times in a row the object was slowed down
    until: float | None = None  # loop time of the end of the last pause

    def get_pause(self, now: float) -> float | None:
        """Return for how many more seconds the object is paused; ``None`` if it is not."""
        if self.until is None or self.until <= now + TICK:
            return None
        return self.until - now


CLOSED = Breaker()
"""The state with nothing counted."""


def count_cycle(breaker: Breaker, limits: settings.BreakerSettings, now: float) -> Breaker:
    """
    Count a cycle with no changes by other writers before it.

    Once the object is slowed down, each next cycle slows it down further, until another writer
    changes the object.
    """
    if limits.limit is None:
        return CLOSED

    recent = tuple(moment for moment in breaker.moments if now - moment < limits.window)
    moments = (*recent, now)[-limits.limit - 1 :]
    if not breaker.pauses and len(moments) <= limits.limit:
        return Breaker(moments)

    pause = min(limits.max_delay, math.ldexp(limits.delay, min(breaker.pauses, 32)))
    return Breaker(moments, breaker.pauses + 1, now + pause)
