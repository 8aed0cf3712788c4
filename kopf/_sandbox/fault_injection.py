"""
Fault injection: the faults of a sandbox for its users, from its own event loop or from other
threads.
"""

import asyncio
import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, Unpack, overload

from kopf._sandbox import faults, threads

T = TypeVar('T')


class Restartable(Protocol):
    """A server that can be restarted."""

    async def restart(self, downtime: float, *, compact: bool) -> None: ...


class AsyncFaults:
    """The faults of a sandbox, for its own event loop. Iterates over the injected ones."""

    def __init__(self, injected: faults.Faults, host: Restartable) -> None:
        self._injected = injected
        self._host = host

    def __iter__(self) -> Iterator[faults.Fault]:
        return iter(self._injected)

    def inject(self, **trouble: Unpack[faults.Trouble]) -> faults.Fault:
        """
        Make some requests fail until the fault is lifted, explicitly or by leaving its context, or
        until it is used ``times`` times.

        The requests are selected by ``verb``, ``resource``, ``path`` and ``user_agent`` (the last
        two can be globs). They are refused with ``code`` (also ``reason``, ``message``,
        ``retry_after``), delayed by ``latency`` seconds, disconnected with ``cut``, never answered
        with ``stall``; at most ``times`` of them, or all.
        """
        return self._injected.inject(**trouble)

    def lift(self) -> None:
        """End all faults: stalled requests continue."""
        self._injected.lift()

    def cut_streams(self, **scope: Unpack[faults.Where]) -> int:
        """Disconnect the open watches, all or some, once; return the number of them."""
        return self._injected.cut_streams(faults.build_scope(scope))

    def end_streams(
        self, code: int = 410, *, reason: str = '', message: str = '', **scope: Unpack[faults.Where]
    ) -> int:
        """End the open watches, all or some, with an ERROR event, once; return their number."""
        return self._injected.end_streams(
            faults.build_error(code, reason, message), faults.build_scope(scope)
        )

    async def restart(self, downtime: float = 0.0, *, compact: bool = False) -> None:
        """
        Close the port and all connections, and listen again on the same port after ``downtime``
        seconds.

        The objects stay; with ``compact``, the history is forgotten, so that watches cannot be
        resumed. Raises `OSError` if another process takes the port in the meantime; then, the
        sandbox can be restarted again.
        """
        await self._host.restart(downtime, compact=compact)


class SyncFault:
    """One injected fault; lift it by `lift` or by leaving its context."""

    def __init__(self, fault: faults.Fault, thread: threads.LoopThread) -> None:
        self._fault = fault
        self._thread = thread

    @property
    def hits(self) -> int:
        """The number of affected requests."""
        return self._fault.hits

    def wait_until_hit(self, timeout: float = 10.0) -> None:
        """Wait until a request is affected. Raises `TimeoutError` after ``timeout`` seconds."""
        self._thread.call(asyncio.wait_for(self._fault.wait_until_hit(), timeout))

    def lift(self) -> None:
        """End the fault: stalled requests continue."""
        self._thread.call(_call(self._fault.lift))

    def __enter__(self) -> 'SyncFault':
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()


class SyncFaults:
    """The faults of a sandbox, for any thread except for its own."""

    def __init__(self, inner: AsyncFaults, thread: threads.LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    def inject(self, **trouble: Unpack[faults.Trouble]) -> SyncFault:
        """Make some requests fail: see `AsyncFaults.inject`."""
        return SyncFault(
            self._thread.call(_call(lambda: self._inner.inject(**trouble))), self._thread
        )

    def lift(self) -> None:
        """End all faults: stalled requests continue."""
        self._thread.call(_call(self._inner.lift))

    def cut_streams(self, **scope: Unpack[faults.Where]) -> int:
        """Disconnect the open watches, all or some, once; return the number of them."""
        return self._thread.call(_call(lambda: self._inner.cut_streams(**scope)))

    def end_streams(
        self, code: int = 410, *, reason: str = '', message: str = '', **scope: Unpack[faults.Where]
    ) -> int:
        """End the open watches, all or some, with an ERROR event, once; return their number."""
        return self._thread.call(
            _call(lambda: self._inner.end_streams(code, reason=reason, message=message, **scope))
        )

    def restart(self, downtime: float = 0.0, *, compact: bool = False) -> None:
        """Stop and start listening: see `AsyncFaults.restart`."""
        self._thread.call(self._inner.restart(downtime, compact=compact))


class Requests(Sequence[faults.Asked]):
    """The requests to the sandbox, the latest last; can be used from any thread."""

    def __init__(
        self, asked: collections.deque[faults.Asked], thread: threads.LoopThread | None = None
    ) -> None:
        self._asked = asked
        self._thread = thread

    def from_thread(self, thread: threads.LoopThread) -> 'Requests':
        """Return the same requests, for threads other than that of the sandbox."""
        return Requests(self._asked, thread)

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[faults.Asked]:
        return iter(self._snapshot())

    @overload
    def __getitem__(self, index: int) -> faults.Asked: ...

    @overload
    def __getitem__(self, index: slice) -> list[faults.Asked]: ...

    def __getitem__(self, index: int | slice) -> faults.Asked | list[faults.Asked]:
        return self._snapshot()[index]

    def __repr__(self) -> str:
        return repr(self._snapshot())

    def select(self, **scope: Unpack[faults.Where]) -> list[faults.Asked]:
        """Return the matching requests, selected by the same keywords as for the faults."""
        wanted = faults.build_scope(scope)
        return [asked for asked in self._snapshot() if wanted.covers(asked)]

    def clear(self) -> None:
        """Forget all requests so far."""
        self._asked.clear()

    def _snapshot(self) -> list[faults.Asked]:
        is_foreign = self._thread is not None and self._thread.is_running
        return (
            self._thread.call(_call(lambda: list(self._asked)))
            if self._thread and is_foreign
            else list(self._asked)
        )


async def _call(fn: Callable[[], T]) -> T:
    return fn()
