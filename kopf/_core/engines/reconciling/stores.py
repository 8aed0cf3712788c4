"""
Stores: the objects of the reconciled, owned and watched resources, in memory.

A store is fed by the streams of its resource, before the handlers see the events, and by the
responses to our own writes, so that reading never returns an object older than what we wrote. The
objects are packed, and are unpacked for each reading: readers can do with them what they want.

A store is changed in the event loop of the operator. It can be read in any thread at any time.
"""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kopf._cogs.structs import bodies, packs, references
from kopf._core.engines.reconciling import entries, multimaps, overlays
from kopf._core.intents import mappings

TIMEOUT = 5.0
"""Seconds for which our own writes are trusted if the versions cannot be compared."""

TRUST_PERIOD = 600.0
"""The same if they can be: the versions of a cluster restored from a backup can be lower."""

GONE_LIMIT = 1_000
"""How many deleted objects are remembered: answers to writes of them can still be on the way."""


class Store:
    """
    The objects of one resource.

    The time of every operation, except for the iterations, does not depend on the number of the
    objects.
    """

    def __init__(
        self,
        resource: references.Resource,
        *,
        manager: str | None = None,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self.size = 0  # bytes of the packed objects
        self.keeps_labels = False  # whether the labels are often read
        self._packer = packs.Packer(manager=manager)
        self._timeout = timeout
        self._clock = clock
        self._entries: dict[str | None, dict[str, entries.Entry]] = {}
        self._by_uid: dict[str, entries.Entry] = {}
        self._by_owner: multimaps.Multimap[str, str] = multimaps.Multimap()
        self._overlays: dict[mappings.ObjectKey, overlays.Overlay[entries.Entry]] = {}
        self._namespaces: dict[str | None, str | None] = {}  # one text of each name
        self._streams: dict[str | None, bool] = {}  # whether they have been listed
        self._positions: dict[str | None, str] = {}  # the last versions in the streams
        self._listed: dict[str | None, str] = {}  # the versions of the last lists
        self._gone: dict[str, None] = {}  # the uids of the last deleted objects
        self._synced = asyncio.Event()
        self._synced.set()

    def __repr__(self) -> str:
        return f'<Store of {len(self)} {self.resource!r}>'

    def __len__(self) -> int:
        """The number of the objects."""
        return len(self._by_uid)

    # Reading.

    def get(self, namespace: str | None, name: str) -> bodies.RawBody | None:
        """Return a copy of the object of this name, if it exists."""
        entry = self.get_entry(namespace, name)
        return None if entry is None else entry.unpack()

    def get_entry(self, namespace: str | None, name: str) -> entries.Entry | None:
        """Return the object of this name in its packed form, if it exists."""
        return self._entries.get(namespace, _NO_ENTRIES).get(name)

    def find(self, uid: str) -> bodies.RawBody | None:
        """Return a copy of the object of this uid, if it exists."""
        entry = self._by_uid.get(uid)
        return None if entry is None else entry.unpack()

    def find_entry(self, uid: str) -> entries.Entry | None:
        """Return the object of this uid in its packed form, if it exists."""
        return self._by_uid.get(uid)

    def list_owned(self, uid: str, owns: mappings.Owns | None = None) -> list[bodies.RawBody]:
        """Return copies of the children of this owner, in any sense or in this one, by names."""
        return [entry.unpack() for entry in self.list_owned_entries(uid, owns)]

    def list_owned_entries(
        self, uid: str, owns: mappings.Owns | None = None
    ) -> list[entries.Entry]:
        """Return the same in the packed form."""
        found = (self._by_uid.get(child) for child in self._by_owner[uid])
        return entries.sort(
            entry for entry in found if entry and entries.is_owned(entry, uid, owns)
        )

    def list_named(self, keys: Iterable[mappings.ObjectKey]) -> list[bodies.RawBody]:
        """Return copies of those of the named objects that exist, by names."""
        found = (self.get_entry(key.namespace, key.name) for key in keys)
        return [entry.unpack() for entry in entries.sort(entry for entry in found if entry)]

    def iter(self, namespace: str | None = None) -> Iterator[bodies.RawBody]:
        """Iterate over copies of all objects, or of those in one namespace."""
        return (entry.unpack() for entry in self.iter_entries(namespace))

    def iter_entries(self, namespace: str | None = None) -> Iterator[entries.Entry]:
        """Iterate over the same in the packed form. The store can change meanwhile."""
        if namespace is None:
            return iter(tuple(self._by_uid.values()))
        return iter(tuple(self._entries.get(namespace, _NO_ENTRIES).values()))

    # The events of the streams.

    def put(self, type: bodies.RawEventType, body: Mapping[str, Any]) -> entries.Change:
        """
        Accept an event of the stream: its type and its object.

        The change has a new entry that is the same as the old one if the event is older than our
        own write. Objects without names or uids are not kept.
        """
        names = _identify(body)
        if names is None or type == 'BOOKMARK':
            return entries.NO_CHANGE

        key, uid = names
        version = bodies.get_version(body)
        seen = overlays.Sighting(uid, version, type == 'DELETED', is_listed=type is None)
        if not seen.is_listed and version is not None:
            self._positions[self._get_scope(key.namespace)] = version
        overlay = self._overlays.get(key)
        if overlay is not None:
            return self._put_over(key, overlay, seen, body)

        old = self.get_entry(*key)
        if seen.is_deleted:
            return self._remove(old) if old is not None and old.uid == uid else entries.NO_CHANGE
        if old is not None and version is not None and (old.uid, old.version) == (uid, version):
            return entries.Change(old, old, entries.Effect.NOTHING, body)
        return self._replace(old, self._pack(key, uid, body), body)

    def _put_over(
        self,
        key: mappings.ObjectKey,
        overlay: overlays.Overlay[entries.Entry],
        seen: overlays.Sighting,
        body: Mapping[str, Any],
    ) -> entries.Change:
        old = self.get_entry(*key)
        new = None if seen.is_deleted else self._pack(key, seen.uid, body)
        verdict = overlays.judge(overlay, seen, self._clock())

        if verdict is not overlays.Verdict.SET_ASIDE:
            del self._overlays[key]
            is_echo = verdict is overlays.Verdict.CONFIRM and overlays.is_echo(overlay, seen)
            effect = entries.Effect.ECHO if is_echo else entries.Effect.CHANGED
            return self._replace(old, new, None if new is None else body, effect)

        is_former = overlay.base is not None and overlay.base.uid != seen.uid
        self._overlays[key] = dataclasses.replace(
            overlay,
            base=overlay.base if seen.is_deleted and is_former else new,
            own=overlay.own - {str(seen.version)},
            is_heard=True,
        )
        is_foreign = overlays.is_foreign(overlay, seen) and not overlay.is_deletion

        return entries.Change(
            old, old, entries.Effect.INCLUDED if is_foreign else entries.Effect.ECHO
        )

    # Our own writes.

    def note_written(self, body: Mapping[str, Any]) -> entries.Change:
        """
        Accept the answer to our own write: the object as it is now in the cluster.

        The change concerns all parents except the one for which the object was written. Nothing
        changes if the stream was faster, or if it does not serve the namespace.
        """
        names = _identify(body)
        if names is None or not self.is_served(names[0].namespace):
            return entries.NO_CHANGE

        key, uid = names
        version = bodies.get_version(body)
        old = self.get_entry(*key)
        overlay = self._overlays.get(key)
        if self._is_passed(key, uid, version):
            return entries.Change(old, old, entries.Effect.NOTHING)

        self._overlays[key] = overlays.Overlay(
            uid=uid,
            version=version,
            patience=self._clock() + self._timeout,
            deadline=self._clock() + self._choose_period(version),
            own=frozenset({str(version)}) | (overlay.own if overlay else frozenset()),
            base=overlay.base if overlay else old,
        )
        return self._replace(old, self._pack(key, uid, body), body)

    def _is_passed(self, key: mappings.ObjectKey, uid: str, version: str | None) -> bool:
        """Return whether the stream, or an answer to a later write, has come before this answer."""
        old = self.get_entry(*key)
        overlay = self._overlays.get(key)
        is_known = old is not None and old.uid == uid and version in (None, old.version)
        if is_known or uid in self._gone:
            return True

        listed = self._listed.get(self._get_scope(key.namespace))
        written = None if overlay is None else overlay.version
        return (version is not None and version == listed) or any(
            bodies.is_older(version, other)
            for other in (listed, written, None if old is None else old.version)
        )

    def note_deleted(
        self, namespace: str | None, name: str, uid: str | None = None
    ) -> entries.Change:
        """
        Accept our own deletion of an object that is gone at once.

        If the object still exists, with a deletion timestamp, use `note_written` instead.
        """
        old = self.get_entry(namespace, name)
        if old is None or uid not in (None, old.uid):
            return entries.NO_CHANGE

        overlay = self._overlays.get(old.key)
        self._overlays[old.key] = overlays.Overlay(
            uid=old.uid,
            version=old.version,
            patience=self._clock() + self._timeout,
            deadline=self._clock() + self._timeout,
            own=frozenset() if overlay is None else overlay.own,
            is_deletion=True,
            base=overlay.base if overlay else old,
        )
        return self._remove(old)

    def expire(self) -> list[entries.Change]:
        """
        Forget our own writes that the stream has passed, or contradicts for too long.

        To be called from time to time, e.g. once in several seconds.
        """
        now = self._clock()
        void = [
            key
            for key, overlay in self._overlays.items()
            if overlays.is_contradicted(overlay, self._get_position(key), now)
        ]
        return self._revert(void)

    def _get_scope(self, namespace: str | None) -> str | None:
        """Return the namespace of the stream that brings the objects of this namespace."""
        return None if None in self._streams else namespace

    def _get_position(self, key: mappings.ObjectKey) -> str | None:
        return self._positions.get(self._get_scope(key.namespace))

    def _choose_period(self, version: str | None) -> float:
        return TRUST_PERIOD if str(version).isdecimal() else self._timeout

    def _revert(self, keys: Iterable[mappings.ObjectKey]) -> list[entries.Change]:
        """Return to what the stream has told about these objects."""
        changes = []
        for key in keys:
            base = self._overlays.pop(key).base
            changes.append(self._replace(self.get_entry(*key), base, None))
        return changes

    # The streams.

    def serve(self, namespace: str | None) -> None:
        """Expect the list of a namespace, or of the cluster, if it was not listed yet."""
        self._streams.setdefault(namespace, False)
        self._update_synced()

    def note_listed(
        self, namespace: str | None, version: str | None = None
    ) -> list[entries.Change]:
        """
        Accept the end of a list: all of its objects, and the deletions, were put before.

        Our own writes that are older than the list, and are not in it, are gone.
        """
        self._streams[namespace] = True
        self._update_synced()
        if version is not None:
            self._listed[self._get_scope(namespace)] = version
        now = self._clock()
        void = [
            key
            for key, overlay in self._overlays.items()
            if namespace in (None, key.namespace) and overlays.is_void(overlay, version, now)
        ]
        return self._revert(void)

    def note_gap(self, namespace: str | None) -> None:
        """
        Accept the beginning of a list after a gap in the stream.

        The changes by others in the gap are never delivered. So, the echoes of our own writes
        until then are news: the written objects can include such changes.
        """
        for key, overlay in self._overlays.items():
            if namespace in (None, key.namespace):
                self._overlays[key] = dataclasses.replace(overlay, own=frozenset())

    def drop(self, namespace: str | None) -> list[entries.Change]:
        """Forget a namespace that is no longer served, or everything if there is no namespace."""
        self._streams.pop(namespace, None)
        self._positions.pop(namespace, None)
        self._listed.pop(namespace, None)

        if namespace is None:
            self._streams.clear()
            self._positions.clear()
            self._listed.clear()
            self._overlays.clear()

        self._update_synced()
        for key in [key for key in self._overlays if key.namespace == namespace]:
            del self._overlays[key]
        return [self._remove(entry) for entry in self.iter_entries(namespace)]

    def is_served(self, namespace: str | None) -> bool:
        """Return whether the objects of the namespace come from the streams."""
        return None in self._streams or namespace in self._streams

    def is_listed(self, namespace: str | None) -> bool:
        """Return whether the stream of the namespace, or of the cluster, was listed."""
        return self._streams.get(namespace, False)

    @property
    def is_synced(self) -> bool:
        """Whether all served namespaces were listed; true if there are none."""
        return all(self._streams.values())

    async def wait_until_synced(self) -> None:
        """Wait until all served namespaces are listed. Any number of tasks can wait."""
        await self._synced.wait()

    def _update_synced(self) -> None:
        if self.is_synced:
            self._synced.set()
        else:
            self._synced.clear()

    # The entries.

    def _pack(self, key: mappings.ObjectKey, uid: str, body: Mapping[str, Any]) -> entries.Entry:
        try:
            packed = self._packer.pack(body, len(self))
        except ValueError:  # too deep: the metadata of objects are flat
            kept = ('apiVersion', 'kind', 'metadata')
            shallow = {field: body[field] for field in kept if field in body}
            packed = self._packer.pack(shallow, len(self))

        # The same texts are kept once: there are tens of thousands of objects.
        old = self.get_entry(*key)
        return entries.Entry(
            namespace=self._namespaces.setdefault(key.namespace, key.namespace),
            name=key.name if old is None else old.name,
            uid=uid if old is None or old.uid != uid else old.uid,
            version=bodies.get_version(body),
            owners=self._share_owners(mappings.extract_owners(body)),
            packed=packed,
            packer=self._packer,
            labels=dict(entries.get_labels(body)) if self.keeps_labels else None,
        )

    def _share_owners(self, owners: tuple[mappings.Owner, ...]) -> tuple[mappings.Owner, ...]:
        """Return the same owners as another child has, if it has the same ones."""
        siblings = self._by_owner[owners[0].uid][:1] if owners else ()
        for sibling in siblings:
            entry = self._by_uid.get(sibling)
            if entry is not None and entry.owners == owners:
                return entry.owners
        return owners

    def _replace(
        self,
        old: entries.Entry | None,
        new: entries.Entry | None,
        body: Mapping[str, Any] | None,
        effect: entries.Effect = entries.Effect.CHANGED,
    ) -> entries.Change:
        if old is None and new is None:
            return entries.NO_CHANGE
        if old is not None:
            self._unlink(old, new)
        if new is not None:
            self._link(new)
        return entries.Change(old, new, effect, body)

    def _remove(self, old: entries.Entry) -> entries.Change:
        return self._replace(old, None, None)

    def _link(self, entry: entries.Entry) -> None:
        self._gone.pop(entry.uid, None)
        self._entries.setdefault(entry.namespace, {})[entry.name] = entry
        self._by_uid[entry.uid] = entry
        for owner in entry.owners:
            self._by_owner.add(owner.uid, entry.uid)
        self.size += len(entry.packed)

    def _unlink(self, entry: entries.Entry, new: entries.Entry | None) -> None:
        """Remove an entry; what its replacement also has is left for readers in other threads."""
        self.size -= len(entry.packed)
        is_same = new is not None and new.uid == entry.uid
        owned = {owner.uid for owner in new.owners} if new is not None and is_same else ()

        for owner in entry.owners:
            if owner.uid not in owned:
                self._by_owner.discard(owner.uid, entry.uid)

        if not is_same:
            self._by_uid.pop(entry.uid, None)
            self._gone[entry.uid] = None
            if len(self._gone) > GONE_LIMIT:
                del self._gone[next(iter(self._gone))]

        if new is None:
            named = self._entries[entry.namespace]
            del named[entry.name]
            if not named:
                del self._entries[entry.namespace]


class Stores:
    """The stores of all resources that are reconciled, owned or watched; only of them."""

    def __init__(
        self,
        *,
        manager: str | None = None,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stores: dict[references.Resource, Store] = {}
        self._options: dict[str, Any] = {'manager': manager, 'timeout': timeout, 'clock': clock}

    def __repr__(self) -> str:
        return f'<Stores of {list(self._stores.values())!r}>'

    def __contains__(self, resource: object) -> bool:
        return resource in self._stores

    def __iter__(self) -> Iterator[Store]:
        return iter(tuple(self._stores.values()))

    def __len__(self) -> int:
        return len(self._stores)

    def get(self, resource: references.Resource) -> Store | None:
        """Return the store of the resource, if it is stored."""
        return self._stores.get(resource)

    def add(self, resource: references.Resource) -> Store:
        """Return the store of the resource; create an empty one if it was not stored."""
        if resource not in self._stores:
            self._stores[resource] = Store(resource, **self._options)
        return self._stores[resource]

    def expire(self) -> list[tuple[references.Resource, entries.Change]]:
        """Call `Store.expire` of all stores."""
        return [(store.resource, change) for store in self for change in store.expire()]


_NO_ENTRIES: Mapping[str, entries.Entry] = {}


def _identify(body: Mapping[str, Any]) -> tuple[mappings.ObjectKey, str] | None:
    metadata = body.get('metadata') or {}
    name = metadata.get('name')
    uid = metadata.get('uid')
    if not name or not uid:
        return None
    return mappings.ObjectKey(metadata.get('namespace') or None, str(name)), str(uid)
