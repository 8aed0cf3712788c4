"""
Functions: their declarations, by which calls are checked and dispatched.

A signature is a line such as ``list(T), T -> int``: the types of the parameters and of the result.
The first parameter of a method is its receiver.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from kopf._sandbox.cel import cel_types, values

Implementation = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Overload:
    """One way to call a function; the receiver of a method is the first parameter."""

    is_method: bool
    parameters: tuple[cel_types.Type, ...]
    result: cel_types.Type
    call: Implementation

    def accepts(self, arguments: Sequence[Any]) -> bool:
        return all(map(values.fits, self.parameters, arguments))


class Library:
    """Functions by their names."""

    def __init__(self) -> None:
        self.overloads: dict[str, list[Overload]] = {}

    def function(self, name: str, signature: str, call: Implementation) -> None:
        self._add(name, signature, call, is_method=False)

    def method(self, name: str, signature: str, call: Implementation) -> None:
        self._add(name, signature, call, is_method=True)

    def include(self, other: 'Library') -> None:
        """Add all functions of another library."""
        for name, overloads in other.overloads.items():
            self.overloads.setdefault(name, []).extend(overloads)

    def find(self, name: str, *, is_method: bool, count: int) -> list[Overload]:
        """Return the overloads for calls with so many arguments, including the receiver."""
        return [
            overload
            for overload in self.overloads.get(name, ())
            if overload.is_method == is_method and len(overload.parameters) == count
        ]

    def _add(self, name: str, signature: str, call: Implementation, *, is_method: bool) -> None:
        before, _, result = signature.partition('->')
        parameters = tuple(map(cel_types.parse, cel_types.split(before)))
        overload = Overload(is_method, parameters, cel_types.parse(result), call)
        self.overloads.setdefault(name, []).append(overload)
