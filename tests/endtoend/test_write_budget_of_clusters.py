"""
What operators cost the cluster, as the server counts it; on real clusters, by the audit log.
"""

import pytest
from e2e_worlds import wait_until

import kopf


@pytest.fixture(autouse=True)
def counted(own_server):
    """Only our own servers tell what they were asked of."""


@pytest.mark.guarantee('HND-032', 'HND-033', 'HND-034')
async def test_two_writes_to_create_and_one_to_update_or_delete(world, registry, run_operator):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def change_fn(reason, **_):
        calls.append(reason)

    counts = []
    async with run_operator():
        await world.create()
        await world.wait_until_handled(x=1)
        counts.append(len(world.read_writes()))
        await world.patch({'spec': {'x': 2}})
        await world.wait_until_handled(x=2)
        counts.append(len(world.read_writes()))
        await world.delete()
        await world.wait_until_gone()
    counts.append(len(world.read_writes()))

    assert calls == ['create', 'update', 'delete']
    assert counts == [2, 3, 4]
    assert {asked.code for asked in world.read_writes()} == {200}


@pytest.mark.guarantee('HND-032')
async def test_one_write_to_create_and_none_to_delete_with_no_deletion_handlers(
    world, registry, run_operator
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    async with run_operator():
        await world.create()
        await world.wait_until_handled()
        await world.delete()
        await world.wait_until_gone()

    assert len(world.read_writes()) == 1


@pytest.mark.guarantee('CNT-009')
async def test_no_writes_to_restart_and_to_be_idle(world, registry, run_operator):
    resumed = []

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def change_fn(**_):
        pass

    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(name, **_):
        resumed.append(name)

    async with run_operator():
        await world.create('old')
        before = await world.wait_until_handled(name='old')
    writes = world.read_writes(name='old')
    resumed.clear()
    async with run_operator():
        await wait_until(lambda: resumed)
        await world.create('new')
        await world.wait_until_handled(name='new')

    assert resumed == ['old']
    assert world.read_writes(name='old') == writes
    assert (await world.find('old'))['metadata']['resourceVersion'] == before['metadata'][
        'resourceVersion'
    ]


@pytest.mark.guarantee('ERR-011')
async def test_one_write_per_attempt(world, registry, run_operator):
    retries = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        retries.append(retry)
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=0.5)

    async with run_operator():
        await world.create()
        await world.wait_until_handled()

    assert retries == [0, 1, 2, 3]
    assert len(world.read_writes()) == 4
