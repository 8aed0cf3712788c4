"""
Daemons: beside which objects they live, and what they know of them.
"""

import asyncio
import threading

import pytest
from clusters import FINALIZER, Cluster, build_crd, build_object, get_finalizers, wait_until
from decorator_keywords import get_keywords
from timed_notes import pass_time

import kopf


@pytest.mark.guarantee('DMN-001', 'NEW-032')
def test_signature_of_daemons():
    keywords = get_keywords(kopf.daemon)

    assert keywords.keys() >= {
        'id',
        'param',
        'errors',
        'timeout',
        'retries',
        'backoff',
        'initial_delay',
        'cancellation_backoff',
        'cancellation_timeout',
        'cancellation_polling',
        'labels',
        'annotations',
        'when',
        'field',
        'value',
        'registry',
    }
    assert set(keywords.values()) == {None}


@pytest.mark.guarantee('DMN-002', 'DMN-003', 'DMN-006')
async def test_one_daemon_lives_beside_each_object_for_each_handler(
    cluster, registry, run_operator, calls
):
    async def fn(name, param, stopped, **_):
        calls.note(name, param)
        await stopped.wait()

    kopf.daemon('kopfexamples', id='one', param='one', registry=registry)(fn)
    kopf.daemon('kopfexamples', id='two', param='two', registry=registry)(fn)
    await cluster.create('old')
    await run_operator()
    await cluster.create('new')
    await wait_until(lambda: len(calls) == 4)
    for name in ['old', 'new']:
        await cluster.patch({'spec': {'x': 2}}, name)
    await pass_time(100)

    assert sorted(what for _, *what in calls) == [
        ['new', 'one'],
        ['new', 'two'],
        ['old', 'one'],
        ['old', 'two'],
    ]
    assert max(calls.moments) == 0


@pytest.mark.guarantee('DMN-002')
async def test_functions_of_the_same_name_are_different_daemons(
    cluster, registry, run_operator, calls
):
    def declare(param):
        @kopf.daemon('kopfexamples', param=param, registry=registry)
        async def same(stopped, **_):
            calls.note(param)
            await stopped.wait()

    declare('one')
    declare('two')
    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)

    assert sorted(what for _, what in calls) == ['one', 'two']


@pytest.mark.guarantee('DMN-003', 'DMN-024')
async def test_daemons_are_started_again_by_the_next_start_of_the_operator(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', id='endless', registry=registry)
    async def endless(stopped, **_):
        calls.note('endless')
        await stopped.wait()

    @kopf.daemon('kopfexamples', id='brief', registry=registry)
    async def brief(**_):
        calls.note('brief')

    await cluster.create()
    for times in [1, 2]:
        operator = await run_operator()
        await wait_until(lambda times=times: len(calls) == 2 * times)
        await cluster.patch({'spec': {'x': times + 1}})
        await pass_time(100)
        await operator.stop()

    assert sorted(what for _, what in calls) == ['brief', 'brief', 'endless', 'endless']


@pytest.mark.guarantee('DMN-004', 'DMN-019', 'DMN-022')
async def test_daemons_hold_neither_events_nor_other_handlers(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def endless(stopped, **_):
        calls.note(
            'begin',
            type(stopped) is kopf.AsyncDaemonStopperChecker,
            stopped.is_set(),
            bool(stopped),
        )
        assert threading.current_thread() is threading.main_thread()
        while not stopped:
            await stopped.wait(10)
        calls.note('end')

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        calls.note('event', spec['x'])

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(new, **_):
        calls.note('update', new['spec']['x'])

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: (0, 'begin', True, False, False) in calls)
    await cluster.wait_until_handled()
    await pass_time(10000)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)

    assert [what for _, *what in calls if what[0] in ('update', 'end')] == [['update', 2]]
    assert ['event', 2] in [what for _, *what in calls]


@pytest.mark.guarantee(
    'DMN-005', 'DMN-022', 'CFG-022'
)  # but not in the same threads: as the design decides
async def test_many_sync_daemons_hold_neither_each_other_nor_sync_handlers(
    cluster, registry, run_operator, settings, calls, barrier
):
    settings.execution.max_workers = 1
    threads = set()

    @kopf.daemon('kopfexamples', id='endless', registry=registry)
    def endless(name, stopped, **_):
        assert type(stopped) is kopf.SyncDaemonStopperChecker
        threads.add(threading.current_thread())
        while not stopped:
            stopped.wait()

    @kopf.on.update('kopfexamples', registry=registry)
    def update_fn(**_):
        calls.append('update')

    await run_operator()
    for number in range(20):
        await cluster.create(f'obj-{number}')
    await wait_until(lambda: len(threads) == 20)
    await cluster.wait_until_handled('obj-0')
    await cluster.patch({'spec': {'x': 2}}, 'obj-0')
    await cluster.wait_until_handled('obj-0', x=2)

    assert calls == ['update']
    assert all(thread.is_alive() for thread in threads)
    assert {thread.name for thread in threads} == {
        f'endless of obj-{number}' for number in range(20)
    }
    for number in range(20):
        await cluster.delete(f'obj-{number}')
    for number in range(20):
        await cluster.wait(lambda body: body is None, f'obj-{number}')


@pytest.mark.guarantee('DMN-032', 'KWA-010')
async def test_daemons_see_the_object_as_it_is_now(cluster, registry, run_operator):
    kwargs = {}

    @kopf.daemon('kopfexamples', registry=registry)
    async def endless(stopped, **given):
        kwargs.update(given)
        await stopped.wait()

    await run_operator()
    await cluster.create(spec={'x': 1}, labels={'l': '1'}, annotations={'a': '1'})
    await wait_until(lambda: kwargs)
    name, uid, namespace = kwargs['name'], kwargs['uid'], kwargs['namespace']
    await cluster.patch(
        {
            'spec': {'x': 2},
            'status': {'s': 2},
            'metadata': {'labels': {'l': '2'}, 'annotations': {'a': '2'}},
        }
    )
    await wait_until(lambda: kwargs['spec']['x'] == 2)

    assert kwargs['body']['spec'] == {'x': 2}
    assert kwargs['body'].spec['x'] == kwargs['body']['status']['s'] == kwargs['status']['s'] == 2
    assert kwargs['labels']['l'] == kwargs['annotations']['a'] == kwargs['meta'].labels['l'] == '2'
    assert (name, namespace, uid) == ('obj', 'default', kwargs['meta'].uid)


FILTERS = [
    pytest.param({'labels': {'mark': 'yes'}}, id='labels'),
    pytest.param({'annotations': {'mark': 'yes'}}, id='annotations'),
    pytest.param({'when': lambda spec, **_: spec.get('mark') == 'yes'}, id='when'),
    pytest.param({'field': 'spec.mark'}, id='field'),
    pytest.param({'field': 'spec.mark', 'value': 'yes'}, id='value'),
]
MARKED = {
    'spec': {'mark': 'yes'},
    'metadata': {'labels': {'mark': 'yes'}, 'annotations': {'mark': 'yes'}},
}
UNMARKED = {
    'spec': {'mark': None},
    'metadata': {'labels': {'mark': None}, 'annotations': {'mark': None}},
}


@pytest.mark.guarantee('DMN-033', 'DMN-034', 'DMN-008', 'DMN-031')
@pytest.mark.parametrize('options', FILTERS)
async def test_daemons_live_only_while_their_objects_match(
    cluster, registry, run_operator, calls, options
):
    @kopf.daemon('kopfexamples', id='fn', registry=registry, **options)
    async def filtered(stopped, **_):
        calls.note('begin')
        await stopped.wait()
        calls.note(stopped.reason)

    @kopf.daemon('kopfexamples', labels={'other': kopf.PRESENT}, id='never', registry=registry)
    async def never(**_):
        calls.note('never')

    reasons = kopf.DaemonStoppingReason
    await run_operator()
    await cluster.create()
    await pass_time(100)
    assert (calls, get_finalizers(await cluster.get())) == ([], [])

    for _ in range(2):
        calls.clear()
        await cluster.patch(MARKED)
        await wait_until(lambda: calls)
        assert get_finalizers(await cluster.get()) == [FINALIZER]
        await cluster.patch({'spec': {'x': 2}})
        await pass_time(100)
        await cluster.patch(UNMARKED)
        await cluster.wait(lambda body: not get_finalizers(body))
        assert [what for _, what in calls] == ['begin', reasons.FILTERS_MISMATCH]


@pytest.mark.guarantee('DMN-034', 'DMN-024')
async def test_daemons_that_have_ended_are_not_started_when_their_objects_match_again(
    cluster, registry, run_operator, calls
):
    @kopf.daemon('kopfexamples', labels={'mark': 'yes'}, id='brief', registry=registry)
    async def brief(**_):
        calls.note('brief')

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    await wait_until(lambda: calls)
    await cluster.patch(UNMARKED)
    await pass_time(10)
    await cluster.patch(MARKED)
    await pass_time(10)

    assert calls == [(0, 'brief')]
    assert get_finalizers(await cluster.get()) == []


@pytest.mark.guarantee('DMN-035')
async def test_filters_are_evaluated_only_by_events(cluster, registry, run_operator, calls):
    is_wanted, ended = False, []

    @kopf.daemon('kopfexamples', when=lambda **_: is_wanted, registry=registry)
    async def wanted(stopped, **_):
        calls.note('begin')
        await stopped.wait()
        calls.note('end')

    async def other(
        stopped, param, **_
    ):  # the ends of some make the object be handled again, with no events
        await stopped.wait(param)
        ended.append(param)

    for seconds in [25, 80, 10000]:
        kopf.daemon('kopfexamples', id=f'other-{seconds}', param=seconds, registry=registry)(other)
    await run_operator()
    await cluster.create()
    await cluster.wait(get_finalizers)
    await pass_time(5)
    is_wanted = True
    await pass_time(50)
    assert (calls, ended) == ([], [25])

    await cluster.patch({'metadata': {'labels': {'a': 'b'}}})
    await wait_until(lambda: calls)
    await pass_time(5)
    is_wanted = False
    await pass_time(50)
    assert ([what for _, what in calls], ended) == (['begin'], [25, 80])

    await cluster.patch({'metadata': {'labels': {'a': 'c'}}})
    await wait_until(lambda: len(calls) == 2)
    assert [what for _, what in calls] == ['begin', 'end']


@pytest.mark.guarantee('DMN-036')
async def test_stopping_daemons_count_as_running(cluster, registry, run_operator, calls):
    @kopf.daemon('kopfexamples', labels={'mark': 'yes'}, registry=registry)
    async def slow(stopped, **_):
        calls.note('begin')
        await stopped.wait()
        await asyncio.sleep(100)
        calls.note('end')

    await run_operator()
    await cluster.create(labels={'mark': 'yes'})
    await wait_until(lambda: calls)
    await cluster.patch(UNMARKED)
    await pass_time(10)
    await cluster.patch(MARKED)
    await pass_time(1000)
    assert calls == [(0, 'begin'), (100, 'end')]
    assert get_finalizers(await cluster.get()) == [FINALIZER]

    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(calls) == 3)
    assert calls[-1][1] == 'begin'


@pytest.mark.guarantee('DMN-002')
async def test_daemons_live_beside_cluster_wide_objects_too(sandbox, registry, run_operator, calls):
    @kopf.daemon('globals', registry=registry)
    async def endless(name, namespace, stopped, **_):
        calls.append((name, namespace))
        await stopped.wait()
        return 'done'

    await sandbox.apply(build_crd('globals', 'Global', scope='Cluster'))
    await run_operator()
    await sandbox.create(build_object(kind='Global', namespace=None))
    await wait_until(lambda: calls)
    await Cluster(sandbox, 'globals').delete()
    await Cluster(sandbox, 'globals').wait(lambda body: body is None)

    assert calls == [('obj', None)]
