"""
Handlers that are not coroutines run in threads: they do the same, and hold nobody else.
"""

import asyncio
import functools
import threading
import time
import traceback

import pytest
from clusters import get_progress, wait_until

import kopf


@pytest.mark.guarantee('ASY-001', 'ASY-002', 'ASY-003')
@pytest.mark.parametrize('is_sync', [False, True], ids=['async', 'sync'])
async def test_all_kinds_of_handlers_can_be_both_coroutines_and_functions(
    cluster, registry, run_operator, calls, is_sync
):
    def declare(decorator, *args, **options):
        name = decorator.__name__
        if is_sync:

            @decorator(*args, id=name, registry=registry, **options)
            def fn(retry=0, **_):
                calls.append((name, threading.current_thread()))
        else:

            @decorator(*args, id=name, registry=registry, **options)
            async def fn(retry=0, **_):
                calls.append((name, threading.current_thread()))

    declare(kopf.on.startup)
    declare(kopf.on.event, 'kopfexamples')
    declare(kopf.on.resume, 'kopfexamples')
    declare(kopf.on.create, 'kopfexamples')
    declare(kopf.on.update, 'kopfexamples')
    declare(kopf.on.field, 'kopfexamples', field='spec.x')
    declare(kopf.on.delete, 'kopfexamples')
    declare(kopf.on.cleanup)
    await cluster.create(spec={'x': 1})
    operator = await run_operator()
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await operator.stop()

    names = [name for name, _ in calls if name != 'event']
    assert names == ['startup', 'resume', 'create', 'field', 'update', 'field', 'delete', 'cleanup']
    assert 'event' in {name for name, _ in calls}
    is_main = [thread is threading.current_thread() for _, thread in calls]
    assert not any(is_main) if is_sync else all(is_main)


@pytest.mark.guarantee('ASY-003')
async def test_a_blocked_function_holds_neither_other_objects_nor_coroutines(
    cluster, registry, run_operator, calls, barrier
):
    @kopf.on.create('kopfexamples', labels={'blocked': 'yes'}, registry=registry)
    def blocked_fn(**_):
        calls.append('blocked')
        barrier.wait()
        calls.append('released')

    @kopf.on.create('kopfexamples', labels={'blocked': 'no'}, registry=registry)
    def sync_fn(name, **_):
        calls.append(name)

    @kopf.on.create('kopfexamples', labels={'blocked': 'no'}, registry=registry)
    async def async_fn(name, **_):
        calls.append(name)

    await run_operator()
    await cluster.create('first', labels={'blocked': 'yes'})
    await wait_until(lambda: calls == ['blocked'])
    for name in ['second', 'third']:
        await cluster.create(name, labels={'blocked': 'no'})
        await cluster.wait_until_handled(name)
    assert calls == ['blocked', 'second', 'second', 'third', 'third']

    barrier.set()
    await cluster.wait_until_handled('first')
    assert calls[-1] == 'released'


@pytest.mark.guarantee('ASY-003', 'HND-027')
async def test_events_are_collected_while_a_function_is_blocked(
    cluster, registry, run_operator, calls, barrier
):
    @kopf.on.event('kopfexamples', registry=registry)
    def event_fn(spec, **_):
        calls.append(spec['x'])
        barrier.wait()

    await run_operator()
    await cluster.create(spec={'x': 0})
    await wait_until(lambda: calls)
    for x in [1, 2]:
        await cluster.patch({'spec': {'x': x}})
    barrier.set()
    await wait_until(lambda: len(calls) == 3)

    assert calls == [0, 1, 2]


@pytest.mark.guarantee('ASY-004')
async def test_a_blocked_coroutine_blocks_the_whole_operator(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def blocking_fn(**_):
        before = ticks[0]
        block()
        calls.append(ticks[0] - before)

    ticks, block = [0], functools.partial(time.sleep, 0.1)  # a real one: this is what is tested

    async def tick():
        while True:
            ticks[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(tick())
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()
    task.cancel()
    await asyncio.wait([task])

    assert calls == [0]
    assert ticks[0] > 1


@pytest.mark.guarantee('ASY-005')
@pytest.mark.parametrize('is_sync', [False, True], ids=['async', 'sync'])
async def test_errors_have_their_stack_traces(cluster, registry, run_operator, caplog, is_sync):
    def inner():
        raise ValueError('it is broken')

    if is_sync:

        @kopf.on.create('kopfexamples', retries=1, id='outer_fn', registry=registry)
        def outer_fn(**_):
            inner()
    else:

        @kopf.on.create('kopfexamples', retries=1, id='outer_fn', registry=registry)
        async def outer_fn(**_):
            inner()

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    names = [frame.name for frame in traceback.extract_tb(errors[0].__traceback__)]
    assert isinstance(errors[0], ValueError)
    assert names[-2:] == ['outer_fn', 'inner']
    assert len(names) > 3


@pytest.mark.guarantee('ASY-001', 'ERR-001')
async def test_functions_are_retried_as_coroutines_are(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    def create_fn(retry, patch, **_):
        calls.append(retry)
        patch.status['retry'] = retry
        if retry < 2:
            raise kopf.TemporaryError('not yet', delay=10)
        return {'done': True}

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled()

    assert calls == [0, 1, 2]
    assert body['status'] == {'retry': 2, 'create_fn': {'done': True}}
    assert not get_progress(body)


@pytest.mark.guarantee('ASY-003', 'CFG-019')
async def test_the_settings_limit_the_threads(
    cluster, registry, run_operator, calls, settings, barrier
):
    @kopf.on.create('kopfexamples', labels={'is': 'sync'}, registry=registry)
    def sync_fn(name, **_):
        calls.append(name)
        barrier.wait()

    @kopf.on.create('kopfexamples', labels={'is': 'async'}, registry=registry)
    async def async_fn(**_):
        pass

    settings.execution.max_workers = 2
    await run_operator()
    names = ['a', 'b', 'c']
    for name in names:
        await cluster.create(name, labels={'is': 'sync'})
    await wait_until(lambda: len(calls) == 2)
    await cluster.create('another', labels={'is': 'async'})
    await cluster.wait_until_handled('another')
    assert len(calls) == 2

    barrier.set()
    for name in names:
        await cluster.wait_until_handled(name)
    assert sorted(calls) == names
