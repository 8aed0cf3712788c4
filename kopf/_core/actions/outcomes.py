"""
Outcomes: the results of attempts to execute handlers.
"""

import dataclasses
import datetime
from typing import Any

from kopf._cogs.structs import ids


@dataclasses.dataclass(frozen=True)
class Outcome:
    """
    The outcome of one attempt.

    The last attempt is final: a failure with an exception, or a success without one. Ignored errors
    are successes with no result. ``delay`` is counted from the end of the attempt.
    """

    final: bool
    delay: float | None = None
    result: Any = None
    exception: Exception | None = None
    # The sub-handlers that must finish for the handler to be finished.
    subrefs: frozenset[ids.HandlerId] = frozenset()
    began: datetime.datetime | None = None
    ended: datetime.datetime | None = None

    @property
    def is_success(self) -> bool:
        return self.final and self.exception is None

    @property
    def is_failure(self) -> bool:
        return self.final and self.exception is not None
