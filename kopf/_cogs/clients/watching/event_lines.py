"""
Event lines: a watch request, and the meaning of what comes in it, line by line.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator

from kopf._cogs.clients import errors, listing, requests
from kopf._cogs.clients.watching import misfits, positions, stream_states, watch_events
from kopf._cogs.configs import connecting
from kopf._cogs.helpers import repeats
from kopf._cogs.structs import references

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 300, 600
"""The bounds of the random time, in seconds, after which the server should end a stream."""


def open_lines(
    position: positions.Position, version: str | None, *, is_streaming: bool = False
) -> contextlib.AbstractAsyncContextManager[AsyncGenerator[bytes]]:
    context = position.context
    params = build_watch_params(
        context.settings.watching,
        position.resource,
        version,
        is_streaming=is_streaming,
        chance=context.chance(),
    )
    url = position.resource.get_url(namespace=position.namespace, params=params)
    timeouts = requests.choose_stream_timeouts(context.settings)
    return requests.stream(url, context=context, timeouts=timeouts, options=listing.AT_ONCE)


def build_watch_params(
    watching: connecting.WatchingSettings,
    resource: references.Resource,
    version: str | None,
    *,
    is_streaming: bool,
    chance: float,
) -> dict[str, str]:
    """Build the query of a watch; ``chance`` is a random number from 0 to 1."""
    timeout = watching.server_timeout
    if timeout is None:
        timeout = SHORTEST_TIMEOUT + (LONGEST_TIMEOUT - SHORTEST_TIMEOUT) * chance
    initial = (
        {'sendInitialEvents': 'true', 'resourceVersionMatch': 'NotOlderThan'}
        if is_streaming
        else {}
    )
    return {
        'watch': 'true',
        'allowWatchBookmarks': 'true',
        'timeoutSeconds': str(math.ceil(timeout)),
        **listing.build_selection(watching, resource),
        **({'resourceVersion': version} if version else {}),
        **initial,
    }


async def take_initial(
    position: positions.Position, lines: AsyncGenerator[bytes]
) -> AsyncGenerator[stream_states.Item]:
    """Take the existing objects until the first bookmark, i.e. until the version is known."""
    state, resource = position.state, position.resource
    listed: set[watch_events.Key] = set()
    async for line in lines:
        signal = await read_signal(position, line)
        if isinstance(signal, watch_events.Bookmark):
            for change in watch_events.detect_vanished(state.known, listed, resource):
                yield change.event
                state.remember(change)
            state.unfit.retain(listed)
            position.version, position.is_doubtful, state.is_listed = signal.version, False, True
            yield stream_states.Marker.LISTED
            return
        if signal is None:
            continue
        listed.add(signal.key)
        if isinstance(signal, watch_events.Misfit):
            leave_alone(position, signal)
            changes = watch_events.detect_replaced(state.known, signal, resource)
        elif signal.event['type'] != 'ADDED':
            changes = [signal]
        else:
            changes = list(
                watch_events.compare_listing(
                    state.known,
                    [signal.event['object']],
                    resource=resource,
                    is_initial=not state.is_listed,
                )
            )
        for change in changes:
            yield change.event
            state.remember(change)


async def take_changes(
    position: positions.Position, lines: AsyncGenerator[bytes]
) -> AsyncGenerator[stream_states.Item]:
    state = position.state
    async for line in lines:
        signal = await read_signal(position, line)
        if isinstance(signal, watch_events.Misfit):
            leave_alone(position, signal)
        if isinstance(signal, watch_events.Change):
            yield signal.event
            state.remember(signal)
        if signal is not None and signal.version:
            position.version = signal.version


async def read_signal(
    position: positions.Position, line: bytes
) -> watch_events.Change | watch_events.Misfit | watch_events.Bookmark | None:
    """Read a line; raise errors, log unknown types of events."""
    echo = position.state.own.recognise(line)
    if echo is not None:
        signal: watch_events.Signal = watch_events.build_change('MODIFIED', echo)
    else:
        signal = await requests.read_document(line, watch_events.classify_line)
    if isinstance(signal, errors.RequestError):
        raise signal
    position.feed()
    if isinstance(signal, watch_events.Oddity):
        position.context.logger.warning(
            'An event of the unknown type %r is skipped in the stream of %s.', signal.type, position
        )
        return None
    return signal


def leave_alone(position: positions.Position, misfit: watch_events.Misfit) -> None:
    """Report an object unfit for handling; count all its versions, but report the same once."""
    unfit = position.state.unfit
    if not unfit.add(misfit):
        return
    position.flow.misfits += 1
    finalizer = position.context.settings.persistence.finalizer
    report = misfits.describe(misfit, position.resource, finalizer)
    left_out = unfit.reports.admit(report, now=asyncio.get_running_loop().time())
    if left_out is not None:
        position.context.logger.error('%s%s', report, repeats.describe(left_out))
