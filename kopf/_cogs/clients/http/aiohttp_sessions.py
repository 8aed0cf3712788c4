"""
Sessions of the HTTP library, aiohttp, for everything but direct connections: proxies,
ready-made sessions.

All network errors are translated to ours, so no other module depends on the HTTP library; it is
imported late.
"""

import asyncio
import base64
import contextlib
import dataclasses
import functools
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kopf._cogs.clients import errors, fences
from kopf._cogs.clients.http import models
from kopf._cogs.structs import credentials

if TYPE_CHECKING:
    import ssl

    import aiohttp


class ForeignChunks:
    """A response that comes in chunks. The contract is that of `models.Chunks`."""

    def __init__(
        self, session: 'ForeignSession', call: models.Call, response: 'aiohttp.ClientResponse'
    ) -> None:
        self._session = session
        self._call = call
        self._response = response
        self.code: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read_chunk(self, timeout: float | None = None) -> bytes:
        async with asyncio.timeout(timeout):
            with self._session.translated(self._call):
                return await self._response.content.readany()

    async def read_all(self, timeout: float | None) -> bytes:
        with self._session.translated(self._call):
            async with asyncio.timeout(timeout):
                return await self._response.read()


class ForeignSession:
    """A session of the HTTP library. The contract is that of `models.Session`."""

    def __init__(self, http: 'aiohttp.ClientSession', *, server: str, **options: Any) -> None:
        self.server = server.rstrip('/')
        self._http = http
        self._options = options  # for every request
        self._is_closing = False
        self._unanswered: set[_Unanswered] = set()
        self._streams: set[aiohttp.ClientResponse] = set()

    def __repr__(self) -> str:
        return f'<Session of {credentials.hide_userinfo(self.server)}>'

    @property
    def is_closed(self) -> bool:
        return self._is_closing or self._http.closed

    async def fetch(self, call: models.Call, timeouts: models.Timeouts) -> models.Answer:
        with self.translated(call):
            async with (
                self._waiting(call, timeouts.total),
                await self._send(call, timeouts.connect) as response,
            ):
                return models.Answer(response.status, response.headers, await response.read())

    @contextlib.asynccontextmanager
    async def stream(
        self, call: models.Call, timeouts: models.Timeouts
    ) -> AsyncIterator[ForeignChunks]:
        with self.translated(call):
            async with self._waiting(call, timeouts.total):
                response = await self._send(call, timeouts.connect)

        self._streams.add(response)
        try:
            yield ForeignChunks(self, call, response)
        finally:
            self._streams.discard(response)
            _cut(response)

    async def close(self) -> None:
        self._is_closing = True
        for response in list(self._streams):
            _cut(response)
        for unanswered in self._unanswered:
            if unanswered.call.is_repeatable:
                unanswered.cut()

        if self._unanswered:
            await asyncio.wait(
                [unanswered.end for unanswered in self._unanswered], timeout=models.CLOSING_TIMEOUT
            )

        for unanswered in self._unanswered:
            unanswered.cut()
        await self._http.close()

    @contextlib.contextmanager
    def translated(self, call: models.Call) -> Iterator[None]:
        """Translate the errors of the HTTP library and of the system to our own errors."""
        import aiohttp

        try:
            yield
        except (aiohttp.ClientError, OSError) as error:
            failure = translate(error, call)
            if self.is_closed:
                is_sent = not isinstance(failure, errors.APIUnreachableError)
                raise errors.APISessionClosedError(
                    f'{call}: the session is closed.', is_sent=is_sent
                ) from error
            # Errors of responses, e.g. from proxies, contain all headers, including passwords.
            raise failure from (None if isinstance(error, aiohttp.ClientResponseError) else error)
        except (AssertionError, RuntimeError) as error:
            if not self.is_closed:
                raise
            # The HTTP library does not expect its sessions to be closed during their requests.
            raise errors.APISessionClosedError(
                f'{call}: the session is closed.', is_sent=True
            ) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling() or not self.is_closed:
                raise
            # A closed connector cancels tasks that wait for connections; our task is not cancelled.
            raise errors.APISessionClosedError(
                f'{call}: the session is closed.', is_sent=False
            ) from error

    async def _send(
        self, call: models.Call, connect_timeout: float | None
    ) -> 'aiohttp.ClientResponse':
        import aiohttp

        if self.is_closed:
            raise errors.APISessionClosedError(f'{call}: the session is closed.', is_sent=False)

        options = {
            **self._options,
            'headers': {**self._options.get('headers', {}), **call.headers},
            'data': _guard_body(call),
            'allow_redirects': False,
            'raise_for_status': False,
            'timeout': aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
        }
        call.permit()
        try:
            response = await self._http.request(
                call.method, _encode(f'{self.server}{call.url}'), **options
            )
        except aiohttp.ClientError:
            call.permit()  # it is not visible in the error if the body was not permitted
            raise

        url = self._find_redirect(call, call.url, response)
        redirects = 1
        while url is not None and redirects < models.REDIRECTS_LIMIT:
            response.release()
            response = await self._http.request(
                call.method, _encode(f'{self.server}{url}'), **options
            )
            url = self._find_redirect(call, url, response)
            redirects = redirects + 1

        return response

    def _find_redirect(
        self, call: models.Call, url: str, response: 'aiohttp.ClientResponse'
    ) -> str | None:
        if response.status < 300:
            return None
        return models.find_redirect(
            call, self.server, url, response.status, response.headers.get('Location')
        )

    @contextlib.asynccontextmanager
    async def _waiting(self, call: models.Call, timeout: float | None) -> AsyncIterator[None]:
        """Limit a request in time, and let it be cut when the session is closed."""
        async with asyncio.timeout(timeout) as limit:
            unanswered = _Unanswered(call, limit, asyncio.get_running_loop().create_future())
            self._unanswered.add(unanswered)
            try:
                yield
            finally:
                self._unanswered.discard(unanswered)
                unanswered.end.cancel()


@functools.cache
def _load_guarded_payload() -> type[Any]:
    from aiohttp import payload

    class GuardedPayload(payload.BytesPayload):
        """The body of a request, written only if still permitted when there is a connection."""

        def __init__(self, body: bytes, permit: Callable[[], None]) -> None:
            super().__init__(body)
            self._permit = permit

        async def write_with_length(self, writer: Any, content_length: int | None) -> None:
            self._permit()
            await super().write_with_length(writer, content_length)

    return GuardedPayload


def _guard_body(call: models.Call) -> Any:
    """Return the body for the HTTP library; a request without its body is never executed."""
    if call.body is None or call.permit is fences.permit_all:
        return call.body
    return _load_guarded_payload()(call.body, call.permit)


def _cut(response: 'aiohttp.ClientResponse') -> None:
    """End a stream immediately, without the TLS shutdown: the loop may be about to close."""
    transport = None if response.connection is None else response.connection.transport
    if transport is not None:
        transport.abort()
    response.close()


@dataclasses.dataclass(frozen=True, eq=False)
class _Unanswered:
    """A request in progress."""

    call: models.Call
    limit: asyncio.Timeout
    end: asyncio.Future[None]  # done when the request ends in any way

    def cut(self) -> None:
        # The HTTP library can only close its connections; then it would repeat the requests.
        if not self.limit.expired():
            self.limit.reschedule(asyncio.get_running_loop().time())


def adopt_session(info: credentials.AiohttpSession) -> ForeignSession:
    """
    Use a ready-made session as it is; it is closed with ours.

    Raises `LoginError` if its credentials would be sent over plain HTTP to another machine.
    """
    http = info.aiohttp_session
    has_secrets = 'Authorization' in http.headers or getattr(http, 'auth', None) is not None
    if credentials.is_exposed(info) and (has_secrets or '@' in info.server):
        raise credentials.LoginError(
            f'The session for {credentials.describe(info)} would send its credentials over plain '
            'HTTP, where all on the way can read them. Use https:// in the address of the server.'
        )

    own = {} if 'User-Agent' in info.aiohttp_session.headers else {'User-Agent': models.USER_AGENT}
    return ForeignSession(info.aiohttp_session, server=info.server, headers=own)


def make_session(
    info: credentials.ConnectionInfo, context: 'ssl.SSLContext | None'
) -> ForeignSession:
    """Make a session without connecting. Raises `LoginError` for unusable proxies."""
    import aiohttp

    options = _build_proxy_options(info.proxy_url, is_tunnelled=context is not None)
    http = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=True if context is None else context, limit=0),
        headers={'User-Agent': models.USER_AGENT},
        cookie_jar=aiohttp.DummyCookieJar(),
    )
    # Not in the session's headers: the library would send these, with the token, to proxies too.
    headers = {**options.pop('headers', {}), **info.as_http_headers()}

    return ForeignSession(
        http, server=info.server, server_hostname=info.tls_server_name, headers=headers, **options
    )


def translate(error: Exception, call: models.Call) -> errors.APIConnectionError:
    """Translate an error of the HTTP library depending on how far the request went."""
    import aiohttp

    text = f'{call}: {credentials.hide_userinfo(str(error)) or type(error).__name__}'
    match error:
        case (
            aiohttp.ClientConnectorError()
            | aiohttp.ConnectionTimeoutError()
            | aiohttp.ClientHttpProxyError()
            | aiohttp.ServerFingerprintMismatch()
        ):
            return errors.APIUnreachableError(text)
        case TimeoutError():
            return errors.APITimeoutError(f'{call}: there is no answer in time.')
        case aiohttp.ClientResponseError():
            return errors.APIGarbledError(
                f'{call}: HTTP {error.status}: {credentials.hide_userinfo(error.message)}'
            )
        case _:
            return errors.APIDisconnectedError(text)


def _build_proxy_options(url: str | None, *, is_tunnelled: bool) -> dict[str, Any]:
    """Build the proxy options of requests; the password is in a header, as errors show URLs."""
    if url is None:
        return {}

    parts = _parse_proxy(url)
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


def _parse_proxy(url: str) -> urllib.parse.SplitResult:
    """Parse the address of a proxy; the default scheme is HTTP."""
    try:
        parts = urllib.parse.urlsplit(url if '://' in url else f'http://{url}')
        is_correct = parts.scheme in ('http', 'https') and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_correct = False

    if not is_correct:
        raise credentials.LoginError(
            f'The proxy must be a URL of HTTP or HTTPS, not '
            f'{credentials.hide_userinfo(url)!r}. Encode special characters in its password.'
        )
    return parts
