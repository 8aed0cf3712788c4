"""
Several replicas of an operator: one handles the objects, the others take over when it is gone.
"""

import asyncio
import re

import pytest
from clusters import WRITES, wait_until
from replicas_of_operators import LEASE, Fleet, build_settings

import kopf

LEASES = 'leases.coordination.k8s.io'
STANDBYS = pytest.mark.parametrize('standby', ['hot', 'cold'])


def build_lease(holder):
    return {
        'apiVersion': 'coordination.k8s.io/v1',
        'kind': 'Lease',
        'metadata': {'name': LEASE, 'namespace': 'default'},
        'spec': {'holderIdentity': holder, 'leaseDurationSeconds': 15, 'leaseTransitions': 7},
    }


async def keep_alive(sandbox):
    """Renew the Lease as its holder does."""
    number = 0
    while True:
        number += 1
        time = f'2026-01-01T00:00:00.{number:06}Z'
        await sandbox.patch(LEASES, LEASE, {'spec': {'renewTime': time}})
        await asyncio.sleep(5)


def is_write(asked):
    return asked.verb in WRITES and asked.user_agent.startswith('kopf/')


def count_lists(sandbox):
    asked = [asked for asked in sandbox.requests if asked.plural == 'kopfexamples']
    return len([one for one in asked if one.verb == 'list' and one.user_agent.startswith('kopf/')])


@pytest.fixture
async def fleet(sandbox, cluster, run_operator):
    return Fleet(sandbox, run_operator)


@STANDBYS
@pytest.mark.guarantee('LDR-007', 'LDR-008', 'LDR-011')
async def test_only_one_replica_handles_the_objects(fleet, cluster, standby):
    for name in 'abc':
        await fleet.run(name, standby=standby)
    await fleet.wait_until_promoted('a')
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await asyncio.sleep(60)

    assert fleet.calls == [('a', 'promoted', True), ('a', 'create', 'one')]


@STANDBYS
@pytest.mark.guarantee('LDR-004', 'LDR-007', 'LDR-008', 'LDR-011')
async def test_the_lease_is_released_on_a_graceful_stop_and_taken_at_once(
    fleet, cluster, virtual_time, standby
):
    one = await fleet.run('a', standby=standby)
    await fleet.wait_until_promoted('a')
    await fleet.run('b', standby=standby)
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await asyncio.sleep(30)
    since = virtual_time.elapsed
    await one.stop()
    await fleet.wait_until_promoted('b')

    assert virtual_time.elapsed - since <= 1
    assert (await fleet.get_spec())['leaseTransitions'] == 1
    await cluster.patch({'spec': {'x': 2}}, 'one')
    await cluster.wait_until_handled('one', x=2)
    assert fleet.calls == [
        ('a', 'promoted', True),
        ('a', 'create', 'one'),
        ('a', 'demoted', True),
        ('b', 'promoted', True),
        ('b', 'update', 'one'),
    ]


@STANDBYS
@pytest.mark.guarantee('LDR-007', 'LDR-008')
async def test_nothing_is_handled_and_written_while_standing_by(fleet, sandbox, cluster, standby):
    await sandbox.create(build_lease('someone-else'))
    task = asyncio.create_task(keep_alive(sandbox), name='someone else')
    await fleet.run('a', standby=standby)
    await cluster.create('one')
    await cluster.create('two')
    await cluster.patch({'spec': {'x': 2}}, 'two')
    await cluster.delete('two')
    await asyncio.sleep(100)
    task.cancel()
    await asyncio.wait([task])

    assert fleet.calls == []
    assert [asked for asked in sandbox.requests if is_write(asked)] == []

    await cluster.wait_until_handled('one')
    assert fleet.calls == [('a', 'promoted', True), ('a', 'create', 'one')]


@pytest.mark.guarantee('LDR-008')
async def test_hot_replicas_list_nothing_when_they_are_promoted(fleet, sandbox, cluster):
    one = await fleet.run('a')
    for number in range(5):
        await cluster.create(f'obj{number}')
    for number in range(5):
        await cluster.wait_until_handled(f'obj{number}')
    await fleet.run('b')
    await cluster.wait_until_watched(2)
    await one.stop()
    count = len(sandbox.requests)
    await cluster.create('late')
    await cluster.wait_until_handled('late')

    asked = [asked for asked in list(sandbox.requests)[count:] if asked.plural == 'kopfexamples']
    assert [one.verb for one in asked if one.verb in ('list', 'watch')] == []
    assert fleet.select('create')[-1] == ('b', 'late')


@pytest.mark.guarantee('LDR-008')
async def test_cold_replicas_request_nothing_of_objects_until_they_are_promoted(
    fleet, sandbox, cluster
):
    one = await fleet.run('a', standby='cold')
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await fleet.run('b', standby='cold')
    await asyncio.sleep(30)

    assert count_lists(sandbox) == 1

    await one.stop()
    await fleet.wait_until_promoted('b')
    await cluster.wait_until_watched(2)

    assert count_lists(sandbox) == 2


@STANDBYS
@pytest.mark.guarantee('LDR-007', 'LDR-008')
async def test_daemons_timers_and_resuming_begin_with_the_promotion(
    fleet, cluster, sandbox, standby
):
    def build(name):
        registry = fleet.build_registry(name)

        @kopf.on.resume('kopfexamples', registry=registry)
        async def resume(body, **_):
            fleet.calls.append((name, 'resume', body.metadata.name))

        @kopf.daemon('kopfexamples', registry=registry)
        async def daemon(body, stopped, **_):
            fleet.calls.append((name, 'daemon', body.metadata.name))
            await stopped.wait()
            fleet.calls.append((name, 'exit', body.metadata.name))

        @kopf.on.event('kopfexamples', registry=registry)
        async def event(body, type, **_):
            fleet.calls.append((name, f'event {type}', body.metadata.name))

        return registry

    one = await fleet.run('a', standby=standby, registry=build('a'))
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await fleet.run('b', standby=standby, registry=build('b'))
    await cluster.patch({'spec': {'x': 2}}, 'one')
    await cluster.wait_until_handled('one', x=2)
    await asyncio.sleep(10)

    assert {who for who, _, _ in fleet.calls} == {'a'}

    await one.stop()
    await wait_until(lambda: ('b', 'daemon', 'one') in fleet.calls)
    await wait_until(lambda: ('b', 'resume', 'one') in fleet.calls)
    assert fleet.calls.index(('a', 'exit', 'one')) < fleet.calls.index(('b', 'promoted', True))
    assert ('b', 'event None', 'one') in fleet.calls
    assert fleet.select('update') == [('a', 'one')]


@pytest.mark.guarantee('LDR-008')
async def test_what_the_previous_leader_has_handled_is_not_handled_again_if_the_stream_is_late(
    fleet, sandbox, cluster
):
    is_slow = asyncio.Event()
    registry = kopf.OperatorRegistry()

    @kopf.on.create('kopfexamples', registry=registry)
    async def handle(**_):
        await is_slow.wait()

    one = await fleet.run('a', registry=registry)
    await cluster.wait_until_watched()
    await fleet.run('b')
    await cluster.wait_until_watched(2)
    await cluster.create('one')
    await asyncio.sleep(5)
    fault = sandbox.faults.inject(resource='kopfexamples', verb='watch', stall=True)
    sandbox.faults.cut_streams(resource='kopfexamples')
    is_slow.set()
    await cluster.wait_until_handled('one')
    await one.stop()
    await fleet.wait_until_promoted('b')
    await asyncio.sleep(30)
    fault.lift()
    await cluster.patch({'spec': {'x': 2}}, 'one')
    await cluster.wait_until_handled('one', x=2)

    assert fleet.select('create') == []
    assert fleet.select('update') == [('b', 'one')]


@pytest.mark.guarantee('LDR-002', 'LDR-010')
async def test_a_leader_that_cannot_renew_stops_with_an_error_in_time(
    fleet, sandbox, cluster, virtual_time
):
    interrupted = []
    registry = fleet.build_registry('a')

    @kopf.daemon('kopfexamples', registry=registry, cancellation_timeout=60)
    async def daemon(**_):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            interrupted.append(virtual_time.elapsed)
            raise

    @kopf.on.update('kopfexamples', registry=registry)
    async def update(**_):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            interrupted.append(virtual_time.elapsed)
            raise

    settings = build_settings()
    settings.queueing.exit_timeout = 60
    one = await fleet.run('a', registry=registry, settings=settings)
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await cluster.patch({'spec': {'x': 2}}, 'one')
    await wait_until(lambda: fleet.select('update'))
    sandbox.faults.inject(resource='leases', code=500)
    since = virtual_time.elapsed
    with pytest.raises(kopf.LeadershipLostError, match=r'it was not renewed in 10\.0 s'):
        await one.task

    assert len(interrupted) == 2
    assert [moment - since for moment in interrupted] == [pytest.approx(9.2, abs=1.3)] * 2
    assert fleet.calls[-1] == ('a', 'demoted', False)


@pytest.mark.guarantee('LDR-002', 'LDR-010')
async def test_a_leader_stops_when_the_lease_is_taken_from_it(fleet, sandbox, cluster):
    one = await fleet.run('a')
    await fleet.wait_until_promoted('a')
    await sandbox.patch(LEASES, LEASE, {'spec': {'holderIdentity': 'someone-else'}})

    with pytest.raises(kopf.LeadershipLostError, match='it is held by someone-else'):
        await one.task

    assert (await fleet.get_spec())['holderIdentity'] == 'someone-else'


@pytest.mark.guarantee('LDR-003')
async def test_a_deleted_lease_is_made_again_by_its_leader(fleet, sandbox, cluster):
    await fleet.run('a')
    await fleet.wait_until_promoted('a')
    await fleet.run('b')
    before = await fleet.get_spec()
    await asyncio.sleep(10)
    await sandbox.delete(LEASES, LEASE)
    await asyncio.sleep(30)

    after = await fleet.get_spec()
    assert after['holderIdentity'] == before['holderIdentity']
    assert after['acquireTime'] == before['acquireTime']
    assert [call[:2] for call in fleet.calls] == [('a', 'promoted')]


@pytest.mark.guarantee('LDR-001')
async def test_the_lease_is_as_that_of_go_programs(fleet, sandbox, cluster, monkeypatch):
    monkeypatch.setenv('POD_NAME', 'operator-7d9f')
    await fleet.run('a')
    await fleet.wait_until_promoted('a')

    spec = await fleet.get_spec()
    assert spec.keys() == {
        'holderIdentity',
        'leaseDurationSeconds',
        'acquireTime',
        'renewTime',
        'leaseTransitions',
    }
    assert re.fullmatch('operator-7d9f_[-0-9a-f]{36}', spec['holderIdentity'])
    assert (spec['leaseDurationSeconds'], spec['leaseTransitions']) == (15, 0)
    events = await sandbox.list('events', 'default')
    assert [(event['reason'], event['message']) for event in events] == [
        ('LeaderElection', f'{spec["holderIdentity"]} became leader')
    ]
    assert events[0]['involvedObject']['kind'] == 'Lease'


@pytest.mark.guarantee('LDR-004', 'LDR-011')
async def test_failed_promotion_stops_the_operator_and_gives_the_lease_back(
    fleet, sandbox, cluster
):
    registry = kopf.OperatorRegistry()

    @kopf.on.promoted(registry=registry)
    async def promoted(**_):
        raise kopf.PermanentError('No way.')

    one = await fleet.run('a', registry=registry)
    with pytest.raises(Exception, match='The promotion of the operator has failed'):
        await one.task

    assert (await fleet.get_spec())['holderIdentity'] == ''


@pytest.mark.guarantee('LDR-011')
async def test_operators_with_no_election_are_always_leading(
    cluster, registry, run_operator, calls
):
    @kopf.on.promoted(registry=registry)
    @kopf.on.demoted(registry=registry)
    async def never(**_):
        calls.append('never')

    @kopf.on.create('kopfexamples', registry=registry)
    def create(**_):
        calls.append(kopf.leading())

    one = await run_operator()
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await one.stop()

    assert calls == [True]
    assert kopf.leading()


@pytest.mark.guarantee('LDR-008')
@pytest.mark.parametrize('standby, indexed', [('hot', ['one', 'two']), ('cold', [])])
async def test_hot_replicas_have_their_indices_filled_before_they_are_promoted(
    fleet, cluster, standby, indexed
):
    def build(name):
        registry = fleet.build_registry(name)

        @kopf.index('kopfexamples', registry=registry, id='names')
        async def names(body, **_):
            return {body.metadata.name: True}

        @kopf.on.promoted(registry=registry)
        async def note(names, **_):
            fleet.calls.append((name, 'indexed', sorted(names)))

        return registry

    one = await fleet.run('a', standby=standby, registry=build('a'))
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await fleet.run('b', standby=standby, registry=build('b'))
    await cluster.create('two')
    await cluster.wait_until_handled('two')
    await asyncio.sleep(10)
    await one.stop()
    await wait_until(lambda: 'b' in dict(fleet.select('indexed')))

    assert dict(fleet.select('indexed'))['b'] == indexed
    await cluster.create('three')
    await cluster.wait_until_handled('three')
    assert fleet.select('create') == [('a', 'one'), ('a', 'two'), ('b', 'three')]
