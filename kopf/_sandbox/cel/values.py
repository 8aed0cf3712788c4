"""
Values: the values of CEL in Python, with their comparison.

Integers, floats, booleans, texts, bytes, lists, dicts and ``None`` are themselves; times are
`datetime.datetime` with a zone. All other types have classes here or in the modules of functions.
"""

import dataclasses
import datetime
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.cel import cel_types

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1


class EvaluationError(Exception):
    """An expression has no value for these data."""


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


@functools.total_ordering
@dataclasses.dataclass(frozen=True)
class Duration:
    """A duration in nanoseconds."""

    nanoseconds: int

    def __lt__(self, other: 'Duration') -> bool:
        return self.nanoseconds < other.nanoseconds


@dataclasses.dataclass(frozen=True)
class Optional:
    """A value that can be absent."""

    value: Any = None
    is_present: bool = False


NONE: Final = Optional()


class SetList(list[Any]):
    """A list with ``x-kubernetes-list-type: set``: the order does not matter."""


class MapList(list[Any]):
    """A list with ``x-kubernetes-list-type: map``: items are identified by their keys."""

    def __init__(self, items: Sequence[Any], keys: Sequence[str]) -> None:
        super().__init__(items)
        self.keys = tuple(keys)

    def index_items(self) -> dict[tuple[Any, ...], Any]:
        return {
            tuple(item.get(key) for key in self.keys): item
            for item in self
            if isinstance(item, Mapping)
        }


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(first: Any, second: Any) -> bool:
    """Compare as CEL does: numbers by their values, others only within their types."""
    if is_number(first) and is_number(second):
        return bool(first == second)
    if isinstance(first, list) and isinstance(second, list):
        return _equal_lists(first, second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(
            equal(first[key], second[key]) for key in first
        )
    if isinstance(first, Optional) and isinstance(second, Optional):
        return first.is_present == second.is_present and equal(first.value, second.value)
    return type(first) is type(second) and bool(first == second)


def _equal_lists(first: list[Any], second: list[Any]) -> bool:
    if len(first) != len(second):
        return False
    if isinstance(first, SetList):
        return all(contains(second, item) for item in first)
    if isinstance(first, MapList):
        ours = first.index_items()
        theirs = MapList(second, first.keys).index_items()
        return ours.keys() == theirs.keys() and all(equal(ours[key], theirs[key]) for key in ours)

    return all(map(equal, first, second))


def contains(items: Sequence[Any], value: Any) -> bool:
    return any(equal(item, value) for item in items)


def compare(first: Any, second: Any) -> int:
    """Return -1, 0 or 1. The types are comparable already."""
    return int(first > second) - int(first < second)


def check_int(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise EvaluationError('integer overflow')
    return value


def check_uint(value: int) -> Uint:
    if not 0 <= value <= MAX_UINT:
        raise EvaluationError('unsigned integer overflow')
    return Uint(value)


CLASSES: Final[dict[type, str]] = {
    bool: 'bool',
    int: 'int',
    Uint: 'uint',
    float: 'double',
    str: 'string',
    bytes: 'bytes',
    type(None): 'null_type',
    list: 'list',
    SetList: 'list',
    MapList: 'list',
    dict: 'map',
    datetime.datetime: 'timestamp',
    Duration: 'duration',
    Optional: 'optional',
    cel_types.Type: 'type',
}
"""The types of values by their classes. The modules of functions add theirs."""


def name_type(value: Any) -> str:
    return CLASSES.get(type(value), 'dyn')


def fits(kind: cel_types.Type, value: Any) -> bool:
    """Return whether a value is of a type, as far as it affects the choice of overloads."""
    if cel_types.is_loose(kind) or kind.is_parameter:
        return True

    name = name_type(value)
    if kind.fields is not None:
        return name == 'map'
    if name != kind.name:
        return False
    if name == 'list':
        return all(fits(kind.params[0], item) for item in value)
    return True
