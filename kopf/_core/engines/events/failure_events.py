"""
Failure events: tell about failing handlers to users of the objects who do not see the logs.

Only failures that need attention are reported: unexpected and permanent errors immediately,
temporary errors when they persist. Equal errors make equal k8s-events, so they are counted, not
repeated. The texts are visible to everyone who may read events.
"""

from typing import Any

from kopf._cogs.structs import references
from kopf._core.actions import execution, failures, outcomes
from kopf._core.engines.events import posting

REASON_FAILING = 'HandlerFailing'
"""The handler will be retried."""

REASON_FAILED = 'HandlerFailed'
"""The handler will not be retried."""

REASON_INVALID = 'InvalidObject'
"""The object does not fit the types of the handlers, and they are not called."""

PATIENCE = 3
"""How many times in a row a handler can fail temporarily before that is reported."""


def is_worth_telling(
    error: Exception, outcome: outcomes.Outcome, attempt: execution.Attempt
) -> bool:
    """Return whether the users of the object should know about this failure."""
    if outcome.exception is None or isinstance(error, failures.HandlerChildrenRetry):
        return False
    if isinstance(error, failures.InvalidObjectError):
        return error.is_first
    is_expected = isinstance(error, failures.TemporaryError) and not outcome.final
    return not is_expected or attempt.number >= PATIENCE


def build_message(
    error: Exception, attempt: execution.Attempt, resource: references.Resource
) -> str:
    """
    Build a text of one line.

    Errors in handlers of Secrets can contain their values, but k8s-events are readable without
    access to Secrets.
    """
    is_secret = references.is_secret(resource)
    text = type(error).__name__ if is_secret else failures.summarize(error)
    if isinstance(error, failures.InvalidObjectError):  # regardless of the handler
        return ' '.join(text.split())
    return f'{attempt.handler}: {" ".join(text.split())}'


def complain(
    error: Exception, outcome: outcomes.Outcome, attempt: execution.Attempt, cause: Any
) -> None:
    """Post a k8s-event about the failure, unless disabled or posted as a log message anyway."""
    poster = posting.get_current()
    if poster is None or not is_worth_telling(error, outcome, attempt):
        return

    settings = poster.settings.posting
    if settings.failures and not settings.loggers and posting.is_wanted('Warning', settings):
        told = outcome.exception if outcome.exception is not None else error
        poster.put(
            posting.build_references(cause.body)[0],
            type='Warning',
            reason=_choose_reason(told, outcome),
            message=build_message(told, attempt, cause.resource),
            backoffs=settings.logging_backoffs,
            is_optional=True,
        )


def _choose_reason(error: Exception, outcome: outcomes.Outcome) -> str:
    if isinstance(error, failures.InvalidObjectError):
        return REASON_INVALID
    return REASON_FAILED if outcome.final else REASON_FAILING
