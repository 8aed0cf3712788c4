"""
Guards: a process that has lost its leadership does not outlive it for long.

Handlers that block the event loop, or that run in threads, cannot be interrupted; other replicas
wait for no longer than the Lease lasts. So, a thread ends the whole process in time. This is only
for processes that exist for nothing but the operator.
"""

import logging
import threading
from collections.abc import Callable

from kopf._cogs.clients import fences

logger = logging.getLogger(__name__)


class Guard:
    """
    The watch over one leadership, in a thread of its own.

    ``leave`` is called, in that thread, if the leader neither renews the Lease nor is dismissed for
    some seconds beyond the deadline of the fence.
    """

    def __init__(self, fence: fences.Fence, margin: float, *, leave: Callable[[], None]) -> None:
        self._fence = fence
        self._margin = margin
        self._leave = leave
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name='guard of leadership', daemon=True)

    def start(self) -> None:
        self._thread.start()

    def dismiss(self) -> None:
        """End the watch: the operator has stopped its handlers."""
        self._is_over.set()

    def _watch(self) -> None:
        while (remaining := self._fence.measure_rest() + self._margin) > 0:
            if self._is_over.wait(min(remaining, threading.TIMEOUT_MAX)):
                return

        logger.critical(
            'The operator is blocked, and has lost its leadership %.1f s ago. Exiting at once.',
            -self._fence.measure_rest(),
        )
        self._leave()
