"""
Indices: what is known of objects by keys of the users' choice, in memory only.

Users see them as read-only mappings of keys to stores, live: as the objects change, so do they. They can be read from
any thread at any time, also while they are being updated. All updates are made in the event loop of the operator.
"""
import abc
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar('K')
V = TypeVar('V')

Source = Hashable
"""Whose values they are: an object, and the function that has indexed it."""


class Store(Collection[V], Generic[V], abc.ABC):
    """The values of all objects for one key, in no order, never none."""


class Index(Mapping[K, Store[V]], Generic[K, V], abc.ABC):
    """Stores by keys. Every read is of one moment: who iterates is not disturbed by updates."""


class _Store(Store[Any]):
    __slots__ = ('_items',)

    def __init__(self) -> None:
        self._items: dict[Source, Any] = {}

    def __repr__(self) -> str:
        return repr(list(self))

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._items.values()))

    def __contains__(self, value: object) -> bool:
        return value in tuple(self._items.values())


class LiveIndex(Index[Any, Any]):
    """
    An index, and the ways to update it.

    Every operation takes as long as there are keys of one object, whatever the size of the index.
    """

    def __init__(self) -> None:
        self._stores: dict[Any, _Store] = {}
        self._keys: dict[Source, tuple[Any, ...]] = {}

    def __repr__(self) -> str:
        return repr(dict(self))

    def __len__(self) -> int:
        return len(self._stores)

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._stores))

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    def __getitem__(self, key: Any) -> Store[Any]:
        return self._stores[key]

    def replace(self, source: Source, values: Mapping[Any, Any]) -> None:
        """Put these values, by their keys, in place of all values of the same source."""
        kept = [key for key in self._keys.get(source, ()) if key in values]
        for key in self._keys.get(source, ()):
            if key not in values:
                self._remove(source, key)
        for key, value in values.items():
            self._stores.setdefault(key, _Store())._items[source] = value
        if values or kept:
            self._keys[source] = tuple(values)
        else:
            self._keys.pop(source, None)

    def discard(self, source: Source) -> None:
        """Remove all values of the source, if there are any."""
        for key in self._keys.pop(source, ()):
            self._remove(source, key)

    def _remove(self, source: Source, key: Any) -> None:
        store = self._stores[key]
        store._items.pop(source, None)
        if not store._items:
            del self._stores[key]
