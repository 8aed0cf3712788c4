"""
Syntax: from the text of an expression to its tree.

The texts are parsed by the library of CEL, which is loaded with the first expression; without it,
there are no expressions. Here its serialized trees are read.
"""

import dataclasses
import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.cel import values
from kopf._sandbox.codec import wire_format

_STATUS: Final = re.compile(r'^[A-Z_]+: |\s*\[[A-Z_]+\]$')
_RESULT: Final = '@result'


class SyntaxProblem(Exception):
    """The text is not an expression; the message shows where."""


@dataclasses.dataclass(slots=True, eq=False)
class Node:
    """One node of a tree; ``offset`` is its place in the text."""

    offset: int


@dataclasses.dataclass(slots=True, eq=False)
class Constant(Node):
    value: Any


@dataclasses.dataclass(slots=True, eq=False)
class Name(Node):
    name: str


@dataclasses.dataclass(slots=True, eq=False)
class Select(Node):
    operand: Node
    field: str
    is_test: bool  # has(a.b)


@dataclasses.dataclass(slots=True, eq=False)
class Call(Node):
    function: str
    target: Node | None
    arguments: list[Node]


@dataclasses.dataclass(slots=True, eq=False)
class ListNode(Node):
    items: list[Node]
    optional: frozenset[int]


@dataclasses.dataclass(slots=True, eq=False)
class Entry:
    key: Node | str
    value: Node
    is_optional: bool


@dataclasses.dataclass(slots=True, eq=False)
class StructNode(Node):
    """A map, or an object if it has a name."""

    name: str
    entries: list[Entry]


@dataclasses.dataclass(slots=True, eq=False)
class Comprehension(Node):
    """A loop: all macros such as ``all`` and ``map`` are loops."""

    variable: str
    second: str  # the second variable, if any
    range: Node
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node


@functools.cache
def _load_parser() -> Any:
    from cel_expr_python import cel  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from cel_expr_python.ext import ext_optional  # type: ignore[import-untyped,import-not-found,unused-ignore]

    return cel.NewEnv(extensions=[ext_optional.ExtOptional()])


def parse(text: str) -> Node:
    """Parse an expression; raise `SyntaxProblem` with the errors as the API shows them."""
    try:
        raw = _load_parser().compile(text, disable_check=True).serialize()
    except (RuntimeError, ValueError) as error:
        raise SyntaxProblem(_STATUS.sub('', str(error)).replace('@input', '<input>')) from error

    _, message = wire_format.read_pair(raw, 'Any')
    parts = dict(_group(message))
    info = dict(_group(parts.get(3, [b''])[0]))
    positions = dict(_read_position(entry) for entry in info.get(4, []))

    return _Reader(positions).read(parts[2][0])


def locate(text: str, offset: int, message: str) -> str:
    """Return a message with the place in the text, as the API shows it."""
    before = text[:offset]
    line = before.count('\n')
    column = offset - (before.rfind('\n') + 1)
    shown = text.split('\n')[line]
    return f'ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {shown}\n | {"." * column}^'


def _group(raw: bytes) -> Iterator[tuple[int, list[Any]]]:
    found: dict[int, list[Any]] = {}
    for number, _, value in wire_format.read_fields(raw, 'Expr'):
        found.setdefault(number, []).append(value)
    yield from found.items()


def _read_position(entry: bytes) -> tuple[int, int]:
    parts = dict(_group(entry))
    return parts.get(1, [0])[0], parts.get(2, [0])[0]


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads serialized nodes; the positions are by their numbers."""

    positions: Mapping[int, int]

    def read(self, raw: bytes) -> Node:
        parts = dict(_group(raw))
        offset = self.positions.get(parts.get(2, [0])[0], 0)
        for number, read in self._readers.items():
            if number in parts:
                return read(offset, dict(_group(parts[number][0])))
        return Constant(offset, None)

    @property
    def _readers(self) -> dict[int, Callable[[int, dict[int, list[Any]]], Node]]:
        return {
            3: _read_constant,
            4: lambda offset, parts: Name(offset, _text(parts, 1)),
            5: self._read_select,
            6: self._read_call,
            7: self._read_list,
            8: self._read_struct,
            9: self._read_comprehension,
        }

    def _read_select(self, offset: int, parts: dict[int, list[Any]]) -> Node:
        return Select(offset, self.read(parts[1][0]), _text(parts, 2), 3 in parts)

    def _read_call(self, offset: int, parts: dict[int, list[Any]]) -> Node:
        target = self.read(parts[1][0]) if 1 in parts else None
        call = Call(offset, _text(parts, 2), target, [self.read(raw) for raw in parts.get(3, [])])
        expand = _MACROS.get((call.function, len(call.arguments)))
        if expand is None or target is None or not _names_variables(call):
            return call
        first, second, *rest = call.arguments
        assert isinstance(first, Name) and isinstance(second, Name), 'they are checked above'
        return expand(_Loop(offset, target, first.name, second.name), rest)

    def _read_list(self, offset: int, parts: dict[int, list[Any]]) -> Node:
        optional: set[int] = set()
        for value in parts.get(2, []):
            packed = isinstance(value, bytes)
            optional.update(wire_format.read_packed(value, 0) if packed else [value])
        return ListNode(offset, [self.read(raw) for raw in parts.get(1, [])], frozenset(optional))

    def _read_struct(self, offset: int, parts: dict[int, list[Any]]) -> Node:
        entries = [self._read_entry(dict(_group(raw))) for raw in parts.get(2, [])]
        return StructNode(offset, _text(parts, 1), entries)

    def _read_entry(self, parts: dict[int, list[Any]]) -> Entry:
        key = _text(parts, 2) if 2 in parts else self.read(parts[3][0])
        return Entry(key, self.read(parts[4][0]), 5 in parts)

    def _read_comprehension(self, offset: int, parts: dict[int, list[Any]]) -> Node:
        nodes = {number: self.read(parts[number][0]) for number in (2, 4, 5, 6, 7)}
        return Comprehension(
            offset,
            _text(parts, 1),
            _text(parts, 8),
            nodes[2],
            _text(parts, 3),
            nodes[4],
            nodes[5],
            nodes[6],
            nodes[7],
        )


def _text(parts: Mapping[int, list[Any]], number: int) -> str:
    return str(parts.get(number, [b''])[0], 'utf-8')


def _read_constant(offset: int, parts: dict[int, list[Any]]) -> Node:
    for number, (value, *_) in parts.items():
        return Constant(offset, _CONSTANTS[number](value))
    return Constant(offset, None)


_CONSTANTS: Final[dict[int, Callable[[Any], Any]]] = {
    1: lambda value: None,
    2: bool,
    3: lambda value: wire_format.convert_sign(value, bits=64),
    4: values.Uint,
    5: lambda value: struct.unpack('<d', value.to_bytes(8, 'little'))[0],
    6: lambda value: value.decode(),
    7: bytes,
}


@dataclasses.dataclass(frozen=True)
class _Loop:
    """A loop with two variables: the library does not know such macros."""

    offset: int
    range: Node
    first: str
    second: str

    def fold(self, initial: Node, condition: Node, step: Node, result: Node) -> Node:
        return Comprehension(
            self.offset,
            self.first,
            self.second,
            self.range,
            _RESULT,
            initial,
            condition,
            step,
            result,
        )

    def call(self, function: str, *arguments: Node) -> Node:
        return Call(self.offset, function, None, list(arguments))

    def constant(self, value: Any) -> Node:
        return Constant(self.offset, value)

    @property
    def accumulated(self) -> Node:
        return Name(self.offset, _RESULT)


def _names_variables(call: Call) -> bool:
    return all(isinstance(argument, Name) for argument in call.arguments[:2])


def _expand_all(loop: _Loop, arguments: list[Node]) -> Node:
    condition = loop.call('@not_strictly_false', loop.accumulated)
    step = loop.call('_&&_', loop.accumulated, arguments[0])
    return loop.fold(loop.constant(True), condition, step, loop.accumulated)


def _expand_exists(loop: _Loop, arguments: list[Node]) -> Node:
    condition = loop.call('@not_strictly_false', loop.call('!_', loop.accumulated))
    step = loop.call('_||_', loop.accumulated, arguments[0])
    return loop.fold(loop.constant(False), condition, step, loop.accumulated)


def _expand_exists_one(loop: _Loop, arguments: list[Node]) -> Node:
    more = loop.call('_+_', loop.accumulated, loop.constant(1))
    step = loop.call('_?_:_', arguments[0], more, loop.accumulated)
    result = loop.call('_==_', loop.accumulated, loop.constant(1))
    return loop.fold(loop.constant(0), loop.constant(True), step, result)


def _expand_transform_list(loop: _Loop, arguments: list[Node]) -> Node:
    added = ListNode(loop.offset, [arguments[-1]], frozenset())
    step = loop.call('_+_', loop.accumulated, added)
    if len(arguments) > 1:
        step = loop.call('_?_:_', arguments[0], step, loop.accumulated)
    initial = ListNode(loop.offset, [], frozenset())
    return loop.fold(initial, loop.constant(True), step, loop.accumulated)


def _expand_transform_map(loop: _Loop, arguments: list[Node]) -> Node:
    key = Name(loop.offset, loop.first)
    step = loop.call('@put', loop.accumulated, key, arguments[-1])
    if len(arguments) > 1:
        step = loop.call('_?_:_', arguments[0], step, loop.accumulated)
    initial = StructNode(loop.offset, '', [])
    return loop.fold(initial, loop.constant(True), step, loop.accumulated)


_MACROS: Final[dict[tuple[str, int], Callable[[_Loop, list[Node]], Node]]] = {
    ('all', 3): _expand_all,
    ('exists', 3): _expand_exists,
    ('existsOne', 3): _expand_exists_one,
    ('exists_one', 3): _expand_exists_one,
    ('transformList', 3): _expand_transform_list,
    ('transformList', 4): _expand_transform_list,
    ('transformMap', 3): _expand_transform_map,
    ('transformMap', 4): _expand_transform_map,
}
