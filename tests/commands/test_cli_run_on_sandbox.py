"""
Operators that are run by ``kopf run``, on a sandbox of the test, or on their own one.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from command_calls import CRD, CREATING, build_object, invoke, write

import kopf
from kopf._core.reactor import stopping
from kopf._kits.commands import sandbox_directories


def is_handled(body):
    return body is not None and 'kopf.zalando.org/last-handled-configuration' in body[
        'metadata'
    ].get('annotations', {})


@pytest.mark.guarantee('LOD-001', 'LOD-005', 'CLI-002', 'CLI-023', 'CLI-025')
def test_handlers_of_files_are_run_until_stopped(start, sandbox):
    running = start('-A', write('handlers.py', CREATING), sandbox=sandbox)
    sandbox.create(build_object('x'))
    sandbox.wait('kopfexamples', 'x', is_handled)

    result = running.stop()

    assert (result.exit_code, result.exception) == (0, None)
    assert 'CREATED default/x\n' in result.output
    assert "[default/x] Handler 'create_fn' succeeded." in result.stderr


@pytest.mark.guarantee('LOD-002', 'LOD-003', 'CLI-003', 'CLI-004')
def test_handlers_of_files_and_modules_are_of_one_operator(start, sandbox):
    write(
        'handlers_of_module.py', CREATING.replace('create_fn', 'fn2').replace('CREATED', 'SECOND')
    )
    running = start(
        '-A', write('handlers.py', CREATING), '-m', 'handlers_of_module', sandbox=sandbox
    )
    sandbox.create(build_object('x'))
    sandbox.wait('kopfexamples', 'x', is_handled)

    result = running.stop()

    assert 'CREATED default/x\n' in result.stdout
    assert 'SECOND default/x\n' in result.stdout


def list_watched(sandbox):
    paths = [request.path for request in sandbox.requests]
    return {path for path in paths if path.rpartition('/')[2] == 'kopfexamples'}


@pytest.mark.guarantee('SCP-001', 'CLI-011')
def test_only_given_namespaces_are_served(start, sandbox):
    for name in ('ns1', 'ns2', 'ns3'):
        sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}})
        sandbox.create(build_object('x', namespace=name))
    running = start('-n', 'ns1', '-n', 'ns3', write('handlers.py', CREATING), sandbox=sandbox)
    sandbox.wait('kopfexamples', 'x', is_handled, 'ns1')
    sandbox.wait('kopfexamples', 'x', is_handled, 'ns3')

    running.stop()

    assert list_watched(sandbox) == {
        f'/apis/kopf.dev/v1/namespaces/{ns}/kopfexamples' for ns in ('ns1', 'ns3')
    }
    assert not is_handled(sandbox.get('kopfexamples', 'x', 'ns2'))


@pytest.mark.guarantee('SCP-012', 'CLI-012')
@pytest.mark.parametrize(
    'args, warned',
    [
        pytest.param(['-A'], False, id='explicit'),
        pytest.param([], True, id='implicit'),
    ],
)
def test_whole_cluster_is_served_with_a_warning_if_it_is_not_asked_for(
    start, sandbox, args, warned
):
    sandbox.create(build_object('x'))
    running = start(*args, write('handlers.py', CREATING), sandbox=sandbox)
    sandbox.wait('kopfexamples', 'x', is_handled)

    result = running.stop()

    assert list_watched(sandbox) == {'/apis/kopf.dev/v1/kopfexamples'}
    assert ('Add --all-namespaces to confirm' in result.stderr) is warned


NO_HANDLERS = pytest.mark.parametrize(
    'texts, message',
    [
        pytest.param(
            [], 'No files and no modules are given, so there are no handlers', id='no-files'
        ),
        pytest.param(
            ['import kopf'], 'There are no handlers in these files and modules', id='no-handlers'
        ),
    ],
)


@NO_HANDLERS
def test_absence_of_handlers_is_noticed_if_called_from_code(start, sandbox, texts, message):
    paths = [write('handlers.py', text) for text in texts]

    result = start('-A', *paths, sandbox=sandbox).stop()

    assert result.exit_code == 0
    assert message in result.stderr


@NO_HANDLERS
def test_absence_of_handlers_is_an_error_of_the_command(start_process, tmp_path, texts, message):
    paths = [write('handlers.py', text) for text in texts]

    process = start_process('--sandbox', '-q', *paths)

    output, problems = process.communicate(timeout=60)
    assert (process.returncode, output) == (2, '')
    assert f'Error: {message}' in problems
    assert 'Traceback' not in problems
    assert list((tmp_path / 'temporary').iterdir()) == []


@pytest.mark.parametrize(
    'args, code, message',
    [
        pytest.param(['absent.py'], 1, 'Error: ', id='absent'),
        pytest.param(['broken.py'], 1, '  File "', id='syntax'),
        pytest.param(['empty.py'], 2, 'Usage: ', id='no-handlers'),
        pytest.param([], 2, 'Usage: ', id='no-files'),
    ],
)
@pytest.mark.parametrize('options', [['--sandbox'], []], ids=['sandbox', 'cluster'])
def test_errors_of_loading_are_alone(start_process, options, args, code, message):
    write('broken.py', '(')
    write('empty.py', '')

    process = start_process(*options, *args)

    output, problems = process.communicate(timeout=60)
    assert (process.returncode, output) == (code, '')
    assert problems.startswith(message)


def test_handlers_of_the_calling_code_are_enough(start, sandbox):
    registry = kopf.OperatorRegistry()
    kopf.on.event('kopfexamples', registry=registry)(lambda **_: None)

    result = start('-A', sandbox=sandbox, registry=registry).stop()

    assert 'no handlers' not in result.stderr


@pytest.mark.guarantee('CLI-023', 'TST-010')
def test_given_registry_is_filled_by_files_and_is_used(start, sandbox):
    default, registry = kopf.get_default_registry(), kopf.OperatorRegistry()
    running = start('-A', write('handlers.py', CREATING), sandbox=sandbox, registry=registry)
    sandbox.create(build_object('x'))
    sandbox.wait('kopfexamples', 'x', is_handled)
    running.stop()

    assert kopf.get_default_registry() is default
    assert not default.watched_selectors()
    assert registry.watched_selectors()


@pytest.mark.guarantee('CLI-023', 'TST-010')
def test_given_settings_are_used(start, sandbox):
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix='my.example.com')
    running = start('-A', write('handlers.py', CREATING), sandbox=sandbox, settings=settings)
    sandbox.create(build_object('x'))

    assert sandbox.wait(
        'kopfexamples',
        'x',
        lambda body: (
            'my.example.com/last-handled-configuration' in (body['metadata'].get('annotations', {}))
        ),
    )
    running.stop()


@pytest.mark.guarantee('CLI-023')
def test_given_loop_is_used_and_left_open(start, sandbox):
    path = write(
        'handlers.py',
        """
        import asyncio, kopf

        @kopf.on.startup()
        async def startup(**_):
            print('LOOP', id(asyncio.get_running_loop()))
    """,
    )
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        result = start('-A', path, sandbox=sandbox, loop=loop).stop()

        assert not loop.is_closed()

    assert f'LOOP {id(loop)}\n' in result.stdout


@pytest.mark.guarantee('CLI-021', 'NEW-235')
@pytest.mark.parametrize('is_installed, expected', [(True, 'uvloop'), (False, 'asyncio')])
def test_fast_loop_is_used_if_installed(start, sandbox, monkeypatch, is_installed, expected):
    path = write(
        'handlers.py',
        """
        import asyncio, kopf

        @kopf.on.startup()
        async def startup(**_):
            print('LOOP', type(asyncio.get_running_loop()).__module__)
    """,
    )
    if not is_installed:
        monkeypatch.setitem(sys.modules, 'uvloop', None)

    result = start('-A', path, sandbox=sandbox).stop()

    assert f'LOOP {expected}' in result.stdout
    assert 'uvloop' not in type(asyncio.get_event_loop_policy()).__module__


@pytest.fixture
def start_process(tmp_path):
    """Run the command in a process of its own, with the temporary files in a known place."""
    (tmp_path / 'temporary').mkdir()
    with contextlib.ExitStack() as stack:

        def start(*args, **env):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, '-m', 'kopf', 'run', *map(str, args)],
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={
                        **os.environ,
                        'PYTHONUNBUFFERED': '1',
                        'TMPDIR': str(tmp_path / 'temporary'),
                        **env,
                    },
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def read_until(stream, text):
    """Read the lines until one that contains the text; return all that was read."""
    lines = []
    while not lines or text not in lines[-1]:
        line = stream.readline()
        assert line, ''.join(lines)
        lines.append(line)
    return ''.join(lines)


@pytest.mark.guarantee('CLI-022', 'CLI-025')
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_operator_runs_on_a_sandbox_until_a_signal(start_process, tmp_path, number):
    # The definition goes first anyway.
    write('objects.json', '\n---\n'.join(map(json.dumps, [build_object('x'), CRD])))
    path = write(
        'handlers.py',
        """
        import kopf, threading

        @kopf.on.startup()
        async def startup(**_):
            print('MAIN', threading.current_thread() is threading.main_thread())

        @kopf.on.cleanup()
        async def cleanup(**_):
            print('CLEANED')
    """,
        CREATING,
    )
    process = start_process('--sandbox', '--apply', 'objects.json', path)
    said = read_until(process.stdout, 'CREATED default/x')
    kubeconfig = re.search(r'export KUBECONFIG=(\S+)', said)[1]
    assert os.path.exists(kubeconfig)

    process.send_signal(number)

    output, problems = process.communicate(timeout=20)
    assert process.returncode == 0, problems
    assert said.startswith('The operator runs on a sandbox, served at https://127.0.0.1:')
    assert '    kubectl get kopfexamples\n' in said
    assert 'MAIN True\n' in said
    assert output == 'CLEANED\n'
    assert 'Traceback' not in problems
    assert 'The whole cluster is served' not in problems
    assert list((tmp_path / 'temporary').iterdir()) == []


@pytest.mark.parametrize(
    'text',
    [
        pytest.param(
            """
        import time
        print('LOADING')
        time.sleep(1000)
    """,
            id='usual',
        ),
        pytest.param(
            """
        import kopf, time
        kopf.on.startup()(lambda **_: None)
        try:
            print('LOADING')
            time.sleep(1000)
        except BaseException:
            pass
    """,
            id='suppressing',
        ),
        pytest.param(
            """
        import time
        try:
            print('LOADING')
            time.sleep(1000)
        except BaseException as e:
            raise RuntimeError from e
    """,
            id='replacing',
        ),
    ],
)
def test_signal_ends_the_loading_of_files_with_nothing_left(start_process, tmp_path, text):
    path = write('handlers.py', text)
    process = start_process('--sandbox', path)
    read_until(process.stdout, 'LOADING')

    process.send_signal(signal.SIGTERM)

    _, problems = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    assert problems == ''
    assert list((tmp_path / 'temporary').iterdir()) == []


def test_sandbox_is_where_all_clients_in_the_code_go(start):
    path = write(
        'handlers.py',
        """
        import asyncio, kopf, os, sys
        import kubernetes.client, kubernetes_asyncio.client
        sys.stdout.write(f'LOADING {os.environ["KUBECONFIG"]}\\n')

        @kopf.on.startup()
        async def startup(**_):
            for library in (kubernetes, kubernetes_asyncio):
                print('CLIENT', library.client.Configuration.get_default_copy().host)
    """,
    )
    result = start('--sandbox', path).stop()

    url = re.search(r'served at (\S+)', result.stdout)[1]
    kubeconfig = re.search(r'export KUBECONFIG=(\S+)', result.stdout)[1]
    assert f'LOADING {kubeconfig}\n' in result.stdout
    assert result.stdout.count(f'CLIENT {url}\n') == 2
    assert 'KUBECONFIG' not in os.environ


def test_previous_kubeconfig_is_in_force_again_after_the_sandbox(start, monkeypatch):
    monkeypatch.setenv('KUBECONFIG', '/some/where')

    start('--sandbox', write('handlers.py', '')).stop()

    assert os.environ['KUBECONFIG'] == '/some/where'


def test_quiet_command_says_nothing_of_the_sandbox(start):
    result = start('--sandbox', '-q', write('handlers.py', CREATING)).stop()

    assert (result.exit_code, result.output) == (0, '')


@pytest.mark.parametrize(
    'text, message',
    [
        pytest.param('a: [', 'Error: x.yaml is not valid YAML or JSON: ', id='syntax'),
        pytest.param(
            '{"apiVersion": "v1", "kind": "Unknown", "metadata": {"name": "x"}}',
            "Error: Cannot apply 'x' from x.yaml: there is no kind Unknown in version v1.",
            id='kind',
        ),
        pytest.param(
            '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Wrong"}}',
            'Error: x.yaml: ConfigMap "Wrong" is invalid: metadata.name: Invalid value: "Wrong": ',
            id='refused',
        ),
        pytest.param(None, 'Error: Cannot read x.yaml: No such file or directory', id='absent'),
    ],
)
def test_bad_manifests_are_refused_before_anything_is_loaded(text, message):
    if text is not None:
        write('x.yaml', text)

    result = invoke('--sandbox', '--apply', 'x.yaml', write('broken.py', '1/0'))

    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith(message)
    assert result.stderr.count('\n') == 1


def test_manifests_can_come_from_the_standard_input():
    result = invoke('--sandbox', '--apply', '-', input='[1]')

    assert (result.exit_code, result.stdout) == (2, '')
    assert result.stderr.startswith('Error: the standard input must contain objects')


@pytest.mark.guarantee('SHD-006')
def test_killed_operator_has_no_cleanup(start_process):
    write('objects.json', '\n---\n'.join(map(json.dumps, [build_object('x'), CRD])))
    path = write(
        'handlers.py',
        """
        import kopf

        @kopf.on.cleanup()
        async def cleanup(**_):
            print('CLEANED')
    """,
        CREATING,
    )
    process = start_process('--sandbox', '--apply', 'objects.json', path)
    read_until(process.stdout, 'CREATED default/x')

    process.kill()

    output, _ = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    assert 'CLEANED' not in output


@pytest.mark.guarantee('CLI-013', 'SCP-013')
def test_all_namespaces_by_a_pattern_are_served_by_separate_streams_as_they_come_and_go(
    start, sandbox
):
    def create(name):
        sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}})
        sandbox.create(build_object('x', namespace=name))
        sandbox.wait('kopfexamples', 'x', is_handled, name)

    running = start('--namespace=*', write('handlers.py', CREATING), sandbox=sandbox)
    create('ns1')
    sandbox.delete('namespaces', 'ns1')
    sandbox.wait('namespaces', 'ns1', lambda body: body is None)
    create('ns2')
    paths = [f'/apis/kopf.dev/v1/namespaces/{ns}/kopfexamples' for ns in ('ns1', 'ns2')]
    assert list_watched(sandbox) >= set(paths)
    assert '/apis/kopf.dev/v1/kopfexamples' not in list_watched(sandbox)

    sandbox.requests.clear()
    sandbox.faults.end_streams(500)
    sandbox.create(build_object('y', namespace='ns2'))
    sandbox.wait('kopfexamples', 'y', is_handled, 'ns2')
    result = running.stop()

    assert list_watched(sandbox).intersection(paths) == set(paths[1:])
    assert all(f'CREATED {name}\n' in result.output for name in ('ns1/x', 'ns2/x', 'ns2/y'))


# The place of the sandbox.

WAITING = """
    import kopf

    @kopf.on.startup()
    async def start(**_):
        print('STARTED')
"""


def read_place(said):
    return re.search(r'served at (\S+)', said)[1], re.search(r'export KUBECONFIG=(\S+)', said)[1]


@pytest.fixture
def runtime(tmp_path):
    directory = tmp_path / 'runtime'
    directory.mkdir()
    return {'XDG_RUNTIME_DIR': str(directory)}


def stop_process(process):
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=20)


@pytest.mark.parametrize('is_killed', [False, True], ids=['ended', 'killed'])
def test_sandbox_is_at_the_same_place_from_run_to_run(start_process, runtime, is_killed):
    path, places, modes = write('handlers.py', WAITING), [], []
    for _ in range(2):
        process = start_process('--sandbox', path, **runtime)
        places.append(read_place(read_until(process.stdout, 'STARTED')))
        file = pathlib.Path(places[-1][1])
        modes.append([oct(path.stat().st_mode & 0o777) for path in (file.parent, file)])
        if is_killed:
            process.kill()
            process.communicate()
            is_killed = False
        else:
            _, problems = stop_process(process)
            assert 'usual directory' not in problems

    assert places[0] == places[1]
    assert modes[0] == modes[1] == ['0o700', '0o600']
    assert not file.parent.exists()


def test_sandboxes_at_the_same_time_are_at_different_places(start_process, runtime):
    path = write('handlers.py', WAITING)
    processes = []
    places = []
    for _ in range(2):
        processes.append(start_process('--sandbox', path, **runtime))
        places.append(read_place(read_until(processes[-1].stdout, 'STARTED')))

    problems = [stop_process(process)[1] for process in processes]

    assert places[0][0] != places[1][0]
    assert places[0][1] != places[1][1]
    assert 'usual directory' not in problems[0]
    assert 'is in use by another sandbox' in problems[1]
    assert 'is busy: another one is taken' in problems[1]
    assert not any(os.path.exists(os.path.dirname(place)) for _, place in places)


def test_removed_places_of_the_next_owners_are_left_to_them(tmp_path):
    place = tmp_path / 'place'
    first = sandbox_directories.take_directory(place)
    first.remove()
    second = sandbox_directories.take_directory(place)

    first.remove()

    assert place.exists()
    second.remove()
    assert not place.exists()


@pytest.mark.parametrize('kind', ['link', 'open', 'file'])
def test_foreign_places_are_not_used(start_process, runtime, tmp_path, kind):
    place, _ = sandbox_directories.choose_place(runtime, os.getcwd())
    (tmp_path / 'target').mkdir(mode=0o700)
    if kind == 'link':
        place.symlink_to(tmp_path / 'target')
    elif kind == 'open':
        place.mkdir()
        place.chmod(0o755)
    else:
        place.write_text('')
    process = start_process('--sandbox', write('handlers.py', WAITING), **runtime)
    _, kubeconfig = read_place(read_until(process.stdout, 'STARTED'))

    _, problems = stop_process(process)

    assert not kubeconfig.startswith(str(place))
    assert 'or is not private' in problems
    assert os.path.lexists(place)
    assert list((tmp_path / 'target').iterdir()) == []


def test_kubeconfig_is_written_where_it_is_asked_for(start_process, runtime):
    path = write('handlers.py', WAITING)
    for _ in range(2):
        process = start_process('--sandbox', '--kubeconfig=config', path, **runtime)
        url, kubeconfig = read_place(read_until(process.stdout, 'STARTED'))
        stop_process(process)

        assert kubeconfig == os.path.abspath('config')
        assert url in pathlib.Path('config').read_text()
    assert list(pathlib.Path(runtime['XDG_RUNTIME_DIR']).iterdir()) == []


@pytest.mark.parametrize('option', ['--kubeconfig=x', '--apply=x', '--workloads'])
def test_options_of_the_sandbox_are_only_for_it(option):
    result = invoke(option, write('handlers.py', CREATING))

    assert result.exit_code == 2
    assert f'{option.removesuffix("=x")} is only for --sandbox' in result.stderr


def test_kubeconfigs_of_others_are_not_overwritten():
    write('config', 'mine')

    result = invoke('--sandbox', '--kubeconfig=config', write('handlers.py', CREATING))

    assert result.exit_code == 2
    assert 'is not of a sandbox, and will not be overwritten' in result.stderr
    assert pathlib.Path('config').read_text() == 'mine'


SLEEPING = """
    import kopf, time

    @kopf.on.startup()
    def configure(settings, **_):
        settings.process.ultimate_exiting_timeout = None

    @kopf.on.create('kopfexamples')
    def create_fn(**_):
        print('SLEEPING')
        time.sleep(600)
"""


def test_nothing_is_left_after_two_signals(start_process, runtime, tmp_path):
    write('objects.json', '\n---\n'.join(map(json.dumps, [build_object('x'), CRD])))
    path = write('handlers.py', SLEEPING)
    process = start_process('--sandbox', '--apply=objects.json', path, **runtime)
    said = read_until(process.stdout, 'SLEEPING')
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, 'The operator is stopping')
    time.sleep(stopping.SAME_SIGNAL * 1.2)  # otherwise, it is one and the same signal

    process.send_signal(signal.SIGINT)

    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGINT
    assert not os.path.exists(read_place(said)[1])
    assert list((tmp_path / 'temporary').iterdir()) == []
    assert list((tmp_path / 'runtime').iterdir()) == []


def test_threads_that_are_waited_for_are_announced_at_last(start_process):
    write('objects.json', '\n---\n'.join(map(json.dumps, [build_object('x'), CRD])))
    process = start_process('--sandbox', '--apply=objects.json', write('handlers.py', SLEEPING))
    read_until(process.stdout, 'SLEEPING')
    process.send_signal(signal.SIGINT)
    read_until(
        process.stderr,
        'The process waits for its threads, 1 of them: kopf-handlers_0. Press Ctrl-C',
    )
    time.sleep(stopping.SAME_SIGNAL * 1.2)  # otherwise, it is one and the same signal

    process.send_signal(signal.SIGINT)

    assert 'Exiting at once' in process.communicate(timeout=20)[1]


# Admission.

REVIEWING = """
    import kopf

    @kopf.on.mutate('kopfexamples')
    async def mutate(patch, name, **_):
        if name == 'wrong':
            raise kopf.AdmissionError('It is wrong.')
        patch.metadata.annotations['mutated'] = 'yes'

    @kopf.on.create('kopfexamples')
    async def create_fn(annotations, **_):
        print('CREATED', annotations.get('mutated'))
"""


def test_objects_are_reviewed_by_the_operator_with_no_server_of_its_own(start_process):
    bodies = [build_object('wrong'), build_object('x'), CRD]
    write('objects.json', '\n---\n'.join(map(json.dumps, bodies)))
    process = start_process('--sandbox', '--apply=objects.json', write('handlers.py', REVIEWING))

    said = read_until(process.stdout, 'CREATED')

    _, problems = stop_process(process)
    assert 'CREATED yes\n' in said
    assert 'Cannot apply: objects.json: KopfExample "wrong": admission webhook' in problems
    assert 'denied the request: It is wrong.' in problems
    assert process.returncode == 0


def test_servers_of_startup_handlers_are_used_for_admission(start_process):
    write('objects.json', '\n---\n'.join(map(json.dumps, [build_object('x'), CRD])))
    configuring = """
    @kopf.on.startup()
    async def configure(settings, **_):
        settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', host='127.0.0.1', path='/mine')
        settings.admission.managed = 'mine.kopf.dev'
    """
    path = write('handlers.py', REVIEWING, configuring)
    process = start_process('--sandbox', '--apply=objects.json', path)

    said = read_until(process.stdout, 'CREATED')

    _, problems = stop_process(process)
    assert 'CREATED yes\n' in said
    assert "'mine.kopf.dev' has 1 webhooks" in problems
    assert re.search(r'The webhooks are served at https://127.0.0.1:\d+/mine', problems)
