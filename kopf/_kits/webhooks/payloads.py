"""
Payloads: the contents of requests, received in full or not at all, within a budget of bytes.

Clients are not trusted: there can be many of them, and they can be slow and send much. Only the
bytes actually received are counted, so that a declared size does not consume the budget. They are
counted until the request is answered.
"""

import asyncio
import contextlib
import http
import mmap
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from kopf._cogs.aiokits import bells, offloads
from kopf._cogs.helpers import documents, heaps
from kopf._kits.webhooks import server_options

RECEIVING_TIMEOUT = 30.0
"""Seconds for a client to send its request after the headers; API servers do not wait longer."""

PATIENCE = 0.25
"""Seconds to wait for the budget before older, partially received requests are refused."""

WAITING_TIMEOUT = 5.0
"""Seconds to wait for the budget taken by received requests that are not answered yet."""

PARSED_LIMIT = 16 * 1024 * 1024
"""
The limit of bytes of large contents that are parsed and not answered yet: two of the largest.

A parsed content, with its copies for the handlers that modify it, takes 10 to 25 times as much
memory.
"""

PARSING_TIMEOUT = 10.0
"""Seconds for a large content to wait for others to be answered; the default of API servers."""

RETRY_AFTER = 1
"""Seconds after which clients may retry the requests refused because of the budget."""

Content = bytes | mmap.mmap


class Refusal(Exception):
    """The request is not a review, or cannot be received; it is refused before the review."""

    def __init__(self, code: http.HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.code = code


class Budget:
    """The bytes of all requests in flight. Belongs to one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._unfinished: dict[Payload, None] = {}  # in the order of their start
        self._changed = bells.Bell()  # rings when bytes are released

    @contextlib.asynccontextmanager
    async def receive(self, request: web.BaseRequest) -> AsyncIterator['Payload']:
        """
        Receive the content, and keep its part of the budget until the end of the block.

        Raises `Refusal` if the content is too large, too slow or incomplete, or if there is no
        budget for it.
        """
        if (request.content_length or 0) > server_options.MAX_SIZE:
            raise make_size_refusal()

        payload = Payload(self, request.content_length or server_options.MAX_SIZE)
        self._unfinished[payload] = None
        try:
            await payload.receive(request)
            del self._unfinished[payload]
            yield payload
        finally:
            self._unfinished.pop(payload, None)
            self._taken -= payload.size
            payload.free()
            self._changed.ring()
            if payload.size > documents.LARGE and not self._taken:
                offloads.leave_aside(heaps.trim)

    async def take(self, size: int, payload: 'Payload') -> None:
        """
        Take this number of bytes for a payload; wait until they are available.

        After a while, the oldest payload that is not fully received is evicted to make room for the
        others. Raises `Refusal` if the wait takes too long.
        """
        deadline = asyncio.get_running_loop().time() + WAITING_TIMEOUT
        while not self.take_nowait(size, payload):
            if asyncio.get_running_loop().time() >= deadline:
                raise make_budget_refusal()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._changed.wait()
            except TimeoutError:
                oldest = next(iter(self._unfinished))
                if oldest is not payload:
                    oldest.evict()

    def take_nowait(self, size: int, payload: 'Payload') -> bool:
        """Take this number of bytes for a payload; return whether they were available."""
        if self._taken + size > self._limit:
            return False
        self._taken += size
        payload.size += size
        return True


class Parsing:
    """The large contents that are parsed and not answered yet. Belongs to one event loop."""

    def __init__(self) -> None:
        self._taken = 0
        self._changed = bells.Bell()  # rings when a request is answered

    @contextlib.asynccontextmanager
    async def admit(self, size: int) -> AsyncIterator[None]:
        """
        Wait until a content of this size can be parsed; keep its memory until the end of the block.

        Only large contents wait. Raises `Refusal` if the wait takes too long.
        """
        taken = size if size > documents.LARGE else 0
        try:
            async with asyncio.timeout(PARSING_TIMEOUT):
                while taken and self._taken + taken > PARSED_LIMIT:
                    await self._changed.wait()
        except TimeoutError:
            raise make_budget_refusal() from None

        self._taken += taken
        try:
            yield
        finally:
            self._taken -= taken
            self._changed.ring()


class Payload:
    """The content of one request, with its part of the budget."""

    def __init__(self, budget: Budget, capacity: int) -> None:
        self._budget = budget
        self._capacity = capacity
        self._chunks: list[bytes] = []
        self._map: mmap.mmap | None = None
        self._timeout: asyncio.Timeout | None = None
        self._is_evicted = False
        self.size = 0
        self.content: Content = b''

    async def receive(self, request: web.BaseRequest) -> None:
        if request.headers.get('Expect', '').lower() == '100-continue':
            await request.writer.write(b'HTTP/1.1 100 Continue\r\n\r\n')
            # Otherwise, aiohttp assumes that the response is already sent.
            request.writer.output_size = 0

        chunk = b''
        # Usually, the whole content is already here: no timeouts are needed, which are costly.
        if request.content.is_eof():
            chunk = request.content.read_nowait()
            if self._budget.take_nowait(len(chunk), self):
                self.content = chunk
                return

        try:
            async with asyncio.timeout(RECEIVING_TIMEOUT) as self._timeout:
                self.content = await self._receive(request.content, chunk)
        except TimeoutError as error:
            raise make_budget_refusal() if self._is_evicted else make_timeout_refusal() from error
        except (web.RequestPayloadError, aiohttp.ClientError, OSError) as error:
            raise Refusal(
                http.HTTPStatus.BAD_REQUEST, 'The request was not sent to its end.'
            ) from error

    async def _receive(self, content: aiohttp.StreamReader, chunk: bytes) -> Content:
        while chunk := (chunk or await content.readany()):
            if self.size + len(chunk) > server_options.MAX_SIZE:
                raise make_size_refusal()
            await self._budget.take(len(chunk), self)
            self._write(chunk)
            chunk = b''

        if self._map is None:
            return b''.join(self._chunks)
        return self._map if len(self._map) == self.size else self._map[: self.size]

    def _write(self, chunk: bytes) -> None:
        """
        Keep the chunk. Large contents go to a memory map: it is always returned to the system.
        """
        self._chunks.append(chunk)
        if self._map is None and self.size > documents.LARGE:
            self._map = mmap.mmap(-1, self._capacity)
        if self._map is not None:
            for one in self._chunks:
                self._map.write(one)
            self._chunks.clear()

    def evict(self) -> None:
        """Stop receiving immediately: other requests need the bytes."""
        self._is_evicted = True
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def free(self) -> None:
        """Drop the content when it is no longer needed. Its part of the budget stays taken."""
        self.content = b''
        self._chunks.clear()
        if self._map is not None:
            with contextlib.suppress(BufferError):  # it is freed when its last reader is done
                self._map.close()
            self._map = None


def make_size_refusal() -> Refusal:
    return Refusal(
        http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f'The request is larger than {server_options.MAX_SIZE} bytes.',
    )


def make_timeout_refusal() -> Refusal:
    return Refusal(http.HTTPStatus.REQUEST_TIMEOUT, 'The request was not sent in time.')


def make_budget_refusal() -> Refusal:
    return Refusal(
        http.HTTPStatus.SERVICE_UNAVAILABLE,
        'There are too many large requests at once. Try again later.',
    )
