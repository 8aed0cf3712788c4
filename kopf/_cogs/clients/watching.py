"""
Watching: all objects of a resource, and then all their changes, for as long as needed.

A stream never dies silently. Whatever happens to its connections, to the server, or to the history
of the resource, it continues without losses: from the last version, or by a listing compared with
the objects handed over.
"""

import asyncio
import contextlib
import dataclasses
import enum
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from typing import Any

from kopf._cogs.aiokits import mergers
from kopf._cogs.clients import echoes, errors, listing, misfits, outages, requests, signals
from kopf._cogs.configs import connecting
from kopf._cogs.helpers import meters, repeats
from kopf._cogs.structs import references

HEALTHY_PERIOD = 10.0
"""Seconds of an open stream after which its next failure is not related to the previous ones."""

SUSPICIOUS_PERIOD = 1.0
"""Seconds of an open stream within which its end is a failure if nothing has come."""

BARREN_PERIOD = 300.0
"""Seconds without even bookmarks after which the next silent stream is not trusted."""

LONGEST_LEAD = 1000
"""How many changes of an early stream can wait until the listed objects are handed over."""

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 300, 600
"""The bounds of the random time, in seconds, after which the server should end a stream."""


class EmptyStreamError(errors.APIDisconnectedError):
    """The stream was accepted and ended properly, but immediately, with nothing in it."""


class Phase(enum.Enum):
    """The current activity of the stream."""

    IDLE = enum.auto()  # not begun yet
    LISTING = enum.auto()  # getting the current objects, by pages or in the stream
    CONNECTING = enum.auto()  # opening the connection for future changes
    CONNECTED = enum.auto()  # getting the changes
    PAUSING = enum.auto()  # between two connections, without errors
    WAITING = enum.auto()  # between two attempts, after a failure
    ENDED = enum.auto()  # no longer needed, or given up permanently


class Marker(enum.Enum):
    """A marker among the events."""

    # All existing objects are handed over, and the vanished ones are reported as deleted.
    LISTED = enum.auto()


Pace = Callable[[], Awaitable[None]]
"""A function that delays the next page of a listing until the previous ones are handled."""

Item = signals.RawEvent | Marker


@dataclasses.dataclass
class StreamState:
    """
    The state of the stream, for probes and metrics, and the objects it has handed over.

    Changed only by the task that iterates over `stream_events`; other tasks can read it in the same
    event loop. All moments are by the loop's clock. If passed to the next stream of the same
    objects (e.g. after a pause), it lets that stream report the changes in between; used by one
    stream at a time.
    """

    phase: Phase = Phase.IDLE
    begun: float | None = None  # when the stream (possibly not the first one) began
    since: float | None = None  # when the phase began
    fed: float | None = None  # when the last page or line came, even a bookmark
    failing_since: float | None = None  # the first failure since it was last fed
    failures: int = 0  # in a row
    reconnects: int = 0  # of all kinds
    relists: int = 0  # all listings but the first
    error: Exception | None = None  # the last one ever
    is_listed: bool = False  # at least once
    known: dict[signals.Key, signals.Seen] = dataclasses.field(default_factory=dict)
    unfit: misfits.Misfits = dataclasses.field(default_factory=misfits.Misfits)
    own: echoes.Echoes = dataclasses.field(default_factory=echoes.Echoes)

    def enter(self, phase: Phase, now: float) -> None:
        self.phase, self.since = phase, now

    def feed(self, now: float) -> None:
        self.fed, self.failing_since = now, None

    def fail(self, error: Exception, now: float) -> None:
        self.error, self.failures = error, self.failures + 1
        self.failing_since = now if self.failing_since is None else self.failing_since

    def remember(self, change: signals.Change) -> None:
        self.unfit.discard(change.key)
        if change.seen is None:
            self.known.pop(change.key, None)
        else:
            self.known[change.key] = change.seen

    def expect(self, body: Mapping[str, Any]) -> None:
        """Expect the object returned for our own change in the stream, unless it already came."""
        key, seen = signals.identify(body)
        known = self.known.get(key)
        is_released = body['metadata'].get('deletionTimestamp') and not body['metadata'].get(
            'finalizers'
        )
        # Released objects are deleted, and are shown with the version of their previous state.
        if known is not None and not is_released and _is_newer(seen.version, known.version):
            self.own.expect(body)


def _is_newer(version: str, other: str) -> bool:
    """Compare versions that are numbers; other versions are not comparable."""
    return version.isdecimal() and other.isdecimal() and int(version) > int(other)


def describe(state: StreamState, now: float) -> dict[str, Any]:
    """
    Describe a stream for people and programs: in words, numbers, and seconds up to this moment of
    the loop's clock.

    Silence is the time since the last page or line, or since the beginning if there was none since
    then; while it is below ``watching.inactivity_timeout``, the stream is alive. ``failing`` is
    ``None`` if there are no failures.
    """
    moments = [moment for moment in (state.begun, state.fed) if moment is not None]
    return {
        'phase': state.phase.name.lower(),
        'lasts': _measure(state.since, now),
        'silence': _measure(max(moments, default=None), now),
        'failing': _measure(state.failing_since, now),
        'failures': state.failures,
        'reconnects': state.reconnects,
        'relists': state.relists,
        'is_listed': state.is_listed,
        'objects': len(state.known),
        'error': None if state.error is None else f'{type(state.error).__name__}: {state.error}',
    }


def _measure(since: float | None, now: float) -> float | None:
    return None if since is None else round(max(0.0, now - since), 3)


@dataclasses.dataclass
class _Position:
    """The current position of the stream. Changed by the same task as its state."""

    resource: references.Resource
    namespace: references.Namespace
    context: requests.Context
    state: StreamState
    version: str | None = None  # to watch from; None if unknown, so that a listing is needed
    opened: float | None = None  # when the current connection was accepted
    is_admitted: bool = False  # whether any connection was ever accepted
    is_fruitful: bool = False  # whether anything came in the current connection
    is_doubtful: bool = False  # whether the server was lost since the version was known to be good
    # Whether the server refuses to send the initial objects in the stream.
    is_streaming_refused: bool = False
    pace: Pace | None = None

    def __str__(self) -> str:
        where = 'the cluster' if self.namespace is None else f'the namespace {self.namespace!r}'
        return f'{self.resource!r} in {where}'

    @property
    def flow(self) -> meters.Flow:
        return self.context.meter.flows[repr(self.resource)]

    @property
    def is_streaming(self) -> bool:
        """Whether the objects are received in the stream itself, now or next."""
        is_wanted = self.context.settings.watching.initial_streaming
        return self.version is None and is_wanted and not self.is_streaming_refused

    def enter(self, phase: Phase) -> None:
        self.state.enter(phase, _read_clock())

    def feed(self) -> None:
        self.is_fruitful = True
        self.state.feed(_read_clock())


async def stream_events(
    resource: references.Resource,
    namespace: references.Namespace,
    *,
    context: requests.Context,
    state: StreamState,
    refusals: Collection[int] = (),
    pace: Pace | None = None,
) -> AsyncGenerator[Item]:
    """
    Iterate over the existing objects (of the type ``None``), then over all changes since then, and
    never end.

    `Marker.LISTED` comes after each listing, both the first and repeated ones. The latter are
    compared with the objects handed over: only the differences come, with minimal bodies for
    vanished objects. An event counts as handed over when the next one is requested.

    Close the generator to stop it, or cancel its task; it leaves nothing open. It does not know
    whether the resource is served at all: if not, the caller should close it. Raises `LoginError`
    if there will be no credentials; and `APIError` with the codes in ``refusals``, if it comes
    before the changes could be watched for the first time.
    """
    position = _Position(resource, namespace, context, state, pace=pace)
    state.begun = _read_clock()
    try:
        while True:
            failure: Exception | None = None
            try:
                async with contextlib.aclosing(_attempt(position)) as items:
                    async for item in items:
                        yield item
            except (errors.RequestError, OSError) as error:
                # Files of certificates can be absent for a moment, hence the system errors.
                if (
                    isinstance(error, errors.APIError)
                    and error.code in refusals
                    and not position.is_admitted
                ):
                    raise
                failure = error
            delay = _conclude(position, failure)
            await asyncio.sleep(delay)
            state.reconnects += 1
            position.flow.reconnects += 1
    finally:
        position.enter(Phase.ENDED)


async def _attempt(position: _Position) -> AsyncGenerator[Item]:
    """List if needed, and watch; once, until the connection ends in any way."""
    position.opened, position.is_fruitful = None, False
    is_streaming = position.is_streaming
    if position.version is None:
        position.enter(Phase.LISTING)
        if position.state.is_listed:
            position.state.relists += 1
            position.flow.relists += 1
    if position.version is None and not is_streaming:
        async with contextlib.aclosing(_list(position)) as items:
            async for item in items:
                yield item
    if not is_streaming:
        position.enter(Phase.CONNECTING)
        await _check_version(position)
    position.is_fruitful = False
    async with contextlib.aclosing(_watch(position, is_streaming=is_streaming)) as items:
        async for item in items:
            yield item


async def _list(position: _Position) -> AsyncGenerator[Item]:
    state = position.state
    census = signals.Census(state.known, position.resource, is_initial=not state.is_listed)
    async with contextlib.aclosing(_find(position)) as findings:
        async for finding in findings:
            position.feed()
            for change in census.take(finding):
                if isinstance(change, signals.Misfit):
                    _leave_alone(position, change)
                    continue
                yield change.event
                state.remember(change)
    state.unfit.retain(census.present)
    position.version, position.is_doubtful, state.is_listed = census.version, False, True
    yield Marker.LISTED


async def _check_version(position: _Position) -> None:
    """
    Verify that the version to watch from is not in the future; otherwise, raise the refusal of the
    server.

    It happens when the cluster was restored from a backup. Streams from such versions are accepted,
    but silently skip everything that happens until the cluster reaches that version again.
    """
    if not position.is_doubtful or not position.version:
        return
    context = position.context
    params = {
        **listing.build_selection(context.settings.watching, position.resource),
        'limit': '1',
        'resourceVersion': position.version,
        'resourceVersionMatch': 'NotOlderThan',
    }
    url = position.resource.get_url(namespace=position.namespace, params=params)
    try:
        await requests.get(url, context=context, options=listing.AT_ONCE)
    except errors.APIInvalidError:
        pass  # not all servers know these parameters
    except errors.APIClientError as error:
        if error.code != 400:
            raise
    position.is_doubtful = False


async def _find(position: _Position) -> AsyncGenerator[signals.Finding]:
    """
    Iterate over all pages of the objects, and over early changes. A long first listing takes time,
    as its objects are being handled already: then, the changes are watched concurrently, so that
    they do not have to wait for the last page.
    """
    async with mergers.Merger[signals.Finding]() as merger:
        merger.add(_list_in_pace(position), name=f'listing of {position}')
        early: list[asyncio.Task[None]] = []
        async with contextlib.aclosing(merger.iterate()) as findings:
            async for finding in findings:
                if (
                    isinstance(finding, listing.Page)
                    and finding.is_first
                    and not position.state.is_listed
                ):
                    await merger.drop(*early)
                    early = (
                        [
                            merger.add(
                                _watch_early(position, finding.version),
                                ahead=LONGEST_LEAD,
                                name=f'early stream of {position}',
                            )
                        ]
                        if _is_long(finding)
                        else []
                    )
                yield finding
                if isinstance(finding, listing.Page) and not finding.following:
                    break


async def _list_in_pace(position: _Position) -> AsyncGenerator[signals.Finding]:
    pages = listing.list_pages(position.resource, position.namespace, context=position.context)
    async with contextlib.aclosing(pages):
        async for page in pages:
            yield page
            if page.following and position.pace is not None:
                await position.pace()


def _is_long(page: listing.Page) -> bool:
    return bool(page.following and page.version)


async def _watch_early(position: _Position, version: str) -> AsyncGenerator[signals.Finding]:
    """Watch as long as it works: changes missed after a failure come after the listing."""
    try:
        async with _open(position, version) as lines:
            async for line in lines:
                signal = await _read_signal(position, line)
                if signal is not None:
                    yield signal
    except (errors.RequestError, OSError) as error:
        position.context.logger.debug('The early stream of %s has failed: %s', position, error)


async def _watch(position: _Position, *, is_streaming: bool) -> AsyncGenerator[Item]:
    async with _open(position, position.version, is_streaming=is_streaming) as lines:
        position.opened, position.is_admitted = _read_clock(), True
        if is_streaming:
            async with contextlib.aclosing(_take_initial(position, lines)) as items:
                async for item in items:
                    yield item
        if position.version is not None:
            position.enter(Phase.CONNECTED)
            async with contextlib.aclosing(_take_changes(position, lines)) as items:
                async for item in items:
                    yield item


def _open(
    position: _Position, version: str | None, *, is_streaming: bool = False
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


async def _take_initial(position: _Position, lines: AsyncGenerator[bytes]) -> AsyncGenerator[Item]:
    """Take the existing objects until the first bookmark, i.e. until the version is known."""
    state, resource = position.state, position.resource
    listed: set[signals.Key] = set()
    async for line in lines:
        signal = await _read_signal(position, line)
        if isinstance(signal, signals.Bookmark):
            for change in signals.detect_vanished(state.known, listed, resource):
                yield change.event
                state.remember(change)
            state.unfit.retain(listed)
            position.version, position.is_doubtful, state.is_listed = signal.version, False, True
            yield Marker.LISTED
            return
        if signal is None:
            continue
        listed.add(signal.key)
        if isinstance(signal, signals.Misfit):
            _leave_alone(position, signal)
            changes = signals.detect_replaced(state.known, signal, resource)
        elif signal.event['type'] != 'ADDED':
            changes = [signal]
        else:
            changes = list(
                signals.compare_listing(
                    state.known,
                    [signal.event['object']],
                    resource=resource,
                    is_initial=not state.is_listed,
                )
            )
        for change in changes:
            yield change.event
            state.remember(change)


async def _take_changes(position: _Position, lines: AsyncGenerator[bytes]) -> AsyncGenerator[Item]:
    state = position.state
    async for line in lines:
        signal = await _read_signal(position, line)
        if isinstance(signal, signals.Misfit):
            _leave_alone(position, signal)
        if isinstance(signal, signals.Change):
            yield signal.event
            state.remember(signal)
        if signal is not None and signal.version:
            position.version = signal.version


async def _read_signal(
    position: _Position, line: bytes
) -> signals.Change | signals.Misfit | signals.Bookmark | None:
    """Read a line; raise errors, log unknown types of events."""
    echo = position.state.own.recognise(line)
    if echo is not None:
        signal: signals.Signal = signals.build_change('MODIFIED', echo)
    else:
        signal = await requests.read_document(line, signals.classify_line)
    if isinstance(signal, errors.RequestError):
        raise signal
    position.feed()
    if isinstance(signal, signals.Oddity):
        position.context.logger.warning(
            'An event of the unknown type %r is skipped in the stream of %s.', signal.type, position
        )
        return None
    return signal


def _leave_alone(position: _Position, misfit: signals.Misfit) -> None:
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


def _conclude(position: _Position, failure: Exception | None) -> float:
    """Record and log the end of the attempt; return the delay before the next one."""
    state, logger, now = position.state, position.context.logger, _read_clock()
    lifetime = 0.0 if position.opened is None else now - position.opened
    if position.is_streaming and _is_streaming_impossible(position, failure):
        position.is_streaming_refused = True
        logger.warning(
            'The server does not stream the existing objects of %s; they will be listed instead.',
            position,
        )
    if failure is None and not position.is_fruitful and lifetime < SUSPICIOUS_PERIOD:
        failure = EmptyStreamError('The stream has ended at once, with nothing in it.')
    if failure is None or lifetime >= HEALTHY_PERIOD:
        state.failures = 0
    if failure is None:
        logger.debug('The stream of %s has ended, and will be continued.', position)
        position.version = position.version or None
        position.enter(Phase.PAUSING)
        return position.context.settings.watching.reconnect_backoff
    state.fail(failure, now)
    position.is_doubtful = position.is_doubtful or not isinstance(failure, errors.APIError)
    position.flow.failures += 1
    position.enter(Phase.WAITING)
    return _prepare_retry(position, failure)


def _prepare_retry(position: _Position, failure: Exception) -> float:
    state, context = position.state, position.context
    is_expired = signals.classify_error(failure) is signals.Trouble.EXPIRED or _is_barren(position)
    if is_expired or not position.version:
        position.version = None
        state.own.clear()
    asked = failure.retry_after if isinstance(failure, errors.APIError) else None
    delay = max(asked or 0.0, signals.choose_backoff(state.failures, context.chance()))
    if is_expired and state.failures == 1:
        delay = max(asked or 0.0, context.settings.watching.reconnect_backoff)
        context.logger.info(
            'The stream of %s cannot be continued, and begins again: %s', position, failure
        )
    else:
        context.logger.log(
            _choose_level(position, failure),
            'The stream of %s has failed (%d in a row), and will be continued in %.1f s: %s',
            position,
            state.failures,
            delay,
            failure,
        )
    return delay


def _choose_level(position: _Position, failure: Exception) -> int:
    """Choose the log level of a failure: many streams lost at once are one problem."""
    is_lost = position.opened is not None and isinstance(failure, errors.APIDisconnectedError)
    if is_lost and not position.context.reachability.note_loss(_read_clock()):
        return logging.DEBUG
    return outages.choose_level(failure)


def _is_barren(position: _Position) -> bool:
    """
    Return whether nothing comes from this version, though the streams are accepted.

    Possibly, nothing happens, and there are no bookmarks, as for some resources. Or the version has
    expired, and the server just ends such streams. Or a proxy in between holds them back. Only a
    listing can distinguish these cases, and it reveals the changes anyway.
    """
    state = position.state
    is_accepted = position.opened is not None and not position.is_fruitful
    silence = math.inf if state.fed is None else _read_clock() - state.fed
    is_empty = isinstance(state.error, EmptyStreamError) and state.failures > 1
    return is_accepted and (silence >= BARREN_PERIOD or is_empty)


def _is_streaming_impossible(position: _Position, failure: Exception | None) -> bool:
    """
    Return whether the server refuses to stream the existing objects, or never marks their end.
    """
    match failure:
        case errors.APIInvalidError() | errors.APIClientError(code=400):
            return True
        case None | errors.APISilenceError():
            return position.opened is not None
    return False


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
