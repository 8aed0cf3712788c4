"""
Documents: JSON that is large or hostile, read part by part.

One object must not spoil the list or the stream that it comes in, whatever it is. The readers of JSON are recursive,
and fail for a whole document if anything in it is nested deeper than their limits, which differ between the versions of
Python. So are the functions that compare, copy or print values. Therefore, a document that is too deep is read by its
parts: what cannot be read is left out, and the objects that are too deep are marked.

Large lists are read by parts too: each of their objects is a call of its own. In a thread, the event loop gets its turn
between these calls, but never in the middle of them: the readers of JSON do not let other threads run. Single objects
are not as large: the API server limits them. What comes from other clients is read by `pieces`: it takes no long turns,
whatever the document is, but is several times slower for usual lists.
"""

import json
import re
from typing import Any, NamedTuple

from kopf._cogs.helpers import jsons

LARGE = 256 * 1024
"""The size of a large document, in bytes: it takes milliseconds, and is worth a thread; a list is read by parts."""

DEEPEST = 250
"""
How many levels of nesting are surely fit for recursive functions, of the framework and of others: each level takes up
to 3 frames of the stack, of which there are 1000, and some are taken already. Usual objects have 20 levels at most.
"""

LEVELS = 4
"""How deep to look for what can be read: from a list to its objects, to their metadata, to the fields of these."""

GUESSES = 3
"""How many times to guess where an element of an array ends; if all guesses are wrong, the slower reader finds it."""

MISSES = 10
"""For how many elements of an array the guesses can be wrong; then they are given up: each can look through it all."""

TOO_DEEP = 'it is nested too deeply'
OUT_OF_RANGE = 'there is a number out of range in it'

_ITEMS = b'"items":['
_DECODER = json.JSONDecoder(**jsons.NUMBERS)
_SPACES = re.compile(r'[ \t\n\r]*')
_SCALAR = re.compile(r'[^\s,\]}]+')
_STRUCTURE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)


class Salvaged(dict[str, Any]):
    """A JSON object that is not good for use: it is too deep, or the values that cannot be read are nulls in it."""

    def __init__(self, content: dict[str, Any], flaw: str) -> None:
        super().__init__(content)
        self.flaw = flaw  # what is wrong with it, in words, for people


class LaboriousError(Exception):
    """The document takes much more time than usual documents of its size, if it is JSON at all."""


class _Part(NamedTuple):
    """A value in a text."""

    value: Any
    end: int
    flaw: str = ''  # of anything inside of the value


def read(raw: bytes) -> Any:
    """
    Read one document. If it is too deep, or has numbers out of range, the objects around that are `Salvaged`.

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
    """Read one document as a whole; raise `LaboriousError` if it should be read by `read`, beside the event loop."""
    try:
        value = jsons.loads_fast(raw) if jsons.IS_FAST else jsons.loads(raw)
    except ValueError as error:
        raise LaboriousError from error
    if _is_suspicious(raw) and is_too_deep(value):
        raise LaboriousError
    return value


def read_shallow(raw: bytes | str) -> Any:
    """Read one document as a whole; raise `JSONDecodeError` also if it is too deep for recursive functions."""
    value = jsons.loads(raw)
    if _is_suspicious(raw) and is_too_deep(value):
        raise jsons.JSONDecodeError('Nested too deeply', doc='', pos=0)
    return value


def _is_suspicious(raw: bytes | str) -> bool:
    """Return whether there are enough brackets for the value to be too deep: there are not in most of the documents."""
    if isinstance(raw, str):
        return raw.count('{') + raw.count('[') > DEEPEST
    # Bytes are removed several times sooner than counted: the former is by blocks, the latter is one by one.
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
    """Read an object by its fields; in the whole document, arrays are read by their elements."""
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
    Read an element of an array the faster way, which needs to know where it ends: right before the next one, which
    begins as this one does, up to its second key: the first one is often the same in what is nested, such as managed
    fields. A wrong guess is noticed: the beginning of an object is never an object by itself.
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
    """Make sure that a value is not too deep."""
    is_suspicious = text.count('{', pos, end) + text.count('[', pos, end) > DEEPEST
    if not is_suspicious or not is_too_deep(value):
        return _Part(value, end)
    return _Part(Salvaged(value, TOO_DEEP) if isinstance(value, dict) else None, end, TOO_DEEP)


def is_too_deep(value: Any, limit: int = DEEPEST) -> bool:
    """Return whether a value, as it comes from JSON, has more levels of nesting than this, or than is usually good."""
    if jsons.is_fast_writable(
        value
    ):  # it has nearly the same limit, and is an order of magnitude quicker
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
    """Get to the next field or element, or to the closing bracket."""
    pos = _skip_spaces(text, pos)
    if text.startswith(closing, pos):
        return pos
    following = _skip_spaces(text, pos + 1)
    if not text.startswith(',', pos) or text.startswith(closing, following):
        raise jsons.JSONDecodeError('Expecting a comma and a value', doc='', pos=pos)
    return following


def _skip_value(text: str, pos: int) -> int:
    """Get to the end of a value however deep it is; its brackets are counted, and nothing else is looked at."""
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
