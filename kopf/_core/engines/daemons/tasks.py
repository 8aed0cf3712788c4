"""
Tasks: the daemons and timers of one object, from their start to their end.

Between the calls, a timer is a scheduled callback of the event loop, not a task. A daemon is
stopped by a sequence of such callbacks: it is requested to stop, then cancelled, then abandoned,
each after its own timeout; its exit ends the sequence.
"""

import abc
import asyncio
import logging
import warnings
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from typing import Any, Generic, NewType, Protocol, TypeVar

from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import ids, objects, patches, references, selectors
from kopf._core.actions import invocation, outcomes, progression
from kopf._core.engines.daemons import schedules
from kopf._core.intents import handlers, stoppers

HandlerT = TypeVar('HandlerT', bound=handlers.SpawningHandler)
Logger = logging.Logger | logging.LoggerAdapter[Any]

Key = NewType('Key', tuple[ids.HandlerId, int])
"""
The identifier of a daemon or timer within one object: different functions can have the same id.
"""


def identify(handler: handlers.SpawningHandler) -> Key:
    """Return the key of a daemon or timer: its id and function, however often declared."""
    return Key((handler.id, id(handler.fn)))


class Place(Protocol):
    """The link from the daemons of an object to the object's resource and worker."""

    @property
    def resource(self) -> references.Resource: ...

    @property
    def selectors(self) -> Collection[selectors.Selector] | None: ...

    def wake(self, body: objects.Body) -> None:
        """Queue the object to be handled again."""

    def note_patched(self, body: objects.Body, patched: Mapping[str, Any]) -> None:
        """Record the state of the object after our own changes."""


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
        'matching',
        'memo',
        'place',
        'running',
    )

    def __init__(
        self, key: Hashable, body: Mapping[str, Any], *, memo: Any, place: Place, now: float
    ) -> None:
        self.key, self.body = key, objects.Body(body)
        self.memo, self.place = memo, place
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
        self.matching, self.is_due = None, True

    def note_change(self, now: float) -> None:
        """Notify the timers that the object is not idle."""
        self.changed = now
        for task in self.running.values():
            task.note_change()

    def wake(self) -> None:
        """Queue the object to be handled again, if it still exists."""
        if not self.is_forgotten:
            self.place.wake(self.body)


class Crew(abc.ABC):
    """The services that daemons and timers need."""

    settings: settings_.OperatorSettings

    @abc.abstractmethod
    async def call(
        self, task: 'SpawnedTask[Any]', state: progression.HandlerState
    ) -> outcomes.Outcome:
        """Call the function once. Raises only cancellations of the task."""

    @abc.abstractmethod
    async def save(self, task: 'SpawnedTask[Any]', outcome: outcomes.Outcome) -> None:
        """Apply the changes made by the function to the object."""

    @abc.abstractmethod
    def get_initial_delay(self, task: 'SpawnedTask[Any]') -> float | None: ...

    @abc.abstractmethod
    def get_logger(self, task: 'SpawnedTask[Any]') -> Logger: ...

    @abc.abstractmethod
    def advance(
        self, state: progression.HandlerState, outcome: outcomes.Outcome
    ) -> progression.HandlerState: ...

    @abc.abstractmethod
    def remove(self, task: 'SpawnedTask[Any]') -> None:
        """Remove the daemon or timer after its end."""


class SpawnedTask(abc.ABC, Generic[HandlerT]):
    """One daemon or timer of one object."""

    __slots__ = (
        '_stopper',
        'crew',
        'daemons',
        'handler',
        'is_abandoned',
        'is_fresh',
        'is_removed',
        'patch',
        'task',
        'timer',
    )

    def __init__(self, handler: HandlerT, daemons: ObjectDaemons, crew: Crew) -> None:
        self.handler, self.daemons, self.crew = handler, daemons, crew
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
    def is_async(self) -> bool:
        return invocation.is_async(self.handler.fn)

    @property
    def is_interrupted(self) -> bool:
        """Whether it was cancelled or abandoned."""
        reason, kinds = self.stopper.reason, stoppers.DaemonStoppingReason
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
        """
        Request it to stop; it ends later, and the crew is notified. Repeated requests are harmless.
        """

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
        self.timer = asyncio.get_running_loop().call_later(max(0.0, delay), fn)

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

    def _remove(self) -> None:
        self._unset_timer()
        if not self.is_removed:
            self.is_removed = True
            del self.daemons.running[self.key]
            self.crew.remove(self)

    def _report(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.crew.get_logger(self).error(
                '%s has ended unexpectedly.', self.handler, exc_info=error
            )
        elif task.cancelled() and not self.is_interrupted:
            self.crew.get_logger(self).error(
                '%s was cancelled by someone else, and has ended.', self.handler
            )


class DaemonTask(SpawnedTask[handlers.DaemonHandler]):
    """
    A daemon: one task from the start to the end, including the retries and the delays between them.
    """

    __slots__ = ('is_saving',)

    def __init__(self, handler: handlers.DaemonHandler, daemons: ObjectDaemons, crew: Crew) -> None:
        super().__init__(handler, daemons, crew)
        self.is_saving = False  # whether the function has ended and its changes are being applied

    @property
    def grace(self) -> float:
        seconds = (self.handler.cancellation_backoff or 0) + (
            self.handler.cancellation_timeout or 0
        )
        return 0.0 if self.is_abandoned else seconds

    def start(self) -> None:
        self._spawn(self._run(), self._end)

    def stop(self, reason: stoppers.DaemonStoppingReason) -> None:
        is_asked = self.stopper.is_set()
        if self.handler.cancellation_backoff is not None:
            reason |= stoppers.DaemonStoppingReason.DAEMON_SIGNALLED
        self.stopper.set(reason)
        if not is_asked:
            self._wait_for_exit()

    async def _run(self) -> None:
        """
        Call the function until it ends or is requested to stop. Cancellations end it at any point.
        """
        if self.key not in self.daemons.delayed:
            await self._wait(self.crew.get_initial_delay(self))
        state = _BLANK
        while not self.stopper.is_set():
            self.daemons.note_delayed(self.key)
            outcome = await self.crew.call(self, state)
            self.is_saving = True
            await self.crew.save(self, outcome)
            self.is_saving = False
            state = self.crew.advance(state, outcome)
            if outcome.final and not self.stopper.is_set():
                self.daemons.note_finished(self.key)
                break
            await self._wait(outcome.delay)

    async def _wait(self, delay: float | None) -> None:
        if delay is not None and delay > 0:
            await self.stopper.wait(delay)
        else:
            await asyncio.sleep(0)  # functions that fail immediately must not block the event loop

    def _wait_for_exit(self) -> None:
        """Give it some time, usually none, to exit by itself before it is cancelled."""
        background = self.crew.settings.background
        if self.handler.cancellation_backoff is not None:
            self._set_timer(self.handler.cancellation_backoff, self._force)
        elif background.instant_exit_timeout is not None:
            self._set_timer(background.instant_exit_timeout, self._force)
        else:
            self._count_down(background.instant_exit_zero_time_cycles or 0)

    def _count_down(self, cycles: int) -> None:
        if cycles > 0:
            self.timer = asyncio.get_running_loop().call_soon(self._count_down, cycles - 1)
        else:
            self._force()

    def _force(self) -> None:
        """Cancel it, if configured and possible; otherwise, only log reminders."""
        timeout = self.handler.cancellation_timeout
        if timeout is None:
            self._set_timer(self._get_polling(), self._remind)
            return
        if self.is_async and self.task is not None and not self.is_saving:
            self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_CANCELLED)
            self.task.cancel()
        self._set_timer(timeout, self._abandon)

    def _remind(self) -> None:
        self.crew.get_logger(self).warning(
            '%s is still running, though it was asked to stop, and has no cancellation_timeout=.',
            self.handler,
        )
        self._set_timer(self._get_polling(), self._remind)

    def _get_polling(self) -> float:
        polling = self.handler.cancellation_polling
        return (
            polling if polling is not None else self.crew.settings.background.cancellation_polling
        )

    def _abandon(self) -> None:
        self.timer = None
        self.is_abandoned = True
        self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_ABANDONED)
        self.crew.get_logger(self).warning(
            '%s did not exit in time, and is left alone.', self.handler
        )
        self.daemons.wake()
        warnings.warn(
            f'{self.handler} did not exit in time, and is left alone.',
            ResourceWarning,
            stacklevel=2,
        )

    def _end(self, task: asyncio.Task[None]) -> None:
        self._report(task)
        self.stopper.set(stoppers.DaemonStoppingReason.DONE)
        self._remove()
        self.daemons.wake()


class TimerTask(SpawnedTask[handlers.TimerHandler]):
    """A timer: a task during its calls; a scheduled callback or nothing between them."""

    __slots__ = ('is_changed', 'is_waiting', 'state')

    def __init__(self, handler: handlers.TimerHandler, daemons: ObjectDaemons, crew: Crew) -> None:
        super().__init__(handler, daemons, crew)
        self.state = _BLANK  # of the current series of failures
        self.is_changed = False  # whether the object has changed since the last call began
        self.is_waiting = False  # for a change of the object

    def start(self) -> None:
        now = _read_clock()
        delay = self.crew.get_initial_delay(self) if self.key not in self.daemons.delayed else None
        due = schedules.choose_first(
            self.handler, now=now, delay=delay, changed=self.daemons.changed
        )
        self._set_timer(due - now, self._fire)

    def stop(self, reason: stoppers.DaemonStoppingReason) -> None:
        self.stopper.set(reason)
        self._unset_timer()
        if self.task is None:
            self._remove()

    def note_change(self) -> None:
        self.is_changed = True
        if self.is_waiting:
            self.is_waiting = False
            self._set_timer(
                schedules.postpone(self.handler, self.daemons.changed) - _read_clock(), self._fire
            )

    def _fire(self) -> None:
        """Call the function, unless the object has changed: then, wait until it is idle."""
        self.timer = None
        self.daemons.note_delayed(self.key)
        now, due = _read_clock(), schedules.postpone(self.handler, self.daemons.changed)
        if due > now:
            self._set_timer(due - now, self._fire)
        else:
            self._spawn(self._tick(), self._end)

    async def _tick(self) -> None:
        """
        Call the function once, and schedule the next call. If cancelled, there is no next call.
        """
        began, self.is_changed = _read_clock(), False
        outcome = await self.crew.call(self, self.state)
        ended = _read_clock()
        await self.crew.save(self, outcome)
        self.state = _BLANK if outcome.is_success else self.crew.advance(self.state, outcome)
        if self.stopper.is_set():
            return
        if outcome.is_success:
            self._plan(
                schedules.choose_next(
                    self.handler,
                    schedules.Call(
                        began=began,
                        ended=ended,
                        changed=self.daemons.changed,
                        is_changed=self.is_changed,
                    ),
                )
            )
        elif not outcome.is_failure:
            self._plan(ended + (outcome.delay or 0))
        else:
            self.daemons.note_finished(self.key)

    def _plan(self, due: float | None) -> None:
        if due is not None:
            self._set_timer(due - _read_clock(), self._fire)
        elif self.handler.idle is not None:
            self.is_waiting = True
        else:
            self.daemons.note_finished(self.key)

    def _end(self, task: asyncio.Task[None]) -> None:
        self.task = None
        self._report(task)
        if self.timer is None and not self.is_waiting:
            self._remove()
            self.daemons.wake()


_BLANK = progression.HandlerState()


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
