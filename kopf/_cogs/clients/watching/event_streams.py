"""
Watching: all objects of a resource, and then all their changes, for as long as needed.

A stream never dies silently. Whatever happens to its connections, to the server, or to the history
of the resource, it continues without losses: from the last version, or by a listing compared with
the objects handed over.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection

from kopf._cogs.clients import errors, requests
from kopf._cogs.clients.watching import (
    event_lines,
    initial_lists,
    positions,
    recovery,
    stream_states,
)
from kopf._cogs.structs import references


async def stream_events(
    resource: references.Resource,
    namespace: references.Namespace,
    *,
    context: requests.Context,
    state: stream_states.StreamState,
    refusals: Collection[int] = (),
    pace: positions.Pace | None = None,
) -> AsyncGenerator[stream_states.Item]:
    """
    Iterate over the existing objects (of the type ``None``), then over all changes since then, and
    never end.

    `stream_states.Marker.LISTED` comes after each listing, both the first and repeated ones. The
    latter are compared with the objects handed over: only the differences come, with minimal bodies
    for vanished objects. An event counts as handed over when the next one is requested.

    Close the generator to stop it, or cancel its task; it leaves nothing open. It does not know
    whether the resource is served at all: if not, the caller should close it. Raises `LoginError`
    if there will be no credentials; and `APIError` with the codes in ``refusals``, if it comes
    before the changes could be watched for the first time.
    """
    position = positions.Position(resource, namespace, context, state, pace=pace)
    state.begun = positions.read_clock()
    try:
        while True:
            failure: Exception | None = None
            try:
                async with contextlib.aclosing(_take_steps(position)) as steps:
                    async for step in steps:
                        for found in step:
                            if isinstance(found, stream_states.Marker):
                                yield found
                                continue
                            yield found.event
                            state.remember(found)
            except (errors.RequestError, OSError) as error:
                # Files of certificates can be absent for a moment, hence the system errors.
                if (
                    isinstance(error, errors.APIError)
                    and error.code in refusals
                    and not position.is_admitted
                ):
                    raise
                failure = error
            delay = recovery.conclude(position, failure)
            await asyncio.sleep(delay)
            state.reconnects += 1
            position.flow.reconnects += 1
    finally:
        position.enter(stream_states.Phase.ENDED)


async def _take_steps(position: positions.Position) -> AsyncGenerator[stream_states.Step]:
    """
    List if needed, and watch; once, until the connection ends in any way.

    Each step is iterated over until its end before the next one: the position changes with it.
    """
    position.opened = None
    position.is_fruitful = False
    is_streaming = position.is_streaming

    if position.version is None:
        position.enter(stream_states.Phase.LISTING)
        if position.state.is_listed:
            position.state.relists += 1
            position.flow.relists += 1

    if position.version is None and not is_streaming:
        lister = initial_lists.Lister(position)
        async with contextlib.aclosing(initial_lists.find_objects(position)) as findings:
            async for finding in findings:
                yield lister.take(finding)
        yield lister.conclude()

    if not is_streaming:
        position.enter(stream_states.Phase.CONNECTING)
        await initial_lists.check_version(position)

    position.is_fruitful = False
    opening = event_lines.open_lines(position, position.version, is_streaming=is_streaming)
    async with opening as lines:
        position.opened = positions.read_clock()
        position.is_admitted = True
        reader = event_lines.SignalReader(position)
        async for line in lines:
            yield reader.take(await event_lines.read_signal(position, line))
