"""
How many requests an operator costs the cluster: none without a difference, and as few as possible
otherwise.
"""

import asyncio

import pytest
from clusters import FINALIZER, get_progress, wait_until

import kopf

RETRY_DELAY = 10


@pytest.mark.guarantee('HND-032', 'HND-033', 'HND-034', 'HND-035', 'HND-036', 'CFG-055', 'CFG-056')
async def test_an_object_with_all_handlers_costs_two_writes_to_create_and_one_for_anything_else(
    cluster, registry, run_operator
):
    calls = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(**_):
        calls.append('create')
        return {'done': True}

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(**_):
        calls.append('update')

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('delete')

    await run_operator()
    await cluster.create(spec={'x': 1})
    body = await cluster.wait_until_handled(x=1)
    assert body['metadata']['finalizers'] == [FINALIZER]
    assert body['status'] == {'create_fn': {'done': True}}
    assert len(cluster.writes) == 2

    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    assert len(cluster.writes) == 3

    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    assert len(cluster.writes) == 4
    assert calls == ['create', 'update', 'delete']


@pytest.mark.guarantee('HND-032')
async def test_an_object_with_no_deletion_handlers_costs_one_write_to_create_and_none_to_delete(
    cluster, registry, run_operator
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    await run_operator()
    await cluster.create(spec={'x': 1})
    body = await cluster.wait_until_handled(x=1)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert 'finalizers' not in body['metadata']
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('CNT-009')
async def test_an_idle_operator_and_its_restart_write_nothing(cluster, registry, run_operator):
    resumed = []

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def change_fn(**_):
        pass

    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(name, **_):
        resumed.append(name)

    @kopf.on.resume('kopfexamples', registry=registry)
    async def another_resume_fn(name, **_):
        resumed.append(f'another {name}')

    operator = await run_operator()
    await cluster.create(spec={'x': 1})
    before = await cluster.wait_until_handled(x=1)
    cluster.sandbox.requests.clear()
    await operator.stop()
    await run_operator()
    await wait_until(lambda: len(resumed) == 2)
    await asyncio.sleep(3600)  # of the virtual time

    assert cluster.writes == []
    assert (await cluster.get())['metadata']['resourceVersion'] == before['metadata'][
        'resourceVersion'
    ]


@pytest.mark.guarantee('ERR-011', 'KWA-013')
async def test_a_handler_that_waits_for_its_retry_costs_one_write_per_attempt(
    cluster, registry, run_operator
):
    retries = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        retries.append(retry)
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=RETRY_DELAY)

    await run_operator()
    await cluster.create(spec={'x': 1})
    body = await cluster.wait_until_handled(x=1)

    assert retries == [0, 1, 2, 3]
    assert len(cluster.writes) == 4
    assert not get_progress(body)


@pytest.mark.guarantee('WLD-013', 'HND-029')
async def test_objects_with_only_event_handlers_stay_untouched(cluster, registry, run_operator):
    events = []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, **_):
        events.append(type)
        return {'a': 'result'}

    created = await cluster.create(spec={'x': 1}, finalizers=[FINALIZER])
    await run_operator()
    await wait_until(lambda: events)
    patched = await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(events) == 2)
    await cluster.delete()
    await wait_until(lambda: len(events) == 3)

    assert events == [None, 'MODIFIED', 'MODIFIED']
    assert (await cluster.get())['metadata']['finalizers'] == [FINALIZER]
    assert patched['metadata']['uid'] == created['metadata']['uid']
    assert cluster.writes == []
