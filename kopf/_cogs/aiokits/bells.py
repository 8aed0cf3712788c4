"""
Bells: wake up everyone who waits, with nothing to remember.

Unlike events, bells have no state to be reset; unlike conditions, no lock to be held.
"""

import asyncio


class Bell:
    """
    Wakes up all tasks that wait for it at the moment; it is up to them to see what has changed.

    Belongs to the event loop of its waiters. Those who begin to wait after a ring wait for the next one.
    """

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        """Wait for the next ring, however long it takes. Cancelling one wait affects no other."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def ring(self) -> None:
        """Let the waiting tasks go on, in the next cycle of the loop."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
