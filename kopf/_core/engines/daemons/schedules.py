"""
Schedules: when timers are called. Pure arithmetic, in seconds by the clock of the event loop.
"""

import dataclasses
import math

from kopf._core.intents import handlers

PRECISION = 1e-6
"""The share of an interval that is neglected: the arithmetic of clocks is not exact."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One successful call of a timer, after its end."""

    began: float
    ended: float
    changed: float  # when the object was last changed
    is_changed: bool  # whether it has changed since this call began


def choose_first(
    handler: handlers.TimerHandler, *, now: float, delay: float | None, changed: float
) -> float:
    """
    Choose the time of the first call: after the delay, and when the object is idle for long enough.
    """
    return max(now + max(0.0, delay or 0.0), postpone(handler, changed))


def choose_next(handler: handlers.TimerHandler, call: Call) -> float | None:
    """Choose the next time after a success; ``None`` if never, or not until the object changes."""
    if handler.interval is None:
        return (
            postpone(handler, call.changed)
            if handler.idle is not None and call.is_changed
            else None
        )
    following = _align(call, handler.interval) if handler.sharp else call.ended + handler.interval
    return max(following, postpone(handler, call.changed))


def postpone(handler: handlers.TimerHandler, changed: float) -> float:
    """Return when the object will have been idle for long enough, unless it changes again."""
    return -math.inf if handler.idle is None else changed + handler.idle


def _align(call: Call, interval: float) -> float:
    """
    Return the next point of the grid that begins with the call, skipping those already missed.
    """
    if interval <= 0:
        return call.ended
    steps = max(1, math.ceil((call.ended - call.began) / interval - PRECISION))
    return call.began + steps * interval
