"""
Parsing: JSON as the API server parses it, with its numbers and error messages; also of YAML.
"""

import json
import re
from typing import Any, Final

from kopf._cogs.helpers import documents, jsons

_LITERALS: Final = ('null', 'true', 'false')
TOO_DEEP: Final = "invalid character '{' exceeded max depth"
_TRUNCATED: Final = 'unexpected end of JSON input'
_UNUSUAL_NUMBER: Final = re.compile(rb'[0-9]\.|[0-9][eE]|[0-9]{19}')
_CONTAINERS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_UNFINISHED_NUMBER: Final = re.compile(r'(?<=[0-9])(?:(\.)|[eE][+-]?)')
_MAX_EXACT: Final = 2**53 - 1  # larger floats are not converted to integers even if they are whole
_INTEGERS: Final = range(-(2**63), 2**63)
_DEEPEST: Final = 400
"""The maximum nesting that can be stored and patched here. The API server allows 10,000."""


def parse_json(raw: bytes) -> Any:
    """
    Parse one JSON document; raise `ValueError` with the API's message if it is malformed.

    Bytes that are not UTF-8 are replaced with the replacement character.
    """
    try:
        value = jsons.loads(raw)
    except ValueError:
        value = _parse_mistaken(raw)

    if raw.count(b'{') + raw.count(b'[') > _DEEPEST and documents.is_too_deep(value, _DEEPEST):
        raise ValueError(TOO_DEEP)
    return value


def _parse_mistaken(raw: bytes) -> Any:
    try:
        return jsons.loads(raw.decode('utf-8', 'replace'))
    except ValueError as e:
        raise ValueError(_explain(raw)) from e


def normalize_numbers(value: Any, raw: bytes) -> Any:
    """Convert whole floats to integers, and integers beyond 64 bits to floats."""
    return _normalize(value) if _UNUSUAL_NUMBER.search(raw) else value


def explain_yaml(error: BaseException | None) -> str:
    """Return a message about malformed YAML by the error of its parser."""
    mark = getattr(error, 'problem_mark', None)
    line = (
        0
        if mark is None
        else mark.line + (type(error).__name__ == 'ScannerError' and mark.line > 0)
    )
    why = (
        getattr(error, 'problem', None)
        or getattr(error, 'reason', None)
        or 'the document is malformed'
    )

    return f'line {line}: {why}' if line else str(why)


def _normalize(value: Any) -> Any:
    match value:
        case dict():
            return {key: _normalize(item) for key, item in value.items()}
        case list():
            return [_normalize(item) for item in value]
        case float() if value.is_integer() and abs(value) <= _MAX_EXACT:
            return int(value)
        case int() if value not in _INTEGERS:
            return float(value)
        case _:
            return value


def _explain(raw: bytes) -> str:
    """Return the API's message about malformed JSON, with bytes shown as characters."""
    text = raw.decode('latin-1')
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as e:
        return _word(e.msg, text, e.pos)
    except RecursionError:
        return TOO_DEEP
    except ValueError as e:
        return str(e)

    return 'there is a number out of range'


def _refuse_constant(name: str) -> None:
    """Raise the API's error for constants that Python accepts as numbers and JSON does not."""
    raise ValueError(
        _show(name[1], 'in numeric literal')
        if name[0] == '-'
        else _show(name[0], 'looking for beginning of value')
    )


def _word(why: str, text: str, position: int) -> str:
    """Convert an error of Python's parser to Go's wording."""
    if why.startswith('Invalid \\u'):
        stray = re.compile('[^0-9a-fA-F]').search(
            text, position + 2 if text[position] == '\\' else position + 1
        )
        return _show(stray[0], 'in \\u hexadecimal character escape') if stray else _TRUNCATED

    if why.startswith('Invalid \\'):
        return _show(text[position + 1 : position + 2], 'in string escape code')
    if why.startswith('Invalid control'):
        return _show(text[position], 'in string literal')

    if why.startswith('Illegal trailing comma'):
        position = len(text) - len(text[position + 1 :].lstrip())
        why = 'Expecting property' if text[position] == '}' else 'Expecting value'

    if why.startswith('Unterminated') or not text[position:].strip():
        return _TRUNCATED
    if why.startswith('Expecting value'):
        return _word_value(text, position)
    return _word_number(text, position) or _show(
        text[position], _find_expectation(why, text[:position])
    )


def _word_value(text: str, position: int) -> str:
    """Word the error of a value: in the middle of a literal or a number, or at its beginning."""
    rest = text[position:] + ' '
    literal = next((literal for literal in _LITERALS if literal[0] == rest[0]), '')
    for expected, found in zip(literal, rest, strict=False):
        if expected != found:
            return _show(found, f"in literal {literal} (expecting '{expected}')")

    return (
        _show(rest[1], 'in numeric literal')
        if rest[0] == '-'
        else _show(rest[0], 'looking for beginning of value')
    )


def _word_number(text: str, position: int) -> str:
    """Word the error of an unfinished number: Python stops before the unfinished part."""
    found = _UNFINISHED_NUMBER.match(text, position)
    if found is None:
        return ''
    context = (
        'after decimal point in numeric literal' if found[1] else 'in exponent of numeric literal'
    )
    return _show((text + ' ')[found.end()], context)


def _find_expectation(why: str, before: str) -> str:
    if why.startswith('Expecting property'):
        return 'looking for beginning of object key string'
    if why.startswith("Expecting ':'"):
        return 'after object key'
    if why.startswith('Extra data'):
        return 'after top-level value'

    opened: list[str] = []
    for found in _CONTAINERS.finditer(before):
        if found[0] in '{[':
            opened.append(found[0])
        elif found[0] in '}]':
            opened.pop()

    return 'after object key:value pair' if opened[-1:] == ['{'] else 'after array element'


def _show(char: str, context: str) -> str:
    if char >= '\x80' and not char.isprintable():
        shown = f'\\u{ord(char):04x}'
    else:
        shown = (
            char
            if char == '"'
            else "\\'"
            if char == "'"
            else json.dumps(char, ensure_ascii=False)[1:-1]
        )

    return f"invalid character '{shown}' {context}" if char else _TRUNCATED
