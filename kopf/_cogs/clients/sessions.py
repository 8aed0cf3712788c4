"""
Sessions: HTTP connections to the API, with all that is shared by the requests with the same credentials.

A session has one pool of connections and one TLS context. It is made of credentials and closed with them.
All errors of the network are translated to ours, so nobody else depends on the HTTP library; and it is loaded late.
"""
import asyncio
import base64
import contextlib
import dataclasses
import urllib.parse
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kopf._cogs.clients import errors
from kopf._cogs.helpers import versions
from kopf._cogs.structs import credentials

if TYPE_CHECKING:
    import aiohttp

USER_AGENT = f'kopf/{versions.version}'

CLOSING_TIMEOUT = 3.0
"""Seconds for the requests that cannot be repeated to finish when their session is closed."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One request, independent of where and as whom it will be made."""
    method: str
    url: str  # from the root of the API, properly encoded
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = dataclasses.field(default=None, repr=False)
    is_repeatable: bool = True
    verb: str = ''  # what it is in terms of the API

    def __str__(self) -> str:
        return f'{self.method} {self.url.partition("?")[0]}'


@dataclasses.dataclass(frozen=True)
class Timeouts:
    """How long a request can take, in seconds; ``None`` means no limit."""
    total: float | None = None  # until the last byte of the answer; for streams, until the headers
    connect: float | None = None  # only the establishing of a connection, as a part of the above


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server has answered, good or bad."""
    code: int
    headers: Mapping[str, str] = dataclasses.field(repr=False)
    raw: bytes = dataclasses.field(repr=False)


class Chunks:
    """The answer of the server that comes in chunks, some time later than its code and headers."""

    def __init__(self, session: 'Session', call: Call, response: 'aiohttp.ClientResponse') -> None:
        self._session, self._call, self._response = session, call, response
        self.code: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read_chunk(self) -> bytes:
        """Wait for some more bytes, for as long as it takes; none mean the end. A cancelled wait loses nothing."""
        with self._session.translated(self._call):
            return await self._response.content.readany()

    async def read_all(self, timeout: float | None) -> bytes:
        """Wait for all the rest, for so many seconds."""
        with self._session.translated(self._call):
            async with asyncio.timeout(timeout):
                return await self._response.read()


class Session:
    """One set of credentials in use. Any number of tasks may make requests at once."""

    def __init__(self, http: 'aiohttp.ClientSession', *, server: str, **options: Any) -> None:
        self.server = server.rstrip('/')
        self._http = http
        self._options = options  # for every request
        self._is_closing = False
        self._unanswered: set[_Unanswered] = set()
        self._streams: set[aiohttp.ClientResponse] = set()

    def __repr__(self) -> str:
        return f'<{type(self).__name__} of {credentials.hide_userinfo(self.server)}>'

    @property
    def is_closed(self) -> bool:
        return self._is_closing or self._http.closed

    async def fetch(self, call: Call, timeouts: Timeouts) -> Answer:
        """Make a request, and read the whole answer. Raises `APIConnectionError` if there is none in time."""
        with self.translated(call):
            async with self._waiting(call, timeouts.total), await self._send(call, timeouts.connect) as response:
                return Answer(response.status, response.headers, await response.read())

    @contextlib.asynccontextmanager
    async def stream(self, call: Call, timeouts: Timeouts) -> AsyncIterator[Chunks]:
        """Make a request, and wait until it is answered, but not for the contents. Raises as `fetch` does."""
        with self.translated(call):
            async with self._waiting(call, timeouts.total):
                response = await self._send(call, timeouts.connect)
        self._streams.add(response)
        try:
            yield Chunks(self, call, response)
        finally:
            self._streams.discard(response)
            _cut(response)

    async def close(self) -> None:
        """
        Cut all streams and requests, which are to be repeated with other credentials, and close the session itself.

        Those that are not to be repeated get a few seconds to finish. Closing again, at any time, is harmless.
        """
        self._is_closing = True
        for response in list(self._streams):
            _cut(response)
        for unanswered in self._unanswered:
            if unanswered.call.is_repeatable:
                unanswered.cut()
        if self._unanswered:
            await asyncio.wait([unanswered.end for unanswered in self._unanswered], timeout=CLOSING_TIMEOUT)
        for unanswered in self._unanswered:
            unanswered.cut()
        await self._http.close()

    @contextlib.contextmanager
    def translated(self, call: Call) -> Iterator[None]:
        """Turn the errors of the HTTP library and of the system to those of ours."""
        import aiohttp
        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            failure = translate(error, call)
            if self.is_closed:
                is_sent = not isinstance(failure, errors.APIUnreachableError)
                raise errors.APISessionClosedError(f"{call}: the session is closed.", is_sent=is_sent) from error
            raise failure from error
        except (AssertionError, RuntimeError) as error:
            if not self.is_closed:
                raise
            # The HTTP library does not expect its sessions to be closed by somebody else in the middle.
            raise errors.APISessionClosedError(f"{call}: the session is closed.", is_sent=True) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not self.is_closed:
                raise
            # The connector cancels what waits for connections when it is closed, but nobody has cancelled us.
            raise errors.APISessionClosedError(f"{call}: the session is closed.", is_sent=False) from error

    async def _send(self, call: Call, connect_timeout: float | None) -> 'aiohttp.ClientResponse':
        import aiohttp
        if self.is_closed:
            raise errors.APISessionClosedError(f"{call}: the session is closed.", is_sent=False)
        headers = {**self._options.get('headers', {}), **call.headers}
        return await self._http.request(call.method, **{
            **self._options, 'headers': headers, 'url': _encode(f'{self.server}{call.url}'), 'data': call.body,
            'allow_redirects': call.method == 'GET',
            'timeout': aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout)})

    @contextlib.asynccontextmanager
    async def _waiting(self, call: Call, timeout: float | None) -> AsyncIterator[None]:
        """Limit a request in time, and let it be cut when the session is closed."""
        async with asyncio.timeout(timeout) as limit:
            unanswered = _Unanswered(call, limit, asyncio.get_running_loop().create_future())
            self._unanswered.add(unanswered)
            try:
                yield
            finally:
                self._unanswered.discard(unanswered)
                unanswered.end.cancel()


def _cut(response: 'aiohttp.ClientResponse') -> None:
    """End a stream at once: without the farewells of TLS, which nobody waits for if the loop is about to be closed."""
    transport = None if response.connection is None else response.connection.transport
    if transport is not None:
        transport.abort()
    response.close()


@dataclasses.dataclass(frozen=True, eq=False)
class _Unanswered:
    """A request in progress."""
    call: Call
    limit: asyncio.Timeout
    end: asyncio.Future[None]  # done when the request is, in any way

    def cut(self) -> None:
        # Of the HTTP library itself, one can close only the connections; then it makes the requests once more.
        if not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time())


async def open_session(info: credentials.Credentials) -> Session:
    """
    Make a session of the credentials; close it later.

    Nothing is sent to the server yet. Raises `LoginError` if the credentials are not usable.
    """
    parts = _check_server(info.server)
    if isinstance(info, credentials.AiohttpSession):
        own = {} if 'User-Agent' in info.aiohttp_session.headers else {'User-Agent': USER_AGENT}
        return Session(info.aiohttp_session, server=info.server, headers=own)
    import aiohttp
    context = await asyncio.to_thread(info.as_ssl_context) if parts.scheme == 'https' else True
    http = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        headers={'User-Agent': USER_AGENT},
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=info.trust_env,
    )
    options = _build_proxy_options(info.proxy_url, is_tunnelled=parts.scheme == 'https')
    # Not in the session's headers: the HTTP library sends those to proxies, too, with the token as the proxy's one.
    headers = {**options.pop('headers', {}), **info.as_http_headers()}
    return Session(http, server=info.server, server_hostname=info.tls_server_name, headers=headers, **options)


def translate(error: Exception, call: Call) -> errors.APIConnectionError:
    """Tell by an error of the HTTP library how far the request went."""
    import aiohttp
    text = f"{call}: {str(error) or type(error).__name__}"
    match error:
        case (aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | aiohttp.ClientHttpProxyError()
              | aiohttp.ServerFingerprintMismatch()):
            return errors.APIUnreachableError(text)
        case TimeoutError():
            return errors.APITimeoutError(f"{call}: there is no answer in time.")
        case aiohttp.ClientResponseError():
            return errors.APIGarbledError(f"{call}: HTTP {error.status}: {error.message}")
        case _:
            return errors.APIDisconnectedError(text)


def _check_server(server: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(server)
        is_correct = parts.scheme in ('http', 'https') and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_correct = False
    if not is_correct:
        raise credentials.LoginError(f"The server must be a URL of HTTP or HTTPS, "
                                     f"not {credentials.hide_userinfo(server)!r}.")
    return parts


def _build_proxy_options(url: str | None, *, is_tunnelled: bool) -> dict[str, Any]:
    """Build the options of requests via a proxy; the password goes to the header, as the URLs are shown in errors."""
    if url is None:
        return {}
    parts = urllib.parse.urlsplit(url)
    address = parts.netloc.rpartition('@')[2]
    proxy = urllib.parse.urlunsplit(parts._replace(netloc=address))
    if parts.username is None:
        return {'proxy': proxy}
    pair = f'{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or "")}'
    headers = {'Proxy-Authorization': f'Basic {base64.b64encode(pair.encode()).decode()}'}
    return {'proxy': proxy, ('proxy_headers' if is_tunnelled else 'headers'): headers}


def _encode(url: str) -> Any:
    import yarl
    return yarl.URL(url, encoded=True)
