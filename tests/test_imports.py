"""
Imports are cheap: the heavy libraries come only when they are needed.
"""
import subprocess
import sys

import pytest

import kopf

HEAVY = {'aiohttp', 'click', 'cryptography', 'kubernetes', 'prometheus_client', 'pykube', 'ssl', 'yaml'}


@pytest.mark.parametrize('statement, allowed', [
    pytest.param('import kopf', set(), id='kopf'),
    pytest.param('import kopf; kopf.on.create', set(), id='decorators'),
    pytest.param('import kopf; kopf.on.create("pods", labels={"x": kopf.PRESENT})(id)', set(), id='declarations'),
    pytest.param('import kopf; kopf.OperatorSettings, kopf.Body, kopf.Patch, kopf.Diff, kopf.lifecycles',
                 set(), id='types'),
    pytest.param('import kopf.cli', {'click'}, id='cli'),
    pytest.param('import kopf.cli; kopf.cli.main(["--version"], standalone_mode=False)', {'click'}, id='cli-version'),
    pytest.param('import kopf.cli; kopf.cli.main(["--help"], standalone_mode=False)', {'click'}, id='cli-help'),
])
def test_heavy_libraries_are_not_loaded(statement, allowed):
    program = f'{statement}\nimport sys; print("LOADED", *sys.modules)'

    done = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)

    loaded = {name.partition('.')[0] for name in done.stdout.rpartition('LOADED')[2].split()}
    assert loaded & HEAVY <= allowed


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'kopf' has no attribute 'misspelt'"):
        kopf.misspelt  # noqa: B018
