"""
Daemons: when they are called again, what becomes of their results and of their changes of the
objects.
"""

import asyncio
import copy
import datetime
import logging

import pytest
from clusters import FINALIZER, wait_until
from timed_notes import pass_time

import kopf


@pytest.mark.guarantee('DMN-006', 'NEW-034')
async def test_the_initial_delay_is_waited_for_once(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', initial_delay=30, labels={'mark': 'yes'}, registry=registry)
    async def delayed(stopped, **_):
        calls.note('begin')
        await stopped.wait()

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    calls.note('created')
    await pass_time(20)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(calls) == 2)
    await cluster.patch({'metadata': {'labels': {'mark': 'no'}}})
    await pass_time(10)
    await cluster.patch({'metadata': {'labels': {'mark': 'yes'}}})
    await wait_until(lambda: len(calls) == 3)

    assert calls == [(0, 'created'), (30, 'begin'), (40, 'begin')]


@pytest.mark.guarantee('NEW-032', 'NEW-033')
@pytest.mark.parametrize(
    'seconds, expected',
    [
        pytest.param(30, 30, id='number'),
        pytest.param(None, 0, id='none'),
        pytest.param(-5, 0, id='negative'),
        pytest.param('wrong', 0, id='wrong'),
    ],
)
async def test_the_initial_delay_can_be_decided_by_the_object(
    cluster, registry, run_operator, calls, seconds, expected, logs
):
    given = []

    def get_delay(spec, **kwargs):
        given.append(kwargs)
        return spec['delay']

    @kopf.index('kopfexamples', id='names', registry=registry)
    async def names(name, **_):
        return name

    @kopf.daemon('kopfexamples', param='param', initial_delay=get_delay, registry=registry)
    async def delayed(**kwargs):
        calls.note('begin')
        given.append(kwargs)

    await run_operator()
    await cluster.create(spec={'delay': seconds})
    calls.note('created')
    await wait_until(lambda: len(calls) == 2)
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(100)

    assert calls.moments == [0, expected]
    assert [set(kwargs) | {'spec'} for kwargs in given] == [set(given[1])] * 2
    assert set(given[0]) >= {
        'body',
        'meta',
        'status',
        'uid',
        'name',
        'namespace',
        'labels',
        'annotations',
        'resource',
        'patch',
        'memo',
        'logger',
        'names',
        'param',
        'retry',
        'started',
        'runtime',
        'stopped',
    }
    assert (given[0]['name'], given[0]['param'], given[0]['retry']) == ('obj', 'param', 0)
    assert any('initial delay' in text for text in logs(logging.ERROR)) == (seconds == 'wrong')


@pytest.mark.guarantee('NEW-034')
async def test_who_is_stopped_in_the_initial_delay_is_never_called(
    cluster, registry, run_operator, calls, virtual_time
):
    @kopf.daemon('kopfexamples', initial_delay=300, registry=registry)
    async def daemon_fn(**_):
        calls.note('daemon')

    @kopf.timer('kopfexamples', initial_delay=300, interval=1, registry=registry)
    async def timer_fn(**_):
        calls.note('timer')

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
    await pass_time(10)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    assert virtual_time.elapsed < 30

    await pass_time(1000)
    assert calls == []


class Sign(Exception):
    pass


@pytest.mark.guarantee('DMN-025', 'DMN-026', 'DMN-027', 'NEW-035')
@pytest.mark.parametrize(
    'error, options, expected',
    [
        pytest.param(
            lambda: kopf.TemporaryError('oops', delay=10), {}, [0, 10, 20], id='temporary'
        ),
        pytest.param(
            lambda: kopf.TemporaryError('oops', delay=None), {}, [0, 0, 0], id='temporary-at-once'
        ),
        pytest.param(
            lambda: kopf.TemporaryError('oops', delay=0), {}, [0, 0, 0], id='temporary-zero'
        ),
        pytest.param(lambda: Sign(), {}, [0, 60, 120], id='arbitrary'),
        pytest.param(lambda: Sign(), {'backoff': 5}, [0, 5, 10], id='arbitrary-backoff'),
        pytest.param(
            lambda: Sign(),
            {'backoff': kopf.Backoff(first=5, jitter=0)},
            [0, 5, 15],
            id='growing-backoff',
        ),
        pytest.param(lambda: Sign(), {'backoff': 5, 'retries': 2}, [0, 5], id='retries'),
        pytest.param(lambda: Sign(), {'backoff': 5, 'timeout': 7}, [0, 5], id='timeout'),
        pytest.param(
            lambda: Sign(), {'errors': kopf.ErrorsMode.PERMANENT}, [0], id='arbitrary-permanent'
        ),
        pytest.param(
            lambda: Sign(), {'errors': kopf.ErrorsMode.IGNORED}, [0], id='arbitrary-ignored'
        ),
        pytest.param(lambda: kopf.PermanentError('oops'), {}, [0], id='permanent'),
        pytest.param(
            lambda: asyncio.CancelledError(), {'backoff': 5}, [0, 5, 10], id='cancelled-inside'
        ),
    ],
)
async def test_failed_daemons_are_called_again(
    cluster, registry, run_operator, calls, error, options, expected
):
    @kopf.daemon('kopfexamples', registry=registry, **options)
    async def failing(retry, **_):
        calls.note(retry)
        if retry < 2:
            raise error()

    await run_operator()
    await cluster.create()
    await pass_time(expected[-1] + 5)
    await cluster.wait(lambda body: not body['metadata'].get('finalizers'))
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(1000)

    assert calls == list(zip(expected, range(10), strict=False))


@pytest.mark.guarantee('DMN-026')
async def test_daemons_that_run_out_of_time_are_interrupted(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', timeout=100, registry=registry)
    async def endless(**_):
        calls.note('begin')
        try:
            await asyncio.sleep(1000)
        except TimeoutError:
            calls.note('timeout')
            raise

    await run_operator()
    await cluster.create()
    await pass_time(1000)

    assert calls == [(0, 'begin'), (100, 'timeout')]


@pytest.mark.guarantee('DMN-028')
async def test_daemons_that_fail_in_various_ways(cluster, registry, run_operator, calls):
    kwargs = []

    @kopf.daemon(
        'kopfexamples', errors=kopf.ErrorsMode.TEMPORARY, backoff=1, retries=10, registry=registry
    )
    async def failing(retry, started, runtime, **_):
        calls.note(retry)
        kwargs.append((started, round(runtime / datetime.timedelta(seconds=1))))
        if retry < 3:
            raise kopf.TemporaryError('This is temporary.', delay=1)
        if retry < 5:
            raise OSError('This is arbitrary.')
        raise kopf.PermanentError('This is permanent.')

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 6)
    await pass_time(1000)

    assert calls == [(retry, retry) for retry in range(6)]
    assert kwargs == [(kwargs[0][0], retry) for retry in range(6)]


@pytest.mark.guarantee('DMN-025')
async def test_daemons_that_fail_at_once_and_for_ever_do_not_block_the_others(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def failing(retry, stopped, **_):
        raise kopf.TemporaryError('again', delay=0)

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    await cluster.delete()
    await cluster.wait(lambda body: body is None)


@pytest.mark.guarantee('DMN-027', 'DMN-031')
async def test_objects_are_free_of_daemons_that_have_ended(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', registry=registry)
    async def brief(stopped, **_):
        await stopped.wait(10)

    @kopf.daemon('kopfexamples', registry=registry)
    async def failing(stopped, **_):
        await stopped.wait(20)
        raise kopf.PermanentError('never again')

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers') == [FINALIZER])
    calls.note('blocked')
    await cluster.wait(lambda body: not body['metadata'].get('finalizers'))
    calls.note('free')
    await cluster.delete()

    assert calls == [(0, 'blocked'), (20, 'free')]
    assert await cluster.find() is None


@pytest.mark.guarantee('DMN-029', 'DMN-030')
@pytest.mark.parametrize('is_sync', [False, True], ids=['async', 'sync'])
async def test_results_and_changes_are_put_on_the_object(cluster, registry, run_operator, is_sync):
    def act(patch):
        patch.metadata.annotations['seen'] = 'yes'
        patch.spec['y'] = 2
        return {'answer': 42}

    if is_sync:

        @kopf.daemon('kopfexamples', id='brief', registry=registry)
        def brief(patch, **_):
            return act(patch)
    else:

        @kopf.daemon('kopfexamples', id='brief', registry=registry)
        async def brief(patch, **_):
            return act(patch)

    await run_operator()
    await cluster.create(spec={'x': 1})
    body = await cluster.wait(lambda body: body.get('status'))

    assert body['status'] == {'brief': {'answer': 42}}
    assert body['spec'] == {'x': 1, 'y': 2}
    assert body['metadata']['annotations'] == {'seen': 'yes'}


@pytest.mark.guarantee('DMN-029')
async def test_results_of_interrupted_daemons_are_not_stored(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', labels={'mark': 'yes'}, cancellation_timeout=10, registry=registry)
    async def stubborn(**_):
        calls.note('begin')
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return 'cancelled'

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    await wait_until(lambda: calls)
    await cluster.patch({'metadata': {'labels': {'mark': 'no'}}})
    body = await cluster.wait(lambda body: not body['metadata'].get('finalizers'))

    assert 'status' not in body


@pytest.mark.guarantee('NEW-077', 'NEW-078')
async def test_changes_are_applied_after_each_call_and_before_the_next_one(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', backoff=10, registry=registry)
    async def failing(retry, patch, **_):
        calls.append((retry, (await cluster.get()).get('status'), dict(patch), bool(patch)))
        patch.status[f'attempt-{retry}'] = True
        patch.fns.append(lambda body: body['spec'].update(y=retry))
        if retry == 0:
            raise kopf.TemporaryError('again', delay=0)
        if retry == 1:
            raise ValueError('arbitrary')

    await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: body['spec'].get('y') == 2)

    assert calls == [
        (0, None, {}, False),
        (1, {'attempt-0': True}, {}, False),
        (2, {'attempt-0': True, 'attempt-1': True}, {}, False),
    ]
    assert body['status'] == {'attempt-0': True, 'attempt-1': True, 'attempt-2': True}


@pytest.mark.guarantee('NEW-079', 'NEW-080', 'NEW-081', 'NEW-082')
async def test_refused_functions_are_sent_with_the_next_call_but_nothing_else(
    cluster, registry, run_operator, calls
):
    is_acceptable, seen = False, []

    def amend(body):
        seen.append(body['spec']['x'])
        body['spec']['y'] = 1
        body['metadata']['labels'] = {'acceptable': 'yes' if is_acceptable else '!!!'}

    @kopf.daemon('kopfexamples', registry=registry)
    async def failing(retry, patch, **_):
        calls.note(bool(patch), dict(patch), len(patch.fns))
        if retry == 0:
            patch.status['merged'] = 'first'
            patch.fns.append(amend)
            raise kopf.TemporaryError('again', delay=100)
        patch.fns.append(lambda body: body['spec'].update(z=body['spec']['y'] + 1))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait(lambda body: body.get('status') == {'merged': 'first'})
    await cluster.patch({'spec': {'x': 2}, 'status': {'merged': 'by others'}})
    await pass_time(10)
    is_acceptable, writes = True, len(cluster.writes)
    await pass_time(80)
    assert (len(calls), len(cluster.writes)) == (1, writes)
    body = await cluster.wait(lambda body: 'z' in body['spec'])

    assert calls == [(0, False, {}, 0), (100, True, {}, 1)]
    assert body['spec'] == {'x': 2, 'y': 1, 'z': 2}
    assert body['status'] == {'merged': 'by others'}
    assert seen[-1] == 2


@pytest.mark.guarantee('NEW-079')
async def test_functions_for_an_outdated_object_are_sent_with_the_next_call(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def failing(retry, patch, **_):
        calls.note(len(patch.fns))
        if retry == 0:
            patch.fns.append(lambda body: body['spec'].update(y=body['spec']['x'] + 1))
            with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', stall=True):
                cluster.sandbox.faults.cut_streams()
                await cluster.patch({'spec': {'x': 2}})
            raise kopf.TemporaryError('again', delay=100)

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: calls)
    await pass_time(50)
    assert (await cluster.get())['spec'] == {'x': 2}
    body = await cluster.wait(lambda body: 'y' in body['spec'])

    assert calls == [(0, 0), (100, 1)]
    assert body['spec'] == {'x': 2, 'y': 3}


@pytest.mark.guarantee('DMN-030')
async def test_changes_that_cannot_be_sent_are_logged_and_sent_with_the_next_call(
    cluster, registry, run_operator, settings, calls, logs
):
    settings.networking.error_backoffs = []

    @kopf.daemon('kopfexamples', registry=registry)
    async def failing(retry, patch, **_):
        calls.note(copy.deepcopy(dict(patch)))
        patch.status[f'attempt-{retry}'] = True
        if retry == 0:
            cluster.sandbox.faults.inject(verb='patch', resource='kopfexamples', code=500, times=1)
            raise kopf.TemporaryError('again', delay=100)

    await run_operator()
    await cluster.create()
    body = await cluster.wait(lambda body: body.get('status'))

    assert calls == [(0, {}), (100, {'status': {'attempt-0': True}})]
    assert body['status'] == {'attempt-0': True, 'attempt-1': True}
    assert any('could not be applied' in text for text in logs(logging.ERROR))
