"""
Streams: from the watch-stream of a resource to the backlogs of its objects.
"""
import asyncio
import contextlib
import itertools

from kopf._cogs.clients import watching
from kopf._cogs.structs import references
from kopf._core.reactor import inventory, processing, queueing, sites

BREATH = 100
"""How many events are taken at once before the others get their turn."""


async def run_watcher(served: sites.Served, namespace: references.Namespace, *, slots: queueing.Slots,
                      state: watching.StreamState) -> None:
    """
    Watch the objects of a resource, and have them handled, for ever.

    Ends only by cancellation, or if there are no credentials. In either case, the handlers that are running are
    given some time to finish, as the settings say; then they are interrupted. The objects are forgotten then.
    """
    site, resource = served.site, served.resource
    queue = queueing.Queue(processing.Processor(served).handle, slots, name=resource.plural)
    try:
        stream = watching.stream_events(resource, namespace, context=site.context, state=state)
        async with contextlib.aclosing(stream) as items:
            turns = itertools.cycle(range(BREATH))
            async for item in items:
                if not isinstance(item, watching.Marker):
                    queue.put(item)
                if next(turns) == 0:
                    await asyncio.sleep(0)
    finally:
        await queue.close(site.settings.queueing.exit_timeout)
        for seen in state.known.values():
            site.memories.forget_key(inventory.Key(seen.uid))
