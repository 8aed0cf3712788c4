"""
Resuming handlers that are mixed into a creation or an update do not hold it.
"""

import asyncio

import pytest
from clusters import get_last_handled, get_progress, wait_until

import kopf


@pytest.fixture
def handlers(registry, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(spec, **_):
        calls.append(('create', spec['x']))

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(old, new, **_):
        calls.append(('update', old['spec']['x'], new['spec']['x']))

    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(retry, spec, **_):
        calls.append(('resume', spec['x'], retry))
        if retry < 3:
            raise kopf.TemporaryError('not yet', delay=100)


@pytest.mark.guarantee('FND-016')
async def test_creation_is_recorded_while_the_resuming_goes_on(
    cluster, handlers, run_operator, calls
):
    await cluster.create(spec={'x': 1})
    await run_operator()
    body = await cluster.wait(get_last_handled)
    assert get_last_handled(body)['spec'] == {'x': 1}

    await asyncio.sleep(1000)
    assert calls == [
        ('create', 1),
        ('resume', 1, 0),
        ('resume', 1, 1),
        ('resume', 1, 2),
        ('resume', 1, 3),
    ]
    assert not get_progress(await cluster.get())


@pytest.mark.guarantee('FND-016')
async def test_edits_made_while_the_resuming_goes_on_are_updates(
    cluster, handlers, run_operator, calls
):
    await cluster.create(spec={'x': 1})
    await run_operator()
    await wait_until(lambda: ('resume', 1, 0) in calls)
    await cluster.wait(get_last_handled)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: ('update', 1, 2) in calls, timeout=50)
    await asyncio.sleep(1000)

    body = await cluster.get()
    assert get_last_handled(body)['spec'] == {'x': 2}
    assert not get_progress(body)
    assert [call for call in calls if call[0] != 'resume'] == [('create', 1), ('update', 1, 2)]


@pytest.mark.guarantee('FND-016')
async def test_function_for_both_creation_and_resuming_is_waited_for(
    cluster, registry, run_operator, calls
):
    @kopf.on.resume('kopfexamples', registry=registry)
    @kopf.on.create('kopfexamples', registry=registry)
    async def fn(retry, **_):
        calls.append(retry)
        if retry < 2:
            raise kopf.TemporaryError('not yet', delay=10)

    await cluster.create(spec={'x': 1})
    await run_operator()
    await wait_until(lambda: len(calls) == 2)
    assert get_last_handled(await cluster.get()) is None

    await cluster.wait_until_handled(x=1)
    assert calls == [0, 1, 2]
