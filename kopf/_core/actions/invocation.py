"""
Invocation: calling users' functions, be they coroutines or not, and limiting their time.
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
    """Something that the function has awaited was cancelled, while nobody has cancelled the function itself."""


class Interruption(asyncio.CancelledError, TimeoutError):
    """
    How a coroutine is told that its time is over.

    For handlers, it is a timeout, as promised to them. For everything between a handler and its innermost await,
    it is a cancellation: otherwise, what asyncio and the libraries clean up only when cancelled would be left behind.
    """


def is_async(fn: Callable[..., Any]) -> bool:
    """Tell if the function is a coroutine function, however deep in partials, wrappers, methods or callable objects."""
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
    Call the function, and return what it returns: coroutines right here, others in a thread of the executor.

    Threads see the context variables of the caller as they are now; what they change there stays there.
    Threads cannot be interrupted: if cancelled, it ends at once, and the function goes on with nobody to hear of it,
    unless it is still waiting for a thread: then it is never called.
    If the caller knows whether it is a coroutine function, it is not found out again.
    Cancellations that do not come from the outside are errors of the function: raised as `InnerCancellationError`.
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
    Await the coroutine, but interrupt it after so many seconds, once, with `Interruption` where it awaits.

    It is up to the coroutine how it ends after that: with a result, with an error, or with that interruption,
    which comes out as `LimitError`. Cancellations from outside stay cancellations. Timeouts of the coroutine's own
    come out as they are.
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
    """Tell if it is not an error but a request to end, from the inside or from the outside."""
    return isinstance(error, asyncio.CancelledError)


def is_ending() -> bool:
    """Tell if the current task is asked to end; if not, a cancellation comes from something that it has awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_arguments(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Raise a clear `TypeError` if the function can never be called with arguments of these names."""
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
    """Run the coroutine as ``await`` does, but replace the cancellation that comes from the timeout."""
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
