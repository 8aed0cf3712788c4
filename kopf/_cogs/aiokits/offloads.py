"""
Offloads: long CPU-bound functions, executed outside of the event loop.

There is one thread for data from the cluster, and two threads for all other clients, which must not
delay it: one for large data, and one for data that must not wait for the large one. More threads
would not make it faster, as only one at a time holds the interpreter, but would make the event loop
wait longer for its turn. Functions in C hold the interpreter for their whole duration, so only
those with short durations are suitable for the threads.

The default executor of the event loop is not used: handlers can occupy all its threads for any
time.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import os
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from kopf._cogs.helpers import documents, pieces

P = ParamSpec('P')
ResultT = TypeVar('ResultT')


class Run(Protocol):
    """
    A way to call a function, after the previously queued ones; it returns and raises the same as
    the function.

    If cancelled, the function is not called; a function that is already running continues, but its
    result is lost.
    """

    async def __call__(
        self, fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultT: ...


def choose_run(size: int) -> Run:
    """Choose where to scan a document of an untrusted client, of this size in bytes."""
    if size <= pieces.PIECE_SIZE:
        return run_here
    return run_aside if size <= documents.LARGE else run_far_aside


async def run_here(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Call the function immediately: that is faster than switching to a thread."""
    return fn(*args, **kwargs)


async def run_aside(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Call the function in the thread for calls of milliseconds."""
    call = functools.partial(contextvars.copy_context().run, fn, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_executor('kopf-aside'), call)


async def run_far_aside(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Call the function in the thread for calls of up to seconds."""
    call = functools.partial(contextvars.copy_context().run, fn, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_executor('kopf-far-aside'), call)


async def read_aside(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """
    Call the function in the thread for data from the cluster or needed to reach it; otherwise as
    `run_aside`.
    """
    call = functools.partial(fn, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_executor('kopf-reading'), call)


def leave_aside(fn: Callable[[], None]) -> None:
    """Schedule the function in the thread for calls of milliseconds. It must not fail."""
    _get_executor('kopf-aside').submit(fn)


@functools.cache
def _get_executor(name: str) -> concurrent.futures.Executor:
    return concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


# Forked children have no threads to execute the calls.
if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_get_executor.cache_clear)
