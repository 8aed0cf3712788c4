"""
Throttlers: pauses after errors that no handler is responsible for.

Pure arithmetic: callers measure the time and do the sleeping.
"""

from collections.abc import Iterator

from kopf._cogs.configs import connecting


class Throttler:
    """
    The consecutive errors of one object. Used only by the worker of that object.

    Delays are taken from one iterator per series of errors; when it is exhausted, its last delay is
    repeated.
    """

    def __init__(self) -> None:
        self._delays: Iterator[float] | None = None
        self._last: float = 0

    def fail(self, now: float, delays: connecting.Backoffs) -> float:
        """Count an error, and return until when to pause; it is now if there are no delays."""
        if self._delays is None:
            self._delays = iter((delays,) if isinstance(delays, int | float) else delays)
            self._last = 0
        self._last = next(self._delays, self._last)
        return now + self._last
