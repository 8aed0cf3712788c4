"""
Probe handlers: the handlers that report the state of an operator, called on request.

The response is never late: failing handlers are not retried, and slow handlers are not awaited.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import ids
from kopf._core.actions import execution, invocation
from kopf._core.intents import causes, handlers

logger = logging.getLogger(__name__)

CACHING = 10.0
"""Seconds for which the results are cached."""

PATIENCE = 5.0
"""Seconds to wait for the handlers."""


class Prober:
    """The collector of probe results. Belongs to the operator's event loop; must be closed."""

    def __init__(
        self,
        probes: list[handlers.ActivityHandler],
        cause: causes.ActivityCause,
        env: execution.Environment,
    ) -> None:
        self._probes = probes
        self._cause = cause
        self._env = env
        self._collection: asyncio.Task[Mapping[ids.HandlerId, Any]] | None = None
        self._collected = 0.0
        self._running: dict[int, asyncio.Task[Any]] = {}  # by the positions of their handlers

    async def collect(self) -> Mapping[ids.HandlerId, Any]:
        """
        Get the results by the ids of handlers, either new or cached for a few seconds.

        Any number of tasks may wait. If cancelled, the collection continues, as other tasks can
        wait for it. Raises nothing else. Handlers that have failed or are still running have
        ``None`` as their results.
        """
        now = asyncio.get_running_loop().time()
        is_over = self._collection is None or self._collection.done()
        if self._collection is None or (is_over and now - self._collected >= CACHING):
            self._collection = asyncio.create_task(self._collect(), name='probes')
        return await asyncio.shield(self._collection)

    async def close(self) -> None:
        """Cancel all running handlers, and wait for them."""
        tasks = [*self._running.values(), *([] if self._collection is None else [self._collection])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _collect(self) -> Mapping[ids.HandlerId, Any]:
        """Call all handlers concurrently, except for those still running since the last time."""
        for position, handler in enumerate(self._probes):
            if position not in self._running:
                self._running[position] = asyncio.create_task(
                    self._call(handler), name=f'probe {handler.id}'
                )

        if self._running:
            await asyncio.wait(self._running.values(), timeout=PATIENCE)
        results: dict[ids.HandlerId, Any] = {}
        for position, handler in enumerate(self._probes):
            task = self._running[position]
            results[handler.id] = self._running.pop(position).result() if task.done() else None
            if not task.done():
                logger.warning(
                    '%s has not finished in %s s, and is not waited for.', handler, PATIENCE
                )

        self._collected = asyncio.get_running_loop().time()
        return results

    async def _call(self, handler: handlers.ActivityHandler) -> Any:
        try:
            outcome = await execution.run_attempt(handler, self._cause, None, self._env)
        except asyncio.CancelledError:
            if invocation.is_ending():
                raise
            logger.exception('%s was cancelled from the inside.', handler)
            return None

        return outcome.result
