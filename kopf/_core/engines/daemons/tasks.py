"""
Tasks: the daemons and timers of one object, and the calls of their functions.

What daemons and timers have in common; when they call their functions, and how they stop, is in
`daemon_tasks` and `timer_tasks`.
"""

import abc
import asyncio
import contextvars
import dataclasses
import logging
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from typing import Any, Generic, NewType, TypeVar, cast

from kopf._cogs.aiokits import clocks, turns
from kopf._cogs.clients import errors, requests
from kopf._cogs.clients.patching import application, sender, targets
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import (
    bodies,
    credentials,
    ids,
    objects,
    patches,
    references,
    selectors,
)
from kopf._core.actions import (
    execution,
    failures,
    invocation,
    loggers,
    outcomes,
    progression,
    threads,
)
from kopf._core.engines.events import failure_events
from kopf._core.intents import causes, handlers, stoppers

HandlerT = TypeVar('HandlerT', bound=handlers.SpawningHandler)
Logger = logging.Logger | logging.LoggerAdapter[Any]

Key = NewType('Key', tuple[ids.HandlerId, int])
"""
The identifier of a daemon or timer within one object: different functions can have the same id.
"""

BLANK = progression.HandlerState()
"""The state before the first attempt."""


def identify(handler: handlers.SpawningHandler) -> Key:
    """Return the key of a daemon or timer: its id and function, however often declared."""
    return Key((handler.id, id(handler.fn)))


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """The link from the daemons of all objects of a resource to the workers of these objects."""

    resource: references.Resource
    get_selectors: Callable[[references.Resource], Collection[selectors.Selector] | None]
    # Queues the object to be handled again.
    requeue: Callable[[bodies.RawBody], None]
    # Takes the object as the daemon knows it, and as it is after our own change.
    expect: Callable[[objects.Body, Mapping[str, Any]], None]
    # The context of the scheduled calls. Contexts of workers would keep their objects in memory.
    variables: contextvars.Context

    @property
    def selectors(self) -> Collection[selectors.Selector] | None:
        return self.get_selectors(self.resource)


class ObjectDaemons:
    """
    All daemons and timers of one object. Changed only in the event loop of the operator.

    The body is live: it is replaced in place as the object changes.
    """

    __slots__ = (
        'body',
        'changed',
        'delayed',
        'finished',
        'is_due',
        'is_forgotten',
        'key',
        'link',
        'matching',
        'memo',
        'running',
    )

    def __init__(
        self, key: Hashable, body: Mapping[str, Any], *, memo: Any, link: Link, now: float
    ) -> None:
        self.key = key
        self.body = objects.Body(body)
        self.memo = memo
        self.link = link
        self.running: dict[Key, SpawnedTask[Any]] = {}  # including those stopping or abandoned
        self.finished: tuple[Key, ...] = ()  # not started again while the object exists
        # The keys with the initial delay over; sets would take 4 times as much memory.
        self.delayed: tuple[Key, ...] = ()
        # None if it must be decided.
        self.matching: tuple[handlers.SpawningHandler, ...] | None = None
        self.changed = now  # when the object was last changed
        self.is_due = True  # whether the matching handlers must be started
        self.is_forgotten = False  # whether the object is deleted or no longer served

    @property
    def is_alive(self) -> bool:
        """Whether any daemon or timer that blocks deletion is still running."""
        return any(not task.is_abandoned for task in self.running.values())

    def note_delayed(self, key: Key) -> None:
        if key not in self.delayed:
            self.delayed = (*self.delayed, key)

    def note_finished(self, key: Key) -> None:
        if key not in self.finished:
            self.finished = (*self.finished, key)

    def refresh(self, body: Mapping[str, Any]) -> None:
        """Set the new state of the object, so that the matching daemons are chosen again."""
        self.body._replace_with(body)
        self.matching = None
        self.is_due = True

    def note_change(self, now: float) -> None:
        """Notify the timers that the object is not idle."""
        self.changed = now
        for task in self.running.values():
            task.note_change()

    def revive(self, memo: Any, link: Link) -> None:
        """Continue with the object that was forgotten, but has appeared again."""
        self.memo = memo
        self.link = link
        self.is_forgotten = False

    def requeue(self) -> None:
        """Queue the object to be handled again, if it still exists."""
        if not self.is_forgotten:
            self.link.requeue(cast(bodies.RawBody, self.body))


@dataclasses.dataclass(frozen=True)
class Runtime:
    """The parts of the operator that its daemons and timers need."""

    context: requests.Context
    now: clocks.Now
    indices: Mapping[str, Any]
    # Called with each daemon or timer after its end.
    on_end: Callable[['SpawnedTask[Any]'], None]

    @property
    def settings(self) -> settings_.OperatorSettings:
        return self.context.settings


class SpawnedTask(abc.ABC, Generic[HandlerT]):
    """One daemon or timer of one object."""

    __slots__ = (
        '_stopper',
        'daemons',
        'handler',
        'is_abandoned',
        'is_fresh',
        'is_removed',
        'patch',
        'runtime',
        'task',
        'timer',
    )

    def __init__(self, handler: HandlerT, daemons: ObjectDaemons, runtime: Runtime) -> None:
        self.handler = handler
        self.daemons = daemons
        self.runtime = runtime
        # Created on demand: there are many timers, but few of them run at a time.
        self._stopper: stoppers.DaemonStopper | None = None
        self.patch: patches.Patch | None = None  # the changes to be applied by the next call
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.Handle | None = None
        self.is_abandoned = False  # it still runs, but is no longer waited for
        self.is_removed = False
        # Whether the object could not change since the last call began.
        self.is_fresh = False

    @property
    def key(self) -> Key:
        return identify(self.handler)

    @property
    def stopper(self) -> stoppers.DaemonStopper:
        if self._stopper is None:
            self._stopper = stoppers.DaemonStopper()
        return self._stopper

    @property
    def logger(self) -> Logger:
        return loggers.ObjectLogger(body=self.daemons.body, settings=self.runtime.settings)

    @property
    def is_async(self) -> bool:
        return invocation.is_async(self.handler.fn)

    @property
    def is_interrupted(self) -> bool:
        """Whether it was cancelled or abandoned."""
        reason = self.stopper.reason
        kinds = stoppers.DaemonStoppingReason
        return reason is not None and bool(
            reason & (kinds.DAEMON_CANCELLED | kinds.DAEMON_ABANDONED)
        )

    @property
    def is_pausing(self) -> bool:
        """Whether it was requested to stop for a pause."""
        reason = self.stopper.reason
        return reason is not None and bool(reason & stoppers.DaemonStoppingReason.OPERATOR_PAUSING)

    @property
    def stopped(self) -> stoppers.DaemonStopped:
        """The stop-flag of the type that suits the function."""
        return (stoppers.AsyncDaemonStopped if self.is_async else stoppers.SyncDaemonStopped)(
            self.stopper
        )

    @property
    def grace(self) -> float:
        """The maximum seconds to stop regularly, if limited."""
        return 0.0

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def stop(self, reason: stoppers.DaemonStoppingReason) -> None:
        """Request it to stop; it ends later. Repeated requests are harmless."""

    def note_change(self) -> None:
        """Notify of a change of the object; ignored by default."""

    def cancel(self) -> None:
        """End it immediately, if possible; functions in threads are only no longer waited for."""
        self._unset_timer()
        self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_CANCELLED)
        if self.task is not None:
            self.task.cancel()

    def _set_timer(self, delay: float, fn: Callable[[], None]) -> None:
        self._unset_timer()
        self.timer = asyncio.get_running_loop().call_later(
            max(0.0, delay), fn, context=self.daemons.link.variables
        )

    def _unset_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _spawn(
        self, coro: Coroutine[Any, Any, None], end: Callable[[asyncio.Task[None]], None]
    ) -> None:
        self.task = asyncio.create_task(
            coro, name=f'{self.handler.id} of {self.daemons.body.metadata.name}'
        )
        self.task.add_done_callback(end)

    async def _call(self, state: progression.HandlerState) -> outcomes.Outcome:
        """Call the function once. Raises only cancellations of the task."""
        self.patch = patches.Patch() if self.patch is None else self.patch
        env = self._build_environment()
        cause = self._build_cause(self.patch)
        with turns.Turn() as turn:
            outcome = await execution.run_attempt(self.handler, cause, state, env)
        self.is_fresh = not turn.is_over
        return outcome

    async def _save(self, outcome: outcomes.Outcome) -> None:
        """Send the function's changes; keep those refused for this version for the next call."""
        patch = self.patch
        if patch is None:
            return
        if outcome.result is not None and not self.is_interrupted:
            patch.status[self.handler.id] = outcome.result
        if patch:
            await self._apply(patch, is_last=outcome.final)
        self.patch = patch if patch else None

    def _advance(
        self, state: progression.HandlerState, outcome: outcomes.Outcome
    ) -> progression.HandlerState:
        return state.with_outcome(outcome, now=self.runtime.now())

    def _note_finished(self, outcome: outcomes.Outcome) -> None:
        """Do not start it again, unless it waits until the object fits the types."""
        if not isinstance(outcome.exception, failures.InvalidObjectError):
            self.daemons.note_finished(self.key)

    def _get_initial_delay(self) -> float | None:
        delay: handlers.InitialDelay | None = self.handler.initial_delay
        if delay is None or isinstance(delay, int | float):
            return delay

        self.patch = patches.Patch() if self.patch is None else self.patch
        env = self._build_environment()
        cause = self._build_cause(self.patch)

        try:
            kwargs = execution.build_kwargs(
                execution.begin(self.handler, None, self.runtime.now()), cause, env
            )
            seconds = self.handler.call_back(delay, kwargs=kwargs)
            return None if seconds is None else float(seconds)
        except Exception:
            cause.logger.exception(
                'The initial delay of %s has failed; there is no delay then.', self.handler
            )
            return None

    def _build_environment(self) -> execution.Environment:
        executor: threads.OwnThreads | None = None
        if isinstance(self.handler, handlers.DaemonHandler) and not self.is_async:
            executor = threads.OwnThreads(f'{self.handler.id} of {self.daemons.body.metadata.name}')
        return execution.Environment(
            settings=self.runtime.settings,
            now=self.runtime.now,
            executor=executor,
            meter=self.runtime.context.meter,
            complain=failure_events.complain,
        )

    def _build_cause(self, patch: patches.Patch) -> causes.SpawningCause:
        link = self.daemons.link
        return causes.SpawningCause(
            logger=self.logger,
            memo=self.daemons.memo,
            indices=self.runtime.indices,
            resource=link.resource,
            selectors=link.selectors,
            body=self.daemons.body,
            patch=patch,
            stopped=self.stopped,
        )

    async def _apply(self, patch: patches.Patch, *, is_last: bool) -> None:
        body = self.daemons.body
        link = self.daemons.link
        log = self.logger
        changes = application.Changes(
            patches.Patch(patch), patches.Patch(), is_spared=self.is_fresh, is_persistent=is_last
        )
        target = targets.identify(link.resource, body)

        try:
            applied = await sender.apply_changes(
                target, changes, body, context=self.runtime.context, logger=log
            )
        except (errors.RequestError, credentials.LoginError) as error:
            log.error(
                'The changes made by %s could not be applied, and will be with the next ones: %s',
                self.handler,
                error,
            )
            return

        patch.clear()
        patch.update(applied.unsent)
        patch.fns.extend(applied.fns)
        if applied.body is not None:
            link.expect(body, applied.body)

    def _remove(self) -> None:
        self._unset_timer()
        if not self.is_removed:
            self.is_removed = True
            del self.daemons.running[self.key]
            self.runtime.on_end(self)

    def _report(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.logger.error('%s has ended unexpectedly.', self.handler, exc_info=error)
        elif task.cancelled() and not self.is_interrupted:
            self.logger.error('%s was cancelled by someone else, and has ended.', self.handler)
