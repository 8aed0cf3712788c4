"""
Toggles: one shared state, on or off, that many parties control.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator

from kopf._cogs.aiokits import bells


class Toggles:
    """
    A state that is on while any key is turned on. Belongs to one event loop.

    Listeners are called on every change of the state, synchronously, in the order of subscription.
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
        """The keys that are turned on."""
        return frozenset(self._keys)

    def listen(self, listener: Callable[[bool], None]) -> None:
        """Subscribe a function to be called with the new state when it changes."""
        self._listeners.append(listener)

    def turn(self, key: Hashable, is_on: bool) -> None:
        """Turn one key on or off. Keys never set count as off."""
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
        """
        Wait until the state is on or off, if it is not yet. Any number of tasks may wait; a short
        change can be missed.
        """
        while self.is_on != is_on:
            await self._bell.wait()

    @contextlib.contextmanager
    def interrupting(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Make the timeout, already entered, expire when the state turns on, even briefly."""
        self._limits.add(limit)
        try:
            yield
        finally:
            self._limits.discard(limit)

    def _interrupt(self) -> None:
        limits = self._limits
        self._limits = set()
        for limit in limits:
            limit.reschedule(asyncio.get_running_loop().time())
