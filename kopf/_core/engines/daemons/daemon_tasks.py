"""
Daemon tasks: one asyncio task from the start to the end of a daemon.

A daemon is stopped by a sequence of scheduled callbacks: it is requested to stop, then cancelled,
then abandoned, each after its own timeout; its exit ends the sequence.
"""

import asyncio
import warnings

from kopf._core.engines.daemons import tasks
from kopf._core.intents import handlers, stoppers


class DaemonTask(tasks.SpawnedTask[handlers.DaemonHandler]):
    """
    A daemon: one task from the start to the end, including the retries and the delays between them.
    """

    __slots__ = ('is_saving',)

    def __init__(
        self, handler: handlers.DaemonHandler, daemons: tasks.ObjectDaemons, runtime: tasks.Runtime
    ) -> None:
        super().__init__(handler, daemons, runtime)
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
            await self._wait(self._get_initial_delay())
        state = tasks.BLANK
        while not self.stopper.is_set():
            self.daemons.note_delayed(self.key)
            outcome = await self._call(state)
            self.is_saving = True
            await self._save(outcome)
            self.is_saving = False
            state = self._advance(state, outcome)
            if outcome.final and not self.stopper.is_set():
                self._note_finished(outcome)
                break
            await self._wait(outcome.delay)

    async def _wait(self, delay: float | None) -> None:
        if delay is not None and delay > 0:
            await self.stopper.wait(delay)
        else:
            await asyncio.sleep(0)  # functions that fail immediately must not block the event loop

    def _wait_for_exit(self) -> None:
        """Give it some time, usually none, to exit by itself before it is cancelled."""
        background = self.runtime.settings.background
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
        self.logger.warning(
            '%s is still running, though it was asked to stop, and has no cancellation_timeout=.',
            self.handler,
        )
        self._set_timer(self._get_polling(), self._remind)

    def _get_polling(self) -> float:
        polling = self.handler.cancellation_polling
        return (
            polling
            if polling is not None
            else self.runtime.settings.background.cancellation_polling
        )

    def _abandon(self) -> None:
        self.timer = None
        self.is_abandoned = True
        self.stopper.set(stoppers.DaemonStoppingReason.DAEMON_ABANDONED)
        self.logger.warning('%s did not exit in time, and is left alone.', self.handler)
        self.daemons.requeue()
        warnings.warn(
            f'{self.handler} did not exit in time, and is left alone.',
            ResourceWarning,
            stacklevel=2,
        )

    def _end(self, task: asyncio.Task[None]) -> None:
        self._report(task)
        self.stopper.set(stoppers.DaemonStoppingReason.DONE)
        self._remove()
        self.daemons.requeue()
