import asyncio
import concurrent.futures
import contextvars
import functools
import threading

import pytest

from kopf._core.actions import invocation

current = contextvars.ContextVar('current', default='nothing')


async def coroutine_fn(*args, **kwargs):
    return args, kwargs


def sync_fn(*args, **kwargs):
    return args, kwargs


@functools.wraps(coroutine_fn)
def wrapping_fn(*args, **kwargs):
    return coroutine_fn(*args, **kwargs)


@functools.wraps(sync_fn)
def wrapping_sync_fn(*args, **kwargs):
    return sync_fn(*args, **kwargs)


class Methods:
    async def coroutine_method(self, *args, **kwargs):
        return args, kwargs

    def sync_method(self, *args, **kwargs):
        return args, kwargs


class AsyncCallable:
    async def __call__(self, *args, **kwargs):
        return args, kwargs


class SyncCallable:
    def __call__(self, *args, **kwargs):
        return args, kwargs


def unlawful_fn():
    raise StopIteration('too far')


FUNCTIONS = [
    pytest.param(coroutine_fn, True, id='coroutine'),
    pytest.param(
        functools.partial(functools.partial(coroutine_fn)), True, id='coroutine-in-partials'
    ),
    pytest.param(wrapping_fn, True, id='coroutine-in-a-wrapper'),
    pytest.param(functools.partial(wrapping_fn), True, id='coroutine-in-a-wrapper-in-a-partial'),
    pytest.param(Methods().coroutine_method, True, id='coroutine-method'),
    pytest.param(AsyncCallable(), True, id='object-with-coroutine'),
    pytest.param(functools.partial(AsyncCallable()), True, id='object-with-coroutine-in-a-partial'),
    pytest.param(sync_fn, False, id='function'),
    pytest.param(lambda *args, **kwargs: (args, kwargs), False, id='lambda'),
    pytest.param(functools.partial(sync_fn), False, id='function-in-a-partial'),
    pytest.param(wrapping_sync_fn, False, id='function-in-a-wrapper'),
    pytest.param(Methods().sync_method, False, id='method'),
    pytest.param(SyncCallable(), False, id='object'),
    pytest.param(max, False, id='builtin'),
    pytest.param(dict, False, id='class'),
    pytest.param(AsyncCallable, False, id='class-of-objects-with-coroutine'),
]


@pytest.fixture
def executor():
    with concurrent.futures.ThreadPoolExecutor(thread_name_prefix='ours') as executor:
        yield executor


@pytest.mark.guarantee('ASY-001')
@pytest.mark.parametrize('fn, expected', FUNCTIONS)
def test_coroutine_functions_are_recognised_however_they_are_wrapped(fn, expected):
    assert invocation.is_async(fn) is expected


@pytest.mark.guarantee('ASY-001')
@pytest.mark.parametrize('fn', [param.values[0] for param in FUNCTIONS[:13]])
async def test_arguments_and_results_are_passed_through(fn, executor):
    result = await invocation.invoke(fn, 1, 2, executor=executor, kwargs={'a': 3})

    assert result == ((1, 2), {'a': 3})


@pytest.mark.guarantee('ASY-002')
async def test_coroutines_run_in_the_thread_and_in_the_task_of_the_loop(executor):
    async def fn():
        return threading.current_thread(), asyncio.current_task()

    result = await invocation.invoke(fn, executor=executor)

    assert result == (threading.current_thread(), asyncio.current_task())


@pytest.mark.guarantee('ASY-003')
async def test_functions_run_in_threads_of_the_executor_and_the_loop_goes_on(executor):
    released = threading.Event()

    def fn():
        assert released.wait(timeout=30)
        return threading.current_thread().name

    task = asyncio.create_task(invocation.invoke(fn, executor=executor))
    await asyncio.sleep(0)
    released.set()  # nobody would do it if the loop was blocked

    assert (await task).startswith('ours')


@pytest.mark.guarantee('ASY-006')
async def test_threads_see_the_context_of_the_caller_but_do_not_change_it(executor):
    def fn():
        seen = current.get()
        current.set('changed')
        return seen

    current.set('given')
    result = await invocation.invoke(fn, executor=executor)

    assert result == 'given'
    assert current.get() == 'given'


@pytest.mark.guarantee('ASY-005')
async def test_errors_of_coroutines_have_the_way_from_the_framework_to_the_function(executor):
    async def fn():
        raise ValueError('boo')

    with pytest.raises(ValueError, match='boo') as caught:
        await invocation.invoke(fn, executor=executor)

    names = [entry.name for entry in caught.traceback]
    assert names.index('invoke') < names.index('fn')


@pytest.mark.guarantee('ASY-005')
async def test_errors_of_threads_have_the_way_from_the_thread_to_the_function(executor):
    def fn():
        raise ValueError('boo')

    with pytest.raises(ValueError, match='boo') as caught:
        await invocation.invoke(fn, executor=executor)

    assert caught.traceback[-1].name == 'fn'
    assert caught.traceback[-2].name == '_call_in_thread'


@pytest.mark.parametrize('error', [SystemExit, KeyboardInterrupt])
async def test_exits_in_threads_come_out_as_they_are(error, executor):
    def fn():
        raise error

    caught = None
    try:
        await invocation.invoke(fn, executor=executor)
    except BaseException as exc:
        caught = exc

    assert type(caught) is error


async def test_functions_that_raise_what_futures_cannot_carry_do_not_hang(executor):
    with pytest.raises(RuntimeError, match='StopIteration') as caught:
        await invocation.invoke(unlawful_fn, executor=executor)

    assert isinstance(caught.value.__cause__, StopIteration)


async def test_awaitables_returned_by_plain_functions_are_not_awaited(executor):
    future = asyncio.get_running_loop().create_future()
    future.set_result(123)

    result = await invocation.invoke(lambda: future, executor=executor)

    assert result is future


async def test_values_of_functions_that_only_look_like_coroutines_are_returned(executor):
    @functools.wraps(coroutine_fn)
    def fn():
        return 123

    assert await invocation.invoke(fn, executor=executor) == 123


async def test_cancellation_leaves_the_running_thread_alone_and_does_not_wait_for_it(executor):
    started, released, ended = threading.Event(), threading.Event(), threading.Event()

    def fn():
        started.set()
        released.wait(timeout=30)
        ended.set()
        raise ValueError('heard by nobody')

    task = asyncio.create_task(invocation.invoke(fn, executor=executor))
    await asyncio.to_thread(started.wait)
    task.cancel()
    await asyncio.wait([task])
    was_ended = ended.is_set()
    released.set()

    assert task.cancelled()
    assert not was_ended
    assert await asyncio.to_thread(ended.wait, 30)


async def cancelled_coroutine_fn():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def cancelled_sync_fn():
    future = concurrent.futures.Future()
    future.cancel()
    future.result()


@pytest.mark.parametrize(
    'fn',
    [
        pytest.param(cancelled_coroutine_fn, id='coroutine'),
        pytest.param(cancelled_sync_fn, id='function'),
    ],
)
async def test_cancellation_of_what_a_function_awaits_is_an_error_of_the_function(executor, fn):
    with pytest.raises(invocation.InnerCancellationError):
        await invocation.invoke(fn, executor=executor)


async def test_cancellation_prevents_the_call_that_waits_for_a_thread():
    released, called = threading.Event(), threading.Event()
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as executor:
        blocker = executor.submit(released.wait, 30)
        task = asyncio.create_task(invocation.invoke(called.set, executor=executor))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        released.set()

    assert blocker.result() is True
    assert task.cancelled()
    assert not called.is_set()


@pytest.mark.guarantee('ERR-020')
async def test_coroutine_over_its_limit_gets_a_timeout_where_it_awaits(virtual_time):
    caught = []

    async def fn():
        try:
            await asyncio.sleep(100)
        except asyncio.TimeoutError as error:  # noqa: UP041
            caught.append((error, virtual_time.elapsed))
            raise

    with pytest.raises(invocation.LimitError):
        await invocation.limit(fn(), 10)

    assert [(type(error), elapsed) for error, elapsed in caught] == [(invocation.Interruption, 10)]
    assert not asyncio.current_task().cancelling()


async def test_coroutine_within_its_limit_returns_and_raises_as_usually(virtual_time):
    async def fn(error):
        await asyncio.sleep(9)
        if error is not None:
            raise error
        return 'done'

    assert await invocation.limit(fn(None), 10) == 'done'
    with pytest.raises(ValueError, match='boo'):
        await invocation.limit(fn(ValueError('boo')), 10)
    with pytest.raises(TimeoutError, match='of its own'):
        await invocation.limit(fn(TimeoutError('of its own')), 10)


async def test_coroutine_can_end_in_its_own_way_after_the_limit(virtual_time):
    async def fn():
        try:
            await asyncio.sleep(100)
        except TimeoutError:
            await asyncio.sleep(5)
            return 'cleaned'

    result = await invocation.limit(fn(), 10)

    assert result == 'cleaned'
    assert virtual_time.elapsed == 15


@pytest.mark.parametrize(
    'wait',
    [
        pytest.param(lambda task: asyncio.wait_for(task, timeout=1000), id='wait-for'),
        pytest.param(lambda task: asyncio.gather(task), id='gather'),
        pytest.param(lambda task: task, id='task'),
    ],
)
async def test_tasks_awaited_by_an_interrupted_coroutine_are_not_left_behind(virtual_time, wait):
    tasks = []

    async def fn():
        tasks.append(asyncio.create_task(asyncio.sleep(500)))
        await wait(tasks[0])

    with pytest.raises(invocation.LimitError):
        await invocation.limit(fn(), 10)

    await asyncio.sleep(0)
    assert tasks[0].cancelled()


async def test_task_group_of_an_interrupted_coroutine_is_not_left_behind(virtual_time):
    tasks = []

    async def fn():
        async with asyncio.TaskGroup() as group:
            tasks.append(group.create_task(asyncio.sleep(500)))

    with pytest.raises(invocation.LimitError):
        await invocation.limit(fn(), 10)

    assert tasks[0].cancelled()


async def test_cancellation_of_a_limited_coroutine_stays_a_cancellation(virtual_time):
    caught = []

    async def fn():
        try:
            await asyncio.sleep(100)
        except BaseException as error:
            caught.append(type(error))
            raise

    task = asyncio.create_task(invocation.limit(fn(), 10))
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert caught == [asyncio.CancelledError]


async def test_cancellation_at_the_moment_of_the_limit_stays_a_cancellation(virtual_time):
    task = asyncio.create_task(invocation.limit(asyncio.sleep(100), 10))
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)  # the limit is set: its timer comes first
    loop.call_at(loop.time() + 10, task.cancel)
    await asyncio.wait([task])

    assert task.cancelled()


async def test_outer_limit_interrupts_through_an_inner_one(virtual_time):
    async def fn():
        await invocation.limit(asyncio.sleep(1000), 100)

    with pytest.raises(invocation.LimitError, match='10 seconds'):
        await invocation.limit(fn(), 10)

    assert virtual_time.elapsed == 10


@pytest.mark.parametrize(
    'error, expected',
    [
        pytest.param(asyncio.CancelledError(), True, id='cancellation'),
        pytest.param(invocation.Interruption(), True, id='interruption'),
        pytest.param(TimeoutError(), False, id='timeout'),
    ],
)
def test_interruptions_are_cancellations(error, expected):
    assert invocation.is_cancellation(error) is expected
