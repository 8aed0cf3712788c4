"""
What is installed is this package: on package indices, its bare name belongs to the original Kopf.

All commands and hints name a clone, a wheel, or the repository.
"""

import pathlib
import re

import doc_blocks
import pytest

ROOT = doc_blocks.DOCS.parent
PATTERNS = [
    '*.md',
    'Makefile',
    'Dockerfile',
    'pyproject.toml',
    '.ci/*',
    'benchmarks/**/*',
    'deploy/**/*',
    'docker/**/*',
    'docs/**/*.md',
    'docs/**/*.py',
    'examples/**/*',
    'kopf/**/*.py',
]
ALLOWED = [
    ('README.md', 'pip install kopf'),  # the warning, once
    ('benchmarks/README.md', 'pip install kopf==1.45.2 uvloop'),  # the reference itself is meant
]

COMMAND = re.compile(
    r'\b(?:pip3?|pipx|uv|poetry)(?:\s+(?:pip|tool))?\s+(?:install|add|download|wheel)\s+[^\n`|&;]*'
)
TOOL = re.compile(
    r'\buvx\s+(?:--from\s+(?:\'[^\'\n]*\'|"[^"\n]*"|\S+)|kopf\b)|\bpipx\s+run\s+kopf\b'
)
HINT = re.compile(r'\binstall(?:ing|s)?\s+[`\'"]?kopf\b(?!(?:\[[\w,-]+\])?\s+@)\S*')
WORD = re.compile(r'\'[^\']*\'|"[^"]*"|\S+')
BARE = re.compile(r'kopf(\[[\w, -]+\])?(\s*[<>=~!]=?[^@]*)?')


def find_bare(text: str) -> list[str]:
    """
    Return the commands and hints that would install the package by its bare name, from an index.
    """
    commands = [match[0].strip() for match in (*COMMAND.finditer(text), *TOOL.finditer(text))]
    found = [
        command
        for command in commands
        if any(BARE.fullmatch(word.strip('\'".,:)')) for word in WORD.findall(command))
    ]
    hints = [match[0].rstrip('`\'".,') for match in HINT.finditer(text)]
    return found + [hint for hint in hints if not any(hint in command for command in found)]


def list_files() -> list[pathlib.Path]:
    paths = {path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.is_file()}
    ignored = {'__pycache__', '_build', '_generated', 'results'}
    return sorted(path for path in paths if not ignored & set(path.relative_to(ROOT).parts))


@pytest.mark.parametrize(
    'text',
    [
        'pip install kopf',
        "pip install 'kopf[dev]' pytest",
        'pip install "kopf>=1.37"',
        'RUN pip install --no-cache-dir kopf && true',
        'The plain `pip install kopf` is enough.',
        'pip install -U kopf',
        'python -m pip install kopf==1.45.2',
        'uv pip install kopf',
        'uv add kopf',
        "uvx --from 'kopf[dev]' kopf run handlers.py",
        'uvx kopf run handlers.py',
        'pipx run kopf',
        'The library is missing: install kopf[dev].',
        'install `kopf[tunnels]`',
    ],
)
def test_bare_names_are_found(text):
    assert find_bare(text)


@pytest.mark.parametrize(
    'text',
    [
        "pip install '.[dev]'",
        "pip install '../..[dev,full-auth]'",
        "pip install 'kopf[dev] @ git+<repository>'",
        "pip install './kopf[dev]'",
        'pip install /tmp/kopf-*.whl',
        "pip wheel --no-deps 'kopf @ git+<repository>'",
        "uvx --from 'kopf[dev] @ git+<repository>' kopf run handlers.py",
        'pip install cryptography google-re2',
        'pip install . && kopf run handlers.py',
        'install it, then type `kopf run`',
    ],
)
def test_other_ways_are_not_mistaken_for_them(text):
    assert find_bare(text) == []


def test_package_is_never_installed_by_its_bare_name():
    found = [
        (path.relative_to(ROOT).as_posix(), command)
        for path in list_files()
        for command in find_bare(path.read_text(errors='replace'))
    ]

    assert found == ALLOWED


def test_readme_mentions_the_bare_name_only_to_warn_of_it():
    (sentence,) = re.findall(r'[^.:(]*`pip install kopf`[^.:)]*', (ROOT / 'README.md').read_text())

    assert 'original Kopf' in sentence


def test_repository_is_named_by_the_placeholder_that_the_documentation_fills():
    pages = {page: (doc_blocks.DOCS / f'{page}.md').read_text() for page in doc_blocks.list_pages()}
    (placeholder,) = re.findall(
        r"^REPOSITORY = '(.+?)'", (doc_blocks.DOCS / 'conf.py').read_text(), re.M
    )

    named = {page for page, text in pages.items() if f'git+{placeholder}' in text}
    others = {page for page, text in pages.items() if re.search(rf'git\+(?!{placeholder})', text)}

    assert {'index', 'install', 'walkthrough/prerequisites'} <= named
    assert others == set()
