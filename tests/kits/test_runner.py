"""
Operators in the background of tests, run as if from the command line.
"""

import asyncio
import inspect
import io
import logging
import os
import sys
import threading
import time

import pytest

import kopf
import kopf.testing
from kopf import cli
from kopf.testing import KopfRunner

CREATING = """
    import kopf

    @kopf.on.create('kopfexamples')
    def create_fn(namespace, name, logger, **_):
        print(f'CREATED {namespace}/{name}')
        logger.info("It is logged.")
        print('AGAIN')
"""


@pytest.fixture(autouse=True)
def threads(restored_process):
    """All threads of runners end with the runners."""
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name == 'kopf-runner'] == []


def is_handled(body):
    return body is not None and 'kopf.zalando.org/last-handled-configuration' in body[
        'metadata'
    ].get('annotations', {})


@pytest.mark.guarantee('TST-001', 'TST-002', 'TST-009')
def test_runner_has_the_promised_parameters():
    parameters = inspect.signature(KopfRunner).parameters

    assert {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.kind in (inspect.Parameter.KEYWORD_ONLY,)
    } == {'reraise': True, 'timeout': None, 'registry': None, 'settings': None}
    assert [parameter.kind for parameter in parameters.values()][::5] == [
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ]


@pytest.mark.guarantee('TST-003', 'TST-005', 'TST-006', 'TST-007', 'TST-011')
def test_operator_runs_while_the_block_is_executed(sandbox, env, write, build_object):
    with KopfRunner(
        ['run', '--namespace=default', write('handlers.py', CREATING)], env=env, timeout=20
    ) as runner:
        sandbox.create(build_object())
        sandbox.wait('kopfexamples', 'obj', is_handled)
        assert not runner.future.done()

    assert runner.exit_code == 0
    assert runner.exception is None
    assert runner.exc_info[1].code == 0
    assert runner.future.result().exit_code == 0
    assert 'CREATED default/obj' in runner.output
    assert runner.stdout == runner.stdout_bytes.decode() == 'CREATED default/obj\nAGAIN\n'
    assert runner.stderr == runner.stderr_bytes.decode()
    assert "Handler 'create_fn' succeeded." in runner.stderr


@pytest.mark.guarantee('TST-008', 'NEW-238')
def test_prints_and_logs_are_in_the_order_of_their_appearance(sandbox, env, write, build_object):
    args = ['run', '-A', '--log-format=plain', write('handlers.py', CREATING)]
    with KopfRunner(args, env=env, timeout=20) as runner:
        sandbox.create(build_object())
        sandbox.wait('kopfexamples', 'obj', is_handled)

    lines = runner.output.splitlines()
    start = lines.index('CREATED default/obj')
    assert lines[start : start + 4] == [
        'CREATED default/obj',
        '[default/obj] It is logged.',
        'AGAIN',
        "[default/obj] Handler 'create_fn' succeeded.",
    ]
    assert 'It is logged' not in runner.stdout
    assert 'AGAIN' not in runner.stderr


@pytest.mark.guarantee('TST-004')
def test_operator_is_in_a_thread_of_this_process(sandbox, env, write):
    path = write(
        'handlers.py',
        """
        import os, sys, threading, kopf

        @kopf.on.startup()
        async def startup_fn(**_):
            sys.seen = (os.getpid(), threading.current_thread())
    """,
    )
    try:
        with KopfRunner(['run', '-A', path], env=env, timeout=20):
            pid, thread = sys.seen
    finally:
        del sys.seen

    assert pid == os.getpid()
    assert thread not in (threading.main_thread(), threading.current_thread())
    assert not thread.is_alive()


@pytest.mark.guarantee('TST-002')
def test_arguments_are_those_of_click(write):
    path = write(
        'handlers.py',
        """
        import os, sys
        print(sys.stdin.read(), os.environ['SAMPLE'])
        sys.exit(12)
    """,
    )

    with KopfRunner(
        f'run -A {path}', io.BytesIO(b'typed'), {'SAMPLE': 'x'}, reraise=False
    ) as runner:
        pass

    assert (runner.stdout, runner.exit_code) == ('typed x\n', 12)
    assert 'SAMPLE' not in os.environ


@pytest.mark.guarantee('TST-010')
def test_given_registry_and_settings_are_used(sandbox, env, write, build_object):
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    settings.persistence.finalizer = 'my.example.com/finalizer'

    @kopf.on.delete('kopfexamples', registry=registry)
    def delete_fn(**_):
        pass

    @kopf.on.create('kopfexamples', id='unwanted_fn')
    def unwanted_fn(**_):
        raise AssertionError('This must not be called.')

    with KopfRunner(
        ['run', '-A', write('handlers.py', CREATING)],
        env=env,
        timeout=20,
        registry=registry,
        settings=settings,
    ) as runner:
        sandbox.create(build_object())
        body = sandbox.wait('kopfexamples', 'obj', is_handled)

    assert body['metadata']['finalizers'] == ['my.example.com/finalizer']
    assert 'CREATED default/obj' in runner.output
    assert 'unwanted_fn' not in runner.output


def test_handlers_of_this_process_are_used_by_default(sandbox, env, build_object):
    @kopf.on.create('kopfexamples')
    def create_fn(patch, **_):
        patch.status['seen'] = True

    with KopfRunner(['run', '-A'], env=env, timeout=20):
        sandbox.create(build_object())

        assert sandbox.wait('kopfexamples', 'obj', lambda body: 'seen' in body.get('status', {}))


@pytest.mark.guarantee('TST-011')
def test_other_credentials_can_be_given_in_the_controls(sandbox, write, build_object):
    from kopf._cogs.structs import vaults

    vault = vaults.Vault({'sandbox': kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token)})

    with KopfRunner(
        ['run', '-A', write('handlers.py', CREATING)], obj=cli.CLIControls(vault=vault), timeout=20
    ):
        sandbox.create(build_object())
        sandbox.wait('kopfexamples', 'obj', is_handled)


# Failures.

FAILING = """
    import kopf

    @kopf.on.startup()
    def startup_fn(**_):
        raise kopf.PermanentError("boo!")
"""


@pytest.mark.guarantee('TST-006', 'TST-009')
def test_errors_of_the_operator_are_raised_after_the_block(write):
    is_entered = False

    with (
        pytest.raises(Exception, match="'startup_fn': boo!") as caught,
        KopfRunner(['run', '-A', write('handlers.py', FAILING)]) as runner,
    ):
        is_entered = True

    assert is_entered
    assert runner.exception is caught.value
    assert runner.exit_code == 1
    assert "'startup_fn': boo!" in runner.stderr


@pytest.mark.guarantee('FND-026', 'TST-006', 'TST-009')
@pytest.mark.parametrize(
    'args, error',
    [
        pytest.param(['absent.py'], FileNotFoundError, id='absent'),
        pytest.param(['-m', 'absent_operator'], ModuleNotFoundError, id='absent-module'),
        pytest.param(['-m', 'not/a/name'], ModuleNotFoundError, id='not-a-module'),
        pytest.param(['.'], ImportError, id='directory'),
        pytest.param(['notes.txt'], ImportError, id='text'),
        pytest.param(['broken.py'], SyntaxError, id='broken'),
        pytest.param(['importing.py'], ImportError, id='importing'),
        pytest.param(['failing.py'], ZeroDivisionError, id='failing'),
        pytest.param(['-m', 'failing'], ZeroDivisionError, id='failing-module'),
    ],
)
def test_errors_of_loading_are_raised_as_they_are(write, args, error):
    write('notes.txt', '')
    write('broken.py', 'x = (')
    write('importing.py', 'import absent_dependency')
    write('failing.py', '1 / 0')

    with pytest.raises(error) as caught, KopfRunner(['run', '-A', *args]) as runner:
        pass

    assert runner.exception is caught.value
    assert runner.exc_info[:2] == (caught.type, caught.value)
    assert runner.future.result().exception is caught.value
    assert runner.exit_code == 1
    assert runner.stderr != ''


@pytest.mark.guarantee('FND-026')
def test_absent_files_are_named_by_the_error(write):
    with KopfRunner(['run', '-A', 'absent.py'], reraise=False) as runner:
        pass

    assert runner.exception.filename == os.path.abspath('absent.py')


@pytest.mark.parametrize(
    'args',
    [['run', '--unknown'], ['run', '-A', '--namespace=ns'], ['run', '-A', '--liveness=ftp://x']],
)
def test_mistakes_in_the_command_are_exits(args):
    with KopfRunner(args, reraise=False) as runner:
        pass

    assert isinstance(runner.exception, SystemExit)
    assert runner.exit_code == 2


def test_exits_of_the_file_are_exits(write):
    path = write(
        'exiting.py',
        """
        try:
            1 / 0
        except ZeroDivisionError:
            raise SystemExit(12)
    """,
    )

    with KopfRunner(['run', '-A', path], reraise=False) as runner:
        pass

    assert isinstance(runner.exception, SystemExit)
    assert runner.exit_code == 12


def test_unexpected_errors_are_raised_as_they_are(write):
    broken = cli.CLIControls(loop='not a loop')

    with (
        pytest.raises(AttributeError),
        KopfRunner(['run', '-A', write('handlers.py', '')], obj=broken),
    ):
        pass


@pytest.mark.guarantee('TST-009')
def test_errors_of_the_operator_are_only_known_if_they_are_not_to_be_raised(write):
    with KopfRunner(['run', '-A', write('handlers.py', FAILING)], reraise=False) as runner:
        pass

    assert "'startup_fn': boo!" in str(runner.exception)
    assert runner.exc_info[1] is runner.exception


def test_error_of_the_block_is_more_important_than_of_the_operator(write):
    with (
        pytest.raises(ZeroDivisionError) as caught,
        KopfRunner(['run', '-A', write('handlers.py', FAILING)]) as runner,
    ):
        raise ZeroDivisionError

    assert runner.exit_code == 1
    [note] = caught.value.__notes__
    assert note.startswith('Also, the operator has failed: ')
    assert "'startup_fn': boo!" in note


def test_operator_is_stopped_if_the_block_fails(env, write):
    with (
        pytest.raises(ZeroDivisionError),
        KopfRunner(['run', '-A', write('handlers.py', CREATING)], env=env, timeout=20) as runner,
    ):
        raise ZeroDivisionError

    assert runner.exit_code == 0


@pytest.mark.parametrize(
    'name',
    [
        'output',
        'stdout',
        'stdout_bytes',
        'stderr',
        'stderr_bytes',
        'exit_code',
        'exception',
        'exc_info',
    ],
)
def test_results_are_not_known_until_the_end(env, name):
    runner = KopfRunner(['run', '-A'], env=env, timeout=20)
    with pytest.raises(RuntimeError, match='not known yet'):
        getattr(runner, name)

    with runner, pytest.raises(RuntimeError, match='not known yet'):
        getattr(runner, name)

    getattr(runner, name)


@pytest.mark.guarantee('TST-009')
def test_operator_that_does_not_stop_is_abandoned(env, write, monkeypatch):
    path = write(
        'handlers.py',
        """
        import kopf, sys

        @kopf.on.cleanup()
        async def cleanup_fn(**_):
            sys.leave.wait()
    """,
    )
    monkeypatch.setattr(sys, 'leave', threading.Event(), raising=False)
    runner = KopfRunner(['run', '-A', path], env=env, timeout=0.01)
    try:
        with pytest.raises(TimeoutError, match=r'not stopped in 0\.01 s'), runner:
            pass

        assert not runner.future.done()
    finally:
        sys.leave.set()
        runner.future.result(timeout=20)
        runner._thread.join()


def test_other_commands_can_be_run_too():
    with KopfRunner(['--version']) as runner:
        runner.future.result(timeout=20)

    assert runner.stdout.startswith(f'kopf, version {kopf.__version__} (')


# One after another.


@pytest.mark.guarantee('WLD-010')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param(dict, id='default-registry'),
        pytest.param(lambda: {'registry': kopf.OperatorRegistry()}, id='own-registries'),
    ],
)
def test_runners_do_not_disturb_each_other(sandbox, env, write, build_object, options):
    outputs = []
    for name in ['one', 'two', 'three']:
        path = write(
            f'{name}.py',
            CREATING.replace('CREATED', name.upper()).replace('create_fn', f'{name}_fn'),
        )
        with KopfRunner(['run', '-A', path], env=env, timeout=20, **options()) as runner:
            sandbox.create(build_object(name))
            sandbox.wait('kopfexamples', name, is_handled)
        outputs.append(runner.stdout)

    assert outputs == [
        f'{name.upper()} default/{name}\nAGAIN\n' for name in ['one', 'two', 'three']
    ]


@pytest.mark.guarantee('WLD-010')
def test_same_file_can_be_run_again_and_is_called_once(sandbox, env, write, build_object):
    path = write('handlers.py', CREATING)
    for name in ['one', 'two']:
        with KopfRunner(['run', '-A', path], env=env, timeout=20) as runner:
            sandbox.create(build_object(name))
            sandbox.wait('kopfexamples', name, is_handled)

        assert runner.stdout == f'CREATED default/{name}\nAGAIN\n'


@pytest.mark.guarantee('WLD-010')
def test_same_module_can_be_run_again_though_it_is_imported_once(sandbox, env, write, build_object):
    write('handlers_of_runner.py', CREATING)
    for name in ['one', 'two']:
        with KopfRunner(['run', '-A', '-m', 'handlers_of_runner'], env=env, timeout=20) as runner:
            sandbox.create(build_object(name))
            sandbox.wait('kopfexamples', name, is_handled)

        assert runner.stdout == f'CREATED default/{name}\nAGAIN\n'


@pytest.mark.guarantee('WLD-010')
def test_failed_runner_does_not_disturb_the_next_one(sandbox, env, write, build_object):
    broken = write(
        'broken.py', CREATING.replace('CREATED', 'BROKEN') + "\n    raise ValueError('boo!')"
    )
    with KopfRunner(['run', '-A', broken], reraise=False) as runner:
        pass
    assert runner.exit_code == 1

    with KopfRunner(['run', '-A', write('handlers.py', CREATING)], env=env, timeout=20) as runner:
        sandbox.create(build_object())
        sandbox.wait('kopfexamples', 'obj', is_handled)

    assert runner.stdout == 'CREATED default/obj\nAGAIN\n'


def test_logging_and_streams_are_restored(env):
    root = logging.getLogger()
    before = (root.level, list(root.handlers), sys.stdout, sys.stderr, dict(os.environ))

    with KopfRunner(['run', '-A', '--debug'], env=env, timeout=20):
        assert root.level == logging.DEBUG

    assert (root.level, list(root.handlers), sys.stdout, sys.stderr, dict(os.environ)) == before


@pytest.mark.guarantee('NEW-239')
def test_exit_has_no_pauses(sandbox, env, write, build_object, monkeypatch):
    """
    A pause would be a sleep, in the event loop or not; the network and the threads take their time
    anyway.
    """
    pauses = []
    sleep = asyncio.sleep
    with KopfRunner(['run', '-A', write('handlers.py', CREATING)], env=env, timeout=20):
        sandbox.create(build_object())
        sandbox.wait('kopfexamples', 'obj', is_handled)
        monkeypatch.setattr(time, 'sleep', pauses.append)
        monkeypatch.setattr(
            asyncio, 'sleep', lambda delay, *args: pauses.append(delay) or sleep(0, *args)
        )
    monkeypatch.undo()

    assert [delay for delay in pauses if delay > 0] == []


# In coroutines.


@pytest.mark.guarantee('TST-003', 'TST-005')
async def test_runner_can_be_used_in_coroutines_with_the_sandbox_of_the_same_loop(
    write, crd, build_object
):
    path = write('handlers.py', CREATING)
    async with kopf.testing.Sandbox(tls=False, apply=[crd]) as sandbox:
        env = {'KUBECONFIG': str(sandbox.kubeconfig)}
        async with KopfRunner(['run', '-A', path], env=env, timeout=20) as runner:
            await sandbox.create(build_object())
            await sandbox.wait('kopfexamples', 'obj', is_handled)

    assert runner.exit_code == 0
    assert runner.stdout == 'CREATED default/obj\nAGAIN\n'


async def test_errors_are_raised_in_coroutines_too(write):
    with pytest.raises(Exception, match='boo!'):
        async with KopfRunner(['run', '-A', write('handlers.py', FAILING)]):
            pass
