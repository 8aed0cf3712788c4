"""
Direct sessions: our own connections to the API, shared by the requests with the same credentials.
"""

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from kopf._cogs.aiokits import bells
from kopf._cogs.clients import errors
from kopf._cogs.clients.http import connections, http11, models
from kopf._cogs.structs import credentials

KEEPALIVE = 15.0
"""Seconds to keep an unused connection; not long, as network devices can forget it silently."""

T = TypeVar('T')

Ask = Callable[[connections.Connection, bytes, float | None], Awaitable[http11.Reader]]


class DirectSession:
    """A session with the server itself. The contract is that of `models.Session`."""

    def __init__(
        self, server: str, address: connections.Address, headers: Mapping[str, str]
    ) -> None:
        self.server = server.rstrip('/')
        parts = urllib.parse.urlsplit(self.server)
        self._prefix = parts.path
        self._address = address
        place = parts.netloc if parts.netloc.isascii() else str(address)
        self._headers = http11.write_headers({'Host': place, **headers})
        self._is_closing = False
        self._alive: set[connections.Connection] = set()
        self._idle: list[connections.Connection] = []  # the last used one is the last
        self._asked: dict[connections.Connection, models.Call] = {}
        self._streams: set[connections.Connection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._answered = bells.Bell()

    def __repr__(self) -> str:
        return f'<Session of {credentials.hide_userinfo(self.server)}>'

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    def fetch(
        self, call: models.Call, timeouts: models.Timeouts
    ) -> Coroutine[Any, Any, models.Answer]:
        return self._exchange(call, timeouts, connections.Connection.ask, self._take_answer)

    @contextlib.asynccontextmanager
    async def stream(
        self, call: models.Call, timeouts: models.Timeouts
    ) -> AsyncIterator['DirectChunks']:
        connection, reader = await self._exchange(
            call, timeouts, connections.Connection.ask_for_stream, _keep_open
        )
        self._streams.add(connection)
        try:
            yield DirectChunks(self, call, connection, reader)
        finally:
            self._streams.discard(connection)
            connection.abort()

    async def close(self) -> None:
        self._is_closing = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for limit in self._connecting:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

        for connection in [
            *self._streams,
            *[one for one, call in self._asked.items() if call.is_repeatable],
        ]:
            connection.fail(connections.LostError('the session is closed'))

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(models.CLOSING_TIMEOUT):
                while self._asked:
                    await self._answered.wait()

        for connection in list(self._alive):
            connection.fail(connections.LostError('the session is closed'))
        if self._alive:
            await asyncio.wait(
                [connection.lost for connection in self._alive], timeout=models.CLOSING_TIMEOUT
            )

    def translate(
        self, error: Exception, call: models.Call, *, is_sent: bool = True
    ) -> errors.APIConnectionError:
        """Translate an error of a connection to an error of the request."""
        if self._is_closing:
            return errors.APISessionClosedError(f'{call}: the session is closed.', is_sent=is_sent)

        if not is_sent:
            reason = 'no connection in time' if type(error) is TimeoutError else error
            return errors.APIUnreachableError(
                f'{call}: cannot connect to {self._address}: {reason}'
            )

        match error:
            case TimeoutError():
                return errors.APITimeoutError(f'{call}: there is no answer in time.')
            case http11.WireError():
                return errors.APIGarbledError(f'{call}: the answer is wrong: {error}.')
            case _:
                return errors.APIDisconnectedError(f'{call}: {error}.')

    async def _exchange(
        self,
        call: models.Call,
        timeouts: models.Timeouts,
        ask: Ask,
        conclude: Callable[[connections.Connection, http11.Reader], T],
    ) -> T:
        """
        Send a request, follow its redirects, and wait for the response or its head.

        ``conclude`` gets the response, and owns the connection then.
        """
        deadline = _find_deadline(timeouts.total)
        url = call.url
        redirects = 1
        is_repeated = False

        while True:
            kept = None if is_repeated else self._take_idle()
            connection = kept or await self._connect(call, timeouts.connect, deadline)
            self._asked[connection] = call
            try:
                limit = _find_earliest(deadline, _find_deadline(timeouts.head))
                request = self._write(call, url)
                # No await from here to the transport: the process can stop meanwhile.
                call.permit()
                reader = await ask(connection, request, limit)
            except (
                TimeoutError,
                connections.LostError,
                http11.CutError,
                http11.WireError,
            ) as error:
                connection.abort()
                is_stale = kept is not None and _is_stale(connection, error)
                if not is_stale or not call.is_repeatable or self._is_closing:
                    raise self.translate(error, call) from error
                is_repeated = True
                continue
            except (asyncio.CancelledError, errors.FencedRequestError):
                connection.abort()
                raise
            finally:
                del self._asked[connection]
                self._answered.ring()
            target = self._find_redirect(call, url, reader)
            if target is None or redirects >= models.REDIRECTS_LIMIT:
                return conclude(connection, reader)
            self._release(connection)
            url = target
            redirects = redirects + 1
            is_repeated = False

    def _take_answer(
        self, connection: connections.Connection, reader: http11.Reader
    ) -> models.Answer:
        self._release(connection)
        headers = reader.headers if reader.code >= 300 else {}
        return models.Answer(reader.code, headers, reader.take())

    async def _connect(
        self, call: models.Call, timeout: float | None, deadline: float | None
    ) -> connections.Connection:
        if self._is_closing:
            raise errors.APISessionClosedError(f'{call}: the session is closed.', is_sent=False)

        earliest = _find_earliest(deadline, _find_deadline(timeout))
        try:
            async with asyncio.timeout_at(earliest) as limit:
                self._connecting.add(limit)
                try:
                    connection = await connections.connect(self._address)
                finally:
                    self._connecting.discard(limit)
        except OSError as error:  # including timeouts
            raise self.translate(error, call, is_sent=False) from error

        self._alive.add(connection)
        connection.lost.add_done_callback(lambda _: self._alive.discard(connection))
        if self._is_closing:  # closed at the very last moment
            connection.abort()
            raise errors.APISessionClosedError(f'{call}: the session is closed.', is_sent=False)

        return connection

    def _take_idle(self) -> connections.Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable:
                return connection
            connection.abort()
        return None

    def _release(self, connection: connections.Connection) -> None:
        """Keep the connection for the next requests, if it is reusable."""
        if self._is_closing or not connection.is_reusable:
            connection.abort()
            return

        connection.rest()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(KEEPALIVE, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that were not used for long."""
        loop = asyncio.get_running_loop()
        since = loop.time() - KEEPALIVE
        for connection in self._idle:
            if connection.idle_since <= since:
                connection.abort()

        self._idle = [connection for connection in self._idle if connection.idle_since > since]
        self._sweeping = loop.call_later(KEEPALIVE, self._sweep) if self._idle else None

    def _write(self, call: models.Call, url: str) -> bytes:
        headers = f'{self._headers}{http11.write_headers(call.headers)}'
        return http11.write_request(call.method, f'{self._prefix}{url}', headers, call.body)

    def _find_redirect(self, call: models.Call, url: str, reader: http11.Reader) -> str | None:
        if reader.code < 300:
            return None
        return models.find_redirect(
            call, self.server, url, reader.code, reader.headers.get('Location')
        )


class DirectChunks:
    """A response that comes in chunks. The contract is that of `models.Chunks`."""

    def __init__(
        self,
        session: DirectSession,
        call: models.Call,
        connection: connections.Connection,
        reader: http11.Reader,
    ) -> None:
        self.code = reader.code
        self.headers = reader.headers
        self._session = session
        self._call = call
        self._connection = connection

    async def read_chunk(self, timeout: float | None = None) -> bytes:
        return await self._read(_find_deadline(timeout))

    async def read_all(self, timeout: float | None) -> bytes:
        deadline = _find_deadline(timeout)
        pieces: list[bytes] = []
        try:
            while piece := await self._read(deadline):
                pieces.append(piece)
        except TimeoutError as error:
            raise self._session.translate(error, self._call) from error

        return b''.join(pieces)

    async def _read(self, deadline: float | None) -> bytes:
        try:
            return await self._connection.read(deadline)
        except (connections.LostError, http11.CutError, http11.WireError) as error:
            raise self._session.translate(error, self._call) from error


def _find_deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


def _find_earliest(*deadlines: float | None) -> float | None:
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _is_stale(connection: connections.Connection, error: Exception) -> bool:
    """
    Return whether a kept connection was presumably closed by the server before it got the request;
    this cannot happen to new connections.
    """
    return not connection.is_answered and not isinstance(error, TimeoutError)


def _keep_open(
    connection: connections.Connection, reader: http11.Reader
) -> tuple[connections.Connection, http11.Reader]:
    return connection, reader
