"""
Listeners: the connections to a server, accepted, limited in number and time, and finally closed.

The clients are not trusted: any machine that reaches the port can connect. The content of requests
is unknown here. The certificate can be replaced at any moment: new connections get the new one,
existing ones continue.
"""

import asyncio
import contextlib
import dataclasses
import errno
import functools
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import aiohttp
from aiohttp import web

from kopf._cogs.aiokits import bells, occupancy

BACKLOG = 4096
"""
How many connections the system keeps until they are accepted; the system may have a lower limit of
its own. Above that, the system makes the clients retry in a second or later, including the
legitimate clients in a crowd.
"""

BATCH = 200
"""
How many connections are accepted in a row while everything else waits. If there are too many, most
of them are closed before any work is done for them, so that the rest is served sooner.
"""

RECEIVING_BUFFER = 32 * 1024
"""
Bytes that the system buffers for one connection until they are read; it can take twice as many. All
of them are parsed in one turn of the event loop, which is long if they are thousands of one-byte
chunks.
"""

BUSY_DELAY = 1.0
"""Seconds to wait if the system has no resources for new connections."""

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Answer = Callable[[web.BaseRequest], Awaitable[web.Response]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits for the clients. All times are in seconds."""

    connections: int
    """How many clients can be connected at once; fewer if the process can open fewer files."""

    handshake_timeout: float = 10.0
    """Time for the TLS handshake, from the beginning of the connection."""

    headers_timeout: float
    """Time for a client to send the headers of its first request."""

    idle_timeout: float
    """Time for a client to receive the response and to send the headers of its next request."""

    lingering_timeout: float
    """Time to read the rest of a request that is already answered."""

    closing_timeout: float
    """Time to answer the current requests when the server is closed."""


class Listener:
    """
    A server of connections on the sockets, from `start` to `close`. Belongs to one event loop.

    The sockets are closed with it.
    """

    def __init__(
        self, sockets: list[socket.socket], answer: Answer, limits: Limits, logger: logging.Logger
    ) -> None:
        self._sockets = sockets
        self._answer = answer
        self._limits = limits
        self._logger = logger
        self._connections = _Connections(self._attend, limits, logger)
        self._context: ssl.SSLContext | None = None
        self._acceptors: list[asyncio.Task[None]] = []
        self._requests: set[asyncio.Task[Any]] = set()

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this TLS context for new connections; ``None`` makes them plain."""
        self._context = context

    def start(self) -> None:
        """Begin to accept connections. Raises `OSError` if that is not possible."""
        for sock in self._sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVING_BUFFER)
            sock.listen(BACKLOG)

        self._acceptors = [
            asyncio.create_task(self._accept(sock), name='acceptor of connections')
            for sock in self._sockets
        ]

    async def wait(self, timeout: float | None = None) -> None:
        """Serve until the timeout or an error, which is raised. One task at a time may wait."""
        done, _ = await asyncio.wait(
            self._acceptors, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()

    async def close(self) -> None:
        """
        Stop accepting, let the current requests finish within the closing timeout, and cut all
        connections.

        If cancelled, the connections are cut immediately. The ports are freed in any case. Can be
        repeated.
        """
        for task in self._acceptors:
            task.cancel()
        try:
            if self._acceptors:
                await asyncio.wait(self._acceptors)
            await self._connections.stop_greetings()
            self._connections.pre_shutdown()
            if self._requests:
                await asyncio.wait(self._requests, timeout=self._limits.closing_timeout)
            for request in self._requests:
                request.cancel()
            await self._connections.leave()
        finally:
            self._connections.cut_all()
            for sock in self._sockets:
                sock.close()

    async def _accept(self, sock: socket.socket) -> None:
        """Accept connections forever, letting the loop run between the batches."""
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                connection, _ = await loop.sock_accept(sock)
            except ConnectionError:
                continue  # the client disconnected before it was accepted
            except OSError as error:
                await self._relieve(error)
                continue
            try:
                await self._connections.wait_for_room()
            except asyncio.CancelledError:
                connection.close()
                raise
            self._connections.greet(connection, self._context)
            accepted += 1
            if accepted % BATCH == 0:
                await asyncio.sleep(0)

    async def _relieve(self, error: OSError) -> None:
        """Free resources if the system lacks them, or wait if there is nothing to free."""
        if error.errno in SHORTAGES and self._connections.cut_one():
            await asyncio.sleep(0)
            return
        self._logger.warning('Cannot accept a connection: %s', error)
        await asyncio.sleep(BUSY_DELAY)

    async def _attend(self, request: web.BaseRequest) -> web.Response:
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        assert isinstance(request.protocol, _Handler)
        with self._connections.attending(request.protocol.connection, request.content):
            response = await self._answer(request)
        if request.protocol.ssl_context is not self._context:
            response.force_close()  # so that the client sees the new certificate
        return response


class _Connection:
    """One connection, from its very beginning. Only `_Connections` changes it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.greeting: asyncio.Task[None] | None = None  # until the connection is made
        self.transport: asyncio.Transport | None = None  # after the connection is made
        self.deadline: asyncio.TimerHandle | None = None
        # The content of the current request, until it is answered.
        self.content: aiohttp.StreamReader | None = None


class _Connections(web.Server):
    """All connections: their current stages and deadlines."""

    def __init__(self, answer: Answer, limits: Limits, logger: logging.Logger) -> None:
        super().__init__(answer)
        self._limits = limits
        self._logger = logger
        self._occupancy: occupancy.Occupancy[_Connection] = occupancy.Occupancy(
            occupancy.choose_limit(limits.connections, _read_files_limit())
        )
        # The tasks of connections, which may outlive their connections for some time.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = bells.Bell()  # rings when a connection leaves or becomes idle

    async def wait_for_room(self) -> None:
        """Wait for room for one more connection; cut the connection chosen to make room, if any."""
        while self._occupancy.is_full:
            if not self.cut_one():
                await self._changed.wait()

    def cut_one(self) -> bool:
        """Cut the connection chosen to make room for others; return whether there was any."""
        leaver = self._occupancy.choose_leaver()
        if leaver is not None:
            self._cut(leaver)
        return leaver is not None

    def greet(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Begin to serve the connection; it occupies a place until it is lost or cut."""
        connection = _Connection(sock)
        self._occupancy.enter(connection)
        self._arm(connection, self._limits.handshake_timeout)
        connection.greeting = asyncio.create_task(
            self._greet(connection, context), name='beginning of a connection'
        )
        connection.greeting.add_done_callback(
            functools.partial(self._conclude_greeting, connection)
        )

    async def _greet(self, connection: _Connection, context: ssl.SSLContext | None) -> None:
        options: dict[str, Any] = {}
        if context is not None:
            # TLS takes hundreds of kilobytes: start it only for clients that send something.
            await _wait_for_bytes(connection.sock)
            options = {'ssl': context, 'ssl_handshake_timeout': self._limits.handshake_timeout}

        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: _Handler(self, connection, self._tasks, self._limits, self._logger),
            connection.sock,
            **options,
        )

    def _conclude_greeting(self, connection: _Connection, greeting: asyncio.Task[None]) -> None:
        """Forget the connection if it was not made. Failed handshakes are the fault of clients."""
        connection.greeting = None
        if greeting.cancelled() or greeting.exception() is not None:
            self._forget(connection)
            connection.sock.close()
        if not greeting.cancelled() and greeting.exception() is not None:
            self._logger.debug('A connection has failed: %r', greeting.exception())

    @contextlib.contextmanager
    def attending(self, connection: _Connection, content: aiohttp.StreamReader) -> Iterator[None]:
        """
        Track a request whose headers are received; it becomes busy when its content is received,
        too.

        The time is not limited here: responses take as long as they need, and the readers of the
        content limit its time.
        """
        self._disarm(connection)
        connection.content = content
        if content.is_eof():
            self._occupancy.move(connection, occupancy.Stage.BUSY)
        else:
            self._occupancy.move(connection, occupancy.Stage.OPENING)
            content.on_eof(functools.partial(self._receive, connection, content))

        try:
            yield
        finally:
            connection.content = None
            self._occupancy.move(connection, occupancy.Stage.IDLE)
            self._arm(connection, self._limits.idle_timeout)
            self._changed.ring()

    def _receive(self, connection: _Connection, content: aiohttp.StreamReader) -> None:
        if connection.content is content:
            self._occupancy.move(connection, occupancy.Stage.BUSY)

    async def stop_greetings(self) -> None:
        """Abandon the connections that are not made yet."""
        greetings = [
            connection.greeting for connection in self._occupancy if connection.greeting is not None
        ]
        for greeting in greetings:
            greeting.cancel()
        if greetings:
            await asyncio.wait(greetings)

    async def leave(self) -> None:
        """Close all connections, and wait until their tasks end, unless these are blocked."""
        await self.shutdown(self._limits.lingering_timeout)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._limits.closing_timeout)

    def cut_all(self) -> None:
        for connection in self._occupancy:
            self._cut(connection)

    def welcome(self, connection: _Connection, transport: asyncio.Transport) -> None:
        """Let the newly made connection send requests."""
        connection.transport = transport
        if connection in self._occupancy:
            self._arm(connection, self._limits.headers_timeout)
        else:
            transport.abort()  # the connection was cut at the very moment when it was made

    def dismiss(self, connection: _Connection) -> None:
        """Forget a lost connection."""
        connection.transport = None
        self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        self._occupancy.leave(connection)
        self._disarm(connection)
        self._changed.ring()

    def _arm(self, connection: _Connection, timeout: float) -> None:
        self._disarm(connection)
        if connection in self._occupancy:
            connection.deadline = asyncio.get_running_loop().call_later(
                timeout, self._cut, connection
            )

    def _disarm(self, connection: _Connection) -> None:
        if connection.deadline is not None:
            connection.deadline.cancel()
            connection.deadline = None

    def _cut(self, connection: _Connection) -> None:
        self._forget(connection)
        if connection.greeting is not None:
            connection.greeting.cancel()
        if connection.transport is not None:
            connection.transport.abort()


class _Handler(web.RequestHandler):
    """One connection, as served by the HTTP library."""

    __slots__ = ('_connections', '_tasks', 'connection')

    def __init__(
        self,
        connections: _Connections,
        connection: _Connection,
        tasks: set[asyncio.Task[Any]],
        limits: Limits,
        logger: logging.Logger,
    ) -> None:
        super().__init__(
            connections,
            loop=asyncio.get_running_loop(),
            logger=logger,
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
            lingering_time=limits.lingering_timeout,
            keepalive_timeout=limits.idle_timeout * 2,
        )
        self._connections = connections
        self._tasks = tasks
        self.connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.welcome(self.connection, cast(asyncio.Transport, transport))

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._connections.dismiss(self.connection)

    async def start(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await super().start()

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """
        Log only for debugging, so that clients cannot fill the logs: the only errors here are those
        of malformed HTTP, as all others are caught.
        """
        self.logger.debug(*args, **kwargs)


def _read_files_limit() -> int | None:
    try:
        import resource
    except ImportError:  # not all systems have such a limit
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


async def _wait_for_bytes(sock: socket.socket) -> None:
    """
    Wait until the client sends something. Raises `ConnectionError` if it disconnects.

    Cancelled waits leave nothing behind.
    """
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(sock, _settle, readable)

    try:
        await readable
    finally:
        loop.remove_reader(sock)

    if not sock.recv(1, socket.MSG_PEEK):
        raise ConnectionAbortedError('The client has closed the connection.')


def _settle(future: 'asyncio.Future[None]') -> None:
    if not future.done():
        future.set_result(None)
