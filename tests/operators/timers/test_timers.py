"""
Timers: when they are called, and what becomes of their errors and results.
"""

import asyncio
import datetime
import threading

import pytest
from clusters import FINALIZER, get_finalizers, wait_until
from decorator_keywords import get_keywords
from timed_notes import pass_time

import kopf

Reason = kopf.DaemonStoppingReason


@pytest.mark.guarantee('TMR-001', 'NEW-032')
def test_signature_of_timers():
    keywords = get_keywords(kopf.timer)

    assert keywords.keys() >= {
        'id',
        'param',
        'errors',
        'timeout',
        'retries',
        'backoff',
        'interval',
        'initial_delay',
        'sharp',
        'idle',
        'labels',
        'annotations',
        'when',
        'field',
        'value',
        'registry',
    }
    assert set(keywords.values()) == {None}


@pytest.mark.guarantee('TMR-002', 'TMR-003', 'TMR-009')
async def test_timers_are_called_for_each_object_while_it_exists(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def tick(name, spec, **_):
        calls.note(name, spec['x'])

    await cluster.create('old', spec={'x': 1})
    await run_operator()
    await cluster.create('new', spec={'x': 1})
    await pass_time(25)
    for name in ['old', 'new']:
        await cluster.patch({'spec': {'x': 2}}, name)
    await pass_time(10)
    await cluster.delete('old')
    await cluster.wait(lambda body: body is None, 'old')
    await pass_time(10)

    assert sorted(calls) == [
        (0, 'new', 1),
        (0, 'old', 1),
        (10, 'new', 1),
        (10, 'old', 1),
        (20, 'new', 1),
        (20, 'old', 1),
        (30, 'new', 2),
        (30, 'old', 2),
        (40, 'new', 2),
    ]


@pytest.mark.guarantee('TMR-004', 'TMR-005', 'TMR-006', 'NEW-258')
@pytest.mark.parametrize(
    'options, duration, expected',
    [
        pytest.param({'interval': 10}, 3, [0, 13, 26, 39], id='pause-after-the-end'),
        pytest.param({'interval': 10}, 25, [0, 35, 70, 105], id='pause-after-a-long-call'),
        pytest.param({'interval': 10, 'sharp': True}, 3, [0, 10, 20, 30], id='sharp'),
        pytest.param(
            {'interval': 10, 'sharp': True}, 25, [0, 30, 60, 90], id='sharp-with-long-calls'
        ),
    ],
)
async def test_intervals_of_timers(
    cluster, registry, run_operator, calls, options, duration, expected
):
    running = []

    @kopf.timer('kopfexamples', registry=registry, **options)
    async def tick(**_):
        calls.note(len(running))
        running.append(True)
        await asyncio.sleep(duration)
        running.pop()

    await run_operator()
    await cluster.create()
    await pass_time(expected[-1] + 2)

    assert calls == [(moment, 0) for moment in expected]


@pytest.mark.guarantee('TMR-007')
async def test_timers_and_other_handlers_run_at_the_same_time(
    cluster, registry, run_operator, calls
):
    async def fn(param, **_):
        calls.note(param, 'begin')
        await asyncio.sleep(5)
        calls.note(param, 'end')

    kopf.timer('kopfexamples', id='a', param='a', interval=100, registry=registry)(fn)
    kopf.timer('kopfexamples', id='b', param='b', interval=100, registry=registry)(fn)
    kopf.daemon('kopfexamples', id='c', param='c', registry=registry)(fn)
    kopf.on.create('kopfexamples', id='d', param='d', registry=registry)(fn)
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()

    assert sorted(calls[:4]) == [(0, param, 'begin') for param in 'abcd']
    assert sorted(calls[4:8]) == [(5, param, 'end') for param in 'abcd']


@pytest.mark.guarantee('TMR-011', 'NEW-032')
@pytest.mark.parametrize(
    'delay',
    [
        pytest.param(30, id='number'),
        pytest.param(lambda spec, **_: spec['delay'], id='function'),
    ],
)
async def test_initial_delay_is_only_for_the_first_call(
    cluster, registry, run_operator, calls, delay
):
    @kopf.timer(
        'kopfexamples',
        initial_delay=delay,
        interval=10,
        labels={'mark': 'yes'},
        id='tick',
        registry=registry,
    )
    async def tick(**_):
        calls.note('tick')

    operator = await run_operator()
    await cluster.create(spec={'delay': 30}, labels={'mark': 'yes'})
    calls.note('created')
    await pass_time(40.1)
    await cluster.patch({'metadata': {'labels': {'mark': 'no'}}})
    await pass_time(35)
    await cluster.patch({'metadata': {'labels': {'mark': 'yes'}}})
    await wait_until(lambda: len(calls) == 4)
    await operator.stop()
    calls.note('restarted')
    await run_operator()
    await pass_time(35)

    assert calls == [
        (0, 'created'),
        (30, 'tick'),
        (40, 'tick'),
        (75, 'tick'),
        (75, 'restarted'),
        (105, 'tick'),
    ]


@pytest.mark.guarantee('NEW-258')
async def test_timers_with_no_interval_are_called_once(cluster, registry, run_operator, calls):
    @kopf.timer('kopfexamples', registry=registry)
    async def once(retry, **_):
        calls.note(retry)
        if not retry:
            raise kopf.TemporaryError('again', delay=5)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)
    await cluster.wait(lambda body: not get_finalizers(body))
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(1000)

    assert calls == [(0, 0), (5, 1)]


@pytest.mark.guarantee('TMR-013', 'TMR-015', 'TMR-016', 'NEW-035')
@pytest.mark.parametrize(
    'error, options, expected',
    [
        pytest.param(
            lambda: kopf.TemporaryError('oops', delay=7), {}, [0, 7, 14, 24], id='temporary'
        ),
        pytest.param(
            lambda: kopf.TemporaryError('oops', delay=None),
            {},
            [0, 0, 0, 10],
            id='temporary-at-once',
        ),
        pytest.param(lambda: ValueError('oops'), {}, [0, 60, 120, 130], id='arbitrary'),
        pytest.param(
            lambda: ValueError('oops'), {'backoff': 5}, [0, 5, 10, 20], id='arbitrary-backoff'
        ),
        pytest.param(
            lambda: ValueError('oops'),
            {'backoff': 5, 'sharp': True},
            [0, 5, 10, 20],
            id='arbitrary-sharp',
        ),
        pytest.param(
            lambda: ValueError('oops'),
            {'errors': kopf.ErrorsMode.IGNORED},
            [0, 10, 20, 30],
            id='ignored',
        ),
        pytest.param(
            lambda: ValueError('oops'),
            {'errors': kopf.ErrorsMode.PERMANENT},
            [0],
            id='arbitrary-permanent',
        ),
        pytest.param(
            lambda: ValueError('oops'), {'backoff': 5, 'retries': 2}, [0, 5], id='retries'
        ),
        pytest.param(
            lambda: ValueError('oops'), {'backoff': 5, 'timeout': 7}, [0, 5], id='timeout'
        ),
        pytest.param(lambda: kopf.PermanentError('oops'), {}, [0], id='permanent'),
        pytest.param(
            lambda: asyncio.CancelledError(), {'backoff': 5}, [0, 5, 10, 20], id='cancelled-inside'
        ),
    ],
)
async def test_failed_timers_are_called_again(
    cluster, registry, run_operator, calls, error, options, expected
):
    @kopf.timer('kopfexamples', interval=10, registry=registry, **options)
    async def failing(**_):
        calls.note('tick')
        if len(calls) <= 2:
            raise error()

    await run_operator()
    await cluster.create()
    await pass_time(expected[-1] + 5)
    if len(expected) < 4:
        await cluster.wait(lambda body: not get_finalizers(body))
        await cluster.patch({'spec': {'x': 2}})
        await pass_time(1000)

    assert calls.moments == expected


@pytest.mark.guarantee('TMR-014', 'TMR-017', 'TMR-018')
async def test_a_success_ends_the_row_of_retries(cluster, registry, run_operator, calls):
    runtimes = []

    @kopf.timer('kopfexamples', interval=10, backoff=5, registry=registry)
    async def failing(retry, started, runtime, **_):
        calls.note(retry)
        runtimes.append((started, round(runtime / datetime.timedelta(seconds=1))))
        if retry < 3:
            raise ValueError('again')

    await run_operator()
    await cluster.create()
    await pass_time(33)

    assert calls == [(0, 0), (5, 1), (10, 2), (15, 3), (25, 0), (30, 1)]
    assert [runtime for _, runtime in runtimes] == [0, 5, 10, 15, 0, 5]
    assert len({started for started, _ in runtimes}) == 2


@pytest.mark.guarantee('TMR-019', 'NEW-077', 'NEW-078')
async def test_results_and_changes_are_put_on_the_object_after_each_call(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', interval=10, id='counter', registry=registry)
    async def counter(patch, status, **_):
        calls.note(bool(patch))
        patch.metadata.annotations['ticks'] = str(len(calls))
        patch.fns.append(lambda body: body['spec'].update(ticks=len(calls)))
        return len(calls)

    await run_operator()
    await cluster.create()
    for ticks in [1, 2, 3]:
        body = await cluster.wait(lambda body, ticks=ticks: body['spec'].get('ticks') == ticks)
        assert body['status'] == {'counter': ticks}
        assert body['metadata']['annotations'] == {'ticks': str(ticks)}

    assert calls == [(0, False), (10, False), (20, False)]


@pytest.mark.guarantee('NEW-079', 'NEW-081')
async def test_refused_functions_are_sent_with_the_next_tick(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def tick(patch, **_):
        calls.note(len(patch.fns))
        if len(calls) == 1:
            patch.fns.append(
                lambda body: body['metadata'].update(
                    labels={'l': 'yes' if len(calls) > 1 else '!!!'}
                )
            )

    await run_operator()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('labels') == {'l': 'yes'})
    await wait_until(lambda: len(calls) == 3)

    assert calls == [(0, 0), (10, 1), (20, 0)]


@pytest.mark.guarantee('TMR-021', 'TMR-023')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'labels': {'mark': 'yes'}}, id='labels'),
        pytest.param({'annotations': {'mark': 'yes'}}, id='annotations'),
        pytest.param({'when': lambda spec, **_: spec.get('mark') == 'yes'}, id='when'),
        pytest.param({'field': 'spec.mark'}, id='field'),
        pytest.param({'field': 'spec.mark', 'value': 'yes'}, id='value'),
    ],
)
async def test_timers_live_only_while_their_objects_match(
    cluster, registry, run_operator, calls, options
):
    @kopf.timer('kopfexamples', interval=10, registry=registry, **options)
    async def tick(**_):
        calls.note('tick')

    marks = {'mark': 'yes'}
    await run_operator()
    await cluster.create()
    await pass_time(100)
    assert (calls, get_finalizers(await cluster.get())) == ([], [])

    for _ in range(2):
        calls.clear()
        await cluster.patch({'spec': marks, 'metadata': {'labels': marks, 'annotations': marks}})
        await wait_until(lambda: len(calls) == 2)
        assert get_finalizers(await cluster.get()) == [FINALIZER]
        unmarks = {'mark': None}
        await cluster.patch(
            {'spec': unmarks, 'metadata': {'labels': unmarks, 'annotations': unmarks}}
        )
        await cluster.wait(lambda body: not get_finalizers(body))
        await pass_time(100)
        assert calls == [(0, 'tick'), (10, 'tick')]


@pytest.mark.guarantee('TMR-022', 'TMR-023')
async def test_timers_between_their_calls_are_neither_tasks_nor_threads(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', interval=1000, id='async_fn', registry=registry)
    async def async_fn(**_):
        calls.append(asyncio.current_task().get_name())

    @kopf.timer('kopfexamples', interval=1000, id='sync_fn', registry=registry)
    def sync_fn(**_):
        threads.append(threading.current_thread())
        names.extend(thread.name for thread in threading.enumerate())

    threads, names = [], []
    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls and threads)
    await pass_time(10)

    assert calls == ['async_fn of obj']
    assert threads[0] is not threading.main_thread()
    assert 'sync_fn of obj' not in names  # it is a thread of all sync handlers
    assert not [task for task in asyncio.all_tasks() if '_fn' in task.get_name()]
    assert get_finalizers(await cluster.get()) == [FINALIZER]
    await cluster.delete()
    await cluster.wait(lambda body: body is None)


@pytest.mark.guarantee('TMR-023', 'NEW-047')
async def test_running_timers_are_let_to_finish_before_the_object_goes(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def slow(stopped, **_):
        calls.note('begin', type(stopped) is kopf.AsyncDaemonStopperChecker, stopped.reason)
        await asyncio.sleep(100)
        calls.note('end', bool(stopped), stopped.reason)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await pass_time(50)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    calls.note('gone')
    await pass_time(100)

    assert calls == [
        (0, 'begin', True, None),
        (100, 'end', True, Reason.RESOURCE_DELETED),
        (100, 'gone'),
    ]
