"""
Retries: whether and when to repeat a failed request.

Decisions only: callers do the waiting. Delays are in seconds; ``None`` means "never again".
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kopf._cogs.clients import errors
from kopf._cogs.configs import connecting

JITTER = 0.1
"""The maximal share of random prolongation, so that the clients of one server are spread."""

FIRST_BACKOFF = 0.8
LONGEST_BACKOFF = 30.0
"""Seconds of the first and of the longest delay of a task; each next delay is twice as long."""

BACKOFF_JITTER = 0.5
"""The maximal share of random prolongation, so that many streams of a failed server are spread."""

MERGE_PATCH = 'application/merge-patch+json'
JSON_PATCH = 'application/json-patch+json'


@dataclasses.dataclass(frozen=True)
class Policy:
    """The caller's choices for the retries of one request."""

    is_repeatable: bool  # whether it is harmless to execute the request twice
    answers: Collection[int] = ()  # codes that the caller expects: they are never retried
    enforce_retry_after: bool = False


def iter_delays(backoffs: connecting.Backoffs) -> Iterator[float]:
    """Begin a new cycle of retries: one number is one delay; anything else is iterated over."""
    return iter((backoffs,)) if isinstance(backoffs, int | float) else iter(backoffs)


def decide_retry(
    error: errors.RequestError, delays: Iterator[float], policy: Policy, chance: float
) -> float | None:
    """
    Decide on the retry after an error, and take the next delay if a retry is possible.

    The result is never shorter than the server asked for; ``chance`` is a random number from 0 to
    1.
    """
    if not is_retriable(error, policy):
        return None

    backoff = next(delays, None)
    if backoff is None:
        return None

    asked = error.retry_after if isinstance(error, errors.APIError) else None
    if asked is None:
        return spread(backoff, chance)
    return spread(asked if policy.enforce_retry_after else max(asked, backoff), chance)


def is_retriable(error: errors.RequestError, policy: Policy) -> bool:
    """
    Return whether the failure can be temporary, and the request can be repeated without harm.

    API servers that are being upgraded can forbid what is permitted. Servers that answer 429, 500
    or 503 did not execute the request; with 502 and 504, as with lost connections, that is unknown.
    """
    match error:
        case errors.APIUnreachableError() | errors.APISessionClosedError(is_sent=False):
            return True
        case errors.APIConnectionError():
            return policy.is_repeatable
        case errors.APIError(code=code) if code in policy.answers:
            return False
        case errors.APIError(code=403 | 429):
            return True
        case errors.APIError(code=502 | 504):
            return policy.is_repeatable
        case errors.APIServerError():
            return True

    return False


def measure_closure(error: errors.APIError, chance: float) -> float:
    """Return for how many seconds to make no requests to the server after the error; 0 for none."""
    if error.code not in (429, 503) or error.retry_after is None:
        return 0.0
    return spread(error.retry_after, chance)


def spread(delay: float, chance: float) -> float:
    """Prolong a delay at random."""
    return max(0.0, delay) * (1 + JITTER * chance)


def choose_backoff(failures: int, chance: float) -> float:
    """Choose a delay after this many failures in a row; ``chance`` is from 0 to 1."""
    doublings = max(0, min(failures, 16) - 1)
    return min(LONGEST_BACKOFF, math.ldexp(FIRST_BACKOFF, doublings)) * (
        1 + BACKOFF_JITTER * chance
    )


def is_repeatable(method: str, *, media_type: str = '', payload: Any = None) -> bool:
    """
    Return whether it is harmless to execute the request twice.

    It is harmless for JSON patches if they have a test for the version of the object: the second
    one will be refused.
    """
    if method == 'POST':
        return False
    if method == 'PATCH' and media_type == JSON_PATCH:
        return _is_versioned(payload)
    return True


def _is_versioned(operations: Any) -> bool:
    return any(
        isinstance(operation, Mapping)
        and operation.get('op') == 'test'
        and operation.get('path') == '/metadata/resourceVersion'
        for operation in operations or ()
    )
