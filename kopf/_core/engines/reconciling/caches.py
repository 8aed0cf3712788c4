"""
Caches: the stores of one operator and the relations between their objects, as its handlers declare
them.

If no handlers are level-triggered, nothing is stored.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kopf._cogs.structs import bodies, references, selectors
from kopf._core.engines.reconciling import entries, levels, relations, stores
from kopf._core.intents import handlers, mappings

Served = Mapping[selectors.Selector, frozenset[references.Resource]]
"""The resources that are served for each selector."""

Parents = Mapping[relations.Parent, frozenset[levels.Trigger]]
"""The reconciled objects with something to do, and why."""

_TRIGGERS = {'owned': levels.Trigger.OWNED, 'watched': levels.Trigger.WATCHED}


class Caches:
    """All stores of an operator. Belongs to its event loop, but can be read in any thread."""

    def __init__(
        self,
        *,
        timeout: float = stores.TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stores = stores.Stores(timeout=timeout, clock=clock)
        self.relations = relations.Relations(self.stores)

    @property
    def is_empty(self) -> bool:
        """Whether no resources are stored, as in operators with no level-triggered handlers."""
        return not len(self.stores)

    def declare(self, declared: Iterable[handlers.ReconcileHandler], served: Served) -> None:
        """Store the objects of the resources as they are served now, and relate them."""
        found = set[relations.Relation]()
        for handler in declared:
            primaries = _select(served, handler.selector)
            for primary in primaries:
                self.stores.add(primary)
            for link in handler.links:
                for target in _select(served, link.selector):
                    # Even with no primaries yet: its stream does not list the objects again then.
                    self.stores.add(target)
                    found |= {_relate(primary, target, link) for primary in primaries}

        self.relations.declare(found)

    def serve(self, resource: references.Resource, namespace: references.Namespace) -> None:
        """Expect the list of the objects, if they are stored."""
        store = self.stores.get(resource)
        if store is not None:
            store.serve(namespace)

    def note_gap(self, resource: references.Resource, namespace: references.Namespace) -> None:
        """Accept the beginning of a list: changes before it can be missed."""
        store = self.stores.get(resource)
        if store is not None:
            store.note_gap(namespace)

    def note_listed(
        self,
        resource: references.Resource,
        namespace: references.Namespace,
        version: str | None = None,
    ) -> Parents:
        """Accept the end of the list of this version; return the parents that it concerns."""
        store = self.stores.get(resource)
        if store is None:
            return {}
        return self._find_parents(resource, store.note_listed(namespace, version))

    def is_listed(self, resource: references.Resource, namespace: references.Namespace) -> bool:
        """Return whether the objects were listed at least once."""
        store = self.stores.get(resource)
        return store is not None and store.is_listed(namespace)

    def take(self, resource: references.Resource, event: bodies.RawEvent) -> Parents:
        """Accept an event of a stream; return the parents that it concerns."""
        store = self.stores.get(resource)
        if store is None:
            return {}
        return self._find_parents(resource, [store.put(event['type'], event['object'])])

    def note_written(self, resource: references.Resource, body: Mapping[str, Any]) -> Parents:
        """Accept the response to our own change of an object; return the parents it concerns."""
        store = self.stores.get(resource)
        return {} if store is None else self._find_parents(resource, [store.note_written(body)])

    def expire(self) -> Parents:
        """Forget the responses that the streams contradict; return the parents it concerns."""
        found = [self._find_parents(*pair) for pair in _group(self.stores.expire())]
        return _merge(found)

    def drop(self, resource: references.Resource, namespace: references.Namespace) -> Parents:
        """Forget the objects that are no longer served; return the parents that it concerns."""
        store = self.stores.get(resource)
        return {} if store is None else self._find_parents(resource, store.drop(namespace))

    def find(self, resource: references.Resource, uid: str) -> bodies.RawBody | None:
        """Return a copy of an object, if it is stored."""
        store = self.stores.get(resource)
        return None if store is None else store.find(uid)

    def list_targets(self, primary: references.Resource) -> frozenset[references.Resource]:
        """List the resources that the handlers of this resource own or watch."""
        return frozenset(
            relation.target for relation in self.relations if relation.primary == primary
        )

    def _find_parents(
        self, resource: references.Resource, changes: Iterable[entries.Change]
    ) -> Parents:
        # The relations follow all changes, whether they are news or not.
        found = [(change, self.relations.find_parents(resource, change)) for change in changes]
        return _merge(
            {parent: frozenset(_TRIGGERS[role] for role in roles)}
            for change, parents in found
            if change.is_news
            for parent, roles in parents.items()
        )


def _select(served: Served, selector: selectors.Selector | None) -> frozenset[references.Resource]:
    return frozenset() if selector is None else served.get(selector, frozenset())


def _relate(
    primary: references.Resource,
    target: references.Resource,
    link: mappings.Owns | mappings.Watch,
) -> relations.Relation:
    return relations.Relation(
        primary, target, link.link if isinstance(link, mappings.Watch) else link
    )


def _group(
    changes: Iterable[tuple[references.Resource, entries.Change]],
) -> Iterable[tuple[references.Resource, list[entries.Change]]]:
    return ((resource, [change]) for resource, change in changes)


def _merge(found: Iterable[Parents]) -> Parents:
    merged: dict[relations.Parent, frozenset[levels.Trigger]] = {}
    for parents in found:
        for parent, triggers in parents.items():
            merged[parent] = merged.get(parent, frozenset()) | triggers
    return merged
