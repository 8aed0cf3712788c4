"""
Callbacks: the criteria that limit the calls of handlers, and combinators of functions.

The functions are always synchronous. Functions of ``when=`` get only keywords: the kwargs of the
handler. Those for values (of labels, annotations, fields) also get the value as the only positional
argument, ``None`` if it is absent. In both cases, only the truthiness of the result matters.
"""

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from kopf._core.actions import signatures


class MetaFilterToken(enum.Enum):
    """Criteria that no value can express."""

    PRESENT = enum.auto()
    ABSENT = enum.auto()

    def __repr__(self) -> str:
        return f'kopf.{self.name}'


PRESENT: Final = MetaFilterToken.PRESENT
"""Any value is accepted, including an empty one."""

ABSENT: Final = MetaFilterToken.ABSENT
"""There must be no value."""

FilterFn: TypeAlias = Callable[..., Any]
MetaFilter: TypeAlias = Mapping[str, str | MetaFilterToken | FilterFn]
"""The criteria of labels or annotations, by their names."""
ValueFilter: TypeAlias = Any
"""The criterion of a field: an exact value, a token, or a function; ``None`` means no criterion."""


def not_(fn: FilterFn) -> FilterFn:
    """Accept the values that the function does not accept."""
    return none_([fn])


def all_(fns: Iterable[FilterFn]) -> FilterFn:
    """Accept the values that all functions accept; any value if there are no functions."""
    kept = tuple(map(signatures.narrow, fns))

    def accept_all(*args: Any, **kwargs: Any) -> bool:
        return all(fn(*args, **kwargs) for fn in kept)

    return accept_all


def any_(fns: Iterable[FilterFn]) -> FilterFn:
    """
    Accept the values that at least one of the functions accepts; none if there are no functions.
    """
    kept = tuple(map(signatures.narrow, fns))

    def accept_any(*args: Any, **kwargs: Any) -> bool:
        return any(fn(*args, **kwargs) for fn in kept)

    return accept_any


def none_(fns: Iterable[FilterFn]) -> FilterFn:
    """Accept the values that none of the functions accepts; any value if there are no functions."""
    kept = tuple(map(signatures.narrow, fns))

    def accept_none(*args: Any, **kwargs: Any) -> bool:
        return not any(fn(*args, **kwargs) for fn in kept)

    return accept_none
