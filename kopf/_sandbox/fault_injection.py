"""
Fault injection: the faults of a sandbox as its users handle them, from its own event loop or from other threads.
"""

import asyncio
import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar, Unpack, overload

from kopf._sandbox import faults, threads

T = TypeVar('T')


class Restartable(Protocol):
    """Whatever serves, and can be restarted."""

    async def restart(self, downtime: float, *, compact: bool) -> None: ...


class AsyncFaults:
    """The faults of a sandbox, from the event loop that it lives in. Iterates over those injected now."""

    def __init__(self, injected: faults.Faults, host: Restartable) -> None:
        self._injected, self._host = injected, host

    def __iter__(self) -> Iterator[faults.Fault]:
        return iter(self._injected)

    def inject(self, **trouble: Unpack[faults.Trouble]) -> faults.Fault:
        """
        Make some requests go wrong until the fault is lifted, by itself or as a context manager, or has no times left.

        The requests are chosen by ``verb``, ``resource``, ``path`` and ``user_agent`` (the last two can be globs).
        They are refused with ``code`` (also ``reason``, ``message``, ``retry_after``), delayed by ``latency`` seconds,
        disconnected with ``cut``, never answered with ``stall``; at most ``times`` of them, or all.
        """
        return self._injected.inject(**trouble)

    def lift(self) -> None:
        """End all faults: what was stalled goes on."""
        self._injected.lift()

    def cut_streams(self, **scope: Unpack[faults.Where]) -> int:
        """Disconnect those who watch, all or some, once; return how many there were."""
        return self._injected.cut_streams(faults.build_scope(scope))

    def end_streams(
        self, code: int = 410, *, reason: str = '', message: str = '', **scope: Unpack[faults.Where]
    ) -> int:
        """End the watch-streams, all or some, with an ERROR event, once; return how many there were."""
        return self._injected.end_streams(
            faults.build_error(code, reason, message), faults.build_scope(scope)
        )

    async def restart(self, downtime: float = 0.0, *, compact: bool = False) -> None:
        """
        Close the port and all connections, and listen again on the same port after ``downtime`` seconds.

        The objects stay; with ``compact``, the history is forgotten, so that the watches cannot be continued.
        Raises `OSError` if the port is taken by somebody else meanwhile; the sandbox can be restarted again then.
        """
        await self._host.restart(downtime, compact=compact)


class SyncFault:
    """One injected fault; lift it by `lift` or by leaving its context."""

    def __init__(self, fault: faults.Fault, thread: threads.LoopThread) -> None:
        self._fault, self._thread = fault, thread

    @property
    def hits(self) -> int:
        """How many requests were affected."""
        return self._fault.hits

    def wait_until_hit(self, timeout: float = 10.0) -> None:
        """Wait until some request is affected. Raises `TimeoutError` if there is none for so many seconds."""
        self._thread.call(asyncio.wait_for(self._fault.wait_until_hit(), timeout))

    def lift(self) -> None:
        """End the fault: what was stalled goes on."""
        self._thread.call(_call(self._fault.lift))

    def __enter__(self) -> 'SyncFault':
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()


class SyncFaults:
    """The faults of a sandbox, from any thread but the one that it lives in."""

    def __init__(self, inner: AsyncFaults, thread: threads.LoopThread) -> None:
        self._inner, self._thread = inner, thread

    def inject(self, **trouble: Unpack[faults.Trouble]) -> SyncFault:
        """Make some requests go wrong: see `AsyncFaults.inject`."""
        return SyncFault(
            self._thread.call(_call(lambda: self._inner.inject(**trouble))), self._thread
        )

    def lift(self) -> None:
        """End all faults: what was stalled goes on."""
        self._thread.call(_call(self._inner.lift))

    def cut_streams(self, **scope: Unpack[faults.Where]) -> int:
        """Disconnect those who watch, all or some, once; return how many there were."""
        return self._thread.call(_call(lambda: self._inner.cut_streams(**scope)))

    def end_streams(
        self, code: int = 410, *, reason: str = '', message: str = '', **scope: Unpack[faults.Where]
    ) -> int:
        """End the watch-streams, all or some, with an ERROR event, once; return how many there were."""
        return self._thread.call(
            _call(lambda: self._inner.end_streams(code, reason=reason, message=message, **scope))
        )

    def restart(self, downtime: float = 0.0, *, compact: bool = False) -> None:
        """Go away for a while, and come back: see `AsyncFaults.restart`."""
        self._thread.call(self._inner.restart(downtime, compact=compact))


class Requests(Sequence[faults.Asked]):
    """What was asked of the sandbox by its clients, the latest last; can be used from any thread."""

    def __init__(
        self, asked: collections.deque[faults.Asked], thread: threads.LoopThread | None = None
    ) -> None:
        self._asked, self._thread = asked, thread

    def from_thread(self, thread: threads.LoopThread) -> 'Requests':
        """The same, for other threads than the one of the sandbox."""
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
        """Select some of the requests, in the same terms as for the faults."""
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
