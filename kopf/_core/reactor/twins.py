"""
Twins: one object that is served under several versions of its resource.

The versions are handled one at a time. Each of them remembers what it has handled, as the record on
the object is shared by all of them.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

from kopf._cogs.structs import bodies
from kopf._core.reactor import cycles, inventory, queueing, sites, views

TWIN_DELAY = 0.1
"""Seconds between the checks of an object still handled under a version that was the only one."""


@contextlib.asynccontextmanager
async def lock(served: sites.Served, body: bodies.RawBody) -> AsyncIterator[None]:
    """Ensure that the object is handled under only one version of the resource at a time."""
    key = inventory.identify(body)
    memories = served.site.memories
    async with memories.lock(key):
        # Only if the version has just begun to be served.
        while memories.is_handled_alone(key):  # noqa: ASYNC110
            await asyncio.sleep(TWIN_DELAY)
        yield


def note_handled(served: sites.Served, batch: queueing.Batch, memory: inventory.Memory) -> None:
    """
    Remember the recorded state of a new object if its resource is served in several versions.
    """
    is_met_again = bool(batch.events) and batch.events[0]['type'] is None
    if memory.cycle.handled is None:
        handled = _read_handled(served, batch.body, memory)
        memory.cycle = dataclasses.replace(memory.cycle, handled=handled)
    elif is_met_again and memory.outbox is None:
        _take_over(served, batch.body, memory)


def _read_handled(
    served: sites.Served, body: bodies.RawBody, memory: inventory.Memory
) -> cycles.Essence:
    recorded = views.View(served, body, memory).recorded
    return cycles.NEVER_HANDLED if recorded is None else cycles.seal(recorded)


def _take_over(served: sites.Served, body: bodies.RawBody, memory: inventory.Memory) -> None:
    """
    Remember the state that another operator has handled during our pause, for all versions.
    """
    if bodies.is_older(bodies.get_version(body), memory.cycle.version):
        return

    handled = _read_handled(served, body, memory)
    twins = served.site.memories.iter_twins(inventory.identify(body), served.resource)
    memories = [memory, *(twin for _, twin in twins)]

    if all(one.cycle.handled != handled for one in memories):
        for one in memories:
            one.cycle = dataclasses.replace(one.cycle, handled=handled)
