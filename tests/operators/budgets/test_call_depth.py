"""
The way from a worker to a user's function is short, so that tracebacks and debuggers show what
matters.
"""

import asyncio
import sys

import pytest

import kopf

LIMIT = 9


def is_ours(frame):
    return '/kopf/_co' in frame.f_code.co_filename.replace('\\', '/')


def list_frames():
    """List our own frames that are below the caller in its thread, the innermost first."""
    frame = sys._getframe(2)
    names = []
    while frame is not None:
        if is_ours(frame):
            names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def list_awaits(task):
    """List our own frames of a suspended task, the outermost first."""
    names, coro = [], task.get_coro()
    while coro is not None and hasattr(coro, 'cr_frame'):
        if coro.cr_frame is not None and is_ours(coro.cr_frame):
            names.append(coro.cr_frame.f_code.co_name)
        coro = coro.cr_await
    return names


@pytest.fixture
def depths():
    return []


@pytest.mark.parametrize('is_sync', [False, True], ids=['async', 'sync'])
async def test_few_calls_are_between_a_worker_and_a_function(
    cluster, registry, run_operator, depths, is_sync
):
    loop = asyncio.get_running_loop()

    def count(loop):
        [worker] = [
            task for task in asyncio.all_tasks(loop) if task.get_name().startswith('worker of')
        ]
        return list_awaits(worker)

    if is_sync:

        @kopf.on.create('kopfexamples', registry=registry)
        def create_fn(**_):
            own = list_frames()
            depths.append([*count(loop), *own])
    else:

        @kopf.on.create('kopfexamples', registry=registry)
        async def create_fn(**_):
            depths.append(list_frames()[::-1])

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    [names] = depths
    assert names[0] == '_work'
    assert len(names[1:]) <= LIMIT, names
