"""
Pools: threads for synchronous functions, limited in number.
"""

import concurrent.futures
from collections.abc import Callable
from typing import Any


class OwnPool(concurrent.futures.ThreadPoolExecutor):
    """A pool that only the framework uses, so the framework can end it."""

    def __init__(self, max_workers: int | None = None) -> None:
        super().__init__(max_workers, thread_name_prefix='kopf-handlers')
        self._unfinished: set[concurrent.futures.Future[Any]] = set()

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> 'concurrent.futures.Future[Any]':
        future = super().submit(fn, *args, **kwargs)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return future

    @property
    def waiting(self) -> int:
        """How many functions wait for their threads."""
        return max(0, len(self._unfinished) - self._max_workers)

    def release(self) -> int:
        """Let the threads end when idle, without waiting; return how many are still busy."""
        self.shutdown(wait=False)
        return len([future for future in list(self._unfinished) if future.running()])
