"""
The command ``kopf sandbox``: what it says, how it ends, and how it refuses.
"""

import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import urllib.request

import pytest
import yaml
from click.testing import CliRunner

import kopf
from kopf import cli
from kopf._kits.commands import sandbox_command
from kopf._sandbox import hosting, kubeconfigs
from kopf._sandbox.codec import manifests

ROOT = pathlib.Path(kopf.__file__).parent.parent
CONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'cm'}, 'data': {'a': '1'}}
CONFIGS = '/api/v1/namespaces/default/configmaps'
CLOSING = 'The sandbox is stopped.\n'


class Running:
    """A command in a process of its own."""

    def __init__(self, process):
        self.process = process
        self.greeting = ''

    def wait_until_served(self):
        while 'Ctrl-C' not in self.greeting:
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            self.greeting += line
        return self

    @property
    def kubeconfig(self):
        return pathlib.Path(re.search(r'export KUBECONFIG=(\S+)', self.greeting)[1])

    def ask(self, path, method='GET', body=None):
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config['clusters'][0]['cluster'], config['users'][0]['user']
        ca = base64.b64decode(cluster.get('certificate-authority-data', '')).decode()
        sent = body and json.dumps(body).encode()
        request = urllib.request.Request(
            cluster['server'] + path,
            sent,
            method=method,
            headers={
                'Authorization': f'Bearer {user["token"]}',
                'Content-Type': 'application/json',
                'User-Agent': 'tester',
            },
        )
        context = ssl.create_default_context(cadata=ca) if ca else None
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            return json.load(response)

    def has_ended(self):
        """Tell if the process has ended, or does so in a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=0.02)
        return self.process.returncode is not None

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        output, problems = self.process.communicate(timeout=10)
        return self.process.returncode, output, problems


@pytest.fixture
def start(tmp_path):
    """Start the command in a process of its own, with the temporary files in a known place."""
    (tmp_path / 'temporary').mkdir()
    with contextlib.ExitStack() as stack:

        def start(*args, stdin='', **env):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, '-m', 'kopf', 'sandbox', *map(str, args)],
                    cwd=ROOT,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, 'TMPDIR': str(tmp_path / 'temporary'), **env},
                )
            )
            stack.callback(process.kill)
            process.stdin.write(stdin)
            process.stdin.close()
            process.stdin = None
            return Running(process)

        yield start


@pytest.fixture
def refuse():
    """Run the command, which must refuse; get its only line."""

    def refuse(*args, **kwargs):
        result = CliRunner().invoke(cli.main, ['sandbox', *map(str, args)], **kwargs)
        assert (result.exit_code, result.stdout) == (2, '')
        assert result.stderr.count('\n') == 1, result.stderr
        return result.stderr

    return refuse


@pytest.fixture(autouse=True)
def default_hangups():
    """These tests may be run by ``nohup``, but the commands in them are not."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_command_serves_until_a_signal_and_cleans_up(start, tmp_path, number):
    running = start().wait_until_served()
    kubeconfig = running.kubeconfig

    assert running.ask('/api/v1/namespaces/default')['metadata']['name'] == 'default'
    assert re.match(r'The sandbox is served at https://127.0.0.1:\d+\n', running.greeting)
    assert '    kubectl get namespaces\n' in running.greeting
    assert stat.S_IMODE(kubeconfig.stat().st_mode) == 0o600

    assert running.end(number) == (0, CLOSING, '')
    assert list((tmp_path / 'temporary').iterdir()) == []


@pytest.mark.slow
def test_explicit_kubeconfig_is_kept_and_overwritten_next_time(start, tmp_path):
    kubeconfig = tmp_path / 'with space' / 'kubeconfig'
    kubeconfig.parent.mkdir()
    for _ in range(2):
        running = start('--kubeconfig', kubeconfig, '--no-tls').wait_until_served()
        url = re.search(r'served at (\S+)', running.greeting)[1]
        assert f"export KUBECONFIG='{kubeconfig}'" in running.greeting
        assert running.end()[0] == 0
        config = yaml.safe_load(kubeconfig.read_text())
        assert (
            config['clusters'][0]['cluster']['server']
            == f'{url}/token/{config["users"][0]["user"]["token"]}'
        )


def test_manifests_come_from_files_directories_and_stdin(start, tmp_path):
    for name in ('one', 'two', 'three'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'x.yaml').write_text(json.dumps({**CONFIG, 'metadata': {'name': name}}))
    documents = '\n---\n'.join(
        json.dumps({**CONFIG, 'metadata': {'name': name}}) for name in ('four', 'five')
    )

    running = start(
        '--apply',
        tmp_path / 'one/x.yaml',
        '--apply',
        tmp_path / 'two',
        '--apply',
        '-',
        stdin=documents,
        KOPF_SANDBOX_TLS='false',
    ).wait_until_served()

    names = [item['metadata']['name'] for item in running.ask(CONFIGS)['items']]
    assert sorted(names) == ['five', 'four', 'kube-root-ca.crt', 'one', 'two']
    assert 'http://' in running.greeting
    running.end()


def test_manifests_come_from_the_environment_with_spaces_between(start, tmp_path):
    for name in ('one', 'two'):
        (tmp_path / f'{name}.yaml').write_text(json.dumps({**CONFIG, 'metadata': {'name': name}}))

    running = start(
        '--no-tls', KOPF_SANDBOX_APPLY=f'{tmp_path}/one.yaml {tmp_path}/two.yaml'
    ).wait_until_served()

    assert sorted(item['metadata']['name'] for item in running.ask(CONFIGS)['items']) == [
        'kube-root-ca.crt',
        'one',
        'two',
    ]
    running.end()


def test_verbose_command_shows_requests_one_per_line(start):
    running = start('-v', '--no-tls').wait_until_served()
    running.ask('/version?x=y')

    _, _, shown = running.end()

    assert re.fullmatch(r'\d\d:\d\d:\d\d 200 GET /version\?x=y \(tester\)\n', shown)


def test_quiet_command_shows_nothing(start, tmp_path):
    kubeconfig = tmp_path / 'kubeconfig'
    running = start('-q', '--no-tls', '--kubeconfig', kubeconfig)
    while not kubeconfig.exists():
        assert not running.has_ended()

    assert running.end() == (0, '', '')


def test_rbac_is_enforced_on_demand(start):
    running = start('--rbac').wait_until_served()
    review = {
        'apiVersion': 'authorization.k8s.io/v1',
        'kind': 'SubjectAccessReview',
        'spec': {'user': 'bob', 'resourceAttributes': {'verb': 'list', 'resource': 'pods'}},
    }

    answer = running.ask('/apis/authorization.k8s.io/v1/subjectaccessreviews', 'POST', review)

    assert answer['status']['allowed'] is False
    running.end()


@pytest.mark.guarantee('SBX-002')
def test_workloads_are_started_on_demand(start):
    running = start('--workloads').wait_until_served()

    nodes = running.ask('/api/v1/nodes')['items']

    assert [node['metadata']['name'] for node in nodes] == ['sandbox-1']
    running.end()


@pytest.mark.slow
def test_objects_are_saved_even_if_killed(start, tmp_path):
    args = ('--save', tmp_path / 'saved', '--kubeconfig', tmp_path / 'kubeconfig')
    running = start(*args).wait_until_served()
    created = running.ask(CONFIGS, 'POST', CONFIG)
    kubeconfig = running.kubeconfig.read_text()
    running.end(signal.SIGKILL)

    running = start(*args).wait_until_served()

    assert running.ask(f'{CONFIGS}/cm') == created
    assert running.kubeconfig.read_text() == kubeconfig
    assert running.end() == (0, f'The sandbox is saved to {tmp_path / "saved"}.\n', '')


def test_second_signal_ends_at_once(start, tmp_path):
    """
    Whatever the command is busy with: here, with a webhook that takes a request and never answers.
    """
    with socket.create_server(('127.0.0.1', 0)) as webhook:
        webhook.settimeout(60)
        configuration = {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingWebhookConfiguration',
            'metadata': {'name': 'x'},
            'webhooks': [
                {
                    'name': 'stuck.kopf.dev',
                    'sideEffects': 'None',
                    'timeoutSeconds': 9,
                    'admissionReviewVersions': ['v1'],
                    'clientConfig': {'url': f'https://127.0.0.1:{webhook.getsockname()[1]}/'},
                    'rules': [
                        {
                            'operations': ['*'],
                            'apiGroups': [''],
                            'apiVersions': ['v1'],
                            'resources': ['configmaps'],
                        }
                    ],
                }
            ],
        }
        running = start(
            '--apply', '-', stdin=f'{json.dumps(configuration)}\n---\n{json.dumps(CONFIG)}'
        )
        connection, _ = webhook.accept()

        with connection:
            while not running.has_ended():
                running.process.send_signal(signal.SIGINT)

    assert running.process.returncode == 128 + signal.SIGINT
    assert list((tmp_path / 'temporary').iterdir()) == []


def test_signals_at_the_same_time_are_one_signal(start, tmp_path):
    running = start('--no-tls').wait_until_served()
    running.process.send_signal(signal.SIGTERM)

    assert running.end(signal.SIGINT) == (0, CLOSING, '')
    assert list((tmp_path / 'temporary').iterdir()) == []


def test_command_survives_hanging_up_if_it_is_told_to(start):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as ``nohup`` does
    running = start('--no-tls').wait_until_served()
    running.process.send_signal(signal.SIGHUP)

    assert running.ask('/version')
    assert running.end() == (0, CLOSING, '')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_command_is_stopped_also_before_it_serves(monkeypatch, number):
    previous = signal.getsignal(number)
    monkeypatch.setattr(manifests, 'read_manifests', lambda paths: signal.raise_signal(number))

    result = CliRunner().invoke(cli.main, ['sandbox', '--apply', 'x.yaml'])

    assert (result.exit_code, result.stdout, result.stderr) == (0, CLOSING, '')
    assert signal.getsignal(number) == previous


def test_command_is_stopped_also_while_it_starts(monkeypatch, tmp_path):
    monkeypatch.setattr(
        hosting.Host, '_write_files', lambda host: signal.raise_signal(signal.SIGINT)
    )

    result = CliRunner().invoke(
        cli.main, ['sandbox', '--no-tls', '--save', str(tmp_path / 'saved')]
    )

    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        f'The sandbox is saved to {tmp_path / "saved"}.\n',
        '',
    )


def test_nothing_heavy_is_loaded_before_the_signals_are_caught():
    program = 'import kopf._kits.commands.sandbox_command; import sys; print(*sys.modules)'

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True, cwd=ROOT
    )

    heavy = {'asyncio', 'aiohttp', 'yaml', 'cryptography', 'kopf._sandbox.hosting'}
    assert heavy & set(done.stdout.split()) == set()


def test_busy_port_is_refused(refuse):
    with socket.create_server(('127.0.0.1', 0)) as busy:
        port = busy.getsockname()[1]

        assert (
            refuse('--port', port)
            == f'Error: Cannot listen on 127.0.0.1:{port}: the port is busy.\n'
        )


def test_unknown_host_is_refused(refuse):
    assert refuse('--host', 'no.such.host.invalid').startswith(
        'Error: Cannot listen on no.such.host.invalid:0: '
    )


def test_host_of_others_is_refused(refuse):
    line = refuse('--host', '203.0.113.1')

    assert line.startswith('Error: Cannot listen on 203.0.113.1:0: ')
    assert 'Errno' not in line


@pytest.mark.parametrize(
    'text, message',
    [
        pytest.param('a: [', 'Error: {path} is not valid YAML or JSON: ', id='syntax'),
        pytest.param('[1]', 'Error: {path} must contain objects', id='not-objects'),
        pytest.param(
            'kind: ConfigMap', 'Error: An object in {path} has no apiVersion.', id='incomplete'
        ),
        pytest.param(
            '{"apiVersion": "v1", "kind": "Unknown", "metadata": {"name": "x"}}',
            "Error: Cannot apply 'x' from {path}: there is no kind Unknown in version v1.",
            id='kind',
        ),
        pytest.param(
            '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}',
            'Error: ConfigMap in {path} has no name: it cannot be applied.',
            id='no-name',
        ),
        pytest.param(
            '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Wrong"}}',
            'Error: {path}: ConfigMap "Wrong" is invalid: metadata.name: Invalid value: "Wrong": ',
            id='invalid',
        ),
        pytest.param(
            '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "nons"}}',
            'Error: {path}: ConfigMap "x": namespaces "nons" not found',
            id='refused',
        ),
    ],
)
def test_bad_manifests_are_refused_with_nothing_done(refuse, tmp_path, text, message):
    path = tmp_path / 'x.yaml'
    path.write_text(text)

    line = refuse(
        '--apply', path, '--kubeconfig', tmp_path / 'kubeconfig', '--save', tmp_path / 'saved'
    )

    assert line.startswith(message.format(path=path))
    assert sorted(tmp_path.iterdir()) == [path]


def test_bad_manifest_in_stdin_is_refused(refuse):
    assert refuse('--apply', '-', input='{').startswith(
        'Error: the standard input is not valid YAML or JSON: '
    )


def test_unreadable_manifest_is_refused(refuse, tmp_path):
    path = tmp_path / 'x.yaml'

    assert refuse('--apply', path) == f'Error: Cannot read {path}: No such file or directory\n'


def test_kubeconfig_of_others_is_never_overwritten(refuse, tmp_path):
    path = tmp_path / 'config'
    path.write_text('clusters: [{name: production}]')

    line = refuse('--kubeconfig', path)

    assert (
        line
        == f'Error: The file {path} is not of a sandbox, and will not be overwritten: choose another one.\n'
    )
    assert path.read_text() == 'clusters: [{name: production}]'


def test_unwritable_kubeconfig_is_refused_with_nothing_done(refuse, tmp_path):
    path = tmp_path / 'nowhere' / 'config'

    line = refuse('--kubeconfig', path, '--save', tmp_path / 'saved')

    assert (
        line
        == f'Error: Cannot write the kubeconfig to {path}: there is no directory {path.parent}.\n'
    )
    assert list(tmp_path.iterdir()) == []


def test_kubeconfig_where_no_files_can_be_made_is_refused(refuse):
    line = refuse('--kubeconfig', '/proc/kubeconfig')

    assert (
        line
        == 'Error: Cannot write the kubeconfig to /proc/kubeconfig: files cannot be made in /proc.\n'
    )


@pytest.mark.parametrize('option', ['--save', '--apply', '--kubeconfig'])
def test_empty_path_is_refused(refuse, option):
    assert refuse(option, '') == f'Error: The path in {option} is empty.\n'


def test_damaged_save_is_refused(refuse, tmp_path):
    (tmp_path / 'snapshot.jsonl').write_text('?')

    assert refuse('--save', tmp_path).startswith(
        f'Error: {tmp_path}/snapshot.jsonl is damaged in the line 1: '
    )


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'module, library, purpose',
    [
        pytest.param('cryptography', 'cryptography', 'its certificates', id='certificates'),
        pytest.param('re2', 'google-re2', 'the patterns of custom resources', id='patterns'),
    ],
)
def test_missing_library_is_told(refuse, monkeypatch, module, library, purpose):
    monkeypatch.setitem(sys.modules, module, None)

    assert refuse() == (
        f"Error: The sandbox needs the library '{library}' for {purpose}. "
        f'Install what it needs: pip install cryptography google-re2\n'
    )


@pytest.mark.parametrize(
    'content, is_refused',
    [
        pytest.param(None, False, id='absent'),
        pytest.param('', False, id='empty'),
        pytest.param(
            yaml.safe_dump(kubeconfigs.build_kubeconfig('https://x', b'ca', token='t')),
            False,
            id='ours',
        ),
        pytest.param('{}', True, id='no-clusters'),
        pytest.param('[', True, id='not-yaml'),
        pytest.param(
            yaml.safe_dump(
                {**kubeconfigs.build_kubeconfig('https://x', b''), 'clusters': [{'name': 'x'}]}
            ),
            True,
            id='shared',
        ),
        pytest.param(b'\xff\xff', True, id='binary'),
    ],
)
def test_only_our_own_kubeconfigs_are_replaced(tmp_path, content, is_refused):
    path = tmp_path / 'config'
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(FileExistsError) if is_refused else contextlib.nullcontext():
        kubeconfigs.check_replaceable(path)


def test_wrong_usage_is_explained():
    result = CliRunner().invoke(sandbox_command.sandbox, ['--port', '99999999'])

    assert result.exit_code == 2
    assert "Invalid value for '--port'" in result.stderr
