"""
Stoppers: the stop-flags of daemons and timers, with the reasons to stop.

The framework holds a `DaemonStopper`, which can only be set, never cleared. Handlers get its
`DaemonStopped`, which can only be read and waited for, in the way that suits the handler: blocking
in threads, awaiting in coroutines.
"""

import abc
import enum
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # At runtime, it is imported where it is needed: declarations of handlers do not need it.
    import asyncio


class DaemonStoppingReason(enum.Flag):
    """The reasons to stop a daemon; there can be several of them."""

    DONE = enum.auto()  # it has ended by itself
    FILTERS_MISMATCH = enum.auto()  # its object no longer matches the filters
    RESOURCE_DELETED = enum.auto()  # its object is deleted or is being deleted
    OPERATOR_PAUSING = enum.auto()  # another operator handles the objects for now
    OPERATOR_EXITING = enum.auto()  # the operator is exiting
    # It was requested to stop, and has cancellation_backoff= to do so.
    DAEMON_SIGNALLED = enum.auto()
    DAEMON_CANCELLED = enum.auto()  # it was cancelled, as it did not stop on request
    DAEMON_ABANDONED = enum.auto()  # it is no longer waited for


class DaemonStopper:
    """The framework's side of a stop-flag. Set only in the event loop; read in any thread."""

    def __init__(self) -> None:
        self.reason: DaemonStoppingReason | None = None
        self._threads = threading.Event()
        self._tasks: asyncio.Event | None = None  # created for the first waiter

    def is_set(self) -> bool:
        return self.reason is not None

    def set(self, reason: DaemonStoppingReason) -> None:
        """Stop the daemon for this reason, in addition to the previous reasons, if any."""
        self.reason = reason if self.reason is None else self.reason | reason
        self._threads.set()
        if self._tasks is not None:
            self._tasks.set()

    def block(self, timeout: float | None) -> None:
        """Block the thread until the flag is set or the time is over."""
        self._threads.wait(timeout)

    async def wait(self, timeout: float | None) -> None:
        """
        Wait until the flag is set or the time is over, with no difference between the two.

        Any number of tasks of the operator's event loop may wait; cancelling one does not affect
        the others.
        """
        import asyncio

        if self._tasks is None:
            self._tasks = asyncio.Event()
            if self.is_set():
                self._tasks.set()

        try:
            async with asyncio.timeout(timeout):
                await self._tasks.wait()
        except TimeoutError:
            pass


class DaemonStopped(abc.ABC):
    """
    The stop-flag of a daemon or a timer: ``while not stopped: ...``.

    It is false until the stop is requested, and true after that.
    """

    def __init__(self, stopper: DaemonStopper) -> None:
        self._stopper = stopper

    def __repr__(self) -> str:
        return f'<{type(self).__name__}: {self.reason}>'

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        """Return whether the stop is requested."""
        return self._stopper.is_set()

    @property
    def reason(self) -> DaemonStoppingReason | None:
        """All reasons to stop so far, combined; ``None`` if there are none."""
        return self._stopper.reason

    @abc.abstractmethod
    def wait(self, timeout: float | None = None) -> Any:
        """
        Wait until the stop is requested or the time is over; the latter is not an error.

        Returns the flag itself: directly in sync functions, as an awaitable in async ones.
        """


class SyncDaemonStopped(DaemonStopped):
    """The stop-flag of functions that run in threads."""

    def wait(self, timeout: float | None = None) -> 'SyncDaemonStopped':
        self._stopper.block(timeout)
        return self


class AsyncDaemonStopped(DaemonStopped):
    """The stop-flag of coroutine functions."""

    def wait(self, timeout: float | None = None) -> 'Awaitable[AsyncDaemonStopped]':
        return self._wait(timeout)

    async def _wait(self, timeout: float | None) -> 'AsyncDaemonStopped':
        await self._stopper.wait(timeout)
        return self


SyncDaemonStopperChecker = SyncDaemonStopped  # both are older names, for users' annotations
AsyncDaemonStopperChecker = AsyncDaemonStopped
