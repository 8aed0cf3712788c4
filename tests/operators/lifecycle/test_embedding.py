"""
Operators inside of other programs: their beginning, their end, and their independence of each
other.
"""

import asyncio
import functools

import pytest
from clusters import build_crd, build_object, wait_until

import kopf
import kopf.testing
from kopf._cogs.structs import credentials, vaults
from kopf._core.engines.activities import operator_handlers
from kopf._core.reactor import inventory, operator_plans


@pytest.fixture
def cleanup_handlers(registry, calls):
    """Handlers that tell of the cleanup."""

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    @kopf.on.cleanup(registry=registry)
    def sync_cleanup_fn(**_):
        calls.append('sync-cleanup')


@pytest.fixture
def resource_handlers(registry, calls):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(name, **_):
        calls.append(name)


# The beginning.


@pytest.mark.guarantee('STA-002', 'STA-003', 'STA-006', 'WLD-012')
async def test_nothing_is_done_until_all_startup_handlers_succeed(
    cluster, registry, resource_handlers, run_operator, calls, virtual_time
):
    @kopf.on.startup(registry=registry)
    async def slow_fn(memo, **_):
        memo.lock = asyncio.Lock()
        await asyncio.sleep(1000)
        calls.append(len(cluster.sandbox.requests))

    @kopf.on.startup(registry=registry)
    def another_fn(memo, **_):
        calls.append(len(cluster.sandbox.requests))

    @kopf.on.event('kopfexamples', registry=registry)
    async def locking_fn(memo, **_):
        async with memo.lock:
            calls.append('locked')

    await cluster.create()
    cluster.sandbox.requests.clear()
    await run_operator()
    await wait_until(lambda: 'obj' in calls and 'locked' in calls)

    assert calls[:2] == [0, 0]
    assert virtual_time.elapsed >= 1000


@pytest.mark.guarantee('STA-005', 'WLD-012')
async def test_failing_startup_is_retried_as_declared(
    cluster, registry, resource_handlers, run_operator, calls, virtual_time
):
    @kopf.on.startup(registry=registry)
    async def failing_fn(retry, **_):
        calls.append((retry, virtual_time.elapsed))
        if retry == 0:
            raise RuntimeError('boo!')
        if retry == 1:
            raise kopf.TemporaryError('again!', delay=5)

    await cluster.create()
    await run_operator()
    await wait_until(lambda: 'obj' in calls)

    assert [retry for retry, _ in calls[:3]] == [0, 1, 2]
    assert calls[1][1] - calls[0][1] == pytest.approx(60, abs=1)
    assert calls[2][1] - calls[1][1] == pytest.approx(5, abs=1)


@pytest.mark.guarantee('STA-004')
@pytest.mark.parametrize(
    'declaration, error',
    [
        pytest.param({}, kopf.PermanentError('boo!'), id='permanent'),
        pytest.param(
            {'errors': kopf.ErrorsMode.PERMANENT}, ValueError('boo!'), id='arbitrary-as-permanent'
        ),
        pytest.param({'retries': 3, 'backoff': 10}, ValueError('boo!'), id='retries'),
        pytest.param({'timeout': 100, 'backoff': 30}, ValueError('boo!'), id='timeout'),
    ],
)
async def test_failed_startup_is_raised_with_no_requests_to_the_cluster(
    cluster, registry, resource_handlers, run_operator, calls, declaration, error
):
    @kopf.on.startup(registry=registry, **declaration)
    async def failing_fn(**_):
        raise error

    @kopf.on.startup(registry=registry)
    async def another_fn(**_):
        calls.append('another')

    await cluster.create()
    cluster.sandbox.requests.clear()
    operator = await run_operator()

    with pytest.raises(operator_handlers.ActivityError, match='boo!') as caught:
        await operator.task

    assert 'failing_fn' in str(caught.value)
    assert not operator.ready_flag.is_set()
    assert list(cluster.sandbox.requests) == []
    assert calls == ['another']


async def test_startup_that_is_cancelled_from_the_inside_is_not_a_silent_exit(
    registry, run_operator
):
    @kopf.on.startup(registry=registry, retries=2)
    async def cancelled_fn(**_):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    operator = await run_operator()

    with pytest.raises(operator_handlers.ActivityError, match='was cancelled'):
        await asyncio.wait_for(operator.task, timeout=1000)


async def test_stop_flag_interrupts_the_startup(
    cluster, registry, resource_handlers, run_operator, calls
):
    @kopf.on.startup(registry=registry)
    async def endless_fn(**_):
        asyncio.get_running_loop().call_later(10, stop_flag.set)
        await asyncio.Event().wait()

    stop_flag = asyncio.Event()
    operator = await run_operator(stop_flag=stop_flag)
    await operator.task

    assert not operator.ready_flag.is_set()


async def test_wrong_settings_are_reported_all_together_with_no_requests(
    cluster, registry, run_operator, settings
):
    @kopf.on.startup(registry=registry)
    async def startup_fn(settings, **_):
        settings.queueing.worker_limit = 0
        settings.persistence.finalizer = None

    settings.networking.request_timeout = 'long'
    cluster.sandbox.requests.clear()
    operator = await run_operator()

    with pytest.raises(operator_plans.SettingsError) as caught:
        await operator.task

    for name in ['queueing.worker_limit', 'persistence.finalizer', 'networking.request_timeout']:
        assert f'settings.{name}' in str(caught.value)
    assert list(cluster.sandbox.requests) == []


@pytest.mark.guarantee('EMB-006', 'STA-007', 'STA-009', 'SHD-008')
async def test_memo_of_the_operator_is_given_to_all_of_its_handlers(
    cluster, registry, run_operator, calls
):
    class MyMemo:
        value = None

    @kopf.on.startup(registry=registry)
    def startup_fn(memo, **_):
        memo.value = 'startup'
        calls.append(memo)

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(memo, **_):
        assert isinstance(memo, MyMemo)
        calls.append(memo.value)
        memo.value = 'event'

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(memo, **_):
        calls.append(memo)

    memo = MyMemo()
    await cluster.create()
    operator = await run_operator(memo=memo)
    await wait_until(lambda: len(calls) == 2)
    await operator.stop()

    assert calls == [memo, 'startup', memo]
    assert memo.value == 'startup'


async def test_given_memories_are_used_and_forgotten_in_the_end(
    cluster, resource_handlers, run_operator, calls
):
    memories = inventory.Memories()
    await cluster.create()
    operator = await run_operator(memories=memories)
    await wait_until(lambda: calls)
    assert len(memories) == 1

    await operator.stop()

    assert len(memories) == 0


# The end.


@pytest.mark.guarantee('SHD-004', 'EMB-010')
async def test_stop_flag_runs_the_cleanup_handlers(cluster, cleanup_handlers, run_operator, calls):
    operator = await run_operator()
    operator.stop_flag.set()

    assert await operator.task is None
    assert calls == ['cleanup', 'sync-cleanup']


@pytest.mark.guarantee('SHD-005', 'EMB-017')
async def test_cancellation_runs_the_cleanup_handlers(
    cluster, cleanup_handlers, run_operator, calls
):
    operator = await run_operator()
    operator.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await operator.task
    assert calls == ['cleanup', 'sync-cleanup']


@pytest.mark.guarantee('SHD-005')
async def test_cancellation_of_the_spawned_tasks_runs_the_cleanup_handlers(
    sandbox, registry, cleanup_handlers, calls
):
    ready_flag = asyncio.Event()
    vault = vaults.Vault({'sandbox': kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token)})
    tasks = await kopf.spawn_tasks(
        registry=registry, vault=vault, clusterwide=True, ready_flag=ready_flag
    )
    await ready_flag.wait()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert calls == ['cleanup', 'sync-cleanup']


@pytest.mark.guarantee('SHD-003', 'NEW-267')
async def test_error_of_the_operator_runs_the_cleanup_handlers_and_is_raised(
    cluster, registry, cleanup_handlers, run_operator, calls
):
    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        raise kopf.PermanentError('boo!')

    operator = await run_operator(vault=vaults.Vault())

    with pytest.raises(credentials.LoginError):
        await operator.task
    assert calls == ['cleanup', 'sync-cleanup']


async def test_login_that_brings_nothing_is_an_error_of_the_operator(
    cluster, registry, run_operator
):
    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        return None

    operator = await run_operator(vault=vaults.Vault())

    with pytest.raises(credentials.LoginError):
        await operator.task


@pytest.mark.guarantee('SHD-007')
async def test_cleanup_can_take_any_time(cluster, registry, run_operator, virtual_time):
    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(retry, **_):
        if retry < 3:
            raise kopf.TemporaryError('again!', delay=10_000)

    operator = await run_operator()
    before = virtual_time.elapsed
    await operator.stop()

    assert virtual_time.elapsed - before == pytest.approx(30_000, abs=10)


async def test_cleanup_handlers_run_when_nothing_is_handled_any_more_and_the_api_is_usable(
    cluster, registry, run_operator, calls
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        calls.append('begun')
        await asyncio.sleep(1)
        calls.append('ended')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        await cluster.patch({'spec': {'x': 2}})
        await asyncio.sleep(100)
        calls.append('cleanup')

    await cluster.create()
    operator = await run_operator()
    await wait_until(lambda: calls)
    await operator.stop()

    assert calls == ['begun', 'ended', 'cleanup']


async def test_failed_cleanup_is_raised_after_all_of_its_handlers(
    cluster, registry, cleanup_handlers, run_operator, calls
):
    @kopf.on.cleanup(registry=registry)
    async def failing_fn(**_):
        raise kopf.PermanentError('boo!')

    @kopf.on.cleanup(registry=registry)
    async def last_fn(**_):
        calls.append('last')

    operator = await run_operator()
    operator.stop_flag.set()

    with pytest.raises(operator_handlers.ActivityError, match='boo!'):
        await operator.task
    assert calls == ['cleanup', 'sync-cleanup', 'last']


async def test_failed_cleanup_does_not_hide_what_has_ended_the_operator(
    cluster, registry, run_operator, logs
):
    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        return None

    @kopf.on.cleanup(registry=registry)
    async def failing_fn(**_):
        raise kopf.PermanentError('boo!')

    operator = await run_operator(vault=vaults.Vault())

    with pytest.raises(credentials.LoginError):
        await operator.task
    assert any('boo!' in text for text in logs())


async def test_failed_cleanup_does_not_hide_the_cancellation(cluster, registry, run_operator):
    @kopf.on.cleanup(registry=registry)
    async def failing_fn(**_):
        raise kopf.PermanentError('boo!')

    operator = await run_operator()
    operator.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await operator.task


@pytest.mark.guarantee('SHD-006')
async def test_second_cancellation_interrupts_the_cleanup(cluster, registry, run_operator, calls):
    @kopf.on.cleanup(registry=registry)
    async def endless_fn(**_):
        calls.append('begun')
        await asyncio.Event().wait()

    operator = await run_operator()
    operator.task.cancel()
    await wait_until(lambda: calls)
    operator.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(operator.task, timeout=60)


@pytest.mark.parametrize('trouble', ['stop', 'cancel'])
async def test_end_of_the_operator_leaves_no_tasks_and_no_connections(
    cluster, registry, resource_handlers, run_operator, calls, trouble
):
    before = asyncio.all_tasks()
    await cluster.create()
    operator = await run_operator()
    await wait_until(lambda: calls)
    if trouble == 'stop':
        operator.stop_flag.set()
    else:
        operator.task.cancel()
    await asyncio.wait([operator.task])
    await wait_until(
        lambda: (
            not {
                task
                for task in asyncio.all_tasks() - before
                if 'kopf/_core' in str(task.get_coro()) or 'worker' in task.get_name()
            }
        )
    )


async def test_dropped_objects_are_forgotten_with_their_resource(
    cluster, registry, run_operator, settings, calls
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def slow_fn(name, type, **_):
        calls.append((name, type))
        if type is not None:
            await asyncio.sleep(10)

    settings.queueing.worker_limit = 1
    memories = inventory.Memories()
    for name in ['one', 'two', 'three']:
        await cluster.create(name)
    await run_operator(memories=memories)
    await wait_until(lambda: len(calls) == 3)
    assert len(memories) == 3
    await cluster.sandbox.delete('customresourcedefinitions', 'kopfexamples.kopf.dev')

    await wait_until(lambda: len(memories) == 0, timeout=3600)


# Several operators.


@pytest.mark.guarantee('EMB-021', 'EMB-022', 'STA-008', 'WLD-008')
async def test_operators_of_one_loop_have_their_own_handlers_and_settings(
    cluster, sandbox, run_operator, calls
):
    def declare(name):
        registry = kopf.OperatorRegistry()

        @kopf.on.startup(registry=registry)
        async def startup_fn(settings, **_):
            settings.persistence.finalizer = f'{name}.dev/finalizer'
            settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(
                prefix=f'{name}.dev'
            )
            settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(
                prefix=f'{name}.dev'
            )

        @kopf.on.create('kopfexamples', registry=registry)
        @kopf.on.delete('kopfexamples', registry=registry)
        async def fn(reason, **_):
            calls.append((name, reason))

        return registry

    one = await run_operator(registry=declare('one'), settings=kopf.OperatorSettings())
    await run_operator(registry=declare('two'), settings=kopf.OperatorSettings())
    await cluster.create()
    body = await cluster.wait(
        lambda body: all(
            f'{name}.dev/last-handled-configuration' in body['metadata'].get('annotations', {})
            for name in ['one', 'two']
        )
    )
    assert sorted(body['metadata']['finalizers']) == ['one.dev/finalizer', 'two.dev/finalizer']
    assert sorted(calls) == [('one', 'create'), ('two', 'create')]

    await one.stop()
    await cluster.delete()
    await wait_until(lambda: ('two', 'delete') in calls)
    body = await cluster.wait(
        lambda body: 'two.dev/finalizer' not in body['metadata']['finalizers']
    )

    assert body['metadata']['finalizers'] == ['one.dev/finalizer']
    assert ('one', 'delete') not in calls


@pytest.mark.guarantee('EMB-022', 'WLD-008')
async def test_handlers_can_be_declared_in_a_loop_after_other_operators_have_started(
    cluster, registry, resource_handlers, run_operator, calls
):
    async def fn(id, name, **_):
        calls.append((id, name))

    other = kopf.OperatorRegistry()
    await run_operator()
    for number in range(3):
        kopf.on.event('kopfexamples', registry=other, id=f'fn{number}')(
            functools.partial(fn, number)
        )
    await run_operator(registry=other, settings=kopf.OperatorSettings())
    await cluster.create()
    await wait_until(lambda: len(calls) == 4)

    assert set(calls) == {'obj', (0, 'obj'), (1, 'obj'), (2, 'obj')}


@pytest.mark.guarantee('EMB-021')
async def test_failed_operator_does_not_affect_the_others(
    cluster, registry, resource_handlers, run_operator, calls
):
    other = kopf.OperatorRegistry()

    @kopf.on.startup(registry=other)
    async def failing_fn(**_):
        raise kopf.PermanentError('boo!')

    await run_operator()
    failed = await run_operator(registry=other, settings=kopf.OperatorSettings())
    with pytest.raises(operator_handlers.ActivityError):
        await failed.task
    await cluster.create()

    await wait_until(lambda: calls)


@pytest.mark.guarantee('EMB-021')
async def test_operators_of_different_clusters_do_not_mix(cluster, run_operator, calls):
    def declare(name):
        registry = kopf.OperatorRegistry()

        @kopf.on.event('kopfexamples', registry=registry)
        async def event_fn(spec, **_):
            calls.append((name, spec['x']))

        return registry

    async with kopf.testing.Sandbox(tls=False) as another:
        await another.apply(build_crd())
        vault = vaults.Vault(
            {'another': kopf.ConnectionInfo(server=another.url, token=another.token)}
        )
        await run_operator(registry=declare('one'), settings=kopf.OperatorSettings())
        two = await run_operator(
            registry=declare('two'), settings=kopf.OperatorSettings(), vault=vault
        )
        await cluster.create(spec={'x': 1})
        await another.create(build_object(spec={'x': 2}))
        await wait_until(lambda: len(calls) == 2)
        await two.stop()

    assert sorted(calls) == [('one', 1), ('two', 2)]
