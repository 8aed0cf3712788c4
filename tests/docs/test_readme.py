"""
The first page that everyone sees is true: its commands work as they are, and its pictures and
figures are real.
"""

import importlib
import json
import os
import re
import signal
import subprocess
import sys

import clones
import doc_blocks
import pytest

import kopf

README = doc_blocks.DOCS.parent / 'README.md'
PICTURE = doc_blocks.DOCS / 'pictures' / 'terminal.svg'
RESULTS = doc_blocks.DOCS / 'performance' / 'results.json'


@pytest.fixture
def terminal(monkeypatch):
    """The script that draws the terminals."""
    monkeypatch.syspath_prepend(str(doc_blocks.DOCS / 'tools'))
    yield importlib.import_module('terminal')
    sys.modules.pop('terminal', None)


@pytest.fixture
def blocks():
    return list(doc_blocks.parse_blocks(README.read_text()))


def find_block(blocks, beginning):
    (block,) = [block for block in blocks if block.code.startswith(beginning)]
    return block.code


@pytest.mark.slow
def test_first_minute_works_as_it_is_written(tmp_path, kubectl_path, blocks):
    clone = clones.make_clone(tmp_path / 'clone')
    clones.type_commands(find_block(blocks, 'python3 -m venv'), clone, clone)
    hello, commands = tmp_path / 'hello', clone / '.venv/bin'
    for name in ('handlers.py', 'test_handlers.py'):
        (hello / name).write_text(find_block(blocks, f'# {name}\n'))
    env = {**os.environ, 'PATH': os.pathsep.join([str(commands), os.environ['PATH']])}

    tested = subprocess.run(
        ['bash', '-c', find_block(blocks, 'pytest')],
        cwd=hello,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = run_and_greet(find_block(blocks, 'kopf run'), blocks, hello, env, kubectl_path)

    assert clones.read_origin(clone / '.venv') == (kopf.__version__, clone.as_uri())
    assert '1 passed' in tested.stdout, tested.stdout
    assert 'Hello, world!' in said
    assert 'Traceback' not in said


def run_and_greet(command, blocks, directory, env, kubectl_path):
    """
    Run the operator, create an object in another terminal, press Ctrl-C; return all that was
    printed.
    """
    process = subprocess.Popen(
        command.split(),
        cwd=directory,
        env=env,
        text=True,
        bufsize=1,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        said = read_until(process, 'peering')
        kubeconfig = re.search(r'KUBECONFIG=(\S+)', said)[1]
        create = find_block(blocks, 'kubectl create').split()[1:]
        subprocess.run([kubectl_path, *create], env={**env, 'KUBECONFIG': kubeconfig}, check=True)
        said += read_until(process, 'Hello')
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said + rest
    return said + rest


def read_until(process, text):
    said = ''
    while text not in said:
        line = process.stdout.readline()
        assert line, said
        said += line
    return said


@pytest.mark.slow
def test_terminals_show_a_real_run(tmp_path, kubectl_path, terminal):
    drawn = terminal.draw(terminal.record(str(kubectl_path), tmp_path))

    shown, expected = map(terminal.read_rows, (PICTURE.read_text(), drawn))
    assert terminal.normalize(shown) == terminal.normalize(expected), (
        f'Draw it again: python docs/tools/terminal.py --kubectl {kubectl_path}'
    )


def test_terminals_are_of_the_commands_of_the_readme(terminal):
    _, run, create = terminal.read_commands(README.read_text())
    shown = terminal.read_rows(PICTURE.read_text())

    assert f'$ {run}\n' in shown
    assert f'$ {create}\n' in shown
    assert 'Hello, world!' in shown


def test_operator_has_six_lines_and_its_test_has_five(blocks):
    operator, test = (
        [line for line in block.code.splitlines() if line and not line.startswith('#')]
        for block in blocks
        if block.language == 'python'
    )

    assert len(operator) <= 6
    assert len(test) <= 5


def test_figures_are_those_of_the_benchmark():
    figures = json.loads(RESULTS.read_text())['lifecycle']['figures']
    cells = re.search(r'^\| The benchmark above \|(.*)\|$', README.read_text(), re.MULTILINE)[1]

    for cell, subject in zip(cells.split('|'), ('kopf', 'reference', 'go'), strict=True):
        seconds, megabytes = re.match(r' ([\d.]+) s, (\d+) MB', cell).groups()
        rounds = figures[subject]
        assert f'{median(rounds["in all, CPU s"]):.1f}' == seconds
        assert f'{median(rounds["peak RSS MB"]):.0f}' == megabytes


def median(values):
    return sorted(values)[len(values) // 2]
