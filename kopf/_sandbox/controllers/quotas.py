"""
Quotas: the status of resource quotas follows the objects of their namespaces.
"""

from kopf._sandbox.controllers import interfaces
from kopf._sandbox.registry.plugins import resource_quotas
from kopf._sandbox.storage import memory


class QuotaController:
    """Keeps the status of quotas. Namespaces without quotas cost nothing."""

    def __init__(self, store: memory.Storage, hands: interfaces.Hands) -> None:
        self._store = store
        self._hands = hands
        self._limited: dict[str, int] = {}  # the numbers of quotas by namespaces
        self._changed: dict[str, None] = {}  # the namespaces to examine, in order

    def notice(self, change: memory.Change) -> None:
        namespace = change.new.namespace
        if change.home == resource_quotas.QUOTAS:
            count = len(self._store.shelf(resource_quotas.QUOTAS).select(namespace))
            self._limited[namespace] = count
        if self._limited.get(namespace):
            self._changed[namespace] = None

    def settle(self) -> bool:
        """Update the quotas of all changed namespaces; return whether there were any."""
        changed = self._changed
        self._changed = {}
        for namespace in changed:
            for stored in self._store.shelf(resource_quotas.QUOTAS).select(namespace):
                self._update(stored)
        return bool(changed)

    def _update(self, stored: memory.Stored) -> None:
        body = stored.load()
        hard = (body.get('spec') or {}).get('hard') or {}
        used = resource_quotas.sum_usage(self._store, body)
        if not stored.is_leaving and body.get('status') != {'hard': hard, 'used': used}:
            body['status'] = {'hard': hard, 'used': used}
            self._hands.update(resource_quotas.QUOTAS, stored, body)
