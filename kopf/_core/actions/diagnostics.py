"""
Diagnostics: how failed attempts of handlers are logged.

The message itself says what has happened, what happens next, and when: it is often all that people
see. Tracebacks are only for unexpected errors, and begin with the users' code.
"""

import logging
import os
import types
from typing import Any, Protocol, TypeAlias

from kopf._core.actions import failures, outcomes

Logger: TypeAlias = 'logging.Logger | logging.LoggerAdapter[Any]'

POSTED_AS_ERROR = {'k8s_level': logging.ERROR}
"""
The extras of log lines whose k8s-events have the type ``Error`` despite their lower log levels.
"""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.normpath(__file__))))
_LIBRARY = os.path.dirname(os.path.normpath(os.__file__))
_PLUMBING = tuple(
    os.path.join(path, '')
    for path in [_PACKAGE, os.path.join(_LIBRARY, 'asyncio'), os.path.join(_LIBRARY, 'concurrent')]
)
_INVOCATION = os.path.join(_PACKAGE, '_core', 'actions', 'invocation.py')


class Handler(Protocol):
    """The failed handler."""

    @property
    def retries(self) -> int | None: ...

    @property
    def is_retried(self) -> bool: ...

    def is_denial(self, error: Exception) -> bool: ...


class Attempt(Protocol):
    """The failed attempt."""

    @property
    def handler(self) -> Handler: ...

    @property
    def number(self) -> int: ...


def log_failure(
    error: Exception, outcome: outcomes.Outcome, attempt: Attempt, logger: Logger
) -> None:
    """
    Log temporary and permanent errors as one line, and all other errors with their tracebacks.
    """
    handler = attempt.handler
    if isinstance(error, failures.InvalidObjectError):
        level = logging.WARNING if error.is_first else logging.DEBUG
        logger.log(level, '%s. Handlers with this type are not called: %s.', error, handler)
        return

    text = failures.describe(outcome.exception if outcome.exception is not None else error)
    if isinstance(error, failures.HandlerChildrenRetry) and not outcome.final:
        logger.debug('%s waits for its sub-handlers.', handler)
    elif (
        isinstance(error, failures.TemporaryError) and not outcome.final and not handler.is_retried
    ):
        logger.error('%s failed temporarily and will not try again: %s', handler, text)
    elif isinstance(error, failures.TemporaryError) and not outcome.final:
        logger.warning(
            '%s failed temporarily: %s (attempt %s; will try again %s)',
            handler,
            text,
            count_attempts(attempt),
            describe_delay(outcome.delay),
            extra=POSTED_AS_ERROR,
        )
    elif handler.is_denial(error):
        logger.info('%s failed permanently: %s', handler, text, extra=POSTED_AS_ERROR)
    elif isinstance(error, failures.PermanentError | failures.TemporaryError):
        logger.error('%s failed permanently: %s', handler, text)
    else:
        logger.error(
            '%s failed with an exception and %s: %s',
            handler,
            describe_future(outcome, handler),
            text,
            exc_info=(type(error), error, skip_own_frames(error.__traceback__)),
        )


def count_attempts(attempt: Attempt) -> str:
    """Return the number of the attempt, and of all attempts if limited."""
    limit = attempt.handler.retries
    return f'{attempt.number}' if limit is None else f'{attempt.number} of {limit}'


def describe_future(outcome: outcomes.Outcome, handler: Handler) -> str:
    """Describe what the handler will do after an unexpected error."""
    if not outcome.final:
        return (
            f'will try again {describe_delay(outcome.delay)}'
            if handler.is_retried
            else 'will not try again'
        )
    return 'will ignore it' if outcome.exception is None else 'will stop now'


def describe_delay(delay: float | None) -> str:
    """Describe when the delay ends."""
    if not delay or delay < 0:
        return 'now'
    return f'in {delay:g} second{"" if delay == 1 else "s"}'


def skip_own_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """
    Skip the frames that led to the users' code.

    If the users' function could not even be called, no frames are left. If our own code has failed
    around it, all of them are kept.
    """
    current = traceback
    last = None
    while current is not None and _get_path(current).startswith(_PLUMBING):
        current, last = current.tb_next, current
    if current is not None:
        return current
    return None if last is not None and _get_path(last) == _INVOCATION else traceback


def _get_path(traceback: types.TracebackType) -> str:
    return os.path.normpath(traceback.tb_frame.f_code.co_filename)
