"""
Daemons: which daemons and timers live beside which objects, and how their functions are called.

They are started and stopped as the events of the objects come, and stopped when the operator exits.
"""
import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kopf._cogs.aiokits import bells, clocks
from kopf._cogs.clients import errors, patching, requests
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import credentials, patches, references, selectors
from kopf._core.actions import application, execution, loggers, outcomes, progression
from kopf._core.engines import lives
from kopf._core.intents import causes, handlers, stoppers

logger = logging.getLogger(__name__)

EXTRA_TIMEOUT = 5.0
"""Seconds for all that still runs when the operator exits, after its own times to stop, before it is cancelled."""

OnPatched = Callable[[lives.Lives, str], None]
"""Takes notice of the version of an object with our own changes."""


class Spawner(lives.Crew):
    """
    All daemons and timers of the objects of one operator. Belongs to its event loop.
    """

    def __init__(self, context: requests.Context, *, now: clocks.Now, indices: Mapping[str, Any]) -> None:
        self.settings: settings_.OperatorSettings = context.settings
        self._context, self._now, self._indices = context, now, indices
        self._threads = OwnThreads()
        self._all: dict[lives.Life[Any], Place] = {}
        self._bell = bells.Bell()
        self._is_exiting = False

    def __len__(self) -> int:
        return len(self._all)

    def adjust(self, living: lives.Lives, matching: Iterable[handlers.SpawningHandler], place: 'Place', *,
               reason: stoppers.DaemonStoppingReason, may_start: bool) -> None:
        """
        Stop those who should not live any more, for this reason, and start the missing ones, if allowed now.

        Those who are being stopped, count as living: they will be started again by some later event.
        """
        wanted = {handler.id: handler for handler in matching}
        for id, life in list(living.running.items()):
            if id not in wanted:
                life.stop(reason)
        if may_start and not self._is_exiting:
            for id, handler in wanted.items():
                if id not in living.running and id not in living.finished:
                    self._start(handler, living, place)

    def stop_object(self, living: lives.Lives, reason: stoppers.DaemonStoppingReason) -> None:
        """Ask all that lives beside an object to stop; on exit, it is done for all objects at once."""
        if not self._is_exiting:
            for life in list(living.running.values()):
                life.stop(reason)

    def begin_exit(self) -> None:
        """Start nothing from now on."""
        self._is_exiting = True

    async def stop(self) -> None:
        """
        Stop all that lives, because the operator exits. First it is asked, then, if it does not end, cancelled.

        What was cancelled is waited for without a limit; functions in threads are left to themselves.
        """
        self.begin_exit()
        for life in list(self._all):
            life.stop(stoppers.DaemonStoppingReason.OPERATOR_EXITING)
        if not self._all:
            return
        timeout = max(life.grace for life in self._all) + EXTRA_TIMEOUT
        try:
            async with asyncio.timeout(timeout):
                await self._wait_until_empty()
        except TimeoutError:
            names = sorted({str(life.handler.id) for life in self._all})
            logger.warning("%d daemons and timers have not exited in %s s, and are cancelled: %s.",
                           len(self._all), timeout, ', '.join(names))
            for life in list(self._all):
                life.cancel()
            await self._wait_until_empty()

    async def _wait_until_empty(self) -> None:
        while self._all:
            await self._bell.wait()

    def _start(self, handler: handlers.SpawningHandler, living: lives.Lives, place: 'Place') -> None:
        life: lives.Life[Any]
        if isinstance(handler, handlers.DaemonHandler):
            life = lives.DaemonLife(handler, living, self)
        elif isinstance(handler, handlers.TimerHandler):
            life = lives.TimerLife(handler, living, self)
        else:
            raise TypeError(f"It is neither a daemon nor a timer: {handler!r}.")
        living.running[handler.id] = life
        self._all[life] = place
        life.start()

    def bury(self, life: lives.Life[Any]) -> None:
        del self._all[life]
        self._bell.ring()

    async def attempt(self, life: lives.Life[Any], state: progression.HandlerState) -> outcomes.Outcome:
        patch = life.patch = patches.Patch() if life.patch is None else life.patch
        is_daemon = isinstance(life.handler, handlers.DaemonHandler)
        env = execution.Environment(
            settings=self.settings, now=self._now, executor=self._threads if is_daemon else None)
        place = self._all[life]
        outcome = await execution.run_attempt(life.handler, self._build_cause(life, patch), state, env)
        if outcome.result is not None:
            patch.status[life.handler.id] = outcome.result
        if patch:
            await self._apply(life, patch, place)
        life.patch = patch if patch else None
        return outcome

    def advance(self, state: progression.HandlerState, outcome: outcomes.Outcome) -> progression.HandlerState:
        return state.with_outcome(outcome, now=self._now())

    def get_initial_delay(self, life: lives.Life[Any]) -> float | None:
        delay: handlers.InitialDelay | None = life.handler.initial_delay
        if delay is None or isinstance(delay, int | float):
            return delay
        cause = self._build_cause(life, patches.Patch())
        try:
            return float(delay(**{**cause.kwargs, 'param': life.handler.param}))
        except Exception:
            cause.logger.exception("The initial delay of %s has failed; there is no delay then.", life.handler)
            return None

    def get_logger(self, life: lives.Life[Any]) -> lives.Logger:
        return loggers.ObjectLogger(body=life.lives.body, settings=self.settings)

    def _build_cause(self, life: lives.Life[Any], patch: patches.Patch) -> causes.SpawningCause:
        place = self._all[life]
        return causes.SpawningCause(
            logger=self.get_logger(life), memo=life.lives.memo, indices=self._indices, resource=place.resource,
            selectors=place.selectors, body=life.lives.body, patch=patch, stopped=life.stopped)

    async def _apply(self, life: lives.Life[Any], patch: patches.Patch, place: 'Place') -> None:
        """Send what the function has asked for. What is refused for the version, is kept for the next call."""
        body, log = life.lives.body, self.get_logger(life)
        changes = application.Changes(patches.Patch(patch), patches.Patch())
        target = patching.identify(place.resource, body)
        try:
            applied = await application.apply_changes(target, changes, body, context=self._context, logger=log)
        except (errors.RequestError, credentials.LoginError) as error:
            log.error("The changes made by %s could not be applied, and will be with the next ones: %s",
                      life.handler, error)
            return
        patch.clear()
        patch.fns.extend(applied.fns)
        if applied.version is not None:
            place.note_patched(life.lives, applied.version)


class Place:
    """Where the objects of daemons are: their resource, and who is to know of their changes."""
    __slots__ = ('note_patched', 'resource', 'selectors')

    def __init__(self, resource: references.Resource, chosen: Collection[selectors.Selector] | None,
                 note_patched: OnPatched) -> None:
        self.resource, self.selectors, self.note_patched = resource, chosen, note_patched


class OwnThreads(concurrent.futures.Executor):
    """Threads for functions that run for as long as they want: one for each, never waiting for a free one."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> 'concurrent.futures.Future[Any]':
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=f'daemon {getattr(fn, "__name__", fn)}', daemon=True).start()
        return future
