"""
Event lines: a watch request, and the meaning of what comes in it, line by line.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Sequence

from kopf._cogs.clients import errors, listing, requests
from kopf._cogs.clients.watching import misfits, positions, stream_states, watch_events
from kopf._cogs.configs import connecting
from kopf._cogs.helpers import repeats
from kopf._cogs.structs import references

SHORTEST_TIMEOUT = 300
LONGEST_TIMEOUT = 600
"""The bounds of the random time, in seconds, after which the server should end a stream."""

LineSignal = watch_events.Change | watch_events.Misfit | watch_events.Bookmark
"""A line that means anything."""


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


class SignalReader:
    """
    The meaning of the signals of one connection: first of the existing objects, if they come in the
    stream, until the first bookmark; then of the changes.
    """

    def __init__(self, position: positions.Position) -> None:
        self._position = position
        self._listed: set[watch_events.Key] = set()
        if position.version is not None:
            position.enter(stream_states.Phase.CONNECTED)

    def take(self, signal: LineSignal | None) -> stream_states.Step:
        """Take the next signal; ``None`` means nothing."""
        return self._list(signal) if self._position.version is None else self._change(signal)

    def _list(self, signal: LineSignal | None) -> stream_states.Step:
        position = self._position
        state = self._position.state
        if isinstance(signal, watch_events.Bookmark):
            yield from watch_events.detect_vanished(state.known, self._listed, position.resource)
            state.unfit.retain(self._listed)
            position.version = signal.version
            position.is_doubtful = False
            state.is_listed = True
            state.version = signal.version
            yield stream_states.Marker.LISTED
            position.enter(stream_states.Phase.CONNECTED)
        elif signal is not None:
            self._listed.add(signal.key)
            yield from self._compare(signal)

    def _compare(
        self, signal: watch_events.Change | watch_events.Misfit
    ) -> Sequence[watch_events.Change]:
        """Compare an existing object with the known one."""
        state = self._position.state
        resource = self._position.resource
        if isinstance(signal, watch_events.Misfit):
            leave_alone(self._position, signal)
            return watch_events.detect_replaced(state.known, signal, resource)

        if signal.event['type'] != 'ADDED':
            return [signal]

        found = watch_events.compare_listing(
            state.known, [signal.event['object']], resource=resource, is_initial=not state.is_listed
        )
        return list(found)

    def _change(self, signal: LineSignal | None) -> stream_states.Step:
        if isinstance(signal, watch_events.Misfit):
            leave_alone(self._position, signal)
        if isinstance(signal, watch_events.Change):
            yield signal
        if signal is not None and signal.version:
            self._position.version = signal.version


async def read_signal(position: positions.Position, line: bytes) -> LineSignal | None:
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
