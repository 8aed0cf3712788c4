"""
Long calculations do not hold the event loop.
"""

import asyncio
import contextvars
import os
import sys
import threading

import pytest

from kopf._cogs.aiokits import offloads

variable = contextvars.ContextVar('variable', default='default')


@pytest.mark.parametrize('run', [offloads.run_here, offloads.run_aside, offloads.run_far_aside])
async def test_results_and_errors_are_those_of_the_function(run):
    assert await run(lambda a, b: (a, b), 1, b=2) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        await run(lambda: 1 / 0)


@pytest.mark.guarantee('FND-062')
async def test_event_loop_goes_on_meanwhile():
    is_over = threading.Event()
    asyncio.get_running_loop().call_later(0.01, is_over.set)

    assert await offloads.run_aside(is_over.wait, 10)


async def test_functions_are_called_one_after_another_with_the_context_of_the_caller():
    called, is_over = [], threading.Event()
    variable.set('changed')

    first = asyncio.create_task(
        offloads.run_aside(lambda: is_over.wait(10) and called.append('first'))
    )
    second = asyncio.create_task(offloads.run_aside(lambda: called.append(variable.get())))
    await asyncio.sleep(0.01)
    assert not called
    is_over.set()
    await asyncio.gather(first, second)

    assert called == ['first', 'changed']


@pytest.mark.guarantee('FND-062')
@pytest.mark.parametrize(
    'size, expected',
    [
        pytest.param(0, offloads.run_here, id='empty'),
        pytest.param(32 * 1024, offloads.run_here, id='small'),
        pytest.param(32 * 1024 + 1, offloads.run_aside, id='medium'),
        pytest.param(256 * 1024, offloads.run_aside, id='still-medium'),
        pytest.param(256 * 1024 + 1, offloads.run_far_aside, id='large'),
    ],
)
def test_place_to_run_is_chosen_by_size(size, expected):
    assert offloads.choose_run(size) is expected


@pytest.mark.guarantee('FND-062')
async def test_large_work_does_not_delay_other_work():
    is_over = threading.Event()
    large = asyncio.create_task(offloads.run_far_aside(is_over.wait, 10))

    assert await offloads.run_aside(lambda: 'done') == 'done'
    assert not large.done()
    is_over.set()
    await large


async def test_functions_can_be_left_for_later():
    called = []

    offloads.leave_aside(lambda: called.append('left'))

    await offloads.run_aside(lambda: called.append('awaited'))
    assert called == ['left', 'awaited']


@pytest.mark.skipif(not hasattr(os, 'fork'), reason='There are no forks in this system.')
@pytest.mark.parametrize('run', [offloads.run_aside, offloads.run_far_aside, offloads.read_aside])
async def test_forked_processes_have_threads_of_their_own(run):
    script = f"""if True:
        import asyncio, os
        from kopf._cogs.aiokits import offloads

        async def measure():
            return await asyncio.wait_for(offloads.{run.__name__}(len, b'abc'), 10)

        assert asyncio.run(measure()) == 3
        child = os.fork()
        if not child:
            os._exit(asyncio.run(measure()))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """

    process = await asyncio.create_subprocess_exec(sys.executable, '-c', script)

    assert await process.wait() == 3
