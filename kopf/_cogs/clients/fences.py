"""
Fences: nothing is written by an operator that does not lead, or may have been replaced.

Of several replicas of an operator, one leads: it has to renew its Lease before a deadline. The
deadline is checked right before the bytes of each modifying request are handed to the transport, so
a process that was stopped and woken up after the deadline sends nothing. What was handed over
before cannot be recalled. Only our own requests are checked, not those of other libraries.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable

from kopf._cogs.clients import errors

Permit = Callable[[], None]
"""Called right before a request is sent. Raises `FencedRequestError` if it must not be sent."""

_BOOT_CLOCK = getattr(time, 'CLOCK_BOOTTIME', time.CLOCK_MONOTONIC)


@dataclasses.dataclass(frozen=True)
class Moment:
    """
    The same moment by two clocks.

    Some event loops read their clock once per iteration, so it is outdated after the process was
    stopped in the middle of one. The other clock counts the time when the machine is suspended.
    """

    loop: float
    boot: float

    def measure(self, now: 'Moment') -> float:
        """Return the seconds from this moment until now: the most that any of the clocks shows."""
        return max(now.loop - self.loop, now.boot - self.boot)


class Fence:
    """
    The permission of one operator to write. It belongs to its event loop, but any thread can ask.

    Until an election is announced, everything is permitted and costs nothing. Then nothing is
    permitted until the operator leads, and never again after it has lost.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease = ''
        self._limit = 0.0
        self._since: Moment | None = None  # when the last successful renewal began
        self._is_revoked = False

    @property
    def is_needed(self) -> bool:
        """Whether the operator takes part in an election."""
        return self._loop is not None

    @property
    def is_open(self) -> bool:
        """Whether the operator may write now."""
        return self._loop is None or (self._since is not None and not self.is_lost)

    @property
    def is_lost(self) -> bool:
        """Whether the operator was the leader, and is not any longer; it stays so."""
        if self._since is not None and not self._is_revoked:
            self._is_revoked = self._since.measure(self.read_clocks()) >= self._limit
        return self._is_revoked

    def measure_rest(self) -> float:
        """
        Return for how many more seconds the leader may write; negative if that is over.

        It is for any thread, so it reads only the clock of the machine.
        """
        if self._since is None:
            return self._limit
        return self._since.boot + self._limit - time.clock_gettime(_BOOT_CLOCK)

    def announce(self, lease: str, limit: float) -> None:
        """Begin an election: the leader may write for ``limit`` seconds since each renewal."""
        self._loop = asyncio.get_running_loop()
        self._lease = lease
        self._limit = limit

    def extend(self, since: Moment) -> None:
        """Permit to write: the Lease was acquired or renewed by a request that began then."""
        self._since = since

    def revoke(self) -> None:
        """Permit nothing from now on."""
        self._is_revoked = True

    def read_clocks(self) -> Moment:
        """Return the current moment."""
        loop = asyncio.get_running_loop() if self._loop is None else self._loop
        return Moment(loop.time(), time.clock_gettime(_BOOT_CLOCK))

    def get_permit(self) -> Permit | None:
        """Return the check for the requests of handlers: only the leader makes them."""
        return None if self._loop is None else self._check

    def get_lenient_permit(self) -> Permit | None:
        """Return the check for reports: standbys can make them, but lost leaders cannot."""
        return None if self._loop is None else self._check_loss

    def _check(self) -> None:
        if self._since is None:
            raise errors.FencedRequestError(
                f'This replica does not hold the Lease {self._lease}, and writes nothing: '
                f'the leader does.'
            )
        self._check_loss()

    def _check_loss(self) -> None:
        if self.is_lost:
            raise errors.FencedRequestError(
                f'This replica no longer holds the Lease {self._lease}: it has given it back, or '
                f'has not renewed it for {self._limit} s. It writes nothing.'
            )


def permit_all() -> None:
    """Permit everything."""


def require_nothing() -> Permit | None:
    """Return no check at all."""
    return None
