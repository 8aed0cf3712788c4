"""
The server: the cluster on a port, by HTTP/1.1 with or without TLS.

Only this module depends on the HTTP library: it reads the calls, and writes the responses.
"""

import asyncio
import collections
import contextlib
import hashlib
import logging
import ssl
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from kopf._sandbox import clusters, faults
from kopf._sandbox.auth import authn
from kopf._sandbox.endpoints import negotiation
from kopf._sandbox.http import filters, routing
from kopf._sandbox.meta import errors
from kopf._sandbox.registry import watcher

logger = logging.getLogger('kopf.sandbox')

MAX_BODY = 3 * 1024 * 1024
REMEMBERED = 100_000
"""The number of latest requests that are remembered for tests."""

KEEPALIVE = 3630.0
"""Seconds until idle connections are closed: longer than any watch."""


class Interceptor(Protocol):
    """A layer between clients and the cluster: changes calls and responses, or disconnects."""

    async def intercept(
        self,
        call: routing.Call,
        asked: faults.Asked,
        proceed: Callable[[routing.Call], Awaitable[negotiation.Answer]],
    ) -> negotiation.Answer:
        """Answer a call, usually by letting it proceed. Raises `faults.Cut` to disconnect."""


class Server:
    """One cluster on one port. Started and stopped from the serving loop, possibly many times."""

    def __init__(
        self,
        cluster: clusters.Cluster,
        *,
        host: str = '127.0.0.1',
        port: int = 0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.cluster = cluster
        self.host = host
        self.port = port
        self.context = context
        self.requests: collections.deque[faults.Asked] = collections.deque(maxlen=REMEMBERED)
        self.interceptor: Interceptor | None = None
        self._router = routing.Router(cluster)
        self._web_server: web.Server | None = None
        self._listener: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return f'[{self.host}]:{self.port}' if ':' in self.host else f'{self.host}:{self.port}'

    @property
    def url(self) -> str:
        return f'{"http" if self.context is None else "https"}://{self.address}'

    async def start(self) -> None:
        """Start listening. Raises `OSError` if the port is not available."""
        loop = asyncio.get_running_loop()
        server = self._web_server = web.Server(
            self._serve,
            request_factory=self._make_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=KEEPALIVE,
        )
        self._listener = await loop.create_server(
            server, self.host, self.port, ssl=self.context, backlog=1024
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening, and close all connections with their requests in progress."""
        if self._listener is not None:
            self._listener.close()
        self.cluster.faults.cut_streams()
        if self._web_server is not None:
            transports = [handler.transport for handler in self._web_server.connections]
            await self._web_server.shutdown(timeout=0.1)
            for transport in transports:
                if transport is not None:
                    transport.abort()  # the clients may be gone and unable to end the TLS properly
            await asyncio.sleep(0)  # let the aborted connections be closed

        self._listener = self._web_server = None

    def _make_request(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        return web.BaseRequest(
            message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY + 1
        )

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        token, path = filters.split_token(http.path) if self.context is None else ('', http.path)
        asked = faults.Asked(
            http.method,
            path,
            http.query_string,
            time=asyncio.get_running_loop().time(),
            user_agent=http.headers.get('User-Agent', ''),
            content_type=http.headers.get('Content-Type', ''),
        )
        self.requests.append(asked)

        try:
            answer = await self._answer(self._make_call(http, path, token), asked)
            asked.code = answer.code
            _log(asked)
            if answer.lines is not None:
                return await self._stream(http, asked, answer, answer.lines)
        except faults.Cut:
            if http.transport is not None:
                http.transport.abort()
            raise asyncio.CancelledError from None

        return make_response(answer)

    async def _answer(self, call: routing.Call, asked: faults.Asked) -> negotiation.Answer:
        if not filters.is_host_served(call.headers.get('Host', ''), self.host):
            return routing.build_refusal(
                filters.refuse_host(), call.headers.get('Accept', ''), call.is_pretty
            )
        if self.interceptor is None:
            return await self._router.answer(call, asked)
        return await self.interceptor.intercept(
            call, asked, lambda call: self._router.answer(call, asked)
        )

    def _make_call(self, http: web.BaseRequest, path: str, token: str) -> routing.Call:
        headers: Mapping[str, str] = http.headers
        if token and 'Authorization' not in headers:
            headers = http.headers.copy()
            headers['Authorization'] = f'Bearer {token}'

        secured = self.context is not None and http.transport is not None
        certificate = _read_certificate(http.transport) if secured and http.transport else None
        return routing.Call(
            http.method,
            path,
            dict(http.query),
            headers,
            certificate or None,
            read_body=lambda: _read_body(http),
            address=self.address,
        )

    async def _stream(
        self,
        http: web.BaseRequest,
        asked: faults.Asked,
        answer: negotiation.Answer,
        lines: AsyncGenerator[bytes],
    ) -> web.StreamResponse:
        """Send the lines as they come, until they end or the client disconnects."""
        response = web.StreamResponse(headers=_build_headers(answer))
        response.enable_chunked_encoding()
        stream = _make_stream(http, asked)
        self.cluster.faults.open_stream(stream)

        try:
            await response.prepare(http)
            async with contextlib.aclosing(lines) as chunks:
                async for chunk in chunks:
                    await self.cluster.faults.hold(asked)
                    if chunk:
                        await response.write(chunk)
            await response.write_eof()
        except ConnectionError:
            pass
        except errors.ApiError as error:  # an object cannot be converted
            await _end_stream(response, error)
        except asyncio.CancelledError:
            if stream.error is None:
                raise
            await _end_stream(response, stream.error)
        finally:
            self.cluster.faults.close_stream(stream)

        return response


def _read_certificate(transport: asyncio.Transport) -> Mapping[str, Any] | None:
    """Read the certificate of the client, if any, as decoded by `ssl`, with its fingerprint."""
    certificate: Mapping[str, Any] | None = transport.get_extra_info('peercert')
    if not certificate:
        return None
    raw = transport.get_extra_info('ssl_object').getpeercert(binary_form=True)
    return {**certificate, authn.FINGERPRINT: hashlib.sha256(raw).hexdigest()}


def make_response(answer: negotiation.Answer) -> web.Response:
    return web.Response(body=answer.body, status=answer.code, headers=_build_headers(answer))


def _build_headers(answer: negotiation.Answer) -> list[tuple[str, str]]:
    typed = [('Content-Type', answer.media_type)] if answer.media_type else []
    return [
        *typed,
        ('Cache-Control', 'no-cache, private'),
        ('Audit-Id', str(uuid.uuid4())),
        *answer.headers,
    ]


def _make_stream(http: web.BaseRequest, asked: faults.Asked) -> faults.Stream:
    transport = http.transport
    task = asyncio.current_task()
    assert task is not None, 'requests are served in tasks'
    return faults.Stream(
        asked, cut=transport.abort if transport is not None else task.cancel, interrupt=task.cancel
    )


async def _end_stream(response: web.StreamResponse, error: errors.ApiError) -> None:
    """End an interrupted stream with the error as its last event."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    try:
        await response.write(watcher.encode_error(error))
        await response.write_eof()
    except ConnectionError:
        pass


async def _read_body(http: web.BaseRequest) -> bytes:
    if not http.can_read_body:
        return b''

    try:
        body = await http.read()
    except web.HTTPRequestEntityTooLarge:
        body = None

    # Versions of the library differ in the limit by one byte.
    if body is None or len(body) > MAX_BODY:
        raise errors.too_large(f'Request entity too large: limit is {MAX_BODY}')
    return body


def _log(asked: faults.Asked) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        query = f'?{asked.query}' if asked.query else ''
        logger.debug(
            '%s %s %s%s (%s)', asked.code, asked.method, asked.path, query, asked.user_agent
        )
