"""
Go formats: values of users' objects as they are shown in the API's messages.

The API is written in Go, and its messages show values in the notations of that language.
"""

import json
import re
from typing import Any, Final

_ESCAPED: Final = re.compile('[<>&\u2028\u2029]')
_DIGITS: Final = re.compile('[0-9]+')
_LONGEST_UINT: Final = len(str(2**64 - 1))
_JSON_TYPES: Final = (
    (bool, 'bool'),
    (str, 'string'),
    (int, 'number'),
    (float, 'number'),
    (dict, 'object'),
    (list, 'array'),
)
_GO_TYPES: Final = (
    (bool, 'bool'),
    (str, 'string'),
    (int, 'int64'),
    (float, 'float64'),
    (dict, 'map[string]interface {}'),
    (list, '[]interface {}'),
)


def json_type(value: Any) -> str:
    """Return the type of a value as in the JSON decoder: ``object``, ``array``, ``number``, …"""
    return next((name for cls, name in _JSON_TYPES if isinstance(value, cls)), 'null')


def go_type(value: Any) -> str:
    """Return the Go type of a JSON value: ``map[string]interface {}``, ``int64``, …"""
    return next((name for cls, name in _GO_TYPES if isinstance(value, cls)), '%!s(<nil>)')


def parse_uint(text: str) -> int:
    """Parse an unsigned 64-bit number; raise `ValueError` with the API's message if malformed."""
    digits = _DIGITS.fullmatch(text)
    is_short = len(text.lstrip('0')) <= _LONGEST_UINT
    if digits is None or not is_short or int(text) >= 2**64:
        why = 'invalid syntax' if digits is None else 'value out of range'
        raise ValueError(f'strconv.ParseUint: parsing {quoted(text)}: {why}')
    return int(text)


def plain(value: Any) -> str:
    """Format a value without quotes: ``map[name:app ports:[80 443]]``."""
    if value is None:
        return '<nil>'
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, dict):
        return f'map[{" ".join(f"{key}:{plain(value[key])}" for key in sorted(value))}]'
    if isinstance(value, list):
        return f'[{" ".join(plain(item) for item in value)}]'
    return str(value)


def quoted(value: Any) -> str:
    """Format a scalar, with strings quoted: ``"app"``, ``80``."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else plain(value)


def literal(value: Any) -> str:
    """Format a value as in the source code: ``map[string]interface {}{"name":"app"}``."""
    if isinstance(value, dict):
        listed = (f'{quoted(key)}:{literal(value[key])}' for key in sorted(value))
        return f'{go_type(value)}{{{", ".join(listed)}}}'
    if isinstance(value, list):
        return f'{go_type(value)}{{{", ".join(literal(item) for item in value)}}}'
    return quoted(value)


def encode(value: Any) -> str:
    """Encode to JSON as Go does: compact, and safe for HTML."""
    if isinstance(value, str):
        text = json.encoder.encode_basestring(value)
    elif type(value) is int:
        return str(value)
    else:
        text = json.dumps(value, ensure_ascii=False, separators=(',', ':'), sort_keys=True)

    return _ESCAPED.sub(lambda match: f'\\u{ord(match[0]):04x}', text)
