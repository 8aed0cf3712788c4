"""
Outages: when the cluster cannot be reached at all, it is one trouble of the operator, not one of each request.

It is logged when it begins, sometimes while it lasts, and when it ends. What it does to individual requests and streams
is worth debug lines only: they are retried anyway, and are counted in the metrics and in the probes as before.
"""

import dataclasses
import logging
from typing import Any

from kopf._cogs.clients import errors
from kopf._cogs.structs import credentials

FIRST_REMINDER, LONGEST_REMINDER = 60.0, 600.0
"""Seconds of an outage after which it is logged again; each next interval is twice as long, up to the longest one."""

BURST_PERIOD = 5.0
"""Seconds in which streams that are lost one after another are lost for the same reason."""

Logger = logging.Logger | logging.LoggerAdapter[Any]


@dataclasses.dataclass(frozen=True)
class Outage:
    """How long the cluster has not been reachable, and when that is to be logged; moments of the loop's clock."""

    since: float
    reminder: float
    interval: float = FIRST_REMINDER
    is_logged: bool = False  # whether it was logged at least once


def advance(outage: Outage | None, now: float, logged: float | None = None) -> Outage:
    """Begin or continue an outage after one more failure; ``logged`` is when any outage was logged last."""
    if outage is None:
        is_recent = logged is not None and now < logged + FIRST_REMINDER
        outage = Outage(now, reminder=logged + FIRST_REMINDER if is_recent and logged else now)
    if now < outage.reminder:
        return outage
    interval = min(2 * outage.interval, LONGEST_REMINDER) if outage.is_logged else FIRST_REMINDER
    return Outage(outage.since, now + interval, interval, is_logged=True)


class Reachability:
    """
    Whether the cluster answers, as all requests of one operator see it. Belongs to the event loop of the operator.

    If it answers only sometimes, there is not more than one warning per minute.
    """

    def __init__(self) -> None:
        self._outage: Outage | None = None
        self._logged: float | None = None
        self._lost: float | None = None

    def note_failure(self, server: str, reason: str, *, now: float, logger: Logger) -> None:
        """Take notice that there was no connection; log it if it is new, or if it lasts."""
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
        """Take notice that the cluster has answered, with whatever."""
        outage, self._outage = self._outage, None
        if outage is not None and outage.is_logged:
            place = credentials.hide_userinfo(server)
            logger.info(
                'The cluster %s is reachable again, after %.0f s.', place, now - outage.since
            )

    def note_loss(self, now: float) -> bool:
        """Take notice that an open stream is lost; return whether it is the first one of several."""
        is_first = self._lost is None or now - self._lost > BURST_PERIOD
        self._lost = now
        return is_first


def choose_level(error: BaseException) -> int:
    """Choose the level of a line on a request or a stream that will be retried: outages have lines of their own."""
    is_outage = isinstance(error, errors.APIUnreachableError)
    return logging.DEBUG if is_outage else logging.WARNING
