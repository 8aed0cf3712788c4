"""
New objects get our finalizer first, and are handled right after that: as the cluster has answered,
with no need to wait for that to come back with the stream, unless there is someone who wants to see
every event.
"""

import asyncio
import contextlib

import pytest
from clusters import FINALIZER, get_time, wait_until

import kopf

LATENCY, SILENCE = 1, 3
"""
Seconds for which the finalizer is being added, and for which its echo is held back after that.
"""


@pytest.fixture
def calls():
    """The calls of handlers: the time, the name, and something else."""
    return []


@pytest.fixture
def deletion(registry, calls):
    """A handler because of which there are finalizers."""

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(spec, **_):
        calls.append((get_time(), 'delete', spec['x']))


@pytest.fixture
def creation(registry, deletion, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(spec, **_):
        calls.append((get_time(), 'create', spec['x']))


@pytest.fixture
def silenced(cluster, sandbox):
    """
    Create an object whose stream is silent for a block: since the finalizer is asked for, but
    before it is there.

    Yields when the finalizer is there.
    """

    @contextlib.asynccontextmanager
    async def silenced():
        with sandbox.faults.inject(
            verb='patch', resource='kopfexamples', latency=LATENCY, times=1
        ) as slowness:
            await cluster.create(spec={'x': 1})
            await slowness.wait_until_hit()
            with sandbox.faults.inject(verb='watch', resource='kopfexamples', stall=True):
                await cluster.wait(lambda body: FINALIZER in body['metadata'].get('finalizers', []))
                yield

    return silenced


@pytest.fixture
async def start(run_operator, cluster):
    async def start():
        await run_operator()
        await cluster.wait_until_watched()

    return start


@pytest.mark.guarantee('HND-032', 'HND-035')
async def test_creation_costs_two_writes_and_is_handled_with_the_finalizer(
    cluster, registry, deletion, start, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(body, meta, **_):
        calls.append((list(meta.get('finalizers')), sorted(body['metadata']), body['spec']))

    await start()
    await cluster.create(spec={'x': 1})
    body = await cluster.wait_until_handled(x=1)
    await asyncio.sleep(3600)

    [(finalizers, fields, spec)] = calls
    assert (finalizers, dict(spec)) == ([FINALIZER], {'x': 1})
    assert 'managedFields' in body['metadata'] and 'managedFields' not in fields
    assert [write.code for write in cluster.writes] == [200, 200]


@pytest.mark.guarantee('HND-032')
async def test_creation_is_handled_as_soon_as_the_finalizer_is_there(
    cluster, creation, start, silenced, calls
):
    await start()
    async with silenced():
        since = get_time()
        await wait_until(lambda: calls)
        await asyncio.sleep(SILENCE)
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(60)

    [(when, *call)] = calls
    assert call == ['create', 1]
    assert when - since < 0.1
    assert len(cluster.writes) == 2


def declare_event(registry):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        pass


def declare_daemon(registry):
    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        await stopped.wait()


def declare_timer(registry):
    @kopf.timer('kopfexamples', registry=registry, interval=1000)
    async def timer_fn(**_):
        pass


@pytest.mark.guarantee('NEW-089', 'NEW-091')
@pytest.mark.parametrize(
    'declare',
    [
        pytest.param(declare_event, id='event-handler'),
        pytest.param(declare_daemon, id='daemon'),
        pytest.param(declare_timer, id='timer'),
    ],
)
async def test_creation_waits_for_the_stream_if_someone_sees_every_event(
    cluster, registry, creation, start, silenced, calls, declare
):
    declare(registry)
    await start()
    async with silenced():
        since = get_time()
        await asyncio.sleep(SILENCE)
    await cluster.wait_until_handled(x=1)

    [(when, *call)] = calls
    assert call == ['create', 1]
    assert when - since == pytest.approx(SILENCE, abs=0.5)


@pytest.mark.guarantee('ERR-011', 'HND-025')
async def test_retries_are_in_time_though_our_own_changes_come_in_between(
    cluster, registry, deletion, start, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append((get_time(), retry))
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=1)

    await start()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)

    times, retries = zip(*calls, strict=True)
    assert retries == (0, 1, 2, 3)
    assert [time - times[0] for time in times] == pytest.approx([0, 1, 2, 3], abs=0.4)
    assert len(cluster.writes) == 5


@pytest.mark.guarantee('NEW-089')
async def test_retries_wait_for_the_records_even_if_the_finalizer_is_not_waited_for(
    cluster, registry, deletion, start, silenced, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append((get_time(), retry))
        if retry == 0:
            raise kopf.TemporaryError('not yet', delay=1)

    await start()
    async with silenced():
        since = get_time()
        await asyncio.sleep(SILENCE)
    await cluster.wait_until_handled(x=1)

    times, retries = zip(*calls, strict=True)
    assert retries == (0, 1)
    assert [time - since for time in times] == pytest.approx([0, SILENCE], abs=0.5)


@pytest.fixture(
    params=[pytest.param(False, id='seen-at-once'), pytest.param(True, id='seen-later')]
)
def create(request, cluster, silenced):
    """
    Create an object; the echo of the finalizer and all that follows is seen at once, or later.
    """

    async def create():
        if not request.param:
            await cluster.create(spec={'x': 1})
        else:
            async with silenced():
                await asyncio.sleep(SILENCE)

    return create


@pytest.mark.guarantee('HND-033')
async def test_edits_made_while_the_creation_is_handled_are_handled_next(
    cluster, registry, deletion, start, create, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(spec, **_):
        calls.append(('create', spec['x']))
        await cluster.patch({'spec': {'x': 2}})

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(diff, **_):
        calls.append(('update', *diff))

    await start()
    await create()
    await cluster.wait_until_handled(x=2)
    await asyncio.sleep(60)

    assert calls == [('create', 1), ('update', ('change', ('spec', 'x'), 1, 2))]
    assert len(cluster.writes) == 3


@pytest.mark.guarantee('HND-034', 'HND-036')
async def test_deletions_made_while_the_creation_is_handled_are_handled_next(
    cluster, registry, deletion, start, create, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(spec, **_):
        calls.append((get_time(), 'create', spec['x']))
        await cluster.delete()

    await start()
    await create()
    await cluster.wait(lambda body: body is None)
    await asyncio.sleep(60)

    assert [call[1:] for call in calls] == [('create', 1), ('delete', 1)]


@pytest.mark.guarantee('NEW-083', 'NEW-084')
async def test_creation_is_handled_as_it_is_after_edits_made_before_the_finalizer(
    cluster, sandbox, creation, start, calls
):
    await start()
    with sandbox.faults.inject(
        verb='patch', resource='kopfexamples', user_agent='kopf/*', latency=LATENCY, times=1
    ) as slowness:
        await cluster.create(spec={'x': 1}, finalizers=['example.com/foreign'])
        await slowness.wait_until_hit()
        await cluster.patch({'spec': {'x': 2}})
    body = await cluster.wait_until_handled(x=2)
    await asyncio.sleep(60)

    assert [call[1:] for call in calls] == [('create', 2)]
    assert body['metadata']['finalizers'] == ['example.com/foreign', FINALIZER]


@pytest.mark.guarantee('CNT-006')
async def test_creation_interrupted_after_the_finalizer_is_handled_by_the_next_start(
    cluster, registry, deletion, run_operator, settings, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        calls.append(retry)
        await asyncio.sleep(3600 if len(calls) == 1 else 0)

    settings.queueing.exit_timeout = 1
    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    await wait_until(lambda: calls)
    await operator.stop()
    body = await cluster.get()
    await run_operator()
    await cluster.wait_until_handled(x=1)

    assert body['metadata']['finalizers'] == [FINALIZER]
    assert calls == [0, 0]
