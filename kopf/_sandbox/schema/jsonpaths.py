r"""
JSONPaths: the paths of fields in CRDs: in printer columns, scale paths, and selectable fields.

The dialect is that of Kubernetes: ``.spec.a.b``, ``.metadata.labels.example\.com/x`` or
``['example\.com/x']``, ``.items[0]``, ``[-1]``, ``[1:3]``, ``[*]``, ``[0,2]``, ``..name``,
``.conditions[?(@.type=="Ready")].status``. As in the API, dots separate keys even inside quoted
brackets, unless escaped.

Absent fields are not found; a path that cannot be evaluated on an object (an index out of bounds, a
comparison of a number with a string) finds nothing at all. Only malformed paths raise, when
compiled.
"""

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol

_FIELD = re.compile(r'(?:\\.|[^\s.,\[\]$@{}\\])*')
_NUMBER = re.compile(r'[+-]?\d[\d.]*')
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'')
_FILTER = re.compile(r'\[\?\(((?:[^"\'\n)]|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')*)\)\]')
_COMPARISON = re.compile(r'([^!<>=]+)([!<>=]+)(.+)')
_BRACKETS = re.compile(r'\[([^\]\n]*)\]')
_KEY = re.compile(r"'([^']*)'")
_RANGE = re.compile(r'(-?\d*)(:-?\d*)?(:-?\d*)?')
_ESCAPE = re.compile(r'\\(.)')

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    '==': operator.eq,
    '!=': operator.ne,
    '<': operator.lt,
    '<=': operator.le,
    '>': operator.gt,
    '>=': operator.ge,
}
_ORDERED = frozenset([int, float, str])


class _Mismatch(Exception):
    """The path cannot be evaluated on this object: nothing is found."""


class _Step(Protocol):
    def apply(self, values: list[Any], /) -> list[Any]: ...


@dataclasses.dataclass(frozen=True)
class Path:
    """A compiled path. Finding does not modify objects; setting does."""

    text: str
    steps: tuple[_Step, ...]
    keys: tuple[str, ...] | None  # the keys of a simple dotted path; None for other paths

    def find(self, obj: Any) -> list[Any]:
        """Return all values at the path, including nulls."""
        try:
            return _walk(self.steps, [obj])
        except _Mismatch:
            return []

    def get(self, obj: Any, default: Any = None) -> Any:
        """Return the first value found, or the default if there is none."""
        found = self.find(obj)
        return found[0] if found else default

    def set(self, obj: dict[str, Any], value: Any) -> None:
        """Set the value in the object, creating missing parents; only for simple dotted paths."""
        if not self.keys:
            raise ValueError(f'Cannot set {self.text!r}: only simple dotted paths can be set.')
        *parents, last = self.keys
        for key in parents:
            obj = obj.setdefault(key, {})
            if not isinstance(obj, dict):
                raise ValueError(f'Cannot set {self.text!r}: {key!r} is not an object.')

        obj[last] = value


@functools.lru_cache(maxsize=1024)
def compile_path(text: str) -> Path:
    """Compile a path; the results are cached. Raises `ValueError` if the syntax is wrong."""
    steps = tuple(_parse(text))
    fields = tuple(step.name for step in steps if isinstance(step, _Field))
    return Path(text, steps, keys=fields if len(fields) == len(steps) else None)


@dataclasses.dataclass(frozen=True)
class _Field:
    name: str

    def apply(self, values: list[Any], /) -> list[Any]:
        return [
            value[self.name] for value in values if isinstance(value, dict) and self.name in value
        ]


@dataclasses.dataclass(frozen=True)
class _Wildcard:
    def apply(self, values: list[Any], /) -> list[Any]:
        return [child for value in values for child in _iter_children(value)]


@dataclasses.dataclass(frozen=True)
class _Descent:
    def apply(self, values: list[Any], /) -> list[Any]:
        found: list[Any] = []
        pending = values[::-1]
        while pending:
            value = pending.pop()
            if children := list(_iter_children(value)):
                found.append(value)
                pending.extend(reversed(children))

        return found


@dataclasses.dataclass(frozen=True)
class _Items:
    """One item or a range of a list; unlike in Python, going out of bounds is a mismatch."""

    start: int
    stop: int | None
    step: int = 1

    def apply(self, values: list[Any], /) -> list[Any]:
        return [item for value in values if value is not None for item in self._slice(value)]

    def _slice(self, value: Any) -> list[Any]:
        if not isinstance(value, list) or self.step <= 0:
            raise _Mismatch
        size = len(value)
        start = self.start + size if self.start < 0 else self.start
        stop = size if self.stop is None else self.stop + size if self.stop < 0 else self.stop
        if start != stop and not 0 <= start < stop <= size:
            raise _Mismatch
        return value[start : stop : self.step]


@dataclasses.dataclass(frozen=True)
class _Union:
    branches: tuple[tuple[_Step, ...], ...]

    def apply(self, values: list[Any], /) -> list[Any]:
        return [found for branch in self.branches for found in _walk(branch, values)]


@dataclasses.dataclass(frozen=True)
class _Literal:
    value: Any

    def apply(self, values: list[Any], /) -> list[Any]:
        return [self.value]


@dataclasses.dataclass(frozen=True)
class _Filter:
    """The items of a list that satisfy a comparison, or, without an operator, have a field."""

    left: tuple[_Step, ...]
    operator: str
    right: tuple[_Step, ...]

    def apply(self, values: list[Any], /) -> list[Any]:
        if not all(isinstance(value, list) for value in values):
            raise _Mismatch
        return [item for value in values for item in value if self._passes(item)]

    def _passes(self, item: Any) -> bool:
        lefts = _walk(self.left, [item])
        if not self.operator or not lefts:
            return bool(lefts)
        rights = _walk(self.right, [item])
        if not rights:
            return False
        if len(lefts) > 1 or len(rights) > 1:
            raise _Mismatch
        return _compare(self.operator, lefts[0], rights[0])


def _compare(sign: str, left: Any, right: Any) -> bool:
    comparison = _OPERATORS.get(sign)
    comparable = type(left) in _ORDERED or (type(left) is bool and sign in ('==', '!='))
    if comparison is None or type(left) is not type(right) or not comparable:
        raise _Mismatch
    return comparison(left, right)


def _walk(steps: tuple[_Step, ...], values: list[Any]) -> list[Any]:
    for step in steps:
        values = step.apply(values)
    return values


def _iter_children(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _parse(text: str) -> Iterator[_Step]:
    position = 0
    while position < len(text):
        char = text[position]
        if char in ' @$':
            position += 1
            continue
        parser = _PARSERS.get(char, _parse_scalar)
        step, position = parser(text, position)
        yield from step


_Parsed = tuple[tuple[_Step, ...], int]  # the steps, and the position after them


def _parse_dots(text: str, position: int) -> _Parsed:
    if not text.startswith('..', position):
        return _parse_field(text, position + 1)
    position += 2
    if text.startswith('..', position):
        raise ValueError(f'Invalid path {text!r}: multiple recursive descent.')
    if position < len(text) and (text[position].isalnum() or text[position] == '_'):
        steps, position = _parse_field(text, position)
        return (_Descent(), *steps), position

    return (_Descent(),), position


def _parse_field(text: str, position: int) -> _Parsed:
    match = _match(_FIELD, text, position, 'a field name is expected')  # it may be empty, as in "."
    name = match.group()
    step: _Step = _Wildcard() if name == '*' else _Field(name.replace('\\', ''))
    return (step,), match.end()


def _parse_brackets(text: str, position: int) -> _Parsed:
    if text.startswith('[?(', position):
        return _parse_filter(text, position)
    match = _match(_BRACKETS, text, position, 'the bracket is not closed')
    parts = [part.strip(' ') for part in match.group(1).split(',')]
    branches = tuple(tuple(_parse_selection(text, part)) for part in parts)
    return (branches[0] if len(branches) == 1 else (_Union(branches),)), match.end()


def _parse_selection(text: str, selection: str) -> Iterator[_Step]:
    if match := _KEY.fullmatch(selection):
        yield from _parse('.' + match.group(1))
        return

    match = _RANGE.fullmatch(':' if selection == '*' else selection)
    if match is None:
        raise ValueError(f'Invalid path {text!r}: invalid array index {selection}.')

    start, stop, step = match.groups()
    first = int(start or 0)
    past = first + 1 or None  # the last item has no index after it
    if stop is not None:
        past = int(stop[1:]) if stop[1:] else None
    yield _Items(first, past, int(step[1:]) if step and step[1:] else 1)


def _parse_filter(text: str, position: int) -> _Parsed:
    match = _match(_FILTER, text, position, 'the filter is not closed')
    condition = match.group(1)
    comparison = _COMPARISON.fullmatch(condition)
    left, sign, right = comparison.groups() if comparison else (condition, '', '')
    return (_Filter(tuple(_parse(left)), sign, tuple(_parse(right))),), match.end()


def _parse_quoted(text: str, position: int) -> _Parsed:
    match = _match(_QUOTED, text, position, 'the string is not closed')
    return (_Literal(_ESCAPE.sub(r'\1', match.group()[1:-1])),), match.end()


def _parse_scalar(text: str, position: int) -> _Parsed:
    for word, value in (('true', True), ('false', False)):
        if text.startswith(word, position):
            return (_Literal(value),), position + len(word)

    match = _match(_NUMBER, text, position, f'unrecognized character {text[position]!r}')
    number = match.group()
    try:
        return (_Literal(float(number) if '.' in number else int(number)),), match.end()
    except ValueError:
        raise ValueError(f'Invalid path {text!r}: cannot parse the number {number}.') from None


def _match(pattern: re.Pattern[str], text: str, position: int, problem: str) -> re.Match[str]:
    match = pattern.match(text, position)
    if match is None:
        raise ValueError(f'Invalid path {text!r}: {problem}.')
    return match


_PARSERS: dict[str, Callable[[str, int], _Parsed]] = {
    '.': _parse_dots,
    '[': _parse_brackets,
    '"': _parse_quoted,
    "'": _parse_quoted,
}
