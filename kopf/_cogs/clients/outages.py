"""
Outages: an unreachable cluster is one problem of the operator, not a problem of each request.

An outage is logged when it begins, sometimes while it lasts, and when it ends. Its effects on
individual requests and streams are logged only for debugging: they are retried anyway, and are
counted in the metrics and in the probes as usual.
"""

import dataclasses
import logging
from typing import Any

from kopf._cogs.clients import errors
from kopf._cogs.structs import credentials

FIRST_REMINDER = 60.0
LONGEST_REMINDER = 600.0
"""
Seconds of an outage after which it is logged again; each next interval is twice as long, up to the
longest one.
"""

BURST_PERIOD = 5.0
"""Seconds in which successive losses of streams have the same reason."""

Logger = logging.Logger | logging.LoggerAdapter[Any]


@dataclasses.dataclass(frozen=True)
class Outage:
    """The state of an outage and the time of its next log line, by the loop's clock."""

    since: float
    reminder: float
    interval: float = FIRST_REMINDER
    is_logged: bool = False  # whether it was logged at least once


def advance(outage: Outage | None, now: float, logged: float | None = None) -> Outage:
    """Begin or continue an outage after a failure; ``logged`` is when any one was last logged."""
    if outage is None:
        is_recent = logged is not None and now < logged + FIRST_REMINDER
        outage = Outage(now, reminder=logged + FIRST_REMINDER if is_recent and logged else now)

    if now < outage.reminder:
        return outage
    interval = min(2 * outage.interval, LONGEST_REMINDER) if outage.is_logged else FIRST_REMINDER
    return Outage(outage.since, now + interval, interval, is_logged=True)


class Reachability:
    """
    Whether the cluster answers, for all requests of one operator. Belongs to the event loop of the
    operator.

    If it answers only sometimes, there is at most one warning per minute.
    """

    def __init__(self) -> None:
        self._outage: Outage | None = None
        self._logged: float | None = None
        self._lost: float | None = None

    def note_failure(self, server: str, reason: str, *, now: float, logger: Logger) -> None:
        """Record a failure to connect; log it if it is new, or if it lasts."""
        before = self._outage
        self._outage = advance(before, now, self._logged)
        if not self._outage.is_logged or self._outage is before:
            return

        self._logged = now
        text = 'Cannot reach the cluster %s: %s. Retrying until it answers.'
        if before is not None and before.is_logged:
            text = 'The cluster %s is still not reachable: %s. Retrying until it answers.'
        logger.warning(text, credentials.hide_userinfo(server), reason.rstrip('.'))

    def note_answer(self, server: str, *, now: float, logger: Logger) -> None:
        """Record any response of the cluster; log the end of an outage."""
        outage = self._outage
        self._outage = None
        if outage is not None and outage.is_logged:
            place = credentials.hide_userinfo(server)
            logger.info(
                'The cluster %s is reachable again, after %.0f s.', place, now - outage.since
            )

    def note_loss(self, now: float) -> bool:
        """Record the loss of an open stream; return whether it is the first one in a short time."""
        is_first = self._lost is None or now - self._lost > BURST_PERIOD
        if is_first:
            self._lost = now
        return is_first


def choose_level(error: BaseException) -> int:
    """Choose the log level of a request or a stream to retry: outages have their own log lines."""
    is_outage = isinstance(error, errors.APIUnreachableError)
    return logging.DEBUG if is_outage else logging.WARNING
