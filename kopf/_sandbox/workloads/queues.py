"""
Queues: the objects to reconcile, each at most once in a queue, and one worker for each controller.

Objects are reconciled when something related to them changes, when their controller has asked for
it, and, after errors, later and later. Those that summarize others, such as the status of a
deployment, wait a little for these: so many changes are followed by one write.
"""

import asyncio
import logging
from collections.abc import Sequence

from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import interfaces

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.05
"""Seconds to the first retry; each next delay is twice as long, up to `LAST_DELAY`."""

LAST_DELAY = 60.0

PATIENCE = 0.1
"""Seconds to wait for the queues ahead, at most."""

TURNS = 2000
"""Turns of the event loop to wait for them, at most: in virtual time, they take no time."""


class WorkQueue:
    """The queue of one controller. Used only from one event loop."""

    def __init__(
        self, reconciler: interfaces.Reconciler, ahead: Sequence['WorkQueue'] = ()
    ) -> None:
        self._reconciler = reconciler
        self._ahead = ahead
        self._is_working = False
        self._due: dict[str, None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._wakeup = asyncio.Event()

    @property
    def is_busy(self) -> bool:
        return bool(self._due) or self._is_working

    def notice(self, change: memory.Change) -> None:
        """Put the objects affected by a change to the queue."""
        for key in self._reconciler.find_affected(change):
            self.add(key)

    def add(self, key: str) -> None:
        """Reconcile an object as soon as possible."""
        self._due[key] = None
        self._wakeup.set()

    async def run(self) -> None:
        """Reconcile the objects of the queue until cancelled."""
        try:
            while True:
                await self._wakeup.wait()
                while self._due:
                    await self._wait_for_others()
                    key = next(iter(self._due))
                    del self._due[key]
                    await self._reconcile(key)
                    await asyncio.sleep(0)  # the requests of clients go first
                self._wakeup.clear()
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _wait_for_others(self) -> None:
        """Wait until the queues ahead are empty, but not for long."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        for _ in range(TURNS):
            if clock() > deadline or not any(queue.is_busy for queue in self._ahead):
                return
            await asyncio.sleep(0)

    async def _reconcile(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._is_working = True
        try:
            delay = await self._reconciler.reconcile(key)
            self._failures.pop(key, None)
        except Exception as e:
            delay = self._back_off(key, e)
        finally:
            self._is_working = False

        if delay is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(max(delay, memory.TICK), self._expire, key)

    def _back_off(self, key: str, error: Exception) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        controller = type(self._reconciler).__name__
        if isinstance(error, errors.ApiError):
            logger.debug('%s is refused to change %s: %s', controller, key, error)
        else:
            logger.exception('%s has failed on %s.', controller, key)
        return min(FIRST_DELAY * 2.0 ** min(count - 1, 20), LAST_DELAY)

    def _expire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)
