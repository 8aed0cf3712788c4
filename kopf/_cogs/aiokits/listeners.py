"""
Listeners: the connections to a server, accepted, limited in number and in time, and closed in the end.

The clients are not trusted: any machine that reaches the port can connect. What they ask for is not known here.
The certificate can be replaced at any moment: the new connections get the new one, the others are not disturbed.
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
How many connections the system keeps until they are accepted; it can have a lower limit of its own. When they are more,
the system makes the clients try again in a second or later, also the good ones in a crowd of others.
"""

BATCH = 200
"""
How many connections are accepted in a row, while everything else waits. When they are too many, most of them are cut
before anything is done for them, so that the others are served sooner.
"""

RECEIVING_BUFFER = 32 * 1024
"""
Bytes that the system keeps for one connection until they are read; it can take twice as many. All of them are parsed in
one turn of the event loop, which is long if they are thousands of chunks of one byte each.
"""

BUSY_DELAY = 1.0
"""Seconds to wait if the system has no resources for new connections."""

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

Answer = Callable[[web.BaseRequest], Awaitable[web.Response]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What the clients are given. All times are in seconds."""

    connections: int
    """How many of them can be connected at once; fewer if the process cannot open so many files."""

    handshake_timeout: float = 10.0
    """For a client to agree on TLS, from the beginning of the connection."""

    headers_timeout: float
    """For a client to send the headers of its first request."""

    idle_timeout: float
    """Between an answer and the headers of the next request, also for the answer itself to be received."""

    lingering_timeout: float
    """For the rest of a request to be read when it is answered already."""

    closing_timeout: float
    """For the current requests to be answered when the server is closed."""


class Listener:
    """
    Serves connections on the sockets, from `start` to `close`. Belongs to one event loop.

    The sockets are closed with it.
    """

    def __init__(
        self, sockets: list[socket.socket], answer: Answer, limits: Limits, logger: logging.Logger
    ) -> None:
        self._sockets, self._answer, self._limits, self._logger = sockets, answer, limits, logger
        self._connections = _Connections(self._attend, limits, logger)
        self._context: ssl.SSLContext | None = None
        self._acceptors: list[asyncio.Task[None]] = []
        self._requests: set[asyncio.Task[Any]] = set()

    def use(self, context: ssl.SSLContext | None) -> None:
        """Use this TLS for the new connections; with none, they are plain."""
        self._context = context

    def start(self) -> None:
        """Begin to accept connections. Raises `OSError` if it is not possible."""
        for sock in self._sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVING_BUFFER)
            sock.listen(BACKLOG)
        self._acceptors = [
            asyncio.create_task(self._accept(sock), name='acceptor of connections')
            for sock in self._sockets
        ]

    async def wait(self, timeout: float | None = None) -> None:
        """Serve for so many seconds, or until something goes wrong, which is raised. One task at a time may wait."""
        done, _ = await asyncio.wait(
            self._acceptors, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            task.result()

    async def close(self) -> None:
        """
        Accept nothing more, let the current requests finish within the closing timeout, and cut all connections.

        If cancelled, the connections are cut at once. The ports are free in any case. Can be repeated.
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
        """Accept connections for ever. The loop is let go on now and then, however many there are."""
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                connection, _ = await loop.sock_accept(sock)
            except ConnectionError:
                continue  # it has gone before it came
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
        """Do what helps against the error: free resources if they are lacking, and wait if there is nothing to free."""
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
            response.force_close()  # let the client see the new certificate
        return response


class _Connection:
    """One connection, from its very beginning. It is changed by the set of all connections only."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.greeting: asyncio.Task[None] | None = None  # until the connection is made
        self.transport: asyncio.Transport | None = None  # since the connection is made
        self.deadline: asyncio.TimerHandle | None = None
        self.content: aiohttp.StreamReader | None = (
            None  # of the current request, until it is answered
        )


class _Connections(web.Server):
    """All connections: what each of them does, and until when."""

    def __init__(self, answer: Answer, limits: Limits, logger: logging.Logger) -> None:
        super().__init__(answer)
        self._limits, self._logger = limits, logger
        self._occupancy: occupancy.Occupancy[_Connection] = occupancy.Occupancy(
            occupancy.choose_limit(limits.connections, _read_files_limit())
        )
        self._tasks: set[asyncio.Task[Any]] = (
            set()
        )  # of the connections, also for some time after they are lost
        self._changed = bells.Bell()  # rings when some connection has left or become idle

    async def wait_for_room(self) -> None:
        """Wait until one more connection is possible; if it is not, cut the one that should make room."""
        while self._occupancy.is_full:
            if not self.cut_one():
                await self._changed.wait()

    def cut_one(self) -> bool:
        """Cut the connection that should make room for others; return whether there was any."""
        leaver = self._occupancy.choose_leaver()
        if leaver is not None:
            self._cut(leaver)
        return leaver is not None

    def greet(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Begin to serve the connection; it takes its room until it is lost or cut."""
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
            await _wait_for_bytes(connection.sock)  # TLS is costly: it takes hundreds of kilobytes
            options = {'ssl': context, 'ssl_handshake_timeout': self._limits.handshake_timeout}
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: _Handler(self, connection, self._tasks, self._limits, self._logger),
            connection.sock,
            **options,
        )

    def _conclude_greeting(self, connection: _Connection, greeting: asyncio.Task[None]) -> None:
        """Forget the connection if it is not made. Failed handshakes are the fault of the clients, and are not news."""
        connection.greeting = None
        if greeting.cancelled() or greeting.exception() is not None:
            self._forget(connection)
            connection.sock.close()
        if not greeting.cancelled() and greeting.exception() is not None:
            self._logger.debug('A connection has failed: %r', greeting.exception())

    @contextlib.contextmanager
    def attending(self, connection: _Connection, content: aiohttp.StreamReader) -> Iterator[None]:
        """
        Serve a request whose headers have come: it is busy since its content has come, too.

        The time is not counted: the answers are as slow as they are; the readers of the content limit its time.
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
        """Give up the connections that are not made yet."""
        greetings = [
            connection.greeting for connection in self._occupancy if connection.greeting is not None
        ]
        for greeting in greetings:
            greeting.cancel()
        if greetings:
            await asyncio.wait(greetings)

    async def leave(self) -> None:
        """Close all connections, and wait until nothing is left of them, as long as they are not blocked."""
        await self.shutdown(self._limits.lingering_timeout)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._limits.closing_timeout)

    def cut_all(self) -> None:
        for connection in self._occupancy:
            self._cut(connection)

    def welcome(self, connection: _Connection, transport: asyncio.Transport) -> None:
        """Let the connection make requests, now that it is made."""
        connection.transport = transport
        if connection in self._occupancy:
            self._arm(connection, self._limits.headers_timeout)
        else:
            transport.abort()  # it was cut in the very moment when it was made

    def dismiss(self, connection: _Connection) -> None:
        """Forget a connection that is lost."""
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
    """One connection, as the HTTP library serves it."""

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
        self._connections, self._tasks, self.connection = connections, tasks, connection

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
        """Do not let the clients fill the logs with what they send: only bad HTTP gets there, as all else is caught."""
        self.logger.debug(*args, **kwargs)


def _read_files_limit() -> int | None:
    try:
        import resource
    except ImportError:  # not everywhere is such a limit
        return None
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if files == resource.RLIM_INFINITY else files


async def _wait_for_bytes(sock: socket.socket) -> None:
    """Wait until something is sent. Raises `ConnectionError` if nothing ever is. Nothing is left of cancelled waits."""
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
