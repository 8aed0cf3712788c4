"""
Naming: the ids of handlers, made of the names of their functions.

The same declarations give the same ids after every restart: the progress and the results are stored
under them. Functions with the same id that can be called together get numbers, by the order of
declaration: ``fn``, ``fn-2``, ``fn-3``.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kopf._cogs.structs import dicts, ids
from kopf._core.actions import execution

HandlerT = TypeVar('HandlerT', bound=execution.Handler)
Occasions = Collection[str]


@dataclasses.dataclass
class _Slot:
    """The functions that share one id, since they are never called for the same occasion."""

    occasions: set[str]
    handlers: list[Any]


RESERVED = frozenset({'kopf-managed', 'kopf.cycle', 'last-handled-configuration', 'touch-dummy'})
"""
The names of our own annotations, which would conflict with the progress of handlers of such ids.
"""


def build_id(
    fn: Callable[..., Any],
    id: str | None = None,
    *,
    field: dicts.FieldPath | None = None,
    prefix: ids.HandlerId | None = None,
) -> ids.HandlerId:
    """Build the id of a handler from the parent's id, if any, the name, and the field, if any."""
    parts = [prefix, build_name(fn) if id is None else id, '.'.join(field) if field else None]
    built = ids.HandlerId('/'.join(part for part in parts if part is not None))
    if built in RESERVED:
        raise ValueError(
            f"The id {built!r} is taken by the framework's own records on objects. Choose another "
            'id=.'
        )
    return built


def build_name(fn: Callable[..., Any]) -> str:
    """Return the qualified name of a function; for lambdas, the file and the line."""
    origin = unwrap(fn)
    name: str = getattr(origin, '__qualname__', None) or type(origin).__qualname__
    if name.rpartition('.')[-1] == '<lambda>':
        return f'lambda:{_find_place(origin)}'
    return name


def unwrap(fn: Callable[..., Any]) -> Any:
    """Find the function inside of partials and decorators, as far as they expose it."""
    if isinstance(fn, functools.partial):
        return unwrap(fn.func)
    return unwrap(fn.__wrapped__) if hasattr(fn, '__wrapped__') else fn


def check_function(fn: object) -> None:
    """
    Raise `ValueError` unless it is a function or a method written in Python, or a wrapper of one.
    """
    origin = unwrap(fn) if callable(fn) else None
    if not inspect.isroutine(origin) or not hasattr(origin, '__code__'):
        raise ValueError(
            f'Only functions can be handlers, and {fn!r} is not one. Methods can be registered '
            f'for specific objects: kopf.on.create(...)(instance.method).'
        )


def describe_place(fn: Callable[..., Any]) -> str:
    """Describe where the function is defined."""
    origin = unwrap(fn)
    return _find_place(origin) if hasattr(origin, '__code__') else repr(origin)


def _find_place(origin: Any) -> str:
    return f'{origin.__code__.co_filename}:{origin.__code__.co_firstlineno}'


def deduplicate(items: Iterable[HandlerT]) -> list[HandlerT]:
    """Keep only the first of the handlers with the same function and the same id."""
    kept: dict[ids.HandlerId, list[object]] = {}
    unique: list[HandlerT] = []
    for handler in items:
        function = _identify(handler.fn)
        same = kept.setdefault(handler.id, [])
        if function not in same:
            same.append(function)
            unique.append(handler)

    return unique


def number_namesakes(
    declared: Sequence[HandlerT],
    list_occasions: Callable[[HandlerT], Occasions],
) -> list[HandlerT]:
    """
    Number the functions with the same id and occasions, except for the first one.

    All handlers of one function and id keep the same id. Functions that are never called together
    can share it.
    """
    groups = _group_by_ids(declared)
    numbered: dict[int, ids.HandlerId] = {}
    for name, group in groups.items():
        for slot in _separate(group, list_occasions)[1:]:
            new = _choose_free(name, {*groups, *numbered.values()})
            numbered |= {id(handler): new for handler in slot.handlers}

    return (
        [
            dataclasses.replace(handler, id=numbered[id(handler)])
            if id(handler) in numbered
            else handler
            for handler in declared
        ]
        if numbered
        else list(declared)
    )


def find_shared_ids(handlers: Sequence[HandlerT]) -> frozenset[ids.HandlerId]:
    """Find the ids shared by several functions, which are called for different causes."""
    groups = _group_by_ids(handlers)
    return frozenset(
        id for id, group in groups.items() if len(group) > 1 and len(_group_by_functions(group)) > 1
    )


def find_namesakes(
    declared: Sequence[HandlerT],
    numbered: Sequence[HandlerT],
) -> Mapping[ids.HandlerId, Mapping[ids.HandlerId, str]]:
    """
    Find the ids declared by several functions, with the places of the functions by numbered ids.
    """
    places: dict[ids.HandlerId, dict[ids.HandlerId, str]] = {}
    for before, after in zip(declared, numbered, strict=True):
        places.setdefault(before.id, {}).setdefault(after.id, describe_place(before.fn))
    return {id: functions for id, functions in places.items() if len(functions) > 1}


def _separate(
    group: Sequence[HandlerT], list_occasions: Callable[[HandlerT], Occasions]
) -> list[_Slot]:
    slots: list[_Slot] = []
    if len(group) < 2:
        return slots

    for handlers in _group_by_functions(group):
        occasions = {occasion for handler in handlers for occasion in list_occasions(handler)}
        slot = next((slot for slot in slots if slot.occasions.isdisjoint(occasions)), None)
        if slot is None:
            slots.append(_Slot(occasions, list(handlers)))
        else:
            slot.occasions |= occasions
            slot.handlers += handlers

    return slots


def _group_by_ids(handlers: Iterable[HandlerT]) -> dict[ids.HandlerId, list[HandlerT]]:
    groups: dict[ids.HandlerId, list[HandlerT]] = {}
    for handler in handlers:
        groups.setdefault(handler.id, []).append(handler)
    return groups


def _group_by_functions(group: Sequence[HandlerT]) -> list[list[HandlerT]]:
    """Group the handlers by their functions, which can be unhashable."""
    functions: list[object] = []
    grouped: list[list[HandlerT]] = []
    for handler in group:
        function = _identify(handler.fn)
        if function not in functions:
            functions.append(function)
            grouped.append([])
        grouped[functions.index(function)].append(handler)

    return grouped


def _choose_free(name: ids.HandlerId, taken: Collection[ids.HandlerId]) -> ids.HandlerId:
    number = 2
    while f'{name}-{number}' in taken:
        number += 1
    return ids.HandlerId(f'{name}-{number}')


def _identify(fn: Callable[..., Any]) -> object:
    """Return a comparable identity: methods of the same object and equal partials are equal."""
    if isinstance(fn, functools.partial):
        keywords = {name: _Argument(value) for name, value in fn.keywords.items()}
        return _identify(fn.func), tuple(map(_Argument, fn.args)), keywords
    return fn


class _Argument:
    """
    An argument of a partial, of any type: 1 must not equal true, and arrays cannot be compared.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Argument) or type(self.value) is not type(other.value):
            return False
        try:
            return self.value is other.value or bool(self.value == other.value)
        except Exception:
            return False
