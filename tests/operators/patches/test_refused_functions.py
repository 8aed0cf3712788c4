"""
Functions of patches that make objects which the server refuses: all the rest goes on.
"""

import asyncio

import pytest

import kopf


@pytest.fixture
async def strict_cluster(make_strict_cluster):
    return await make_strict_cluster()


def spoil(body):
    body['spec']['size'] = -1


@pytest.mark.guarantee('FND-002')
async def test_refused_functions_do_not_silence_the_other_handlers(
    strict_cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', id='refused', registry=registry)
    async def refused(patch, retry, **_):
        calls.append(f'refused {retry}')
        patch.fns.append(spoil)

    @kopf.on.create('kopfexamples', id='retried', registry=registry)
    async def retried(retry, **_):
        calls.append(f'retried {retry}')
        if not retry:
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await strict_cluster.create()
    await asyncio.sleep(3600)

    assert calls == ['refused 0', 'retried 0', 'retried 1']


@pytest.mark.guarantee('FND-002')
async def test_refused_functions_do_not_silence_the_retries_of_their_maker(
    strict_cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def fn(patch, retry, **_):
        calls.append(retry)
        if not retry:
            patch.fns.append(spoil)
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await strict_cluster.create()
    await asyncio.sleep(3600)

    assert calls == [0, 1]


@pytest.mark.guarantee('FND-002')
async def test_refused_functions_do_not_hold_the_deletion(
    strict_cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        calls.append('create')
        patch.fns.append(spoil)

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(patch, retry, **_):
        calls.append(f'delete {retry}')
        if not retry:
            patch.fns.append(spoil)
            raise kopf.TemporaryError('later', delay=10)

    await run_operator()
    await strict_cluster.create()
    await asyncio.sleep(30)
    await strict_cluster.delete()
    await strict_cluster.wait(lambda body: body is None)

    assert calls == ['create', 'delete 0', 'delete 1']
