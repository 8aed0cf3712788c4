"""
Indices: in-memory values of objects by keys of the users' choice.

Users see them as read-only mappings of keys to stores, which are updated live as the objects
change. They can be read from any thread at any time, even during updates. All updates are made in
the event loop of the operator.
"""

import abc
from collections.abc import Collection, Hashable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar

K = TypeVar('K')
V = TypeVar('V')

Source = Hashable
"""The origin of values: an object, and the function that has indexed it."""


class Store(Collection[V], Generic[V], abc.ABC):
    """The unordered values of all objects for one key. A store in an index is never empty."""


class Index(Mapping[K, Store[V]], Generic[K, V], abc.ABC):
    """
    A mapping of keys to stores. Iteration is safe during updates: the removed keys are skipped.
    """


class _Store(Store[Any]):
    __slots__ = ('_items',)

    def __init__(self, source: Source, value: Any) -> None:
        self._items: dict[Source, Any] = {source: value}

    def __repr__(self) -> str:
        return repr(list(self))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._items.values()))

    def __contains__(self, value: object) -> bool:
        return value in tuple(self._items.values())


class LiveIndex(Index[Any, Any]):
    """
    An index with the methods to update it.

    The time of every operation depends on the number of keys of one object, not on the size of the
    index.
    """

    def __init__(self) -> None:
        self._stores: dict[Any, _Store] = {}
        self._keys: dict[Source, tuple[Any, ...]] = {}

    def __repr__(self) -> str:
        return repr(dict(self.items()))

    def __len__(self) -> int:
        return len(self._stores)

    def __iter__(self) -> Iterator[Any]:
        return iter(tuple(self._stores))

    def __contains__(self, key: object) -> bool:
        return key in self._stores

    def __getitem__(self, key: Any) -> Store[Any]:
        return self._stores[key]

    @property
    def objects(self) -> int:
        """The number of indexed objects, counted once for each function that indexes them."""
        return len(self._keys)

    def items(self) -> ItemsView[Any, Store[Any]]:
        return _Items(self)

    def values(self) -> ValuesView[Store[Any]]:
        return _Values(self)

    def replace(self, source: Source, values: Mapping[Any, Any]) -> None:
        """Replace all values of the source with these values by keys."""
        for key, value in values.items():
            store = self._stores.get(key)
            if store is None:
                self._stores[key] = _Store(source, value)
            else:
                store._items[source] = value

        for key in self._keys.get(source, ()):
            if key not in values:
                self._remove(source, key)

        if values:
            self._keys[source] = tuple(values)
        else:
            self._keys.pop(source, None)

    def discard(self, source: Source) -> None:
        """Remove all values of the source, if there are any."""
        for key in self._keys.pop(source, ()):
            self._remove(source, key)

    def _remove(self, source: Source, key: Any) -> None:
        """Remove one value, and before the last one, its store: no reader sees it empty."""
        store = self._stores[key]
        if len(store) == 1:
            del self._stores[key]
        del store._items[source]


class _Items(ItemsView[Any, Store[Any]]):
    __slots__ = ()
    _mapping: LiveIndex

    def __iter__(self) -> Iterator[tuple[Any, Store[Any]]]:
        for key in self._mapping:
            store = self._mapping.get(key)
            if store is not None:
                yield key, store


class _Values(ValuesView[Store[Any]]):
    __slots__ = ()
    _mapping: LiveIndex

    def __iter__(self) -> Iterator[Store[Any]]:
        return (store for _, store in self._mapping.items())
