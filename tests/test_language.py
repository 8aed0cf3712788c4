"""
The language of the code: plain technical English in docstrings, comments, messages and help texts.

The list has the words and turns of phrase that readers of the field stumble over. Identifiers are not checked.
"""

import ast
import io
import pathlib
import re
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MODULES = sorted((ROOT / 'kopf').rglob('*.py'))

AVOIDED = re.compile(
    r'\b('
    r'anew|nobody|somebody|whoever|those who|also if|be it|and alike|is to be|are to be|'
    r'what is not of|handlings|for ever|any more|mend(s|ed|ing)?'
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


@pytest.mark.parametrize('path', MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_texts_are_in_plain_words(path):
    source = path.read_text(encoding='utf-8')

    assert find_avoided(source) == []
    assert [line for line, text in list_docstrings(source) if text.startswith('Tell ')] == []


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
