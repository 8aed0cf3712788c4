"""
Requests: the API as functions, for all other modules.

Payloads and results are JSON values; URLs are from the root of the API, e.g. as `Resource.get_url`
builds them. Requests wait for credentials while there are none, and for their turn within the
limits. Temporary failures are retried by the settings; all others, and the last ones, are raised as
`RequestError`; `LoginError` is raised if there are and will be no credentials. Every wait can be
cancelled.
"""

import asyncio
import contextlib
import dataclasses
import datetime
import itertools
import logging
import math
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
)
from typing import Any, NamedTuple, Self, TypeVar

from kopf._cogs.aiokits import offloads
from kopf._cogs.clients import errors, fences, limits, outages, retries
from kopf._cogs.clients.http import line_decoder, models, sessions
from kopf._cogs.configs import connecting, settings
from kopf._cogs.helpers import documents, jsons, meters
from kopf._cogs.structs import vaults

T = TypeVar('T')

Interpret = Callable[[bytes, Callable[[bytes], Any]], Any]


def _read_clock() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass(frozen=True)
class Context:
    """The context of requests, the same for all requests of an operator."""

    vault: vaults.Vault
    settings: settings.OperatorSettings
    logger: logging.Logger | logging.LoggerAdapter[Any]
    gates: limits.Gates
    chance: Callable[[], float] = random.random  # from 0 to 1
    now: Callable[[], datetime.datetime] = _read_clock  # with a timezone
    meter: meters.Meter = dataclasses.field(default_factory=meters.Meter)
    # Returns the last check before a modifying request is sent; None if there are none.
    get_permit: Callable[[], fences.Permit | None] = fences.require_nothing
    reachability: outages.Reachability = dataclasses.field(default_factory=outages.Reachability)


@dataclasses.dataclass(frozen=True)
class Options:
    """The differences of one request from the usual ones."""

    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Expected codes, e.g. 403 or 404: raised immediately, never retried.
    answers: Collection[int] = ()
    backoffs: connecting.Backoffs | None = None  # instead of ``networking.error_backoffs``
    # Whether it is harmless to execute it twice; None if it depends on the method and the payload.
    is_repeatable: bool | None = None
    verb: str | None = None  # the verb of the API; None if it depends on the method


USUAL = Options()

VERBS = {'GET': 'get', 'POST': 'create', 'PATCH': 'patch', 'DELETE': 'delete'}


@dataclasses.dataclass(frozen=True)
class StreamTimeouts:
    """The limits of the lifetime and silence of a stream, in seconds; ``None`` means no limit."""

    connect: float | None = None  # to establish the connection
    # Without any bytes, also before the headers: raised as `APISilenceError`.
    idle: float | None = None
    # The whole stream, including the connecting: the stream ends as if ended by the server.
    total: float | None = None


class _OpenStream(NamedTuple):
    """An open stream; the owner closes the stack."""

    chunks: models.Chunks
    deadline: float  # when it should be ended, by the loop's clock
    stack: contextlib.AsyncExitStack


async def get(url: str, *, context: Context, options: Options = USUAL) -> Any:
    """Read an object, a list, or anything else."""
    return await send(build_call('GET', url, options), context=context, options=options)


async def post(url: str, *, context: Context, payload: Any, options: Options = USUAL) -> Any:
    """
    Create an object.

    The request is not retried if it may already be executed, e.g. after lost connections. With
    ``is_repeatable``, it is: for objects with names, the repeated creation is refused with 409.
    """
    call = build_call('POST', url, options, payload, 'application/json')
    return await send(call, context=context, options=options)


async def patch(
    url: str,
    *,
    context: Context,
    payload: Any,
    media_type: str = retries.MERGE_PATCH,
    options: Options = USUAL,
) -> Any:
    """
    Change an object, and return the changed one.

    JSON patches are repeated after lost connections only if they have a test for the version of the
    object; if they were executed, the repeated ones are refused with 422.
    """
    call = build_call('PATCH', url, options, payload, media_type)
    return await send(call, context=context, options=options)


async def delete(
    url: str, *, context: Context, payload: Any = None, options: Options = USUAL
) -> Any:
    """Delete an object, or mark it for deletion; the payload can be ``DeleteOptions``."""
    call = build_call('DELETE', url, options, payload, 'application/json')
    return await send(call, context=context, options=options)


@contextlib.asynccontextmanager
async def stream(
    url: str, *, context: Context, timeouts: StreamTimeouts, options: Options = USUAL
) -> AsyncIterator[AsyncGenerator[bytes]]:
    """
    Open a watch-stream, and iterate over its lines as they come, of any length and not parsed.

    Retries and re-logins are as for any request, but only until the stream is open: any later event
    ends it, either silently or with an error, and the caller should open a new one. Leaving the
    block closes the stream, at any moment; so does the rejection of its credentials by the server.
    A cancelled wait for a line ends the iteration.
    """
    call = build_call('GET', url, dataclasses.replace(options, verb='watch'))

    async def attempt(call: models.Call, context: Context) -> _OpenStream:
        return await _attempt_to_open(call, context, timeouts)

    opened = await _retry(attempt, call, context, options)
    lines = _iterate_lines(opened.chunks, timeouts.idle, opened.deadline)
    async with opened.stack, contextlib.aclosing(lines) as iterator:
        yield iterator


def choose_stream_timeouts(chosen: settings.OperatorSettings) -> StreamTimeouts:
    """Choose the limits of watch-streams from the settings."""
    watching = chosen.watching
    networking = chosen.networking
    candidates = [watching.connect_timeout, networking.connect_timeout, networking.request_timeout]

    return StreamTimeouts(
        connect=next((timeout for timeout in candidates if timeout is not None), None),
        idle=watching.inactivity_timeout,
        total=watching.client_timeout,
    )


def build_call(
    method: str, url: str, options: Options, payload: Any = None, media_type: str = ''
) -> models.Call:
    """Prepare a request; the payload is encoded here."""
    headers = {'Accept': 'application/json'} | (
        {} if payload is None else {'Content-Type': media_type}
    )
    is_repeatable = options.is_repeatable
    if is_repeatable is None:
        is_repeatable = retries.is_repeatable(method, media_type=media_type, payload=payload)
    body = None if payload is None else jsons.dumps(payload)
    return models.Call(
        method,
        url,
        {**headers, **options.headers},
        body,
        is_repeatable,
        options.verb or VERBS[method],
    )


def send(
    call: models.Call, *, context: Context, options: Options = USUAL
) -> Coroutine[Any, Any, Any]:
    """Make a prepared request with all its retries; return the final response."""
    permit = context.get_permit()
    if permit is not None and call.method != 'GET':
        call = dataclasses.replace(call, permit=permit)
    return _retry(_attempt, call, context, options)


async def _retry(
    attempt: Callable[[models.Call, Context], Awaitable[T]],
    call: models.Call,
    context: Context,
    options: Options,
) -> T:
    """Repeat the attempts while they fail temporarily, as backoffs allow; raise the last error."""
    networking = context.settings.networking
    delays: Iterator[float] | None = None
    for number in itertools.count(1):
        try:
            return await attempt(call, context)
        except errors.RequestError as error:
            if delays is None:
                backoffs = (
                    networking.error_backoffs if options.backoffs is None else options.backoffs
                )
                delays = retries.iter_delays(backoffs)
            policy = retries.Policy(
                call.is_repeatable, options.answers, networking.enforce_retry_after
            )
            delay = retries.decide_retry(error, delays, policy, context.chance())
            if delay is None:
                raise
            context.logger.log(
                outages.choose_level(error),
                'Attempt #%d of %s has failed, and will be repeated in %.1f s: %s',
                number,
                call,
                delay,
                error,
            )
        await asyncio.sleep(delay)

    raise AssertionError('the attempts are not limited')


async def _attempt(call: models.Call, context: Context) -> Any:
    """Make a regular request once, but with as many leased credentials as needed."""
    while True:
        lease = await context.vault.take(sessions.open_session)
        try:
            return await _fetch(lease.item, call, context)
        except (errors.APIUnauthorizedError, errors.APISessionClosedError) as error:
            await _report(error, lease, call, context)
        finally:
            await context.vault.give_back(lease)


async def _attempt_to_open(
    call: models.Call, context: Context, timeouts: StreamTimeouts
) -> _OpenStream:
    """Open a stream once, but with as many leased credentials as needed."""
    while True:
        async with contextlib.AsyncExitStack() as stack:
            lease = await stack.enter_async_context(context.vault.extended(sessions.open_session))
            try:
                chunks, deadline = await _open_stream(lease.item, stack, call, context, timeouts)
            except (errors.APIUnauthorizedError, errors.APISessionClosedError) as error:
                await _report(error, lease, call, context)
            else:
                return _OpenStream(chunks, deadline, stack.pop_all())


async def _report(
    error: errors.RequestError,
    lease: vaults.Lease[models.Session],
    call: models.Call,
    context: Context,
) -> None:
    """Report credentials as unusable if they were rejected, or their session was closed."""
    if isinstance(error, errors.APISessionClosedError) and error.is_sent and not call.is_repeatable:
        raise error
    await context.vault.invalidate(lease.key, lease.info, exc=error)


async def _fetch(session: models.Session, call: models.Call, context: Context) -> Any:
    """
    Make a regular request once, in its turn within the limits, and count it.

    All regular requests pass here, so all writes do: before the call of the session, nothing of the
    request has left.
    """
    networking = context.settings.networking
    timeouts = models.Timeouts(networking.request_timeout, networking.connect_timeout)
    gate = context.gates[session.server]
    passing = await gate.enter(_build_bounds(networking))

    try:
        with _Measure(call, session.server, passing, context) as measure:
            answer = await session.fetch(call, timeouts)
            measure.note_answer(answer.code)
        _check_answer(answer, passing, context)
    except asyncio.CancelledError:
        passing.abandon()
        raise
    finally:
        gate.leave()

    try:
        return None if answer.code == 204 else await read_document(answer.raw)
    except ValueError as error:
        raise errors.APIGarbledError(
            f'{call}: HTTP {answer.code}, but the body is not JSON.'
        ) from error


def _read(raw: bytes, read: Callable[[bytes], Any]) -> Any:
    return read(raw)


async def read_document(raw: bytes, interpret: Interpret = _read) -> Any:
    """
    Read JSON as `documents.read` does; if it takes long, in a thread, where it does not block the
    event loop.

    The result is interpreted in the same place: ``interpret`` gets the text, and the function that
    reads it.
    """
    if len(raw) <= documents.LARGE:
        try:
            return interpret(raw, documents.read_quickly)
        except documents.LaboriousError:
            pass  # read it in the thread

    return await offloads.read_aside(interpret, raw, documents.read)


async def _open_stream(
    session: models.Session,
    stack: contextlib.AsyncExitStack,
    call: models.Call,
    context: Context,
    timeouts: StreamTimeouts,
) -> tuple[models.Chunks, float]:
    """Open a stream once; also return the deadline when it should be ended."""
    bounds = _build_bounds(context.settings.networking)
    async with context.gates[session.server].passing(bounds, is_counted=False) as passing:
        since = asyncio.get_running_loop().time()
        opening = models.Timeouts(_limit_opening(timeouts), timeouts.connect, timeouts.idle)
        with _Measure(call, session.server, passing, context) as measure:
            chunks = await stack.enter_async_context(session.stream(call, opening))
            measure.note_answer(chunks.code)
        raw = b'' if chunks.code < 300 else await chunks.read_all(timeouts.idle)
        _check_answer(models.Answer(chunks.code, chunks.headers, raw), passing, context)

    return chunks, math.inf if timeouts.total is None else since + timeouts.total


class _Measure:
    """The measurement of one request: its response or its failure is counted, unless cancelled."""

    __slots__ = ('_call', '_context', '_server', '_since')

    def __init__(
        self, call: models.Call, server: str, passing: limits.Pass, context: Context
    ) -> None:
        self._call = call
        self._server = server
        self._context = context

        if passing.waited:
            tally = context.meter.calls[call.verb]
            tally.throttled += 1
            tally.waits += passing.waited

        self._since = asyncio.get_running_loop().time()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, errors.RequestError):
            self._note_failure(error)

    def note_answer(self, code: int) -> None:
        now = asyncio.get_running_loop().time()
        context = self._context
        context.reachability.note_answer(self._server, now=now, logger=context.logger)
        context.meter.count_call(self._call.verb, code, now - self._since)

    def _note_failure(self, error: errors.RequestError) -> None:
        now = asyncio.get_running_loop().time()
        context = self._context
        context.meter.count_call(self._call.verb, _name_error(error), now - self._since)
        if isinstance(error, errors.APIUnreachableError):
            reason = str(error).removeprefix(f'{self._call}: ')
            context.reachability.note_failure(self._server, reason, now=now, logger=context.logger)


def _name_error(error: errors.RequestError) -> str:
    return type(error).__name__.removeprefix('API').removesuffix('Error').lower()


def _check_answer(answer: models.Answer, passing: limits.Pass, context: Context) -> None:
    """Raise refusals as errors, and notify the gate whether the server accepts more requests."""
    if 200 <= answer.code < 300:
        passing.accept()
        return

    error = errors.build_error(
        errors.parse_answer(answer.code, answer.headers, answer.raw, now=context.now())
    )
    closure = retries.measure_closure(error, context.chance())
    if closure:
        passing.refuse(closure)
    elif not isinstance(error, errors.APITooManyRequestsError | errors.APIUnavailableError):
        passing.accept()

    raise error


async def _iterate_lines(
    chunks: models.Chunks, idle: float | None, deadline: float
) -> AsyncGenerator[bytes]:
    decoder = line_decoder.LineDecoder()
    while (chunk := await _read_chunk(chunks, idle, deadline)) is not None:
        for line in decoder.feed(chunk) if chunk else decoder.finish():
            yield line
        if not chunk:
            break


async def _read_chunk(chunks: models.Chunks, idle: float | None, deadline: float) -> bytes | None:
    """Wait for more bytes; return empty bytes at the stream's end, ``None`` at the deadline."""
    remaining = deadline - asyncio.get_running_loop().time()
    timeout = min(remaining, math.inf if idle is None else idle)
    try:
        return await chunks.read_chunk(None if math.isinf(timeout) else timeout)
    except TimeoutError:
        if timeout == remaining:
            return None
        raise errors.APISilenceError(f'The stream was silent for {idle} s.') from None


def _limit_opening(timeouts: StreamTimeouts) -> float | None:
    """Limit the time until the headers: a silent server is as dead as a silent stream."""
    candidates = [
        timeouts.total,
        None if timeouts.idle is None else (timeouts.connect or 0.0) + timeouts.idle,
    ]
    return min((limit for limit in candidates if limit is not None), default=None)


def _build_bounds(networking: connecting.NetworkingSettings) -> limits.Bounds:
    return limits.Bounds(networking.inflight_limit, networking.rate_limit, networking.rate_burst)
