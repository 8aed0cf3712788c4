"""
Threads: executors for functions that must neither wait for free threads nor block other functions.
"""

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any


class OwnThreads(concurrent.futures.Executor):
    """An executor with a new named thread for each function; exits do not wait for them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> 'concurrent.futures.Future[Any]':
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future
