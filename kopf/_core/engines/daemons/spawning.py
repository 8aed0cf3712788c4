"""
Spawning: starts and stops the daemons and timers of objects.

They are started and stopped by the events of the objects, and also stopped when the operator pauses
or exits. Unless stated otherwise, timers count as daemons here.
"""

import asyncio
import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from kopf._cogs.aiokits import bells, clocks
from kopf._cogs.clients import requests
from kopf._cogs.structs import references
from kopf._core.engines.daemons import daemon_tasks, tasks, timer_tasks
from kopf._core.engines.peering import pauses
from kopf._core.intents import handlers, stoppers

logger = logging.getLogger(__package__)

EXTRA_TIMEOUT = 5.0
"""
Seconds after the daemons' own stopping times, before they are cancelled when the operator exits.
"""

REFUSAL_TIMEOUT = 10.0
"""Seconds for cancelled daemons to clean up and end, before they are abandoned."""


class Spawner:
    """All daemons and timers of the objects of one operator. Belongs to its event loop."""

    def __init__(
        self,
        context: requests.Context,
        *,
        now: clocks.Now,
        indices: Mapping[str, Any],
        pauses: pauses.Pauses,
    ) -> None:
        self._runtime = tasks.Runtime(context, now, indices, on_end=self._remove)
        self._pauses = pauses
        self._all: set[tasks.SpawnedTask[Any]] = set()
        # Of forgotten objects, while any of their daemons still run.
        self._orphans: dict[Hashable, tasks.ObjectDaemons] = {}
        self._bell = bells.Bell()
        self._is_exiting = False

    def __len__(self) -> int:
        """Return the number of daemons and timers, including those stopping or abandoned."""
        return len(self._all)

    def __iter__(self) -> Iterator[tasks.SpawnedTask[Any]]:
        return iter(self._all)

    @property
    def is_exiting(self) -> bool:
        """Whether no more daemons can be started."""
        return self._is_exiting

    def adjust(
        self,
        daemons: tasks.ObjectDaemons,
        matching: Iterable[handlers.SpawningHandler],
        *,
        reason: stoppers.DaemonStoppingReason,
        may_start: bool,
    ) -> None:
        """
        Stop the daemons that should no longer run, and start the missing ones if allowed.

        Daemons being stopped count as running: they will be started again by a later event.
        """
        wanted = {tasks.identify(handler): handler for handler in matching}
        for key, task in list(daemons.running.items()):
            if key not in wanted:
                task.stop(reason)

        if may_start and not self._is_exiting and not self._is_paused(daemons):
            for key, handler in wanted.items():
                if key not in daemons.running and key not in daemons.finished:
                    self._start(handler, daemons)

    def forget(self, daemons: tasks.ObjectDaemons, reason: stoppers.DaemonStoppingReason) -> None:
        """
        Stop all daemons of an object that is deleted or no longer served.

        If the operator is exiting, they are stopped later, together with those of all objects.
        """
        daemons.is_forgotten = True
        if daemons.running:
            self._orphans[daemons.key] = daemons
        if not self._is_exiting:
            for task in list(daemons.running.values()):
                task.stop(reason)

    def recall(self, key: Hashable) -> tasks.ObjectDaemons | None:
        """Find the running daemons of an object that was forgotten, but has appeared again."""
        return self._orphans.pop(key, None)

    def pause(self, namespace: references.Namespace) -> None:
        """
        Stop all daemons in the namespace, or everywhere if the whole operator pauses.

        Nothing is started there during the pause; afterwards, daemons are started by events of the
        objects.
        """
        for task in list(self._all):
            if namespace is None or _get_namespace(task.daemons) == namespace:
                task.stop(stoppers.DaemonStoppingReason.OPERATOR_PAUSING)

    def begin_exit(self) -> None:
        """Start no daemons from now on."""
        self._is_exiting = True

    async def stop(self, *, is_urgent: bool = False) -> None:
        """
        Stop all daemons because the operator exits: first request them to stop, then cancel them.

        If it is urgent, they are cancelled at once. Cancelled daemons get a few seconds to end, and
        are then abandoned; functions in threads are abandoned immediately. Whenever this wait is
        cancelled, all daemons are cancelled immediately and awaited for a short time.
        """
        self.begin_exit()
        for task in list(self._all):
            task.stop(stoppers.DaemonStoppingReason.OPERATOR_EXITING)
        timeout = max((task.grace for task in self._all), default=0) + EXTRA_TIMEOUT
        timeout = 0.0 if is_urgent else timeout
        try:
            if self._all:
                logger.info(
                    'Waiting for %d daemons and timers to exit, for %s s at most: %s.',
                    len(self._all),
                    timeout,
                    self._list_names(),
                )
            async with asyncio.timeout(timeout):
                await self._wait_until_empty()
        except TimeoutError:
            logger.warning(
                '%d daemons and timers have not exited in %s s, and are cancelled: %s.',
                len(self._all),
                timeout,
                self._list_names(),
            )
        finally:
            await self._cancel_all()

    async def _cancel_all(self) -> None:
        """Cancel all daemons and wait a bit; if cancelled, cancel them again and keep waiting."""
        for task in list(self._all):
            task.cancel()
        try:
            async with asyncio.timeout(REFUSAL_TIMEOUT):
                await self._wait_until_empty()
        except TimeoutError:
            logger.warning(
                '%d daemons and timers refuse to end, and are left as they are: %s.',
                len(self._all),
                self._list_names(),
            )
        except asyncio.CancelledError:
            await self._cancel_all()
            raise

    def _is_paused(self, daemons: tasks.ObjectDaemons) -> bool:
        return self._pauses.is_any and self._pauses.is_paused(_get_namespace(daemons))

    async def _wait_until_empty(self) -> None:
        while self._all:
            await self._bell.wait()

    def _list_names(self) -> str:
        return ', '.join(sorted({str(task.handler.id) for task in self._all}))

    def _start(self, handler: handlers.SpawningHandler, daemons: tasks.ObjectDaemons) -> None:
        task: tasks.SpawnedTask[Any]
        if isinstance(handler, handlers.DaemonHandler):
            task = daemon_tasks.DaemonTask(handler, daemons, self._runtime)
        elif isinstance(handler, handlers.TimerHandler):
            task = timer_tasks.TimerTask(handler, daemons, self._runtime)
        else:
            raise TypeError(f'It is neither a daemon nor a timer: {handler!r}.')

        daemons.running[task.key] = task
        self._all.add(task)
        task.start()

    def _remove(self, task: tasks.SpawnedTask[Any]) -> None:
        self._all.discard(task)
        if task.is_pausing and not self._is_paused(task.daemons):
            # The events received after the pause have found it still stopping.
            task.daemons.is_due = True
        if task.daemons.is_forgotten and not task.daemons.running:
            self._orphans.pop(task.daemons.key, None)
        self._bell.ring()


def _get_namespace(daemons: tasks.ObjectDaemons) -> references.Namespace:
    namespace = daemons.body.metadata.namespace
    return None if namespace is None else references.NamespaceName(namespace)
