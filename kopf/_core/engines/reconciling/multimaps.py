"""
Multimaps: several values by one key.

Most keys have one value or few, and there are tens of thousands of keys: a set of one value would
take 216 bytes, so single values are kept as they are, and few values as tuples.
"""

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar('K', bound=Hashable)
V = TypeVar('V', bound=Hashable)

FEW = 8
"""How many values are searched through faster than they are hashed, and take less memory."""


class _Few(tuple[V, ...], Generic[V]):
    """Two values or more, but few; never a value itself."""

    __slots__ = ()


class _Many(set[V], Generic[V]):
    """Many values; never a value itself."""

    __slots__ = ()


class Multimap(Generic[K, V]):
    """
    Sets of values by keys; keys without values take no memory.

    It is changed in one thread, and can be read in any other meanwhile.
    """

    __slots__ = ('_items',)

    def __init__(self) -> None:
        self._items: dict[K, V | _Few[V] | _Many[V]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, key: K) -> tuple[V, ...]:
        """Return the values as they are now; none for unknown keys."""
        try:
            found = self._items[key]
        except KeyError:
            return ()
        return tuple(found) if isinstance(found, _Few | _Many) else (found,)

    def add(self, key: K, value: V) -> None:
        """Add the value to the key, if it is not there yet."""
        found = self._items.get(key, value)
        if isinstance(found, _Many):
            found.add(value)
        else:
            values = self[key]
            self._items[key] = found if value in values else _join((*values, value))

    def discard(self, key: K, value: V) -> None:
        """Remove the value from the key, if it is there."""
        found = self._items.get(key)
        if isinstance(found, _Many) and len(found) > FEW:
            found.discard(value)
            return

        rest = tuple(item for item in self[key] if item != value)
        if rest:
            self._items[key] = _join(rest)
        else:
            self._items.pop(key, None)


def _join(values: tuple[V, ...]) -> V | _Few[V] | _Many[V]:
    if len(values) == 1:
        return values[0]
    return _Few(values) if len(values) <= FEW else _Many(values)


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
