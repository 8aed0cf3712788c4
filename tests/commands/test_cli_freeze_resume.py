"""
``kopf freeze`` and ``kopf resume`` on a sandbox; and operators as processes, which are paused by
them or by each other.
"""

import contextlib
import datetime
import getpass
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from command_calls import build_definition, build_object, build_peering, write

import kopf.testing
from kopf import cli

ME = f'{getpass.getuser()}@{socket.gethostname()}'

LIFETIME = 5

HANDLERS = f"""
    import kopf

    @kopf.on.startup()
    def configure(settings, **_):
        settings.peering.lifetime = {LIFETIME}

    @kopf.on.create('kopfexamples')
    def create_fn(name, **_):
        print('CREATED', name)
"""


@pytest.fixture
def peerings(sandbox):
    sandbox.apply(
        build_definition('clusterkopfpeerings', 'ClusterKopfPeering'),
        build_definition('kopfpeerings', 'KopfPeering'),
    )
    sandbox.create(build_peering('example'))
    for namespace in ('ns-1', 'ns-2', 'other'):
        sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': namespace}})
        sandbox.create(build_peering('example', namespace))


@pytest.fixture
def invoke(sandbox):
    """Call the command with the kubeconfig of the sandbox."""

    def invoke(*args, **env):
        return CliRunner().invoke(
            cli.main, [*map(str, args)], env={'KUBECONFIG': str(sandbox.kubeconfig), **env}
        )

    return invoke


@pytest.fixture
def get_records(sandbox):
    def get_records(namespace=None, name='example'):
        plural = 'kopfpeerings' if namespace else 'clusterkopfpeerings'
        return sandbox.get(plural, name, namespace or 'default').get('status') or {}

    return get_records


@pytest.mark.guarantee('CLI-020', 'NEW-249', 'NEW-250', 'NEW-218', 'NEW-215')
def test_freeze_puts_a_record_and_resume_removes_it(invoke, sandbox, peerings, get_records):
    sandbox.patch('clusterkopfpeerings', 'example', {'status': {'somebody': {'priority': 1}}})

    frozen = invoke('freeze', '-A', '-P', 'example', '-t', '3600')
    records = get_records()
    resumed = invoke('resume', '-A', '-P', 'example')

    assert (frozen.exit_code, resumed.exit_code) == (0, 0), frozen.output + resumed.output
    lastseen = datetime.datetime.fromisoformat(records[ME].pop('lastseen'))
    assert abs(datetime.datetime.now(datetime.UTC) - lastseen) < datetime.timedelta(minutes=1)
    assert records == {'somebody': {'priority': 1}, ME: {'priority': 100, 'lifetime': 3600}}
    assert get_records() == {'somebody': {'priority': 1}}
    assert {
        asked.verb
        for asked in sandbox.requests.select(resource='clusterkopfpeerings')
        if asked.user_agent.startswith('kopf/')
    } == {'patch'}


@pytest.mark.guarantee('NEW-249', 'PEE-006', 'PEE-026')
@pytest.mark.parametrize(
    'args, env, expected',
    [
        pytest.param(['-p', '-5'], {}, {'priority': -5}, id='priority'),
        pytest.param(
            ['--priority', '3232235777'], {}, {'priority': 3232235777}, id='huge-priority'
        ),
        pytest.param(['--dev'], {}, {'priority': 666}, id='dev'),
        pytest.param(['--dev', '-p', '5'], {}, {'priority': 666}, id='dev-wins'),
        pytest.param(['-m', 'because'], {}, {'priority': 100, 'message': 'because'}, id='message'),
        pytest.param([], {'KOPF_FREEZE_PRIORITY': '7'}, {'priority': 7}, id='priority-by-variable'),
        pytest.param([], {'KOPF_FREEZE_DEV': '1'}, {'priority': 666}, id='dev-by-variable'),
        pytest.param(
            [],
            {'KOPF_FREEZE_MESSAGE': 'because'},
            {'priority': 100, 'message': 'because'},
            id='message-by-variable',
        ),
    ],
)
def test_freeze_has_options_for_the_record(invoke, peerings, get_records, args, env, expected):
    result = invoke('freeze', '-A', '-P', 'example', '-t', '60', *args, **env)
    record = get_records()[ME]
    del record['lastseen']

    assert result.exit_code == 0, result.output
    assert record == {'lifetime': 60, **expected}


@pytest.mark.guarantee('NEW-244', 'NEW-249', 'NEW-250')
def test_all_options_can_be_variables(invoke, peerings, get_records):
    freezing = {'ID': 'me', 'PEERING': 'example', 'LIFETIME': '60', 'NAMESPACES': 'ns-1 ns-2'}
    resuming = {'ID': 'me', 'PEERING_NAME': 'example', 'NAMESPACES': 'ns-1'}

    frozen = invoke('freeze', **{f'KOPF_FREEZE_{name}': value for name, value in freezing.items()})
    assert frozen.exit_code == 0, frozen.output
    assert [list(get_records(namespace)) for namespace in ('ns-1', 'ns-2', 'other')] == [
        ['me'],
        ['me'],
        [],
    ]
    resumed = invoke('resume', **{f'KOPF_RESUME_{name}': value for name, value in resuming.items()})
    assert resumed.exit_code == 0, resumed.output
    assert [list(get_records(namespace)) for namespace in ('ns-1', 'ns-2', 'other')] == [
        [],
        ['me'],
        [],
    ]


@pytest.mark.guarantee('NEW-249', 'NEW-250', 'PEE-004')
@pytest.mark.parametrize(
    'args, expected',
    [
        pytest.param(['-A'], {None}, id='cluster'),
        pytest.param([], {None}, id='cluster-by-default'),
        pytest.param(['-n', 'ns-1'], {'ns-1'}, id='namespace'),
        pytest.param(['-n', 'ns-1', '--namespace=other'], {'ns-1', 'other'}, id='namespaces'),
        pytest.param(['-n', 'ns-*'], {'ns-1', 'ns-2'}, id='pattern'),
        pytest.param(['-n', 'ns-*', '-n', 'other'], {'ns-1', 'ns-2', 'other'}, id='both'),
    ],
)
def test_scopes_are_those_of_operators(invoke, peerings, get_records, args, expected):
    def get_frozen():
        return {
            namespace
            for namespace in (None, 'ns-1', 'ns-2', 'other')
            if 'me' in get_records(namespace)
        }

    frozen = invoke('freeze', '-P', 'example', '-t', '60', '-i', 'me', *args)
    assert (frozen.exit_code, get_frozen()) == (0, expected), frozen.output
    resumed = invoke('resume', '-P', 'example', '-i', 'me', *args)
    assert (resumed.exit_code, get_frozen()) == (0, set()), resumed.output


@pytest.mark.guarantee('PEE-002')
def test_outdated_groups_are_served_too(invoke, sandbox):
    sandbox.apply(
        build_definition('clusterkopfpeerings', 'ClusterKopfPeering', group='zalando.org')
    )
    sandbox.create(build_peering('example', group='zalando.org'))

    result = invoke('freeze', '-A', '-P', 'example', '-t', '60', '-i', 'me')

    assert result.exit_code == 0, result.output
    assert list(sandbox.get('clusterkopfpeerings', 'example')['status']) == ['me']


@pytest.mark.guarantee('NEW-247', 'NEW-249', 'NEW-250')
@pytest.mark.parametrize(
    'args, text',
    [
        pytest.param(['freeze', '-A', '-t', '60'], "Missing option '-P'", id='freeze-what'),
        pytest.param(
            ['freeze', '-A', '-P', 'example'], "Missing option '-t'", id='freeze-how-long'
        ),
        pytest.param(
            ['freeze', '-A', '-P', 'example', '-t', 'hour'], 'not a valid integer', id='no-number'
        ),
        pytest.param(['freeze', '-A', '-P', 'example', '-t', '0'], 'range', id='no-time'),
        pytest.param(
            ['freeze', '-A', '-n', 'x', '-P', 'example', '-t', '60'],
            'not both',
            id='freeze-two-scopes',
        ),
        pytest.param(['resume', '-A'], "Missing option '-P'", id='resume-what'),
        pytest.param(
            ['resume', '-A', '-n', 'x', '-P', 'example'], 'not both', id='resume-two-scopes'
        ),
        pytest.param(
            ['resume', '-A', '-P', 'example', '--unknown'], 'No such option', id='unknown'
        ),
    ],
)
def test_wrong_usage_is_said_in_a_line(invoke, sandbox, args, text):
    result = invoke(*args)

    assert result.exit_code == 2
    assert text in result.stderr
    assert len(sandbox.requests) == 0


@pytest.mark.parametrize('command', [['freeze', '-t', '60'], ['resume']], ids=['freeze', 'resume'])
@pytest.mark.parametrize(
    'args, text',
    [
        pytest.param(
            ['-A', '-P', 'absent'], "There is no peering 'absent' in the cluster.", id='no-object'
        ),
        pytest.param(
            ['-n', 'ns-1', '-n', 'nowhere', '-P', 'example'],
            "There is no peering 'example' in the namespace 'nowhere'.",
            id='no-namespace',
        ),
        pytest.param(
            ['-n', 'no-*', '-P', 'example'], 'There are no such namespaces: no-*.', id='no-match'
        ),
    ],
)
def test_absent_peerings_are_not_created(invoke, sandbox, peerings, command, args, text):
    result = invoke(*command, *args)

    assert result.exit_code == 1
    assert text in result.stderr
    assert len(sandbox.list('clusterkopfpeerings')) == 1


@pytest.mark.parametrize('command', [['freeze', '-t', '60'], ['resume']], ids=['freeze', 'resume'])
def test_clusters_with_no_peerings_are_told_of(invoke, sandbox, command):
    result = invoke(*command, '-A', '-P', 'example')

    assert result.exit_code == 1
    assert 'peering.yaml' in result.stderr
    assert 'Traceback' not in result.stderr


def test_refusals_of_the_cluster_are_said_in_a_line(invoke, sandbox, peerings):
    with sandbox.faults.inject(verb='patch', code=400):
        result = invoke('freeze', '-A', '-P', 'example', '-t', '60')

    assert result.exit_code == 1
    assert 'HTTP 400' in result.stderr
    assert 'Traceback' not in result.stderr


def test_no_way_to_the_cluster_is_said_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    for name in ('KUBERNETES_SERVICE_HOST', 'KUBERNETES_PORT'):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(cli.main, ['freeze', '-A', '-P', 'example', '-t', '60'])

    assert result.exit_code == 1
    assert 'Cannot log in' in result.stderr


@pytest.mark.guarantee('CLI-001', 'CLI-019')
@pytest.mark.parametrize('command', ['freeze', 'resume'])
def test_help_tells_of_all_options(invoke, command):
    result = invoke(command, '--help')
    options = {
        '-n, --namespace',
        '-A, --all-namespaces',
        '-i, --id',
        '-P, --peering',
        '--log-format',
        '-v, --verbose',
    }
    more = (
        {'--dev', '-p, --priority', '-t, --lifetime', '-m, --message'}
        if command == 'freeze'
        else set()
    )

    assert result.exit_code == 0
    assert [option for option in options | more if option not in result.output] == []


@pytest.fixture
def start_process(sandbox, tmp_path):
    """Run an operator on the sandbox as a process; its output goes to a file."""
    with contextlib.ExitStack() as stack:

        def start(name, *args):
            output = stack.enter_context(open(tmp_path / name, 'w'))
            process = stack.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        '-m',
                        'kopf',
                        'run',
                        '-A',
                        '--peering=example',
                        *map(str, args),
                    ],
                    stdout=output,
                    stderr=output,
                    env={
                        **os.environ,
                        'KUBECONFIG': str(sandbox.kubeconfig),
                        'PYTHONUNBUFFERED': '1',
                        'POD_ID': name,
                    },
                )
            )
            stack.callback(process.kill)
            return process

        yield start


def wait_until_written(path, text, timeout=30):
    deadline = time.monotonic() + timeout
    while text not in path.read_text():
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.02)


def read_time(path, text):
    """Tell when the first line with this text was logged."""
    line = next(line for line in path.read_text().splitlines() if text in line)
    return datetime.datetime.strptime(line[1:24], '%Y-%m-%d %H:%M:%S,%f')


@pytest.mark.guarantee(
    'PEE-006', 'PEE-007', 'PEE-012', 'PEE-013', 'PEE-015', 'PEE-022', 'NEW-216', 'NEW-218'
)
def test_processes_pause_and_succeed_each_other(
    start_process, sandbox, peerings, get_records, tmp_path
):
    path = write('handlers.py', HANDLERS)
    low = start_process('low', path, '--priority=5')
    wait_until_written(tmp_path / 'low', "keep-alive of the peering 'example' is sent")
    high = start_process('high', path, '--dev')
    wait_until_written(tmp_path / 'low', 'pauses: there are others')
    sandbox.create(build_object('first'))
    wait_until_written(tmp_path / 'high', 'CREATED first')
    sandbox.wait(
        'kopfexamples', 'first', lambda body: body['metadata'].get('annotations'), timeout=30
    )
    os.kill(high.pid, signal.SIGKILL)
    killed = datetime.datetime.now()
    sandbox.create(build_object('second'))
    wait_until_written(tmp_path / 'low', 'CREATED second')
    os.kill(low.pid, signal.SIGTERM)

    assert low.wait(timeout=30) == 0
    assert get_records() == {}
    seen = read_time(tmp_path / 'high', "keep-alive of the peering 'example' is sent")
    assert (read_time(tmp_path / 'low', 'pauses: there are others') - seen).total_seconds() < 1
    assert (
        read_time(tmp_path / 'low', 'no one left to pause for') - killed
    ).total_seconds() < LIFETIME + 3
    assert 'CREATED first' not in (tmp_path / 'low').read_text()
    assert 'CREATED second' not in (tmp_path / 'high').read_text()


@pytest.mark.guarantee('NEW-249', 'NEW-250', 'PEE-023')
def test_processes_are_frozen_and_resumed(start_process, invoke, sandbox, peerings, tmp_path):
    start_process('one', write('handlers.py', HANDLERS))
    wait_until_written(tmp_path / 'one', "keep-alive of the peering 'example' is sent")
    invoke('freeze', '-A', '-P', 'example', '-t', '3600', '-i', 'admin', '-m', 'maintenance')
    wait_until_written(tmp_path / 'one', "admin (priority 100, 'maintenance')")
    sandbox.create(build_object('first'))
    invoke('resume', '-A', '-P', 'example', '-i', 'admin')
    wait_until_written(tmp_path / 'one', 'CREATED first')

    text = (tmp_path / 'one').read_text()
    assert text.index('no one left to pause for') < text.index('CREATED first')


def test_kubeconfigs_of_secure_sandboxes_are_good_too(tmp_path):
    with kopf.testing.Sandbox(
        apply=[build_definition('clusterkopfpeerings', 'ClusterKopfPeering')]
    ) as sandbox:
        sandbox.create(build_peering('example'))
        result = CliRunner().invoke(
            cli.main,
            ['freeze', '-A', '-P', 'example', '-t', '60', '-i', 'me'],
            env={'KUBECONFIG': str(sandbox.kubeconfig)},
        )
        records = sandbox.get('clusterkopfpeerings', 'example')['status']

    assert (result.exit_code, list(records)) == (0, ['me']), result.output
