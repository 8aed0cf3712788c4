"""
Interruptions: SIGTERM while there is no operator yet to be stopped by it, as the users' code can be slow to load.

Without that, sandboxes would leave their files; and the first process of a container would not hear the signal at all.
"""

import signal
import threading
from types import FrameType, TracebackType
from typing import NoReturn


class Interruption:
    """
    A block of code that is ended by the signal, with the exit code of it, whatever the code makes of the interruption.

    Signals are taken only in the main thread of a process that has nothing else to do. It is until somebody else takes
    them: they are not given back.
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
        """Exit if there was the signal: some code suppresses all errors, or makes other errors of them."""
        if self._number is not None:
            raise SystemExit(128 + self._number) from None

    def _take(self, number: int, frame: FrameType | None) -> NoReturn:
        self._number = number
        raise SystemExit(128 + number)
