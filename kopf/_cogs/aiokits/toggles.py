"""
Toggles: one state, on or off, that many have a say in.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator

from kopf._cogs.aiokits import bells


class Toggles:
    """
    Is on while anyone wants it to be on; each of those is known by a key. Belongs to one event loop.

    Those who listen are called on every change of the whole, at once, in the order of their subscription.
    """

    def __init__(self) -> None:
        self._keys: set[Hashable] = set()
        self._bell = bells.Bell()
        self._listeners: list[Callable[[bool], None]] = []
        self._limits: set[asyncio.Timeout] = set()

    @property
    def is_on(self) -> bool:
        return bool(self._keys)

    @property
    def keys(self) -> Collection[Hashable]:
        """Who wants it to be on."""
        return frozenset(self._keys)

    def listen(self, listener: Callable[[bool], None]) -> None:
        """Have the function called with the new state when it changes."""
        self._listeners.append(listener)

    def turn(self, key: Hashable, is_on: bool) -> None:
        """Say what is wanted; who has said nothing, wants it to be off."""
        before = self.is_on
        if is_on:
            self._keys.add(key)
        else:
            self._keys.discard(key)
        if self.is_on == before:
            return
        if self.is_on:
            self._interrupt()
        for listener in self._listeners:
            listener(self.is_on)
        self._bell.ring()

    async def wait_until(self, is_on: bool) -> None:
        """Wait until it is so; not at all if it is. Any number of tasks may wait; a short change can be missed."""
        while self.is_on != is_on:
            await self._bell.wait()

    @contextlib.contextmanager
    def interrupting(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Make the timeout, entered already, expire when it turns on, however shortly it is on."""
        self._limits.add(limit)
        try:
            yield
        finally:
            self._limits.discard(limit)

    def _interrupt(self) -> None:
        limits, self._limits = self._limits, set()
        for limit in limits:
            limit.reschedule(asyncio.get_running_loop().time())
