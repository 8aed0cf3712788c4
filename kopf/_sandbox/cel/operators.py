"""
Operators: the arithmetic, the comparison, the conversions, and the times.

``&&``, ``||`` and ``?:`` are not here: they do not evaluate all of their operands.
"""

import datetime
import functools
import math
import operator
import re
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any, Final

from kopf._sandbox.cel import cel_types, functions, values
from kopf._sandbox.schema import patterns

LIBRARY: Final = functions.Library()
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNITS: Final = {'h': 3600e9, 'm': 60e9, 's': 1e9, 'ms': 1e6, 'us': 1e3, 'µs': 1e3, 'ns': 1.0}
_DURATION: Final = re.compile(r'[-+]?(?:\d+\.?\d*(?:h|ms|m|s|us|µs|ns))+|[-+]?0')
_PART: Final = re.compile(r'(\d+\.?\d*)(h|ms|m|s|us|µs|ns)')
_TIMESTAMP: Final = re.compile(r'(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)')
_ORDERED: Final = ('bool', 'string', 'bytes', 'timestamp', 'duration')
_NUMBERS: Final = ('int', 'uint', 'double')


def _mismatch(wanted: str) -> values.EvaluationError:
    return values.EvaluationError(f"type conversion error from 'string' to '{wanted}'")


def parse_duration(text: str) -> values.Duration:
    """Parse a duration as Go does; raise `EvaluationError` if it is malformed."""
    if not _DURATION.fullmatch(text):
        raise _mismatch('google.protobuf.Duration')
    total = sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
    return values.Duration(round(-total if text.startswith('-') else total))


def parse_timestamp(text: str) -> datetime.datetime:
    """Parse a time; raise `EvaluationError` if it is malformed."""
    match = _TIMESTAMP.fullmatch(text)
    try:
        if match is None:
            raise ValueError('malformed')
        whole, fraction, zone = match.groups()
        micro = (fraction or '0')[:6].ljust(6, '0')
        found = datetime.datetime.fromisoformat(f'{whole}.{micro}{zone.replace("Z", "+00:00")}')
    except ValueError:
        raise _mismatch('google.protobuf.Timestamp') from None

    return found.astimezone(datetime.UTC)


def format_duration(value: values.Duration) -> str:
    seconds, rest = divmod(abs(value.nanoseconds), 10**9)
    sign = '-' if value.nanoseconds < 0 else ''
    fraction = f'.{rest:09d}'.rstrip('0') if rest else ''
    return f'{sign}{seconds}{fraction}s'


def format_timestamp(value: datetime.datetime) -> str:
    text = value.astimezone(datetime.UTC).strftime('%Y-%m-%dT%H:%M:%S')
    fraction = f'.{value.microsecond:06d}'.rstrip('0') if value.microsecond else ''
    return f'{text}{fraction}Z'


def format_double(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return {math.inf: '+Inf', -math.inf: '-Inf'}.get(value, 'NaN')
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return re.sub(r'e([+-])(\d)$', r'e\g<1>0\2', repr(value))


def _divide(first: int, second: int) -> int:
    if not second:
        raise values.EvaluationError('division by zero')
    quotient = abs(first) // abs(second)
    return quotient if (first < 0) == (second < 0) else -quotient


def _take_remainder(first: int, second: int) -> int:
    if not second:
        raise values.EvaluationError('modulus by zero')
    return first - second * _divide(first, second)


def _divide_doubles(first: float, second: float) -> float:
    if second:
        return first / second
    if not first or math.isnan(first):
        return math.nan
    return math.copysign(math.inf, first) * math.copysign(1.0, second)


def _concatenate(first: list[Any], second: list[Any]) -> list[Any]:
    if isinstance(first, values.SetList):
        extra = [item for item in second if not values.contains(first, item)]
        return values.SetList([*first, *extra])

    if isinstance(first, values.MapList):
        theirs = values.MapList(second, first.keys).index_items()
        merged = {**first.index_items(), **theirs}
        return values.MapList(list(merged.values()), first.keys)

    return [*first, *second]


def _add_duration(moment: datetime.datetime, span: values.Duration) -> datetime.datetime:
    return moment + datetime.timedelta(microseconds=span.nanoseconds / 1000)


def _subtract_times(first: datetime.datetime, second: datetime.datetime) -> values.Duration:
    return values.Duration(round((first - second) / datetime.timedelta(microseconds=1)) * 1000)


def _get_item(items: list[Any], index: Any) -> Any:
    if isinstance(index, float) and index.is_integer():
        index = int(index)
    if not isinstance(index, int):
        raise values.EvaluationError(f"unsupported index type '{values.name_type(index)}' in list")
    if not 0 <= index < len(items):
        raise values.EvaluationError(f'index out of bounds: {index}')
    return items[index]


def _get_value(items: Mapping[Any, Any], key: Any) -> Any:
    if key not in items:
        raise values.EvaluationError(f'no such key: {key}')
    return items[key]


def _convert_to_int(value: float) -> int:
    if math.isnan(value) or math.isinf(value) or not -(2.0**63) < value < 2.0**63:
        raise values.EvaluationError('integer overflow')
    return int(value)


def _parse_number(text: str, convert: Callable[[str], Any], name: str) -> Any:
    try:
        if not text.strip() == text or '_' in text:
            raise ValueError('malformed')
        return convert(text)
    except ValueError:
        raise _mismatch(name) from None


def _parse_bool(text: str) -> bool:
    for value, texts in (
        (True, ('1', 't', 'T', 'true', 'TRUE', 'True')),
        (False, ('0', 'f', 'F', 'false', 'FALSE', 'False')),
    ):
        if text in texts:
            return value
    raise _mismatch('bool')


def match_pattern(text: str, pattern: str) -> bool:
    return compile_pattern(pattern).is_found(text)


def compile_pattern(pattern: str) -> patterns.Pattern:
    try:
        return patterns.compile_pattern(pattern)
    except patterns.PatternError as error:
        raise values.EvaluationError(str(error)) from None


def _decode(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise values.EvaluationError('invalid UTF-8 in bytes, cannot convert to string') from None


def _is_in_map(key: Any, items: Mapping[Any, Any]) -> bool:
    return key in items


def _find_zone(name: str) -> datetime.tzinfo:
    if match := re.fullmatch(r'([+-]?)(\d\d):(\d\d)', name):
        minutes = int(match[2]) * 60 + int(match[3])
        return datetime.timezone(
            datetime.timedelta(minutes=-minutes if match[1] == '-' else minutes)
        )

    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise values.EvaluationError(f'unknown time zone {name}') from None


def _add_arithmetic() -> None:
    for name, calculate in (('+', operator.add), ('-', operator.sub), ('*', operator.mul)):
        LIBRARY.function(
            f'_{name}_', 'int, int -> int', lambda a, b, f=calculate: values.check_int(f(a, b))
        )
        LIBRARY.function(
            f'_{name}_', 'uint, uint -> uint', lambda a, b, f=calculate: values.check_uint(f(a, b))
        )
        LIBRARY.function(f'_{name}_', 'double, double -> double', calculate)

    LIBRARY.function('_/_', 'int, int -> int', lambda a, b: values.check_int(_divide(a, b)))
    LIBRARY.function('_/_', 'uint, uint -> uint', lambda a, b: values.Uint(_divide(a, b)))
    LIBRARY.function('_/_', 'double, double -> double', _divide_doubles)
    LIBRARY.function('_%_', 'int, int -> int', _take_remainder)
    LIBRARY.function('_%_', 'uint, uint -> uint', lambda a, b: values.Uint(_take_remainder(a, b)))
    LIBRARY.function('-_', 'int -> int', lambda a: values.check_int(-a))
    LIBRARY.function('-_', 'double -> double', operator.neg)
    LIBRARY.function('_+_', 'string, string -> string', operator.add)
    LIBRARY.function('_+_', 'bytes, bytes -> bytes', operator.add)
    LIBRARY.function('_+_', 'list(A), list(A) -> list(A)', _concatenate)
    LIBRARY.function('_+_', 'timestamp, duration -> timestamp', _add_duration)
    LIBRARY.function('_+_', 'duration, timestamp -> timestamp', lambda a, b: _add_duration(b, a))
    LIBRARY.function(
        '_+_',
        'duration, duration -> duration',
        lambda a, b: values.Duration(a.nanoseconds + b.nanoseconds),
    )
    LIBRARY.function('_-_', 'timestamp, timestamp -> duration', _subtract_times)
    LIBRARY.function(
        '_-_',
        'timestamp, duration -> timestamp',
        lambda a, b: _add_duration(a, values.Duration(-b.nanoseconds)),
    )
    LIBRARY.function(
        '_-_',
        'duration, duration -> duration',
        lambda a, b: values.Duration(a.nanoseconds - b.nanoseconds),
    )


def _add_comparison() -> None:
    LIBRARY.function('_==_', 'A, A -> bool', values.equal)
    LIBRARY.function('_!=_', 'A, A -> bool', lambda a, b: not values.equal(a, b))
    LIBRARY.function('!_', 'bool -> bool', operator.not_)
    LIBRARY.function('@not_strictly_false', 'bool -> bool', lambda a: a)
    LIBRARY.function('@put', 'map(A, B), A, B -> map(A, B)', lambda m, k, v: {**m, k: v})
    pairs = [(name, name) for name in _ORDERED]
    pairs += [(first, second) for first in _NUMBERS for second in _NUMBERS]

    for name, check in (
        ('<', operator.lt),
        ('<=', operator.le),
        ('>', operator.gt),
        ('>=', operator.ge),
    ):
        for first, second in pairs:
            LIBRARY.function(f'_{name}_', f'{first}, {second} -> bool', check)

    LIBRARY.function('@in', 'A, list(A) -> bool', lambda a, b: values.contains(b, a))
    LIBRARY.function('@in', 'A, map(A, B) -> bool', _is_in_map)
    LIBRARY.function('_[_]', 'list(A), int -> A', _get_item)
    LIBRARY.function('_[_]', 'map(A, B), A -> B', _get_value)

    for kind in ('string', 'bytes', 'list(A)', 'map(A, B)'):
        LIBRARY.function('size', f'{kind} -> int', len)
        LIBRARY.method('size', f'{kind} -> int', len)


def _add_conversions() -> None:
    declared: list[tuple[str, str, Callable[[Any], Any]]] = [
        ('int', 'int', lambda a: a),
        ('int', 'uint', lambda a: values.check_int(int(a))),
        ('int', 'double', _convert_to_int),
        ('int', 'string', lambda a: values.check_int(_parse_number(a, int, 'int'))),
        ('int', 'timestamp', lambda a: math.floor(a.timestamp())),
        ('int', 'duration', lambda a: a.nanoseconds),
        ('uint', 'uint', lambda a: a),
        ('uint', 'int', values.check_uint),
        ('uint', 'double', lambda a: values.check_uint(_convert_to_int(a))),
        ('uint', 'string', lambda a: values.check_uint(_parse_number(a, int, 'uint'))),
        ('double', 'double', lambda a: a),
        ('double', 'int', float),
        ('double', 'uint', float),
        ('double', 'string', lambda a: _parse_number(a, float, 'double')),
        ('bool', 'bool', lambda a: a),
        ('bool', 'string', _parse_bool),
        ('bytes', 'bytes', lambda a: a),
        ('bytes', 'string', str.encode),
        ('string', 'string', lambda a: a),
        ('string', 'bool', lambda a: 'true' if a else 'false'),
        ('string', 'int', str),
        ('string', 'uint', lambda a: str(int(a))),
        ('string', 'double', format_double),
        ('string', 'bytes', _decode),
        ('string', 'timestamp', format_timestamp),
        ('string', 'duration', format_duration),
        ('timestamp', 'timestamp', lambda a: a),
        ('timestamp', 'string', parse_timestamp),
        ('timestamp', 'int', lambda a: _EPOCH + datetime.timedelta(seconds=a)),
        ('duration', 'duration', lambda a: a),
        ('duration', 'string', parse_duration),
        ('duration', 'int', values.Duration),
    ]
    for name, kind, convert in declared:
        LIBRARY.function(name, f'{kind} -> {name}', convert)
    LIBRARY.function('dyn', 'A -> dyn', lambda a: a)
    LIBRARY.function('type', 'A -> type', lambda a: cel_types.Type(values.name_type(a)))
    LIBRARY.method('matches', 'string, string -> bool', match_pattern)
    LIBRARY.function('matches', 'string, string -> bool', match_pattern)
    LIBRARY.method('startsWith', 'string, string -> bool', str.startswith)
    LIBRARY.method('endsWith', 'string, string -> bool', str.endswith)
    LIBRARY.method('contains', 'string, string -> bool', operator.contains)


def _get_moment(get: Callable[[datetime.datetime], int], moment: Any, zone: str = 'UTC') -> int:
    return get(moment.astimezone(_find_zone(zone)))


def _add_times() -> None:
    getters: dict[str, Callable[[datetime.datetime], int]] = {
        'getFullYear': lambda t: t.year,
        'getMonth': lambda t: t.month - 1,
        'getDate': lambda t: t.day,
        'getDayOfMonth': lambda t: t.day - 1,
        'getDayOfWeek': lambda t: t.isoweekday() % 7,
        'getDayOfYear': lambda t: t.timetuple().tm_yday - 1,
        'getHours': lambda t: t.hour,
        'getMinutes': lambda t: t.minute,
        'getSeconds': lambda t: t.second,
        'getMilliseconds': lambda t: t.microsecond // 1000,
    }
    for name, get in getters.items():
        call = functools.partial(_get_moment, get)
        LIBRARY.method(name, 'timestamp -> int', call)
        LIBRARY.method(name, 'timestamp, string -> int', call)

    for name, unit in (
        ('Hours', 3600e9),
        ('Minutes', 60e9),
        ('Seconds', 1e9),
        ('Milliseconds', 1e6),
    ):
        LIBRARY.method(
            f'get{name}', 'duration -> int', lambda d, unit=unit: _divide(d.nanoseconds, int(unit))
        )


_add_arithmetic()
_add_comparison()
_add_conversions()
_add_times()
