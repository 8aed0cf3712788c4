"""
The command ``kopf crd``, and the installation of definitions by ``kopf run``.
"""

import sys

import pytest
import yaml
from click.testing import CliRunner
from command_calls import write

import kopf.testing
from kopf import cli
from kopf._cogs.codecs import conversions

CODE = """
    import dataclasses
    from typing import Annotated, Literal
    import kopf

    @dataclasses.dataclass
    class Spec:
        engine: Literal['postgres', 'mysql']
        size: Annotated[int, kopf.Schema(ge=0)] = 1

    @kopf.crd('commands.kopf.dev/v1', plural='databases')
    class Database:
        spec: Spec

    @kopf.on.create(Database)
    def create_fn(spec: Spec, name, **_):
        print(f'CREATED {name} of {spec.size}')
"""
NAME = 'databases.commands.kopf.dev'


def call(*args):
    return CliRunner().invoke(cli.main, ['crd', *map(str, args)])


@pytest.fixture
def handlers(tmp_path):
    return write(tmp_path / 'handlers.py', CODE)


@pytest.mark.guarantee('TYP-006')
def test_definitions_are_printed_the_same_each_time(handlers):
    first, second = call(handlers), call(handlers)

    assert first.exit_code == 0, first.output
    assert first.output == second.output
    body = yaml.safe_load(first.output)
    assert body['metadata'] == {'name': NAME}
    with kopf.testing.Sandbox(tls=False, apply=[body]) as sandbox:
        assert sandbox.list('databases') == []


@pytest.mark.parametrize('command', [['crd'], ['run', '--sandbox', '--install-crds']])
@pytest.mark.guarantee('TYP-006')
def test_classes_that_fit_no_api_are_refused_in_one_line(command, tmp_path):
    path = write(
        tmp_path / 'handlers.py', CODE.replace('engine: Literal', 'engine: complex | Literal')
    )

    result = CliRunner().invoke(cli.main, [*command, str(path)])

    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.startswith(f'Error: {path}:11: Spec.engine: ')
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize('command', [['crd'], ['run', '--sandbox', '--install-crds']])
@pytest.mark.guarantee('TYP-006')
def test_missing_library_is_told_in_one_line(command, handlers, monkeypatch):
    conversions._make_codec.cache_clear()
    monkeypatch.delitem(sys.modules, 'kopf._cogs.codecs.msgspec_codecs', raising=False)
    monkeypatch.delattr('kopf._cogs.codecs.msgspec_codecs', raising=False)
    monkeypatch.setitem(sys.modules, 'msgspec', None)

    result = CliRunner().invoke(cli.main, [*command, str(handlers)])

    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr == (
        f'Error: {handlers}:11: The class Spec needs the library msgspec, which is not installed. '
        'Install it (pip install msgspec), or make the class a model of pydantic.\n'
    )


@pytest.mark.guarantee('TYP-006')
def test_definitions_are_written_to_files_and_checked_against_them(handlers, tmp_path):
    written = call(handlers, '--output', tmp_path / 'out')
    checked = call(handlers, '--check', tmp_path / 'out')

    assert written.exit_code == checked.exit_code == 0, written.output + checked.output
    assert yaml.safe_load((tmp_path / 'out' / f'{NAME}.yaml').read_text())
    assert checked.output == f'{NAME}: compatible.\n'


@pytest.mark.guarantee('TYP-013')
def test_incompatible_changes_are_shown_as_a_table_and_fail(handlers, tmp_path):
    call(handlers, '--output', tmp_path / 'out')
    write(handlers, CODE.replace('ge=0)] = 1', 'ge=5)] = 6').replace(", 'mysql'", ''))
    checked = call(handlers, '--check', tmp_path / 'out')

    assert checked.exit_code == 1
    lines = [line.split() for line in checked.output.splitlines()]
    assert lines[0] == ['RESOURCE', 'VERSION', 'FIELD', 'CHANGE']
    assert [line[:3] for line in lines[1:3]] == [
        [NAME, 'v1', 'spec.engine'],
        [NAME, 'v1', 'spec.size'],
    ]
    assert '2 of the changes are incompatible' in checked.output


@pytest.mark.guarantee('TYP-013')
def test_definitions_are_checked_against_the_cluster(handlers, tmp_path, monkeypatch):
    with kopf.testing.Sandbox(tls=False) as sandbox:
        monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))
        new = call(handlers, '--cluster')
        sandbox.apply(yaml.safe_load(call(handlers).output))
        same = call(handlers, '--cluster')
        write(handlers, CODE.replace('size:', 'width:').replace('spec.size', 'spec.width'))
        changed = call(handlers, '--cluster')

    assert (new.exit_code, new.stdout) == (0, f'{NAME}: new.\n')
    assert (same.exit_code, same.stdout) == (0, f'{NAME}: compatible.\n')
    assert changed.exit_code == 1
    assert 'the field is removed' in changed.output


@pytest.mark.guarantee('TYP-006')
def test_code_without_classes_is_refused(tmp_path):
    empty = call(write(tmp_path / 'empty.py', 'import kopf'))

    assert empty.exit_code == 2
    assert 'There are no classes with @kopf.crd' in empty.output


@pytest.mark.guarantee('TYP-004')
def test_wrong_classes_are_shown_with_the_field(tmp_path):
    wrong = call(write(tmp_path / 'wrong.py', CODE.replace('= 1', '= 1\n        x: complex = 1j')))

    assert wrong.exit_code == 1
    assert 'Spec.x: complex does not exist in the API' in wrong.output


@pytest.mark.guarantee('TYP-006')
def test_definitions_that_the_api_refuses_are_not_printed(tmp_path):
    code = CODE.replace("plural='databases'", "plural='Data_bases'")
    refused = call(write(tmp_path / 'refused.py', code))

    assert refused.exit_code == 1
    assert 'apiVersion:' not in refused.output
    assert 'Data_bases' in refused.output


@pytest.mark.guarantee('TYP-014')
def test_operators_install_the_definitions_before_they_start(handlers, monkeypatch):
    with kopf.testing.Sandbox(tls=False) as sandbox:
        monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))
        runner = kopf.testing.KopfRunner(['run', '--install-crds', '-A', handlers])
        with runner:
            sandbox.wait('customresourcedefinitions', NAME, bool)
            sandbox.create(
                {
                    'apiVersion': 'commands.kopf.dev/v1',
                    'kind': 'Database',
                    'metadata': {'name': 'db'},
                    'spec': {'engine': 'mysql', 'size': 7},
                }
            )
            sandbox.wait('databases', 'db', lambda body: body['metadata'].get('annotations'))
        owners = [
            item['manager']
            for item in sandbox.get('customresourcedefinitions', NAME)['metadata']['managedFields']
        ]

    assert runner.exit_code == 0, runner.output
    assert 'CREATED db of 7' in runner.output
    assert 'kopf-crd' in owners


@pytest.mark.guarantee('TYP-014')
def test_installation_needs_classes(tmp_path):
    code = "import kopf\n@kopf.on.create('pods')\ndef fn(**_): ..."
    path = write(tmp_path / 'handlers.py', code)
    refused = CliRunner().invoke(cli.main, ['run', '-A', '--install-crds', path])

    assert refused.exit_code == 2
    assert '--install-crds: there are no classes' in refused.output
