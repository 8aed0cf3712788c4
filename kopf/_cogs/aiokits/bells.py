"""
Bells: wake up all waiting tasks, with no state to remember.

Unlike events, bells need no reset; unlike conditions, they need no lock.
"""

import asyncio


class Bell:
    """
    A bell that wakes up all tasks that currently wait for it; the tasks check themselves what has
    changed.

    Belongs to the event loop of its waiters. A task that begins to wait after a ring waits for the
    next one.
    """

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        """Wait for the next ring, without a limit. Cancelling one wait does not affect others."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def ring(self) -> None:
        """Wake up the waiting tasks in the next cycle of the loop."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
