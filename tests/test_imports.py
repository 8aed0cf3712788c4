"""
Imports are cheap: the heavy libraries come only when they are needed.
"""

import os
import pathlib
import subprocess
import sys

import pytest

import kopf

HEAVY = {
    'aiohttp',
    'click',
    'cryptography',
    'kubernetes',
    'prometheus_client',
    'pykube',
    'ssl',
    'yaml',
}


@pytest.mark.parametrize(
    'statement, allowed',
    [
        pytest.param('import kopf', set(), id='kopf'),
        pytest.param('import kopf; kopf.on.create', set(), id='decorators'),
        pytest.param(
            'import kopf; kopf.on.create("pods", labels={"x": kopf.PRESENT})(lambda **_: None)',
            set(),
            id='declarations',
        ),
        pytest.param(
            'import kopf; kopf.OperatorSettings, kopf.Body, kopf.Patch, kopf.Diff, kopf.lifecycles',
            set(),
            id='types',
        ),
        pytest.param('import kopf.cli', {'click'}, id='cli'),
        pytest.param(
            'import kopf.cli; kopf.cli.main(["--version"], standalone_mode=False)',
            {'click'},
            id='cli-version',
        ),
        pytest.param(
            'import kopf.cli; kopf.cli.main(["--help"], standalone_mode=False)',
            {'click'},
            id='cli-help',
        ),
    ],
)
def test_heavy_libraries_are_not_loaded(statement, allowed):
    program = f'{statement}\nimport sys; print("LOADED", *sys.modules)'

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )

    loaded = {name.partition('.')[0] for name in done.stdout.rpartition('LOADED')[2].split()}
    assert loaded & HEAVY <= allowed


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'kopf' has no attribute 'misspelt'"):
        kopf.misspelt  # noqa: B018


PROGRAM = """
import sys
import kopf

@kopf.on.login()
def login(**kwargs):  # not with the client libraries, which are used if they are there
    return kopf.login_with_kubeconfig(**kwargs)

@kopf.on.create('kopfexamples')
async def handle(**_):
    print('LOADED', *sys.modules, flush=True)
"""


def test_operators_load_nothing_heavy_either(kopf_sandbox, tmp_path):
    program = tmp_path / 'handlers.py'
    program.write_text(PROGRAM)
    kopf_sandbox.apply(pathlib.Path('examples/crd.yaml').read_text())
    kopf_sandbox.create(
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'name': 'one'},
            'spec': {},
        }
    )

    operator = subprocess.Popen(
        [sys.executable, '-m', 'kopf', 'run', '-A', str(program)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, 'KUBECONFIG': str(kopf_sandbox.kubeconfig)},
    )
    with operator:
        line = next(line for line in operator.stdout if line.startswith('LOADED'))
        operator.terminate()

    loaded = {name.partition('.')[0] for name in line.split()[1:]}
    assert 'ssl' in loaded
    assert loaded & (HEAVY | {'email', 'shutil', 'unicodedata'}) == {'click', 'ssl', 'yaml'}
