"""
Sessions: connections to the API, shared by the requests with the same credentials.

A session has one pool of connections and one TLS context. It is made of credentials and closed with
them. Servers that are reached directly get our own sessions; proxies and ready-made sessions are
left to the HTTP library.
"""

import asyncio
import contextlib
import logging
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from kopf._cogs.aiokits import bells, offloads
from kopf._cogs.clients import calls, connections, environs, errors, foreign, wires
from kopf._cogs.structs import credentials

logger = logging.getLogger(__name__)

KEEPALIVE = 15.0
"""Seconds to keep an unused connection; not long, as network devices can forget it silently."""

Ask = Callable[[connections.Connection, bytes, float | None], Awaitable[wires.Reader]]


class DirectSession:
    """A session with the server itself. The contract is that of `calls.Session`."""

    def __init__(
        self, server: str, address: connections.Address, headers: Mapping[str, str]
    ) -> None:
        self.server = server.rstrip('/')
        parts = urllib.parse.urlsplit(self.server)
        self._prefix = parts.path
        self._address = address
        place = parts.netloc if parts.netloc.isascii() else str(address)
        self._headers = wires.write_headers({'Host': place, **headers})
        self._is_closing = False
        self._alive: set[connections.Connection] = set()
        self._idle: list[connections.Connection] = []  # the last used one is the last
        self._asked: dict[connections.Connection, calls.Call] = {}
        self._streams: set[connections.Connection] = set()
        self._connecting: set[asyncio.Timeout] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._answered = bells.Bell()

    def __repr__(self) -> str:
        return f'<Session of {credentials.hide_userinfo(self.server)}>'

    @property
    def is_closed(self) -> bool:
        return self._is_closing

    async def fetch(self, call: calls.Call, timeouts: calls.Timeouts) -> calls.Answer:
        connection, reader = await self._follow(call, connections.Connection.ask, timeouts)
        self._release(connection)
        return calls.Answer(
            reader.code, reader.headers if reader.code >= 300 else {}, reader.take()
        )

    @contextlib.asynccontextmanager
    async def stream(
        self, call: calls.Call, timeouts: calls.Timeouts
    ) -> AsyncIterator['DirectChunks']:
        connection, reader = await self._follow(
            call, connections.Connection.ask_for_stream, timeouts
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
            async with asyncio.timeout(calls.CLOSING_TIMEOUT):
                while self._asked:
                    await self._answered.wait()
        for connection in list(self._alive):
            connection.fail(connections.LostError('the session is closed'))
        if self._alive:
            await asyncio.wait(
                [connection.lost for connection in self._alive], timeout=calls.CLOSING_TIMEOUT
            )

    def translate(
        self, error: Exception, call: calls.Call, *, is_sent: bool = True
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
            case wires.WireError():
                return errors.APIGarbledError(f'{call}: the answer is wrong: {error}.')
            case _:
                return errors.APIDisconnectedError(f'{call}: {error}.')

    async def _follow(
        self, call: calls.Call, ask: Ask, timeouts: calls.Timeouts
    ) -> tuple[connections.Connection, wires.Reader]:
        """Send a request, and follow its redirects; the rest is as in `_exchange`."""
        deadline = _find_deadline(timeouts.total)
        connection, reader = await self._exchange(call, call.url, ask, timeouts, deadline)
        url, redirects = self._find_redirect(call, call.url, reader), 1
        while url is not None and redirects < calls.REDIRECTS_LIMIT:
            self._release(connection)
            connection, reader = await self._exchange(call, url, ask, timeouts, deadline)
            url, redirects = self._find_redirect(call, url, reader), redirects + 1
        return connection, reader

    async def _exchange(
        self, call: calls.Call, url: str, ask: Ask, timeouts: calls.Timeouts, deadline: float | None
    ) -> tuple[connections.Connection, wires.Reader]:
        """Send a request, and wait for the response or its head; the caller owns the connection."""
        request = self._write(call, url)
        is_repeated = False
        while True:
            kept = None if is_repeated else self._take_idle()
            connection = kept or await self._connect(call, timeouts.connect, deadline)
            self._asked[connection] = call
            limits = [
                limit for limit in (deadline, _find_deadline(timeouts.head)) if limit is not None
            ]
            try:
                return connection, await ask(connection, request, min(limits, default=None))
            except (TimeoutError, connections.LostError, wires.CutError, wires.WireError) as error:
                connection.abort()
                # The server can close a kept connection before it gets the request; this cannot
                # happen to new connections.
                is_stale = (
                    kept is not None
                    and not connection.is_answered
                    and not isinstance(error, TimeoutError)
                )
                if not is_stale or not call.is_repeatable or self._is_closing:
                    raise self.translate(error, call) from error
                is_repeated = True
            except asyncio.CancelledError:
                connection.abort()
                raise
            finally:
                del self._asked[connection]
                self._answered.ring()

    async def _connect(
        self, call: calls.Call, timeout: float | None, deadline: float | None
    ) -> connections.Connection:
        if self._is_closing:
            raise errors.APISessionClosedError(f'{call}: the session is closed.', is_sent=False)
        limits = [limit for limit in (deadline, _find_deadline(timeout)) if limit is not None]
        try:
            async with asyncio.timeout_at(min(limits, default=None)) as limit:
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

    def _write(self, call: calls.Call, url: str) -> bytes:
        headers = f'{self._headers}{wires.write_headers(call.headers)}'
        return wires.write_request(call.method, f'{self._prefix}{url}', headers, call.body)

    def _find_redirect(self, call: calls.Call, url: str, reader: wires.Reader) -> str | None:
        if reader.code < 300:
            return None
        return calls.find_redirect(
            call, self.server, url, reader.code, reader.headers.get('Location')
        )


class DirectChunks:
    """A response that comes in chunks. The contract is that of `calls.Chunks`."""

    def __init__(
        self,
        session: DirectSession,
        call: calls.Call,
        connection: connections.Connection,
        reader: wires.Reader,
    ) -> None:
        self.code, self.headers = reader.code, reader.headers
        self._session, self._call, self._connection = session, call, connection

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
        except (connections.LostError, wires.CutError, wires.WireError) as error:
            raise self._session.translate(error, self._call) from error


def _find_deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


async def open_session(info: credentials.Credentials) -> calls.Session:
    """
    Make a session of the credentials; the caller must close it.

    Nothing is sent to the server yet. Raises `LoginError` if the credentials are unusable. For
    plain HTTP to another machine, the credentials are left out.
    """
    parts = _check_server(info.server)
    if isinstance(info, credentials.AiohttpSession):
        return foreign.adopt_session(info)
    info = environs.resolve(info)
    if credentials.is_exposed(info) and credentials.has_secrets(info):
        info = credentials.disarm(info)
        parts = _check_server(info.server)
        logger.warning(
            'The credentials are not sent to %s, as all on the way could read them over plain HTTP. '
            'Use https:// in the address of the server.',
            credentials.describe(info),
        )
    context = await offloads.read_aside(info.as_ssl_context) if parts.scheme == 'https' else None
    if info.proxy_url is not None or '@' in parts.netloc:
        return foreign.make_session(info, context)
    headers = {'User-Agent': calls.USER_AGENT, 'Accept-Encoding': 'gzip', **info.as_http_headers()}
    if not all(wires.is_clean(value) for value in headers.values()):
        raise credentials.LoginError(
            'The credentials cannot be sent in a header: they have line breaks or alike. '
            'Remove these from the token, the username, or the password.'
        )
    host = _encode_host(parts.hostname or '')
    port = parts.port or (80 if context is None else 443)
    return DirectSession(
        info.server, connections.Address(host, port, context, info.tls_server_name), headers
    )


def _check_server(server: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(server)
        host = _encode_host(parts.hostname or '')
        is_correct = parts.scheme in ('http', 'https') and bool(host) and parts.port != 0
    except ValueError:
        is_correct = False
    if not is_correct:
        raise credentials.LoginError(
            f'The server must be a URL of HTTP or HTTPS, not {credentials.hide_userinfo(server)!r}.'
        )
    return parts


def _encode_host(host: str) -> str:
    """Encode the names in other alphabets. Raises `ValueError` for invalid names."""
    if not host.isascii():
        # Only for such names: the tables for that take a megabyte.
        return host.encode('idna').decode('ascii')
    if not all(0 < len(label) < 64 for label in host.removesuffix('.').split('.')):
        raise ValueError('there are empty or too long labels')
    return host
