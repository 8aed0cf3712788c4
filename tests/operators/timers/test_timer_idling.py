"""
Timers of idle objects: they wait until nothing has changed for some time.
"""

import pytest
from clusters import wait_until
from timed_notes import pass_time

import kopf


@pytest.fixture
def create_fn(registry):
    """Have the last handled state stored on the objects, so that only essential changes matter."""

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def handle(**_):
        pass


@pytest.mark.guarantee('TMR-008', 'TMR-010', 'NEW-259')
@pytest.mark.usefixtures('create_fn')
async def test_timers_wait_until_the_object_is_idle_and_then_go_by_intervals(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', idle=60, interval=10, id='tick', registry=registry)
    async def tick(**_):
        calls.note('tick')

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(85)
    await cluster.patch({'spec': {'x': 2}})
    calls.note('changed')
    await pass_time(30)
    await cluster.patch({'spec': {'x': 3}})
    calls.note('changed')
    await pass_time(75)

    assert calls == [
        (0, 'created'),
        (60, 'tick'),
        (70, 'tick'),
        (80, 'tick'),
        (85, 'changed'),
        (115, 'changed'),
        (175, 'tick'),
        (185, 'tick'),
    ]


@pytest.mark.guarantee('TMR-008', 'TMR-015')
@pytest.mark.usefixtures('create_fn')
async def test_a_change_suspends_the_retries_too(cluster, registry, run_operator, calls):
    @kopf.timer('kopfexamples', idle=60, interval=1000, backoff=20, registry=registry)
    async def failing(retry, **_):
        calls.note(retry)
        if retry < 2:
            raise ValueError('again')

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(80)
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(70)

    assert calls == [(0, 'created'), (60, 0), (80, 1), (140, 2)]


@pytest.mark.guarantee('TMR-008')
async def test_objects_found_at_the_start_are_not_idle_yet(cluster, registry, run_operator, calls):
    @kopf.timer('kopfexamples', idle=60, interval=1000, id='tick', registry=registry)
    async def tick(**_):
        calls.note('tick')

    await cluster.create()
    await pass_time(1000)
    await run_operator()
    calls.note('started')
    await pass_time(70)

    assert calls == [(0, 'started'), (60, 'tick')]


@pytest.mark.guarantee('TMR-012', 'NEW-260')
@pytest.mark.usefixtures('create_fn')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param(
            {'initial_delay': 60, 'interval': 10, 'idle': 600},
            [600, 610, 620],
            id='delay-within-idle-time',
        ),
        pytest.param(
            {'initial_delay': 60, 'interval': 10, 'idle': 20},
            [60, 70, 80],
            id='idle-time-within-delay',
        ),
        pytest.param({'initial_delay': 60, 'idle': 20}, [60], id='no-interval'),
    ],
)
async def test_the_delay_and_the_idle_time_go_together(
    cluster, registry, run_operator, calls, options, expected
):
    @kopf.timer('kopfexamples', registry=registry, **options)
    async def tick(**_):
        calls.note('tick')

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(625 if options['idle'] == 600 else 85)

    assert calls.moments == [0, *expected]


@pytest.mark.guarantee('NEW-260')
@pytest.mark.usefixtures('create_fn')
async def test_a_change_in_the_delay_begins_the_idle_time(cluster, registry, run_operator, calls):
    @kopf.timer('kopfexamples', initial_delay=60, idle=40, id='tick', registry=registry)
    async def tick(**_):
        calls.note('tick')

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(50)
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(100)

    assert calls == [(0, 'created'), (90, 'tick')]


@pytest.mark.guarantee('NEW-258')
@pytest.mark.usefixtures('create_fn')
async def test_with_no_interval_they_are_called_once_after_each_change(
    cluster, registry, run_operator, calls
):
    @kopf.timer('kopfexamples', idle=60, id='tick', registry=registry)
    async def tick(**_):
        calls.note('tick')

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(1000)
    await cluster.patch({'spec': {'x': 2}})
    await pass_time(30)
    await cluster.patch({'spec': {'x': 3}})
    await pass_time(1000)

    assert calls == [(0, 'created'), (60, 'tick'), (1090, 'tick')]


@pytest.mark.guarantee('NEW-258')
@pytest.mark.usefixtures('create_fn')
@pytest.mark.parametrize('idle', [0, 60])
async def test_a_change_in_the_middle_of_a_call_is_not_lost(
    cluster, registry, run_operator, calls, idle
):
    @kopf.timer('kopfexamples', idle=idle, registry=registry)
    async def tick(spec, **_):
        calls.note(spec['x'])
        if spec['x'] == 1:
            await cluster.patch({'spec': {'x': 2}})
            await wait_until(lambda: spec['x'] == 2)

    await run_operator()
    await cluster.create()
    await pass_time(1000)

    assert calls[-1] == (idle, 2)


@pytest.mark.guarantee('NEW-259')
@pytest.mark.usefixtures('create_fn')
async def test_unessential_changes_do_not_matter(cluster, registry, run_operator, calls):
    @kopf.timer('kopfexamples', idle=60, interval=10, id='tick', registry=registry)
    async def tick(**_):
        calls.note('tick')
        return len(calls)

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(65)
    await cluster.patch({'status': {'x': 2}})
    await pass_time(20)

    assert calls == [(0, 'created'), (60, 'tick'), (70, 'tick'), (80, 'tick')]


@pytest.mark.guarantee('TMR-020', 'NEW-259')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({'interval': 10}, [60, 120, 180], id='interval'),
        pytest.param({}, [60, 120, 180], id='no-interval'),
    ],
)
async def test_with_no_last_handled_state_all_changes_matter_even_own_results(
    cluster, registry, run_operator, calls, options, expected
):
    @kopf.timer('kopfexamples', idle=60, registry=registry, **options)
    async def tick(**_):
        calls.note('tick')
        return len(calls)

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(200)
    await cluster.patch({'status': {'x': 2}})
    await pass_time(65)

    assert calls.moments == [0, *expected, 260]


@pytest.mark.guarantee('NEW-259')
async def test_results_that_change_nothing_are_no_changes(cluster, registry, run_operator, calls):
    @kopf.timer('kopfexamples', idle=60, id='tick', registry=registry)
    async def tick(**_):
        calls.note('tick')
        return 'always the same'

    await run_operator()
    await cluster.create()
    calls.note('created')
    await pass_time(1000)

    assert calls == [(0, 'created'), (60, 'tick'), (120, 'tick')]
