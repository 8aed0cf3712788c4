"""
Timer tasks: an asyncio task for each call of a timer, but none between the calls.

Between the calls, a timer is a scheduled callback of the event loop.
"""

import asyncio

from kopf._core.engines.daemons import schedules, tasks
from kopf._core.intents import handlers, stoppers


class TimerTask(tasks.SpawnedTask[handlers.TimerHandler]):
    """A timer: a task during its calls; a scheduled callback or nothing between them."""

    __slots__ = ('is_changed', 'is_waiting', 'state')

    def __init__(
        self, handler: handlers.TimerHandler, daemons: tasks.ObjectDaemons, runtime: tasks.Runtime
    ) -> None:
        super().__init__(handler, daemons, runtime)
        self.state = tasks.BLANK  # of the current series of failures
        self.is_changed = False  # whether the object has changed since the last call began
        self.is_waiting = False  # for a change of the object

    def start(self) -> None:
        now = _read_clock()
        delay = self._get_initial_delay() if self.key not in self.daemons.delayed else None
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
        now = _read_clock()
        due = schedules.postpone(self.handler, self.daemons.changed)

        if due > now:
            self._set_timer(due - now, self._fire)
        else:
            self._spawn(self._tick(), self._end)

    async def _tick(self) -> None:
        """
        Call the function once, and schedule the next call. If cancelled, there is no next call.
        """
        began = _read_clock()
        self.is_changed = False
        outcome = await self._call(self.state)
        ended = _read_clock()
        await self._save(outcome)
        self.state = tasks.BLANK if outcome.is_success else self._advance(self.state, outcome)
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
            self._note_finished(outcome)

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
            self.daemons.requeue()


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
