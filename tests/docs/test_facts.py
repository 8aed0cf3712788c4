"""
What the pages name exists: the options of the command with their variables, the settings, the
public names.
"""

import ast
import re

import click
import doc_blocks
import pytest

import kopf
import kopf.testing
from kopf import cli

SETTING = re.compile(r'settings\.(?P<section>[a-z]+)\.(?P<field>[a-z_]+)')


def read_page(page):
    return (doc_blocks.DOCS / page).with_suffix('.md').read_text()


def list_options(command):
    return [
        option
        for option in cli.SUBCOMMANDS[command].load().params
        if isinstance(option, click.Option)
    ]


@pytest.mark.parametrize('command', ['run', 'freeze', 'resume', 'crd'])
def test_all_options_of_the_command_are_explained(command):
    text = read_page('cli')
    named = set(re.findall(r'`(-{1,2}[a-zA-Z-]+)', text))

    options = {
        name for option in list_options(command) for name in [*option.opts, *option.secondary_opts]
    }

    assert options <= named


@pytest.mark.parametrize('command', ['run', 'freeze', 'resume', 'crd'])
def test_all_variables_of_the_command_are_explained(command):
    text = read_page('cli')
    prefix = f'KOPF_{command.upper()}_'
    own = {option.envvar or f'{prefix}{option.name.upper()}' for option in list_options(command)}
    common = {
        f'{prefix}{name}'
        for name in ('VERBOSE', 'DEBUG', 'QUIET', 'LOG_FORMAT', 'LOG_PREFIX', 'LOG_REFKEY')
    }

    missing = own - set(re.findall(r'KOPF_[A-Z_]+', text))

    assert missing <= (common if command != 'run' else set())
    assert f'`{prefix}`' in text


@pytest.mark.filterwarnings('ignore:.*is deprecated')
@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_settings_that_are_named_exist(page):
    settings = kopf.OperatorSettings()
    named = {match.groups() for match in SETTING.finditer(read_page(page))}

    unknown = [names for names in named if not hasattr(getattr(settings, names[0], None), names[1])]

    assert unknown == []


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_names_of_the_package_that_are_used_in_code_exist(page):
    trees = [ast.parse(block.code) for block in doc_blocks.read_blocks(page, 'python')]
    used = {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == 'kopf'
    }

    assert [name for name in sorted(used) if not hasattr(kopf, name)] == []
