"""
Which events and states of an object reach which handlers, and in which order; whatever happens to
the stream.
"""

import asyncio
import collections

import pytest
from clusters import build_object, wait_until

import kopf
from kopf._core.reactor import inventory


@pytest.fixture
def events():
    return []


@pytest.fixture
def event_handler(registry, events):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, name, spec, **_):
        events.append((type, name, spec.get('x')))


@pytest.mark.guarantee('NEW-098', 'NEW-099', 'NEW-041')
async def test_event_handlers_get_every_event_and_the_others_get_the_freshest_state(
    cluster, registry, run_operator, event_handler, events
):
    updates = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        updates.append((old['spec']['x'], new['spec']['x']))
        await asyncio.sleep(10)

    await run_operator()
    await wait_until(lambda: cluster.sandbox.requests.select(verb='watch', resource='kopfexamples'))
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: updates)
    for x in range(3, 8):
        await cluster.patch({'spec': {'x': x}})
    await cluster.wait_until_handled(x=7)

    assert updates == [(1, 2), (2, 7)]
    assert list(dict.fromkeys(x for *_, x in events)) == [1, 2, 3, 4, 5, 6, 7]
    assert [x for *_, x in events] == sorted(x for *_, x in events)
    assert [type for type, *_ in events] == ['ADDED', *['MODIFIED'] * (len(events) - 1)]


async def test_an_object_is_handled_by_one_task_at_a_time_and_objects_do_not_wait_for_each_other(
    cluster, registry, run_operator
):
    running, most, done = collections.Counter(), collections.Counter(), collections.Counter()

    async def handle(name, **_):
        running[name] += 1
        running['all'] += 1
        most[name] = max(most[name], running[name])
        most['all'] = max(most['all'], running['all'])
        await asyncio.sleep(1)
        running[name] -= 1
        running['all'] -= 1
        done[name] += 1

    kopf.on.event('kopfexamples', registry=registry)(handle)
    kopf.on.create('kopfexamples', registry=registry)(handle)
    kopf.on.update('kopfexamples', registry=registry)(handle)

    await run_operator()
    for name in ('one', 'two', 'three'):
        await cluster.create(name, spec={'x': 1})
    for x in range(2, 5):
        await asyncio.sleep(0.7)
        for name in ('one', 'two', 'three'):
            await cluster.patch({'spec': {'x': x}}, name)
    for name in ('one', 'two', 'three'):
        await cluster.wait_until_handled(name, x=4)

    assert most == {'one': 1, 'two': 1, 'three': 1, 'all': 3}


@pytest.mark.guarantee('NEW-102')
def test_queueing_has_its_defaults(settings):
    queueing = settings.queueing

    assert (queueing.worker_limit, queueing.idle_timeout, queueing.exit_timeout) == (None, 5.0, 2.0)
    assert list(queueing.error_delays) == [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]


@pytest.mark.guarantee('NEW-102')
async def test_the_number_of_objects_handled_at_once_can_be_limited(
    cluster, registry, run_operator, settings
):
    settings.queueing.worker_limit = 2
    running, most, done = set(), [], []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, retry, **_):
        if retry == 0:
            raise kopf.TemporaryError('those who wait take no place', delay=100)
        running.add(name)
        most.append(len(running))
        await asyncio.sleep(1)
        running.discard(name)
        done.append(name)

    await run_operator()
    for i in range(6):
        await cluster.create(f'obj{i}')
    await wait_until(lambda: len(done) == 6)

    assert max(most) == 2
    assert sorted(done) == [f'obj{i}' for i in range(6)]


@pytest.mark.guarantee('NEW-103')
async def test_events_after_a_long_time_are_handled_with_the_same_memory(
    cluster, registry, run_operator, events
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(memo, spec, **_):
        memo.seen = [*memo.get('seen', []), spec['x']]
        events.append(memo.seen)

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: events)
    for x in (2, 3):
        await asyncio.sleep(3600)
        await cluster.patch({'spec': {'x': x}})
    await wait_until(lambda: len(events) == 3)

    assert events[-1] == [1, 2, 3]


@pytest.mark.guarantee('NEW-100')
async def test_an_object_that_waits_for_a_retry_is_woken_up_by_events(
    cluster, registry, run_operator, event_handler, events
):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append(retry)
        raise kopf.TemporaryError('in an hour', delay=3600)

    await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: len(events) == 2)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: ('MODIFIED', 'obj', 2) in events, timeout=1)
    await asyncio.sleep(1800)

    assert calls == [0]


@pytest.fixture
def gap(cluster):
    """
    Begin a gap: from now on, there is no stream, and what happens in the gap is not told
    afterwards.
    """

    async def begin():
        fault = cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', cut=True)
        await fault.wait_until_hit()
        return fault

    async def end(fault):
        await cluster.sandbox.compact()
        fault.lift()

    return begin, end


async def test_objects_that_vanish_in_a_gap_are_deleted_and_forgotten(
    cluster, run_operator, event_handler, events, gap
):
    memories = inventory.Memories()
    await run_operator(memories=memories)
    await cluster.create('gone')
    await cluster.create('kept')
    await wait_until(lambda: len(events) == 2)
    begin, end = gap
    fault = await begin()
    await cluster.delete('gone')
    await end(fault)
    await wait_until(lambda: events[-1][0] == 'DELETED')
    await asyncio.sleep(60)

    assert [name for type, name, _ in events if type == 'DELETED'] == ['gone']
    assert len(memories) == 1


async def test_objects_recreated_in_a_gap_are_new_ones(
    cluster, registry, run_operator, event_handler, events, gap
):
    created = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(spec, memo, **_):
        created.append((spec['x'], dict(memo)))
        memo.x = spec['x']

    memories = inventory.Memories()
    await run_operator(memories=memories)
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    begin, end = gap
    fault = await begin()
    await cluster.delete()
    await cluster.create(spec={'x': 2})
    await end(fault)
    await cluster.wait_until_handled(x=2)

    assert created == [(1, {}), (2, {})]
    assert [type for type, *_ in events if type != 'MODIFIED'] == [None, 'DELETED', 'ADDED']
    assert len(memories) == 1


async def test_changes_made_in_a_gap_reach_their_handlers(cluster, registry, run_operator, gap):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, spec, **_):
        calls.append(('create', name, spec['x']))

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(name, old, new, **_):
        calls.append(('update', name, old['spec']['x'], new['spec']['x']))

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(name, **_):
        calls.append(('delete', name))

    await run_operator()
    await cluster.create('changed', spec={'x': 1})
    await cluster.create('deleted', spec={'x': 1})
    await cluster.wait_until_handled('changed', x=1)
    await cluster.wait_until_handled('deleted', x=1)
    calls.clear()
    begin, end = gap
    fault = await begin()
    for x in (2, 3):
        await cluster.patch({'spec': {'x': x}}, 'changed')
    await cluster.delete('deleted')
    await cluster.create('created', spec={'x': 1})
    await end(fault)
    await cluster.wait_until_handled('changed', x=3)
    await cluster.wait_until_handled('created', x=1)
    await cluster.wait(lambda body: body is None, 'deleted')

    assert sorted(calls) == [
        ('create', 'created', 1),
        ('delete', 'deleted'),
        ('update', 'changed', 1, 3),
    ]


async def test_memories_are_dropped_with_their_objects(
    cluster, registry, run_operator, event_handler, events
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def change_fn(**_):
        pass

    memories = inventory.Memories()
    await run_operator(memories=memories)
    for i in range(5):
        await cluster.create(f'obj{i}')
        await cluster.wait_until_handled(f'obj{i}')
    assert len(memories) == 5
    for i in range(5):
        await cluster.delete(f'obj{i}')
    await wait_until(lambda: [type for type, *_ in events].count('DELETED') == 5)
    await asyncio.sleep(60)

    assert len(memories) == 0


async def test_namesakes_in_other_namespaces_are_other_objects(
    cluster, registry, run_operator, event_handler, events
):
    await cluster.sandbox.create(
        {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'other'}}
    )
    memories = inventory.Memories()
    await run_operator(memories=memories)
    await cluster.create(spec={'x': 1})
    await cluster.sandbox.create(build_object(spec={'x': 2}, namespace='other'))
    await wait_until(lambda: len(events) == 2)

    assert len(memories) == 2
