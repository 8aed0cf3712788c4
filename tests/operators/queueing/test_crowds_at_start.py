"""
Many objects are there when an operator starts: what users do meanwhile, does not wait for all of
them.
"""

import asyncio

import pytest
from clusters import wait_until

import kopf

TOTAL = 120
LATENCY = 1.0  # seconds for each request that writes


@pytest.fixture
async def crowd(cluster, settings):
    """Many objects, which take minutes to be handled; and few places for the requests."""
    for number in range(TOTAL):
        await cluster.create(f'old-{number:03}')
    settings.networking.inflight_limit = 2
    settings.watching.chunk_size = 20
    cluster.sandbox.faults.inject(verb='patch', latency=LATENCY, user_agent='kopf/*')


@pytest.fixture
def calls():
    return {}


@pytest.fixture
def handlers(registry, calls, virtual_time):
    """Handlers that tell when they were called, by objects."""

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change(name, spec, **_):
        calls[name, spec['x']] = virtual_time.elapsed

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete(**_):
        pass


@pytest.mark.usefixtures('crowd', 'handlers')
async def test_new_object_is_handled_before_the_crowd(cluster, run_operator, calls, virtual_time):
    await run_operator()
    await wait_until(lambda: calls)
    await cluster.create('new', spec={'x': 2})
    since = virtual_time.elapsed
    await wait_until(lambda: ('new', 2) in calls)

    # While the crowd needs two requests of each, of two at once.
    assert calls['new', 2] - since < 30 * LATENCY
    assert len(calls) < TOTAL / 3


@pytest.mark.usefixtures('crowd', 'handlers')
async def test_object_of_the_crowd_is_handled_sooner_if_it_is_edited(
    cluster, run_operator, calls, virtual_time
):
    await run_operator()
    await wait_until(lambda: calls)
    await cluster.patch({'spec': {'x': 2}}, f'old-{TOTAL - 1}')
    since = virtual_time.elapsed
    await wait_until(lambda: (f'old-{TOTAL - 1}', 2) in calls)

    assert calls[f'old-{TOTAL - 1}', 2] - since < 30 * LATENCY
    assert len(calls) < TOTAL / 3


@pytest.mark.usefixtures('crowd', 'handlers')
async def test_all_of_the_crowd_are_handled_once(cluster, run_operator, calls):
    await run_operator()
    await asyncio.sleep(2 * TOTAL * LATENCY)

    assert set(calls) == {(f'old-{number:03}', 1) for number in range(TOTAL)}
    assert len(cluster.sandbox.requests.select(verb='patch')) == 2 * TOTAL


async def test_crowd_of_synchronous_handlers_lets_new_objects_go_first(
    cluster, settings, registry, run_operator
):
    """Threads do not know the virtual time: let the handlers wait for the test."""
    begun = []
    permits = asyncio.Queue()
    loop = asyncio.get_running_loop()
    settings.execution.max_workers = 2
    for number in range(60):
        await cluster.create(f'old-{number:03}')

    @kopf.on.create('kopfexamples', registry=registry)
    def create(name, **_):
        begun.append(name)
        asyncio.run_coroutine_threadsafe(permits.get(), loop).result()

    await run_operator()
    await wait_until(lambda: len(begun) == 2)
    await cluster.create('new')
    await asyncio.sleep(1)
    while 'new' not in begun:
        permits.put_nowait(None)
        count = len(begun)
        await wait_until(lambda count=count: len(begun) > count)

    assert len(begun) < 40
    for _ in range(200):
        permits.put_nowait(None)
