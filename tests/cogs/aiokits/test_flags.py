"""
Flags of all kinds: raised and waited for, in the same event loop and across threads.
"""

import asyncio
import concurrent.futures
import threading

import pytest

from kopf._cogs.aiokits import flags

KINDS = {
    'asyncio.Event': asyncio.Event,
    'asyncio.Future': lambda: asyncio.get_running_loop().create_future(),
    'threading.Event': threading.Event,
    'concurrent.futures.Future': concurrent.futures.Future,
}
THREADED = ('threading.Event', 'concurrent.futures.Future')


def is_raised(flag):
    return flag.is_set() if isinstance(flag, asyncio.Event | threading.Event) else flag.done()


@pytest.fixture(params=KINDS)
async def flag(request):
    return KINDS[request.param]()


@pytest.fixture(params=THREADED)
async def threaded_flag(request):
    return KINDS[request.param]()


@pytest.fixture
def flag_threads():
    """The threads that wait for flags now, except for those of the previous tests."""
    before = set(threading.enumerate())
    return lambda: [
        thread for thread in threading.enumerate() if thread.name == 'flag' and thread not in before
    ]


@pytest.fixture
async def wait():
    """Begin to wait for a flag."""
    tasks = []

    async def wait(flag):
        tasks.append(asyncio.create_task(flags.wait_until_raised(flag), name='waiting'))
        await asyncio.sleep(0)
        return tasks[-1]

    yield wait
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.guarantee('EMB-003')
async def test_raised_flag_ends_the_wait(flag, wait):
    task = await wait(flag)
    assert not task.done()

    flags.raise_flag(flag)

    await asyncio.wait_for(task, timeout=30)


@pytest.mark.guarantee('EMB-003')
async def test_flag_raised_before_is_not_waited_for(flag):
    flags.raise_flag(flag)

    await asyncio.wait_for(flags.wait_until_raised(flag), timeout=30)


@pytest.mark.guarantee('EMB-003', 'EMB-004')
async def test_flag_of_threads_can_be_raised_in_another_thread(threaded_flag, wait):
    task = await wait(threaded_flag)

    thread = threading.Thread(target=flags.raise_flag, args=(threaded_flag,))
    thread.start()

    await asyncio.wait_for(task, timeout=30)
    thread.join()


async def test_any_number_of_tasks_can_wait(flag, wait):
    one, two = await wait(flag), await wait(flag)

    flags.raise_flag(flag)

    await asyncio.wait_for(asyncio.gather(one, two), timeout=30)


async def test_cancelled_wait_does_not_affect_the_flag(flag, wait):
    task = await wait(flag)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not is_raised(flag)
    flags.raise_flag(flag)
    await asyncio.wait_for(flags.wait_until_raised(flag), timeout=30)


async def test_cancelled_wait_leaves_no_threads(wait, flag_threads):
    task = await wait(threading.Event())
    (thread,) = flag_threads()

    task.cancel()
    await asyncio.wait([task])

    await asyncio.to_thread(thread.join, timeout=30)
    assert not thread.is_alive()


def test_threads_of_flags_do_not_hold_the_process(flag_threads):
    async def wait_for_a_moment():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(flags.wait_until_raised(flag), timeout=0.001)
        return [thread.daemon for thread in flag_threads()]

    flag = threading.Event()
    assert asyncio.run(wait_for_a_moment()) == [True]
    flag.set()  # when the loop is closed already; errors in threads are errors in tests


@pytest.mark.parametrize(
    'end',
    [
        pytest.param(lambda future: future.set_exception(ValueError('boo!')), id='failed'),
        pytest.param(lambda future: future.cancel(), id='cancelled'),
    ],
)
@pytest.mark.parametrize('kind', ['asyncio.Future', 'concurrent.futures.Future'])
async def test_future_ended_in_any_way_is_a_raised_flag(kind, end, wait):
    future = KINDS[kind]()
    task = await wait(future)

    end(future)

    await asyncio.wait_for(task, timeout=30)
    assert future.cancelled() or future.exception()


async def test_flag_can_be_raised_many_times(flag):
    flags.raise_flag(flag)
    flags.raise_flag(flag)

    assert is_raised(flag)


async def test_cancelled_future_stays_cancelled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()

    flags.raise_flag(future)

    assert future.cancelled()


def test_absent_flag_is_raised_to_no_effect():
    flags.raise_flag(None)


async def test_flags_and_their_absence_are_accepted(flag):
    flags.check_flag(flag)
    flags.check_flag(None)


@pytest.mark.parametrize('value', [True, False, 0, 'flag', object, [asyncio.Event]], ids=str)
def test_other_values_are_not_flags(value):
    with pytest.raises(TypeError, match='future or an event'):
        flags.check_flag(value)
