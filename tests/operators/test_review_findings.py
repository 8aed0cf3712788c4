"""
What a review has found: the ways in which handlers, or their absence, could stop or exhaust an operator.
"""
import asyncio
import threading

import pytest
from clusters import get_last_handled, get_progress, wait_until

import kopf
from kopf._cogs.structs import vaults


@pytest.fixture
def calls():
    return []


def get_time():
    return asyncio.get_running_loop().time()


async def await_cancelled():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def test_handlers_of_changes_are_called_though_something_was_cancelled_in_those_of_events(
        cluster, registry, run_operator, calls, caplog):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        await await_cancelled()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert calls == ['create']
    assert "Handler 'event_fn' failed with an exception. Will ignore." in caplog.text


@pytest.mark.guarantee('ERR-002')
async def test_something_cancelled_in_a_handler_is_an_error_of_the_handler(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry, retries=3, backoff=5)
    async def create_fn(retry, **_):
        calls.append((retry, get_time()))
        await await_cancelled()

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert [retry for retry, _ in calls] == [0, 1, 2]
    assert calls[2][1] - calls[0][1] == pytest.approx(10, abs=1)


@pytest.mark.parametrize('is_resumed', [
    pytest.param(False, id='creation'),
    pytest.param(True, id='resuming'),
])
async def test_lifecycles_that_take_no_handlers_are_asked_again_later(
        cluster, registry, run_operator, calls, is_resumed):
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


async def test_lifecycles_that_take_no_subhandlers_are_asked_again_later(cluster, registry, run_operator, calls):
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


@pytest.mark.guarantee('NEW-102')
async def test_handlers_have_as_much_time_to_finish_as_the_settings_say(
        cluster, registry, run_operator, calls, settings):
    settings.queueing.exit_timeout = 300

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('begun')
        await asyncio.sleep(250)
        calls.append('finished')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await operator.stop()

    assert calls == ['begun', 'finished', 'cleanup']
    assert get_last_handled(await cluster.get())['spec'] == {'x': 1}


@pytest.fixture
def block(registry, settings, calls):
    """Have one thread for all handlers, and a handler that never leaves it."""
    released = threading.Event()
    settings.execution.max_workers = 1

    @kopf.on.create('kopfexamples', registry=registry)
    def blocked_fn(**_):
        calls.append('blocked')
        released.wait(timeout=60)

    yield
    released.set()


@pytest.mark.usefixtures('block')
async def test_logins_do_not_wait_for_the_threads_of_handlers(
        cluster, registry, run_operator, sandbox, calls):
    @kopf.on.login(registry=registry)
    def login_fn(**_):
        calls.append('login')
        return kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token, priority=len(calls))  # new each time

    vault = vaults.Vault()
    await run_operator(vault=vault)
    await cluster.create()
    await wait_until(lambda: 'blocked' in calls)
    await vault.invalidate(*await vault.select())
    key, _ = await vault.select()

    assert key == 'login_fn'
    assert calls == ['login', 'blocked', 'login']


@pytest.mark.usefixtures('block')
async def test_cleanups_do_not_wait_for_the_threads_of_handlers(cluster, registry, run_operator, calls):
    @kopf.on.cleanup(registry=registry)
    def cleanup_fn(**_):
        calls.append('cleanup')

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls)
    await operator.stop()

    assert calls == ['blocked', 'cleanup']
    assert not get_progress(await cluster.get())


@pytest.mark.guarantee('NEW-067')
async def test_objects_that_are_only_believed_to_be_gone_are_handled_later(cluster, registry, run_operator, calls):
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
    assert calls[1] - calls[0] > 100  # before that, the object can be gone in fact, but not for the stream yet


async def test_objects_that_are_gone_in_fact_are_not_handled_again(cluster, registry, run_operator, calls):
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


async def test_changes_for_outdated_objects_are_sent_less_and_less_often(cluster, registry, run_operator):
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
    await cluster.wait(lambda body: body['metadata'].get('finalizers'), timeout=1)  # at once, as it is not outdated
