"""
Receptions: the connections to a server, accepted, limited in number and in time, and closed in the end.

The clients are not trusted: whoever can reach the port, can connect. What is said in the connections is not known here.
The certificate can be replaced at any moment: the new connections get the new one, the others are not disturbed.
"""
import asyncio
import contextlib
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web

from kopf._cogs.aiokits import bells

logger = logging.getLogger(__name__)

CONNECTIONS_LIMIT = 1000
"""How many connections can be open at once. When there are more, the one that is idle for the longest time is cut."""

HANDSHAKE_TIMEOUT = 10.0
"""Seconds for a client to agree on TLS."""

HEADERS_TIMEOUT = 10.0
"""Seconds for a client to send the headers of its first request."""

IDLE_TIMEOUT = 120.0
"""
Seconds between an answer and the headers of the next request, also for the answer itself to be received.
The API servers close their idle connections after 90 seconds, so they never write to a connection being closed.
"""

LINGERING_TIMEOUT = 2.0
"""Seconds to read the rest of a request when it is answered already."""

CLOSING_TIMEOUT = 5.0
"""Seconds for the current requests to be answered when the server is closed."""

BACKLOG = 128
BUSY_DELAY = 1.0  # seconds, when the system has no resources for new connections

Answer = Callable[[web.BaseRequest], Awaitable[web.Response]]


class Reception:
    """
    Serves connections on the sockets, from `start` to `close`. Belongs to one event loop.

    The sockets are closed with it.
    """

    def __init__(self, sockets: list[socket.socket], answer: Answer, *, max_size: int) -> None:
        self._sockets = sockets
        self._hall = _Hall(self._attend, max_size=max_size)
        self._answer = answer
        self._context: ssl.SSLContext | None = None
        self._acceptors: list[asyncio.Task[None]] = []
        self._greetings: set[asyncio.Task[None]] = set()
        self._requests: set[asyncio.Task[Any]] = set()

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this TLS for the new connections; with none, they are plain."""
        self._context = context

    def start(self) -> None:
        """Begin to accept connections. Raises `OSError` if it is not possible."""
        for sock in self._sockets:
            sock.listen(BACKLOG)
        self._acceptors = [asyncio.create_task(self._accept(sock), name='webhooks acceptor') for sock in self._sockets]

    async def wait(self, timeout: float | None = None) -> None:
        """Serve for so many seconds, or until something goes wrong, which is raised. One task at a time may wait."""
        done, _ = await asyncio.wait(self._acceptors, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def close(self) -> None:
        """
        Accept nothing more, let the current requests finish within `CLOSING_TIMEOUT`, and cut all connections.

        If cancelled, the connections are cut at once. The ports are free in any case. Can be repeated.
        """
        tasks = [*self._acceptors, *self._greetings]
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
            self._hall.pre_shutdown()
            if self._requests:
                await asyncio.wait(self._requests, timeout=CLOSING_TIMEOUT)
            for request in self._requests:
                request.cancel()
            await self._hall.leave()
        finally:
            self._hall.cut_all()
            for sock in self._sockets:
                sock.close()

    async def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(sock)
            except ConnectionError:
                continue  # it has gone before it came
            except OSError as error:
                logger.warning("Cannot accept a connection to the webhook server: %s", error)
                await asyncio.sleep(BUSY_DELAY)
                continue
            try:
                await self._hall.wait_for_room()
            except asyncio.CancelledError:
                connection.close()
                raise
            visitor = self._hall.admit()
            greeting = asyncio.create_task(self._greet(connection, visitor), name='webhooks connection')
            self._greetings.add(greeting)
            greeting.add_done_callback(functools.partial(self._check_greeting, connection, visitor))

    async def _greet(self, connection: socket.socket, visitor: web.RequestHandler) -> None:
        limits: dict[str, Any] = {} if self._context is None else {'ssl_handshake_timeout': HANDSHAKE_TIMEOUT}
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: visitor, connection, ssl=self._context, **limits)

    def _check_greeting(self, connection: socket.socket, visitor: web.RequestHandler,
                        greeting: asyncio.Task[None]) -> None:
        """Forget the connection if it is not made. Those who fail to agree on TLS have only themselves to blame."""
        self._greetings.discard(greeting)
        if greeting.cancelled() or greeting.exception() is not None:
            self._hall.dismiss(visitor)
            connection.close()
        if not greeting.cancelled() and greeting.exception() is not None:
            logger.debug("A connection to the webhook server has failed: %r", greeting.exception())

    async def _attend(self, request: web.BaseRequest) -> web.Response:
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        with self._hall.busy(request.protocol):
            response = await self._answer(request)
        if request.protocol.ssl_context is not self._context:
            response.force_close()  # let the client see the new certificate
        return response


class _Hall(web.Server):
    """All connections: how many there are, and which of them are idle since when."""

    def __init__(self, answer: Answer, *, max_size: int) -> None:
        super().__init__(answer, request_factory=self._build_request)
        self._max_size = max_size
        self._present: set[web.RequestHandler] = set()
        self._tasks: set[asyncio.Task[Any]] = set()  # of the connections, also for some time after they are lost
        self._deadlines: dict[web.RequestHandler, asyncio.TimerHandle] = {}  # of the idle ones, in their order
        self._changed = bells.Bell()  # rings when some connection has left or become idle

    def admit(self) -> web.RequestHandler:
        """Make the protocol of a new connection; it takes its room until it is lost or dismissed."""
        visitor = _Visitor(self, self._tasks)
        self._present.add(visitor)
        return visitor

    def dismiss(self, visitor: web.RequestHandler) -> None:
        """Forget a connection that was not made, or is lost."""
        self._present.discard(visitor)
        self._disarm(visitor)
        self._changed.ring()

    async def wait_for_room(self) -> None:
        """Wait until one more connection is possible; if it is not, cut the one that is idle for the longest time."""
        while len(self._present) >= CONNECTIONS_LIMIT:
            oldest = next(iter(self._deadlines), None)
            if oldest is not None:
                self._cut(oldest)
            await self._changed.wait()

    @contextlib.contextmanager
    def busy(self, visitor: web.RequestHandler) -> Iterator[None]:
        """Do not count the time: the handlers are as slow as they are."""
        self._disarm(visitor)
        try:
            yield
        finally:
            self._arm(visitor, IDLE_TIMEOUT)
            self._changed.ring()

    async def leave(self) -> None:
        """Close all connections, and wait until nothing is left of them, as long as they are not blocked."""
        await self.shutdown(LINGERING_TIMEOUT)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSING_TIMEOUT)

    def cut_all(self) -> None:
        for visitor in list(self._present):
            self._cut(visitor)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._arm(handler, HEADERS_TIMEOUT)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self.dismiss(handler)

    def _arm(self, visitor: web.RequestHandler, timeout: float) -> None:
        if visitor in self._present:
            self._deadlines[visitor] = asyncio.get_running_loop().call_later(timeout, self._cut, visitor)

    def _disarm(self, visitor: web.RequestHandler) -> None:
        deadline = self._deadlines.pop(visitor, None)
        if deadline is not None:
            deadline.cancel()

    def _cut(self, visitor: web.RequestHandler) -> None:
        self._disarm(visitor)
        if visitor.transport is not None:
            visitor.transport.abort()

    def _build_request(self, message: Any, payload: Any, protocol: web.RequestHandler, writer: Any,
                       task: 'asyncio.Task[None]') -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, asyncio.get_running_loop(),
                               client_max_size=self._max_size)


class _Visitor(web.RequestHandler):
    """One connection, as the HTTP library serves it."""

    def __init__(self, hall: _Hall, tasks: set[asyncio.Task[Any]]) -> None:
        super().__init__(hall, loop=asyncio.get_running_loop(), logger=logger, access_log=None,  # type: ignore[arg-type]
                         auto_decompress=False, lingering_time=LINGERING_TIMEOUT, keepalive_timeout=IDLE_TIMEOUT * 2)
        self._tasks = tasks

    async def start(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await super().start()

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Do not let the clients fill the logs with what they send: only bad HTTP gets there, as all else is caught."""
        self.logger.debug(*args, **kwargs)
