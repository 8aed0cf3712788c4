"""
Queueing: the backlogs of objects, and the workers that handle them.

The events of one object are handled by one worker at a time, in the order of their arrival; objects do not wait
for each other, unless the number of workers is limited. An object with nothing to do has neither a backlog
nor a worker. One that waits for its time has a timer, but no worker: it does not count in the limit.

While an object waits or is being handled, its backlog holds a few events at most, whatever the number of its changes,
unless there are handlers that want every event.

Those that were there before can be many, and are in no hurry. They let all others go first, and hold back while
there is a crowd already, e.g. of requests: the changes that are made right now would have to wait behind it.
"""

import asyncio
import collections
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kopf._cogs.aiokits import bells
from kopf._cogs.helpers import meters
from kopf._cogs.structs import bodies
from kopf._core.reactor import inventory

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """What has come for an object since it was handled last time: all of it, or what is left of it by `fold`."""

    events: Sequence[
        bodies.RawEvent
    ]  # in the order of arrival; none if it is just the time to go on
    body: bodies.RawBody  # the latest one


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """When to come back to an object if nothing happens till then; ``None`` if there is no need to."""

    delay: float | None = None  # seconds
    is_postponed: bool = False  # the events are not taken, and are to be given again then


Handle = Callable[[Batch], Awaitable[Verdict]]
"""Handles an object as it is. It is never called for the same object twice at once. It should not fail."""

Dismiss = Callable[[Batch], bool]
"""Tells if there is nothing to do for an object as it is, and takes notice of it then. It never fails or waits."""

IsEveryEventWanted = Callable[[], bool]
"""Returns whether all events must be kept; asked with each of them, as the answer can change at any time."""

Dropped = Mapping[inventory.Key, bodies.RawBody]
"""The objects with something left to do, with their latest bodies."""

TURN, BURDEN = 20, 4
"""
How many objects are looked at in one turn of the loop, and as how many of them those count that begin to be handled:
each of these takes a fraction of a millisecond at least.
"""

SHARE = 5
"""Of so many objects that begin, one is of those in no hurry, whatever the others do: they do not wait for ever."""

CROWD_DELAY = 0.1
"""Seconds before one of those in no hurry begins in spite of a crowd; the end of a crowd is noticed sooner."""

CALM, CALM_TIMEOUT = 100, 0.5
"""
How many of those in no hurry can wait with no harm, and for how many seconds the next ones are held back if there are
more: bodies in memory are much bigger than what is remembered of them, but listings have to end before they expire.
"""

FAILURE_DELAY = 60.0
"""Seconds before an object is handled again, if its handling fails in spite of all efforts not to."""


Begin = Callable[[], bool]
"""Begins what has waited for it. If it returns false, there is nothing to begin any more."""


class Slots:
    """
    The limit of simultaneous workers, common for all queues of an operator. The waiting ones are served in turn,
    but those in no hurry are served after the others, and rarely while there is a crowd.
    """

    def __init__(
        self, get_limit: Callable[[], int | None], *, is_crowded: Callable[[], bool] = lambda: False
    ) -> None:
        self._get_limit, self._is_crowded = get_limit, is_crowded
        self._taken = 0
        self._waiting: collections.deque[Begin] = collections.deque()
        self._yielding: collections.deque[Begin] = collections.deque()  # those in no hurry
        self._overtakings = 0  # how many have begun since the last one of those in no hurry
        self._is_open = True
        self._begun = 0  # how many were looked at or have begun in this turn of the loop
        self._calmed = bells.Bell()
        self._timer: asyncio.TimerHandle | None = None  # only while they wait for the crowd to go

    @property
    def is_contended(self) -> bool:
        """Does anyone wait for a slot?"""
        return bool(self._waiting or self._yielding)

    def shut(self) -> None:
        """Let no one begin until it is opened."""
        self._is_open = False

    def open(self) -> None:
        """Let all begin who wait and fit in: not all at once, for the loop to do other things, too."""
        self._is_open = True
        self._serve()

    def take(self, begin: Begin, *, is_yielding: bool = False) -> None:
        """
        Call the function as soon as there is a free slot, possibly now.

        If it returns true, the slot is taken until `free` is called; otherwise, it is not needed any more.
        """
        (self._yielding if is_yielding else self._waiting).append(begin)
        self._serve()

    async def wait_until_calm(self) -> None:
        """Wait until only few of those in no hurry are left, if they are being served at all; but not for long."""
        try:
            async with asyncio.timeout(CALM_TIMEOUT):
                while self._is_open and len(self._yielding) > CALM:
                    await self._calmed.wait()
        except TimeoutError:
            pass

    def free(self) -> None:
        """Give a slot back."""
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
        """Choose who is the next; nobody if no one waits, or those who wait have to wait."""
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


def fold(backlog: Sequence[bodies.RawEvent], event: bodies.RawEvent) -> list[bodies.RawEvent]:
    """
    Add an event to a backlog where only some of the events matter; return the new backlog, of 3 events at most.

    The latest event tells how the object is now. The latest deletion before it tells that the object was gone
    meanwhile: e.g. it did not match the selectors of the stream, or vanished in a gap and was restored from a backup.
    The first event tells if the object existed before the stream, so it stays if the others would tell otherwise.
    """
    deletions = [earlier for earlier in backlog if earlier['type'] == 'DELETED']
    kept = [*deletions[-1:], event]
    is_first_needed = bool(backlog) and (backlog[0]['type'] is None) != (kept[0]['type'] is None)
    return [backlog[0], *kept] if is_first_needed else kept


@dataclasses.dataclass(slots=True, eq=False)
class _Lane:
    """An object that is handled, or is to be handled, now or later."""

    key: inventory.Key
    body: bodies.RawBody
    events: list[bodies.RawEvent] = dataclasses.field(default_factory=list)
    timer: asyncio.TimerHandle | None = None  # only while it waits for its time
    since: float | None = None  # loop time, since when there is something to do for it right now
    is_nudged: bool = False  # is it to be handled once more, even with no events?
    is_waiting: bool = False  # for a slot
    is_yielding: bool = False  # is it in no hurry?
    arrivals: int = (
        0  # how many events have come since it was handled, also those that are not kept
    )


class Queue:
    """
    The objects of one watch-stream. Belongs to its event loop; `put` is called by one task.

    The workers are tasks of the queue: they end by themselves, or are ended by `close`. Those objects that can be
    dismissed need none.
    """

    def __init__(
        self,
        handle: Handle,
        slots: Slots,
        *,
        name: str = 'objects',
        dismiss: Dismiss = lambda batch: False,
        flow: meters.Flow | None = None,
        is_every_event_wanted: IsEveryEventWanted = lambda: True,
    ) -> None:
        self._handle, self._dismiss, self._slots, self._name = handle, dismiss, slots, name
        self._is_every_event_wanted = is_every_event_wanted
        self._waits = (flow or meters.Flow()).waits
        self._lanes: dict[inventory.Key, _Lane] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __len__(self) -> int:
        """How many objects are being handled, or wait for that."""
        return len(self._lanes)

    @property
    def working(self) -> int:
        """How many objects are being handled."""
        return len(self._workers)

    @property
    def pending(self) -> int:
        """How many objects wait for their time."""
        return sum(lane.timer is not None for lane in self._lanes.values())

    @property
    def waiting(self) -> int:
        """How many objects wait for their workers."""
        return max(
            0, len(self._lanes) - self.working - self.pending
        )  # those that have just ended are both

    def put(self, event: bodies.RawEvent) -> None:
        """Add an event to the backlog of its object, and have it handled as soon as possible."""
        if self._is_closed:
            return
        body = event['object']
        key = inventory.identify(body)
        lane = self._lanes.get(key)
        if lane is None:
            is_yielding = event['type'] is None
            if is_yielding or not self._dismiss(Batch([event], body)):
                lane = self._lanes[key] = _Lane(key, body, [event], since=_read_clock(), arrivals=1)
                self._line_up(lane, is_yielding=is_yielding)
            return
        self._add(lane, [event])
        lane.body = body
        if lane.since is None:
            lane.since = _read_clock()
        if lane.is_waiting and lane.is_yielding and event['type'] is not None:
            self._line_up(lane)
        self._wake(lane)

    def nudge(self, body: bodies.RawBody) -> None:
        """Have an object handled once more, though it has not changed; there can be a newer body in its backlog."""
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
        Stop the workers: let those that work now finish, and cancel them after so many seconds.

        What is not begun is dropped: it will be found anew by the next start. Returns all objects with something left
        to do, be they gone or not. If cancelled, it cancels the workers at once, and still awaits them.
        No one else may use the queue afterwards.
        """
        self._is_closed = True
        for lane in self._lanes.values():
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
        if self._is_every_event_wanted():
            lane.events.extend(events)
        else:
            lane.events = functools.reduce(fold, events, lane.events)

    def _give_back(self, lane: _Lane, events: Sequence[bodies.RawEvent]) -> None:
        """Put the events that are not handled before those that have come meanwhile."""
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
        """Wait for a slot; for those who wait in no hurry, it is the way to be served sooner."""
        lane.is_waiting, lane.is_yielding = True, is_yielding
        self._slots.take(lambda: self._begin(lane), is_yielding=is_yielding)

    def _begin(self, lane: _Lane) -> bool:
        if self._is_closed or not lane.is_waiting:
            return False
        lane.is_waiting = False
        is_changed = lane.is_yielding or lane.arrivals > 1  # since it was offered when it came
        if is_changed and not lane.is_nudged and self._dismiss(Batch(lane.events, lane.body)):
            self._note_wait(lane)
            del self._lanes[lane.key]
            return False
        worker = asyncio.create_task(self._work(lane), name=f'worker of {self._name} {lane.key}')
        self._workers.add(worker)
        worker.add_done_callback(lambda worker: self._end(lane, worker))
        return True

    async def _work(self, lane: _Lane) -> None:
        """Handle an object until there is nothing to do; then leave it until its time or until its next event."""
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
            # No await from here to the end of the task: events that come meanwhile would be forgotten.
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
        """Let the others go on. If the handling has failed, or was cancelled from the inside, it is to be repeated."""
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
