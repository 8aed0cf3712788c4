"""
Objects that are handled again and again, though only the operator itself changes them: they are
slowed down, and it is reported once, until somebody else changes them.
"""

import asyncio
import itertools
import logging

import pytest
from clusters import get_progress, wait_until

import kopf
from kopf._cogs.configs.settings import BreakerSettings
from kopf._core.actions import breakers

LIMITS = BreakerSettings(limit=3, window=10, delay=5, max_delay=15)


@pytest.mark.guarantee('FND-005')
@pytest.mark.parametrize(
    'times, expected',
    [
        pytest.param([0, 1, 2], [None, None, None], id='few'),
        pytest.param([0, 1, 2, 3], [None, None, None, 8], id='too-many'),
        pytest.param([0, 4, 8, 12], [None] * 4, id='too-slow'),
        pytest.param(
            [0, 1, 2, 3, 8, 18, 33],
            [None, None, None, 8, 18, 33, 48],
            id='longer-each-time-up-to-a-limit',
        ),
        pytest.param([0, 1, 2, 3, 100], [None, None, None, 8, 110], id='not-forgotten-by-itself'),
    ],
)
def test_pauses_of_too_frequent_cycles(times, expected):
    breaker = breakers.CLOSED
    ends = []
    for time in times:
        breaker = breakers.count_cycle(breaker, LIMITS, time)
        ends.append(breaker.until)

    assert ends == expected


def test_nothing_is_counted_without_a_limit():
    breaker = breakers.CLOSED
    for time in range(100):
        breaker = breakers.count_cycle(breaker, BreakerSettings(limit=None), time / 100)

    assert breaker == breakers.CLOSED


@pytest.mark.parametrize(
    'until, now, expected',
    [
        pytest.param(None, 1, None, id='closed'),
        pytest.param(5, 1, 4, id='open'),
        pytest.param(5, 5, None, id='over'),
    ],
)
def test_rest_of_a_pause(until, now, expected):
    assert breakers.Breaker(until=until).get_pause(now) == expected


@pytest.fixture
def ping_pong(registry):
    """Two handlers that react to each other for ever."""
    times = []

    @kopf.on.create('kopfexamples', id='ping_fn', registry=registry)
    @kopf.on.update('kopfexamples', field='spec.ping', id='ping_fn', registry=registry)
    async def ping_fn(spec, patch, **_):
        times.append(asyncio.get_running_loop().time())
        patch.spec['pong'] = spec.get('pong', 0) + 1

    @kopf.on.update('kopfexamples', field='spec.pong', id='pong_fn', registry=registry)
    async def pong_fn(spec, patch, **_):
        times.append(asyncio.get_running_loop().time())
        patch.spec['ping'] = spec.get('ping', 0) + 1

    return times


@pytest.mark.guarantee('FND-005')
async def test_handlers_that_react_to_each_other_are_slowed_down(
    cluster, ping_pong, run_operator, logs
):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(3600)
    errors = [text for text in logs(logging.ERROR) if 'again and again' in text]

    pauses = [round(after - before) for before, after in itertools.pairwise(ping_pong)]
    assert [pause for pause in pauses if pause] == [10, 20, 40, 80, 160, 320, 600, 600, 600, 600]
    assert len([pause for pause in pauses if not pause]) == 11
    assert len(errors) == 1
    assert "'ping_fn" in errors[0] or "'pong_fn" in errors[0]
    assert 'spec.ping' in errors[0] or 'spec.pong' in errors[0]


@pytest.mark.guarantee('FND-005')
async def test_changes_by_others_end_the_slowness(cluster, ping_pong, run_operator):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(1000)
    before = asyncio.get_running_loop().time()
    ping_pong.clear()
    await cluster.patch({'spec': {'ping': 1000}})
    await wait_until(lambda: len(ping_pong) >= 11, timeout=5)

    assert ping_pong[10] - before < 5


@pytest.mark.guarantee('FND-005')
async def test_changes_by_others_while_handlers_run_end_the_slowness(
    cluster, registry, run_operator
):
    @kopf.on.update('kopfexamples', field='spec.other', id='loop_fn', registry=registry)
    async def loop_fn(spec, patch, **_):
        times.append(asyncio.get_running_loop().time())
        if edits:
            await cluster.patch({'spec': edits.pop()})
            edited.set_result(len(times))
        patch.spec['loop'] = spec.get('loop', 0) + 1

    @kopf.on.create('kopfexamples', id='other_fn', registry=registry)
    @kopf.on.update('kopfexamples', field='spec.loop', id='other_fn', registry=registry)
    async def other_fn(spec, patch, **_):
        patch.spec['other'] = spec.get('other', 0) + 1

    times, edits, edited = [], [], asyncio.get_running_loop().create_future()
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(1000)
    edits.append({'edited': True})
    count = await asyncio.wait_for(edited, 1300)
    await asyncio.sleep(5)

    assert len(times) - count >= 5


@pytest.mark.guarantee('FND-005')
async def test_a_deletion_ends_the_slowness(cluster, ping_pong, run_operator):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(1000)
    await cluster.delete()

    await cluster.wait(lambda body: body is None, timeout=5)


@pytest.mark.guarantee('FND-005')
async def test_limits_are_up_to_the_settings(cluster, ping_pong, run_operator, settings):
    settings.breaker.limit = 2
    settings.breaker.delay = 100
    settings.breaker.max_delay = 100
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(250)

    assert len(ping_pong) == 6  # the first one is by a change of others, then two, then slowly


@pytest.mark.guarantee('FND-005')
async def test_retries_do_not_count(cluster, registry, run_operator, logs):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        if retry < 30:
            raise kopf.TemporaryError('not yet', delay=0.5)

    await run_operator()
    await cluster.create()
    body = await cluster.wait_until_handled(x=1)

    assert not get_progress(body)
    assert not any('again and again' in text for text in logs(logging.ERROR))


@pytest.mark.guarantee('FND-005')
async def test_many_handlers_one_by_one_do_not_count(cluster, registry, run_operator, logs):
    for number in range(30):
        kopf.on.create('kopfexamples', id=f'fn{number}', registry=registry)(lambda **_: None)
    await run_operator(lifecycle=kopf.lifecycles.one_by_one)
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert not any('again and again' in text for text in logs(logging.ERROR))


@pytest.mark.guarantee('FND-005')
async def test_timers_that_change_what_handlers_react_to_do_not_count(
    cluster, registry, run_operator, logs
):
    calls = []

    @kopf.on.timer('kopfexamples', interval=1, registry=registry)
    async def tick(spec, patch, **_):
        patch.spec['ticks'] = spec.get('ticks', 0) + 1

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(**_):
        calls.append(1)

    await run_operator()
    await cluster.create()
    await asyncio.sleep(100)

    assert len(calls) > 90
    assert not any('again and again' in text for text in logs(logging.ERROR))


@pytest.mark.guarantee('FND-005')
async def test_slowness_is_posted_as_an_event(cluster, ping_pong, run_operator, sandbox):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await asyncio.sleep(60)
    events = await sandbox.list('v1/events', 'default')

    assert [(event['type'], event['reason']) for event in events] == [('Error', 'HandledInCircles')]
    assert 'again and again' in events[0]['message']
