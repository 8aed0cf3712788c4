"""
Streams: from the watch-stream of a resource to the backlogs of its objects.
"""
import asyncio
import contextlib
import itertools
from collections.abc import Callable

from kopf._cogs.clients import watching
from kopf._cogs.structs import bodies, references
from kopf._core.engines import indexing
from kopf._core.reactor import accompanying, inventory, processing, queueing, sites

BREATH = 100
"""How many events are taken at once before the others get their turn."""


async def run_watcher(served: sites.Served, namespace: references.Namespace, *, slots: queueing.Slots,
                      state: watching.StreamState, on_listed: Callable[[], None] = lambda: None) -> None:
    """
    Watch the objects of a resource, and have them handled, for ever.

    Ends only by cancellation, or if there are no credentials. In either case, the handlers that are running are
    given some time to finish, as the settings say; then they are interrupted. The objects are forgotten then.
    Every time when all objects are listed, and indexed if needed, it tells so.
    """
    site, resource = served.site, served.resource
    processor = processing.Processor(served)
    queue = queueing.Queue(processor.handle, slots, name=resource.plural)
    processor.nudge = queue.nudge
    try:
        stream = watching.stream_events(resource, namespace, context=site.context, state=state)
        async with contextlib.aclosing(stream) as items:
            turns = itertools.cycle(range(BREATH))
            async for item in items:
                if isinstance(item, watching.Marker):
                    on_listed()
                else:
                    await _index(served, item)
                    queue.put(item)
                if next(turns) == 0:
                    await asyncio.sleep(0)
    finally:
        dropped = await queue.close(site.settings.queueing.exit_timeout)
        for key in {*(inventory.Key(seen.uid) for seen in state.known.values()), *dropped}:
            _forget(site, key)


async def _index(served: sites.Served, event: bodies.RawEvent) -> None:
    """Update the indices before anyone else sees the object."""
    site, body = served.site, event['object']
    if site.indexers.is_indexed(served.resource, served.selectors):
        memory = site.memories.recall(body, memo=site.memo, is_initial=event['type'] is None)
        await site.indexers.index(indexing.Sighting(
            inventory.identify(body), served.resource, served.selectors, event, memory.memo))


def _forget(site: sites.Site, key: inventory.Key) -> None:
    """Forget an object that is not served any more, with all that lives beside it."""
    memory = site.memories.forget_key(key)
    if memory is not None:
        accompanying.forget(site, memory)
    site.indexers.forget(key)
