"""
Backoffs: how long to wait before the next attempt after a failure.

Pure arithmetic: callers pass the number of the attempt and a random number, and do the waiting.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Backoff:
    """
    Delays that grow with every attempt, so that short outages are overcome soon, and long ones cost
    little.

    With the defaults: about 1, 2, 4, 8 seconds, and so on, up to 10 minutes.
    """

    first: float = 1.0
    """Seconds before the second attempt."""

    factor: float = 2.0
    """How many times longer each next delay is; with 1, all of them are the same."""

    cap: float = 600.0
    """The maximum of the delays in seconds, not counting the jitter."""

    jitter: float = 0.1
    """The maximal share of random prolongation, so that retries of many objects are spread."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not math.isfinite(value)
            ):
                raise TypeError(
                    f'kopf.Backoff: {field.name} must be a finite number, not {value!r}.'
                )

        if self.first <= 0:
            raise ValueError(f'kopf.Backoff: first must be above 0 seconds, not {self.first!r}.')
        if self.factor < 1:
            raise ValueError(f'kopf.Backoff: factor must be 1 or more, not {self.factor!r}.')
        if self.cap < self.first:
            raise ValueError(
                f'kopf.Backoff: cap must not be less than first ({self.first!r}), as it is '
                f'{self.cap!r}.'
            )
        if self.jitter < 0:
            raise ValueError(f'kopf.Backoff: jitter must be 0 or more, not {self.jitter!r}.')

    def choose_delay(self, attempts: int, chance: float) -> float:
        """Return the seconds to wait after this many attempts; ``chance`` is from 0 to 1."""
        return self._grow(max(0, attempts - 1)) * (1 + self.jitter * chance)

    def _grow(self, times: int) -> float:
        try:
            return min(self.cap, self.first * self.factor**times)
        except OverflowError:
            return self.cap


def choose_delay(backoff: float | Backoff, attempts: int, chance: float) -> float:
    """Return the seconds to wait after that many attempts; plain numbers are constant delays."""
    return backoff.choose_delay(attempts, chance) if isinstance(backoff, Backoff) else backoff
