"""
What type checkers know of typed resources: the examples pass their strictest checks, and the types
inside of handlers are those of the classes.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

import kopf

ROOT = pathlib.Path(kopf.__file__).parent.parent
EXAMPLE = ROOT / 'examples' / '20-typed' / 'example.py'

REVEALED = """
    @kopf.on.resume(Database)
    def revealed(spec: DatabaseSpec, obj: Database, patch: kopf.Patch, **_: Any) -> None:
        reveal_type(spec.engine)
        reveal_type(spec.backup)
        reveal_type(obj.spec.replicas)
        reveal_type(obj.status)
        reveal_type(obj.metadata.name)
        reveal_type(Database)
        reveal_type(deploy)
"""
TYPES = [
    r"Literal\['postgres'",
    r'Backup( \||, None|$)',
    r'int',
    r'DatabaseStatus( \||, None|$)',
    r'str( \||, None|$)',
    r'Database\b',
    r'DatabaseSpec.*Coroutine',
]

pytestmark = pytest.mark.slow


@pytest.fixture
def revealing(tmp_path):
    """The code of the example, with a handler that reveals its types."""
    path = tmp_path / 'revealing.py'
    path.write_text(EXAMPLE.read_text() + textwrap.dedent(REVEALED))
    return path


def run(*command):
    env = {**os.environ, 'MYPYPATH': str(ROOT), 'PYTHONPATH': str(ROOT)}
    return subprocess.run(
        [*map(str, command)], capture_output=True, text=True, cwd=ROOT, env=env, check=False
    )


def run_mypy(path, tmp_path):
    if importlib.util.find_spec('mypy') is None:
        pytest.skip('It needs mypy.')
    cache = f'--cache-dir={tmp_path}/cache'
    config = ('--config-file=', '--strict', '--python-version=3.11', cache)
    return run(sys.executable, '-m', 'mypy', *config, '--follow-imports=silent', path)


def run_pyright(path):
    pyright = shutil.which('pyright', path=pathlib.Path(sys.executable).parent)
    if pyright is None:
        pytest.skip('It needs pyright.')
    return json.loads(run(pyright, '--outputjson', path).stdout)


def clean(text):
    """Remove the modules from the names, and the notations of mypy."""
    return re.sub(r'\b[a-z_]\w*\.', '', text).replace('builtins.', '')


@pytest.mark.guarantee('TYP-016')
def test_mypy_knows_the_types_in_handlers(revealing, tmp_path):
    done = run_mypy(revealing, tmp_path)

    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert 'error:' not in done.stdout, done.stdout
    assert len(revealed) == len(TYPES), done.stdout + done.stderr
    for text, expected in zip(revealed, TYPES, strict=True):
        assert re.search(expected, clean(text)), text


@pytest.mark.guarantee('TYP-016')
def test_pyright_knows_the_types_in_handlers(revealing):
    report = run_pyright(revealing)

    found = [item['message'] for item in report['generalDiagnostics']]
    errors = [
        item['message'] for item in report['generalDiagnostics'] if item['severity'] == 'error'
    ]
    assert errors == []
    revealed = [text.partition(' is ')[2].strip('"') for text in found if 'Type of' in text]
    for text, expected in zip(revealed, TYPES, strict=True):
        assert re.search(expected, clean(text)), text


@pytest.mark.guarantee('TYP-016')
def test_mistakes_are_found_by_mypy(revealing, tmp_path):
    mistake = """
        @kopf.on.resume(Database)
        def mistaken(spec: DatabaseSpec, **_: Any) -> None:
            print(spec.replica)
            Database(spec=1)
    """
    revealing.write_text(EXAMPLE.read_text() + textwrap.dedent(mistake))
    done = run_mypy(revealing, tmp_path)

    assert '"DatabaseSpec" has no attribute "replica"' in done.stdout
    assert 'Argument "spec" to "Database" has incompatible type "int"' in done.stdout
