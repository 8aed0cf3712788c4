"""
Level-triggered functions: for what and how often they are called, and what they leave on objects.
"""

import asyncio
import itertools
import threading

import pytest
from clusters import get_finalizers, get_progress, get_time, wait_until

import kopf


async def settle(seconds=5.0):
    """Let everything happen that follows soon, in virtual time."""
    await asyncio.sleep(seconds)


async def start(cluster, run_operator, *, times=1, **options):
    """Start an operator, and wait until it watches."""
    await run_operator(**options)
    await cluster.wait_until_watched(times)


def declare(registry, calls, **options):
    @kopf.on.reconcile('kopfexamples', registry=registry, **options)
    async def fn(name, triggers, **_):
        calls.append((name, *sorted(triggers)))


@pytest.mark.guarantee('RCL-002', 'RCL-005')
async def test_new_object_is_reconciled_once_and_left_untouched(
    cluster, registry, calls, run_operator
):
    declare(registry, calls)
    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()

    body = await cluster.get('obj')
    assert calls == [('obj', 'self')]
    assert cluster.writes == []
    assert get_finalizers(body) == []
    assert 'annotations' not in body['metadata']


@pytest.mark.guarantee('RCL-002', 'RCL-005')
async def test_restart_reconciles_each_object_once_with_no_requests(
    cluster, registry, calls, run_operator, sandbox
):
    declare(registry, calls)
    for number in range(5):
        await cluster.create(f'obj{number}')
    operator = await run_operator()
    await settle()
    await operator.stop()
    calls.clear()
    sandbox.requests.clear()
    await run_operator()
    await settle(600)

    assert sorted(calls) == [(f'obj{number}', 'start') for number in range(5)]
    assert cluster.writes == []
    assert [asked for asked in sandbox.requests if asked.verb == 'get' and asked.name] == []


@pytest.mark.guarantee('RCL-002')
async def test_changes_by_others_reconcile_and_own_changes_do_not(
    cluster, registry, calls, run_operator
):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(spec, patch, triggers, **_):
        calls.append((spec['x'], *sorted(triggers)))
        patch.status['observed'] = spec['x']
        patch.spec['y'] = spec['x']

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()
    await cluster.patch({'spec': {'x': 2}})
    await settle()
    await cluster.patch({'status': {'z': 2}})
    await settle()

    assert calls == [(1, 'self'), (2, 'self'), (2, 'self')]
    assert (await cluster.get())['status'] == {'observed': 2, 'z': 2}
    assert len(cluster.writes) == 2


@pytest.mark.guarantee('RCL-001')
async def test_changes_during_a_call_make_one_more_call(cluster, registry, calls, run_operator):
    running = []

    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(spec, **_):
        assert not running
        running.append(spec['x'])
        await asyncio.sleep(10)
        calls.append(running.pop())

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(1)
    for x in range(2, 7):
        await cluster.patch({'spec': {'x': x}})
        await settle(1)
    await settle(60)

    assert calls == [1, 6]


@pytest.mark.guarantee('RCL-002')
async def test_requeue_is_called_after_its_time_and_forgotten_after_a_trigger(
    cluster, registry, calls, run_operator
):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(triggers, **_):
        calls.append((round(get_time() - began), *triggers))
        return kopf.Requeue(100, reason='it takes time') if len(calls) < 3 else None

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    await settle(130)
    await cluster.patch({'spec': {'x': 2}})
    await settle(1000)

    assert calls == [(0, 'self'), (100, 'requeue'), (130, 'self')]


@pytest.mark.guarantee('RCL-006')
async def test_errors_are_retried_with_growing_delays(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, backoff=kopf.Backoff(jitter=0))
    async def fn(triggers, retry, **_):
        calls.append((round(get_time() - began), retry, *triggers))
        if len(calls) < 5:
            raise RuntimeError('boo')

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    await settle(100)
    await cluster.patch({'spec': {'x': 2}})
    await settle(100)

    assert calls == [
        (0, 0, 'self'),
        (1, 1, 'retry'),
        (3, 2, 'retry'),
        (7, 3, 'retry'),
        (15, 4, 'retry'),
        (100, 0, 'self'),
    ]
    assert cluster.writes == []


@pytest.mark.guarantee('RCL-006')
async def test_temporary_error_is_retried_after_its_delay(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(**_):
        calls.append(round(get_time() - began))
        if len(calls) < 3:
            raise kopf.TemporaryError('wait', delay=50)

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    await settle(500)

    assert calls == [0, 50, 100]


@pytest.mark.guarantee('RCL-006')
async def test_permanent_error_is_not_retried_until_news(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, resync=60)
    async def fn(triggers, **_):
        calls.extend(triggers)
        if len(calls) == 1:
            raise kopf.PermanentError('never')

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(1000)
    assert calls == ['self']

    await cluster.patch({'spec': {'x': 2}})
    await settle(61)
    assert calls == ['self', 'self', 'resync']


@pytest.mark.guarantee('RCL-014')
@pytest.mark.parametrize('result', [[{'kind': 'Service'}], {}, 'ok', 0])
async def test_unexpected_results_are_permanent_failures(
    cluster, registry, calls, run_operator, caplog, result
):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(**_):
        calls.append(get_time())
        return result

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(1000)

    assert len(calls) == 1
    assert any(
        f'has returned a value of the type {type(result).__name__}' in line
        for line in caplog.messages
    )


@pytest.mark.guarantee('RCL-006')
async def test_timeout_is_for_each_call(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, timeout=5, backoff=10)
    async def fn(**_):
        calls.append(round(get_time() - began))
        await asyncio.sleep(100 if len(calls) < 3 else 1)

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    await settle(100)

    assert calls == [0, 15, 30]


@pytest.mark.guarantee('RCL-006')
async def test_retries_are_limited(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, retries=3, backoff=10)
    async def fn(**_):
        calls.append(round(get_time() - began))
        raise RuntimeError('boo')

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    await settle(500)

    assert calls == [0, 10, 20]


@pytest.mark.guarantee('RCL-002')
async def test_resyncs_are_periodic_and_spread(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, resync=100)
    async def fn(name, triggers, **_):
        if 'resync' in triggers:
            calls.append((name, get_time()))

    await start(cluster, run_operator)
    for number in range(10):
        await cluster.create(f'obj{number}')
    await settle(1000)

    moments = {}
    for name, time in calls:
        moments.setdefault(name, []).append(time)
    assert len(moments) == 10
    assert len({round(times[0]) % 100 for times in moments.values()}) > 5
    for times in moments.values():
        assert 9 <= len(times) <= 11
        assert all(abs(later - time - 100) < 1 for time, later in itertools.pairwise(times))


@pytest.mark.guarantee('RCL-012')
async def test_changes_settle_before_a_call(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, settle=10)
    async def fn(spec, **_):
        calls.append((spec['x'], round(get_time() - began)))

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    for x in range(2, 5):
        await settle(5)
        await cluster.patch({'spec': {'x': x}})
    await settle(100)

    assert calls == [(4, 25)]


@pytest.mark.guarantee('RCL-012')
async def test_constant_changes_do_not_prevent_calls(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, settle=10)
    async def fn(**_):
        calls.append(round(get_time() - began))

    await start(cluster, run_operator)
    began = get_time()
    await cluster.create('obj')
    for x in range(2, 16):
        await settle(5)
        await cluster.patch({'spec': {'x': x}})
    await settle(100)

    assert calls[0] == 60  # the tenth postponement was at 50 s


@pytest.mark.guarantee('RCL-013')
async def test_workers_limit_simultaneous_calls(cluster, registry, calls, run_operator):
    running = set()

    @kopf.on.reconcile('kopfexamples', registry=registry, workers=2)
    async def fn(name, **_):
        running.add(name)
        calls.append(len(running))
        await asyncio.sleep(1)
        running.discard(name)

    @kopf.on.reconcile('kopfexamples', registry=registry, id='other')
    async def other(name, **_):
        calls.append(name)

    await start(cluster, run_operator)
    for number in range(7):
        await cluster.create(f'obj{number}')
    await settle(20)

    counts = [call for call in calls if isinstance(call, int)]
    assert len(counts) == 7
    assert max(counts) == 2
    assert sorted(call for call in calls if isinstance(call, str)) == [
        f'obj{number}' for number in range(7)
    ]


@pytest.mark.guarantee('RCL-003')
async def test_only_changes_of_the_field_reconcile(cluster, registry, calls, run_operator):
    declare(registry, calls, field='spec.x')
    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()
    await cluster.patch({'spec': {'y': 2}})
    await cluster.patch({'status': {'z': 2}})
    await settle()
    assert calls == [('obj', 'self')]

    await cluster.patch({'spec': {'x': 2}})
    await settle()
    assert calls == [('obj', 'self'), ('obj', 'self')]


@pytest.mark.guarantee('RCL-009')
async def test_mismatching_objects_are_not_reconciled_and_their_requeues_are_dropped(
    cluster, registry, calls, run_operator
):
    @kopf.on.reconcile('kopfexamples', registry=registry, labels={'on': 'yes'})
    async def fn(triggers, **_):
        calls.extend(triggers)
        return kopf.Requeue(50)

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(200)
    assert calls == []

    await cluster.patch({'metadata': {'labels': {'on': 'yes'}}})
    await settle(60)
    assert calls == ['self', 'requeue']

    await cluster.patch({'metadata': {'labels': {'on': 'no'}}})
    await settle(500)
    assert calls == ['self', 'requeue']


@pytest.mark.guarantee('RCL-007')
async def test_levels_and_causes_do_not_wait_for_each_other(cluster, registry, calls, run_operator):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append(f'create {retry}')
        if retry < 2:
            raise kopf.TemporaryError('wait', delay=100)

    @kopf.on.reconcile('kopfexamples', registry=registry, backoff=30)
    async def fn(retry, triggers, **_):
        calls.append(f'reconcile {retry}')
        if retry < 2:
            raise RuntimeError('boo')

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(300)

    assert calls == [
        'create 0',
        'reconcile 0',
        'reconcile 1',
        'reconcile 2',
        'create 1',
        'create 2',
    ]
    assert get_progress(await cluster.get()) == {}


@pytest.mark.guarantee('RCL-007')
async def test_levels_and_causes_make_one_patch(cluster, registry, calls, run_operator):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        patch.status['created'] = 'yes'
        patch.status['last'] = 'created'

    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(patch, triggers, **_):
        calls.extend(triggers)
        patch.status['reconciled'] = 'yes'
        patch.status['last'] = 'reconciled'

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(100)

    status = {'created': 'yes', 'reconciled': 'yes', 'last': 'reconciled'}
    assert (await cluster.get())['status'] == status
    assert len(cluster.writes) == 1
    assert calls == ['self', 'self']  # the second time for the change by the other handler


@pytest.mark.guarantee('RCL-002')
async def test_objects_are_reconciled_on_request(cluster, registry, calls, run_operator):
    declare(registry, calls)
    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()

    assert kopf.trigger('kopfexamples', 'obj', 'default', reason='a test')
    assert not kopf.trigger('kopfexamples', 'other', 'default')
    assert not kopf.trigger('pods', 'obj', 'default')
    await settle()
    assert calls == [('obj', 'self'), ('obj', 'external')]

    is_known = await asyncio.to_thread(kopf.trigger, 'kopfexamples.kopf.dev', 'obj', 'default')
    await settle()
    assert is_known
    assert calls == [('obj', 'self'), ('obj', 'external'), ('obj', 'external')]


@pytest.mark.guarantee('RCL-002')
async def test_requests_from_functions_are_for_their_operator(cluster, calls, run_operator):
    for number in range(2):
        registry = kopf.OperatorRegistry()

        @kopf.on.reconcile('kopfexamples', registry=registry)
        async def fn(triggers, number=number, **_):
            calls.append((number, *triggers))
            if number and 'external' not in triggers:
                kopf.trigger('kopfexamples', 'obj', 'default')

        await start(cluster, run_operator, times=number + 1, registry=registry)
    await cluster.create('obj')
    await settle()

    assert sorted(calls) == [(0, 'self'), (1, 'external'), (1, 'self')]


@pytest.mark.guarantee('RCL-010')
async def test_objects_are_not_reconciled_in_a_pause_and_all_are_after_it(
    cluster, registry, calls, town, peering
):
    declare(registry, calls, resync=50)
    for number in range(3):
        await cluster.create(f'obj{number}')
    await town.run('me', priority=1, registry=registry)
    await settle(20)
    assert {name for name, *_ in calls} == {'obj0', 'obj1', 'obj2'}
    rival = await town.run('rival', priority=2, registry=kopf.OperatorRegistry())
    await settle(10)
    calls.clear()
    await settle(200)
    assert calls == []

    await rival.stop()
    await settle(20)
    assert sorted(name for name, *triggers in calls if 'start' in triggers) == [
        'obj0',
        'obj1',
        'obj2',
    ]


@pytest.mark.guarantee('RCL-008')
async def test_deletion_waits_for_its_reconciliation(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, deletion=True)
    async def fn(deleting, **_):
        calls.append(deleting)
        if deleting and calls.count(True) < 3:
            return kopf.Requeue(10)

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()
    assert len(get_finalizers(await cluster.get())) == 1
    assert calls == [False]

    await cluster.delete()
    await settle(15)
    assert calls == [False, True, True]
    await wait_until(lambda: len(calls) == 4)
    await cluster.wait(lambda body: body is None, timeout=1)
    assert calls == [False, True, True, True]


@pytest.mark.guarantee('RCL-008')
async def test_deleted_objects_are_not_reconciled_by_default(
    cluster, registry, calls, run_operator
):
    declare(registry, calls)
    await start(cluster, run_operator)
    await cluster.create('obj', finalizers=['others.dev/held'])
    await settle()
    await cluster.delete()
    await settle()
    await cluster.patch({'spec': {'x': 2}})
    await settle()

    assert calls == [('obj', 'self')]


@pytest.mark.guarantee('RCL-014')
async def test_sync_functions_are_called_in_threads(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    def fn(patch, **_):
        calls.append(threading.current_thread() is threading.main_thread())
        patch.status['done'] = True

    await start(cluster, run_operator)
    await cluster.create('obj')
    await cluster.wait(lambda body: body.get('status') == {'done': True})

    assert calls == [False]


@pytest.mark.guarantee('RCL-004')
async def test_own_changes_are_seen_before_they_come_back(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(status, patch, triggers, **_):
        calls.append((status.get('count', 0), *triggers))
        patch.status['count'] = status.get('count', 0) + 1

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()
    with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', stall=True):
        began = get_time()
        for number in range(2, 4):
            assert kopf.trigger('kopfexamples', 'obj', 'default')
            while len(calls) < number:
                await asyncio.sleep(0.01)
        duration = get_time() - began

    assert calls == [(0, 'self'), (1, 'external'), (2, 'external')]
    assert duration < 1
    await settle(100)
    assert len(calls) == 3


@pytest.mark.guarantee('RCL-002')
async def test_changes_by_others_during_own_patch_are_not_lost(
    cluster, registry, calls, run_operator
):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(spec, patch, **_):
        if len(calls) == 0:
            await cluster.patch({'spec': {'x': 2}})
        calls.append(spec['x'])
        patch.status['seen'] = spec['x']

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(30)

    assert calls == [1, 2]
    assert (await cluster.get())['status'] == {'seen': 2}


@pytest.mark.guarantee('RCL-006')
async def test_refused_changes_do_not_reconcile_in_circles(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def fn(patch, **_):
        calls.append(get_time())
        patch.metadata['labels'] = 'not a mapping'
        patch.status['x'] = 1

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(600)

    assert len(calls) <= 3
