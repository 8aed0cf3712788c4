"""
The probe handlers: called on request, not too often, and never for long.
"""

import asyncio
import functools
import itertools
import threading

import pytest

import kopf
from kopf._cogs.aiokits import clocks
from kopf._core.actions import execution
from kopf._core.engines.activities import operator_handlers
from kopf._core.engines.probing import probe_handlers
from kopf._core.intents import causes


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
async def make_prober(virtual_time, registry):
    """Make probers of the handlers that are declared by then."""
    made = []

    def make(**kwargs):
        settings = kopf.OperatorSettings()
        cause = operator_handlers.build_cause(
            causes.Activity.PROBE,
            **{'settings': settings, 'memo': kopf.Memo(x=1), 'indices': {}, **kwargs},
        )
        env = execution.Environment(settings=settings, now=clocks.Clock(), is_quiet=True)
        prober = probe_handlers.Prober(
            registry._activities.select(causes.Activity.PROBE), cause, env
        )
        made.append(prober)
        return prober

    yield make
    for prober in made:
        await prober.close()


async def test_there_is_nothing_without_handlers(make_prober):
    assert await make_prober().collect() == {}


@pytest.mark.guarantee('PRB-006', 'PRB-007', 'PRB-008')
async def test_results_are_by_ids_of_handlers(registry, make_prober):
    @kopf.on.probe(id='async_fn', registry=registry)
    async def async_fn(**_):
        return 'async'

    @kopf.on.probe(id='sync', registry=registry)
    def sync_fn(**_):
        return {'thread': threading.current_thread() is threading.main_thread()}

    kopf.on.probe(id='partial', param=123, registry=registry)(
        functools.partial(lambda param, **_: param)
    )

    assert await make_prober().collect() == {
        'async_fn': 'async',
        'sync': {'thread': False},
        'partial': 123,
    }


@pytest.mark.guarantee('PRB-011')
async def test_handlers_get_the_kwargs_of_activities_and_the_indices(registry, make_prober):
    @kopf.on.probe(param='p', id='probe_fn', registry=registry)
    async def probe_fn(**kwargs):
        return kwargs

    index = object()
    result = (await make_prober(indices={'idx': index}).collect())['probe_fn']

    assert {
        'settings',
        'memo',
        'logger',
        'retry',
        'started',
        'runtime',
        'param',
        'activity',
    } <= set(result)
    assert result['memo'].x == 1
    assert result['param'] == 'p'
    assert result['retry'] == 0
    assert result['idx'] is index


@pytest.mark.guarantee('PRB-009', 'PRB-010', 'NEW-264')
async def test_results_are_cached_for_ten_seconds(registry, make_prober):
    numbers = itertools.count()
    kopf.on.probe(id='number', registry=registry)(lambda **_: next(numbers))
    prober = make_prober()

    results = []
    for delay in (0, 0, 9.9, 0.2, 0):
        await asyncio.sleep(delay)
        results.append((await prober.collect())['number'])

    assert results == [0, 0, 0, 1, 1]


@pytest.mark.guarantee('PRB-009')
async def test_handlers_are_not_called_until_they_are_asked(registry, make_prober):
    calls = []
    kopf.on.probe(id='number', registry=registry)(lambda **_: calls.append(1))
    make_prober()

    await asyncio.sleep(1000)

    assert calls == []


@pytest.mark.guarantee('NEW-264')
async def test_parallel_requests_share_one_collection(registry, make_prober):
    calls = []

    @kopf.on.probe(id='probe_fn', registry=registry)
    async def probe_fn(**_):
        calls.append(1)
        await asyncio.sleep(1)
        return len(calls)

    prober = make_prober()
    results = await asyncio.gather(*(prober.collect() for _ in range(100)))

    assert results == [{'probe_fn': 1}] * 100
    assert calls == [1]


async def test_cancelled_request_does_not_affect_the_others(registry, make_prober):
    @kopf.on.probe(id='probe_fn', registry=registry)
    async def probe_fn(**_):
        await asyncio.sleep(1)
        return 'done'

    prober = make_prober()
    one, two = (asyncio.create_task(prober.collect()) for _ in range(2))
    await asyncio.sleep(0.5)
    one.cancel()

    assert await two == {'probe_fn': 'done'}
    assert one.cancelled()


@pytest.mark.parametrize(
    'error',
    [
        pytest.param(RuntimeError('boo!'), id='arbitrary'),
        pytest.param(kopf.TemporaryError('boo!', delay=600), id='temporary'),
        pytest.param(kopf.PermanentError('boo!'), id='permanent'),
        pytest.param(asyncio.CancelledError('boo!'), id='cancelled-inside'),
    ],
)
async def test_failing_handler_is_not_retried_and_does_not_block_others(
    registry, make_prober, virtual_time, error
):
    calls = []

    @kopf.on.probe(id='failing_fn', registry=registry)
    async def failing_fn(**_):
        calls.append(1)
        raise error

    @kopf.on.probe(id='another_fn', registry=registry)
    async def another_fn(**_):
        return 'fine'

    prober = make_prober()

    assert await prober.collect() == {'failing_fn': None, 'another_fn': 'fine'}
    assert virtual_time.elapsed < 1

    await asyncio.sleep(100)
    await prober.collect()

    assert len(calls) == 2  # by the number of requests


async def test_slow_handler_is_not_waited_for_and_is_not_called_twice_at_once(
    registry, make_prober, virtual_time
):
    calls = []

    @kopf.on.probe(id='slow_fn', registry=registry)
    async def slow_fn(**_):
        calls.append(1)
        await asyncio.sleep(50)
        return 'slow'

    @kopf.on.probe(id='fast_fn', registry=registry)
    async def fast_fn(**_):
        return 'fast'

    prober = make_prober()

    assert await prober.collect() == {'slow_fn': None, 'fast_fn': 'fast'}
    assert virtual_time.elapsed == pytest.approx(probe_handlers.PATIENCE, abs=1)

    await asyncio.sleep(20)

    assert await prober.collect() == {'slow_fn': None, 'fast_fn': 'fast'}
    assert calls == [1]

    await asyncio.sleep(60)

    assert (await prober.collect())['slow_fn'] == 'slow'  # it has finished meanwhile


async def test_handlers_are_interrupted_by_their_own_timeouts(registry, make_prober, virtual_time):
    @kopf.on.probe(timeout=1, id='slow_fn', registry=registry)
    async def slow_fn(**_):
        await asyncio.sleep(50)

    assert await make_prober().collect() == {'slow_fn': None}
    assert virtual_time.elapsed == pytest.approx(1, abs=0.5)


async def test_running_handlers_are_cancelled_in_the_end(registry, make_prober):
    ended = []

    @kopf.on.probe(registry=registry)
    async def slow_fn(**_):
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(1)

    prober = make_prober()
    await prober.collect()
    await prober.close()

    assert ended == [1]
