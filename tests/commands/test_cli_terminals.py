"""
The command as a process on a terminal, and what it offers to the shells: colours and completions.
"""

import contextlib
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import pytest
from command_calls import write

from kopf import cli

KOPF = pathlib.Path(sys.executable).with_name('kopf')

FAILING = """
    import kopf, logging

    @kopf.on.startup()
    def startup_fn(**_):
        logging.getLogger('mine').warning('WARNED')
        raise kopf.PermanentError('over')
"""


def run_on_terminal(*args, **env):
    """Run the command with its standard error stream on a terminal; return what is shown there."""
    ours, theirs = pty.openpty()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, ours)
        process = stack.enter_context(
            subprocess.Popen(
                [KOPF, *args],
                stdout=subprocess.DEVNULL,
                stderr=theirs,
                env={
                    **{name: value for name, value in os.environ.items() if name != 'NO_COLOR'},
                    'TERM': 'xterm',
                    **env,
                },
            )
        )
        os.close(theirs)
        shown = b''
        with contextlib.suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 10000):
                shown += chunk
        assert process.wait(timeout=30) == 1
    return shown.decode().replace('\r\n', '\n')


@pytest.mark.parametrize(
    'args, env, expected',
    [
        pytest.param([], {}, '\033[33mWARNED\033[0m\n', id='by-default'),
        pytest.param([], {'NO_COLOR': '1'}, '\nWARNED\n', id='unwelcome'),
        pytest.param(['--log-format=json'], {}, '{"message": "WARNED", ', id='for-machines'),
    ],
)
def test_logs_are_coloured_on_terminals(args, env, expected):
    path = write('handlers.py', FAILING)

    shown = run_on_terminal('run', '-A', '--log-format=plain', *args, path, **env)

    assert expected in f'\n{shown}'
    assert ('\033' in shown) is ('\033' in expected)


def test_logs_are_not_coloured_elsewhere():
    path = write('handlers.py', FAILING)

    result = subprocess.run(
        [KOPF, 'run', '-A', '--log-format=plain', path],
        capture_output=True,
        text=True,
        env={**os.environ, 'TERM': 'xterm', 'FORCE_COLOR': '1'},
    )

    assert 'WARNED\n' in result.stderr
    assert '\033' not in result.stderr


def complete(*words, shell='bash'):
    """Ask the command as the shell does; return what it answers."""
    env = {
        '_KOPF_COMPLETE': f'{shell}_complete',
        'COMP_WORDS': ' '.join(words),
        'COMP_CWORD': words[-1] if shell == 'fish' else str(len(words) - 1),
    }
    result = subprocess.run(
        [KOPF], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    assert result.stderr == ''
    return result.stdout.splitlines()


@pytest.mark.parametrize(
    'words, expected',
    [
        pytest.param(
            ['kopf', ''], [f'plain,{name}' for name in sorted(cli.SUBCOMMANDS)], id='commands'
        ),
        pytest.param(['kopf', 'r'], ['plain,resume', 'plain,run'], id='some-commands'),
        pytest.param(
            ['kopf', 'run', '--log-format', ''],
            ['plain,plain', 'plain,full', 'plain,json'],
            id='choices',
        ),
        pytest.param(['kopf', 'run', '--name'], ['plain,--namespace'], id='options'),
        pytest.param(['kopf', 'freeze', '--li'], ['plain,--lifetime'], id='options-of-others'),
        pytest.param(['kopf', 'run', 'han'], ['file,han'], id='files'),
        pytest.param(['kopf', 'run', '--apply', 'crd'], ['file,crd'], id='manifests'),
    ],
)
def test_commands_and_options_are_completed(words, expected):
    assert complete(*words) == expected


@pytest.mark.parametrize('command', sorted(cli.SUBCOMMANDS))
def test_all_long_options_are_completed(command):
    shown = subprocess.run(
        [KOPF, command, '--help'], capture_output=True, text=True, check=True
    ).stdout
    options = set(re.findall(r'^  (?:-\w, )?(--[\w-]+)', shown, re.MULTILINE))

    assert options
    assert options <= {line.partition(',')[2] for line in complete('kopf', command, '--')}


@pytest.mark.parametrize(
    'shell, expected',
    [
        pytest.param('zsh', ['plain', 'run'], id='zsh'),
        pytest.param('fish', ['plain,run'], id='fish'),
    ],
)
def test_commands_are_completed_in_other_shells(shell, expected):
    lines = [line.partition('\t')[0] for line in complete('kopf', 'ru', shell=shell)]

    assert lines[: len(expected)] == expected


@pytest.mark.parametrize('shell', ['bash', 'zsh', 'fish'])
def test_help_tells_how_to_complete_in_each_shell(shell):
    shown = subprocess.run([KOPF, '--help'], capture_output=True, text=True, check=True).stdout
    source = subprocess.run(
        [KOPF],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, '_KOPF_COMPLETE': f'{shell}_source'},
    ).stdout

    assert f'_KOPF_COMPLETE={shell}_source kopf' in shown
    assert '_kopf_completion' in source
    assert f'_KOPF_COMPLETE={shell}_complete' in source


def test_completion_works_in_a_real_shell():
    bash = shutil.which('bash')
    assert bash is not None
    script = """
        eval "$(_KOPF_COMPLETE=bash_source kopf)"
        COMP_WORDS=(kopf run --log-format j) COMP_CWORD=3
        _kopf_completion kopf
        echo "${COMPREPLY[@]}"
    """
    result = subprocess.run(
        [bash, '-c', script],
        capture_output=True,
        text=True,
        env={**os.environ, 'PATH': f'{KOPF.parent}:{os.environ["PATH"]}'},
    )

    assert (result.stdout, result.stderr) == ('json\n', '')


@pytest.mark.parametrize(
    'words',
    [
        pytest.param(['kopf', ''], id='commands'),
        pytest.param(['kopf', 'run', '--'], id='options'),
    ],
)
def test_nothing_heavy_is_loaded_for_completions(words):
    script = (
        'import sys; from kopf import cli\n'
        "try: cli.main(prog_name='kopf')\n"
        "finally: sys.stderr.write(' '.join(sorted(set(sys.modules) & {'aiohttp', 'asyncio', 'yaml', 'ssl'})))"
    )
    env = {
        '_KOPF_COMPLETE': 'bash_complete',
        'COMP_WORDS': ' '.join(words),
        'COMP_CWORD': str(len(words) - 1),
    }

    result = subprocess.run(
        [sys.executable, '-c', script], capture_output=True, text=True, env={**os.environ, **env}
    )

    assert result.stdout
    assert result.stderr == ''
