"""
Several replicas of an operator: one handles the objects, the others take over when it is gone.
"""

import asyncio

import pytest
from replicas_of_operators import Fleet

STANDBYS = pytest.mark.parametrize('standby', ['hot', 'cold'])


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
