"""
Invocation: calls users' functions, both coroutines and synchronous ones, and limits their time.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, TypeVar

from kopf._core.actions import signatures

ResultT = TypeVar('ResultT')


class LimitError(Exception):
    """The time given to a coroutine is over, and the coroutine has ended because of that."""


class InnerCancellationError(Exception):
    """An awaitable inside the function was cancelled, but the function itself was not."""


class Interruption(asyncio.CancelledError, TimeoutError):
    """
    The exception thrown into a coroutine when its time is over.

    For handlers, it is a timeout, as documented. For all code between a handler and its innermost
    await, it is a cancellation: otherwise, the cleanup that asyncio and libraries do only on
    cancellation would be skipped.
    """


def is_async(fn: Callable[..., Any]) -> bool:
    """
    Return whether it is a coroutine function, inside any partials, wrappers, methods or callables.
    """
    if inspect.iscoroutinefunction(fn):
        return True
    if isinstance(fn, functools.partial):
        return is_async(fn.func)
    if hasattr(fn, '__wrapped__'):
        return is_async(fn.__wrapped__)
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return False
    return is_async(type(fn).__call__)


async def invoke(
    fn: Callable[..., Any],
    *args: Any,
    executor: concurrent.futures.Executor | None = None,
    kwargs: Mapping[str, Any] | None = None,
    is_coroutine: bool | None = None,
) -> Any:
    """
    Call the function and return its result: coroutines here, others in the executor's threads.

    Threads get a copy of the caller's context variables; their changes of it are not seen by the
    caller. Threads cannot be interrupted: if cancelled, the call ends immediately, and the function
    continues with its result ignored; if it still waits for a thread, it is never called.
    ``is_coroutine`` saves the detection if the caller knows the answer. Cancellations that do not
    come from the outside are errors of the function: raised as `InnerCancellationError`.
    """
    call = functools.partial(fn, *args, **(kwargs or {}))
    try:
        if is_async(fn) if is_coroutine is None else is_coroutine:
            result = call()
            is_awaited = type(result) is types.CoroutineType or inspect.isawaitable(result)
            return await result if is_awaited else result
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(executor, context.run, _call_in_thread, call)
    except asyncio.CancelledError as error:
        if is_ending() or isinstance(error, Interruption):
            raise
        raise InnerCancellationError('Something that it has awaited was cancelled.') from error


async def limit(coro: Coroutine[Any, Any, ResultT], seconds: float) -> ResultT:
    """
    Await the coroutine, but interrupt it once after these seconds with `Interruption`.

    The coroutine decides how it ends after that: with a result, with an error, or with the
    interruption, which is raised as `LimitError`. Cancellations from outside stay cancellations.
    The coroutine's own timeouts are raised as they are.
    """
    timeout = asyncio.timeout(seconds)
    try:
        async with timeout:
            return await _interrupt(coro, timeout)
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise LimitError(f'It has taken more than {seconds:g} seconds.') from error


def is_cancellation(error: BaseException) -> bool:
    """Return whether the error is a cancellation, from the inside or from the outside."""
    return isinstance(error, asyncio.CancelledError)


def is_ending() -> bool:
    """Return whether the current task is being cancelled; if not, its awaitable was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_arguments(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Raise a clear `TypeError` if the function can never be called with these argument names."""
    signature = signatures.read_signature(fn)
    mismatch = None if signature is None else signatures.find_mismatch(signature, kwargs)
    if signature is not None and mismatch is not None:
        hint = signatures.suggest(signature.required.difference(kwargs), kwargs)
        raise TypeError(f'The function {mismatch}.{hint} It gets: {", ".join(kwargs)}.') from None


def _call_in_thread(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration as error:  # futures refuse to carry it
        raise RuntimeError('The function raised StopIteration.') from error


@types.coroutine
def _interrupt(
    coro: Coroutine[Any, Any, ResultT], timeout: asyncio.Timeout
) -> Generator[Any, Any, ResultT]:
    """
    Run the coroutine as ``await`` does, but replace the cancellation that comes from the timeout.
    """
    task = asyncio.current_task()
    assert task is not None
    expected = task.cancelling() + 1
    error: BaseException | None = None

    while True:
        try:
            waited = coro.send(None) if error is None else coro.throw(error)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        error = None
        try:
            yield waited
        except asyncio.CancelledError as cancellation:
            is_ours = timeout.expired() and task.cancelling() == expected
            error = Interruption('The time of the handler is over.') if is_ours else cancellation
        except BaseException as unexpected:
            error = unexpected
