"""
Namespaces: the deletion of their contents, and then of the namespaces themselves.
"""

from kopf._sandbox.controllers import interfaces, namespace_conditions
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory


class NamespaceController:
    """Empties the namespaces that are being deleted, and releases them when they are empty."""

    def __init__(self, store: memory.Storage, hands: interfaces.Hands) -> None:
        self._store = store
        self._hands = hands
        self._terminating: dict[str, None] = {}
        self._is_pending = False

    def notice(self, change: memory.Change) -> None:
        if change.home == kinds.NAMESPACES:
            if change.type == 'DELETED':
                self._terminating.pop(change.new.name, None)
            elif change.new.is_leaving:
                self._terminating[change.new.name] = None
                self._is_pending = True
        elif change.new.namespace in self._terminating:
            self._is_pending = True

    def settle(self) -> bool:
        """Continue the pending deletions; return whether there was any work."""
        if not self._is_pending:
            return False
        self._is_pending = False
        for name in list(self._terminating):
            self._empty(name)
        return True

    def _empty(self, namespace: str) -> None:
        for home, stored in self._find_content(namespace):
            if not stored.is_leaving:
                self._hands.delete(home, stored, 'Background')

        left = self._find_content(namespace)
        self._note_contents(namespace, left)
        emptied = self._store.get(kinds.NAMESPACES, '', namespace)

        if emptied is not None and not left:
            body = emptied.load()
            finalizers = [
                name
                for name in body.get('spec', {}).get('finalizers') or []
                if name != 'kubernetes'
            ]
            body['spec'] = {'finalizers': finalizers} if finalizers else {}
            self._hands.update(kinds.NAMESPACES, emptied, body)

    def _note_contents(self, namespace: str, left: list[tuple[kinds.Home, memory.Stored]]) -> None:
        stored = self._store.get(kinds.NAMESPACES, '', namespace)
        if stored is not None and stored.is_leaving:
            body = stored.load()
            namespace_conditions.note_contents(body, [(home, item.load()) for home, item in left])
            self._hands.update(kinds.NAMESPACES, stored, body)

    def _find_content(self, namespace: str) -> list[tuple[kinds.Home, memory.Stored]]:
        return [
            (home, stored)
            for home, shelf in self._store
            for stored in shelf.select(namespace)
            if stored.namespace
        ]
