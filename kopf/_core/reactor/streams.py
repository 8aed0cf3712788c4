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
import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kopf._cogs.aiokits import toggles
from kopf._cogs.clients.watching import event_streams, stream_states, watch_events
from kopf._cogs.structs import bodies, finalizers, references
from kopf._core.engines.indexing import indexers
from kopf._core.engines.reconciling import caches as caches_
from kopf._core.engines.reconciling import levels
from kopf._core.intents import handlers
from kopf._core.reactor import accompanying, inventory, processing, queueing, sites, tombstones
from kopf._core.reactor import slots as slots_

BREATH = 100
"""How many events are taken in a row before other tasks can run."""


@dataclasses.dataclass(frozen=True)
class Remains:
    """The state that one watcher passes on to the next watcher of the same objects."""

    known: dict[watch_events.Key, watch_events.Seen] = dataclasses.field(default_factory=dict)
    # Objects whose deletion is not handled yet.
    deleted: dict[inventory.Key, bodies.RawBody] = dataclasses.field(default_factory=dict)
    parts: dict[inventory.Key, bytes] = dataclasses.field(default_factory=dict)  # see `tombstones`


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """The watchers of other resources, as far as one watcher depends on them."""

    wake: Callable[[caches_.Parents], None]  # reconciles objects of any resources
    # Returns whether the objects related to those of the resource are listed.
    is_synced: Callable[[references.Resource], bool]


ALONE = Neighbours(wake=lambda parents: None, is_synced=lambda resource: True)
"""No other watchers matter."""


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
        slots: slots_.Slots,
        state: stream_states.StreamState,
        on_listed: Callable[[], None] = lambda: None,
        remains: Remains | None = None,
        neighbours: Neighbours = ALONE,
    ) -> None:
        self._neighbours = neighbours
        self._served = served
        self._namespace = namespace
        self._slots = slots
        self._on_listed = on_listed
        self._state = state
        self._flow = served.flow
        self._processor = processing.Processor(
            served,
            nudge=self._nudge,
            expect=self._expect,
            is_left_alone=state.unfit.has_object,
            wake=self._wake,
            is_synced=functools.partial(neighbours.is_synced, served.resource),
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

    def is_reconciled(self, namespace: str | None, name: str) -> bool:
        """Return whether such an object is known and reconciled; called from any thread."""
        return bool(self._served.reconcilers) and self._find(namespace, name) is not None

    def trigger(self, namespace: str | None, name: str) -> None:
        """Have the object reconciled, if it is known."""
        key = self._find(namespace, name)
        if key is not None:
            self.poke(key, {levels.Trigger.EXTERNAL})

    def poke(self, key: inventory.Key, triggers: Collection[levels.Trigger]) -> None:
        """Have the object reconciled; objects that were never handled will be reconciled anyway."""
        memory = self._served.site.memories.find_by_key(key, self._served.resource)
        if memory is not None:
            self._processor.poke(memory, triggers)
            self._wake(key)

    def release_held(self) -> None:
        """Reconcile the objects that have waited for their related objects."""
        if not any(handler.links for handler in self._served.reconcilers):
            return
        for seen in tuple(self._state.known.values()):
            key = inventory.Key(seen.uid)
            memory = self._served.site.memories.find_by_key(key, self._served.resource)
            if memory is not None and self._processor.release(memory):
                self._wake(key)

    def _find(self, namespace: str | None, name: str) -> inventory.Key | None:
        seen = self._state.known.get(watch_events.Key(namespace or '', name))
        return None if seen is None else inventory.Key(seen.uid)

    def forget(self) -> None:
        """Forget the objects, gone with their namespace or resource, after the watcher ended."""
        caches = self._served.site.caches
        self._wake_parents(caches.drop(self._served.resource, self._namespace))
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
        caches = self._served.site.caches
        caches.serve(self._served.resource, self._namespace)
        caches.note_gap(self._served.resource, self._namespace)
        relists = self._state.relists
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
                if self._state.relists != relists:
                    relists = self._state.relists
                    caches.note_gap(self._served.resource, self._namespace)
                if isinstance(item, stream_states.Marker):
                    await self._take_vanished(
                        [
                            key
                            for key, seen in self._earlier.items()
                            if not self._state.unfit.has(key, seen.uid)
                        ]
                    )
                    self._wake_parents(
                        caches.note_listed(
                            self._served.resource, self._namespace, self._state.version or None
                        )
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
        if not site.caches.is_empty:
            self._wake_parents(site.caches.take(self._served.resource, event))
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

        if self._is_handled:
            self._queue.put(event)

    @property
    def _is_handled(self) -> bool:
        """Whether the objects are handled, and not only stored as related to others."""
        caches = self._served.site.caches
        is_stored = not caches.is_empty and self._served.resource in caches.stores
        return not is_stored or self._served.has_handlers

    def _begin_anew(self, dropped: queueing.Dropped) -> None:
        """Restart the next stream from scratch, but remember the objects known until now."""
        self._earlier |= self._state.known
        self._state.known = {}
        existing = {seen.uid for seen in self._earlier.values()}
        self._deleted |= {key: body for key, body in dropped.items() if key not in existing}

    def _make_queue(self) -> queueing.Queue:
        return queueing.Queue(
            queueing.Handling(
                self._processor.handle,
                self._processor.dismiss,
                self._processor.follow,
                self._has_event_handlers,
                self._restore if self._served.reconcilers else None,
            ),
            self._slots,
            name=self._served.resource.plural,
            flow=self._flow,
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

    def _wake(self, key: inventory.Key) -> bool:
        return self._queue.wake(key)

    def _restore(self, key: inventory.Key) -> bodies.RawBody | None:
        return self._served.site.caches.find(self._served.resource, key)

    def _expect(self, body: Mapping[str, Any]) -> None:
        """Expect our own change, and make it visible for the handlers of other objects at once."""
        self._state.expect(body)
        if finalizers.is_deletion_ongoing(body) and not body['metadata'].get('finalizers'):
            return  # it is deleted now
        self._wake_parents(self._served.site.caches.note_written(self._served.resource, body))

    def _wake_parents(self, parents: caches_.Parents) -> None:
        if parents:
            self._neighbours.wake(parents)
