"""
The guarantees: which tests cover which promises, by topic, as Markdown.

Tests name the promises in their marks: ``@pytest.mark.guarantee('HND-012')``, on functions, classes
or parameters, or for whole modules in ``pytestmark``. The tests are parsed, not imported, so
nothing has to be installed. The topics and the numbers of promises are in a separate file, so that
the promises without tests are visible, too.
"""

import ast
import collections
import pathlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping

ID = re.compile(r'([A-Z]{3})-(\d{3})')

Shown = Mapping[str, list[tuple[str, str]]]


def render(tests: pathlib.Path, topics: pathlib.Path) -> str:
    shown = collect(tests)
    titles = tomllib.loads(topics.read_text())
    known = {topic: expand(topic, value['last']) for topic, value in titles.items()}
    check(shown, [id for ids in known.values() for id in ids])
    lines = [*summary(known, shown, {topic: value['title'] for topic, value in titles.items()})]
    for topic, ids in known.items():
        lines += ['', f'## {titles[topic]["title"]} ({topic})', '', *section(ids, shown)]
    return '\n'.join(lines) + '\n'


def collect(tests: pathlib.Path) -> Shown:
    """Return the files and names of the tests for each id, in the order of the files and lines."""
    found: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for path in sorted(tests.rglob('test_*.py')):
        module = ast.parse(path.read_text())
        common = list(iter_module_ids(module))
        for function, ids in iter_tests(module.body):
            for id in dict.fromkeys([*ids, *common]):
                found[id].append((path.relative_to(tests).as_posix(), function.name))
    return found


def iter_tests(
    nodes: Iterable[ast.stmt],
    inherited: tuple[str, ...] = (),
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[str]]]:
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from iter_tests(node.body, (*inherited, *iter_ids(node.decorator_list)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            'test_'
        ):
            yield node, [*inherited, *iter_ids(node.decorator_list)]


def iter_module_ids(module: ast.Module) -> Iterator[str]:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(
            ast.unparse(target) == 'pytestmark' for target in node.targets
        ):
            yield from iter_ids([node.value])


def iter_ids(nodes: Iterable[ast.expr]) -> Iterator[str]:
    """Yield all ids in the marks of these decorators, including the marks of parameters."""
    for node in nodes:
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith('mark.guarantee'):
                yield from (arg.value for arg in call.args if isinstance(arg, ast.Constant))


def expand(topic: str, last: int) -> list[str]:
    return [f'{topic}-{number:03}' for number in range(1, last + 1)]


def check(shown: Shown, known: Iterable[str]) -> None:
    """Raise `ValueError` for unknown ids: misspelt, they would look like uncovered promises."""
    unknown = sorted(set(shown) - set(known))
    if unknown:
        names = ', '.join(f'{id} ({shown[id][0][0]})' for id in unknown)
        raise ValueError(f'The tests name ids that do not exist: {names}.')


def summary(
    known: Mapping[str, list[str]], shown: Shown, titles: Mapping[str, str]
) -> Iterator[str]:
    total = [id for ids in known.values() for id in ids]
    tests = {test for names in shown.values() for test in names}
    yield f'Of {len(total)} promises, {count(total, shown)} are shown by {len(tests)} tests.'
    yield ''
    yield '| | Topic | Promises | Shown |'
    yield '|---|---|---:|---:|'
    for topic, ids in known.items():
        yield f'| {topic} | {titles[topic]} | {len(ids)} | {count(ids, shown)} |'


def section(ids: list[str], shown: Shown) -> Iterator[str]:
    for id in ids:
        if id in shown:
            yield from describe(id, shown[id])
    absent = [id for id in ids if id not in shown]
    if absent:
        yield ''
        yield f'No test names: {", ".join(absent)}.'


def describe(id: str, tests: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the id, and under it the sentences of its tests, with their files."""
    yield f'- **{id}**'
    for path, name in dict.fromkeys(tests):
        sentence = name.removeprefix('test_').replace('_', ' ')
        yield f'  - {sentence} [{path}]{{.where}}'


def count(ids: Iterable[str], shown: Shown) -> int:
    return sum(1 for id in ids if id in shown)
