"""
Declarations: turn the arguments of decorators into handlers, and add them to the registries.

The decorators themselves, with their signatures, are in `kopf.on`. They pass their arguments as
``locals()``: the names of the arguments are those of the options. Invalid arguments raise
`TypeError` or `ValueError`, which name the decorator.
"""

import dataclasses
import math
import typing
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

from kopf._cogs.structs import dicts, reviews, selectors
from kopf._core.actions import execution
from kopf._core.intents import arguments, causes, filters, handlers, mappings, naming, registries

_Fn = TypeVar('_Fn', bound=Callable[..., Any])


class Decorator(Protocol):
    """A decorator that returns the function as it is."""

    def __call__(self, fn: _Fn, /) -> _Fn: ...


def declare_activity(given: Mapping[str, Any], activity: causes.Activity) -> Decorator:
    """Turn the arguments of a decorator into the options of a handler of the operator itself."""
    options = {name: value for name, value in given.items() if name not in ('id', 'registry')}

    def build(fn: Callable[..., Any]) -> handlers.ActivityHandler:
        return handlers.ActivityHandler(
            fn=fn, id=naming.build_id(fn, given['id']), activity=activity, **options
        )

    return _decorate(build, given['registry'])


def declare(
    name: str,
    given: Mapping[str, Any],
    cls: type[handlers.ResourceHandler],
    **fixed: Any,
) -> Decorator:
    """
    Check the arguments of a decorator, and turn them into the options of a handler.

    The fixed options are added. Arguments that are not options of the handler are used by the
    decorators themselves.
    """
    try:
        selector = selectors.build_selector(
            given['arg1'],
            given['arg2'],
            given['arg3'],
            **{key: given[key] for key in ('group', 'version', *selectors.KEYWORDS)},
        )
        field = dicts.parse_field(given['field']) or None
        criteria = ('labels', 'annotations', 'when', 'value', 'old', 'new')
        filters.check_filters(field=field, **{key: given.get(key) for key in criteria})
    except (TypeError, ValueError) as error:
        raise type(error)(f'@kopf.on.{name}: {error}') from None

    names = {option.name for option in dataclasses.fields(cls)} & given.keys() - {
        'id',
        'field',
    } - fixed.keys()
    options = {key: given[key] for key in names}

    def build(fn: Callable[..., Any]) -> handlers.ResourceHandler:
        # Indices are named as they are passed to handlers.
        suffix = None if cls is handlers.IndexingHandler else field
        id = naming.build_id(fn, given['id'], field=suffix)
        return cls(fn=fn, id=id, selector=selector, field=field, **options, **fixed)

    return _decorate(build, given['registry'])


def _decorate(
    build: Callable[[Callable[..., Any]], execution.Handler],
    registry: registries.OperatorRegistry | None,
) -> Decorator:
    def decorate(fn: _Fn, /) -> _Fn:
        naming.check_function(fn)
        target = registries.get_default_registry() if registry is None else registry
        handler = build(fn)
        arguments.check_declaration(handler)
        target._append(handler)
        return fn

    return decorate


def check_paces(*, workers: int | None, **seconds: float | None) -> None:
    """Check the options of level-triggered functions that are numbers."""
    for name, value in {'workers': workers, **seconds}.items():
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (name == 'workers' and not isinstance(value, int)):
            raise TypeError(f'@kopf.on.reconcile: {name}= is a number; got {value!r}.')
        if not 0 < value < math.inf:
            raise ValueError(
                f'@kopf.on.reconcile: {name}= must be above 0, and finite; got {value!r}.'
            )


def parse_links(owns: Any, watches: Any) -> dict[str, Any]:
    """Parse the options of level-triggered functions about other objects."""
    try:
        return {
            'owns': mappings.parse_owns(owns),
            'watches': mappings.parse_watches(watches),
        }
    except TypeError as error:
        raise TypeError(f'@kopf.on.reconcile: {error}') from None


def unite_operations(
    name: str,
    operation: reviews.Operation | None,
    operations: Collection[reviews.Operation] | None,
) -> frozenset[reviews.Operation] | None:
    """
    Check and unite both notations of operations; ``None`` means all of them.

    The decorators call it directly: warnings refer to the line of the decorator's caller.
    """
    if operation is not None:
        warnings.warn(
            f'@kopf.on.{name}: operation= is deprecated; use operations=, with a list of them.',
            DeprecationWarning,
            stacklevel=3,
        )

    if operations is None and operation is None:
        return None
    if isinstance(operations, str):
        raise TypeError(
            f'@kopf.on.{name}: operations= is a collection of operations; got {operations!r}.'
        )
    if operations is not None and not operations:
        raise ValueError(
            f'@kopf.on.{name}: operations= is empty, so the function would never be called. '
            f'List the operations, or omit it for all of them.'
        )

    united = frozenset([*(operations or ()), *([] if operation is None else [operation])])
    unknown = united.difference((*typing.get_args(reviews.Operation), '*'))
    if unknown:
        raise ValueError(
            f'@kopf.on.{name}: there are no such operations as '
            f'{", ".join(sorted(map(repr, unknown)))}. There are '
            f'{", ".join(typing.get_args(reviews.Operation))}; omit it for all of them.'
        )
    return frozenset(typing.get_args(reviews.Operation)) if '*' in united else united
