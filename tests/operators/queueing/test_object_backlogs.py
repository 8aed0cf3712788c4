"""
Backlogs: what is kept of an object that changes while it is being handled.
"""

import asyncio
import gc

import pytest
from clusters import wait_until

import kopf
from kopf._core.reactor import queueing


def measure_backlog():
    """
    Count the events that wait for their objects to be handled; the longest backlog of one object.
    """
    lanes = [item for item in gc.get_objects() if isinstance(item, queueing._Lane)]
    return max((len(lane.events) for lane in lanes), default=0)


@pytest.fixture
def updates():
    return []


@pytest.fixture
def going_on():
    return asyncio.Event()


@pytest.fixture
def handlers(registry, updates, going_on):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        updates.append((old['spec']['x'], new['spec']['x']))
        await going_on.wait()


@pytest.fixture
def change(cluster):
    """
    Change the object many times, until the operator has got the last change; return the longest
    backlog.
    """

    async def change(number):
        longest = 0
        for x in range(3, number + 3):
            await cluster.patch({'spec': {'x': x}})
            if x % (number // 10) == 0:
                await asyncio.sleep(0.1)
                longest = max(longest, measure_backlog())
        await asyncio.sleep(1)
        return max(longest, measure_backlog())

    return change


@pytest.mark.slow
@pytest.mark.guarantee('FND-011')
async def test_backlog_does_not_grow_with_changes_during_one_handler(
    cluster, handlers, run_operator, updates, going_on, change
):
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: updates)
    longest = await change(10_000)
    going_on.set()
    await cluster.wait_until_handled(x=10_002)

    assert longest == 1
    assert updates == [(1, 2), (2, 10_002)]


@pytest.mark.guarantee('FND-011')
async def test_backlog_keeps_all_changes_if_there_are_event_handlers(
    cluster, registry, handlers, run_operator, updates, going_on, change
):
    events = []

    @kopf.on.event('kopfexamples', labels={'other': 'object'}, registry=registry)
    async def other_fn(**_):
        pass

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        events.append(spec['x'])

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: updates)
    longest = await change(100)
    going_on.set()
    await cluster.wait_until_handled(x=102)

    assert longest >= 100
    assert list(dict.fromkeys(events)) == list(range(1, 103))
    assert updates == [(1, 2), (2, 102)]


@pytest.mark.guarantee('FND-011')
async def test_event_handlers_declared_later_get_all_later_events(
    cluster, registry, handlers, run_operator, updates, going_on, change
):
    events = []
    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: updates)
    await change(10)

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        events.append(spec['x'])

    for x in range(13, 20):
        await cluster.patch({'spec': {'x': x}})
    await asyncio.sleep(1)
    going_on.set()
    await cluster.wait_until_handled(x=19)

    assert list(dict.fromkeys(events)) == list(range(12, 20))


@pytest.mark.guarantee('FND-011')
async def test_deletions_are_not_lost_behind_changes(
    cluster, registry, handlers, run_operator, updates, going_on, change
):
    exits = []

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        await stopped.wait()
        exits.append(stopped.reason)

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: updates)
    await change(100)
    await cluster.patch({'metadata': {'finalizers': None}})
    await cluster.delete()
    await asyncio.sleep(1)
    assert measure_backlog() == 1
    assert exits == []

    going_on.set()
    await wait_until(lambda: exits)
    assert exits[0] & kopf.DaemonStoppingReason.RESOURCE_DELETED
    assert len(updates) == 1
