"""
Limits: when the next request to a server may be made.

All requests of an event loop pass here, whichever operators make them. They wait while there are
too many of them in flight, while they would be too frequent, and while the server asks to come
later, up to 30 seconds. When that time is over, one request goes ahead as a probe, and the others
follow when the server is seen to answer it; if it refuses the probe, they wait again. Requests go
in the order of their coming. A refused request waits by itself, for as long as the server asked.

Watch-streams do not count as requests in flight: they last for minutes, and servers count them apart, too.
The arithmetic is pure; the times are of the clock of the loop.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import NamedTuple

from kopf._cogs.aiokits import bells

MARGIN = 0.001
"""Seconds to wait at least: timers can fire a bit too early, and the rest would be waited for again and again."""

HOLD = 30.0
"""
Seconds for which a refusal holds the requests of the process at most, however long a time it names.
One client's penalty or a wrong clock must not silence them all; one probe per 30 seconds is no load.
"""

PATIENCE = 5.0
"""Seconds for which the others wait for the answer to the request that goes ahead, before one more goes ahead."""


class Bounds(NamedTuple):
    """How many requests are permitted; see the settings of networking for the meaning."""

    inflight_limit: int | None = None
    rate_limit: float | None = None
    rate_burst: int = 1


class Traffic(NamedTuple):
    """The state of the requests to one server."""

    in_flight: int = 0
    spent_until: float = -math.inf  # the permitted rate is used up to this moment
    closed_since: float = -math.inf  # the first of the refusals that hold the requests now
    closed_until: float = -math.inf  # no request goes before this moment
    probed_until: float = (
        -math.inf
    )  # a request went ahead, and the others wait for it up to this moment
    is_doubtful: bool = (
        False  # the server asked to come later, and has not answered anything good since then
    )
    refusals: int = 0  # how many times it asked


def has_room(traffic: Traffic, bounds: Bounds) -> bool:
    """Tell if one more request can be in flight."""
    return bounds.inflight_limit is None or traffic.in_flight < bounds.inflight_limit


def board(traffic: Traffic) -> Traffic:
    """Take a place in flight, as there is one."""
    return Traffic(
        traffic.in_flight + 1, *traffic[1:]
    )  # the general way of replacing is slower, and it is always so


def measure_wait(traffic: Traffic, bounds: Bounds, now: float) -> float:
    """Tell in how many seconds the next request may be made, if nothing changes till then; 0 for now."""
    moments = [now, traffic.closed_until]
    if traffic.is_doubtful:
        moments.append(traffic.probed_until)
    if bounds.rate_limit is not None:
        moments.append(traffic.spent_until - (bounds.rate_burst - 1) / bounds.rate_limit)
    return max(moments) - now


def depart(traffic: Traffic, bounds: Bounds, now: float) -> Traffic:
    """Make a request, as it is the time."""
    if bounds.rate_limit is None and not traffic.is_doubtful:
        return traffic
    spent_until = traffic.spent_until
    if bounds.rate_limit is not None:
        spent_until = max(spent_until, now) + 1 / bounds.rate_limit
    probed_until = now + PATIENCE if traffic.is_doubtful else traffic.probed_until
    return traffic._replace(spent_until=spent_until, probed_until=probed_until)


def land(traffic: Traffic) -> Traffic:
    """Free the place in flight."""
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
    """Trust the server again after an answer, unless it asked to come later after the request was made."""
    is_trusted = traffic.is_doubtful and traffic.refusals == refusals
    return traffic._replace(is_doubtful=False) if is_trusted else traffic


def abandon(traffic: Traffic, probed_until: float) -> Traffic:
    """Let another request go ahead at once, if the others wait for this very probe."""
    is_awaited = traffic.is_doubtful and traffic.probed_until == probed_until
    return traffic._replace(probed_until=-math.inf) if is_awaited else traffic


class Pass:
    """The permission for one request: tell by it how the request went."""

    def __init__(self, gate: 'Gate', *, waited: float = 0.0) -> None:
        self._gate = gate
        self._refusals = gate.traffic.refusals
        self._probed_until = gate.traffic.probed_until  # tells the probes apart
        self.waited = waited  # seconds; 0 if there was nothing to wait for

    def accept(self) -> None:
        """The server has answered, and did not ask to come later."""
        self._gate.switch(accept(self._gate.traffic, self._refusals))

    def refuse(self, delay: float) -> None:
        """The server asked to come not sooner than in so many seconds."""
        self._gate.switch(refuse(self._gate.traffic, delay, asyncio.get_running_loop().time()))

    def abandon(self) -> None:
        """Note that the request was cancelled, so there is no answer to wait for."""
        self._gate.switch(abandon(self._gate.traffic, self._probed_until))


class Gate:
    """The way to one server; used by any number of tasks of one event loop."""

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.waiting = 0  # how many requests wait for anything here
        self._boarding = (
            asyncio.Lock()
        )  # locks are fair: only the first in the queue looks at the traffic
        self._departing = asyncio.Lock()
        self._changed = bells.Bell()

    @contextlib.asynccontextmanager
    async def passing(self, bounds: Bounds, *, is_counted: bool = True) -> AsyncIterator[Pass]:
        """
        Wait for the turn of a request, for as long as it takes, and hold its place in flight for the block.

        Watch-streams are not counted in flight, so the others cannot hold them back. A cancelled wait takes nothing.
        If the block is cancelled while the others wait for its answer, one of them goes ahead instead.
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
        Do the same without a block.

        The caller leaves the gate if counted, and abandons the pass if cancelled.
        """
        clock = asyncio.get_running_loop().time
        since = clock()
        if is_counted and self._is_free(bounds, since):
            self.traffic = board(self.traffic)  # nobody waits, so nobody is to be told
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
        """Free the place in flight."""
        self.switch(land(self.traffic))

    def _is_free(self, bounds: Bounds, now: float) -> bool:
        """Tell if there is nothing to wait for, and nothing to count but the place: so it is most of the time."""
        return (
            bounds.rate_limit is None
            and not self.traffic.is_doubtful
            and now >= self.traffic.closed_until
            and has_room(self.traffic, bounds)
            and not self._boarding.locked()
            and not self._departing.locked()
        )

    def switch(self, traffic: Traffic) -> None:
        """Take the new state into account."""
        if traffic is not self.traffic:
            self.traffic = traffic
            self._changed.ring()

    async def _wait_for_room(self, bounds: Bounds) -> bool:
        """Take a place in flight; tell if it had to be waited for."""
        is_held = self._boarding.locked()
        self.waiting += 1
        try:
            async with self._boarding:
                while not has_room(self.traffic, bounds):
                    is_held = True
                    await self._changed.wait()
                self.switch(
                    board(self.traffic)
                )  # No await since the check: nobody else can take the place.
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
                self.switch(
                    depart(self.traffic, bounds, clock())
                )  # No await since the check: nobody else can go.
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
    """The ways to all servers."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def __getitem__(self, server: str) -> Gate:
        gate = self._gates.get(server)
        return self._gates.setdefault(server.rstrip('/'), Gate()) if gate is None else gate

    def count_requests(self) -> tuple[int, int]:
        """Count the requests that are in flight, and those that wait for that."""
        gates = self._gates.values()
        return sum(gate.traffic.in_flight for gate in gates), sum(gate.waiting for gate in gates)


_gates: dict[asyncio.AbstractEventLoop, Gates] = {}


def get_common_gates() -> Gates:
    """Get the gates of the running event loop: those that all operators in it share."""
    for loop in list(
        _gates
    ):  # weak references would not do: the locks of the gates refer to their loops
        if loop.is_closed():
            _gates.pop(loop, None)
    return _gates.setdefault(asyncio.get_running_loop(), Gates())
