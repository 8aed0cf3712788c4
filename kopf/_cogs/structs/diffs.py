"""
Diffs: changes between two states of an object or of its field.

Mappings are compared by their keys, everything else as a whole, including lists. ``None`` is the
same as absence. In each mapping, additions go first, then removals, then nested changes; each group
is sorted by the keys.
"""

import enum
import heapq
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from kopf._cogs.structs import dicts

SORTING_LIMIT = 10_000
"""How many keys are sorted at once, in a few milliseconds; only hostile objects change more."""


class DiffOperation(enum.StrEnum):
    """The kind of a change of a field."""

    ADD = 'add'
    CHANGE = 'change'
    REMOVE = 'remove'

    def __repr__(self) -> str:
        return repr(self.value)


class DiffItem(NamedTuple):
    """One changed field; the field ``()`` means that the whole value has changed."""

    operation: DiffOperation
    field: dicts.FieldPath
    old: Any
    new: Any

    @property
    def op(self) -> DiffOperation:
        """The same as ``operation``."""
        return self.operation

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of the same parts: JSON turns items into lists."""
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __repr__(self) -> str:
        return repr(tuple(self))


class Diff(Sequence[DiffItem]):
    """An immutable sequence of changes; equal to any sequence of the same changes, e.g. tuples."""

    __slots__ = ('_items',)

    def __init__(
        self, items: Iterable[tuple[DiffOperation | str, dicts.FieldPath, Any, Any]] = (), /
    ) -> None:
        self._items = tuple(
            item
            if isinstance(item, DiffItem)
            else DiffItem(DiffOperation(item[0]), tuple(item[1]), *item[2:])
            for item in items
        )

    @overload
    def __getitem__(self, i: int, /) -> DiffItem: ...

    @overload
    def __getitem__(self, i: slice, /) -> 'Diff': ...

    def __getitem__(self, i: int | slice, /) -> 'DiffItem | Diff':
        return Diff(self._items[i]) if isinstance(i, slice) else self._items[i]

    def __iter__(self) -> Iterator[DiffItem]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Diff):
            return self._items == other._items
        return self._items == tuple(other) if isinstance(other, list | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


EMPTY = Diff()
_ADDED, _REMOVED, _CHANGED = range(3)  # the order of changes in a mapping


def diff(a: Any, b: Any) -> Diff:
    """Return the changes that turn the first value into the second one."""
    items = _compare(a, b, ())
    return Diff(items) if items else EMPTY


def copy(old: Any, new: Any, diff: Diff) -> dict[str, Any]:
    """Copy two states and their diff deeply, so that the copies can be changed in place."""
    copies = {id(old): dicts.copy_json(old)}
    if new is not old:
        copies[id(new)] = dicts.copy_json(new)
    if not diff:
        return {'old': copies[id(old)], 'new': copies[id(new)], 'diff': EMPTY}

    def copy_value(value: Any) -> Any:
        if type(value) is str or value is None:
            return value
        return copies[id(value)] if id(value) in copies else dicts.copy_json(value)

    items = [item._replace(old=copy_value(item.old), new=copy_value(item.new)) for item in diff]
    return {'old': copies[id(old)], 'new': copies[id(new)], 'diff': Diff(items)}


def reduce(diff: Diff, path: dicts.FieldPath) -> Diff:
    """Return only the changes of one field, with the fields of the items relative to it."""
    if not path:
        return diff
    return Diff(reduced for item in diff for reduced in _reduce_item(item, path))


def _reduce_item(item: DiffItem, path: dicts.FieldPath) -> list[DiffItem]:
    depth = len(item.field)
    if item.field[: len(path)] == path:
        return [item._replace(field=item.field[len(path) :])]
    if item.field == path[:depth]:
        inner = path[depth:]
        return _compare(dicts.resolve(item.old, inner), dicts.resolve(item.new, inner), ())
    return []


def _compare(a: Any, b: Any, path: dicts.FieldPath) -> list[DiffItem]:
    if a is b:
        return []
    if dicts.is_mapping(a) and dicts.is_mapping(b):
        return _compare_mappings(a, b, path)
    if a is None:
        return [DiffItem(DiffOperation.ADD, path, None, b)]
    if b is None:
        return [DiffItem(DiffOperation.REMOVE, path, a, None)]
    return [] if _is_equal(a, b) else [DiffItem(DiffOperation.CHANGE, path, a, b)]


def _compare_mappings(
    a: Mapping[str, Any], b: Mapping[str, Any], path: dicts.FieldPath
) -> list[DiffItem]:
    """Find the keys that differ, then sort them: usual, unchanged mappings must be fast."""
    found: dict[tuple[int, str], list[DiffItem]] = {}
    for key, old in a.items():
        new = b.get(key)
        kind = type(old)
        if old is not new and (kind not in dicts.SCALARS or kind is not type(new) or old != new):
            items = _compare(old, new, (*path, key))
            if items:
                found[_ADDED if old is None else _REMOVED if new is None else _CHANGED, key] = items

    for key, new in b.items():
        if key not in a and new is not None:
            found[_ADDED, key] = _compare(None, new, (*path, key))

    return [item for key in _sort(found) for item in found[key]] if found else []


def _sort(keys: Collection[tuple[int, str]]) -> Iterable[tuple[int, str]]:
    """Sort the keys; if there are many, in parts: `sorted` does not release the interpreter."""
    if len(keys) <= SORTING_LIMIT:
        return sorted(keys)
    rest = iter(keys)
    parts = iter(lambda: sorted(itertools.islice(rest, SORTING_LIMIT)), [])
    return heapq.merge(*parts)


def _is_equal(a: Any, b: Any) -> bool:
    """Compare values that are not both mappings: true is not 1, but tuples are lists."""
    # The usual case, which is checked quickly.
    if type(a) is list and a == b and dicts.is_surely_same(a, b):
        return True
    if isinstance(a, list | tuple):
        return (
            isinstance(b, list | tuple)
            and len(a) == len(b)
            and not any(map(_compare, a, b, itertools.repeat(())))
        )
    return bool(a == b) and isinstance(a, bool) is isinstance(b, bool)
