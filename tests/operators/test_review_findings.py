"""
What a review has found: the ways in which handlers, or their absence, could stop or exhaust an
operator.
"""

import asyncio
import json
import threading

import pytest
from clusters import FINALIZER, LAST_HANDLED, get_last_handled, get_progress, wait_until

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
    cluster, registry, run_operator, calls, caplog
):
    @kopf.on.event('kopfexamples', id='event_fn', registry=registry)
    async def event_fn(**_):
        await await_cancelled()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert calls == ['create']
    assert "Handler 'event_fn' failed with an exception and will ignore it:" in caplog.text


@pytest.mark.guarantee('ERR-002')
async def test_something_cancelled_in_a_handler_is_an_error_of_the_handler(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry, retries=3, backoff=5)
    async def create_fn(retry, **_):
        calls.append((retry, get_time()))
        await await_cancelled()

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    assert [retry for retry, _ in calls] == [0, 1, 2]
    assert calls[2][1] - calls[0][1] == pytest.approx(10, abs=1)


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


@pytest.mark.guarantee('NEW-102')
async def test_handlers_have_as_much_time_to_finish_as_the_settings_say(
    cluster, registry, run_operator, calls, settings
):
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
    cluster, registry, run_operator, sandbox, calls
):
    @kopf.on.login(id='login_fn', registry=registry)
    def login_fn(**_):
        calls.append('login')
        # New each time.
        return kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token, priority=len(calls))

    vault = vaults.Vault()
    await run_operator(vault=vault)
    await cluster.create()
    await wait_until(lambda: 'blocked' in calls)
    await vault.invalidate(*await vault.select())
    key, _ = await vault.select()

    assert key == 'login_fn'
    assert calls == ['login', 'blocked', 'login']


@pytest.mark.usefixtures('block')
async def test_cleanups_do_not_wait_for_the_threads_of_handlers(
    cluster, registry, run_operator, calls
):
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


@pytest.fixture
def world():
    """What handlers do outside of the cluster."""
    return {}


@pytest.fixture
def keep(registry, world):
    """Keep the outside as the fields of the spec are: by a handler for each of them."""

    def declare(field, do=lambda **_: None):
        @kopf.on.create('kopfexamples', id=field, registry=registry)
        @kopf.on.update('kopfexamples', id=field, field=f'spec.{field}', registry=registry)
        async def keep_fn(body, retry, **_):
            world[field] = body['spec'].get(field)
            do(retry=retry)

    return declare


@pytest.fixture
async def refuse(cluster):
    """Let the next change by the operator be refused."""

    def refuse():
        return cluster.sandbox.faults.inject(
            verb='patch', path='*/kopfexamples/obj', user_agent='kopf/*', code=422, times=1
        )

    return refuse


@pytest.mark.guarantee('FLT-029')
@pytest.mark.parametrize(
    'when',
    [
        pytest.param(lambda memo, **_: 'made' in memo, id='memo-of-creation'),
        pytest.param(lambda memo, **_: 'seen' in memo, id='memo-of-events'),
        pytest.param(lambda old, **_: old is not None, id='old-state'),
    ],
)
@pytest.mark.parametrize('has_events', [True, False], ids=['with-events', 'with-no-events'])
async def test_objects_are_held_as_soon_as_handlers_of_deletion_want_it_by_anything_but_the_object(
    cluster, registry, run_operator, calls, when, has_events
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(memo, **_):
        memo['made'] = True
        if not has_events:
            memo['seen'] = True

    if has_events:

        @kopf.on.event('kopfexamples', registry=registry)
        async def event_fn(memo, body, **_):
            if get_last_handled(body) is not None:
                memo['seen'] = True

    @kopf.on.delete('kopfexamples', registry=registry, when=when)
    async def delete_fn(**_):
        calls.append('delete')

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await cluster.wait(lambda body: body['metadata'].get('finalizers') == [FINALIZER])
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['delete']


async def test_unrecorded_change_that_is_taken_back_is_retried_if_it_fails(
    cluster, run_operator, keep, refuse, world
):
    def fail(**_):
        if failures:
            failures.pop()
            raise kopf.TemporaryError('not yet', delay=5)

    failures = []
    keep('x', fail)
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    failures.append('once')
    await cluster.patch({'spec': {'x': 1}})
    await wait_until(lambda: not failures)
    world['x'] = 'not finished'
    await asyncio.sleep(600)

    body = await cluster.get()
    assert world == {'x': 1}
    assert get_last_handled(body)['spec'] == {'x': 1}
    assert not get_progress(body)


async def test_unrecorded_change_is_taken_back_for_those_who_have_seen_it_though_there_are_other_changes(
    cluster, run_operator, keep, refuse, world
):
    keep('x')
    keep('y')
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    await cluster.patch({'spec': {'x': 1, 'y': 5}})
    await cluster.wait_until_handled(x=1, y=5)

    assert world == {'x': 1, 'y': 5}


async def test_unrecorded_changes_are_forgotten_if_they_are_handled_by_others(
    cluster, registry, run_operator, refuse, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(old, new, **_):
        calls.append((old and old['spec']['x'], new['spec']['x']))

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    handled = {LAST_HANDLED: json.dumps({'spec': {'x': 3}})}
    await cluster.patch({'spec': {'x': 3}, 'metadata': {'annotations': handled}})
    await asyncio.sleep(600)

    assert calls == [(None, 1), (1, 2)]
    assert get_last_handled(await cluster.get())['spec'] == {'x': 3}


@pytest.mark.parametrize('size', [10, 70_000], ids=['small', 'big'])
async def test_change_taken_back_is_told_to_those_who_have_finished_however_big_the_object_is(
    cluster, run_operator, keep, world, size
):
    def fail_at_first(retry):
        if world['y'] == 2 and retry < 3:
            raise kopf.TemporaryError('not yet', delay=10)

    keep('x')
    keep('y', fail_at_first)
    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1, 'y': 1, 'text': 'x' * size})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2, 'y': 2}})
    await wait_until(lambda: world == {'x': 2, 'y': 2})
    await asyncio.sleep(5)
    await cluster.patch({'spec': {'x': 1, 'y': 1}})
    await asyncio.sleep(600)

    body = await cluster.get()
    assert world == {'x': 1, 'y': 1}
    assert get_last_handled(body)['spec']['x'] == 1
    assert not get_progress(body)


async def test_change_taken_back_after_an_interruption_is_told_to_those_who_have_finished(
    cluster, registry, run_operator, keep, world, settings
):
    settings.queueing.exit_timeout = 1
    keep('x')

    @kopf.on.update('kopfexamples', registry=registry)
    async def slow_fn(**_):
        await asyncio.sleep(1000)

    operator = await run_operator(lifecycle=kopf.lifecycles.all_at_once)
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: world == {'x': 2})
    await asyncio.sleep(10)
    await operator.stop()
    await cluster.patch({'spec': {'x': 1}})
    await run_operator()

    await wait_until(lambda: world == {'x': 1}, timeout=5000)


async def test_handlers_that_spoil_the_bodies_do_not_imagine_changes(
    cluster, registry, run_operator, refuse, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(body, old, new, diff, **_):
        calls.append(list(diff))
        body['spec']['nested']['spoilt'] = True

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create(spec={'x': 1, 'nested': {}})
    await cluster.wait_until_handled(x=1)
    calls.clear()
    refusal = refuse()
    await cluster.patch({'spec': {'x': 2}})
    await refusal.wait_until_hit()
    # As if only the answer was lost.
    recorded = {LAST_HANDLED: json.dumps({'spec': {'x': 2, 'nested': {}}})}
    await cluster.patch({'metadata': {'annotations': recorded}})
    await asyncio.sleep(600)

    assert calls == [[('change', ('spec', 'x'), 1, 2)]]
