"""
Spawning: starts the daemons and timers of objects, and calls their functions.

They are started and stopped by the events of the objects, and stopped when the operator pauses or
exits. Unless stated otherwise, timers count as daemons here.
"""

import asyncio
import logging
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

from kopf._cogs.aiokits import bells, clocks, turns
from kopf._cogs.clients import errors, patching, requests
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import credentials, patches, references
from kopf._core.actions import application, execution, loggers, outcomes, progression, threads
from kopf._core.engines.daemons import tasks
from kopf._core.engines.events import failure_events
from kopf._core.engines.peering import pauses
from kopf._core.intents import causes, handlers, stoppers

logger = logging.getLogger(__package__)

EXTRA_TIMEOUT = 5.0
"""
Seconds after the daemons' own stopping times, before they are cancelled when the operator exits.
"""

REFUSAL_TIMEOUT = 10.0
"""Seconds for cancelled daemons to clean up and end, before they are abandoned."""


class Spawner(tasks.Crew):
    """All daemons and timers of the objects of one operator. Belongs to its event loop."""

    def __init__(
        self,
        context: requests.Context,
        *,
        now: clocks.Now,
        indices: Mapping[str, Any],
        pauses: pauses.Pauses,
    ) -> None:
        self.settings: settings_.OperatorSettings = context.settings
        self._context, self._now, self._indices, self._pauses = context, now, indices, pauses
        self._all: set[tasks.Life[Any]] = set()
        # Of forgotten objects, while any of their daemons still run.
        self._orphans: dict[Hashable, tasks.Lives] = {}
        self._bell = bells.Bell()
        self._is_exiting = False

    def __len__(self) -> int:
        """Return the number of daemons and timers, including those stopping or abandoned."""
        return len(self._all)

    def __iter__(self) -> Iterator[tasks.Life[Any]]:
        return iter(self._all)

    @property
    def is_exiting(self) -> bool:
        """Whether no more daemons can be started."""
        return self._is_exiting

    def adjust(
        self,
        living: tasks.Lives,
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
        for key, life in list(living.running.items()):
            if key not in wanted:
                life.stop(reason)
        if may_start and not self._is_exiting and not self._is_paused(living):
            for key, handler in wanted.items():
                if key not in living.running and key not in living.finished:
                    self._start(handler, living)

    def forget(self, living: tasks.Lives, reason: stoppers.DaemonStoppingReason) -> None:
        """
        Stop all daemons of an object that is deleted or no longer served.

        If the operator is exiting, they are stopped later, together with those of all objects.
        """
        living.is_forgotten = True
        if living.running:
            self._orphans[living.key] = living
        if not self._is_exiting:
            for life in list(living.running.values()):
                life.stop(reason)

    def recall(self, key: Hashable) -> tasks.Lives | None:
        """Find the running daemons of an object that was forgotten, but has appeared again."""
        return self._orphans.pop(key, None)

    def pause(self, namespace: references.Namespace) -> None:
        """
        Stop all daemons in the namespace, or everywhere if the whole operator pauses.

        Nothing is started there during the pause; afterwards, daemons are started by events of the
        objects.
        """
        for life in list(self._all):
            if namespace is None or _get_namespace(life.lives) == namespace:
                life.stop(stoppers.DaemonStoppingReason.OPERATOR_PAUSING)

    def begin_exit(self) -> None:
        """Start no daemons from now on."""
        self._is_exiting = True

    async def stop(self) -> None:
        """
        Stop all daemons because the operator exits: first request them to stop, then cancel them.

        Cancelled daemons get a few seconds to end, and are then abandoned; functions in threads are
        abandoned immediately. Whenever this wait is cancelled, all daemons are cancelled
        immediately and awaited for a short time.
        """
        self.begin_exit()
        for life in list(self._all):
            life.stop(stoppers.DaemonStoppingReason.OPERATOR_EXITING)
        timeout = max((life.grace for life in self._all), default=0) + EXTRA_TIMEOUT
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
        for life in list(self._all):
            life.cancel()
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

    def _is_paused(self, living: tasks.Lives) -> bool:
        return self._pauses.is_any and self._pauses.is_paused(_get_namespace(living))

    async def _wait_until_empty(self) -> None:
        while self._all:
            await self._bell.wait()

    def _list_names(self) -> str:
        return ', '.join(sorted({str(life.handler.id) for life in self._all}))

    def _start(self, handler: handlers.SpawningHandler, living: tasks.Lives) -> None:
        life: tasks.Life[Any]
        if isinstance(handler, handlers.DaemonHandler):
            life = tasks.DaemonLife(handler, living, self)
        elif isinstance(handler, handlers.TimerHandler):
            life = tasks.TimerLife(handler, living, self)
        else:
            raise TypeError(f'It is neither a daemon nor a timer: {handler!r}.')
        living.running[life.key] = life
        self._all.add(life)
        life.start()

    def bury(self, life: tasks.Life[Any]) -> None:
        self._all.discard(life)
        if life.is_pausing and not self._is_paused(life.lives):
            # The events received after the pause have found it still stopping.
            life.lives.is_due = True
        if life.lives.is_forgotten and not life.lives.running:
            self._orphans.pop(life.lives.key, None)
        self._bell.ring()

    async def call(
        self, life: tasks.Life[Any], state: progression.HandlerState
    ) -> outcomes.Outcome:
        life.patch = patches.Patch() if life.patch is None else life.patch
        env, cause = self._build_environment(life), self._build_cause(life, life.patch)
        with turns.Turn() as turn:
            outcome = await execution.run_attempt(life.handler, cause, state, env)
        life.is_fresh = not turn.is_over
        return outcome

    async def save(self, life: tasks.Life[Any], outcome: outcomes.Outcome) -> None:
        """Send the function's changes; keep those refused for this version for the next call."""
        patch = life.patch
        if patch is None:
            return
        if outcome.result is not None and not life.is_interrupted:
            patch.status[life.handler.id] = outcome.result
        if patch:
            await self._apply(life, patch, is_last=outcome.final)
        life.patch = patch if patch else None

    def advance(
        self, state: progression.HandlerState, outcome: outcomes.Outcome
    ) -> progression.HandlerState:
        return state.with_outcome(outcome, now=self._now())

    def get_initial_delay(self, life: tasks.Life[Any]) -> float | None:
        delay: handlers.InitialDelay | None = life.handler.initial_delay
        if delay is None or isinstance(delay, int | float):
            return delay
        life.patch = patches.Patch() if life.patch is None else life.patch
        env, cause = self._build_environment(life), self._build_cause(life, life.patch)
        try:
            kwargs = execution.build_kwargs(
                execution.begin(life.handler, None, self._now()), cause, env
            )
            seconds = life.handler.call_back(delay, kwargs=kwargs)
            return None if seconds is None else float(seconds)
        except Exception:
            cause.logger.exception(
                'The initial delay of %s has failed; there is no delay then.', life.handler
            )
            return None

    def get_logger(self, life: tasks.Life[Any]) -> tasks.Logger:
        return loggers.ObjectLogger(body=life.lives.body, settings=self.settings)

    def _build_environment(self, life: tasks.Life[Any]) -> execution.Environment:
        executor: threads.OwnThreads | None = None
        if isinstance(life.handler, handlers.DaemonHandler) and not life.is_async:
            executor = threads.OwnThreads(f'{life.handler.id} of {life.lives.body.metadata.name}')
        return execution.Environment(
            settings=self.settings,
            now=self._now,
            executor=executor,
            meter=self._context.meter,
            complain=failure_events.complain,
        )

    def _build_cause(self, life: tasks.Life[Any], patch: patches.Patch) -> causes.SpawningCause:
        place = life.lives.place
        return causes.SpawningCause(
            logger=self.get_logger(life),
            memo=life.lives.memo,
            indices=self._indices,
            resource=place.resource,
            selectors=place.selectors,
            body=life.lives.body,
            patch=patch,
            stopped=life.stopped,
        )

    async def _apply(self, life: tasks.Life[Any], patch: patches.Patch, *, is_last: bool) -> None:
        body, place, log = life.lives.body, life.lives.place, self.get_logger(life)
        changes = application.Changes(
            patches.Patch(patch), patches.Patch(), is_spared=life.is_fresh, is_persistent=is_last
        )
        target = patching.identify(place.resource, body)
        try:
            applied = await application.apply_changes(
                target, changes, body, context=self._context, logger=log
            )
        except (errors.RequestError, credentials.LoginError) as error:
            log.error(
                'The changes made by %s could not be applied, and will be with the next ones: %s',
                life.handler,
                error,
            )
            return
        patch.clear()
        patch.update(applied.unsent)
        patch.fns.extend(applied.fns)
        if applied.body is not None:
            place.note_patched(body, applied.body)


def _get_namespace(living: tasks.Lives) -> references.Namespace:
    namespace = living.body.metadata.namespace
    return None if namespace is None else references.NamespaceName(namespace)
