"""
Turns: whether the event loop has run anything else in the meantime.

Until it has, nothing could happen in other tasks, threads or connections that this task would
notice.
"""

import asyncio
from types import TracebackType


class Turn:
    """A stretch of one task: ``with Turn() as turn: await fn()``, then ``turn.is_over``."""

    __slots__ = ('_handle', 'is_over')

    def __init__(self) -> None:
        self._handle: asyncio.Handle | None = None
        self.is_over = False  # whether the event loop has turned since the beginning

    def __enter__(self) -> 'Turn':
        self._handle = asyncio.get_running_loop().call_soon(self._end)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _end(self) -> None:
        self.is_over = True
