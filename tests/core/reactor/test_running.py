"""
Running: the options of operators, the ways to run them, and what is left after them.
"""

import asyncio
import concurrent.futures
import contextlib
import inspect
import re
import threading
import warnings

import pytest
import uvloop

import kopf

OPTIONS = {
    'lifecycle': None,
    'indexers': None,
    'registry': None,
    'settings': None,
    'memories': None,
    'insights': None,
    'identity': None,
    'standalone': None,
    'priority': None,
    'peering_name': None,
    'leader_elect': None,
    'leader_elect_namespace': None,
    'liveness_endpoint': None,
    'clusterwide': False,
    'namespaces': (),
    'namespace': None,
    'stop_flag': None,
    'ready_flag': None,
    'vault': None,
    'memo': None,
    '_command': None,
}


def run_in_thread(fn, *args, **kwargs):
    """Call the function in a thread where no event loop was ever made."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=1) as executor:
        return executor.submit(fn, *args, **kwargs).result(timeout=60)


@contextlib.contextmanager
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        yield


# Options.


@pytest.mark.guarantee('EMB-001')
@pytest.mark.parametrize(
    'fn, extra',
    [
        pytest.param(kopf.run, {'loop': None}, id='run'),
        pytest.param(kopf.operator, {}, id='operator'),
        pytest.param(kopf.spawn_tasks, {}, id='spawn_tasks'),
    ],
)
def test_signatures_have_all_options(fn, extra):
    parameters = inspect.signature(fn).parameters

    assert {name: parameter.default for name, parameter in parameters.items()} == OPTIONS | extra
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.guarantee('EMB-012')
def test_signature_of_the_orchestration_of_tasks():
    parameters = inspect.signature(kopf.run_tasks).parameters

    assert list(parameters) == ['root_tasks', 'ignored']
    assert parameters['ignored'].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters['ignored'].default == frozenset()


@pytest.fixture(params=[kopf.operator, kopf.spawn_tasks, kopf.run], ids=lambda fn: fn.__name__)
def call(request):
    """Call each of the functions that take options, and see what is raised at once."""

    def call(**options):
        if request.param is kopf.run:
            return run_in_thread(kopf.run, **options)
        return run_in_thread(lambda: asyncio.run(request.param(**options)))

    return call


@pytest.mark.guarantee('NEW-236')
@pytest.mark.parametrize(
    'options, text',
    [
        pytest.param(
            {'clusterwide': True, 'namespaces': ['a']}, 'not both', id='clusterwide-and-namespaces'
        ),
        pytest.param(
            {'namespaces': ['a'], 'namespace': 'b'}, 'not both', id='namespaces-and-namespace'
        ),
        pytest.param(
            {'clusterwide': True, 'namespace': 'b'}, 'not both', id='clusterwide-and-namespace'
        ),
        pytest.param({'namespaces': 'abc'}, 'Put it in a list', id='namespaces-as-a-string'),
        pytest.param({'clusterwide': True, 'stop_flag': True}, 'flag', id='stop-flag'),
        pytest.param({'clusterwide': True, 'ready_flag': 'yes'}, 'flag', id='ready-flag'),
        pytest.param(
            {'clusterwide': True, 'nonsense': 1, 'absurd': 2}, 'absurd, nonsense', id='unknown'
        ),
    ],
)
@pytest.mark.filterwarnings('ignore:namespace= is deprecated')
def test_contradicting_options_are_errors(call, options, text):
    with pytest.raises(TypeError, match=text):
        call(**options)


@pytest.fixture
async def spawn(options):
    """Spawn operators with no tasks left after the test."""
    spawned = []

    async def spawn(**others):
        kwargs = {key: value for key, value in options.items() if key != 'clusterwide'}
        tasks = await kopf.spawn_tasks(**kwargs, **others)
        spawned.extend(tasks)
        return tasks

    yield spawn
    for task in spawned:
        task.cancel()
    if spawned:
        await asyncio.wait(spawned)


@pytest.mark.guarantee('NEW-236')
async def test_absence_of_any_scope_is_warned_of_and_means_the_whole_cluster(spawn):
    settings = kopf.OperatorSettings()

    with pytest.warns(FutureWarning, match='the whole cluster is served'):
        await spawn(settings=settings)

    assert settings.peering.clusterwide


@pytest.mark.guarantee('NEW-016')
async def test_single_namespace_is_deprecated_but_works(spawn):
    settings = kopf.OperatorSettings()

    with pytest.warns(DeprecationWarning, match='namespaces='):
        await spawn(namespace='a', settings=settings)

    assert not settings.peering.clusterwide


@pytest.mark.guarantee('EMB-002', 'NEW-219')
@pytest.mark.parametrize(
    'scope, expected',
    [
        pytest.param({'clusterwide': True}, True, id='clusterwide'),
        pytest.param({'namespaces': ['a', 'b-*']}, False, id='list'),
        pytest.param({'namespaces': {'a'}}, False, id='set'),
        pytest.param({'namespaces': (re.compile('a|b'),)}, False, id='compiled'),
    ],
)
async def test_scopes_are_accepted_with_no_warnings(spawn, scope, expected):
    settings = kopf.OperatorSettings()

    with no_warnings():
        await spawn(**scope, settings=settings)

    assert settings.peering.clusterwide is expected
    assert settings.peering.namespaced is not expected


async def test_options_of_peering_are_put_into_the_settings(spawn):
    settings = kopf.OperatorSettings()

    await spawn(
        clusterwide=True, settings=settings, standalone=True, priority=5, peering_name='example'
    )

    assert (settings.peering.standalone, settings.peering.priority, settings.peering.name) == (
        True,
        5,
        'example',
    )


async def test_settings_of_peering_stay_if_there_are_no_options(spawn):
    settings = kopf.OperatorSettings()
    settings.peering.priority = 5

    await spawn(clusterwide=True, settings=settings, priority=None)

    assert settings.peering.priority == 5


@pytest.mark.guarantee('EMB-007', 'EMB-024')
async def test_handlers_of_the_default_registry_are_used_if_no_registry_is_given(
    options, registry, activities
):
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
    before = kopf.get_default_registry()
    kopf.set_default_registry(registry)
    try:
        del options['registry']
        task = asyncio.create_task(
            kopf.operator(**options, stop_flag=stop_flag, ready_flag=ready_flag)
        )
        await asyncio.wait_for(ready_flag.wait(), timeout=60)
    finally:
        kopf.set_default_registry(before)
    stop_flag.set()
    await task

    assert activities == ['startup', 'cleanup']


# Ways to run.


@pytest.mark.guarantee('EMB-009', 'EMB-010')
def test_operator_runs_in_the_given_loop_and_leaves_it_open(options, registry, activities):
    @kopf.on.startup(registry=registry)
    async def remember_fn(**_):
        loops.append(asyncio.get_running_loop())
        stop_flag.set()

    def run():
        loop = asyncio.new_event_loop()
        try:
            result = kopf.run(**options, stop_flag=stop_flag, loop=loop)
            return result, loop, loop.is_closed()
        finally:
            loop.close()

    loops, stop_flag = [], threading.Event()
    result, loop, is_closed = run_in_thread(run)

    assert result is None
    assert loops == [loop]
    assert not is_closed


@pytest.mark.guarantee('EMB-009', 'EMB-010')
def test_operator_runs_in_the_loop_of_the_thread_and_leaves_it_open(options, registry):
    @kopf.on.startup(registry=registry)
    async def remember_fn(**_):
        loops.append(asyncio.get_running_loop())
        stop_flag.set()

    def run():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            kopf.run(**options, stop_flag=stop_flag)
            return loop, loop.is_closed()
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    loops, stop_flag = [], threading.Event()
    loop, is_closed = run_in_thread(run)

    assert loops == [loop]
    assert not is_closed


@pytest.mark.guarantee('EMB-009', 'WLD-007')
def test_operator_runs_in_a_loop_of_its_own_if_the_thread_has_none(options, registry):
    @kopf.on.startup(registry=registry)
    async def remember_fn(**_):
        loops.append(asyncio.get_running_loop())
        stop_flag.set()

    loops, stop_flag = [], threading.Event()
    with no_warnings():
        result = run_in_thread(kopf.run, **options, stop_flag=stop_flag)

    assert result is None
    assert [loop.is_closed() for loop in loops] == [True]


@pytest.mark.guarantee('EMB-018', 'NEW-235')
@pytest.mark.parametrize('way', ['argument', 'thread', 'policy'])
def test_operator_runs_in_any_loop_of_those_who_run_it(options, registry, way):
    @kopf.on.startup(registry=registry)
    async def remember_fn(**_):
        modules.append(type(asyncio.get_running_loop()).__module__)
        stop_flag.set()

    def run():
        with contextlib.closing(uvloop.new_event_loop()) as loop:
            if way == 'thread':
                asyncio.set_event_loop(loop)
            kopf.run(
                **options, stop_flag=stop_flag, **({'loop': loop} if way == 'argument' else {})
            )

    modules, stop_flag = [], threading.Event()
    with warnings.catch_warnings(
        action='ignore', category=DeprecationWarning
    ):  # policies go, but are still there
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy() if way == 'policy' else None)
        try:
            run_in_thread(run)
        finally:
            asyncio.set_event_loop_policy(None)

    assert modules == ['uvloop']


@pytest.mark.guarantee('EMB-019', 'NEW-235')
def test_fast_loops_are_not_used_if_they_are_not_asked_for(options, registry):
    @kopf.on.startup(registry=registry)
    async def remember_fn(**_):
        modules.append(type(asyncio.get_running_loop()).__module__.partition('.')[0])
        stop_flag.set()

    modules, stop_flag = [], threading.Event()
    run_in_thread(kopf.run, **options, stop_flag=stop_flag)

    assert uvloop.__version__  # it is installed
    assert modules == ['asyncio']


@pytest.mark.guarantee('EMB-008', 'EMB-010', 'WLD-007')
def test_operator_can_be_awaited_in_another_thread(options, activities):
    async def main():
        stop_flag = asyncio.Event()
        stop_flag.set()
        return await kopf.operator(**options, stop_flag=stop_flag)

    with no_warnings():
        assert run_in_thread(lambda: asyncio.run(main())) is None


def test_operator_that_is_cancelled_from_the_inside_just_ends(options, registry):
    @kopf.on.startup(registry=registry)
    async def cancel_fn(**_):
        (task,) = [task for task in asyncio.all_tasks() if task.get_coro().__name__ == 'operator']
        task.cancel()

    assert run_in_thread(kopf.run, **options) is None


@pytest.mark.guarantee('EMB-003', 'EMB-004', 'EMB-005', 'SHD-004')
@pytest.mark.parametrize(
    'make', [threading.Event, concurrent.futures.Future], ids=['event', 'future']
)
def test_operator_is_controlled_from_another_thread(options, activities, make):
    def wait(flag):
        assert flag.wait(60) if isinstance(flag, threading.Event) else flag.result(60) is None

    def set(flag):
        flag.set() if isinstance(flag, threading.Event) else flag.set_result(None)

    stop_flag, ready_flag = make(), make()
    with concurrent.futures.ThreadPoolExecutor() as executor:
        running = executor.submit(kopf.run, **options, stop_flag=stop_flag, ready_flag=ready_flag)
        wait(ready_flag)
        assert activities == ['startup']
        set(stop_flag)

        assert running.result(60) is None

    assert activities == ['startup', 'cleanup']


@pytest.mark.guarantee('EMB-003', 'EMB-005', 'SHD-004')
@pytest.mark.parametrize(
    'make',
    [
        pytest.param(asyncio.Event, id='event'),
        pytest.param(lambda: asyncio.get_running_loop().create_future(), id='future'),
    ],
)
async def test_operator_is_controlled_in_the_same_loop(options, activities, make):
    stop_flag, ready_flag = make(), make()
    task = asyncio.create_task(kopf.operator(**options, stop_flag=stop_flag, ready_flag=ready_flag))
    await (ready_flag.wait() if isinstance(ready_flag, asyncio.Event) else ready_flag)
    assert activities == ['startup']
    stop_flag.set() if isinstance(stop_flag, asyncio.Event) else stop_flag.set_result(None)

    assert await asyncio.wait_for(task, timeout=60) is None
    assert activities == ['startup', 'cleanup']


async def test_operator_is_not_ready_before_the_startup_is_over(options, registry, virtual_time):
    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        await asyncio.sleep(1000)

    ready_flag = asyncio.Event()
    task = asyncio.create_task(kopf.operator(**options, ready_flag=ready_flag))
    await asyncio.sleep(999)
    assert not ready_flag.is_set()
    await asyncio.wait_for(ready_flag.wait(), timeout=60)
    task.cancel()
    await asyncio.wait([task])

    assert virtual_time.elapsed >= 1000
