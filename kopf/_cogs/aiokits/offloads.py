"""
Offloads: what takes long but needs no waiting, done beside the event loop.

There is one thread for what comes from the cluster, and two for all other clients, who must not delay it: one for the
large work, and one for what must not wait for that. More of them do not make it faster, as only one at a time has the
interpreter, but make the event loop wait for its turn longer. Functions in C have the interpreter for as long as they
run, so only those are for the threads that are not long each.

The threads of the event loop itself are not used: handlers can occupy all of them, for as long as they want.
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
    The calling of a function somewhere, after those that came before; it returns and raises what the function does.

    If cancelled, the function is not called; but if it is running already, it goes on, and its result is lost.
    """

    async def __call__(
        self, fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs
    ) -> ResultT: ...


def choose_run(size: int) -> Run:
    """Choose where to run what looks at all of a document of this size, in bytes, from a client that is not trusted."""
    if size <= pieces.PIECE_SIZE:
        return run_here
    return run_aside if size <= documents.LARGE else run_far_aside


async def run_here(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Call the function at once: it is quicker than the way to the thread."""
    return fn(*args, **kwargs)


async def run_aside(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Call the function in the thread for what takes milliseconds."""
    call = functools.partial(contextvars.copy_context().run, fn, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_executor('kopf-aside'), call)


async def run_far_aside(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Call the function in the thread for what can take seconds."""
    call = functools.partial(contextvars.copy_context().run, fn, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_executor('kopf-far-aside'), call)


async def read_aside(fn: Callable[P, ResultT], /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
    """Read what comes from the cluster, or is needed to reach it, in the thread for that; else as `run_aside`."""
    call = functools.partial(fn, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_executor('kopf-reading'), call)


def leave_aside(fn: Callable[[], None]) -> None:
    """Let the function be called in the thread for what takes milliseconds, some time later. It must not fail."""
    _get_executor('kopf-aside').submit(fn)


@functools.cache
def _get_executor(name: str) -> concurrent.futures.Executor:
    return concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)


if hasattr(
    os, 'register_at_fork'
):  # there are no threads in the children, and nobody would do the work
    os.register_at_fork(after_in_child=_get_executor.cache_clear)
