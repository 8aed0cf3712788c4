"""
The finalizer of CRDs: deletes the objects of a CRD that is being deleted, and then releases the
CRD.
"""

from kopf._sandbox.apiextensions import crds
from kopf._sandbox.controllers import interfaces
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory


class DefinitionController:
    """Deletes the objects of CRDs that are being deleted, and then releases the CRDs."""

    def __init__(self, store: memory.Storage, hands: interfaces.Hands) -> None:
        self._store = store
        self._hands = hands
        self._leaving: dict[str, kinds.Home] = {}  # by the name of the CRD
        self._is_pending = False

    def notice(self, change: memory.Change) -> None:
        if change.home == kinds.CRDS:
            if change.type == 'DELETED':
                self._leaving.pop(change.new.name, None)
            elif change.new.is_leaving:
                plural, _, group = change.new.name.partition('.')
                self._leaving[change.new.name] = kinds.Home(group, plural)
                self._is_pending = True
        elif change.home in self._leaving.values():
            self._is_pending = True

    def settle(self) -> bool:
        """Continue the pending deletions; return whether there was any work."""
        if not self._is_pending:
            return False

        self._is_pending = False
        for name, home in list(self._leaving.items()):
            for stored in self._store.shelf(home).select(''):
                if not stored.is_leaving:
                    self._hands.delete(home, stored, 'Background')
            stored_crd = self._store.get(kinds.CRDS, '', name)
            if stored_crd is not None:
                self._release(stored_crd, is_empty=not self._store.shelf(home).objects)

        return True

    def _release(self, stored: memory.Stored, *, is_empty: bool) -> None:
        body = stored.load()
        if is_empty:
            finalizers = body['metadata'].get('finalizers') or []
            body['metadata']['finalizers'] = [
                other for other in finalizers if other != crds.CLEANUP_FINALIZER
            ]
        else:
            crds.note_deletion(body, has_begun=True)

        self._hands.update(kinds.CRDS, stored, body)
