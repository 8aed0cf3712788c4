"""
The command ``kopf run``: what it accepts, what it refuses, and what it says of failures.
"""

import logging
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import click
import pytest
from click.testing import CliRunner
from command_calls import CREATING, invoke, write

import kopf
from kopf import cli

ROOT = pathlib.Path(kopf.__file__).parent.parent


@pytest.fixture
def parse(monkeypatch):
    """Get the options of the command as the users' code sees them; nothing is run then."""
    path = write(
        'probe.py', 'import click, sys\nsys.seen = click.get_current_context().params\nsys.exit(0)'
    )

    def parse(*args, env=None):
        monkeypatch.setattr(sys, 'seen', None, raising=False)
        result = invoke(*args, path, env=env)
        assert result.exit_code == 0, result.output
        return sys.seen

    return parse


@pytest.mark.guarantee('CLI-001')
def test_help_is_shown():
    result = invoke('--help', prog_name='kopf')

    assert result.exit_code == 0
    assert result.output.startswith('Usage: kopf run [OPTIONS] [PATHS]...\n')
    for option in (
        '--all-namespaces',
        '--namespace',
        '--standalone',
        '--dev',
        '--liveness',
        '--peering',
        '--priority',
        '--module',
        '--verbose',
        '--debug',
        '--quiet',
        '--log-format',
        '--log-refkey',
        '--log-prefix',
    ):
        assert option in result.output


@pytest.mark.guarantee('WLD-002')
def test_defaults_are_as_declared(parse):
    seen = parse()

    assert {
        name: seen[name]
        for name in (
            'verbose',
            'debug',
            'quiet',
            'log_format',
            'log_refkey',
            'log_prefix',
            'clusterwide',
            'namespaces',
            'standalone',
            'dev',
            'liveness_endpoint',
            'peering_name',
            'priority',
            'modules',
        )
    } == {
        'verbose': False,
        'debug': False,
        'quiet': False,
        'log_format': kopf.LogFormat.FULL,
        'log_refkey': None,
        'log_prefix': None,
        'clusterwide': False,
        'namespaces': (),
        'standalone': None,
        'dev': False,
        'liveness_endpoint': None,
        'peering_name': None,
        'priority': None,
        'modules': (),
    }


@pytest.mark.guarantee(
    'WLD-002', 'NEW-242', 'CLI-009', 'CLI-010', 'CLI-014', 'CLI-015', 'CLI-016', 'CLI-017'
)
@pytest.mark.parametrize(
    'args, name, value',
    [
        (['-v'], 'verbose', True),
        (['--verbose'], 'verbose', True),
        (['-d'], 'debug', True),
        (['--debug'], 'debug', True),
        (['-q'], 'quiet', True),
        (['--quiet'], 'quiet', True),
        (['--log-format=plain'], 'log_format', kopf.LogFormat.PLAIN),
        (['--log-format', 'full'], 'log_format', kopf.LogFormat.FULL),
        (['--log-format', 'json'], 'log_format', kopf.LogFormat.JSON),
        (['--log-refkey=key'], 'log_refkey', 'key'),
        (['--log-prefix'], 'log_prefix', True),
        (['--no-log-prefix'], 'log_prefix', False),
        (['-A'], 'clusterwide', True),
        (['--all-namespaces'], 'clusterwide', True),
        (['-n', 'ns'], 'namespaces', ('ns',)),
        (['-n', 'ns1', '--namespace=ns2'], 'namespaces', ('ns1', 'ns2')),
        (['--standalone'], 'standalone', True),
        (['-L', 'http://:8080/'], 'liveness_endpoint', 'http://:8080/'),
        (['--liveness=http://:8080/'], 'liveness_endpoint', 'http://:8080/'),
        (['-P', 'peering'], 'peering_name', 'peering'),
        (['--peering=peering'], 'peering_name', 'peering'),
        (['-p', '-5'], 'priority', -5),
        (['--priority=5'], 'priority', 5),
        (['-m', 'json', '--module=os.path'], 'modules', ('json', 'os.path')),
    ],
)
def test_options_are_seen_by_the_code_while_it_is_loaded(parse, args, name, value):
    assert parse(*args)[name] == value


@pytest.mark.guarantee('NEW-244', 'NEW-245')
@pytest.mark.parametrize(
    'variable, text, name, value',
    [
        ('VERBOSE', '1', 'verbose', True),
        ('VERBOSE', 'no', 'verbose', False),
        ('DEBUG', 'true', 'debug', True),
        ('QUIET', 'on', 'quiet', True),
        ('LOG_FORMAT', 'json', 'log_format', kopf.LogFormat.JSON),
        ('LOG_REFKEY', 'key', 'log_refkey', 'key'),
        ('LOG_PREFIX', '0', 'log_prefix', False),
        ('LOG_PREFIX', 'yes', 'log_prefix', True),
        ('CLUSTERWIDE', '1', 'clusterwide', True),
        ('NAMESPACES', 'ns1  ns2', 'namespaces', ('ns1', 'ns2')),
        ('NAMESPACE', 'ns3', 'namespaces', ('ns3',)),
        ('NAMESPACE', '', 'namespaces', ()),
        ('STANDALONE', '1', 'standalone', True),
        ('DEV', '1', 'priority', 666),
        ('LIVENESS_ENDPOINT', 'http://:8080/', 'liveness_endpoint', 'http://:8080/'),
        ('PEERING', 'peering', 'peering_name', 'peering'),
        ('PEERING_NAME', 'peering', 'peering_name', 'peering'),
        ('PRIORITY', '5', 'priority', 5),
        ('MODULES', 'json os.path', 'modules', ('json', 'os.path')),
    ],
)
def test_options_are_taken_from_the_environment(parse, variable, text, name, value):
    assert parse(env={f'KOPF_RUN_{variable}': text})[name] == value


@pytest.mark.guarantee('NEW-244')
@pytest.mark.parametrize(
    'args, env, name, value',
    [
        (['-p', '1'], {'KOPF_RUN_PRIORITY': '2'}, 'priority', 1),
        (['-n', 'ns1'], {'KOPF_RUN_NAMESPACES': 'ns2'}, 'namespaces', ('ns1',)),
        (['-P', 'one'], {'KOPF_RUN_PEERING': 'two'}, 'peering_name', 'one'),
        ([], {'KOPF_RUN_PEERING': 'one', 'KOPF_RUN_PEERING_NAME': 'two'}, 'peering_name', 'one'),
    ],
)
def test_more_specific_sources_win(parse, args, env, name, value):
    assert parse(*args, env=env)[name] == value


@pytest.mark.guarantee('NEW-245')
@pytest.mark.parametrize(
    'args, env, value',
    [
        (['-n', 'ns1'], {}, ('ns1', 'ns3')),
        (['-n', 'ns3'], {}, ('ns3',)),
        ([], {'KOPF_RUN_NAMESPACES': 'ns1 ns2'}, ('ns1', 'ns2', 'ns3')),
    ],
)
def test_namespace_of_the_environment_is_added_to_others(parse, args, env, value):
    assert parse(*args, env={'KOPF_RUN_NAMESPACE': 'ns3', **env})['namespaces'] == value


@pytest.mark.guarantee('WLD-018', 'CLI-018', 'NEW-246')
@pytest.mark.parametrize(
    'args, env, priority',
    [
        (['--dev'], {}, 666),
        (['--dev', '-p', '5'], {}, 666),
        (['-p', '5', '--dev'], {}, 666),
        (['--dev'], {'KOPF_RUN_PRIORITY': '5'}, 666),
        (['-p', '5'], {'KOPF_RUN_DEV': '1'}, 666),
        ([], {'KOPF_RUN_PRIORITY': '5'}, 5),
    ],
)
def test_developers_have_their_priority(parse, args, env, priority):
    assert parse(*args, env=env)['priority'] == priority


@pytest.mark.guarantee('CLI-024', 'NEW-013')  # of which the newer one wins
def test_log_formats_are_converted_with_no_public_type_for_it(parse):
    assert parse('--log-format', 'plain')['log_format'] is kopf.LogFormat.PLAIN
    assert not hasattr(cli, 'LogFormatParamType')


@pytest.mark.guarantee('NEW-248', 'CLI-008')
@pytest.mark.parametrize('text', ['JSON', 'Json'])
def test_log_format_is_case_insensitive(parse, text):
    assert parse('--log-format', text)['log_format'] is kopf.LogFormat.JSON


@pytest.mark.guarantee('NEW-247', 'NEW-248', 'CLI-008')
@pytest.mark.parametrize(
    'args, env, message',
    [
        (['-A', '-n', 'ns'], {}, 'Either --all-namespaces or --namespace can be used, not both'),
        (
            ['-A'],
            {'KOPF_RUN_NAMESPACE': 'ns'},
            'Either --all-namespaces or --namespace can be used, not both',
        ),
        (['--log-format=xml'], {}, "'xml' is not one of 'plain', 'full', 'json'"),
        (['--priority=high'], {}, "'high' is not a valid integer"),
        (['--unknown'], {}, 'No such option'),
        (['--apply=x.yaml'], {}, '--apply is only for --sandbox'),
    ],
)
def test_wrong_usage_is_refused(args, env, message):
    result = invoke(*args, env=env)

    assert result.exit_code == 2
    assert result.stdout == ''
    assert result.stderr.splitlines()[-1].startswith('Error: ')
    assert message in result.stderr.splitlines()[-1]


@pytest.mark.guarantee('FND-026')
@pytest.mark.parametrize(
    'args, message',
    [
        pytest.param(['absent.py'], "There is no file 'absent.py'.", id='file'),
        pytest.param(['-m', 'absent'], "There is no module 'absent'.", id='module'),
        pytest.param(
            ['.'],
            "'.' is a directory, not a file. Packages are loaded by names: -m package.",
            id='directory',
        ),
    ],
)
def test_absence_of_the_operator_is_told_in_one_line(args, message):
    result = invoke('-A', *args)

    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.splitlines() == [f'Error: {message}']


@pytest.mark.guarantee('LOD-005')
def test_error_in_a_file_is_shown_as_it_is():
    write('good.py', "import sys\nsys.stdout.write('good')")
    write('broken.py', "def fail():\n    raise ValueError('boo!')\n\nfail()\n")

    result = invoke('-A', 'good.py', 'broken.py')

    assert (result.exit_code, result.stdout) == (1, 'good')
    assert re.sub(r'\s*[~^]+\n', '\n', result.stderr) == textwrap.dedent(f"""\
        Traceback (most recent call last):
          File "{os.getcwd()}/broken.py", line 4, in <module>
            fail()
          File "{os.getcwd()}/broken.py", line 2, in fail
            raise ValueError('boo!')
        ValueError: boo!
    """)


def test_error_in_a_file_is_the_cause_for_those_who_call_the_command_from_code():
    write('broken.py', "raise ValueError('boo!')")

    with pytest.raises(click.ClickException) as caught:
        cli.main(['run', '-A', 'broken.py'], standalone_mode=False)

    assert isinstance(caught.value.__cause__, ValueError)


def test_file_can_exit_as_it_wants():
    write('exiting.py', 'raise SystemExit(123)')

    assert invoke('-A', 'exiting.py').exit_code == 123


@pytest.mark.guarantee('NEW-267')
def test_failure_of_the_login_is_told_without_a_traceback():
    path = write(
        'handlers.py',
        """
        import kopf

        @kopf.on.login()
        def login(**_):
            raise kopf.PermanentError("the door is closed")
    """,
        CREATING,
    )

    result = invoke('-A', path)

    assert (result.exit_code, result.stdout) == (1, '')
    assert (
        'Error: Cannot log in to the cluster. Tried:\n  login: the door is closed\n'
        in result.stderr
    )
    assert 'Traceback' not in result.stderr


def test_failure_of_the_startup_is_told_without_a_traceback():
    path = write(
        'handlers.py',
        """
        import kopf

        @kopf.on.startup()
        def startup(**_):
            raise kopf.PermanentError("no way")
    """,
    )

    result = invoke('-A', path)

    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.splitlines()[-1] == (
        "Error: The startup of the operator has failed in its handlers: 'startup': no way"
    )
    assert 'Traceback' not in result.stderr


@pytest.mark.parametrize(
    'startup',
    [
        pytest.param('', id='when-loaded'),
        pytest.param('@kopf.on.startup()\ndef startup(settings): ...', id='after-startup'),
    ],
)
def test_function_that_can_never_be_called_is_told_in_one_line_with_its_place(startup):
    path = write(
        'handlers.py',
        'import kopf',
        startup,
        "@kopf.on.create('kopfexamples')",
        'def create_fn(nme, **_): ...',
    )

    result = invoke('-A', path)

    line = len(pathlib.Path(path).read_text().splitlines()) - 1
    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.splitlines()[-1].startswith(
        f"Error: {os.path.abspath(path)}:{line}: create_fn() requires 'nme', which it never gets. "
        f"Did you mean 'name'? Handlers of changes get: param, retry, "
    )
    assert 'Traceback' not in result.stderr


def test_wrong_settings_are_told_without_a_traceback():
    path = write(
        'handlers.py',
        """
        import kopf

        @kopf.on.startup()
        def startup(settings, **_):
            settings.queueing.worker_limit = 'many'
    """,
    )

    result = invoke('-A', path)

    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.splitlines()[-1].startswith('Error: Some settings are wrong: ')
    assert 'Traceback' not in result.stderr


def test_other_errors_are_shown_in_full():
    """
    They come out as they are, so that the interpreter shows them, and those who call the command
    can catch them.
    """
    result = invoke('-A', write('handlers.py', ''), obj=cli.CLIControls(stop_flag='not a flag'))

    assert result.exit_code == 1
    assert isinstance(result.exception, TypeError)


@pytest.mark.guarantee('CLI-019')
def test_logging_options_suit_other_commands(monkeypatch):
    @click.command
    @click.option('--size')
    @cli.logging_options
    @click.argument('name')
    def command(**kwargs):
        logging.getLogger('any').info('Got %s', kwargs)

    result = CliRunner().invoke(command, ['--size=1', '--log-format=plain', 'x'])

    assert result.stderr == "Got {'size': '1', 'name': 'x'}\n"


@pytest.mark.guarantee('CLI-023')
def test_controls_are_empty_by_default():
    assert vars(cli.CLIControls()) == dict.fromkeys(
        ['ready_flag', 'stop_flag', 'vault', 'registry', 'settings', 'loop']
    )


def test_command_is_loaded_with_no_heavy_libraries():
    program = 'from kopf._kits.commands import runs; import sys; print(*sys.modules)'

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert {'asyncio', 'aiohttp', 'yaml', 'ssl', 'pythonjsonlogger'} & set(
        done.stdout.split()
    ) == set()
