"""
Queueing: the backlogs of objects, and the workers that handle them.

The events of one object are handled by one worker at a time, in the order of arrival; objects do
not wait for each other, unless the number of workers is limited. An object with nothing to do has
neither a backlog nor a worker. An object with a delay has a timer, but no worker: it does not count
towards the limit.

While an object waits or is being handled, its backlog holds a few events at most, regardless of the
number of changes, unless there are handlers that want every event.

Initially listed objects can be many, and have a low priority. They are served after all others, and
are held back while the operator is crowded, e.g. with requests: otherwise, live changes would have
to wait behind them.
"""

import asyncio
import collections
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

from kopf._cogs.aiokits import bells
from kopf._cogs.helpers import meters
from kopf._cogs.structs import bodies
from kopf._core.reactor import backlogs, inventory

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """The events received for an object since it was last handled, all or as reduced by `fold`."""

    # In the order of arrival; empty if a delay has passed or the object was nudged.
    events: Sequence[bodies.RawEvent]
    body: bodies.RawBody  # the latest one


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """
    The result of handling: when to handle the object again if no events come; ``None`` for never.
    """

    delay: float | None = None  # seconds
    is_postponed: bool = False  # the events were not handled, and must be passed again


Handle = Callable[[Batch], Awaitable[Verdict]]
"""Handles an object. Never called twice at the same time for the same object. Should not raise."""

Dismiss = Callable[[Batch], bool]
"""Returns whether an object needs no worker, and notes that then; must not raise or block."""

IsEveryEventWanted = Callable[[], bool]
"""Returns whether all events must be kept; called for each event, since the answer can change."""

Dropped = Mapping[inventory.Key, bodies.RawBody]
"""The objects with unfinished work, with their latest bodies."""

TURN, BURDEN = 20, 4
"""
How many objects are examined in one iteration of the event loop, and how many of them one started
worker counts for: each start takes a fraction of a millisecond at least.
"""

SHARE = 5
"""One of this many started objects is a low-priority one in any case, to prevent starvation."""

CROWD_DELAY = 0.1
"""Seconds before a low-priority object is started despite a crowd that has not ended."""

CALM, CALM_TIMEOUT = 100, 0.5
"""
How many low-priority objects may wait, and for how many seconds the listing is held back if there
are more: bodies are much bigger than memories, but listings must end before they expire.
"""

FAILURE_DELAY = 60.0
"""Seconds before an object is handled again after an unexpected error in a worker."""


Begin = Callable[[], bool]
"""Starts a waiting object. Returns false if there is nothing to start."""


class Slots:
    """
    The limit of simultaneous workers, shared by all queues of an operator.

    The waiting objects are served in turn; the low-priority ones are served after the others, and
    rarely while the operator is crowded.
    """

    def __init__(
        self, get_limit: Callable[[], int | None], *, is_crowded: Callable[[], bool] = lambda: False
    ) -> None:
        self._get_limit, self._is_crowded = get_limit, is_crowded
        self._taken = 0
        self._waiting: collections.deque[Begin] = collections.deque()
        self._yielding: collections.deque[Begin] = collections.deque()  # of low priority
        self._overtakings = 0  # how many objects have started since the last low-priority one
        self.is_held = False  # whether objects are only examined, and none are started
        self._held: dict[Hashable, Begin] = {}  # the objects put aside
        self._is_open = True
        self._begun = 0  # the cost of the objects examined or started in this iteration of the loop
        self._calmed = bells.Bell()
        self._timer: asyncio.TimerHandle | None = None  # only while they wait for the crowd to end

    @property
    def is_contended(self) -> bool:
        """Whether any object waits for a slot."""
        return bool(self._waiting or self._yielding)

    def hold(self) -> None:
        """Begin to stand by: see `is_held`."""
        self.is_held = True

    def release(self) -> None:
        """End the standing by: the objects with something to do are started."""
        self.is_held = False
        self._yielding.extend(self._held.values())
        self._held.clear()
        self._serve()

    def put_aside(self, key: Hashable, begin: Begin) -> None:
        """Start the object when the standing by ends, unless it is taken back before."""
        self._held[key] = begin

    def take_back(self, key: Hashable) -> None:
        """Do not start the object that was put aside, if it was."""
        self._held.pop(key, None)

    def shut(self) -> None:
        """Start no objects until reopened."""
        self._is_open = False

    def open(self) -> None:
        """Start the waiting objects, a few at a time to keep the event loop responsive."""
        self._is_open = True
        self._serve()

    def take(self, begin: Begin, *, is_yielding: bool = False) -> None:
        """
        Call the function as soon as there is a free slot, possibly now.

        If it returns true, the slot is taken until `free` is called; otherwise, the slot is not
        needed.
        """
        (self._yielding if is_yielding else self._waiting).append(begin)
        self._serve()

    async def wait_until_calm(self) -> None:
        """
        Wait until few low-priority objects are left, unless the slots are shut, but not for long.
        """
        try:
            async with asyncio.timeout(CALM_TIMEOUT):
                while self._is_open and len(self._yielding) > CALM:
                    await self._calmed.wait()
        except TimeoutError:
            pass

    def free(self) -> None:
        """Release a slot."""
        self._taken -= 1
        self._serve()

    def _serve(self) -> None:
        while self._begun < TURN:
            begin = self._pick() if self._has_room() else None
            if begin is None:
                break
            self._begin(begin)
        is_held = self._begun < TURN and self.is_contended and self._has_room()
        if is_held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CROWD_DELAY, self._insist)

    def _begin(self, begin: Begin) -> None:
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._continue)
        self._taken += 1
        if begin():
            self._begun += BURDEN
        else:
            self._begun += 1
            self._taken -= 1

    def _has_room(self) -> bool:
        limit = self._get_limit()
        return self._is_open and (limit is None or self._taken < limit)

    def _pick(self) -> Begin | None:
        """Choose the next object to start; ``None`` if there is none that may start now."""
        may_yield = bool(self._yielding) and (not self._waiting or self._overtakings >= SHARE - 1)
        if may_yield and not self._is_crowded():
            self._overtakings = 0
            return self._pop_yielding()
        if not self._waiting:
            return None
        self._overtakings += 1
        return self._waiting.popleft()

    def _continue(self) -> None:
        self._begun = 0
        self._serve()

    def _insist(self) -> None:
        self._timer = None
        if self._yielding and self._has_room():
            self._begin(self._pop_yielding())
        self._serve()

    def _pop_yielding(self) -> Begin:
        begin = self._yielding.popleft()
        if len(self._yielding) <= CALM:
            self._calmed.ring()
        return begin


@dataclasses.dataclass(slots=True, eq=False)
class _Lane:
    """An object that is being handled or will be handled."""

    key: inventory.Key
    body: bodies.RawBody
    events: list[bodies.RawEvent] = dataclasses.field(default_factory=list)
    timer: asyncio.TimerHandle | None = None  # only while it waits for its delay
    since: float | None = None  # loop time, since when it has something to do immediately
    is_nudged: bool = False  # whether it must be handled again, even with no events
    is_waiting: bool = False  # for a slot
    is_yielding: bool = False  # whether it has a low priority
    is_offered: bool = False  # whether it waits for a slot, rather than for the promotion
    # The number of events since the last handling, including those not kept.
    arrivals: int = 0


class Queue:
    """
    The objects of one watch-stream. Belongs to its event loop; `put` is called by one task.

    The workers are tasks of the queue: they end by themselves, or are ended by `close`. Objects
    that can be dismissed need no workers.
    """

    def __init__(
        self,
        handle: Handle,
        slots: Slots,
        *,
        name: str = 'objects',
        dismiss: Dismiss = lambda batch: False,
        follow: Dismiss = lambda batch: False,
        flow: meters.Flow | None = None,
        is_every_event_wanted: IsEveryEventWanted = lambda: True,
    ) -> None:
        self._handle, self._dismiss, self._slots, self._name = handle, dismiss, slots, name
        self._follow = follow
        self._is_every_event_wanted = is_every_event_wanted
        self._waits = (flow or meters.Flow()).waits
        self._lanes: dict[inventory.Key, _Lane] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of objects being handled or waiting."""
        return len(self._lanes)

    @property
    def working(self) -> int:
        """The number of objects being handled."""
        return len(self._workers)

    @property
    def pending(self) -> int:
        """The number of objects waiting for their delays."""
        return sum(lane.timer is not None for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        """The number of objects waiting for workers."""
        # Objects whose workers have just ended are counted twice.
        return max(0, len(self._lanes) - self.working - self.pending)

    def put(self, event: bodies.RawEvent) -> None:
        """Add an event to the backlog of its object, to be handled as soon as possible."""
        if self._is_closed:
            return
        dismiss = self._dismiss
        if self._slots.is_held:
            event, dismiss = backlogs.as_found(event), self._follow
        body = event['object']
        key = inventory.identify(body)
        lane = self._lanes.get(key)
        if lane is None:
            is_yielding = event['type'] is None
            if is_yielding or not dismiss(Batch([event], body)):
                lane = self._lanes[key] = _Lane(key, body, [event], since=_read_clock(), arrivals=1)
                self._line_up(lane, is_yielding=is_yielding)
            return
        self._add(lane, [event])
        lane.body = body
        if self._slots.is_held:
            self._offer_again(lane)
        else:
            self._notify(lane, event)

    def _notify(self, lane: _Lane, event: bodies.RawEvent) -> None:
        """Handle the new event of a known object as soon as possible."""
        if lane.since is None:
            lane.since = _read_clock()
        if lane.is_waiting and lane.is_yielding and event['type'] is not None:
            self._line_up(lane)
        self._wake(lane)

    def nudge(self, body: bodies.RawBody) -> None:
        """Queue an unchanged object to be handled again; a newer body in the backlog wins."""
        if self._is_closed:
            return
        key = inventory.identify(body)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, body, since=_read_clock())
            self._line_up(lane)
        else:
            lane.is_nudged = True
            self._wake(lane)

    async def close(self, timeout: float) -> Dropped:
        """
        Stop the workers: let the current ones finish, and cancel them after the timeout in seconds.

        Objects with no worker are dropped: the next start will find them again. Returns all objects
        with unfinished work, whether they still exist or not. If cancelled, it cancels the workers
        immediately, and still awaits them. The queue must not be used afterwards.
        """
        self._is_closed = True
        for lane in self._lanes.values():
            self._slots.take_back(lane)
            if lane.timer is not None:
                lane.timer.cancel()
        try:
            if self._workers:
                logger.info(
                    'Waiting for %d workers of %s to finish, for %s s at most.',
                    len(self._workers),
                    self._name,
                    timeout,
                )
                await asyncio.wait(self._workers, timeout=timeout)
        finally:
            await self._cancel_workers()
        dropped = {key: lane.body for key, lane in self._lanes.items()}
        self._lanes.clear()
        return dropped

    async def _cancel_workers(self) -> None:
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            logger.warning(
                '%d workers of %s did not finish in time, and were cancelled. '
                'Their objects will be handled again after a restart.',
                len(workers),
                self._name,
            )
            await asyncio.wait(workers)

    def _add(self, lane: _Lane, events: Sequence[bodies.RawEvent]) -> None:
        lane.arrivals += len(events)
        if self._is_every_event_wanted() and not self._slots.is_held:
            lane.events.extend(events)
        else:
            lane.events = functools.reduce(backlogs.fold, events, lane.events)

    def _give_back(self, lane: _Lane, events: Sequence[bodies.RawEvent]) -> None:
        """Put the unhandled events before those that arrived in the meantime."""
        newer = lane.events
        lane.events = []
        lane.arrivals = 0
        self._add(lane, [*events, *newer])

    def _wake(self, lane: _Lane) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
            lane.since = _read_clock() if lane.since is None else lane.since
            self._line_up(lane)

    def _line_up(self, lane: _Lane, *, is_yielding: bool = False) -> None:
        """Wait for a slot; a low-priority object can line up again to be served sooner."""
        lane.is_waiting, lane.is_yielding = True, is_yielding
        lane.is_offered = True
        self._slots.take(lambda: self._begin(lane), is_yielding=is_yielding)

    def _begin(self, lane: _Lane) -> bool:
        if self._is_closed or not lane.is_waiting:
            return False
        if self._slots.is_held:
            return self._examine(lane)
        lane.is_waiting = False
        is_changed = lane.is_yielding or lane.arrivals > 1  # since it was offered on arrival
        if is_changed and not lane.is_nudged and self._dismiss(Batch(lane.events, lane.body)):
            self._note_wait(lane)
            del self._lanes[lane.key]
            return False
        worker = asyncio.create_task(self._work(lane), name=f'worker of {self._name} {lane.key}')
        self._workers.add(worker)
        worker.add_done_callback(lambda worker: self._end(lane, worker))
        return True

    def _examine(self, lane: _Lane) -> bool:
        """While standing by, forget the object if it is settled; otherwise, put it aside."""
        lane.is_offered, lane.since = False, None
        if self._follow(Batch(lane.events, lane.body)):
            lane.is_waiting = False
            del self._lanes[lane.key]
        else:
            self._slots.put_aside(lane, lambda: self._begin(lane))
        return False

    def _offer_again(self, lane: _Lane) -> None:
        """While standing by, examine the changed object again if it was put aside."""
        if not lane.is_offered:
            self._slots.take_back(lane)
            self._line_up(lane, is_yielding=True)

    async def _work(self, lane: _Lane) -> None:
        """Handle an object until nothing is left to do before its delay or its next event."""
        while True:
            events = lane.events
            lane.events = []
            lane.arrivals = 0
            lane.is_nudged = False
            self._note_wait(lane)
            try:
                verdict = await self._handle(Batch(events, lane.body))
            except BaseException:
                self._give_back(lane, events)
                raise
            # No await from here to the end of the task: events arriving during it would be lost.
            has_more = bool(lane.events) or lane.is_nudged
            if verdict.is_postponed or not has_more or self._is_closed or self._slots.is_contended:
                break
        if verdict.is_postponed:
            self._give_back(lane, events)
            self._schedule(lane, verdict.delay or 0)
        elif has_more:
            self._schedule(lane, 0)
        elif verdict.delay is not None:
            self._schedule(lane, verdict.delay)
        else:
            del self._lanes[lane.key]

    def _note_wait(self, lane: _Lane) -> None:
        if lane.since is not None:
            self._waits.add(_read_clock() - lane.since)
            lane.since = None

    def _schedule(self, lane: _Lane, delay: float) -> None:
        if not self._is_closed:
            loop = asyncio.get_running_loop()
            lane.timer = loop.call_later(max(0.0, delay), lambda: self._wake(lane))

    def _end(self, lane: _Lane, worker: asyncio.Task[None]) -> None:
        """
        Free the slot. If the worker has failed or was cancelled from the inside, schedule a retry.
        """
        self._workers.discard(worker)
        self._slots.free()
        error = None if worker.cancelled() else worker.exception()
        if error is not None or (worker.cancelled() and not self._is_closed):
            logger.error(
                'The handling of %s %s has failed, and will be tried again %s.',
                self._name,
                lane.key,
                'by the next start' if self._is_closed else f'in {FAILURE_DELAY} s',
                exc_info=error,
            )
            self._schedule(lane, FAILURE_DELAY)


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
