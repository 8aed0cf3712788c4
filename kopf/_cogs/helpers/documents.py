"""
Documents: large or hostile JSON, read in parts.

One bad object must not break the list or the stream that contains it. JSON parsers are recursive
and fail for the whole document if anything in it is nested deeper than their limits, which differ
between the versions of Python. The functions that compare, copy or print values are recursive too.
Therefore, a document that is nested too deeply is read in parts: unreadable values are left out,
and objects that are nested too deeply are marked.

Large lists are read in parts too: one call of the parser per object. In a thread, this lets the
event loop run between the calls, but never during a call: JSON parsers do not release the
interpreter. Single objects are smaller: the API server limits their size. Documents of untrusted
clients are read by `pieces`, which never holds the interpreter for long, but is several times
slower for usual lists.
"""

import json
import re
from typing import Any, NamedTuple

from kopf._cogs.helpers import jsons

LARGE = 256 * 1024
"""The size of a large document, in bytes: it is read in a thread, and its lists in parts."""

DEEPEST = 250
"""
How many levels of nesting are safe for recursive functions, ours and others: each level takes up to
3 stack frames out of 1000, and some of these are already in use. Usual objects have at most 20
levels.
"""

LEVELS = 4
"""How many levels to descend for readable values: a list, its objects, metadata, its fields."""

GUESSES = 3
"""How many times to guess the end of an array element before the slower parser looks for it."""

MISSES = 10
"""How many elements with wrong guesses stop the guessing: each may scan the whole document."""

TOO_DEEP = 'it is nested too deeply'
OUT_OF_RANGE = 'there is a number out of range in it'

_ITEMS = b'"items":['
_DECODER = json.JSONDecoder(**jsons.NUMBERS)
_SPACES = re.compile(r'[ \t\n\r]*')
_SCALAR = re.compile(r'[^\s,\]}]+')
_STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)


class Salvaged(dict[str, Any]):
    """A JSON object unfit for use: nested too deeply, or with nulls for unreadable values."""

    def __init__(self, content: dict[str, Any], flaw: str) -> None:
        super().__init__(content)
        self.flaw = flaw  # a description for people


class LaboriousError(Exception):
    """The document takes much longer than usual documents of its size, or is not JSON at all."""


class _Part(NamedTuple):
    """A value in a text."""

    value: Any
    end: int
    flaw: str = ''  # of any value inside


def read(raw: bytes) -> Any:
    """
    Read one document. Objects that are nested too deeply or have numbers out of range are
    `Salvaged`.

    Raises `JSONDecodeError`, which is a `ValueError`, for anything but JSON.
    """
    if len(raw) > LARGE and _ITEMS in raw:
        return _read_by_parts(raw)

    try:
        value = jsons.loads(raw)
    except ValueError:
        return _read_by_parts(raw)

    return _read_by_parts(raw) if _is_suspicious(raw) and is_too_deep(value) else value


def read_quickly(raw: bytes) -> Any:
    """Read one document in one call; raise `LaboriousError` if it needs `read` in a thread."""
    try:
        value = jsons.loads_fast(raw) if jsons.IS_FAST else jsons.loads(raw)
    except ValueError as error:
        raise LaboriousError from error

    if _is_suspicious(raw) and is_too_deep(value):
        raise LaboriousError
    return value


def read_shallow(raw: bytes | str) -> Any:
    """Read one document in one call; raise `JSONDecodeError` for bad JSON or too deep nesting."""
    value = jsons.loads(raw)
    if _is_suspicious(raw) and is_too_deep(value):
        raise jsons.JSONDecodeError('Nested too deeply', doc='', pos=0)
    return value


def _is_suspicious(raw: bytes | str) -> bool:
    """Return whether there are enough brackets for the value to be too deep; usually not."""
    if isinstance(raw, str):
        return raw.count('{') + raw.count('[') > DEEPEST
    # Removing bytes is several times faster than counting them: it works by blocks, not one by one.
    rest = len(raw.replace(b'{', b'', DEEPEST + 1)) + len(raw.replace(b'[', b'', DEEPEST + 1))
    return 2 * len(raw) - rest > DEEPEST


def _read_by_parts(raw: bytes) -> Any:
    try:
        text = raw.decode('utf-8')
    except UnicodeDecodeError as error:
        raise jsons.JSONDecodeError(f'Invalid UTF-8: {error.reason}', doc='', pos=0) from error

    start = _skip_spaces(text, 0)
    if not text.startswith('{', start):
        return jsons.loads(text)

    part = _read_object(text, start, LEVELS)
    if _skip_spaces(text, part.end) != len(text):
        raise jsons.JSONDecodeError('Extra data', doc='', pos=part.end)
    return part.value


def _read_value(text: str, pos: int, levels: int) -> _Part:
    try:
        return _check(text, pos, *_DECODER.raw_decode(text, pos))
    except RecursionError:
        flaw = TOO_DEEP
    except jsons.NumberError:
        flaw = OUT_OF_RANGE

    if levels and text.startswith('{', pos):
        return _read_object(text, pos, levels)
    return _Part(None, _skip_value(text, pos), flaw)


def _read_object(text: str, pos: int, levels: int) -> _Part:
    """Read an object field by field; at the top level, also read arrays element by element."""
    found: dict[str, Any] = {}
    flaw = ''
    pos = _skip_spaces(text, pos + 1)

    while not text.startswith('}', pos):
        key, pos = _read_key(text, pos)
        is_array = levels == LEVELS and text.startswith('[', pos)
        part = (
            _read_array(text, pos, levels - 1) if is_array else _read_value(text, pos, levels - 1)
        )
        found[key] = part.value
        flaw = flaw or part.flaw
        pos = _skip_separator(text, part.end, '}')

    return _Part(Salvaged(found, flaw) if flaw else found, pos + 1, flaw)


def _read_array(text: str, pos: int, levels: int) -> _Part:
    found: list[Any] = []
    flaw = ''
    misses = 0
    pos = _skip_spaces(text, pos + 1)

    while not text.startswith(']', pos):
        part = _guess_element(text, pos) if misses < MISSES else None
        if part is None:
            misses += 1
            part = _read_value(text, pos, levels - 1)
        found.append(part.value)
        flaw = flaw or part.flaw
        pos = _skip_separator(text, part.end, ']')

    return _Part(found, pos + 1, flaw)


def _guess_element(text: str, pos: int) -> _Part | None:
    """
    Read an element of an array with the faster parser, which needs to know where the element ends.

    The guess is that the next element begins with the same text as this one, up to the second key.
    The first key alone is often repeated in nested objects, such as managed fields. A wrong guess
    is detected: the beginning of an object is never valid JSON by itself.
    """
    if not jsons.IS_FAST or not text.startswith('{"', pos):
        return None

    separator = '},' + text[pos : text.find(':', text.find(':', pos) + 1) + 1]
    end = pos
    for _ in range(GUESSES):
        end = text.find(separator, end + 1)
        if end < 0:
            return None
        try:
            return _check(text, pos, jsons.loads_fast(text[pos : end + 1]), end + 1)
        except ValueError:
            continue

    return None


def _check(text: str, pos: int, value: Any, end: int) -> _Part:
    """Mark the value if it is nested too deeply."""
    is_suspicious = text.count('{', pos, end) + text.count('[', pos, end) > DEEPEST
    if not is_suspicious or not is_too_deep(value):
        return _Part(value, end)
    return _Part(Salvaged(value, TOO_DEEP) if isinstance(value, dict) else None, end, TOO_DEEP)


def is_too_deep(value: Any, limit: int = DEEPEST) -> bool:
    """Return whether a value read from JSON has more levels of nesting than the limit."""
    # The fast writer has nearly the same limit, and is quicker by an order of magnitude.
    if jsons.is_fast_writable(value):
        return False

    level = [value]
    for _ in range(limit + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return False

    return True


def _read_key(text: str, pos: int) -> tuple[str, int]:
    if not text.startswith('"', pos):
        raise jsons.JSONDecodeError('Expecting a name in quotes', doc='', pos=pos)
    key, pos = _DECODER.raw_decode(text, pos)
    pos = _skip_spaces(text, pos)
    if not text.startswith(':', pos):
        raise jsons.JSONDecodeError('Expecting a colon', doc='', pos=pos)
    return key, _skip_spaces(text, pos + 1)


def _skip_separator(text: str, pos: int, closing: str) -> int:
    """Skip to the next field or element, or to the closing bracket."""
    pos = _skip_spaces(text, pos)
    if text.startswith(closing, pos):
        return pos
    following = _skip_spaces(text, pos + 1)
    if not text.startswith(',', pos) or text.startswith(closing, following):
        raise jsons.JSONDecodeError('Expecting a comma and a value', doc='', pos=pos)
    return following


def _skip_value(text: str, pos: int) -> int:
    """Skip to the end of a value of any depth by counting its brackets only."""
    if not text.startswith(('{', '['), pos):
        scalar = _SCALAR.match(text, pos)
        return pos if scalar is None else scalar.end()

    depth = 0
    for found in _STRUCTURE.finditer(text, pos):
        first = text[found.start()]
        if first in '{[':
            depth += 1
        elif first in '}]':
            depth -= 1
        if not depth:
            return found.end()

    raise jsons.JSONDecodeError('Unclosed brackets', doc='', pos=pos)


def _skip_spaces(text: str, pos: int) -> int:
    spaces = _SPACES.match(text, pos)
    return pos if spaces is None else spaces.end()
