"""
Running of tasks: those of an operator, and those that are left after it.
"""

import asyncio

import pytest

import kopf
from kopf._cogs.structs import vaults


@pytest.fixture
def run_task():
    """Make a task that does not end until it is stopped, and takes some time then."""

    async def run(ended, name, delay):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(delay)
            ended.append(name)

    return lambda ended, name, delay=0: asyncio.create_task(run(ended, name, delay), name=name)


@pytest.mark.guarantee('EMB-011', 'NEW-237')
async def test_spawned_tasks_run_the_operator(options, activities):
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()

    tasks = await kopf.spawn_tasks(**options, stop_flag=stop_flag, ready_flag=ready_flag)
    assert tasks
    assert all(isinstance(task, asyncio.Task) for task in tasks)
    await asyncio.wait_for(ready_flag.wait(), timeout=60)
    stop_flag.set()
    done, pending = await asyncio.wait(tasks, timeout=60)

    assert not pending
    assert [task.exception() for task in done] == [None] * len(done)
    assert activities == ['startup', 'cleanup']


@pytest.mark.guarantee('EMB-013')
async def test_spawned_tasks_are_orchestrated(options, activities):
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
    tasks = await kopf.spawn_tasks(**options, stop_flag=stop_flag, ready_flag=ready_flag)
    running = asyncio.create_task(kopf.run_tasks(tasks))
    await ready_flag.wait()
    stop_flag.set()

    assert await asyncio.wait_for(running, timeout=60) is None
    assert all(task.done() for task in tasks)
    assert activities == ['startup', 'cleanup']


@pytest.mark.guarantee('EMB-012')
async def test_once_any_of_the_tasks_ends_the_others_are_stopped(run_task, virtual_time):
    ended = []
    roots = [
        asyncio.create_task(asyncio.sleep(10)),
        run_task(ended, 'one', 5),
        run_task(ended, 'two', 3),
    ]

    await kopf.run_tasks(roots)

    assert ended == ['two', 'one']
    assert virtual_time.elapsed == 15


@pytest.mark.guarantee('EMB-012', 'NEW-267')
async def test_error_of_a_task_is_raised_after_the_others_are_stopped(run_task):
    async def fail():
        await asyncio.sleep(0)
        raise ValueError('boo!')

    ended = []

    with pytest.raises(ValueError, match='boo!'):
        await kopf.run_tasks([run_task(ended, 'one'), asyncio.create_task(fail())])

    assert ended == ['one']


@pytest.mark.guarantee('EMB-012')
async def test_cancelled_orchestration_stops_all_tasks(run_task):
    ended = []
    running = asyncio.create_task(kopf.run_tasks([run_task(ended, 'one'), run_task(ended, 'two')]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert sorted(ended) == ['one', 'two']


async def test_orchestration_cancelled_twice_interrupts_the_tasks_but_awaits_them(
    run_task, virtual_time
):
    ended = []
    task = run_task(ended, 'slow', 1000)
    running = asyncio.create_task(kopf.run_tasks([task]))
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.sleep(1)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert task.done()
    assert ended == []
    assert virtual_time.elapsed == 2


@pytest.mark.guarantee('EMB-012', 'EMB-017')
async def test_orchestration_can_be_cancelled_any_number_of_times(virtual_time):
    async def refuse():
        while len(refused) < 3000:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                refused.append(virtual_time.elapsed)

    refused = []
    task = asyncio.create_task(refuse())
    running = asyncio.create_task(kopf.run_tasks([task]))
    await asyncio.sleep(1)
    for _ in range(3000):
        running.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running

    assert task.done()
    assert set(refused) == {1}


@pytest.fixture
async def start(options, virtual_time):
    """Start an operator; it is up to the test to end it."""

    async def start(**others):
        stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(**options, stop_flag=stop_flag, ready_flag=ready_flag, **others)
        )
        await asyncio.wait_for(ready_flag.wait(), timeout=60)
        return task, stop_flag

    return start


@pytest.fixture
def leftovers(registry, run_task):
    """
    Tasks that the operator leaves after itself: some end by themselves in time, others do not, or
    not at once.
    """
    leftovers, ended = [], []

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        leftovers.append(asyncio.create_task(asyncio.sleep(3), name='short'))
        leftovers.append(run_task(ended, 'long'))
        leftovers.append(asyncio.create_task(nest(), name='nesting'))

    @kopf.on.startup(registry=registry)
    def sync_startup_fn(memo, **_):
        future = asyncio.run_coroutine_threadsafe(asyncio.sleep(1000), memo.loop)
        leftovers.append(future)

    async def nest():
        leftovers.append(run_task(ended, 'stubborn', delay=4))

    return leftovers, ended


@pytest.mark.guarantee('SHD-009', 'EMB-020')
async def test_tasks_left_by_handlers_are_cancelled_after_some_time_and_awaited(
    start, leftovers, virtual_time, caplog
):
    tasks, ended = leftovers
    task, stop_flag = await start(memo=kopf.Memo(loop=asyncio.get_running_loop()))
    await asyncio.sleep(1)
    before = virtual_time.elapsed
    stop_flag.set()
    await task

    assert virtual_time.elapsed == pytest.approx(before + 5 + 4, abs=1)
    assert ended == ['long', 'stubborn']
    assert all(task.done() for task in tasks)
    assert [
        task.get_name() for task in tasks if isinstance(task, asyncio.Task) and not task.cancelled()
    ] == ['short', 'nesting']
    assert 'long' in caplog.text
    assert 'short' not in caplog.text


@pytest.mark.guarantee('SHD-009')
async def test_tasks_left_by_handlers_that_end_in_time_are_not_cancelled(
    start, registry, virtual_time, caplog
):
    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        left.append(asyncio.create_task(asyncio.sleep(4.9)))

    left = []
    task, stop_flag = await start()
    stop_flag.set()
    await task

    assert [task.cancelled() for task in left] == [False]
    assert 'are left after the operator' not in caplog.text


@pytest.mark.guarantee('SHD-010', 'EMB-020')
async def test_foreign_tasks_are_left_alone(start, run_task, virtual_time):
    ended = []
    older = run_task(ended, 'older')
    task, stop_flag = await start()
    newer = run_task(ended, 'newer')
    before = virtual_time.elapsed
    stop_flag.set()
    await task

    assert not older.done() and not newer.done()
    assert virtual_time.elapsed < before + 5
    for task in [older, newer]:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.guarantee('EMB-014')
async def test_ignored_tasks_are_left_alone(options, registry, run_task, virtual_time):
    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        ignored.append(run_task(ended, 'ignored'))
        started.set()

    ignored, ended, started, stop_flag = [], [], asyncio.Event(), asyncio.Event()
    tasks = await kopf.spawn_tasks(**options, stop_flag=stop_flag)
    await started.wait()
    stop_flag.set()
    await kopf.run_tasks(tasks, ignored=ignored)

    assert not ignored[0].done()
    ignored[0].cancel()
    await asyncio.wait(ignored)


@pytest.mark.guarantee('EMB-021')
async def test_tasks_of_other_operators_are_left_alone(
    start, options, leftovers, registry, run_task
):
    other = kopf.OperatorRegistry()

    @kopf.on.startup(registry=other)
    async def other_startup_fn(**_):
        foreign.append(run_task(ended, 'foreign'))

    foreign, ended = [], []
    one, stop_one = await start(memo=kopf.Memo(loop=asyncio.get_running_loop()))
    options |= {
        'registry': other,
        'vault': vaults.Vault({'x': kopf.ConnectionInfo(server='http://127.0.0.1:1')}),
    }
    two, stop_two = await start()
    stop_one.set()
    await one
    assert not foreign[0].done()

    stop_two.set()
    await two
    assert foreign[0].cancelled()
