"""
Contexts: servers and tunnels that release all their resources, however they are left.

A server is a callable that returns an iterator, and callers do not have to close the iterator. If
the server is entered as a context manager, all its resources are released on exit.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TypeVar

from kopf._cogs.structs import reviews

SelfT = TypeVar('SelfT', bound='WebhookContextManager')
Configs = AsyncGenerator[reviews.WebhookClientConfig]


class WebhookContextManager:
    """The base of the built-in servers and tunnels; their iterators end with the context."""

    async def __aenter__(self: SelfT) -> SelfT:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for run in list(self._runs):
            await run.close()

    @property
    def _runs(self) -> 'set[Run]':
        # Works even if a subclass does not call the constructor.
        runs: set[Run] = self.__dict__.setdefault('_kopf_runs', set())
        return runs

    def _track(self, serve: 'Callable[[Run], Configs]') -> Configs:
        """Start the iterator, and remember it while it runs."""
        run = Run(self._runs.discard)
        run.configs = _iterate(serve, run)
        self._runs.add(run)
        return run.configs


async def _iterate(serve: 'Callable[[Run], Configs]', run: 'Run') -> Configs:
    try:
        async with contextlib.aclosing(serve(run)) as configs:
            async for config in configs:
                yield config
    finally:
        run.end()


class Run:
    """One use of a server."""

    configs: Configs

    def __init__(self, forget: 'Callable[[Run], None]') -> None:
        self._forget = forget
        self._stop = asyncio.Event()
        self._ended = asyncio.Event()

    async def close(self) -> None:
        """
        End the iterator, even if another task awaits its next item.

        Waits until all resources are released.
        """
        self._stop.set()
        try:
            await self.configs.aclose()
        except RuntimeError:  # it is running now, and stops by itself
            await self._ended.wait()

        self._forget(self)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the iterator must end, or until the timeout; return whether it must end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._stop.wait()
        return self._stop.is_set()

    def end(self) -> None:
        """Report that all resources are released."""
        self._ended.set()
        self._forget(self)
