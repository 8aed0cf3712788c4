"""
Queueing: the backlogs of objects, and the workers that handle them.

The events of one object are handled by one worker at a time, in the order of arrival; objects do
not wait for each other, unless the number of workers is limited. An object with nothing to do has
neither a backlog nor a worker. An object with a delay has a timer, but no worker: it does not count
towards the limit.

While an object waits or is being handled, its backlog holds a few events at most, regardless of the
number of changes, unless there are handlers that want every event.
"""

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kopf._cogs.helpers import meters
from kopf._cogs.structs import bodies
from kopf._core.reactor import backlogs, inventory
from kopf._core.reactor import slots as slots_

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

Restore = Callable[[inventory.Key], bodies.RawBody | None]
"""Returns the last received body of an object; ``None`` if the object is not known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Handling:
    """What is done with the objects of a queue."""

    handle: Handle
    dismiss: Dismiss = lambda batch: False
    # The same while the replica stands by: whether there would be nothing to do if it led.
    follow: Dismiss = lambda batch: False
    is_every_event_wanted: IsEveryEventWanted = lambda: True
    restore: Restore | None = None


Dropped = Mapping[inventory.Key, bodies.RawBody]
"""The objects with unfinished work, with their latest bodies."""

FAILURE_DELAY = 60.0
"""Seconds before an object is handled again after an unexpected error in a worker."""


@dataclasses.dataclass(slots=True, eq=False)
class _Lane:
    """An object that is being handled or will be handled."""

    key: inventory.Key
    body: bodies.RawBody | None  # None if it must be restored
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
        handling: Handling,
        slots: slots_.Slots,
        *,
        name: str = 'objects',
        flow: meters.Flow | None = None,
    ) -> None:
        self._handling = handling
        self._slots = slots
        self._name = name
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

        dismiss = self._handling.dismiss
        if self._slots.is_held:
            event = backlogs.as_found(event)
            dismiss = self._handling.follow

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

    def wake(self, key: inventory.Key) -> bool:
        """
        Queue a known object to be handled again, unless the queue is closed; return whether it is
        queued. The body of the object is restored if needed.
        """
        if self._is_closed:
            return False

        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, None, since=_read_clock())
            self._line_up(lane)
        else:
            lane.is_nudged = True
            self._wake(lane)

        return True

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

        # Bodies to restore are those of objects that still exist.
        dropped = {key: lane.body for key, lane in self._lanes.items() if lane.body is not None}
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
        if self._handling.is_every_event_wanted() and not self._slots.is_held:
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
        lane.is_waiting = True
        lane.is_yielding = is_yielding
        lane.is_offered = True
        self._slots.take(lambda: self._begin(lane), is_yielding=is_yielding)

    def _begin(self, lane: _Lane) -> bool:
        if self._is_closed or not lane.is_waiting:
            return False
        if self._slots.is_held:
            return self._examine(lane)

        lane.is_waiting = False
        lane.body = self._get_body(lane)
        is_changed = lane.is_yielding or lane.arrivals > 1  # since it was offered on arrival
        is_offered = is_changed and not lane.is_nudged

        if lane.body is None or (
            is_offered and self._handling.dismiss(Batch(lane.events, lane.body))
        ):
            self._note_wait(lane)
            del self._lanes[lane.key]
            return False

        worker = asyncio.create_task(self._work(lane), name=f'worker of {self._name} {lane.key}')
        self._workers.add(worker)
        worker.add_done_callback(lambda worker: self._end(lane, worker))

        return True

    def _examine(self, lane: _Lane) -> bool:
        """While standing by, forget the object if it is settled; otherwise, put it aside."""
        lane.is_offered = False
        lane.since = None
        lane.body = self._get_body(lane)

        if lane.body is None or self._handling.follow(Batch(lane.events, lane.body)):
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
            assert lane.body is not None
            try:
                verdict = await self._handling.handle(Batch(events, lane.body))
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
            self._unload(lane)
            self._schedule(lane, verdict.delay)
        else:
            del self._lanes[lane.key]

    def _get_body(self, lane: _Lane) -> bodies.RawBody | None:
        if lane.body is not None or self._handling.restore is None:
            return lane.body
        return self._handling.restore(lane.key)

    def _unload(self, lane: _Lane) -> None:
        """Drop the body while the object only waits, if it can be restored."""
        if self._handling.restore is not None:
            lane.body = None

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
