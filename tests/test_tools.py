"""
The tools of the repository: what the counter of branches counts, and how it fails.
"""

import ast
import importlib.util
import pathlib
import subprocess
import sys
import textwrap

import pytest

COUNTER = pathlib.Path(__file__).resolve().parents[1] / 'tools' / 'count_branches.py'


def load_module(path):
    spec = importlib.util.spec_from_file_location(f'tool_{path.stem}', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


count_branches = load_module(COUNTER)


def run_counter(*args):
    return subprocess.run(
        [sys.executable, COUNTER, *args], capture_output=True, text=True, timeout=60, check=False
    )


def parse_function(body):
    return ast.parse('async def fn():\n' + textwrap.indent(textwrap.dedent(body), '    ')).body[0]


def write_function(path, name, branches):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'\n\ndef {name}():\n' + '    if x: y\n' * branches + '    return z\n')


@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param('return x', 0, id='straight'),
        pytest.param('if x: y', 1, id='if'),
        pytest.param('if x: y\nelse: z', 1, id='else-is-free'),
        pytest.param('if x: y\nelif z: w\nelse: v', 2, id='elif'),
        pytest.param('return x and y', 1, id='and'),
        pytest.param('return x or y or z', 2, id='or-of-three'),
        pytest.param('return x and y or z', 2, id='and-inside-of-or'),
        pytest.param('if x and not y: z', 2, id='if-with-and'),
        pytest.param('return x if y else z', 1, id='ternary'),
        pytest.param('for x in y: z', 1, id='for'),
        pytest.param('async for x in y: z', 1, id='async-for'),
        pytest.param('while x: y', 1, id='while'),
        pytest.param('with x: y', 0, id='with-is-free'),
        pytest.param('return [x for x in y]', 0, id='comprehension-is-free'),
        pytest.param('return [x for x in y if x]', 1, id='filter'),
        pytest.param('return {x for x in y if x if z for w in x if w}', 3, id='many-filters'),
        pytest.param('return {x: y for x, y in z if x or y}', 2, id='filter-with-or'),
        pytest.param('try: x\nfinally: y', 0, id='finally-is-free'),
        pytest.param('try: x\nexcept A: y\nexcept B: z', 2, id='except'),
        pytest.param('match x:\n    case 1: y\n    case _: z', 2, id='cases'),
        pytest.param('match x:\n    case 1 | 2: y', 1, id='alternatives-of-a-case-are-free'),
        pytest.param('def inner():\n    if x: y\nif z: inner()', 2, id='nested-function'),
        pytest.param('return lambda x: x or y', 1, id='lambda'),
    ],
)
def test_branches_are_counted_wherever_they_stand(body, expected):
    count = count_branches.count_branches(parse_function(body))

    assert count == expected


def test_functions_are_found_in_classes_and_in_other_functions(tmp_path):
    path = tmp_path / 'module.py'
    path.write_text('class A:\n    async def b(self):\n        def c(): pass\n\ndef d(): pass\n')

    functions = count_branches.find_functions(path)

    assert {function.name for function in functions} == {'b', 'c', 'd'}


def test_counter_fails_and_names_the_function_and_its_place(tmp_path):
    path = tmp_path / 'package' / 'module.py'
    write_function(path, 'decide_all', branches=13)
    write_function(path.with_name('other.py'), 'decide_some', branches=12)

    result = run_counter(tmp_path)

    assert result.returncode != 0
    assert result.stdout.splitlines() == [f'{path}:3: decide_all has 13 branches']
    assert '1 functions have more than 12 branches' in result.stderr


def test_counter_accepts_functions_up_to_the_limit(tmp_path):
    write_function(tmp_path / 'module.py', 'decide_some', branches=12)

    result = run_counter(tmp_path)

    assert (result.returncode, result.stdout, result.stderr) == (0, '', '')


def test_counter_takes_another_limit(tmp_path):
    write_function(tmp_path / 'module.py', 'decide_some', branches=4)

    result = run_counter(tmp_path, '--limit', '3')

    assert result.returncode != 0
    assert 'decide_some has 4 branches' in result.stdout


def test_counter_looks_into_every_given_tree(tmp_path):
    write_function(tmp_path / 'a' / 'module.py', 'first', branches=13)
    write_function(tmp_path / 'b' / 'module.py', 'second', branches=14)

    result = run_counter(tmp_path / 'a', tmp_path / 'b')

    assert [line.split()[1] for line in result.stdout.splitlines()] == ['first', 'second']
