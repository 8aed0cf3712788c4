"""
Interruptions: handle SIGTERM until the operator starts, as the users' code can be slow to load.

Without it, sandboxes would leave their files behind, and the first process of a container (PID 1)
would ignore the signal.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import NoReturn


class Interruption:
    """
    A block of code that SIGTERM ends with its exit code, even if the code suppresses the exception.

    The signal handler is set only in the main thread, and only if the process belongs to the
    command. It stays until another handler replaces it: the previous one is not restored.
    """

    def __init__(self, *, is_process: bool) -> None:
        self._is_process = is_process
        self._number: int | None = None

    def __enter__(self) -> 'Interruption':
        if self._is_process and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._take)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.check()

    def check(self) -> None:
        """Exit if the signal was received, even if the code has suppressed the exception."""
        if self._number is not None:
            raise SystemExit(128 + self._number) from None

    def _take(self, number: int, frame: FrameType | None) -> NoReturn:
        self._number = number
        raise SystemExit(128 + number)
