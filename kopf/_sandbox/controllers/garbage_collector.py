"""
The garbage collector: deletes dependents by their owner references, and finishes the deletions of
owners.
"""

from collections.abc import Mapping
from typing import Any

from kopf._sandbox.controllers import interfaces
from kopf._sandbox.meta import kinds
from kopf._sandbox.registry import deletion
from kopf._sandbox.storage import memory

Place = tuple[kinds.Home, str]  # the home and the key of an object


class GarbageCollector:
    """Deletes objects whose owners are gone, and performs foreground and orphaning deletions."""

    def __init__(self, store: memory.Storage, hands: interfaces.Hands) -> None:
        self._store = store
        self._hands = hands
        self._alive: dict[str, Place] = {}  # by uid
        self._dependents: dict[str, set[Place]] = {}  # by the owner's uid
        self._owners: dict[Place, tuple[str, ...]] = {}
        self._suspects: dict[Place, None] = {}  # objects to examine, in order

    def notice(self, change: memory.Change) -> None:
        place = (change.home, change.new.key)
        owners = _get_owner_uids(change.new)
        before = self._owners.get((change.home, change.new.key), ())
        self._reindex(place, () if change.type == 'DELETED' else owners)

        if change.type == 'DELETED':
            self._alive.pop(change.new.uid, None)
            waiting = [self._alive[uid] for uid in owners if uid in self._alive]
            self._suspects.update(
                dict.fromkeys([*self._dependents.get(change.new.uid, ()), *waiting])
            )
        else:
            self._alive[change.new.uid] = place
            if owners or change.new.is_leaving:
                self._suspects[place] = None
            # The owners that are possibly unblocked now.
            released = [self._alive[uid] for uid in before if uid in self._alive]
            self._suspects.update(
                dict.fromkeys(owner for owner in released if self._is_waiting(owner))
            )

    def settle(self) -> bool:
        """Examine all suspects; return whether there were any."""
        suspects = self._suspects
        self._suspects = {}
        for home, key in suspects:
            stored = self._store.shelf(home).objects.get(key)
            if stored is not None:
                self._examine(home, stored)

        return bool(suspects)

    def _examine(self, home: kinds.Home, stored: memory.Stored) -> None:
        body = stored.load()
        meta = body['metadata']
        finalizers = meta.get('finalizers') or []

        if meta.get('deletionTimestamp') and deletion.ORPHAN in finalizers:
            self._orphan_dependents(stored.uid)
            self._drop_finalizer(home, stored, body, deletion.ORPHAN)
        elif meta.get('deletionTimestamp') and deletion.FOREGROUND in finalizers:
            if not self._delete_dependents(stored.uid):
                self._drop_finalizer(home, stored, body, deletion.FOREGROUND)
        elif not meta.get('deletionTimestamp') and meta.get('ownerReferences'):
            self._check_owners(home, stored, body)

    def _check_owners(self, home: kinds.Home, stored: memory.Stored, body: dict[str, Any]) -> None:
        references = body['metadata']['ownerReferences']
        solid = [
            reference for reference in references if self._is_alive(reference, stored.namespace)
        ]
        waiting = [
            reference for reference in solid if self._is_waiting(self._alive[reference['uid']])
        ]

        if not solid:
            self._hands.delete(home, stored, 'Background')
        elif len(waiting) == len(solid) and self._dependents.get(stored.uid):
            self._hands.delete(home, self._break_circle(home, stored, body), 'Foreground')
        elif len(waiting) == len(solid):
            self._hands.delete(home, stored, 'Background')
        elif len(solid) < len(references):
            body['metadata']['ownerReferences'] = solid
            self._hands.update(home, stored, body)

    def _break_circle(
        self, home: kinds.Home, stored: memory.Stored, body: dict[str, Any]
    ) -> memory.Stored:
        """
        Let the owners be deleted before this object if its dependents are waiting too: otherwise,
        they would wait for each other.
        """
        if not any(self._is_waiting(place) for place in self._dependents[stored.uid]):
            return stored

        for reference in body['metadata']['ownerReferences']:
            reference.update(
                {'blockOwnerDeletion': False} if reference.get('blockOwnerDeletion') else {}
            )

        self._hands.update(home, stored, body)
        return self._store.shelf(home).objects[stored.key]

    def _is_alive(self, reference: Mapping[str, Any], namespace: str) -> bool:
        """Return whether the owner exists, in the same namespace or cluster-scoped."""
        place = self._alive.get(reference.get('uid') or '')
        owner = None if place is None else self._store.shelf(place[0]).objects.get(place[1])
        if place is None or owner is None or owner.namespace not in ('', namespace):
            return False
        group, _ = kinds.split_api_version(reference.get('apiVersion'))
        identity = reference.get('name'), group, reference.get('kind')
        return identity == (owner.name, place[0].group, owner.load()['kind'])

    def _is_waiting(self, place: Place) -> bool:
        home, key = place
        stored = self._store.shelf(home).objects[key]
        if not stored.is_leaving or b'"foregroundDeletion"' not in stored.raw:
            return False
        return deletion.FOREGROUND in (stored.load()['metadata'].get('finalizers') or ())

    def _delete_dependents(self, uid: str) -> bool:
        """Delete all dependents; return whether some of them still block the owner."""
        blocking = False
        for home, key in sorted(self._dependents.get(uid, ())):
            stored = self._store.shelf(home).objects[key]
            body = stored.load()
            if not body['metadata'].get('deletionTimestamp'):
                self._check_owners(home, stored, body)
            still = self._store.shelf(home).objects.get(key)
            references = (
                () if still is None else still.load()['metadata'].get('ownerReferences') or ()
            )
            blocking = blocking or any(
                reference.get('uid') == uid and bool(reference.get('blockOwnerDeletion'))
                for reference in references
            )

        return blocking

    def _orphan_dependents(self, uid: str) -> None:
        for home, key in sorted(self._dependents.get(uid, ())):
            stored = self._store.shelf(home).objects[key]
            body = stored.load()
            kept = [
                reference
                for reference in body['metadata']['ownerReferences']
                if reference.get('uid') != uid
            ]
            body['metadata'].update(ownerReferences=kept)
            if not kept:
                del body['metadata']['ownerReferences']
            self._hands.update(home, stored, body)

    def _drop_finalizer(
        self, home: kinds.Home, stored: memory.Stored, body: dict[str, Any], finalizer: str
    ) -> None:
        body['metadata']['finalizers'] = [
            name for name in body['metadata']['finalizers'] if name != finalizer
        ]
        if not body['metadata']['finalizers']:
            del body['metadata']['finalizers']
        self._hands.update(home, stored, body)

    def _reindex(self, place: Place, owners: tuple[str, ...]) -> None:
        for uid in self._owners.pop(place, ()):
            self._dependents[uid].discard(place)
            if not self._dependents[uid]:
                del self._dependents[uid]

        for uid in owners:
            self._dependents.setdefault(uid, set()).add(place)
        if owners:
            self._owners[place] = owners


def _get_owner_uids(stored: memory.Stored) -> tuple[str, ...]:
    if b'"ownerReferences"' not in stored.raw:  # cheaper than decoding, and most objects have none
        return ()
    references = stored.load()['metadata'].get('ownerReferences') or ()
    return tuple(dict.fromkeys(reference.get('uid') or '' for reference in references))
