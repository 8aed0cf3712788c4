"""
Lifecycles that take no handlers for now: they are asked again later, with nothing written meanwhile.
"""

import pytest
from clusters import get_time, wait_until

import kopf


@pytest.mark.parametrize(
    'is_resumed',
    [
        pytest.param(False, id='creation'),
        pytest.param(True, id='resuming'),
    ],
)
async def test_lifecycles_that_take_no_handlers_are_asked_again_later(
    cluster, registry, run_operator, calls, is_resumed
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.resume('kopfexamples', registry=registry)
    async def fn(**_):
        calls.append(get_time())

    def be_late(handlers, **_):
        calls.append(get_time())
        return handlers if get_time() >= since + 10 else []

    since = get_time()
    if is_resumed:
        operator = await run_operator()
        await cluster.create()
        await cluster.wait_until_handled(x=1)
        await operator.stop()
        since = get_time()
    calls.clear()
    cluster.sandbox.requests.clear()
    await run_operator(lifecycle=be_late)
    if not is_resumed:
        await cluster.create()
    await wait_until(lambda: calls and calls[-1] >= since + 10)

    assert 5 < len(calls) < 15
    assert len(cluster.writes) <= 1


async def test_lifecycles_that_take_no_subhandlers_are_asked_again_later(
    cluster, registry, run_operator, calls
):
    async def subhandler(**_):
        calls.append('called')

    def be_late(handlers, **_):
        calls.append('asked')
        return handlers if get_time() >= since + 10 else []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        await kopf.execute(fns={'sub': subhandler}, lifecycle=be_late)

    since = get_time()
    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert calls[-1] == 'called'
    assert 5 < calls.count('asked') < 15
