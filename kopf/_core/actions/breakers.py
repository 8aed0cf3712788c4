"""
Breakers: how to slow down an object that is handled again and again for no change by others.

Handlers that react to their own changes, or to what the cluster makes of these, could go on for ever, as fast as
the cluster answers. Pure arithmetic: callers count the cycles, measure the time and do the waiting.
"""

import dataclasses
import math

from kopf._cogs.configs import settings

TICK = 0.001
"""Seconds that are not worth waiting for: clocks and timers are not that precise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Breaker:
    """The cycles of one object since the last change by others."""

    moments: tuple[float, ...] = ()  # loop times of the latest ones
    pauses: int = 0  # how many times in a row the object was slowed down
    until: float | None = None  # loop time of the end of the last pause

    def get_pause(self, now: float) -> float | None:
        """Return for how many seconds the object is left alone; ``None`` if it is not."""
        if self.until is None or self.until <= now + TICK:
            return None
        return self.until - now


CLOSED = Breaker()
"""The state with nothing counted."""


def count_cycle(breaker: Breaker, limits: settings.BreakerSettings, now: float) -> Breaker:
    """
    Count one more cycle with no change by others before it.

    Once the object is slowed down, each next cycle slows it down further, until others change the object.
    """
    if limits.limit is None:
        return CLOSED
    recent = tuple(moment for moment in breaker.moments if now - moment < limits.window)
    moments = (*recent, now)[-limits.limit - 1 :]
    if not breaker.pauses and len(moments) <= limits.limit:
        return Breaker(moments)

    pause = min(limits.max_delay, math.ldexp(limits.delay, min(breaker.pauses, 32)))
    return Breaker(moments, breaker.pauses + 1, now + pause)
