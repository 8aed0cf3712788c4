"""
Schedules: when timers are to be called. Pure arithmetic: all moments are by the clock of the event loop, in seconds.
"""

import dataclasses
import math

from kopf._core.intents import handlers

PRECISION = 1e-6
"""Which part of an interval is neglected: the arithmetic of clocks is not exact."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One successful call of a timer, as it is seen when it is over."""

    began: float
    ended: float
    changed: float  # when the object has changed for the last time
    is_changed: bool  # was it since this call began?


def choose_first(
    handler: handlers.TimerHandler, *, now: float, delay: float | None, changed: float
) -> float:
    """Tell when to call a timer for the first time: after its delay, and when the object is idle for long enough."""
    return max(now + max(0.0, delay or 0.0), postpone(handler, changed))


def choose_next(handler: handlers.TimerHandler, call: Call) -> float | None:
    """Tell when to call a timer after a success; ``None`` if it is never, or not until the object changes."""
    if handler.interval is None:
        return (
            postpone(handler, call.changed)
            if handler.idle is not None and call.is_changed
            else None
        )
    following = _align(call, handler.interval) if handler.sharp else call.ended + handler.interval
    return max(following, postpone(handler, call.changed))


def postpone(handler: handlers.TimerHandler, changed: float) -> float:
    """Tell when the object will have been idle for long enough, if it does not change any more."""
    return -math.inf if handler.idle is None else changed + handler.idle


def _align(call: Call, interval: float) -> float:
    """Take the next point of the grid that begins with the call; those that the call has missed are skipped."""
    if interval <= 0:
        return call.ended
    steps = max(1, math.ceil((call.ended - call.began) / interval - PRECISION))
    return call.began + steps * interval
