import pathlib
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import kopf
from kopf import cli


@pytest.mark.guarantee('NEW-243')
def test_version_is_shown():
    result = CliRunner().invoke(cli.main, ['--version'])

    assert result.exit_code == 0
    assert result.output == (
        f'kopf, version {kopf.__version__} (an API-compatible rebuild of Kopf 1.45.2)\n'
    )


def test_help_lists_all_subcommands_with_their_texts():
    result = CliRunner().invoke(cli.main, ['--help'])

    assert result.exit_code == 0
    for name, subcommand in cli.SUBCOMMANDS.items():
        assert re.search(rf'^  {name} +{re.escape(subcommand.help)}$', result.output, re.MULTILINE)


def test_unknown_subcommand_is_a_usage_error():
    result = CliRunner().invoke(cli.main, ['unknown'])

    assert result.exit_code == 2
    assert "No such command 'unknown'" in result.output


@pytest.mark.parametrize('name', sorted(cli.SUBCOMMANDS))
def test_every_subcommand_loads_and_shows_its_help(name):
    result = CliRunner().invoke(cli.main, [name, '--help'], prog_name='kopf')

    assert result.exit_code == 0
    assert result.output.startswith(f'Usage: kopf {name} ')


def test_subcommand_must_be_a_command():
    subcommand = cli.Subcommand('kopf', '__version__', help='Not a command.')

    with pytest.raises(TypeError, match=r'kopf\.__version__ is not a command'):
        subcommand.load()


def test_subcommands_take_their_options_from_the_environment(monkeypatch):
    @click.command
    @click.option('--size', type=int)
    def measure(size):
        click.echo(f'size={size}')

    monkeypatch.setattr(kopf, 'measure', measure, raising=False)
    monkeypatch.setattr(
        cli.main, 'subcommands', {'measure': cli.Subcommand('kopf', 'measure', help='Measure.')}
    )

    result = CliRunner().invoke(cli.main, ['measure'], env={'KOPF_MEASURE_SIZE': '123'})

    assert result.output == 'size=123\n'


@pytest.mark.guarantee('NEW-005')
@pytest.mark.parametrize('args', [['--version'], ['--help'], ['unknown']])
def test_script_and_module_are_the_same(args):
    script = pathlib.Path(sys.executable).with_name('kopf')

    by_script = subprocess.run([script, *args], capture_output=True, text=True)
    by_module = subprocess.run(
        [sys.executable, '-m', 'kopf', *args], capture_output=True, text=True
    )

    assert (by_script.stdout, by_script.stderr, by_script.returncode) == (
        by_module.stdout,
        by_module.stderr,
        by_module.returncode,
    )
