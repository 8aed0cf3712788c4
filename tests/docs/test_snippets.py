"""
The code in the documentation runs: the blocks of each page in their order, in one namespace, with a
fresh registry.

Blocks that begin with a comment with a file name (``# handlers.py``) are files, too: for the blocks
after them, which can import or read them. Blocks are not run if marked so (```` ```python notest
````): only those that need what is not here, e.g. a cloud.
"""

import ast
import asyncio
import importlib
import logging
import pathlib
import re
import sys
import types

import doc_blocks
import pytest
import yaml

import kopf

FILE_NAME = re.compile(r'# (?P<name>[\w-]+\.\w+)\n')


@pytest.fixture(autouse=True)
def isolation(monkeypatch, tmp_path):
    """Whatever the snippets declare or make is gone after them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules = set(sys.modules)
    lifecycle = kopf.get_default_lifecycle()
    registry = kopf.get_default_registry()
    loggers = save_loggers()
    kopf.set_default_registry(kopf.OperatorRegistry())
    try:
        yield
    finally:
        kopf.set_default_lifecycle(lifecycle)
        kopf.set_default_registry(registry)
        restore_loggers(loggers)
        asyncio.set_event_loop(None)
        for name in set(sys.modules) - modules:
            if (tmp_path / name).with_suffix('.py').exists():
                del sys.modules[name]


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_python_in_the_pages_runs(page):
    namespace = types.ModuleType('snippets').__dict__
    for block in doc_blocks.read_blocks(page, 'python', 'yaml'):
        write_file(block)
        if block.language == 'python' and 'notest' not in block.flags:
            padding = '\n' * (block.line - 1)  # for tracebacks with the lines of the page
            exec(
                compile(padding + block.code, f'docs/{page}.md', 'exec', dont_inherit=True),
                namespace,
            )


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_python_that_is_not_run_is_still_python(page):
    for block in doc_blocks.read_blocks(page, 'python'):
        if 'notest' in block.flags:
            compile(block.code, f'docs/{page}.md', 'exec', flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize('page', doc_blocks.list_pages())
def test_yaml_in_the_pages_can_be_parsed(page):
    for block in doc_blocks.read_blocks(page, 'yaml'):
        assert all(document is not None for document in yaml.safe_load_all(block.code)), (
            f'line {block.line}'
        )


def save_loggers():
    named = [
        logger
        for logger in logging.Logger.manager.loggerDict.values()
        if isinstance(logger, logging.Logger)
    ]
    return [
        (logger, logger.level, logger.propagate, [*logger.handlers], [*logger.filters])
        for logger in [logging.getLogger(), *named]
    ]


def restore_loggers(saved):
    for logger, level, propagate, handlers, filters in saved:
        logger.setLevel(level)
        logger.propagate, logger.handlers[:], logger.filters[:] = propagate, handlers, filters


def write_file(block: doc_blocks.Block) -> None:
    if match := FILE_NAME.match(block.code):
        pathlib.Path(match['name']).write_text(block.code)
        importlib.invalidate_caches()


SAMPLE = '''
- an item:

  ```python
  x = 1
    # as indented as it was
  ```

```{note}
```bash
echo
```
```

````python notest
"""
```
"""
````

```
no language
```
'''


def test_blocks_are_found_wherever_they_are():
    blocks = list(doc_blocks.parse_blocks(SAMPLE))

    assert [(block.language, block.line, block.code) for block in blocks] == [
        ('python', 5, 'x = 1\n  # as indented as it was\n'),
        ('bash', 11, 'echo\n'),
        ('python', 16, '"""\n```\n"""\n'),
    ]
    assert [block.flags for block in blocks] == [frozenset(), frozenset(), frozenset({'notest'})]
