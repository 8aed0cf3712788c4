"""
Types: the static types of CEL, with the assignability and the inference of type parameters.

Types are compared by value. Types of objects have fields; parameters of functions are types with
names of one capital letter.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Final


@dataclasses.dataclass(frozen=True)
class Type:
    """One type; ``fields`` are only for objects."""

    name: str
    params: 'tuple[Type, ...]' = ()
    fields: 'Mapping[str, Type] | None' = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        shown = _SHOWN.get(self.name, self.name)
        return f'{shown}({", ".join(map(str, self.params))})' if self.params else shown

    @property
    def is_parameter(self) -> bool:
        return len(self.name) == 1 and self.name.isupper()


_SHOWN: Final = {'optional': 'optional_type', 'null_type': 'null'}

DYN: Final = Type('dyn')
ERROR: Final = Type('!error!')
BOOL: Final = Type('bool')
INT: Final = Type('int')
UINT: Final = Type('uint')
DOUBLE: Final = Type('double')
STRING: Final = Type('string')
BYTES: Final = Type('bytes')
NULL: Final = Type('null_type')
TIMESTAMP: Final = Type('timestamp')
DURATION: Final = Type('duration')

_LOOSE: Final = ('dyn', '!error!')
_NULLABLE: Final = ('timestamp', 'duration')

Bindings = dict[str, Type]


def list_of(item: Type) -> Type:
    return Type('list', (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type('map', (key, value))


def optional_of(value: Type) -> Type:
    return Type('optional', (value,))


def object_of(name: str, fields: Mapping[str, Type]) -> Type:
    return Type(name, (), fields)


@functools.cache
def parse(text: str) -> Type:
    """Parse a type as it is written in the declarations of functions: ``map(string, list(T))``."""
    name, _, rest = text.strip().partition('(')
    if not rest:
        return Type(name)
    return Type(name, tuple(parse(part) for part in split(rest[:-1])))


def split(text: str) -> list[str]:
    """Split by the commas outside of parentheses."""
    parts = []
    depth = 0
    start = 0

    for index, char in enumerate(text):
        depth += (char == '(') - (char == ')')
        if char == ',' and not depth:
            parts.append(text[start:index].strip())
            start = index + 1

    return [*parts, text[start:].strip()] if text.strip() else []


def is_loose(kind: Type) -> bool:
    """Return whether nothing is known about the values of this type."""
    return kind.name in _LOOSE


def assign(wanted: Type, given: Type, bindings: Bindings) -> bool:
    """Return whether a value can be used for a parameter. Adds inferred types to the bindings."""
    if wanted.is_parameter:
        return _bind(wanted, given, bindings)
    if is_loose(wanted) or is_loose(given):
        return True
    if given.is_parameter:
        return True
    if given.name == 'null_type' and (wanted.name in _NULLABLE or wanted.fields is not None):
        return True
    return wanted.name == given.name and all(
        assign(*pair, bindings) for pair in zip(wanted.params, given.params, strict=False)
    )


def _bind(wanted: Type, given: Type, bindings: Bindings) -> bool:
    known = bindings.get(wanted.name)
    if known is None or is_loose(known) or known.is_parameter:
        bindings[wanted.name] = given if known is None or not is_loose(given) else known
        return True

    if assign(known, given, {}):
        return True

    is_wider = assign(given, known, {})
    if is_wider:
        bindings[wanted.name] = given
    return is_wider


def substitute(kind: Type, bindings: Bindings) -> Type:
    """Replace the type parameters by what they are known to be."""
    if kind.is_parameter:
        return bindings.get(kind.name, DYN)
    if not kind.params:
        return kind
    params = tuple(substitute(param, bindings) for param in kind.params)
    return dataclasses.replace(kind, params=params)


def join(first: Type | None, second: Type) -> Type:
    """Return the type of a collection of values of two types."""
    if first is None or first == second:
        return second
    if first.is_parameter or (is_loose(second) and not is_loose(first)):
        return second
    return first if assign(first, second, {}) and not is_loose(first) else DYN
