"""
Operators in tests: in virtual time, in the event loop of the test, or one function alone.
"""

import asyncio
import datetime
import logging
import pathlib
import re
import signal
import threading
import time

import hypothesis
import pytest
from hypothesis import strategies

import kopf
import kopf.testing
from kopf._kits import loops

CREATING = """
    import kopf

    @kopf.on.create('kopfexamples')
    async def create_fn(retry, **_):
        if retry < 3:
            raise kopf.TemporaryError("Not yet.", delay=1000)
        return 'created'
"""


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
def simulation(restored_process, crd):
    threads = set(threading.enumerate())
    with kopf.testing.Simulation(apply=[crd]) as simulation:
        yield simulation
    assert {thread for thread in threading.enumerate() if thread.name.startswith('kopf')} <= threads


def get_status(body):
    return (body or {}).get('status') or {}


# Virtual time.


async def sleep_together(*delays):
    order = []

    async def sleep(delay):
        await asyncio.sleep(delay)
        order.append(delay)

    since = asyncio.get_running_loop().time()
    await asyncio.gather(*map(sleep, delays))
    return order, round(asyncio.get_running_loop().time() - since, 3)


@pytest.mark.guarantee('NEW-240')
def test_virtual_time_skips_sleeps_in_their_order():
    with asyncio.Runner(loop_factory=loops.VirtualTimeLoop) as runner:
        since = time.monotonic()
        order, elapsed = runner.run(sleep_together(5000, 0.5, 86400, 5000.001))

    assert order == [0.5, 5000, 5000.001, 86400]
    assert elapsed == 86400
    assert time.monotonic() - since < 3600


def test_virtual_time_does_not_go_on_its_own():
    with asyncio.Runner(loop_factory=loops.VirtualTimeLoop) as runner:
        before = runner.get_loop().time()
        runner.run(asyncio.sleep(0))

        assert runner.get_loop().time() == before


def test_virtual_time_does_not_outrun_functions_in_threads():
    async def main():
        is_released = threading.Event()
        thread = asyncio.create_task(asyncio.to_thread(is_released.wait))
        asyncio.get_running_loop().call_later(0.01, is_released.set)
        async with asyncio.timeout(3600):
            await thread
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=loops.VirtualTimeLoop) as runner:
        before = runner.get_loop().time()

        assert runner.run(main()) - before < 3600


# Simulations.


@pytest.mark.guarantee('NEW-240')
def test_operator_is_simulated_for_hours_in_no_time(simulation, write, build_object):
    simulation.run(write('handlers.py', CREATING))
    simulation.create(build_object())
    body = simulation.wait('kopfexamples', 'obj', get_status)

    assert body['status'] == {'create_fn': 'created'}
    assert simulation.elapsed == pytest.approx(3000, abs=30)


@hypothesis.settings(max_examples=10, deadline=None, derandomize=True)
@hypothesis.given(
    delays=strategies.lists(strategies.integers(1, 3_600_000), min_size=1, max_size=3),
    start=strategies.integers(0, 10_000),
)
@hypothesis.example(delays=[30_000, 30_000], start=0)
def test_delays_are_never_shorter_than_asked_whatever_the_real_time_is(delays, start):
    registry, seconds, ends = kopf.OperatorRegistry(), [delay / 1000 for delay in delays], []

    @kopf.on.create('secrets', registry=registry)
    async def create_fn(retry):
        time.sleep(0.005)  # noqa: ASYNC251  # the real time goes on, the virtual one does not
        if retry < len(seconds):
            raise kopf.TemporaryError('Not yet.', delay=seconds[retry])
        ends.append(simulation.elapsed)

    with kopf.testing.Simulation(tls=False) as simulation:
        simulation.run(registry=registry)
        simulation.sleep(start / 1000)
        before = simulation.elapsed
        body = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'obj'}}
        simulation.create(body)
        simulation.wait('secrets', 'obj', lambda _: ends, timeout=12 * 3600)

    assert sum(delays) / 1000 <= ends[0] - before


def test_nothing_happens_unless_waited_for(simulation, registry, build_object):
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, **_):
        calls.append(name)

    simulation.run(registry=registry)
    simulation.create(build_object())
    before = simulation.elapsed
    assert calls == []

    simulation.sleep(10)

    assert calls == ['obj']
    assert simulation.elapsed == pytest.approx(before + 10, abs=1)


def test_times_in_objects_are_virtual(simulation, build_object):
    first = simulation.create(build_object('first'))
    simulation.sleep(3600)
    second = simulation.create(build_object('second'))

    times = [
        datetime.datetime.fromisoformat(body['metadata']['creationTimestamp'])
        for body in (first, second)
    ]
    assert times[1] - times[0] == datetime.timedelta(hours=1)
    assert simulation.now() - times[1] < datetime.timedelta(seconds=60)


def test_sync_handlers_are_simulated_too_and_can_use_the_sandbox(
    simulation, registry, build_object
):
    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(name, retry, **_):
        if not retry:
            raise kopf.TemporaryError('Not yet.', delay=1000)
        simulation.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name}})

    @kopf.on.create('kopfexamples', id='wrong_fn', registry=registry)
    async def wrong_fn(**_):
        try:
            simulation.get('configmaps', 'any')
        except RuntimeError as error:
            return str(error)

    simulation.run(registry=registry)
    simulation.create(build_object())

    assert simulation.wait('configmaps', 'obj', lambda body: body is not None)
    assert simulation.elapsed == pytest.approx(1000, abs=30)
    body = simulation.wait('kopfexamples', 'obj', get_status)
    assert body['status'] == {'wrong_fn': 'The simulation cannot be used from its own event loop.'}


def test_daemons_in_threads_make_the_time_real_but_not_stuck(simulation, registry, build_object):
    stopped_by = []

    @kopf.on.daemon('kopfexamples', registry=registry)
    def daemon_fn(stopped, **_):
        stopped.wait()
        stopped_by.append(stopped.reason)

    simulation.run(registry=registry)
    simulation.create(build_object())
    simulation.wait('kopfexamples', 'obj', lambda body: body['metadata'].get('finalizers'))
    simulation.delete('kopfexamples', 'obj')

    assert simulation.wait('kopfexamples', 'obj', lambda body: body is None, timeout=20) is None
    assert kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped_by[0]


def test_operators_can_be_stopped_and_run_again(simulation, registry, build_object):
    calls = []

    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume_fn(name, **_):
        calls.append(name)

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    simulation.create(build_object())
    for _ in range(2):
        operator = simulation.run(registry=registry)
        simulation.sleep(10)
        operator.stop()
        operator.stop()  # once is enough

    assert calls == ['obj', 'cleanup', 'obj', 'cleanup']


def test_operators_are_stopped_with_the_simulation(registry):
    calls = []

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        calls.append('cleanup')

    with kopf.testing.Simulation() as simulation:
        simulation.run(registry=registry)

    assert calls == ['cleanup']


def test_registries_are_not_taken_for_files(simulation, registry):
    with pytest.raises(TypeError, match=r'given by their paths, not as .+: registry='):
        simulation.run(registry)


def test_handlers_are_of_the_default_registry_if_nothing_is_given(simulation, build_object):
    @kopf.on.create('kopfexamples', id='create_fn')
    async def create_fn(**_):
        return 'seen'

    simulation.run()
    simulation.create(build_object())

    assert simulation.wait('kopfexamples', 'obj', get_status)['status'] == {'create_fn': 'seen'}


def test_handlers_of_files_stay_apart(simulation, write, build_object, registry):
    one = write('one.py', CREATING.replace('create_fn', 'one_fn'))
    two = write('two.py', CREATING.replace('create_fn', 'two_fn'))
    simulation.run(one).stop()
    simulation.run(two, registry=registry)
    simulation.create(build_object())

    assert simulation.wait('kopfexamples', 'obj', get_status)['status'] == {'two_fn': 'created'}
    assert [handler.id for handler in registry._iter_handlers()] == ['two_fn']
    assert list(kopf.get_default_registry()._iter_handlers()) == []


def test_settings_and_namespaces_can_be_given(simulation, registry, build_object):
    kopf.on.delete('kopfexamples', registry=registry)(lambda **_: None)
    settings = kopf.OperatorSettings()
    settings.persistence.finalizer = 'my.example.com/finalizer'
    simulation.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'other'}})
    simulation.run(registry=registry, settings=settings, namespaces=['default'])
    simulation.create(build_object())
    simulation.create({**build_object(), 'metadata': {'name': 'obj', 'namespace': 'other'}})
    simulation.sleep(10)

    assert simulation.get('kopfexamples', 'obj')['metadata']['finalizers'] == [
        'my.example.com/finalizer'
    ]
    assert 'finalizers' not in simulation.get('kopfexamples', 'obj', 'other')['metadata']


def test_failed_startup_is_raised_at_once(simulation, registry):
    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        raise kopf.PermanentError('boo!')

    with pytest.raises(Exception, match='boo!'):
        simulation.run(registry=registry)


def test_failure_of_an_operator_is_raised_where_the_test_waits(simulation, registry):
    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        raise kopf.PermanentError('boo!')

    stop_flag = asyncio.Event()
    simulation.run(registry=registry, stop_flag=stop_flag)
    stop_flag.set()

    with pytest.raises(Exception, match='boo!'):
        simulation.wait('kopfexamples', 'obj', lambda body: body is not None)
    simulation.sleep(1)  # it is raised only once


def test_failure_of_an_operator_is_raised_at_the_end_at_last(registry, build_object):
    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        raise kopf.PermanentError('boo!')

    with pytest.raises(Exception, match='boo!'), kopf.testing.Simulation() as simulation:
        simulation.run(registry=registry)


def test_vain_waits_end(simulation):
    with pytest.raises(TimeoutError, match='after 3600 seconds'):
        simulation.wait('kopfexamples', 'obj', lambda body: body is not None)

    assert simulation.elapsed == pytest.approx(3600)


@pytest.fixture
def interruptible():
    """Interrupts work as usual, even if the tests run in the background, where they are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures('interruptible')
def test_waits_can_be_interrupted(simulation, registry, build_object):
    begun, ended = threading.Event(), threading.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        # While threads work, the time is real: it does not jump to the timeout.
        await asyncio.to_thread(begun.wait, 10)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.to_thread(ended.wait, 10)

    simulation.run(registry=registry)
    simulation.create(build_object())
    with pytest.raises(KeyboardInterrupt):
        begun.set()
        simulation.wait('configmaps', 'absent', lambda body: body is not None, timeout=1_000_000)
    ended.set()

    assert simulation.get('kopfexamples', 'obj')
    simulation.sleep(1)


def test_simulation_works_only_as_a_context_manager():
    simulation = kopf.testing.Simulation()
    assert simulation.elapsed == 0
    with pytest.raises(RuntimeError, match='not running'):
        simulation.sleep(1)

    for _ in range(2):
        with simulation:
            simulation.sleep(1)
            assert simulation.elapsed == 1

    with pytest.raises(RuntimeError, match='not running'):
        simulation.run()


# In coroutines.


async def test_operator_runs_in_the_loop_of_the_test(virtual_time, write, crd, build_object):
    path = write('handlers.py', CREATING)
    async with (
        kopf.testing.Sandbox(tls=False, apply=[crd]) as sandbox,
        kopf.testing.Operator(sandbox, path),
    ):
        await sandbox.create(build_object())
        body = await sandbox.wait('kopfexamples', 'obj', get_status, timeout=3600)

    assert body['status'] == {'create_fn': 'created'}
    assert virtual_time.elapsed == pytest.approx(3000, abs=30)


async def test_errors_of_the_operator_are_raised_after_the_block(virtual_time, registry):
    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        raise kopf.PermanentError('boo!')

    async with kopf.testing.Sandbox(tls=False) as sandbox:
        with pytest.raises(Exception, match='boo!'):
            async with kopf.testing.Operator(sandbox, registry=registry):
                pass
        with pytest.raises(ZeroDivisionError) as caught:
            async with kopf.testing.Operator(sandbox, registry=registry):
                raise ZeroDivisionError

    assert 'Also, the operator has failed' in caught.value.__notes__[0]


async def test_operator_can_be_interrupted_while_starting(virtual_time, registry):
    calls = []

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        try:
            await asyncio.Event().wait()
        finally:
            calls.append('interrupted')

    async with kopf.testing.Sandbox(tls=False) as sandbox:
        operator = kopf.testing.Operator(sandbox, registry=registry)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await operator.start()

    assert calls == ['interrupted']
    assert operator.task.done()


# One function alone.


def test_function_gets_all_arguments_of_proper_types():
    def fn(**kwargs):
        return kwargs

    kwargs = kopf.testing.call(
        fn, spec={'field': 'value'}, labels={'a': 'b'}, name='obj', status={'x': 1}
    )

    expected = {
        'body': kopf.Body,
        'spec': kopf.Spec,
        'status': kopf.Status,
        'meta': kopf.Meta,
        'patch': kopf.Patch,
        'memo': kopf.Memo,
        'logger': kopf.ObjectLogger,
        'resource': kopf.Resource,
        'diff': kopf.Diff,
        'reason': kopf.Reason,
        'retry': int,
        'started': datetime.datetime,
        'runtime': datetime.timedelta,
        'name': str,
        'namespace': str,
        'uid': str,
    }
    assert {name: cls for name, cls in expected.items() if not isinstance(kwargs[name], cls)} == {}
    assert kwargs['spec'] == {'field': 'value'}
    assert (
        kwargs['labels']
        == kwargs['meta']['labels']
        == kwargs['body']['metadata']['labels']
        == {'a': 'b'}
    )
    assert kwargs['name'] == kwargs['body'].metadata.name == 'obj'
    assert kwargs['status'] == {'x': 1}
    assert (kwargs['retry'], kwargs['reason'], kwargs['old'], kwargs['param']) == (
        0,
        'create',
        None,
        None,
    )
    assert kwargs['new']['spec'] == {'field': 'value'}
    assert kwargs['diff'][0][0] == 'add'


@pytest.mark.parametrize(
    'decorator, expected, absent',
    [
        pytest.param(
            kopf.on.event, {'type': 'ADDED'}, {'reason', 'diff', 'stopped', 'settings'}, id='event'
        ),
        pytest.param(
            kopf.on.create,
            {'reason': 'create', 'old': None},
            {'type', 'stopped', 'dryrun'},
            id='create',
        ),
        pytest.param(
            kopf.on.update, {'reason': 'update'}, {'type', 'stopped', 'dryrun'}, id='update'
        ),
        pytest.param(
            kopf.on.delete, {'reason': 'delete'}, {'type', 'stopped', 'dryrun'}, id='delete'
        ),
        pytest.param(
            kopf.on.resume, {'reason': 'resume'}, {'type', 'stopped', 'dryrun'}, id='resume'
        ),
        pytest.param(
            kopf.on.daemon, {'name': 'example'}, {'type', 'reason', 'diff', 'dryrun'}, id='daemon'
        ),
        pytest.param(
            kopf.index, {'name': 'example'}, {'type', 'reason', 'stopped', 'dryrun'}, id='index'
        ),
        pytest.param(
            kopf.on.validate,
            {'operation': 'CREATE', 'warnings': []},
            {'type', 'reason', 'stopped'},
            id='validate',
        ),
        pytest.param(
            kopf.on.startup,
            {'activity': 'startup'},
            {'body', 'patch', 'resource', 'name'},
            id='startup',
        ),
        pytest.param(
            kopf.on.cleanup,
            {'activity': 'cleanup'},
            {'body', 'patch', 'resource', 'name'},
            id='cleanup',
        ),
    ],
)
def test_declared_functions_get_only_what_such_handlers_get(registry, decorator, expected, absent):
    args = [] if decorator in (kopf.on.startup, kopf.on.cleanup) else ['kopfexamples']

    @decorator(*args, registry=registry)
    def fn(**kwargs):
        return kwargs

    kwargs = kopf.testing.call(fn, registry=registry)

    assert {name: kwargs[name] for name in expected} == expected
    assert not absent & kwargs.keys()


@pytest.mark.parametrize(
    'given', [{'speck': {}}, {'event': {}}, {'stopped': True}, {'dryrun': True}]
)
def test_arguments_of_other_handlers_are_refused(registry, given):
    @kopf.on.create('kopfexamples', registry=registry)
    def fn(**_):
        pass

    with pytest.raises(TypeError, match=f'no arguments named {next(iter(given))}'):
        kopf.testing.call(fn, registry=registry, **given)


@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param(
            {'event': {'type': 'DELETED', 'object': {'metadata': {'name': 'x'}}}},
            {'type': 'DELETED', 'name': 'x'},
            id='event',
        ),
        pytest.param(
            {'type': 'MODIFIED', 'name': 'x'}, {'type': 'MODIFIED', 'name': 'x'}, id='type'
        ),
        pytest.param({'stopped': True}, {'name': 'example'}, id='stopped'),
        pytest.param(
            {'dryrun': True, 'old': {}}, {'dryrun': True, 'operation': 'UPDATE'}, id='dryrun'
        ),
        pytest.param({'activity': 'probe'}, {'activity': 'probe'}, id='activity'),
    ],
)
def test_undeclared_functions_are_of_the_kind_that_has_the_given_arguments(given, expected):
    kwargs = kopf.testing.call(lambda **kwargs: kwargs, **given)

    assert {name: kwargs[name] for name in expected} == expected


def test_functions_of_several_kinds_are_called_as_the_arguments_say(registry):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.timer('kopfexamples', registry=registry, interval=1)
    def fn(**kwargs):
        return 'stopped' in kwargs

    assert not kopf.testing.call(fn, registry=registry, reason='update')
    assert kopf.testing.call(fn, registry=registry, stopped=False)


def test_missing_parameters_are_errors_as_in_operators(registry):
    @kopf.on.event('kopfexamples', registry=registry)
    def fn(diff, **_):
        pass

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'diff'"):
        kopf.testing.call(fn, registry=registry)


def test_past_and_present_are_compared(registry):
    @kopf.on.update('kopfexamples', registry=registry)
    def fn(old, new, diff, reason, **_):
        return old, new, diff, reason

    result = kopf.testing.call(
        fn, registry=registry, old={'spec': {'x': 1}}, new={'spec': {'x': 2}}
    )

    assert result == (
        {'spec': {'x': 1}},
        {'spec': {'x': 2}},
        (('change', ('spec', 'x'), 1, 2),),
        'update',
    )


def test_fields_are_compared_alone(registry):
    @kopf.on.field('kopfexamples', registry=registry, field='spec.x')
    def fn(old, new, diff, **_):
        return old, new, diff

    assert kopf.testing.call(fn, registry=registry, spec={'x': 2}) == (
        None,
        2,
        (('add', (), None, 2),),
    )
    assert kopf.testing.call(fn, registry=registry, old=1, new=2) == (1, 2, (('change', (), 1, 2),))


def test_body_is_taken_as_it_is_and_is_not_changed():
    body = {'metadata': {'name': 'x'}, 'spec': {'list': [1]}}

    def fn(body, name, namespace, uid, spec, **_):
        body['spec']['list'].append(2)
        return name, namespace, uid, spec['list']

    assert kopf.testing.call(fn, body=body) == ('x', None, None, [1, 2])
    assert body == {'metadata': {'name': 'x'}, 'spec': {'list': [1]}}


def test_patches_can_be_seen():
    def fn(patch, **_):
        patch.status['x'] = 1

    patch = kopf.Patch()
    kopf.testing.call(fn, patch=patch)

    assert patch == {'status': {'x': 1}}
    with pytest.raises(TypeError, match=r'must be kopf\.Patch, not dict'):
        kopf.testing.call(fn, patch={})


def test_attempts_can_be_made_up():
    def fn(retry, runtime, started, param, **_):
        return retry, runtime, started, param

    runtime, started = (
        datetime.timedelta(hours=1),
        datetime.datetime(2020, 12, 31, tzinfo=datetime.UTC),
    )

    assert kopf.testing.call(fn, retry=5, runtime=runtime, started=started, param='x') == (
        5,
        runtime,
        started,
        'x',
    )
    assert kopf.testing.call(fn)[1] == datetime.timedelta(0)


def test_indices_are_as_in_operators():
    def fn(my_index: kopf.Index, other: kopf.Index, **_):
        return (
            isinstance(my_index, kopf.Index),
            {key: sorted(store) for key, store in my_index.items()},
            dict(other),
        )

    result = kopf.testing.call(fn, indices={'my_index': {'a': [1, 2], 'b': 3}, 'other': {}})

    assert result == (True, {'a': [1, 2], 'b': [3]}, {})


@pytest.mark.parametrize(
    'given, expected', [({}, False), ({'stopped': True}, True), ({'stopped': False}, False)]
)
async def test_stop_flags_suit_the_functions(registry, given, expected):
    @kopf.daemon('kopfexamples', registry=registry)
    async def async_fn(stopped, **_):
        return (
            bool(stopped),
            isinstance(stopped, kopf.AsyncDaemonStopperChecker),
            bool(await stopped.wait(0)),
        )

    @kopf.daemon('kopfexamples', registry=registry)
    def sync_fn(stopped, **_):
        return (
            bool(stopped),
            isinstance(stopped, kopf.SyncDaemonStopperChecker),
            bool(stopped.wait(0)),
        )

    assert await kopf.testing.call(async_fn, registry=registry, **given) == (
        expected,
        True,
        expected,
    )
    assert kopf.testing.call(sync_fn, registry=registry, **given) == (expected, True, expected)


@pytest.mark.guarantee('HIE-005')
async def test_hierarchies_and_events_work_there(caplog):
    caplog.set_level(logging.INFO)

    def adopt(body):
        child = {}
        kopf.adopt(child)
        kopf.info(body, reason='Adopted', message='A child is adopted.')
        return child['metadata']['ownerReferences'][0]['uid']

    async def async_fn(body, **_):
        return adopt(body)

    def sync_fn(body, **_):
        return adopt(body)

    assert await kopf.testing.call(async_fn, uid='uid1') == 'uid1'
    assert kopf.testing.call(sync_fn, uid='uid1') == 'uid1'
    assert caplog.messages == ['K8s-event of example: Normal, Adopted: A child is adopted.'] * 2
    with pytest.raises(LookupError):
        kopf.adopt({})


def test_errors_of_functions_are_raised():
    def fn(**_):
        raise kopf.TemporaryError('Not yet.')

    with pytest.raises(kopf.TemporaryError, match='Not yet'):
        kopf.testing.call(fn)


# The module.


@pytest.mark.parametrize('name', kopf.testing.__all__)
def test_public_names_exist(name):
    assert getattr(kopf.testing, name).__doc__
    assert name in dir(kopf.testing)


# The plugin and the documentation.

ROOT = pathlib.Path(kopf.__file__).parent.parent


@pytest.fixture
def run_tests(pytester, monkeypatch):
    """Run tests with the plugin, whether it is installed as an entry point or not."""
    monkeypatch.setenv('PYTHONPATH', str(ROOT))

    def run(**modules):
        pytester.makeini(
            '[pytest]\naddopts = --strict-markers\nasyncio_default_fixture_loop_scope = function'
        )
        pytester.makeconftest('from kopf._kits.pytest_plugin import *  # noqa: F403')
        pytester.makepyfile(**modules)
        return pytester.runpytest_subprocess()

    return run


def test_plugin_gives_a_simulation_per_test(run_tests):
    result = run_tests(
        test_sample="""
        import pytest
        config = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'cm'}}

        @pytest.mark.parametrize('attempt', [1, 2])
        def test_creation(kopf_simulation, attempt):
            kopf_simulation.create(config)
            kopf_simulation.sleep(1000)
            assert kopf_simulation.elapsed == 1000

        @pytest.mark.kopf_sandbox(apply=[config])
        def test_options(kopf_simulation):
            assert kopf_simulation.get('cm', 'cm')
    """
    )

    result.assert_outcomes(passed=3)


@pytest.mark.slow
def test_snippets_of_the_docs_run(run_tests, pytester):
    text = (ROOT / 'docs/testing.md').read_text()
    snippets = re.findall(r'^```(?:python|yaml)\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)
    modules = {}
    for index, snippet in enumerate(snippets):
        named = re.match(r'# (\S+)\n', snippet)
        if named:
            pytester.path.joinpath(named[1]).write_text(snippet)
        else:
            modules[f'test_snippet_{index}'] = snippet

    result = run_tests(**modules)

    result.assert_outcomes(passed=sum(snippet.count('def test_') for snippet in modules.values()))
    assert len(modules) == 6
