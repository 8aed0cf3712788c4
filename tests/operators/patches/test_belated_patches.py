"""
Patches for objects that are gone, or are believed to be gone, or have been changed meanwhile.
"""

import asyncio

import pytest
from clusters import get_time, wait_until

import kopf


@pytest.mark.guarantee('NEW-067')
async def test_objects_that_are_only_believed_to_be_gone_are_handled_later(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append(get_time())
        patch.status['x'] = 1

    await run_operator()
    await cluster.wait_until_watched()
    with cluster.sandbox.faults.inject(verb='patch', resource='kopfexamples', code=404):
        await cluster.create()
        await wait_until(lambda: cluster.writes)
    await cluster.wait_until_handled(x=1)

    assert len(calls) == 2
    # Before that, the object can be gone in fact, but not for the stream yet.
    assert calls[1] - calls[0] > 100


async def test_objects_that_are_gone_in_fact_are_not_handled_again(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        await cluster.delete()
        patch.fns.append(lambda body: body['spec'].update(y=1))

    await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await asyncio.sleep(1000)

    assert calls == ['create']
    assert len(cluster.writes) <= 1


async def test_changes_for_outdated_objects_are_sent_less_and_less_often(
    cluster, registry, run_operator
):
    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        pass

    await run_operator()
    await cluster.wait_until_watched()
    with cluster.sandbox.faults.inject(verb='patch', resource='kopfexamples', code=409):
        await cluster.create()
        await asyncio.sleep(3600)
        assert 5 < len(cluster.writes) < 20
    await cluster.sandbox.update({**await cluster.get(), 'spec': {'x': 2}})
    # At once, as it is not outdated.
    await cluster.wait(lambda body: body['metadata'].get('finalizers'), timeout=1)
