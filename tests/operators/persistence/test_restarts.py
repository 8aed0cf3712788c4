"""
Operators that are stopped and started again: everything continues from where it was, by what is on
the objects.
"""

import asyncio
import datetime
import json

import pytest
from clusters import FINALIZER, LAST_HANDLED, get_last_handled, get_progress, wait_until

import kopf

PREFIX = 'kopf.zalando.org'


def get_record(body, id):
    raw = (body['metadata'].get('annotations') or {}).get(f'{PREFIX}/{id}')
    return None if raw is None else json.loads(raw)


@pytest.mark.guarantee('CNT-001', 'CNT-002', 'CNT-004', 'CNT-005', 'ERR-024', 'KWA-013')
async def test_the_progress_is_continued_from_the_object(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', id='done_fn', registry=registry)
    async def done_fn(**_):
        calls.append('done')

    @kopf.on.create('kopfexamples', id='retrying_fn', registry=registry)
    async def retrying_fn(retry, started, runtime, **_):
        calls.append((retry, started, runtime))
        if retry < 2:
            raise kopf.TemporaryError('not yet', delay=100)

    await cluster.create()
    operator = await run_operator()
    body = await cluster.wait(
        lambda body: get_record(body, 'retrying_fn') and get_record(body, 'done_fn')
    )
    record = get_record(body, 'retrying_fn')
    await operator.stop()
    await asyncio.sleep(50)
    await run_operator()
    await cluster.wait_until_handled(x=1)

    (retries, starts, runtimes) = zip(*[call for call in calls if call != 'done'], strict=True)
    assert calls.count('done') == 1
    assert retries == (0, 1, 2)
    assert {moment.isoformat() for moment in starts} == {record['started']}
    assert [round(runtime.total_seconds()) for runtime in runtimes] == [0, 100, 200]


@pytest.mark.guarantee('CNT-005')
async def test_the_delays_that_have_passed_meanwhile_are_not_waited_for(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(retry, **_):
        calls.append(asyncio.get_running_loop().time())
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=100)

    await cluster.create()
    operator = await run_operator()
    await cluster.wait(lambda body: get_record(body, 'create_fn'))
    await operator.stop()
    await asyncio.sleep(3600)
    restarted = asyncio.get_running_loop().time()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert calls[1] - restarted < 5


@pytest.mark.guarantee('CNT-006')
async def test_an_interrupted_handler_is_called_again_and_is_not_told_to_have_failed(
    cluster, registry, run_operator, settings, calls
):
    @kopf.on.create('kopfexamples', id='quick_fn', registry=registry)
    async def quick_fn(**_):
        calls.append('quick')

    @kopf.on.create('kopfexamples', id='long_fn', registry=registry)
    async def long_fn(retry, **_):
        calls.append(retry)
        await asyncio.sleep(3600 if len(calls) == 2 else 0)

    settings.queueing.exit_timeout = 1
    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)
    await operator.stop()
    body = await cluster.get()
    assert get_record(body, 'quick_fn')['success'] is True
    assert get_record(body, 'long_fn') is None
    await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.wait_until_handled(x=1)

    assert calls == ['quick', 0, 0]


@pytest.mark.guarantee('CNT-007', 'CNT-008', 'REC-002')
async def test_all_changes_of_the_downtime_are_one_change(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, diff, **_):
        calls.append((old['spec'], new['spec'], list(diff)))

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await operator.stop()
    for x in (2, 3, 4):
        await cluster.patch({'spec': {'x': x}})
        await asyncio.sleep(24 * 3600)
    await run_operator()
    await cluster.wait_until_handled(x=4)

    assert calls == [({'x': 1}, {'x': 4}, [('change', ('spec', 'x'), 1, 4)])]


@pytest.mark.guarantee('CNT-009', 'REC-001', 'REC-002')
async def test_nothing_is_handled_without_a_change(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def fn(reason, **_):
        calls.append(reason.value)

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await operator.stop()
    await run_operator()
    await cluster.patch({'status': {'something': 'else'}})
    await cluster.patch({'spec': {'x': 1}})
    await asyncio.sleep(3600)

    assert calls == ['create']


@pytest.mark.guarantee('CNT-010', 'CFG-056')
async def test_objects_deleted_during_the_downtime_wait_for_the_operator(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(spec, **_):
        calls.append(spec['x'])

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
    await operator.stop()
    await cluster.patch({'spec': {'x': 2}})
    await cluster.delete()
    await asyncio.sleep(3600)
    assert (await cluster.get())['metadata']['finalizers'] == [FINALIZER]
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == [2]


@pytest.mark.guarantee('CNT-003', 'CNT-006')
async def test_an_operator_killed_before_its_writes_handles_everything_again(
    sandbox, cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(retry, **_):
        calls.append(retry)
        return {'done': True}

    with sandbox.faults.inject(verb='patch', stall=True) as fault:
        operator = await run_operator()
        await cluster.create()
        await fault.wait_until_hit()
        operator.task.cancel()
        await asyncio.wait([operator.task])
        assert get_last_handled(await cluster.get()) is None
    await run_operator()
    body = await cluster.wait_until_handled(x=1)

    assert calls == [0, 0]
    assert body['status'] == {'create_fn': {'done': True}}


@pytest.mark.guarantee('CNT-004', 'CNT-005')
async def test_sub_handlers_are_continued_after_a_restart(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', id='parent', registry=registry)
    async def parent(retry, **_):
        calls.append(('parent', retry))

        @kopf.subhandler(id='quick')
        async def quick(**_):
            calls.append('quick')

        @kopf.subhandler(id='slow')
        async def slow(retry, **_):
            calls.append(('slow', retry))
            if retry == 0:
                raise kopf.TemporaryError('not yet', delay=100)

    await cluster.create()
    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    body = await cluster.wait(lambda body: get_record(body, 'parent.slow'))
    assert {'parent/quick', 'parent/slow'} <= set(get_record(body, 'parent')['subrefs'])
    await operator.stop()
    await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    body = await cluster.wait_until_handled(x=1)

    assert calls == [('parent', 0), 'quick', ('slow', 0), ('parent', 1), ('slow', 1)]
    assert get_progress(body) == {}


@pytest.mark.guarantee('WLD-003', 'CFG-072', 'NEW-116', 'NEW-117')
async def test_operators_can_read_their_own_progress_but_it_is_not_a_change(
    cluster, registry, run_operator, calls
):
    seen = []

    @kopf.on.update('kopfexamples', id='update_fn', registry=registry)
    async def update_fn(body, old, new, diff, retry, **_):
        annotations = body['metadata']['annotations']
        seen.append(
            (
                annotations.get(f'{PREFIX}/update_fn'),
                LAST_HANDLED in annotations,
                str([old, new, diff]),
            )
        )
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=10)

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(body, **_):
        calls.append(sorted(body['metadata'].get('annotations') or {}))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)

    record = json.loads(seen[1][0])
    assert (seen[0][0], record['retries'], record['message'], record['purpose']) == (
        None,
        1,
        'not yet',
        'update',
    )
    assert datetime.datetime.fromisoformat(record['delayed']).utcoffset() == datetime.timedelta(0)
    assert all(is_there and PREFIX not in texts for _, is_there, texts in seen)
    assert [
        f'{PREFIX}/kopf.cycle',
        f'{PREFIX}/last-handled-configuration',
        f'{PREFIX}/update_fn',
    ] in calls


@pytest.mark.guarantee('TIP-001')
async def test_those_who_have_succeeded_are_called_for_the_next_change(
    cluster, registry, run_operator, calls
):
    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(new, **_):
        calls.append(new['spec']['x'])

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    for x in (2, 3):
        await cluster.patch({'spec': {'x': x}})
        await cluster.wait_until_handled(x=x)
    await operator.stop()
    await cluster.patch({'spec': {'x': 4}})
    await run_operator()
    await cluster.wait_until_handled(x=4)

    assert calls == [2, 3, 4]


async def test_an_operator_with_other_handlers_takes_over_and_leaves_nothing_of_its_predecessor(
    cluster, run_operator, calls
):
    before, after = kopf.OperatorRegistry(), kopf.OperatorRegistry()

    @kopf.on.create('kopfexamples', id='fn', registry=before)
    @kopf.on.delete('kopfexamples', id='fn', registry=before)
    async def fn(**_):
        raise kopf.TemporaryError('not yet', delay=10)

    @kopf.on.create('kopfexamples', id='fn', registry=after)
    @kopf.on.create('kopfexamples', id='another', registry=after)
    async def another_fn(retry, **_):
        calls.append(retry)

    @kopf.on.delete('kopfexamples', optional=True, registry=after)
    async def optional_fn(**_):
        pass

    await cluster.create()
    operator = await run_operator(registry=before)
    await cluster.wait(lambda body: get_record(body, 'fn'))
    await operator.stop()
    await run_operator(registry=after)
    body = await cluster.wait_until_handled(x=1)

    assert sorted(calls) == [0, 1]
    assert get_progress(body) == {}


@pytest.mark.guarantee('NEW-084', 'NEW-086')
@pytest.mark.parametrize(
    'finalizers', [[], ['example.com/foreign']], ids=['alone', 'with-foreign-finalizers']
)
async def test_deletion_handlers_are_not_called_again_if_the_object_changes_when_it_is_released(
    cluster, registry, run_operator, calls, finalizers
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(retry, **_):
        calls.append(retry)
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=10)
        await cluster.patch({'metadata': {'labels': {'changed': 'yes'}}})

    await run_operator()
    await cluster.create(finalizers=finalizers)
    await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
    await cluster.delete()
    await cluster.wait(lambda body: body is None or body['metadata']['finalizers'] == finalizers)

    assert calls == [0, 1]


@pytest.mark.guarantee('REC-003')
async def test_the_last_handled_state_is_taken_from_the_object_and_not_from_the_memory(
    cluster, registry, run_operator, calls
):
    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        calls.append((old['spec'], new['spec']))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    handled = json.dumps({'spec': {'x': 'seen by another process'}})
    await cluster.patch({'spec': {'x': 2}, 'metadata': {'annotations': {LAST_HANDLED: handled}}})
    await cluster.wait_until_handled(x=2)

    assert calls == [({'x': 'seen by another process'}, {'x': 2})]


@pytest.mark.guarantee('TRB-001')
@pytest.mark.parametrize('is_manual', [False, True], ids=['by-the-operator', 'manually'])
async def test_objects_deleted_in_the_downtime_remain_until_they_are_released(
    cluster, registry, run_operator, calls, is_manual
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(name, **_):
        calls.append(name)

    operator = await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
    await operator.stop()
    await cluster.delete()
    await asyncio.sleep(24 * 3600)
    assert 'deletionTimestamp' in (await cluster.get())['metadata']

    if is_manual:
        await cluster.patch({'metadata': {'finalizers': []}})
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == ([] if is_manual else ['obj'])


@pytest.mark.guarantee('NEW-262', 'NEW-263')  # but with no writes: as the design decides
async def test_long_delays_are_over_in_time_with_nothing_written_meanwhile(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append((round(asyncio.get_running_loop().time()), len(cluster.writes)))
        if retry == 0:
            raise kopf.TemporaryError('in an hour and a half', delay=5400)

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: get_last_handled(body) is not None, timeout=6000)

    (begun, _), (ended, writes) = calls
    assert ended - begun == pytest.approx(5400, abs=2)
    assert writes == 1  # of the progress
