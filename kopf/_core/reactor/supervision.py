"""
Supervision: the main tasks of an operator run together, and stop together.

The first of them to fail, or a request to stop the operator, ends them all.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from kopf._core.reactor import stopping


async def run_until_stopped(
    stopper: stopping.Stopper,
    coros: Mapping[str, Coroutine[Any, Any, None]],
    *,
    besides: Collection[asyncio.Task[None]] = (),
    ending: Callable[[], None] = lambda: None,
) -> bool:
    """
    Run until all coroutines end, any fails, a stop is requested, or a task besides them ends.

    Returns true if they have ended by themselves. Raises the first error. In any case, all of them
    are stopped afterwards, except for the tasks in ``besides``.
    """
    stop = asyncio.create_task(stopper.wait(), name='stopper')
    tasks = [asyncio.create_task(coro, name=name) for name, coro in coros.items()]
    guards = [stop, *besides]
    pending = set(tasks)
    ended: set[asyncio.Task[None]] = set()  # by themselves

    try:
        while (
            pending
            and not any(map(_is_failed, ended))
            and not any(guard.done() for guard in guards)
        ):
            done, _ = await asyncio.wait({*pending, *guards}, return_when=asyncio.FIRST_COMPLETED)
            pending -= done
            ended |= done
    finally:
        ending()
        if pending:
            stopper.limit_exit()
        for task in [stop, *tasks]:
            task.cancel()
        await asyncio.wait([stop, *tasks])

    for task in [*tasks, *guards]:
        if task in ended and task.cancelled():
            raise RuntimeError(
                f'The {task.get_name()} of the operator was cancelled from the inside.'
            )
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error

    return ended.issuperset(tasks)


async def stop_task(task: asyncio.Task[None]) -> None:
    """Cancel and await the task; its error, if any, was raised already or no longer matters."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()


def _is_failed(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None
