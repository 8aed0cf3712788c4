"""
Multimaps: several values by one key.

Most keys have one value, and there are tens of thousands of keys: a set of one value would take
216 bytes, so single values are kept as they are.
"""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar, cast

K = TypeVar('K', bound=Hashable)
V = TypeVar('V', bound=Hashable)


class _Many(set[V], Generic[V]):
    """Two or more values; never a value itself."""

    __slots__ = ()


class Multimap(Generic[K, V]):
    """
    Sets of values by keys; keys without values take no memory.

    It is changed in one thread, and can be read in any other meanwhile.
    """

    __slots__ = ('_items',)

    def __init__(self) -> None:
        self._items: dict[K, V | _Many[V]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, key: K) -> tuple[V, ...]:
        """Return the values as they are now; none for unknown keys."""
        try:
            found = self._items[key]
        except KeyError:
            return ()
        return tuple(found) if isinstance(found, _Many) else (found,)

    def add(self, key: K, value: V) -> None:
        """Add the value to the key, if it is not there yet."""
        found = self._items.get(key, value)
        if isinstance(found, _Many):
            found.add(value)
        else:
            self._items[key] = value if found == value else _Many((found, value))

    def discard(self, key: K, value: V) -> None:
        """Remove the value from the key, if it is there."""
        rest = tuple(item for item in self[key] if item != value)
        if len(rest) > 1:
            cast(_Many[V], self._items[key]).discard(value)
        elif rest:
            self._items[key] = rest[0]
        else:
            self._items.pop(key, None)


class Bimap(Generic[V, K]):
    """Sources with the keys of each, and the sources of each key."""

    __slots__ = ('_keys', '_sources')

    def __init__(self) -> None:
        self._keys: dict[V, tuple[K, ...]] = {}
        self._sources: Multimap[K, V] = Multimap()

    def set(self, source: V, keys: Collection[K]) -> None:
        """Replace the keys of the source. At no moment, it is without the keys that remain."""
        former = self._keys.get(source, ())
        for key in keys:
            self._sources.add(key, source)
        if keys:
            self._keys[source] = tuple(keys)
        else:
            self._keys.pop(source, None)
        for key in former:
            if key not in keys:
                self._sources.discard(key, source)

    def get_keys(self, source: V) -> tuple[K, ...]:
        """Return the keys of the source."""
        return self._keys.get(source, ())

    def get_sources(self, key: K) -> tuple[V, ...]:
        """Return the sources of the key."""
        return self._sources[key]
