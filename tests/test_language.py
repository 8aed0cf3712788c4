"""
The language of the code and of the documents: plain technical English.

In the code, docstrings, comments, messages and help texts are checked; in the documents, the prose;
in the examples, the manifests and the Makefile, which users copy, everything.

The list has the words and turns of phrase that readers of the field stumble over.
Identifiers, and the code in the documents, are not checked.
"""

import ast
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MODULES = sorted((ROOT / 'kopf').rglob('*.py'))
GENERATED = {ROOT / 'docs/guarantees.md', ROOT / 'docs/performance/index.md'}
PAGES = {
    path for path in (ROOT / 'docs').rglob('*.md') if not {'_build', '_generated'} & {*path.parts}
}
DOCUMENTS = sorted(
    {ROOT / f'{name}.md' for name in ('README', 'SECURITY', 'CHANGELOG', 'CONTRIBUTING')}
    | (PAGES - GENERATED)
)

COPIED = sorted(
    {ROOT / 'Makefile', ROOT / 'Dockerfile'}
    | {
        path
        for directory in ('deploy', 'docker', 'examples')
        for path in (ROOT / directory).rglob('*')
        if path.suffix in ('.py', '.md', '.yaml', '.ini', '.conf')
    }
)

FENCED = re.compile(r'^ *(```+|~~~+).*?^ *\1 *$', re.MULTILINE | re.DOTALL)
SPAN = re.compile(r'(`+)(?:[^`\n]|\n(?!\n))+\1')

AVOIDED = re.compile(
    r'\b('
    r'anew|nobody|somebody|whoever|those who|also if|be it|and alike|is to be|are to be|'
    r'what is not of|handlings|for ever|any more|mend(s|ed|ing)?|'
    r'(not|else|is) said'
    r')\b',
    re.IGNORECASE,
)


def list_texts(source):
    """List the comments and the string literals of a module, docstrings included, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, ' '.join(node.value.split())


def list_docstrings(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, 'lineno', 1), ast.get_docstring(node) or ''


def find_avoided(source):
    return [
        (line, found[0]) for line, text in list_texts(source) for found in AVOIDED.finditer(text)
    ]


def find_avoided_in_prose(document):
    """Find the words outside of fenced blocks and code spans; phrases can be on two lines."""
    prose = SPAN.sub(' … ', FENCED.sub('…', document))
    return [found[0] for found in AVOIDED.finditer(' '.join(prose.split()))]


@pytest.mark.parametrize('path', MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_are_in_plain_words(path):
    source = path.read_text(encoding='utf-8')

    assert find_avoided(source) == []
    assert [line for line, text in list_docstrings(source) if text.startswith('Tell ')] == []


@pytest.mark.parametrize('path', COPIED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_users_copy_is_in_plain_words(path):
    text = ' '.join(path.read_text(encoding='utf-8').split())

    assert [found[0] for found in AVOIDED.finditer(text)] == []


@pytest.mark.parametrize(
    'source, expected',
    [
        pytest.param('x = 1  # begins anew', [(1, 'anew')], id='comment'),
        pytest.param('"""What is\nto be done."""', [(1, 'is to be')], id='docstring'),
        pytest.param("logger.info('Nobody knows %s.', x)", [(1, 'Nobody')], id='message'),
        pytest.param("f'{x} of those who {y}'", [(1, 'those who')], id='formatted'),
        pytest.param('anew = nobody', [], id='identifiers'),
        pytest.param('"""Renew the manifold."""', [], id='parts-of-words'),
    ],
)
def test_avoided_words_are_found(source, expected):
    assert find_avoided(source) == expected


@pytest.mark.parametrize('path', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_are_in_plain_words(path):
    assert find_avoided_in_prose(path.read_text(encoding='utf-8')) == []


@pytest.mark.parametrize(
    'document, expected',
    [
        pytest.param('# Begin anew', ['anew'], id='heading'),
        pytest.param('It is done, also\nif it fails.', ['also if'], id='phrase-on-two-lines'),
        pytest.param('| a | for ever |', ['for ever'], id='table'),
        pytest.param('Before.\n\n```python\nanew()\n```\n\nNobody.', ['Nobody'], id='fenced'),
        pytest.param('```\na\n```\nAnew.\n```\nb\n```\n', ['Anew'], id='between-fenced'),
        pytest.param('A stray ` here.\n\nNobody has ` it.', ['Nobody'], id='stray-backticks'),
        pytest.param('1. One:\n\n   ```sh\n   mend\n   ```\n', [], id='fenced-in-a-list'),
        pytest.param('Set `anew` or ``be it``.', [], id='code-spans'),
        pytest.param('What is `x` to be?', [], id='not-joined-over-a-code-span'),
    ],
)
def test_avoided_words_are_found_in_documents(document, expected):
    assert find_avoided_in_prose(document) == expected
