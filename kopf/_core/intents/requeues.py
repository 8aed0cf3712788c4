"""
Requeues: the results of level-triggered functions that ask for the next call.
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Requeue:
    """
    The result of a reconciling function: call it again after a time, though it has succeeded.

    If anything happens before, the function is called at once, and this request is forgotten.
    """

    after: float
    """Seconds until the next call."""

    reason: str | None = None
    """What is waited for; it is only logged."""

    def __post_init__(self) -> None:
        after = self.after
        is_number = isinstance(after, int | float) and not isinstance(after, bool)
        if not is_number or not math.isfinite(after) or after < 0:
            raise TypeError(
                f'kopf.Requeue: after= is a number of seconds, 0 or more; got {after!r}.'
            )
        if self.reason is not None and not isinstance(self.reason, str):
            raise TypeError(f'kopf.Requeue: reason= is a string; got {self.reason!r}.')
