"""
Loops: event loops with virtual time, for tests.

Nobody sleeps there: when all that is left is to wait for a moment of the future, that moment comes at once.
While any function runs in a thread, the time goes as usual, as it is not known what is to be waited for.
The same is when nothing is planned at all, and only the network can bring news.
"""

import asyncio
import concurrent.futures
import selectors
import time
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from kopf._cogs.aiokits import clocks

PATIENCE = 0.001
"""Real seconds for the network to bring what was sent by this very process, before the time jumps."""

T = TypeVar('T')
Ts = TypeVarTuple('Ts')


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time. It starts from the real one, and stands still unless there is a wait."""

    def __init__(self) -> None:
        self._virtual = VirtualTimeSelector()
        super().__init__(self._virtual)
        clocks.detach(self)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(
        self, executor: concurrent.futures.Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> 'asyncio.Future[T]':
        future = super().run_in_executor(executor, func, *args)
        self._virtual.threads += 1
        future.add_done_callback(self._forget_thread)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._virtual.threads += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._virtual.threads -= 1

    def _forget_thread(self, future: 'asyncio.Future[Any]') -> None:
        self._virtual.threads -= 1


class VirtualTimeSelector(selectors.DefaultSelector):
    """Waits for the network, or jumps to the moment until which it is asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = time.monotonic()
        self.threads = 0  # how many functions run in threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if timeout is None or self.threads:
            since = time.monotonic()
            events = super().select(timeout)
            self.now += time.monotonic() - since
            return events
        events = super().select(PATIENCE)
        if not events:
            self.now += timeout
        return events
