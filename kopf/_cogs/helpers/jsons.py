"""
JSON, as fast as this installation allows.

If ``orjson`` is installed, it does the work, and the standard library does the rest that JSON
allows but ``orjson`` refuses: integers beyond 64 bits, lone surrogates, keys that are not strings.
Without it, the standard library does everything. The values and the errors are the same either way;
only the notation of some floats differs (``1e-7``, ``1e-07``).

As in Kubernetes, an integer beyond 64 bits is read as a float. NaN and infinities, which JSON does
not have, are written as nulls and never read.
"""

import functools
import json
import math
from typing import Any, NoReturn

try:
    import orjson
except ImportError:
    orjson = None  # type: ignore[assignment]

JSONDecodeError = json.JSONDecodeError


class NumberError(JSONDecodeError):
    """The document is JSON, but a number in it is out of range, infinite, or NaN."""


IS_FAST = orjson is not None
"""Whether a value is copied faster by writing and reading it as JSON."""

_PLAIN_ONLY = (
    0 if orjson is None else orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
)
_PLAIN_SORTED = 0 if orjson is None else _PLAIN_ONLY | orjson.OPT_SORT_KEYS
_INTEGERS = range(-(2**63), 2**64)


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """
    Write a plain value (dicts, lists, strings, numbers, booleans, nulls) compactly in UTF-8, with
    minimal escaping.

    With sorted keys, equal values give equal texts. Raises `TypeError` for objects of other types,
    `ValueError` for circular or too deep structures.
    """
    if orjson is not None:
        try:
            return orjson.dumps(value, option=_PLAIN_SORTED if sort_keys else _PLAIN_ONLY)
        except TypeError:
            pass

    return _dumps_portably(value, sort_keys=sort_keys)


def loads(raw: bytes | str) -> Any:
    """Read one JSON document; raise `JSONDecodeError`, a `ValueError`, for anything else."""
    if orjson is not None:
        try:
            return orjson.loads(raw)
        except ValueError:
            pass
    return _loads_portably(raw)


def is_fast_writable(value: Any) -> bool:
    """Return whether ``orjson`` can write the value; then it has about 250 levels at most."""
    if orjson is None:
        return False
    try:
        orjson.dumps(value)
    except TypeError:
        return False

    return True


def loads_fast(raw: bytes | str) -> Any:
    """Read the document with ``orjson``; raise `JSONDecodeError` if it refuses, even for JSON."""
    if orjson is None:
        raise JSONDecodeError('There is no fast reader', doc='', pos=0)
    return orjson.loads(raw)


def _dumps_portably(value: Any, *, sort_keys: bool) -> bytes:
    dump = functools.partial(
        json.dumps, ensure_ascii=False, separators=(',', ':'), allow_nan=False, sort_keys=sort_keys
    )
    try:
        try:
            text = dump(value)
        except ValueError:
            text = dump(_without_nans(value))
    except RecursionError as e:
        raise ValueError('The value is circular or nested too deeply for JSON.') from e

    # An escape like "\udXXX" is the same in Python and in JSON.
    return text.encode('utf-8', errors='backslashreplace')


def _without_nans(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nans(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nans(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _loads_portably(raw: bytes | str) -> Any:
    try:
        text = raw if isinstance(raw, str) else raw.decode('utf-8')
        return json.loads(text, **NUMBERS)
    except UnicodeDecodeError as e:
        raise JSONDecodeError(f'Invalid UTF-8: {e.reason}', doc=repr(raw), pos=e.start) from e
    except RecursionError as e:
        raise JSONDecodeError('Nested too deeply', doc=text, pos=0) from e


def _parse_int(text: str) -> int | float:
    if len(text) > 20:
        return _parse_float(text)
    number = int(text)
    return number if number in _INTEGERS else float(text)


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise NumberError('Number out of range', doc=text, pos=0)


NUMBERS: dict[str, Any] = {
    'parse_int': _parse_int,
    'parse_float': _parse_float,
    'parse_constant': _refuse,
}
"""How the standard library reads numbers."""
