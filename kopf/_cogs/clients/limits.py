"""
Limits: when the next request to a server may be made.

All requests of an event loop pass here, whichever operators make them. They wait while there are
too many of them in flight, while they would be too frequent, and while the server asks to retry
later, up to 30 seconds. After that time, one request goes ahead as a probe, and the others follow
when the server answers it; if it refuses the probe, they wait again. Requests go in the order of
their arrival. A refused request waits by itself, for as long as the server asked.

Watch-streams do not count as requests in flight: they last for minutes, and servers count them
separately, too. The arithmetic is pure; the times are by the clock of the loop.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import NamedTuple

from kopf._cogs.aiokits import bells

MARGIN = 0.001
"""The minimal wait in seconds: timers can fire slightly too early, causing repeated tiny waits."""

HOLD = 30.0
"""
The maximal time in seconds for which a refusal holds the requests of the process, whatever time it
names. One client's penalty or a wrong clock must not block all of them; one probe per 30 seconds is
no load.
"""

PATIENCE = 5.0
"""Seconds for which requests wait for the response to a probe before the next probe goes ahead."""


class Bounds(NamedTuple):
    """The limits of requests; see the settings of networking for their meaning."""

    inflight_limit: int | None = None
    rate_limit: float | None = None
    rate_burst: int = 1


class Traffic(NamedTuple):
    """The state of the requests to one server."""

    in_flight: int = 0
    spent_until: float = -math.inf  # the permitted rate is used up to this moment
    closed_since: float = -math.inf  # the first of the refusals that hold the requests now
    closed_until: float = -math.inf  # no request goes before this moment
    # A probe went ahead, and other requests wait for it until this moment.
    probed_until: float = -math.inf
    # The server asked to retry later, and has not answered any request successfully since then.
    is_doubtful: bool = False
    refusals: int = 0  # how many times the server asked to retry later


def has_room(traffic: Traffic, bounds: Bounds) -> bool:
    """Return whether one more request can be in flight."""
    return bounds.inflight_limit is None or traffic.in_flight < bounds.inflight_limit


def board(traffic: Traffic) -> Traffic:
    """Claim an in-flight slot; one must be free."""
    # Faster than `_replace`, and done for every request.
    return Traffic(traffic.in_flight + 1, *traffic[1:])


def measure_wait(traffic: Traffic, bounds: Bounds, now: float) -> float:
    """Return in how many seconds the next request may be made, if nothing changes; 0 for now."""
    moments = [now, traffic.closed_until]
    if traffic.is_doubtful:
        moments.append(traffic.probed_until)
    if bounds.rate_limit is not None:
        moments.append(traffic.spent_until - (bounds.rate_burst - 1) / bounds.rate_limit)
    return max(moments) - now


def depart(traffic: Traffic, bounds: Bounds, now: float) -> Traffic:
    """Account for a request that is made now."""
    if bounds.rate_limit is None and not traffic.is_doubtful:
        return traffic
    spent_until = traffic.spent_until
    if bounds.rate_limit is not None:
        spent_until = max(spent_until, now) + 1 / bounds.rate_limit
    probed_until = now + PATIENCE if traffic.is_doubtful else traffic.probed_until
    return traffic._replace(spent_until=spent_until, probed_until=probed_until)


def land(traffic: Traffic) -> Traffic:
    """Free the in-flight slot."""
    return Traffic(traffic.in_flight - 1, *traffic[1:])


def refuse(traffic: Traffic, delay: float, now: float) -> Traffic:
    """
    Hold the requests for as long as the server asked, but not longer than `HOLD`.

    Requests sent earlier can be refused during the hold: they prolong it, up to `HOLD` in total.
    """
    is_held = now < traffic.closed_until
    since = traffic.closed_since if is_held else now
    until = min(max(traffic.closed_until, now + delay), since + HOLD)

    return traffic._replace(
        closed_since=since,
        closed_until=until,
        probed_until=-math.inf,
        is_doubtful=True,
        refusals=traffic.refusals + 1,
    )


def accept(traffic: Traffic, refusals: int) -> Traffic:
    """Trust the server again after a response, unless it refused others since that request."""
    is_trusted = traffic.is_doubtful and traffic.refusals == refusals
    return traffic._replace(is_doubtful=False) if is_trusted else traffic


def abandon(traffic: Traffic, probed_until: float) -> Traffic:
    """Let another request go ahead immediately, if the others wait for this very probe."""
    is_awaited = traffic.is_doubtful and traffic.probed_until == probed_until
    return traffic._replace(probed_until=-math.inf) if is_awaited else traffic


class Pass:
    """The permission for one request; the caller reports the result to it."""

    def __init__(self, gate: 'Gate', *, waited: float = 0.0) -> None:
        self._gate = gate
        self._refusals = gate.traffic.refusals
        self._probed_until = gate.traffic.probed_until  # distinguishes the probes
        self.waited = waited  # seconds; 0 if there was nothing to wait for

    def accept(self) -> None:
        """Note that the server has answered, and did not ask to retry later."""
        self._gate.switch(accept(self._gate.traffic, self._refusals))

    def refuse(self, delay: float) -> None:
        """Note that the server asked to retry not sooner than in this many seconds."""
        self._gate.switch(refuse(self._gate.traffic, delay, asyncio.get_running_loop().time()))

    def abandon(self) -> None:
        """Note that the request was cancelled, so there is no response to wait for."""
        self._gate.switch(abandon(self._gate.traffic, self._probed_until))


class Gate:
    """The gate to one server; used by any number of tasks of one event loop."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.waiting = 0  # how many requests wait here
        # Locks are fair: only the first request in the queue checks the traffic.
        self._boarding = asyncio.Lock()
        self._departing = asyncio.Lock()
        self._changed = bells.Bell()

    @contextlib.asynccontextmanager
    async def passing(self, bounds: Bounds, *, is_counted: bool = True) -> AsyncIterator[Pass]:
        """
        Wait for the turn of a request, for as long as it takes, and hold its in-flight slot for the
        block.

        Watch-streams are not counted in flight, so other requests cannot hold them back. A
        cancelled wait takes no slot. If the block is cancelled while other requests wait for its
        response, one of them goes ahead instead.
        """
        passed = await self.enter(bounds, is_counted=is_counted)
        try:
            yield passed
        except asyncio.CancelledError:
            passed.abandon()
            raise
        finally:
            if is_counted:
                self.leave()

    async def enter(self, bounds: Bounds, *, is_counted: bool = True) -> Pass:
        """
        Do the same as `passing`, but without a block.

        The caller must leave the gate if counted, and abandon the pass if cancelled.
        """
        clock = asyncio.get_running_loop().time
        since = clock()
        if is_counted and self._is_free(bounds, since):
            # No task waits, so no notification is needed.
            self.traffic = board(self.traffic)
            return Pass(self)

        is_held = await self._wait_for_room(bounds) if is_counted else False
        try:
            is_held = await self._wait_for_turn(bounds) or is_held
        except BaseException:
            if is_counted:
                self.leave()
            raise

        return Pass(self, waited=clock() - since if is_held else 0.0)

    def leave(self) -> None:
        """Free the in-flight slot."""
        self.switch(land(self.traffic))

    def _is_free(self, bounds: Bounds, now: float) -> bool:
        """Return whether the request may start immediately (the common case)."""
        return (
            bounds.rate_limit is None
            and not self.traffic.is_doubtful
            and now >= self.traffic.closed_until
            and has_room(self.traffic, bounds)
            and not self._boarding.locked()
            and not self._departing.locked()
        )

    def switch(self, traffic: Traffic) -> None:
        """Replace the state, and notify the waiting tasks if it has changed."""
        if traffic is not self.traffic:
            self.traffic = traffic
            self._changed.ring()

    async def _wait_for_room(self, bounds: Bounds) -> bool:
        """Claim an in-flight slot; return whether there was a wait for it."""
        is_held = self._boarding.locked()
        self.waiting += 1
        try:
            async with self._boarding:
                while not has_room(self.traffic, bounds):
                    is_held = True
                    await self._changed.wait()
                # No await since the check: no other task can claim the slot.
                self.switch(board(self.traffic))
        finally:
            self.waiting -= 1

        return is_held

    async def _wait_for_turn(self, bounds: Bounds) -> bool:
        clock = asyncio.get_running_loop().time
        is_held = self._departing.locked()
        self.waiting += 1

        try:
            async with self._departing:
                while (delay := measure_wait(self.traffic, bounds, clock())) > 0:
                    is_held = True
                    await self._wait_for_change(max(delay, MARGIN))
                # No await since the check: no other task can depart.
                self.switch(depart(self.traffic, bounds, clock()))
        finally:
            self.waiting -= 1

        return is_held

    async def _wait_for_change(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            pass


class Gates:
    """The gates to all servers."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, server: str) -> Gate:
        gate = self._gates.get(server)
        return self._gates.setdefault(server.rstrip('/'), Gate()) if gate is None else gate

    def count_requests(self) -> tuple[int, int]:
        """Count the requests in flight, and the requests that wait."""
        gates = self._gates.values()
        return sum(gate.traffic.in_flight for gate in gates), sum(gate.waiting for gate in gates)


_gates: dict[asyncio.AbstractEventLoop, Gates] = {}


def get_common_gates() -> Gates:
    """Return the gates of the running event loop, which all its operators share."""
    # Weak references would not work: the locks of the gates refer to their loops.
    for loop in list(_gates):
        if loop.is_closed():
            _gates.pop(loop, None)
    return _gates.setdefault(asyncio.get_running_loop(), Gates())
