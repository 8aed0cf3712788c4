"""
Threads: an event loop beside synchronous code.
"""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar('T')


def choose_loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the fastest event loop that is installed."""
    try:
        import uvloop
    except ImportError:
        return lambda: _with_forgiveness(asyncio.new_event_loop())
    return lambda: _with_forgiveness(uvloop.new_event_loop())


def _with_forgiveness(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """
    Do not log errors about TLS connections that the sandbox itself has cut while clients are still
    sending.

    Unlike asyncio, uvloop logs them with a traceback:
    https://github.com/MagicStack/uvloop/issues/506.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get('exception')
        if isinstance(error, RuntimeError) and str(error).endswith(
            ('the handler is closed', 'loop is closed')
        ):
            logger.debug('A connection was cut: %s', error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    return loop


class EndedError(RuntimeError):
    """The loop has ended before or while a call was running in it."""

    def __init__(self) -> None:
        super().__init__('The sandbox is no longer running.')


class LoopThread:
    """
    A daemon thread with an event loop. Started and stopped once, by the same thread.

    When it is stopped, all remaining tasks in the loop are cancelled and awaited.
    """

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._started: concurrent.futures.Future[asyncio.AbstractEventLoop] = (
            concurrent.futures.Future()
        )
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stopping = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, and wait until its loop is running."""
        self._thread.start()
        self._started.result()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """
        Run a coroutine in the loop to its end; return its result or raise its error.

        Any number of threads may call at once. The coroutine is cancelled if the calling thread is
        interrupted.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError('The synchronous sandbox cannot be used from its own event loop.')

        if not self.is_running:
            coroutine.close()
            raise RuntimeError('The sandbox is not running.')

        timely = self._run_in_time(coroutine)
        try:
            future = asyncio.run_coroutine_threadsafe(timely, self._started.result())
        except RuntimeError as e:  # the loop is being closed
            timely.close()
            coroutine.close()
            raise EndedError from e

        return self._wait_for(future, timely, coroutine)

    async def _run_in_time(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, unless the loop is about to end: nothing would clean up after it."""
        if self._stopping.is_set():
            coroutine.close()
            raise EndedError
        return await coroutine

    def _wait_for(
        self, future: concurrent.futures.Future[T], *coroutines: Coroutine[Any, Any, T]
    ) -> T:
        either: list[concurrent.futures.Future[Any]] = [future, self._ended]
        try:
            concurrent.futures.wait(either, return_when=concurrent.futures.FIRST_COMPLETED)
        except BaseException:
            future.cancel()
            raise

        # Only the end of the loop cancels the tasks in it.
        if not future.done() or future.cancelled():
            for coroutine in coroutines:  # they may have not started
                coroutine.close()
            raise EndedError

        return future.result()

    def stop(self) -> None:
        """Stop the loop and the thread, and wait for their end. Does nothing if stopped already."""
        if self.is_running:
            self._started.result().call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=choose_loop_factory()) as runner:
                runner.run(self._live())
        except BaseException as e:  # e.g. if there are no file descriptors left for a loop
            if self._started.done():
                raise
            self._started.set_exception(e)
        finally:
            self._ended.set_result(None)

    async def _live(self) -> None:
        self._started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
