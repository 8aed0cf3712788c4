"""
Connections: requests and responses over TCP and TLS, one at a time in each connection.

It does less than a general HTTP library: an operator makes a few requests for each change of each
object, and the overhead of a library for these requests takes as much time as the rest of the work.
"""

import asyncio
import dataclasses
import socket
from typing import TYPE_CHECKING, Any, cast

from kopf._cogs.clients.http import http11

if TYPE_CHECKING:
    import ssl

BUFFER_LIMIT = 256 * 1024
"""Bytes of an unread stream to buffer: above that, the server has to wait."""

FALLBACK_DELAY = 0.25
"""Seconds to wait for one address of the server before trying the next one in parallel."""


class LostError(Exception):
    """The connection is lost, or was never established."""


@dataclasses.dataclass(frozen=True)
class Address:
    """The address of a server."""

    host: str
    port: int
    tls: 'ssl.SSLContext | None' = None
    tls_name: str | None = None  # the name to expect in the certificate, if not the host

    def __str__(self) -> str:
        return f'[{self.host}]:{self.port}' if ':' in self.host else f'{self.host}:{self.port}'


class Connection(asyncio.Protocol):
    """
    An established connection. One task at a time uses it: sends a request, and then reads the
    response.

    It can be reused only after the response is read as a whole, if `is_reusable`. In all other
    cases, including any error or cancellation, it must be aborted: a late response would be taken
    for that of the next request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Done when the connection is closed.
        self.lost: asyncio.Future[None] = loop.create_future()
        self.idle_since = 0.0
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader: http11.Reader | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_streamed = self._is_paused = False

    @property
    def is_reusable(self) -> bool:
        is_clean = self._reader is None or (self._reader.is_complete and self._reader.is_reusable)
        return (
            is_clean
            and self._error is None
            and self._transport is not None
            and not self._transport.is_closing()
        )

    @property
    def is_answered(self) -> bool:
        """Whether any byte of the response to the last request has been received."""
        return self._reader is not None and self._reader.is_begun

    async def ask(self, request: bytes, deadline: float | None) -> http11.Reader:
        """
        Send a request, and wait for the full response.

        Raises `TimeoutError` at the deadline, which is by the clock of the loop; `LostError`,
        `CutError`, `WireError`.
        """
        reader, transport = self._begin(is_streamed=False)
        transport.write(request)
        while not reader.is_complete:
            await self._wait(deadline)
        return reader

    async def ask_for_stream(self, request: bytes, deadline: float | None) -> http11.Reader:
        """Send a request, and wait only for the headers of the response; raise as `ask` does."""
        reader, transport = self._begin(is_streamed=True)
        transport.write(request)
        while not reader.has_head:
            await self._wait(deadline)
        return reader

    async def read(self, deadline: float | None) -> bytes:
        """
        Wait for more bytes of the stream; empty bytes mean its end. Raises as `ask` does;
        cancelling loses nothing.
        """
        reader = self._reader
        if reader is None:
            raise LostError('there is no stream')

        while not reader.size:
            if reader.is_complete:
                return b''
            await self._wait(deadline)

        if self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._is_paused = False
            # Not all loops permit it after the connection is closed.
            self._transport.resume_reading()

        return reader.take()

    def fail(self, error: Exception) -> None:
        """Abort, and fail the current or next wait for the response with this error."""
        if self._error is None:
            self._error = error
        self.abort()
        self._wake()

    def abort(self) -> None:
        """Disconnect immediately, without the TLS shutdown: the loop may be about to close."""
        if self._transport is not None:
            self._transport.abort()

    def rest(self) -> None:
        """Become idle until the next request, if reusable."""
        self._reader = None
        self.idle_since = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader is None or reader.is_complete:  # unsolicited
            self.abort()
            return

        try:
            reader.feed(data)
        except http11.WireError as error:
            self.fail(error)
            return

        if self._is_streamed:
            self._hold_back(reader)
        if reader.is_complete or (self._is_streamed and reader.has_head):
            self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    def _begin(self, *, is_streamed: bool) -> tuple[http11.Reader, asyncio.Transport]:
        """Prepare for the response to a request that the caller writes next."""
        if self._error is not None or self._transport is None:
            raise LostError('the connection is lost') from self._error
        self._is_streamed = is_streamed
        self._reader = http11.Reader()
        return self._reader, self._transport

    def _end(self, exc: Exception | None) -> None:
        if self._reader is None or self._reader.is_complete:
            self._error = self._error or LostError('the connection was closed')
            return

        try:
            if exc is not None:
                raise LostError(str(exc) or type(exc).__name__)
            self._reader.feed_end()
            self._wake()
        except (LostError, http11.CutError, http11.WireError) as error:
            self.fail(error)

    def _hold_back(self, reader: http11.Reader) -> None:
        if reader.size > BUFFER_LIMIT and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    async def _wait(self, deadline: float | None) -> None:
        """Wait for any progress or error."""
        if self._error is not None:
            raise self._error

        waiter = self._waiter = self._loop.create_future()
        timer = None if deadline is None else self._loop.call_at(deadline, _expire, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


def _is_numeric(host: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6 if ':' in host else socket.AF_INET, host)
    except OSError:
        return False
    return True


async def connect(address: Address) -> Connection:
    """Establish a connection; the caller must abort it. Raises `OSError`, also for TLS and DNS."""
    loop = asyncio.get_running_loop()
    target: dict[str, Any] = {'host': address.host, 'port': address.port}
    places = (
        []
        if _is_numeric(address.host)
        else await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    )

    if len(places) > 1:
        # Not by the loop itself: not all loops try the addresses in parallel, and some addresses
        # may be silent.
        import aiohappyeyeballs

        target = {
            'sock': await aiohappyeyeballs.start_connection(
                places, happy_eyeballs_delay=FALLBACK_DELAY
            )
        }

    if address.tls is not None:
        target |= {'ssl': address.tls, 'server_hostname': address.tls_name or address.host}
    _, connection = await loop.create_connection(lambda: Connection(loop), **target)
    return connection
