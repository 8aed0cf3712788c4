"""
Schedules: when timers are to be called. Pure arithmetic: all moments are by the clock of the event loop, in seconds.
"""
import math

from kopf._core.intents import handlers


def choose_first(handler: handlers.TimerHandler, *, now: float, delay: float | None, changed: float) -> float:
    """Tell when to call a timer for the first time: after its delay, and when the object is idle for long enough."""
    return max(now + (delay or 0), postpone(handler, changed))


def choose_next(handler: handlers.TimerHandler, *, began: float, ended: float, changed: float,
                seen: float) -> float | None:
    """
    Tell when to call a timer after a success; ``None`` if it is never, or not until the object changes.

    ``changed`` is when the object has changed for the last time, ``seen`` is the same as of the beginning of the call.
    """
    if handler.interval is None:
        return postpone(handler, changed) if handler.idle is not None and changed > seen else None
    if not handler.sharp:
        return max(ended + handler.interval, postpone(handler, changed))
    steps = math.ceil((ended - began) / handler.interval) if handler.interval > 0 else 0
    return max(began + max(1, steps) * handler.interval, postpone(handler, changed))


def postpone(handler: handlers.TimerHandler, changed: float) -> float:
    """Tell when the object will have been idle for long enough, if it does not change any more."""
    return -math.inf if handler.idle is None else changed + handler.idle
