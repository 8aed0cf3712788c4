"""
Neighbourhoods: all watchers of one operator, for those whose objects depend on other resources.

They find the objects to reconcile, and tell when all their related objects are known.
"""

import asyncio
from collections.abc import Mapping

from kopf._cogs.clients.watching import stream_states
from kopf._cogs.structs import references, selectors
from kopf._core.engines.peering import pauses
from kopf._core.engines.reconciling import caches
from kopf._core.reactor import inventory, observation, orchestration, sites, streams

EXPIRATION_PERIOD = 5.0
"""Seconds between the checks for our own changes that the streams contradict."""


class Neighbourhood:
    """All watchers of one operator. Belongs to its event loop."""

    def __init__(
        self,
        site: sites.Site,
        *,
        insights: observation.Insights,
        watchers: Mapping[orchestration.Key, streams.Watcher],
        states: Mapping[orchestration.Key, stream_states.StreamState],
        pauses: pauses.Pauses,
    ) -> None:
        self._site = site
        self._insights = insights
        self._pauses = pauses
        self._watchers = watchers
        self._states = states
        self.links = streams.Neighbours(self.wake, self.is_synced)

    def declare(self) -> None:
        """Store and relate the objects of the resources as they are served now."""
        declared = list(self._site.registry._reconciling)
        if declared:
            self._site.caches.declare(declared, self._insights.resolved.served)

    def is_reconciled(self, selector: selectors.Selector, namespace: str | None, name: str) -> bool:
        """Return whether such an object is known and reconciled; called from any thread."""
        return any(watcher.is_reconciled(namespace, name) for watcher in self._find(selector))

    def trigger(self, selector: selectors.Selector, namespace: str | None, name: str) -> None:
        """Have the object reconciled, if it is known."""
        for watcher in self._find(selector):
            watcher.trigger(namespace, name)

    def _find(self, selector: selectors.Selector) -> list[streams.Watcher]:
        watchers = tuple(self._watchers.items())
        return [watcher for key, watcher in watchers if selector.matches(key.resource)]

    def wake(self, parents: caches.Parents) -> None:
        """Have these objects reconciled, if they are known."""
        for (resource, uid), triggers in parents.items():
            watcher = self._find_by_uid(resource, uid)
            if watcher is not None:
                watcher.poke(inventory.Key(uid), triggers)

    def _find_by_uid(self, resource: references.Resource, uid: str) -> streams.Watcher | None:
        store = self._site.caches.stores.get(resource)
        entry = None if store is None else store.find_entry(uid)
        if entry is None:
            return None
        clusterwide = self._watchers.get(orchestration.Key(resource, None))
        if clusterwide is not None or entry.namespace is None:
            return clusterwide
        namespace = references.NamespaceName(entry.namespace)
        return self._watchers.get(orchestration.Key(resource, namespace))

    def is_synced(self, resource: references.Resource) -> bool:
        """
        Return whether all objects that those of the resource own or watch are listed.

        Paused namespaces are not waited for.
        """
        return all(
            self._is_listed(key) or self._pauses.is_paused(key.namespace)
            for target in self._site.caches.list_targets(resource)
            for key in orchestration.select_keys([target], self._insights.namespaces)
        )

    def _is_listed(self, key: orchestration.Key) -> bool:
        state = self._states.get(key)
        return state is not None and state.is_listed and self._site.caches.is_listed(*key)

    def release(self) -> None:
        """Reconcile the objects that have waited for their related objects, if these are known."""
        if self._site.registry._reconciling.is_empty:
            return

        # There can be thousands of watchers: of each resource in each namespace.
        synced = {
            resource
            for resource in {key.resource for key in self._watchers}
            if self.is_synced(resource)
        }
        for key, watcher in tuple(self._watchers.items()):
            if key.resource in synced:
                watcher.release_held()

    async def run(self) -> None:
        """Check for our own changes that the streams contradict, if any objects are stored."""
        while not self._site.registry._reconciling.is_empty:
            await asyncio.sleep(EXPIRATION_PERIOD)
            self.wake(self._site.caches.expire())
