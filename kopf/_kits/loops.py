"""
Loops: event loops with virtual time, for tests.

Nothing sleeps in them: when all tasks only wait for some moment in the future, the time jumps
there. The time is real while anything outside of the loop is at work, since its duration is
unknown: functions in threads, child processes, requests to servers in other threads and processes.
Servers in the same loop, such as the sandbox, are not outside. The time is also real when no timers
are scheduled, so that only the network can wake up the loop.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import math
import selectors
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, TypeVarTuple

from kopf._cogs.aiokits import clocks

PATIENCE = 0.001
"""Real seconds for the network to deliver what this very process sent, before the time jumps."""

ANSWERING = 10.0
"""Real seconds for other servers to answer; connections silent for longer are considered idle."""

T = TypeVar('T')
Ts = TypeVarTuple('Ts')


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time: it starts at the real time, and advances only in waits."""

    def __init__(self) -> None:
        self._virtual = VirtualTimeSelector(self._has_busy_anyio_threads)
        super().__init__(self._virtual)
        clocks.detach(self)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(
        self, executor: concurrent.futures.Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> 'asyncio.Future[T]':
        future = super().run_in_executor(executor, func, *args)
        self._virtual.outside += 1
        future.add_done_callback(self._come_back)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._virtual.outside += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._virtual.outside -= 1

    async def subprocess_shell(
        self, protocol_factory: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        return await self._follow_process(
            super().subprocess_shell, protocol_factory, *args, **kwargs
        )

    async def subprocess_exec(
        self, protocol_factory: Callable[[], Any], *args: Any, **kwargs: Any
    ) -> Any:
        return await self._follow_process(
            super().subprocess_exec, protocol_factory, *args, **kwargs
        )

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        self._virtual.outside += 1
        try:
            await super().sock_connect(sock, address)
        finally:
            self._virtual.outside -= 1
        self._virtual.note_client(sock)

    def _make_socket_transport(self, sock: socket.socket, *args: Any, **kwargs: Any) -> Any:
        """Track the data sent by clients. Asyncio calls it for all connections, also of servers."""
        transport = super()._make_socket_transport(sock, *args, **kwargs)  # type: ignore[misc]
        self._virtual.note_connection(sock)
        for name in ('write', 'writelines'):
            send = functools.partial(self._send, sock.fileno(), getattr(transport, name))
            setattr(transport, name, send)
        return transport

    def _send(self, descriptor: int, send: Callable[[Any], None], content: Any) -> None:
        self._virtual.note_sending(descriptor)
        send(content)

    async def _follow_process(
        self,
        start: Callable[..., Awaitable[Any]],
        protocol_factory: Callable[[], Any],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Start a process, and keep the time real until it exits or turns out not to start."""
        is_counted = False

        def leave() -> None:
            nonlocal is_counted
            self._virtual.outside -= is_counted
            is_counted = False

        def make_protocol() -> Any:
            nonlocal is_counted
            protocol = protocol_factory()
            exited = protocol.process_exited

            def process_exited() -> None:
                leave()
                exited()

            protocol.process_exited = process_exited
            self._virtual.outside += 1
            is_counted = True

            return protocol

        try:
            return await start(make_protocol, *args, **kwargs)
        except BaseException:
            leave()
            raise

    def _has_busy_anyio_threads(self) -> bool:
        """Return whether a thread of AnyIO works for this loop: it does not use the executors."""
        return 'anyio' in sys.modules and any(
            getattr(thread, 'loop', None) is self and thread.queue.unfinished_tasks > 0
            for thread in threading.enumerate()
            if hasattr(thread, 'queue')
        )

    def _come_back(self, future: 'asyncio.Future[Any]') -> None:
        self._virtual.outside -= 1


class VirtualTimeSelector(selectors.DefaultSelector):
    """Waits for the network, or jumps to the end of the requested wait."""

    def __init__(self, has_busy_threads: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self.now = float(math.ceil(time.monotonic()))  # sums with whole seconds are exact
        self._has_busy_threads = has_busy_threads
        self.outside = 0  # running functions in threads, processes, connection attempts
        self._ends: dict[int, tuple[Any, Any]] = {}  # local and remote addresses by descriptor
        self._clients: set[int] = set()  # descriptors that may lead to other threads or processes
        self._connecting: set[int] = set()  # descriptors of clients that have no transports yet
        self._awaiting: dict[int, float] = {}  # since when the clients await answers

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._poll(0)
        if events or (timeout is not None and timeout <= 0):
            return events

        answering = self._measure_answering()
        is_outside = bool(self.outside) or self._has_busy_threads()
        if timeout is None or is_outside or answering:
            limit = timeout if is_outside or not answering else min(answering, timeout or answering)
            since = time.monotonic()
            events = self._poll(limit)
            self.now += time.monotonic() - since
            return events

        events = self._poll(PATIENCE)
        if not events:
            self.now += timeout
        return events

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._awaiting.pop(key.fd, None)
        return key

    def note_client(self, sock: socket.socket) -> None:
        """Remember that the next connection of this descriptor belongs to a client."""
        self._connecting.add(sock.fileno())

    def note_connection(self, sock: socket.socket) -> None:
        """Remember the addresses of both ends of a connection, of a client or of a server."""
        descriptor = sock.fileno()
        with contextlib.suppress(OSError):  # it can be lost already
            self._ends[descriptor] = (sock.getsockname(), sock.getpeername())
        is_client = descriptor in self._connecting
        self._connecting.discard(descriptor)
        (self._clients.add if is_client else self._clients.discard)(descriptor)

    def note_sending(self, descriptor: int) -> None:
        if descriptor in self._clients:
            self._awaiting[descriptor] = time.monotonic()

    def _poll(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(timeout)
        for key, mask in events:
            if mask & selectors.EVENT_READ:
                self._awaiting.pop(key.fd, None)
        return events

    def _measure_answering(self) -> float:
        """Return for how many seconds outside servers may still be answering; 0 if none is."""
        inside = (
            {(remote, local) for local, remote in self._ends.values()} if self._awaiting else set()
        )
        for descriptor in [fd for fd in self._awaiting if self._ends.get(fd) in inside]:
            self._clients.discard(descriptor)
            del self._awaiting[descriptor]

        since = max(self._awaiting.values(), default=0.0)
        return max(0.0, since + ANSWERING - time.monotonic()) if since else 0.0
