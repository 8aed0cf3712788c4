"""
Entries: packed objects with what must be known of them without unpacking, and their changes.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kopf._cogs.structs import bodies, dicts, packs
from kopf._core.intents import mappings


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Entry:
    """One version of one object."""

    namespace: str | None
    name: str
    uid: str
    version: str | None
    owners: tuple[mappings.Owner, ...]
    packed: bytes
    packer: packs.Packer
    labels: Mapping[str, str] | None = None  # if the store keeps them

    def __repr__(self) -> str:
        name = self.name if self.namespace is None else f'{self.namespace}/{self.name}'
        return f'<Entry {name} {self.uid} of the version {self.version}>'

    @property
    def key(self) -> mappings.ObjectKey:
        """The names of the object."""
        return mappings.ObjectKey(self.namespace, self.name)

    def get_labels(self) -> Mapping[str, str]:
        """Return the labels of the object, unpacked only if they are not kept."""
        return get_labels(self.unpack()) if self.labels is None else self.labels

    def unpack(self) -> bodies.RawBody:
        """Return the object: it is a new dict every time."""
        return cast(bodies.RawBody, self.packer.unpack(self.packed))


class Effect(enum.Enum):
    """What an event or a write has changed in the store."""

    NOTHING = enum.auto()
    CHANGED = enum.auto()
    ECHO = enum.auto()  # our own write has come back: it is already in the store
    INCLUDED = enum.auto()  # a change by others that our later write includes


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What the store had and has now for one name; ``None`` if there was or is no object."""

    old: Entry | None
    new: Entry | None
    effect: Effect = Effect.CHANGED
    body: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False)

    @property
    def is_echo(self) -> bool:
        """Whether it is only the confirmation of our own write."""
        return self.effect is Effect.ECHO

    @property
    def is_news(self) -> bool:
        """Whether parents can have something to do: false for echoes and repetitions."""
        return self.effect in (Effect.CHANGED, Effect.INCLUDED)

    def unpack_new(self) -> Mapping[str, Any] | None:
        """Return the new object, unpacked only if it is not at hand."""
        if self.body is not None or self.new is None:
            return self.body
        return self.new.unpack()


NO_CHANGE = Change(None, None, Effect.NOTHING)


def sort(entries: Iterable[Entry]) -> list[Entry]:
    """Sort the entries by names."""
    return sorted(entries, key=lambda entry: (entry.namespace or '', entry.name))


def is_owned(entry: Entry, uid: str, owns: mappings.Owns | None = None) -> bool:
    """Return whether the object is a child of this owner, in this sense or in any."""
    return any(owner.uid == uid and (not owns or owns.accepts(owner)) for owner in entry.owners)


def get_labels(body: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an unpacked object."""
    return dicts.resolve_mapping(body, ('metadata', 'labels'))
