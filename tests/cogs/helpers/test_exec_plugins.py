"""Exec plugins are run as kubectl runs them, and their failures are explained."""

import datetime
import json
import os
import stat
import sys
import time

import pytest

from kopf._cogs.helpers import execs

V1 = 'client.authentication.k8s.io/v1'
V1BETA1 = 'client.authentication.k8s.io/v1beta1'
CLUSTER = {'server': 'https://localhost:6443', 'config': {'audience': 'me'}}


@pytest.fixture
def make_program(tmp_path):
    """Make an executable program; in its text, ``info`` is what it is told in its environment."""

    def make_program(body: str, name: str = 'plugin') -> str:
        path = tmp_path / name
        path.write_text(
            f'#!{sys.executable}\nimport json, os, sys, time\n'
            f'info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])\n{body}\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make_program


@pytest.fixture
def make_printer(make_program):
    """Make a program that prints something, whatever it is told."""

    def make_printer(output: object) -> str:
        text = output if isinstance(output, str) else json.dumps(output)
        return make_program(f'print({text!r})')

    return make_printer


def run(plugin: execs.Plugin, **kwargs) -> execs.Issued:
    return execs.run_plugin(plugin, CLUSTER, **{'environ': os.environ, 'terminal': False, **kwargs})


def respond(version: str = V1, **status: object) -> dict[str, object]:
    return {'apiVersion': version, 'kind': 'ExecCredential', 'status': status}


@pytest.mark.parametrize('version', [V1, V1BETA1])
@pytest.mark.parametrize(
    'status, expected',
    [
        pytest.param({'token': 'T'}, execs.Issued('T'), id='token'),
        pytest.param(
            {'clientCertificateData': 'C', 'clientKeyData': 'K'},
            execs.Issued('', 'C', 'K'),
            id='certificate',
        ),
        pytest.param(
            {'token': 'T', 'clientCertificateData': 'C', 'clientKeyData': 'K'},
            execs.Issued('T', 'C', 'K'),
            id='both',
        ),
        pytest.param(
            {'token': 'T', 'expirationTimestamp': None}, execs.Issued('T'), id='no-expiration'
        ),
        pytest.param(
            {'token': 'T', 'expirationTimestamp': '2030-01-02T03:04:05Z'},
            execs.Issued(
                'T', expiration=datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
            ),
            id='expiration',
        ),
        pytest.param(
            {'token': 'T', 'expirationTimestamp': '2030-01-02T05:04:05.123456789+02:00'},
            execs.Issued(
                'T', expiration=datetime.datetime(2030, 1, 2, 3, 4, 5, 123456, tzinfo=datetime.UTC)
            ),
            id='expiration-elsewhere',
        ),
    ],
)
def test_credentials_are_taken_from_the_response(make_printer, version, status, expected):
    plugin = execs.Plugin(version, make_printer(respond(version, **status)))

    assert run(plugin) == expected


def test_program_gets_its_arguments_and_environment(make_program):
    command = make_program(
        "status = {'token': '|'.join([*sys.argv[1:], os.environ['OWN'], os.environ['OUTER']])}\n"
        "print(json.dumps({**info, 'status': status}))"
    )
    plugin = execs.Plugin(V1, command, ('a', 'b c'), {'OWN': 'own'})

    issued = run(plugin, environ={**os.environ, 'OWN': 'overridden', 'OUTER': 'outer'})

    assert issued.token == 'a|b c|own|outer'


@pytest.mark.parametrize('version', [V1, V1BETA1])
@pytest.mark.parametrize(
    'asks, expected',
    [
        pytest.param(False, {'interactive': False}, id='not-asked'),
        pytest.param(True, {'interactive': False, 'cluster': CLUSTER}, id='asked'),
    ],
)
def test_program_is_told_of_the_cluster_only_if_it_asks(make_program, version, asks, expected):
    command = make_program("print(json.dumps({**info, 'status': {'token': json.dumps(info)}}))")
    plugin = execs.Plugin(version, command, provide_cluster_info=asks)

    issued = run(plugin)

    assert json.loads(issued.token) == {
        'apiVersion': version,
        'kind': 'ExecCredential',
        'spec': expected,
    }


@pytest.mark.parametrize(
    'mode, terminal, expected',
    [
        ('Never', True, False),
        ('Never', False, False),
        ('IfAvailable', True, True),
        ('IfAvailable', False, False),
        ('Always', True, True),
    ],
)
def test_program_is_interactive_if_it_may_and_there_is_a_terminal(
    make_program, mode, terminal, expected
):
    command = make_program(
        "print(json.dumps({**info, 'status': {'token': str(info['spec']['interactive'])}}))"
    )
    plugin = execs.Plugin(V1, command, interactive_mode=mode)

    issued = run(plugin, terminal=terminal)

    assert issued.token == str(expected)


def test_program_that_needs_a_terminal_is_not_run_without_it(make_printer):
    plugin = execs.Plugin(V1, make_printer(respond(token='T')), interactive_mode='Always')

    with pytest.raises(execs.PluginError, match='needs a terminal, and there is none'):
        run(plugin)


def test_program_without_a_terminal_has_nothing_to_read(make_program):
    command = make_program(
        "print(json.dumps({**info, 'status': {'token': f'<{sys.stdin.read()}>'}}))"
    )

    issued = run(execs.Plugin(V1, command))

    assert issued.token == '<>'


def test_program_is_found_by_its_name(make_printer, tmp_path):
    make_printer(respond(token='T'))

    issued = run(execs.Plugin(V1, 'plugin'), environ={'PATH': str(tmp_path)})

    assert issued.token == 'T'


@pytest.mark.parametrize(
    'command, message',
    [
        pytest.param(
            'no-such-plugin',
            "'no-such-plugin' is not found: check that it is in the PATH",
            id='name',
        ),
        pytest.param(
            '/no/such/plugin', "'/no/such/plugin' is not found: check that it exists", id='path'
        ),
    ],
)
def test_absent_program_is_explained_with_its_hint(command, message):
    plugin = execs.Plugin(V1, command, install_hint='Install it from\nhttps://example.com')

    with pytest.raises(
        execs.PluginError, match=message + '.*\n.*Install it from\nhttps://example.com'
    ):
        run(plugin)


@pytest.mark.parametrize(
    'plugin, message',
    [
        pytest.param(execs.Plugin(V1, ''), 'has no command', id='command'),
        pytest.param(
            execs.Plugin('client.authentication.k8s.io/v1alpha1', 'x'),
            "has the apiVersion '.*/v1alpha1'; supp",
            id='version',
        ),
        pytest.param(
            execs.Plugin(V1, 'x', interactive_mode='Sometimes'),
            "has the interactiveMode 'Sometimes'; supported",
            id='mode',
        ),
    ],
)
def test_wrong_plugins_are_refused(plugin, message):
    with pytest.raises(execs.PluginError, match=message):
        run(plugin)


@pytest.mark.parametrize(
    'output, message',
    [
        pytest.param('s3cret', 'which is not JSON', id='not-json'),
        pytest.param('', 'which is not JSON', id='empty'),
        pytest.param(['s3cret'], 'which is not an ExecCredential', id='list'),
        pytest.param({'kind': 's3cret'}, 'which is not an ExecCredential', id='kind'),
        pytest.param(
            respond(V1BETA1, token='s3cret'),
            f'of another apiVersion than the asked {V1}',
            id='version',
        ),
        pytest.param({'apiVersion': V1, 'kind': 'ExecCredential'}, 'with no status', id='status'),
        pytest.param(respond(), 'with neither token nor clientCertificateData', id='nothing'),
        pytest.param(respond(token=['s3cret']), 'with something else than strings', id='types'),
        pytest.param(
            respond(clientKeyData='s3cret'),
            'with only one of clientCertificateData and clientKeyData',
            id='key',
        ),
        pytest.param(respond(clientCertificateData='s3cret'), 'with only one of', id='certificate'),
        pytest.param(
            respond(token='s3cret', expirationTimestamp='tomorrow'),
            'expirationTimestamp',
            id='expiration',
        ),
    ],
)
def test_wrong_responses_are_explained_and_not_quoted(make_printer, output, message):
    plugin = execs.Plugin(V1, make_printer(output))

    with pytest.raises(execs.PluginError, match=message) as caught:
        run(plugin)

    assert plugin.command in str(caught.value)
    assert 's3cret' not in f'{caught.value} {caught.value.__cause__}'


@pytest.mark.guarantee('FND-060')
def test_failure_is_explained_in_the_words_of_the_program_only_for_debugging(make_program, caplog):
    caplog.set_level('DEBUG')
    plugin = execs.Plugin(V1, make_program("sys.exit('Wrong password: s3cret')"))

    with pytest.raises(
        execs.PluginError, match=r'failed with the code 1\. It has complained: run it'
    ) as caught:
        run(plugin)

    assert 's3cret' not in f'{caught.value!r} {caught.value}'
    assert [record.levelname for record in caplog.records if 's3cret' in record.getMessage()] == [
        'DEBUG'
    ]


def test_silent_failure_is_explained(make_program):
    plugin = execs.Plugin(V1, make_program('sys.exit(42)'))

    with pytest.raises(execs.PluginError, match=r'failed with the code 42\.$'):
        run(plugin)


def test_program_that_does_not_start_is_explained(tmp_path):
    path = tmp_path / 'plugin'
    path.write_text('#!/no/such/interpreter\n')
    path.chmod(0o755)

    with pytest.raises(execs.PluginError, match='does not start'):
        run(execs.Plugin(V1, str(path)))


def test_hanging_program_is_killed_with_its_children(tmp_path):
    fifo, program = tmp_path / 'fifo', tmp_path / 'plugin'
    os.mkfifo(fifo)
    program.write_text(f'#!/bin/sh\nexec 3>{fifo}\necho started >&3\nsleep 100 &\nsleep 100\n')
    program.chmod(0o755)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    since = time.monotonic()

    with pytest.raises(execs.PluginError, match='has not finished in 2 seconds'):
        run(execs.Plugin(V1, str(program)), timeout=2)

    os.set_blocking(reader, True)
    with open(reader, 'rb') as file:
        assert file.read() == b'started\n'  # until the last of the processes is gone
    assert time.monotonic() - since < 50


def test_secrets_are_not_represented():
    plugin = execs.Plugin(V1, 'command', ('--password=s3cret',), {'TOKEN': 's3cret'})
    issued = execs.Issued('s3cret', 's3cret', 's3cret')

    assert 's3cret' not in f'{plugin!r} {issued!r}'
