"""
Streams: from the watch-stream of a resource to the backlogs of its objects.

While the operator or the namespace is paused, there are neither streams nor backlogs, but the
objects are remembered. After the pause, all existing objects are listed again, and the deleted ones
are detected.

Objects are removed from the indices only when they are gone, one by one or with their namespace or
resource. The end of a stream does not mean that: the indices stay unchanged during a pause and
while the operator exits.
"""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Sequence

from kopf._cogs.aiokits import toggles
from kopf._cogs.clients.watching import event_streams, stream_states, watch_events
from kopf._cogs.structs import bodies, references
from kopf._core.engines.indexing import indexers
from kopf._core.intents import handlers
from kopf._core.reactor import accompanying, inventory, processing, queueing, sites, tombstones

BREATH = 100
"""How many events are taken in a row before other tasks can run."""


@dataclasses.dataclass(frozen=True)
class Remains:
    """The state that one watcher passes on to the next watcher of the same objects."""

    known: dict[watch_events.Key, watch_events.Seen] = dataclasses.field(default_factory=dict)
    # Objects whose deletion is not handled yet.
    deleted: dict[inventory.Key, bodies.RawBody] = dataclasses.field(default_factory=dict)
    parts: dict[inventory.Key, bytes] = dataclasses.field(default_factory=dict)  # see `tombstones`


class Watcher:
    """
    The watcher of one resource, in one namespace or in the whole cluster, for one run.

    It calls ``on_listed`` every time when all objects are listed, and indexed if needed. After it
    ends, its objects are still remembered and indexed, until they are forgotten or released.
    """

    def __init__(
        self,
        served: sites.Served,
        namespace: references.Namespace,
        *,
        slots: queueing.Slots,
        state: stream_states.StreamState,
        on_listed: Callable[[], None] = lambda: None,
        remains: Remains | None = None,
    ) -> None:
        self._served, self._namespace, self._slots, self._on_listed = (
            served,
            namespace,
            slots,
            on_listed,
        )
        self._state, self._flow = state, served.flow
        self._processor = processing.Processor(
            served, nudge=self._nudge, expect=state.expect, is_left_alone=state.unfit.has_object
        )
        self._queue = self._make_queue()
        remains = remains or Remains()
        self._earlier = remains.known  # known before the pause, and not seen since then
        self._deleted = remains.deleted  # deleted just before the pause, but not handled yet
        self._tombstones = tombstones.Tombstones(self._get_event_handlers, remains.parts)

    async def run(self, pauses: toggles.Toggles) -> None:
        """
        Watch the objects and have them handled forever, except for the pauses.

        Ends only by cancellation, or if there are no credentials. In either case, and when it
        pauses, the running handlers get some time to finish, as configured; then they are
        interrupted.
        """
        while True:
            await pauses.wait_until(False)
            await self._run_until_paused(pauses)

    def forget(self) -> None:
        """Forget the objects, gone with their namespace or resource, after the watcher ended."""
        remains = self.release()
        for seen in remains.known.values():
            self._served.site.indexers.forget(self._served.resource, inventory.Key(seen.uid))

    def release(self) -> Remains:
        """
        Forget the memories and stop the daemons, but leave the objects in the indices.

        The watcher must have ended. The objects are no longer served by it, but presumably still
        exist.
        """
        site = self._served.site
        remains = Remains(
            {**self._earlier, **self._state.known}, self._deleted, self._tombstones.parts
        )
        for key in {
            *(inventory.Key(seen.uid) for seen in remains.known.values()),
            *remains.deleted,
        }:
            memory = site.memories.forget_key(key, self._served.resource)
            if memory is not None:
                accompanying.forget(site, memory)
        return remains

    async def _run_until_paused(self, pauses: toggles.Toggles) -> None:
        self._queue = self._make_queue()
        self._flow.backlogs.append(self._queue)
        try:
            async with asyncio.timeout(None) as limit:
                with pauses.interrupting(limit):
                    await self._stream()
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._flow.backlogs.remove(self._queue)
            self._state.is_listed = False
            dropped = await self._queue.close(self._served.site.measure_patience())
            self._begin_anew(dropped)

    async def _stream(self) -> None:
        """Take all events; never end."""
        for body in self._deleted.values():
            self._queue.put({'type': 'DELETED', 'object': body})
        self._deleted.clear()
        stream = event_streams.stream_events(
            self._served.resource,
            self._namespace,
            context=self._served.site.context,
            state=self._state,
            pace=self._slots.wait_until_calm,
        )
        async with contextlib.aclosing(stream) as items:
            turns = itertools.cycle(range(BREATH))
            async for item in items:
                if next(turns) == 0:
                    await asyncio.sleep(0)
                # No await between taking an event and the next item: an event that is taken must be
                # passed on.
                if isinstance(item, stream_states.Marker):
                    await self._take_vanished(
                        [
                            key
                            for key, seen in self._earlier.items()
                            if not self._state.unfit.has(key, seen.uid)
                        ]
                    )
                    self._on_listed()
                else:
                    self._flow.events[item['type']] += 1
                    await self._take_known(item)

    async def _take_known(self, event: bodies.RawEvent) -> None:
        """
        Take an event of an object that was possibly known before the pause or replaced since then.
        """
        if not self._earlier and self._served.site.indexers.is_empty:
            await self._take(event)
            return
        key, seen = watch_events.identify(event['object'])
        if key in self._earlier and self._earlier[key].uid != seen.uid:
            await self._take_vanished([key])
        # If the indexing is interrupted, the object can be in some of the indices.
        self._earlier[key] = seen
        await self._take(event)
        del self._earlier[key]

    async def _take_vanished(self, keys: Collection[watch_events.Key]) -> None:
        """
        Process the deletion of the objects that existed before the pause, but no longer exist.
        """
        gone = {key: self._earlier[key] for key in keys}
        for change in watch_events.detect_vanished(gone, (), self._served.resource):
            await self._take(change.event)
            del self._earlier[change.key]

    async def _take(self, event: bodies.RawEvent) -> None:
        """Update the indices before any handler sees the object; then queue the event."""
        site = self._served.site
        if self._tombstones.parts or not site.registry._watching.is_empty:
            event = self._tombstones.update(event)
        body = event['object']
        if not site.indexers.is_empty and site.indexers.is_indexed(
            self._served.resource, self._served.selectors
        ):
            memory = site.memories.recall(
                body, self._served.resource, memo=site.memo, is_initial=event['type'] is None
            )
            await site.indexers.index(
                indexers.Sighting(
                    inventory.identify(body),
                    self._served.resource,
                    self._served.selectors,
                    event,
                    memory.memo,
                )
            )
        self._queue.put(event)

    def _begin_anew(self, dropped: queueing.Dropped) -> None:
        """Restart the next stream from scratch, but remember the objects known until now."""
        self._earlier |= self._state.known
        self._state.known = {}
        existing = {seen.uid for seen in self._earlier.values()}
        self._deleted |= {key: body for key, body in dropped.items() if key not in existing}

    def _make_queue(self) -> queueing.Queue:
        return queueing.Queue(
            self._processor.handle,
            self._slots,
            name=self._served.resource.plural,
            dismiss=self._processor.dismiss,
            follow=self._processor.follow,
            flow=self._flow,
            is_every_event_wanted=self._has_event_handlers,
        )

    def _has_event_handlers(self) -> bool:
        return bool(self._get_event_handlers())

    def _get_event_handlers(self) -> Sequence[handlers.WatchingHandler]:
        registry = self._served.site.registry._watching
        return (
            ()
            if registry.is_empty
            else registry.select(self._served.resource, self._served.selectors)
        )

    def _nudge(self, body: bodies.RawBody) -> None:
        self._queue.nudge(body)
