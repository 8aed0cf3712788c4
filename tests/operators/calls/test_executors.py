"""
Where the functions that are not coroutines are executed: in which threads, and in how many.
"""

import concurrent.futures
import threading

import pytest
from clusters import get_progress, wait_until

import kopf
from kopf._cogs.structs import vaults


@pytest.fixture
def make_executor():
    """Make executors whose threads are recognised by their names."""
    executors = []

    def make(name):
        executors.append(concurrent.futures.ThreadPoolExecutor(thread_name_prefix=name))
        return executors[-1]

    yield make
    for executor in executors:
        executor.shutdown()


@pytest.fixture
def blocked_handlers(registry, calls, barrier):
    """Functions that take a thread each until they are let go, and coroutines that do not."""

    @kopf.on.create('kopfexamples', labels={'is': 'sync'}, registry=registry)
    def sync_fn(name, **_):
        calls.append(name)
        barrier.wait()

    @kopf.on.create('kopfexamples', labels={'is': 'async'}, registry=registry)
    async def async_fn(**_):
        pass


async def check_limit(cluster, calls, barrier, limit):
    """
    Check that so many functions run at once, and that one more waits for the others, but nothing
    else does.
    """
    names = {f'obj-{number}' for number in range(limit + 1)}
    for name in names:
        await cluster.create(name, labels={'is': 'sync'})
    await wait_until(lambda: len(calls) >= limit)
    await cluster.create('another', labels={'is': 'async'})
    await cluster.wait_until_handled('another')
    assert len(calls) == limit

    barrier.set()
    for name in names:
        await cluster.wait_until_handled(name)
    assert set(calls) == names


@pytest.mark.guarantee('CFG-019')
@pytest.mark.parametrize('limit', [1, 20])
@pytest.mark.usefixtures('blocked_handlers')
async def test_number_of_threads_is_set_at_startup(
    cluster, registry, run_operator, calls, barrier, limit
):
    @kopf.on.startup(registry=registry)
    def startup_fn(settings, **_):
        settings.execution.max_workers = limit

    await run_operator()

    await check_limit(cluster, calls, barrier, limit)


@pytest.mark.guarantee('CFG-023')
@pytest.mark.usefixtures('blocked_handlers')
async def test_number_of_threads_is_of_python_by_default(cluster, run_operator, calls, barrier):
    await run_operator()

    await check_limit(cluster, calls, barrier, concurrent.futures.ThreadPoolExecutor()._max_workers)


@pytest.mark.guarantee('CFG-020', 'CFG-021')
async def test_startup_that_replaces_the_executor_is_finished_where_it_has_started(
    cluster, registry, run_operator, calls, make_executor
):
    @kopf.on.startup(registry=registry)
    def startup_fn(settings, **_):
        calls.append(threading.current_thread())
        settings.execution.executor = make_executor('new')
        settings.execution.executor.submit(int).result()  # it works already
        calls.append(threading.current_thread())

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(**_):
        calls.append(threading.current_thread())

    await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)

    before, after, create = calls
    assert before is after
    assert not after.name.startswith('new')
    assert create.name.startswith('new')


@pytest.mark.guarantee('CFG-021')
async def test_running_handlers_are_finished_in_the_executor_where_they_have_started(
    cluster, registry, run_operator, settings, calls, barrier, make_executor
):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    def create_fn(name, **_):
        calls.append((name, threading.current_thread().name.partition('_')[0]))
        if name == 'early':
            barrier.wait()
        return threading.current_thread().name.partition('_')[0]

    settings.execution.executor = make_executor('old')
    await run_operator()
    await cluster.create('early')
    await wait_until(lambda: calls)
    settings.execution.executor = make_executor('new')
    await cluster.create('late')
    late = await cluster.wait_until_handled('late')
    barrier.set()
    early = await cluster.wait_until_handled('early')

    assert calls == [('early', 'old'), ('late', 'new')]
    assert (early['status'], late['status']) == ({'create_fn': 'old'}, {'create_fn': 'new'})


@pytest.fixture
def threads(registry):
    """In which threads the handlers are executed."""
    threads = []

    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    def create_fn(**_):
        threads.append(threading.current_thread())

    return threads


async def test_threads_end_with_their_operator_even_if_its_settings_are_kept(
    cluster, run_operator, settings, threads
):
    settings.execution.max_workers = 1
    for name in ('one', 'two'):
        operator = await run_operator()
        await cluster.create(name)
        await cluster.wait_until_handled(name)
        await operator.stop()
        await wait_until(lambda: not threads[-1].is_alive())

    assert threads[0] is not threads[1]
    assert settings.execution.executor._max_workers == settings.execution.max_workers == 1


async def test_operators_with_common_settings_do_not_take_threads_from_each_other(
    cluster, run_operator, threads
):
    await run_operator()
    another = await run_operator(registry=kopf.OperatorRegistry())
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    await another.stop()
    await cluster.create('two')
    await cluster.wait_until_handled('two')

    assert len(threads) == 2


async def test_threads_of_users_do_not_end_with_operators(
    cluster, run_operator, settings, threads, make_executor
):
    settings.execution.executor = make_executor('mine')
    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled()
    await operator.stop()

    assert threads[0].name.startswith('mine')
    assert settings.execution.executor.submit(threading.current_thread).result() is threads[0]


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
