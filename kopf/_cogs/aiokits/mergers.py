"""
Mergers: the items of several generators, as they come.
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
    """An item that waits to be taken; none for the end of its source."""

    source: 'asyncio.Task[None]'
    items: list[T]
    taken: asyncio.Event


class Merger(Generic[T]):
    """
    Several generators, each in a task of its own. Used by one task, as a context: all of them are closed in the end.

    A generator is continued when its previous item is done with, i.e. when the next one is asked for; or it can be
    some items ahead, if there are many of them, and each one is not worth the switching of tasks.
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
        """Begin with one more generator."""
        task = asyncio.create_task(self._pump(source, ahead), name=name)
        self._sources.add(task)
        return task

    async def drop(self, *sources: 'asyncio.Task[None]') -> None:
        """Close some generators, with the items that are not taken yet. Their errors do not matter any more."""
        self._sources.difference_update(sources)
        for source in sources:
            source.cancel()
        if sources:
            await asyncio.wait(sources)

    async def iterate(self) -> AsyncGenerator[T]:
        """Iterate over the items of all generators until all of them end. Raises whatever any of them raises."""
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
