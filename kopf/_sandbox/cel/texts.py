"""
Texts: the functions of strings and of patterns.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final

from kopf._sandbox.cel import functions, operators, values

LIBRARY: Final = functions.Library()
_UNICODE_SPACES: Final = (
    ' \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a'
    '\u2028\u2029\u202f\u205f\u3000'
)
_UPPER: Final = {code: code - 32 for code in range(ord('a'), ord('z') + 1)}
_LOWER: Final = {code: code + 32 for code in range(ord('A'), ord('Z') + 1)}


def _char_at(text: str, index: int) -> str:
    _check_index(text, index)
    return text[index : index + 1]


def _check_index(text: str, index: int) -> None:
    if not 0 <= index <= len(text):
        raise values.EvaluationError(f'index out of range: {index}')


def _find(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    _check_index(text, start)
    return text.find(part, start)


def _find_last(text: str, part: str, end: int | None = None) -> int:
    last = len(text) if end is None else end
    if not part:
        return last
    _check_index(text, last)
    return text.rfind(part, 0, last + len(part))


def _cut(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    _check_index(text, start)
    _check_index(text, last)
    if start > last:
        raise values.EvaluationError(f'invalid substring range. start: {start}, end: {last}')
    return text[start:last]


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        parts = list(text)
        kept = parts if limit < 0 or limit >= len(parts) else parts[: limit - 1]
        return kept if len(kept) == len(parts) else [*kept, ''.join(parts[limit - 1 :])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _find_pattern(text: str, pattern: str) -> str:
    found = operators.compile_pattern(pattern).regex.search(text)
    return found.group(0) if found else ''


def _find_patterns(text: str, pattern: str, limit: int = -1) -> list[str]:
    regex = operators.compile_pattern(pattern).regex
    found = [match.group(0) for match in regex.finditer(text)]
    return found if limit < 0 else found[:limit]


def show(value: Any) -> str:
    """Format a value as ``%s`` does."""
    if isinstance(value, list):
        return f'[{", ".join(map(_show_inside, value))}]'

    if isinstance(value, dict):
        items = sorted((_show_inside(key), _show_inside(item)) for key, item in value.items())
        return '{' + ', '.join(f'{key}: {item}' for key, item in items) + '}'

    if value is None:
        return 'null'

    for overload in operators.LIBRARY.overloads['string']:
        if overload.accepts([value]):
            return str(overload.call(value))

    return str(value)


def _show_inside(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else show(value)


def _show_decimal(value: Any, precision: int | None) -> str:
    if not values.is_number(value):
        raise values.EvaluationError(
            f'error during formatting: decimal clause can only be used on integers, was given '
            f'{values.name_type(value)}'
        )
    return operators.format_double(value) if isinstance(value, float) else str(int(value))


def _show_fixed(value: Any, precision: int | None) -> str:
    number = float(value)
    if math.isinf(number) or math.isnan(number):
        return operators.format_double(number)
    return f'{number:.{6 if precision is None else precision}f}'


def _show_scientific(value: Any, precision: int | None) -> str:
    return f'{float(value):.{6 if precision is None else precision}e}'


def _show_hex(value: Any, precision: int | None) -> str:
    if isinstance(value, str):
        return value.encode().hex()
    return value.hex() if isinstance(value, bytes) else f'{int(value):x}'


_VERBS: Final[dict[str, Callable[[Any, int | None], str]]] = {
    's': lambda value, precision: show(value),
    'd': _show_decimal,
    'f': _show_fixed,
    'e': _show_scientific,
    'x': _show_hex,
    'X': lambda value, precision: _show_hex(value, precision).upper(),
    'o': lambda value, precision: f'{int(value):o}',
    'b': lambda value, precision: f'{int(value):b}',
}


def _format(template: str, arguments: list[Any]) -> str:
    made: list[str] = []
    rest = template
    given = iter(arguments)

    while True:
        before, percent, rest = rest.partition('%')
        made.append(before)
        if not percent:
            return ''.join(made)
        if rest.startswith('%'):
            made.append('%')
            rest = rest[1:]
            continue
        digits = len(rest) - len(rest.lstrip('.0123456789'))
        precision = int(rest[1:digits]) if rest.startswith('.') and digits > 1 else None
        made.append(_format_one(rest[digits : digits + 1], precision, given))
        rest = rest[digits + 1 :]


def _format_one(verb: str, precision: int | None, given: Any) -> str:
    show_verb = _VERBS.get(verb)
    if show_verb is None:
        raise values.EvaluationError(
            f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        )

    try:
        return show_verb(next(given), precision)
    except StopIteration:
        raise values.EvaluationError('index out of range') from None
    except (TypeError, ValueError):
        raise values.EvaluationError(
            f'error during formatting: wrong argument of %{verb}'
        ) from None


def _add_strings() -> None:
    method = LIBRARY.method
    method('charAt', 'string, int -> string', _char_at)
    method('indexOf', 'string, string -> int', _find)
    method('indexOf', 'string, string, int -> int', _find)
    method('lastIndexOf', 'string, string -> int', _find_last)
    method('lastIndexOf', 'string, string, int -> int', _find_last)
    method('lowerAscii', 'string -> string', lambda text: text.translate(_LOWER))
    method('upperAscii', 'string -> string', lambda text: text.translate(_UPPER))
    method('replace', 'string, string, string -> string', _replace)
    method('replace', 'string, string, string, int -> string', _replace)
    method('split', 'string, string -> list(string)', _split)
    method('split', 'string, string, int -> list(string)', _split)
    method('substring', 'string, int -> string', _cut)
    method('substring', 'string, int, int -> string', _cut)
    method('trim', 'string -> string', lambda text: text.strip(_UNICODE_SPACES))
    method('join', 'list(string) -> string', ''.join)
    method('join', 'list(string), string -> string', lambda items, by: by.join(items))
    method('format', 'string, list(dyn) -> string', _format)
    method('find', 'string, string -> string', _find_pattern)
    method('findAll', 'string, string -> list(string)', _find_patterns)
    method('findAll', 'string, string, int -> list(string)', _find_patterns)
    LIBRARY.function(
        'strings.quote', 'string -> string', lambda text: json.dumps(text, ensure_ascii=False)
    )


_add_strings()
