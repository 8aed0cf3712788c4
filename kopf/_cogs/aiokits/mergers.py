"""
Mergers: the items of several generators in the order of their arrival.
"""

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar('T')


@dataclasses.dataclass(eq=False, slots=True)
class _Arrival(Generic[T]):
    """An item that waits to be taken, or no item at the end of its source."""

    source: 'asyncio.Task[None]'
    items: list[T]
    taken: asyncio.Event


class Merger(Generic[T]):
    """
    Several generators, each in its own task. Used by one task as a context manager, which closes
    all generators in the end.

    A generator continues when its previous item is processed, i.e. when the next one is requested;
    or it can run a few items ahead, if there are many of them and a task switch for each one is too
    expensive.
    """

    def __init__(self) -> None:
        self._arrivals: asyncio.Queue[_Arrival[T]] = asyncio.Queue()
        self._sources: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> 'Merger[T]':
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.drop(*self._sources)

    def add(self, source: AsyncGenerator[T], *, name: str, ahead: int = 0) -> 'asyncio.Task[None]':
        """Start one more generator."""
        task = asyncio.create_task(self._pump(source, ahead), name=name)
        self._sources.add(task)
        return task

    async def drop(self, *sources: 'asyncio.Task[None]') -> None:
        """Close some generators and drop their pending items. Their errors are ignored."""
        self._sources.difference_update(sources)
        for source in sources:
            source.cancel()
        if sources:
            await asyncio.wait(sources)

    async def iterate(self) -> AsyncGenerator[T]:
        """Iterate over the items of all generators until all of them end; raise their errors."""
        while self._sources:
            arrival = await self._arrivals.get()
            if arrival.source not in self._sources:
                continue
            for item in arrival.items:
                yield item
            arrival.taken.set()
            if not arrival.items:
                self._sources.discard(arrival.source)
                await arrival.source

    async def _pump(self, source: AsyncGenerator[T], ahead: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        untaken: collections.deque[_Arrival[T]] = collections.deque()

        try:
            async with contextlib.aclosing(source) as items:
                async for item in items:
                    untaken.append(_Arrival(task, [item], asyncio.Event()))
                    self._arrivals.put_nowait(untaken[-1])
                    if len(untaken) > ahead:
                        await untaken.popleft().taken.wait()
        finally:
            self._arrivals.put_nowait(_Arrival(task, [], asyncio.Event()))
