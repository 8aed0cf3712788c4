"""
What is done beside objects, in background: what comes out of it, when it is repeated, and when it
never is again.
"""

import asyncio
import threading

import aiohttp
import pytest
from clusters import Cluster, build_crd, wait_until
from operator_endpoints import Site
from timed_notes import pass_time

import kopf

NEVER = 'never-again'


@pytest.fixture
async def site(virtual_time):
    async with aiohttp.ClientSession() as session:
        yield Site(session)


@pytest.mark.guarantee('RSL-004')
@pytest.mark.parametrize('has_status', [False, True], ids=['usual-status', 'subresource-of-status'])
async def test_results_of_all_kinds_of_handlers_are_in_the_status(
    sandbox, registry, run_operator, has_status
):
    @kopf.on.create('kopfexamples', id='parent', registry=registry)
    async def parent(**_):
        @kopf.subhandler(id='child')
        async def child(**_):
            return 'of a sub-handler'

        return 'of a handler'

    @kopf.daemon('kopfexamples', id='async_daemon', registry=registry)
    async def async_daemon(**_):
        await asyncio.sleep(5)
        return {'of': 'a daemon'}

    @kopf.daemon('kopfexamples', id='sync_daemon', registry=registry)
    def sync_daemon(**_):
        return ['of a daemon in a thread']

    @kopf.timer('kopfexamples', interval=1000, id='timer', registry=registry)
    def timer(retry, **_):
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=10)
        return 'of a timer'

    await sandbox.apply(build_crd(has_status=has_status))
    cluster = Cluster(sandbox)
    await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: len(body.get('status') or {}) == 5)

    assert body['status'] == {
        'parent': 'of a handler',
        'parent/child': 'of a sub-handler',
        'async_daemon': {'of': 'a daemon'},
        'sync_daemon': ['of a daemon in a thread'],
        'timer': 'of a timer',
    }


@pytest.mark.guarantee('RSL-008')
async def test_results_of_probes_and_indices_are_not_in_the_status(
    cluster, registry, run_operator, calls, site
):
    @kopf.on.probe(id='sign', registry=registry)
    async def probe(**_):
        return 'of life'

    @kopf.index('kopfexamples', id='names', registry=registry)
    async def index(name, **_):
        return {name: 'indexed'}

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(names, **_):
        calls.note({name: list(values) for name, values in names.items()})

    await run_operator(liveness_endpoint=site.url)
    await cluster.create()
    body = await cluster.wait_until_handled(x=1)
    answer = await site.wait_until('/healthz', 200)

    assert 'of life' in answer
    assert calls == [(0, {'obj': ['indexed']})]
    assert 'status' not in body


@pytest.mark.guarantee('REC-004')
@pytest.mark.parametrize('is_changed', [False, True], ids=['unchanged', 'changed'])
async def test_timers_are_called_on_schedule_whatever_happens_to_the_object(
    cluster, registry, run_operator, calls, is_changed
):
    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def tick(spec, **_):
        calls.note(spec['x'])

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 1)
    for x in [2, 3, 4, 5]:
        await pass_time(8)
        if is_changed:
            await cluster.patch({'spec': {'x': x}})
    await wait_until(lambda: len(calls) == 5)

    assert calls.moments == [0, 10, 20, 30, 40]
    assert [x for _, x in calls] == ([1, 2, 3, 4, 5] if is_changed else [1] * 5)


@pytest.mark.guarantee('REC-005')
async def test_daemons_poll_with_blocking_calls_until_their_objects_are_gone(
    cluster, registry, run_operator
):
    polled, answered, threads = threading.Semaphore(0), threading.Semaphore(0), set()

    @kopf.daemon('kopfexamples', registry=registry)
    def poller(stopped, **_):
        while not stopped:
            threads.add(threading.current_thread())
            polled.release()
            answered.acquire()

    await run_operator()
    await cluster.create()
    for _ in range(5):
        await wait_until(lambda: polled.acquire(blocking=False))
        answered.release()
    await wait_until(lambda: polled.acquire(blocking=False))
    (poller_thread,) = threads
    assert poller_thread.is_alive() and poller_thread is not threading.current_thread()

    await cluster.delete()
    await wait_until(lambda: answered.release() or not poller_thread.is_alive())

    await cluster.wait(lambda body: body is None)


@pytest.mark.guarantee('TIP-002')
@pytest.mark.parametrize(
    'error',
    [pytest.param(None, id='succeeded'), pytest.param(kopf.PermanentError('no way'), id='failed')],
)
async def test_finished_daemons_are_spawned_again_only_after_a_restart(
    cluster, registry, run_operator, calls, error
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def brief(**_):
        calls.note('spawned')
        if error is not None:
            raise error

    await cluster.create()
    operator = await run_operator()
    await wait_until(lambda: calls)
    for x in [2, 3]:
        await cluster.patch({'spec': {'x': x}})
        await pass_time(1000)
    assert len(calls) == 1
    await operator.stop()
    await run_operator()
    await wait_until(lambda: len(calls) == 2)
    await pass_time(1000)

    assert len(calls) == 2


@pytest.mark.guarantee('TIP-004')
@pytest.mark.parametrize(
    'error',
    [pytest.param(None, id='succeeded'), pytest.param(kopf.PermanentError('never'), id='failed')],
)
async def test_daemons_that_exclude_themselves_are_never_spawned_again(
    cluster, registry, run_operator, calls, error
):
    @kopf.daemon('kopfexamples', annotations={NEVER: kopf.ABSENT}, registry=registry)
    async def once(patch, **_):
        calls.note('spawned')
        patch.metadata.annotations[NEVER] = 'yes'
        await asyncio.sleep(10)
        calls.note('exited', (await cluster.get())['metadata'].get('annotations', {}).get(NEVER))
        if error is not None:
            raise error

    await cluster.create()
    operator = await run_operator()
    await cluster.wait(lambda body: body['metadata'].get('annotations', {}).get(NEVER) == 'yes')
    await pass_time(1000)
    await operator.stop()
    operator = await run_operator()
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(1000)

    assert calls == [(0, 'spawned'), (10, 'exited', None)]
