"""
Collections: the functions of lists, sets, and optional values.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kopf._sandbox.cel import functions, values

LIBRARY: Final = functions.Library()
_SUMMED: Final = ('int', 'uint', 'double', 'duration')
_COMPARED: Final = (*_SUMMED, 'bool', 'string', 'bytes', 'timestamp')


def _sum(kind: str, items: Sequence[Any]) -> Any:
    if kind == 'duration':
        return values.Duration(sum(item.nanoseconds for item in items))
    if kind == 'double':
        return float(sum(items))
    check = values.check_int if kind == 'int' else values.check_uint
    return check(sum(items))


def _choose(name: str, choose: Callable[[Any], Any], items: Sequence[Any]) -> Any:
    if not items:
        raise values.EvaluationError(f'{name} called on empty list')
    return choose(items)


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(items[index] <= items[index + 1] for index in range(len(items) - 1))


def _find(items: Sequence[Any], value: Any) -> int:
    return next((index for index, item in enumerate(items) if values.equal(item, value)), -1)


def _find_last(items: Sequence[Any], value: Any) -> int:
    found = _find(items[::-1], value)
    return found if found < 0 else len(items) - 1 - found


def _flatten(items: Sequence[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise values.EvaluationError('level must be non-negative')
    made: list[Any] = []
    for item in items:
        is_nested = isinstance(item, list) and depth > 0
        made.extend(_flatten(item, depth - 1) if is_nested else [item])
    return made


def _slice(items: Sequence[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise values.EvaluationError(
            f'cannot slice({start}, {end}), negative indexes not supported'
        )
    if start > end:
        raise values.EvaluationError(
            f'cannot slice({start}, {end}), start index must be less than or equal to end index'
        )
    if end > len(items):
        raise values.EvaluationError(f'cannot slice({start}, {end}), list is length {len(items)}')
    return list(items[start:end])


def _drop_repeated(items: Sequence[Any]) -> list[Any]:
    made: list[Any] = []
    for item in items:
        if not values.contains(made, item):
            made.append(item)
    return made


def _contains_all(items: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return all(values.contains(items, item) for item in wanted)


def _intersects(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return any(values.contains(second, item) for item in first)


def _unwrap(value: values.Optional) -> Any:
    if not value.is_present:
        raise values.EvaluationError('optional.none() dereference')
    return value.value


def _is_empty(value: Any) -> bool:
    return value in (None, False, '', b'', [], {}) or (values.is_number(value) and not value)


def _wrap_nonempty(value: Any) -> values.Optional:
    return values.NONE if _is_empty(value) else values.Optional(value, True)


def _add_lists() -> None:
    for kind in _SUMMED:
        LIBRARY.method('sum', f'list({kind}) -> {kind}', lambda items, kind=kind: _sum(kind, items))
    for kind in _COMPARED:
        LIBRARY.method('min', f'list({kind}) -> {kind}', lambda items: _choose('min', min, items))
        LIBRARY.method('max', f'list({kind}) -> {kind}', lambda items: _choose('max', max, items))
        LIBRARY.method('isSorted', f'list({kind}) -> bool', _is_sorted)

    LIBRARY.method('indexOf', 'list(T), T -> int', _find)
    LIBRARY.method('lastIndexOf', 'list(T), T -> int', _find_last)
    LIBRARY.method('flatten', 'list(dyn) -> list(dyn)', _flatten)
    LIBRARY.method('flatten', 'list(dyn), int -> list(dyn)', _flatten)
    LIBRARY.method('slice', 'list(T), int, int -> list(T)', _slice)
    LIBRARY.method('distinct', 'list(T) -> list(T)', _drop_repeated)
    LIBRARY.method('sort', 'list(T) -> list(T)', sorted)
    LIBRARY.method('reverse', 'list(T) -> list(T)', lambda items: items[::-1])
    LIBRARY.function('lists.range', 'int -> list(int)', lambda count: list(range(count)))
    LIBRARY.function('sets.contains', 'list(T), list(T) -> bool', _contains_all)
    LIBRARY.function(
        'sets.equivalent',
        'list(T), list(T) -> bool',
        lambda a, b: _contains_all(a, b) and _contains_all(b, a),
    )
    LIBRARY.function('sets.intersects', 'list(T), list(T) -> bool', _intersects)


def _add_optionals() -> None:
    LIBRARY.function('optional.of', 'T -> optional(T)', lambda a: values.Optional(a, True))
    LIBRARY.function('optional.ofNonZeroValue', 'T -> optional(T)', _wrap_nonempty)
    LIBRARY.function('optional.none', '-> optional(T)', lambda: values.NONE)
    LIBRARY.method('hasValue', 'optional(T) -> bool', lambda a: a.is_present)
    LIBRARY.method('value', 'optional(T) -> T', _unwrap)
    LIBRARY.method(
        'or', 'optional(T), optional(T) -> optional(T)', lambda a, b: a if a.is_present else b
    )
    LIBRARY.method('orValue', 'optional(T), T -> T', lambda a, b: a.value if a.is_present else b)


_add_lists()
_add_optionals()
