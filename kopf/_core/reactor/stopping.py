"""
Stopping: stops an operator by signals and flags, and kills it if it does not stop in time.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any

from kopf._cogs.aiokits import flags
from kopf._cogs.configs import settings as settings_

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

SAME_SIGNAL = 0.5
"""
Seconds within which signals count as one: e.g. when both a process and its group are signalled.
"""


class Stopper:
    """
    The waiter for the first signal to the process or for the stop-flag.

    The second signal ends the process immediately. So does a timer if the operator takes longer to
    stop than its settings allow; the timer is started by every reason to stop except for the
    stop-flag. Signals are handled only in the main thread, for all operators there; the previous
    signal handlers are restored.
    """

    def __init__(
        self, settings: settings_.OperatorSettings, flag: flags.Flag | None = None
    ) -> None:
        self._settings = settings
        self._flag = flag
        self._loop = asyncio.get_running_loop()
        self._signalled = asyncio.Event()
        self._alarm: threading.Timer | None = None
        self._is_flagged = False
        self.is_signalled = False  # even if the event loop is not notified yet

    async def __aenter__(self) -> 'Stopper':
        if threading.current_thread() is threading.main_thread():
            _switchboard.connect(self)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if _switchboard.is_final:
            self.is_signalled = True
            self.limit_exit()
            return
        _switchboard.disconnect(self)
        if self._alarm is not None:
            self._alarm.cancel()

    async def wait(self) -> None:
        """Wait for a signal or the stop-flag. Can be repeated. Raises errors of the flag."""
        waiters: list[asyncio.Task[bool]] = [
            asyncio.create_task(self._wait_for_signal(), name='signals')
        ]
        if self._flag is not None:
            waiters.append(asyncio.create_task(self._wait_for_flag(self._flag), name='stop-flag'))
        try:
            done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            for waiter in done:
                waiter.result()
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.wait(waiters)

    def limit_exit(self) -> None:
        """
        Start the exit timer, unless the stop-flag is the reason or the timer is already started.
        """
        timeout = self._settings.process.ultimate_exiting_timeout
        if timeout is not None and self._alarm is None and not self._is_flagged:
            self._alarm = threading.Timer(timeout, _kill, args=(timeout,))
            self._alarm.daemon = True
            self._alarm.start()

    def take_signal(self, number: signal.Signals) -> None:
        """
        Request the operator to stop. It interrupts arbitrary code, so it only schedules a callback.
        """
        self.is_signalled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing to stop
            self._loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: signal.Signals) -> None:
        logger.info(
            'Signal %s is received. The operator is stopping; the next signal will end it at once.',
            number.name,
        )
        self._signalled.set()
        self.limit_exit()

    async def _wait_for_signal(self) -> bool:
        return await self._signalled.wait()

    async def _wait_for_flag(self, flag: flags.Flag) -> bool:
        await flags.wait_until_raised(flag)
        logger.info('The stop-flag is raised. The operator is stopping.')
        self._is_flagged = True
        return True


class _Switchboard:
    """
    The dispatcher of signals to all operators of the main thread; belongs to that thread.

    The signal handlers of the event loop are not used: they are delayed if the loop is blocked, and
    cannot be restored.
    """

    def __init__(self) -> None:
        self._stoppers: list[Stopper] = []
        self._previous: dict[signal.Signals, Any] = {}
        self._taken = 0.0  # the time of the last accepted signal
        self.is_final = False  # whether the process exists only for the operator

    def connect(self, stopper: Stopper) -> None:
        if not self._stoppers:
            self._previous = {number: signal.signal(number, self._take) for number in SIGNALS}
        self._stoppers.append(stopper)

    def disconnect(self, stopper: Stopper) -> None:
        if stopper not in self._stoppers:
            return
        self._stoppers.remove(stopper)
        if not self._stoppers:
            for number, previous in self._previous.items():
                # Otherwise, other code has replaced our signal handler in the meantime.
                if signal.getsignal(number) == self._take:
                    signal.signal(number, previous if previous is not None else signal.SIG_DFL)

    def _take(self, number: int, frame: FrameType | None) -> None:
        is_same = time.monotonic() - self._taken <= SAME_SIGNAL
        if any(stopper.is_signalled for stopper in self._stoppers) and not is_same:
            # Not here: this thread can be in the middle of logging or of other code that holds
            # locks.
            threading.Thread(
                target=_exit_by_signal, args=(signal.Signals(number),), name='exit', daemon=True
            ).start()

        for stopper in self._stoppers:
            if not stopper.is_signalled:
                self._taken = time.monotonic()
                stopper.take_signal(signal.Signals(number))


_switchboard = _Switchboard()


def end_with_operator() -> None:
    """
    Make the process end with its operator: the exit timer and the second signal work until the end.

    Otherwise, threads and tasks that never end would keep the process running forever after the
    operator.
    """
    _switchboard.is_final = True


def is_ending_with_operator() -> bool:
    """Return whether the process exists only for the operator."""
    return _switchboard.is_final


_sudden: list[Callable[[], object]] = []


@contextlib.contextmanager
def sudden_exit(fn: Callable[[], object]) -> Iterator[None]:
    """Call this function, in any thread, if the process is killed while the block is executed."""
    _sudden.append(fn)
    try:
        yield
    finally:
        _sudden.remove(fn)


def _call_sudden() -> None:
    for fn in list(_sudden):
        with contextlib.suppress(Exception):
            fn()


def exit_at_once(code: int) -> None:
    """End the process regardless of anything still running, but flush the logs and the streams."""
    try:
        _call_sudden()
        with contextlib.suppress(Exception):
            logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    finally:
        os._exit(code)


def _exit_by_signal(number: signal.Signals) -> None:
    logger.warning('Signal %s came again. Exiting at once.', number.name)
    exit_at_once(128 + number)


def _kill(timeout: float) -> None:
    try:
        logger.error('The operator has not exited in %s s, and is killed.', timeout)
        _call_sudden()
        logging.shutdown()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
