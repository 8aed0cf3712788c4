"""
How operators stop: running handlers get some time to finish, then are interrupted; what is done is
not done again by the next start; and nothing in the cluster or in the handlers can keep an operator
from stopping.
"""

import asyncio
import logging
import threading

import pytest
from clusters import get_last_handled, get_progress, get_time, wait_until

import kopf


async def stop(operator):
    """Stop the operator, and tell how long it took."""
    since = get_time()
    await operator.stop()
    return get_time() - since


async def test_an_idle_operator_stops_at_once(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append(retry)
        raise kopf.TemporaryError('in an hour', delay=3600)

    operator = await run_operator()
    await cluster.create()
    await cluster.wait(get_progress)

    assert await stop(operator) < 0.5
    assert calls == [0]


@pytest.mark.guarantee('NEW-102')
async def test_running_handlers_have_time_to_finish(
    cluster, registry, run_operator, calls, settings
):
    settings.queueing.exit_timeout = 10

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        calls.append('begun')
        await asyncio.sleep(5)
        calls.append('finished')
        return 'result'

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    elapsed = await stop(operator)
    body = await cluster.get()

    assert 4 < elapsed < 6
    assert calls == ['begun', 'finished']
    assert body['status'] == {'create_fn': 'result'}
    assert get_last_handled(body)['spec'] == {'x': 1}


@pytest.mark.guarantee('NEW-102')
async def test_handlers_are_interrupted_after_that_time_and_those_before_them_are_not_repeated(
    cluster, registry, run_operator, calls, settings, logs
):
    settings.queueing.exit_timeout = 10
    is_slow = True

    @kopf.on.create('kopfexamples', id='quick_fn', registry=registry)
    async def quick_fn(patch, **_):
        calls.append('quick')
        patch.status['own'] = 'change'
        return 'result'

    @kopf.on.create('kopfexamples', id='slow_fn', registry=registry)
    async def slow_fn(retry, **_):
        calls.append(f'slow {retry}')
        try:
            await asyncio.sleep(3600 if is_slow else 0)
        except asyncio.CancelledError:
            calls.append('interrupted')
            raise

    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.create()
    await wait_until(lambda: 'slow 0' in calls)
    elapsed = await stop(operator)
    body = await cluster.get()

    assert 9 < elapsed < 11
    assert calls == ['quick', 'slow 0', 'interrupted']
    assert body['status'] == {'quick_fn': 'result', 'own': 'change'}
    assert 'kopf.zalando.org/quick_fn' in get_progress(body)
    assert 'kopf.zalando.org/slow_fn' not in get_progress(body)
    assert any('Waiting for 1 workers of kopfexamples' in text for text in logs(logging.INFO))
    assert any('were cancelled' in text for text in logs(logging.WARNING))

    is_slow = False
    await run_operator()
    await cluster.wait_until_handled(x=1)
    assert calls[3:] == ['slow 0']


async def test_changes_that_are_not_begun_are_left_to_the_next_start(
    cluster, registry, run_operator, calls, settings
):
    settings.queueing.worker_limit = 1

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, **_):
        calls.append(name)
        await asyncio.sleep(1)

    operator = await run_operator()
    for name in ('one', 'two', 'three'):
        await cluster.create(name)
    await wait_until(lambda: calls)
    await stop(operator)
    assert len(calls) == 1

    await run_operator()
    for name in ('one', 'two', 'three'):
        await cluster.wait_until_handled(name)
    assert sorted(calls) == ['one', 'three', 'two']


@pytest.mark.parametrize(
    'trouble',
    [
        pytest.param({'stall': True}, id='never-answers'),
        pytest.param({'cut': True}, id='disconnects'),
        pytest.param({'code': 503}, id='refuses'),
        pytest.param({'code': 429, 'retry_after': 3600}, id='asks-to-wait'),
    ],
)
@pytest.mark.parametrize(
    'is_running', [pytest.param(True, id='handlers'), pytest.param(False, id='writes')]
)
async def test_an_api_in_trouble_does_not_keep_operators_from_stopping(
    cluster, registry, run_operator, trouble, is_running
):
    faults = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def quick_fn(**_):
        faults.append(cluster.sandbox.faults.inject(**trouble))

    @kopf.on.create('kopfexamples', registry=registry)
    async def slow_fn(**_):
        await asyncio.sleep(3600 if is_running else 0)

    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.create()
    await wait_until(lambda: faults and (is_running or faults[0].hits))
    elapsed = await stop(operator)
    faults[0].lift()

    assert elapsed < 10


async def test_an_api_that_is_down_does_not_keep_operators_from_stopping(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    restarting = asyncio.create_task(cluster.sandbox.faults.restart(downtime=100))
    await asyncio.sleep(5)
    elapsed = await stop(operator)
    await restarting

    assert elapsed < 10


async def test_handlers_in_threads_do_not_keep_operators_from_stopping(
    cluster, registry, run_operator, calls, logs
):
    going_on = threading.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(**_):
        calls.append('begun')
        going_on.wait()
        calls.append('finished')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    elapsed = await stop(operator)
    going_on.set()

    assert elapsed < 10
    assert get_last_handled(await cluster.get()) is None
    assert any('1 synchronous handlers still run' in text for text in logs(logging.WARNING))


async def test_handlers_that_refuse_to_end_do_not_keep_operators_from_stopping(
    cluster, registry, run_operator, calls, logs
):
    is_over = asyncio.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('begun')
        while not is_over.is_set():
            try:
                await is_over.wait()
            except asyncio.CancelledError:
                calls.append('refused')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    since = get_time()
    operator.stop_flag.set()
    await asyncio.wait([operator.task], timeout=60)
    elapsed, is_stopped = get_time() - since, operator.task.done()
    is_over.set()
    await operator.task

    assert is_stopped
    assert elapsed < 60
    assert any('refuse' in text for text in logs(logging.WARNING))


async def test_cleanup_handlers_are_called_after_all_others_while_the_api_is_usable(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        try:
            await asyncio.sleep(3600)
        finally:
            calls.append('create')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    operator = await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body)
    await asyncio.sleep(10)
    await stop(operator)

    assert calls == ['create', 'cleanup']


async def test_a_cancelled_operator_stops_in_the_same_way(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', id='quick_fn', registry=registry)
    async def quick_fn(**_):
        calls.append('quick')

    @kopf.on.create('kopfexamples', registry=registry)
    async def slow_fn(**_):
        calls.append('slow')
        await asyncio.sleep(3600)

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.create()
    await wait_until(lambda: 'slow' in calls)
    operator.task.cancel()
    await asyncio.wait([operator.task])

    assert calls == ['quick', 'slow', 'cleanup']
    assert 'kopf.zalando.org/quick_fn' in get_progress(await cluster.get())


@pytest.mark.guarantee('NEW-102')
async def test_handlers_have_as_much_time_to_finish_as_the_settings_say(
    cluster, registry, run_operator, calls, settings
):
    settings.queueing.exit_timeout = 300

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('begun')
        await asyncio.sleep(250)
        calls.append('finished')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await operator.stop()

    assert calls == ['begun', 'finished', 'cleanup']
    assert get_last_handled(await cluster.get())['spec'] == {'x': 1}
