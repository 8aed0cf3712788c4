"""
Lives: the daemons and timers of one object, from their start to their end.

Between the calls, a timer is one entry in the schedule of the event loop, not a task. The stopping of a daemon is a
sequence of such entries: it is asked, then cancelled, then abandoned, each after its own time; its exit ends them all.
"""
import abc
import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import bodies, ids, patches
from kopf._core.actions import invocation, outcomes, progression
from kopf._core.engines import schedules
from kopf._core.intents import handlers, stoppers

HandlerT = TypeVar('HandlerT', bound=handlers.SpawningHandler)
Logger = logging.Logger | logging.LoggerAdapter[Any]


class Lives:
    """
    All daemons and timers of one object, and what they know of it. Changed only in the event loop of the operator.

    The body is live: it is replaced as the object changes, for all who hold it.
    """
    __slots__ = ('body', 'changed', 'delayed', 'finished', 'is_due', 'memo', 'running', 'wake')

    def __init__(self, body: bodies.RawBody, *, memo: Any, now: float, wake: Callable[[bodies.Body], None]) -> None:
        self.body = bodies.Body(body)
        self.memo = memo
        self.running: dict[ids.HandlerId, Life[Any]] = {}
        self.finished: set[ids.HandlerId] = set()  # not to be started again while the object exists
        self.delayed: set[ids.HandlerId] = set()  # those whose initial delay is over
        self.changed = now  # when the object has changed for the last time
        self.is_due = True  # is it to be decided which of them should live?
        self.wake = wake  # has the object handled when something ends

    def note_change(self, now: float) -> None:
        """Let the timers know that the object is not idle."""
        self.changed = now
        for life in self.running.values():
            life.note_change()


class Crew(abc.ABC):
    """What lives need from the outside."""
    settings: settings_.OperatorSettings

    @abc.abstractmethod
    async def attempt(self, life: 'Life[Any]', state: progression.HandlerState) -> outcomes.Outcome:
        """Call the function once, and apply its changes to the object."""

    @abc.abstractmethod
    def get_initial_delay(self, life: 'Life[Any]') -> float | None: ...

    @abc.abstractmethod
    def get_logger(self, life: 'Life[Any]') -> Logger: ...

    @abc.abstractmethod
    def advance(self, state: progression.HandlerState, outcome: outcomes.Outcome) -> progression.HandlerState: ...

    @abc.abstractmethod
    def bury(self, life: 'Life[Any]') -> None:
        """Take notice that it does not live any more, or is not waited for."""


class Life(abc.ABC, Generic[HandlerT]):
    """One daemon or timer of one object."""
    __slots__ = ('_stopper', 'crew', 'handler', 'is_buried', 'lives', 'patch', 'task', 'timer')

    def __init__(self, handler: HandlerT, lives: Lives, crew: Crew) -> None:
        self.handler, self.lives, self.crew = handler, lives, crew
        self._stopper: stoppers.DaemonStopper | None = None  # there are many timers, and few of them run
        self.patch: patches.Patch | None = None  # what is left to be applied by the next call
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.Handle | None = None
        self.is_buried = False

    @property
    def stopper(self) -> stoppers.DaemonStopper:
        if self._stopper is None:
            self._stopper = stoppers.DaemonStopper()
        return self._stopper

    @property
    def is_stopping(self) -> bool:
        return self._stopper is not None and self._stopper.is_set()

    @property
    def is_async(self) -> bool:
        return invocation.is_async(self.handler.fn)

    @property
    def stopped(self) -> stoppers.DaemonStopped:
        """The stop-flag, such as fits the function."""
        return (stoppers.AsyncDaemonStopped if self.is_async else stoppers.SyncDaemonStopped)(self.stopper)

    @property
    def grace(self) -> float:
        """How many seconds the stopping takes at most, if there is a limit."""
        return 0.0

    @abc.abstractmethod
    def start(self) -> None: ...

    @abc.abstractmethod
    def stop(self, reason: stoppers.DaemonStoppingReason) -> None:
        """Ask it to stop; it is done later, with the crew notified. It is harmless to ask again."""

    def note_change(self) -> None:
        """Take notice that the object has changed: most do not care."""

    def cancel(self) -> None:
        """Make it end at once, as far as possible."""
        self._unset_timer()
        if self.task is not None:
            self.task.cancel()

    def _set_timer(self, delay: float, fn: Callable[[], None]) -> None:
        self._unset_timer()
        self.timer = asyncio.get_running_loop().call_later(max(0.0, delay), fn)

    def _unset_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _spawn(self, coro: Awaitable[None], end: Callable[[asyncio.Task[None]], None]) -> None:
        async def run() -> None:
            await coro
        self.task = asyncio.create_task(run(), name=f'{self.handler.id} of {self.lives.body.metadata.name}')
        self.task.add_done_callback(end)

    def _bury(self) -> None:
        """No one waits for it from now on."""
        self._unset_timer()
        if not self.is_buried:
            self.is_buried = True
            self.lives.running.pop(self.handler.id, None)
            self.crew.bury(self)
            self.lives.wake(self.lives.body)

    def _report(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.crew.get_logger(self).error("%s has ended unexpectedly.", self.handler, exc_info=error)


class DaemonLife(Life[handlers.DaemonHandler]):
    """A daemon: a task from the start to the end, with its retries and the delays between them."""
    __slots__ = ()

    @property
    def grace(self) -> float:
        return (self.handler.cancellation_backoff or 0) + (self.handler.cancellation_timeout or 0)

    def start(self) -> None:
        self._spawn(self._run(), self._end)

    def stop(self, reason: stoppers.DaemonStoppingReason) -> None:
        is_asked = self.stopper.is_set()
        self.stopper.set(reason)
        if not is_asked and not self.is_buried:
            self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_SIGNALLED)
            self._wait_for_instant_exit()

    async def _run(self) -> None:
        if self.handler.id not in self.lives.delayed:
            await self._wait(self.crew.get_initial_delay(self))
            self.lives.delayed.add(self.handler.id)
        state = progression.HandlerState()
        while not self.stopper.is_set():
            outcome = await self.crew.attempt(self, state)
            state = self.crew.advance(state, outcome)
            if outcome.final:
                if not self.stopper.is_set():
                    self.lives.finished.add(self.handler.id)
                break
            await self._wait(outcome.delay)

    async def _wait(self, delay: float | None) -> None:
        if delay:
            await self.stopper.wait(delay)

    def _wait_for_instant_exit(self) -> None:
        """Give it some time, usually none, to exit by itself before anything else is done."""
        background = self.crew.settings.background
        if self.handler.cancellation_backoff is not None:
            self._set_timer(self.handler.cancellation_backoff, self._force)
        elif background.instant_exit_timeout is not None:
            self._set_timer(background.instant_exit_timeout, self._force)
        else:
            self._count_down(background.instant_exit_zero_time_cycles or 0)

    def _count_down(self, cycles: int) -> None:
        if self.is_buried:
            return
        if cycles > 0:
            self.timer = asyncio.get_running_loop().call_soon(self._count_down, cycles - 1)
        else:
            self._force()

    def _force(self) -> None:
        """Cancel it, if it is allowed to and can be; otherwise, only remind of it."""
        timeout = self.handler.cancellation_timeout
        if timeout is None:
            self._set_timer(self._get_polling(), self._remind)
            return
        if self.is_async and self.task is not None:
            self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_CANCELLED)
            self.task.cancel()
        self._set_timer(timeout, self._abandon)

    def _remind(self) -> None:
        self.crew.get_logger(self).warning(
            "%s is still running, though it was asked to stop, and has no cancellation_timeout=.", self.handler)
        self._set_timer(self._get_polling(), self._remind)

    def _get_polling(self) -> float:
        polling = self.handler.cancellation_polling
        return polling if polling is not None else self.crew.settings.background.cancellation_polling

    def _abandon(self) -> None:
        self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_ABANDONED)
        self.crew.get_logger(self).warning("%s did not exit in time, and is left alone.", self.handler)
        self._bury()
        warnings.warn(f"{self.handler} did not exit in time, and is left alone.", ResourceWarning, stacklevel=2)

    def _end(self, task: asyncio.Task[None]) -> None:
        self.stopper.set(stoppers.DaemonStoppingReason.DONE)
        self._report(task)
        self._bury()


class TimerLife(Life[handlers.TimerHandler]):
    """A timer: a task only while its function is called; an entry in the schedule, or nothing, between the calls."""
    __slots__ = ('is_waiting', 'state')

    def __init__(self, handler: handlers.TimerHandler, lives: Lives, crew: Crew) -> None:
        super().__init__(handler, lives, crew)
        self.state = _BLANK  # of the current row of failures
        self.is_waiting = False  # for a change of the object

    def start(self) -> None:
        now = _read_clock()
        is_first = self.handler.id not in self.lives.delayed
        delay = self.crew.get_initial_delay(self) if is_first else None
        self._set_timer(
            schedules.choose_first(self.handler, now=now, delay=delay, changed=self.lives.changed) - now, self._fire)

    def stop(self, reason: stoppers.DaemonStoppingReason) -> None:
        self.stopper.set(reason)
        self._unset_timer()
        if self.task is None:
            self._bury()

    def note_change(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self._set_timer(schedules.postpone(self.handler, self.lives.changed) - _read_clock(), self._fire)

    def _fire(self) -> None:
        self.timer = None
        self.lives.delayed.add(self.handler.id)
        due = schedules.postpone(self.handler, self.lives.changed)
        if not self.state.retries and due > _read_clock():
            self._set_timer(due - _read_clock(), self._fire)
        else:
            self._spawn(self._tick(), self._end)

    async def _tick(self) -> None:
        """Call the function once, and plan the next call."""
        began, seen = _read_clock(), self.lives.changed
        outcome = await self.crew.attempt(self, self.state)
        self.state = self.crew.advance(self.state, outcome) if not outcome.is_success else _BLANK
        if outcome.is_failure:
            self.lives.finished.add(self.handler.id)
        elif outcome.is_success:
            due = schedules.choose_next(
                self.handler, began=began, ended=_read_clock(), changed=self.lives.changed, seen=seen)
            self._plan(due)
        else:
            self._plan(_read_clock() + (outcome.delay or 0))

    def _plan(self, due: float | None) -> None:
        if self.stopper.is_set():
            return
        if due is not None:
            self._set_timer(due - _read_clock(), self._fire)
        elif self.handler.idle is not None:
            self.is_waiting = True
        else:
            self.lives.finished.add(self.handler.id)

    def _end(self, task: asyncio.Task[None]) -> None:
        self.task = None
        self._report(task)
        if self.timer is None and not self.is_waiting:
            self._bury()


_BLANK = progression.HandlerState()


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
