"""
What happens to objects and handlers when an operator pauses in favour of another one, and when it
resumes.
"""

import asyncio

import pytest
from clusters import get_last_handled, wait_until
from peerings import build_record

import kopf

pytestmark = pytest.mark.usefixtures('peering')


@pytest.fixture
def run(town, registry, settings):
    """Run the only real operator; all others are made up."""

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(name, type, **_):
        town.events.append(('me', type, name))

    async def run(**options):
        return await town.run('me', **{'registry': registry, 'settings': settings, **options})

    return run


@pytest.fixture
def pause(town):
    """Pretend that there is another operator, and wait until the pause begins."""

    async def pause():
        await town.occupy(priority=5)
        await asyncio.sleep(0.5)

    return pause


@pytest.fixture
def resume(town, cluster):
    """Pretend that there is no other operator any more, and wait until everything is listed."""

    async def resume():
        times = len(town.get_streams())
        await town.vacate()
        await cluster.wait_until_watched(times + 1)
        await asyncio.sleep(0.5)

    return resume


@pytest.mark.guarantee('PEE-010')
async def test_nothing_is_watched_while_paused_and_everything_is_listed_after_that(
    town, sandbox, cluster, run, pause, resume
):
    await cluster.create('old')
    await run()
    await wait_until(lambda: town.events)
    await pause()
    town.events.clear()
    sandbox.requests.clear()
    await cluster.create('new')
    await asyncio.sleep(3600)
    assert sandbox.requests.select(resource='kopfexamples', verb='watch') == []
    assert sandbox.requests.select(resource='kopfexamples', verb='list') == []
    assert town.events == []
    await resume()
    assert sorted(town.events) == [('me', None, 'new'), ('me', None, 'old')]
    await cluster.create('newest')
    await wait_until(lambda: town.events[-1] == ('me', 'ADDED', 'newest'))


@pytest.mark.guarantee('PEE-010')
async def test_changes_of_the_pause_are_handled_unless_others_have_done_it(
    cluster, registry, run, pause, resume, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(name, reason, diff, **_):
        calls.append((name, str(reason), tuple(diff)))

    await run()
    for name in ('same', 'changed', 'handled'):
        await cluster.create(name)
        await cluster.wait_until_handled(name)
    calls.clear()
    await pause()
    await cluster.create('created')
    await cluster.patch({'spec': {'x': 2}}, 'changed')
    body = await cluster.patch({'spec': {'x': 3}}, 'handled')
    essence = kopf.AnnotationsDiffBaseStorage().build(body=kopf.Body(body))
    patch = kopf.Patch()
    kopf.AnnotationsDiffBaseStorage().store(body=kopf.Body(body), patch=patch, essence=essence)
    await cluster.patch(dict(patch), 'handled')
    await resume()
    await cluster.wait_until_handled('created')
    await cluster.wait_until_handled('changed', x=2)
    await asyncio.sleep(60)

    assert sorted(calls) == [
        ('changed', 'update', (('change', ('spec', 'x'), 1, 2),)),
        ('created', 'create', calls[0][2] if calls[0][0] == 'created' else calls[1][2]),
    ]
    assert get_last_handled(await cluster.get('handled'))['spec'] == {'x': 3}


@pytest.mark.guarantee('HND-039', 'MEM-002')
async def test_objects_are_not_resumed_again_and_their_memos_survive(
    cluster, registry, run, pause, resume, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(name, memo, **_):
        memo.number = len(calls)
        calls.append(name)

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(name, memo, **_):
        calls.append(memo.number)

    await cluster.create()
    await run()
    await cluster.wait_until_handled()
    for x in (2, 3):
        await pause()
        await cluster.patch({'spec': {'x': x}})
        await asyncio.sleep(100)
        await resume()
        await cluster.wait_until_handled(x=x)

    assert calls == ['obj', 0, 0]


@pytest.mark.guarantee('PEE-010')
async def test_objects_that_vanish_or_are_replaced_during_the_pause_are_noticed(
    town, cluster, registry, run, pause, resume, calls
):
    @kopf.index('kopfexamples', id='names', registry=registry)
    async def names(name, uid, **_):
        return {name: uid}

    @kopf.on.event('kopfexamples', registry=registry)
    async def index_fn(name, names, memo, **_):
        calls.append((name, sorted(names), memo.setdefault('count', 0)))
        memo.count += 1

    for name in ('kept', 'gone', 'replaced'):
        await cluster.create(name)
    await run()
    await wait_until(lambda: len(calls) == 3)
    await pause()
    calls.clear()
    town.events.clear()
    await cluster.delete('gone')
    await cluster.delete('replaced')
    await cluster.create('replaced')
    await resume()
    await wait_until(lambda: len(calls) == 4)

    events = [event[1:] for event in town.events]
    assert sorted(events, key=str) == [
        ('DELETED', 'gone'),
        ('DELETED', 'replaced'),
        (None, 'kept'),
        (None, 'replaced'),
    ]
    assert {name: count for name, _, count in calls if name != 'replaced'} == {'kept': 1, 'gone': 1}
    assert sorted(count for name, _, count in calls if name == 'replaced') == [0, 1]
    assert all('gone' not in known for name, known, _ in calls)


async def test_deletions_that_were_not_handled_before_the_pause_are_handled_after_it(
    town, cluster, registry, settings, run, pause, resume
):
    settings.queueing.worker_limit = 1
    settings.queueing.exit_timeout = 1

    @kopf.on.event('kopfexamples', registry=registry)
    async def slow_fn(name, type, **_):
        if name == 'slow' and type == 'MODIFIED':
            await asyncio.sleep(10)

    for name in ('slow', 'gone'):
        await cluster.create(name)
    await run()
    await wait_until(lambda: len(town.events) == 2)
    await cluster.patch({'spec': {'x': 2}}, 'slow')
    await wait_until(lambda: ('me', 'MODIFIED', 'slow') in town.events)
    await cluster.delete('gone')
    await asyncio.sleep(0.1)
    assert ('me', 'DELETED', 'gone') not in town.events
    await pause()
    await resume()
    await wait_until(lambda: ('me', 'DELETED', 'gone') in town.events)

    assert town.events.count(('me', 'DELETED', 'gone')) == 1


@pytest.mark.guarantee('PEE-010', 'NEW-102')
@pytest.mark.parametrize(
    'timeout, expected',
    [
        pytest.param(20, ['begun', 'finished'], id='in-time'),
        pytest.param(2, ['begun', 'interrupted', 'begun', 'finished'], id='too-slow'),
    ],
)
async def test_running_handlers_are_given_time_to_finish(
    cluster, registry, run, pause, resume, timeout, expected
):
    calls, settings = [], kopf.OperatorSettings()
    settings.queueing.exit_timeout = timeout

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('begun')
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            calls.append('interrupted')
            raise
        calls.append('finished')

    await run(settings=settings)
    await cluster.create()
    await wait_until(lambda: calls)
    await pause()
    await asyncio.sleep(100)
    await resume()
    await cluster.wait_until_handled()
    await asyncio.sleep(100)

    assert calls == expected


@pytest.mark.guarantee('PEE-011', 'NEW-207')
async def test_daemons_and_timers_are_stopped_for_the_pause(
    cluster, registry, run, pause, resume, calls
):
    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        calls.append('daemon')
        await stopped.wait()
        calls.append(stopped.reason)

    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def timer_fn(**_):
        calls.append('timer')

    await run()
    await cluster.create()
    await wait_until(lambda: calls.count('timer') > 5)
    await pause()
    reason = calls[-1]
    assert reason & kopf.DaemonStoppingReason.OPERATOR_PAUSING
    assert not reason & kopf.DaemonStoppingReason.OPERATOR_EXITING
    calls.clear()
    await asyncio.sleep(3600)
    assert calls == []
    await resume()
    await asyncio.sleep(100)
    assert calls.count('daemon') == 1
    assert calls.count('timer') >= 10


@pytest.mark.guarantee('NEW-207')
async def test_daemons_that_are_slow_to_stop_are_started_again_once_they_have_stopped(
    cluster, registry, run, pause, resume, calls
):
    @kopf.daemon('kopfexamples', registry=registry, cancellation_backoff=1000)
    async def daemon_fn(stopped, **_):
        calls.append('begun')
        await stopped.wait()
        await asyncio.sleep(100)
        calls.append('ended')

    await run()
    await cluster.create()
    await wait_until(lambda: calls)
    await pause()
    await asyncio.sleep(10)
    await resume()
    await asyncio.sleep(10)
    assert calls == ['begun']
    await asyncio.sleep(100)
    assert calls == ['begun', 'ended', 'begun']


@pytest.mark.guarantee('NEW-208')
async def test_no_daemon_is_started_during_the_pause(
    cluster, registry, settings, run, pause, resume, calls
):
    settings.queueing.exit_timeout = 100

    @kopf.on.event('kopfexamples', registry=registry)
    async def slow_fn(type, **_):
        await asyncio.sleep(10)  # longer than it takes to pause

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        calls.append('begun')
        await stopped.wait()

    await run()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    await asyncio.sleep(1)  # its echo is being handled now
    await pause()
    await asyncio.sleep(1000)
    assert calls == []
    await resume()
    await wait_until(lambda: calls)


async def test_deleted_objects_are_released_after_the_pause(
    cluster, registry, run, pause, resume, calls
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(name, **_):
        calls.append(name)

    await run()
    await cluster.create()
    await cluster.wait(lambda body: body['metadata'].get('finalizers'))
    await pause()
    await cluster.delete()
    await asyncio.sleep(1000)
    assert calls == []
    await resume()
    await cluster.wait(lambda body: body is None)
    assert calls == ['obj']


async def test_handlers_wait_for_the_indices_after_the_pause(
    town, cluster, registry, run, pause, resume, calls
):
    @kopf.index('kopfexamples', id='by_x', registry=registry)
    async def by_x(name, spec, **_):
        await asyncio.sleep(0.01)  # the handlers could begin meanwhile, if they would not wait
        return {spec['x']: name}

    @kopf.on.event('kopfexamples', registry=registry)
    async def index_fn(by_x, **_):
        calls.append({x: sorted(names) for x, names in by_x.items()})

    for number in range(20):
        await cluster.create(f'obj{number}', spec={'x': 1})
    await run()
    await wait_until(lambda: len(calls) == 20)
    await pause()
    calls.clear()
    for number in range(20):
        await cluster.patch({'spec': {'x': 2}}, f'obj{number}')
    await resume()
    await wait_until(lambda: len(calls) == 20)

    assert all(1 not in known and len(known[2]) == 20 for known in calls)


async def test_an_operator_stops_at_once_while_it_is_paused(town, cluster, registry, run, pause):
    operator = await run()
    await cluster.create()
    await wait_until(lambda: town.events)
    await pause()
    since = asyncio.get_running_loop().time()
    await operator.stop()

    assert asyncio.get_running_loop().time() - since < 1
    assert set(await town.get_records()) == {'other'}


async def test_short_pauses_one_after_another_lose_nothing(town, cluster, registry, run, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(spec, **_):
        calls.append(spec['x'])

    await run()
    await cluster.create(spec={'x': 0})
    for number in range(1, 30):
        record = build_record(5, lifetime=600) if number % 2 else None
        await town.write({'other': record})
        await cluster.patch({'spec': {'x': number}})
        await asyncio.sleep(0.01 * (number % 4))
    await town.write({'other': None})
    await cluster.wait_until_handled(x=29)
    assert calls[-1] == 29
