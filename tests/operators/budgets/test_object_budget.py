"""
What an object costs while nothing happens to it: its memory, and nothing else. Counts, not seconds.
"""

import asyncio
import gc
import tracemalloc

import pytest

import kopf
from kopf._core.reactor import inventory


@pytest.fixture
def handled(registry):
    handled = set()

    @kopf.on.event('kopfexamples', registry=registry)
    async def see(**_):
        pass

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def handle(name, **_):
        handled.add(name)

    @kopf.timer('kopfexamples', registry=registry, initial_delay=1000, interval=1000)
    async def tick(**_):
        pass

    return handled


async def test_idle_objects_have_no_tasks_of_their_own(cluster, run_operator, handled):
    await run_operator()
    counts = []
    for total in [5, 50]:
        for number in range(len(handled), total):
            await cluster.create(f'obj{number}')
        while len(handled) < total:
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        counts.append(
            len(
                [
                    task
                    for task in asyncio.all_tasks()
                    if '_core' in task.get_coro().cr_code.co_filename
                ]
            )
        )

    assert counts[0] == counts[1] > 0  # besides those that serve connections on the other side


@pytest.fixture
def collector():
    """The garbage collector, which works only when it is asked to."""
    gc.disable()
    yield gc
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


async def test_handled_objects_leave_nothing_to_the_garbage_collector(
    cluster, registry, run_operator, collector
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        return {'x': 1}

    await run_operator()
    await cluster.create('first')
    await cluster.wait_until_handled('first')
    collector.collect()
    collector.set_debug(gc.DEBUG_SAVEALL)
    await cluster.create('second')
    await cluster.wait_until_handled('second')

    collector.collect()
    assert [item for item in gc.garbage if type(item).__module__.startswith('kopf._co')] == []


def test_memory_of_an_object_is_small():
    memories, memo = inventory.Memories(), kopf.Memo()
    names = [f'00000000-0000-0000-0000-{number:012}' for number in range(10_000)]
    tracemalloc.start()
    try:
        for name in names:
            memories.recall({'metadata': {'uid': name}}, memo=memo)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size / len(names) < 600


async def measure_objects(cluster, handled):
    """
    Tell how many bytes of the framework itself are there for each object, when all of them are
    handled.
    """
    tracemalloc.start()
    try:
        for number in range(100):
            await cluster.create(f'obj{number}')
        while len(handled) < 100:
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        gc.collect()
        ours = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, '*/kopf/_core/*')]
        )
    finally:
        tracemalloc.stop()
    return sum(trace.size for trace in ours.statistics('filename')) / 100


async def test_handled_objects_leave_little_in_memory(registry, cluster, run_operator):
    handled = set()

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.resume('kopfexamples', registry=registry)
    async def handle(name, **_):
        handled.add(name)

    await run_operator()

    assert 0 < await measure_objects(cluster, handled) < 700


async def test_waiting_timers_leave_little_in_memory(cluster, run_operator, handled):
    await run_operator()

    assert 0 < await measure_objects(cluster, handled) < 2000
