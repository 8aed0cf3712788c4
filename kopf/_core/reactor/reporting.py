"""
Reporting: the log lines about handling of objects, from the start of a cycle to its summary.

People alert on these lines, and their tests wait for them: the texts are an interface. The details
are at DEBUG, and cost nothing if that is off. The summary is at INFO: with the object's own logger,
it can also be posted as a k8s-event, depending on the settings. No line contains the values of
Secrets.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._cogs.clients.patching import application
from kopf._cogs.structs import concealments, diffs, ids, objects
from kopf._core.actions import diagnostics, progression
from kopf._core.intents import causes, reasons

NOUNS: Mapping[reasons.Reason, str] = {
    reasons.Reason.CREATE: 'Creation',
    reasons.Reason.UPDATE: 'Updating',
    reasons.Reason.DELETE: 'Deletion',
    reasons.Reason.RESUME: 'Resuming',
}
"""The names of the cycles. For other reasons, there are no cycles, and nothing is logged."""


def log_beginning(
    logger: causes.Logger,
    reason: reasons.Reason,
    body: Mapping[str, Any],
    diff: diffs.Diff = diffs.EMPTY,
    *,
    is_secret: bool = False,
) -> None:
    """
    Log that handlers will be called for the current state of the object; for updates, log the diff.
    """
    noun = NOUNS.get(reason)
    if noun is None or not logger.isEnabledFor(logging.DEBUG):
        return

    logger.debug(
        '%s is in progress: %r',
        noun,
        concealments.ConcealedObject(body) if is_secret else objects.Body(body),
    )
    if reason is reasons.Reason.UPDATE and diff:
        logger.debug(
            '%s has the diff: %r', noun, concealments.conceal_diff(diff) if is_secret else diff
        )


def log_summary(
    logger: causes.Logger, reason: reasons.Reason, *, succeeded: int, failed: int
) -> None:
    """
    Log that all handlers of a cycle are finished. Call it once per cycle, with the object's logger.
    """
    noun = NOUNS.get(reason)
    if noun is not None:
        logger.info('%s is processed: %d succeeded; %d failed.', noun, succeeded, failed)


def count_outcomes(state: progression.State, handlers: Iterable[ids.HandlerId]) -> tuple[int, int]:
    """Count the handlers that have succeeded and those that have permanently failed."""
    states = [state.get(id, progression.BLANK) for id in dict.fromkeys(handlers)]
    return sum([found.success for found in states]), sum([found.failure for found in states])


def log_holding(logger: causes.Logger, holding: application.Holding) -> None:
    """Log that the finalizer will be added or removed, if it will be."""
    match holding:
        case application.Holding.BLOCK:
            logger.debug(
                'Adding the finalizer: the object stays until its handlers have finished with its '
                'deletion.'
            )
        case application.Holding.ALLOW:
            logger.debug('Removing the finalizer: its handlers no longer need the object.')


def log_sleep(logger: causes.Logger, delay: float) -> None:
    """Log that the object waits for the next attempts of its handlers."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(
            'Sleeping for the delayed handlers: they are due %s.',
            diagnostics.describe_delay(round(delay, 3)),
        )


def log_dismissal(logger: causes.Logger) -> None:
    """Log that there is nothing to do for the object in its current state."""
    logger.debug('Nothing of interest: no handlers are due for the object as it is now.')


def log_deletion(logger: causes.Logger) -> None:
    """Log that the object no longer exists."""
    logger.debug('Deleted: the object no longer exists.')
