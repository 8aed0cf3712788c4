"""
Establishing: from stored CRDs to served resources.

A CRD is served immediately when it is stored. When its schema changes, the stored objects are
converted by the new schema, without changing their versions.
"""

from collections.abc import Callable
from typing import Any

from kopf._sandbox.apiextensions import crds
from kopf._sandbox.apply import managed_fields, server_side
from kopf._sandbox.meta import kinds
from kopf._sandbox.registry import conversions
from kopf._sandbox.storage import memory

MANAGER = 'kube-apiserver'


class Establisher:
    """Keeps the catalog in sync with the CRDs. Notices changes synchronously."""

    def __init__(
        self, store: memory.Storage, catalog: kinds.Catalog, format_now: Callable[[], str]
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._format_now = format_now

    def notice(self, change: memory.Change) -> None:
        if change.home != kinds.CRDS:
            return
        home = get_home(change.new.name)
        if change.type == 'DELETED':
            self._catalog.discard(home)
            self._store.drop(home)
            self._reconsider(home.group)
        elif change.old is None or change.old.load().get('spec') != change.new.load().get('spec'):
            self._establish(home, change.new)

    def _establish(self, home: kinds.Home, stored: memory.Stored) -> None:
        body = stored.load()
        others = [
            other.load()
            for other in self._store.shelf(kinds.CRDS).select('')
            if other.name != stored.name
        ]
        status = crds.build_status(body, others, self._format_now())
        if crds.is_established({'status': status}):
            self._serve(home, body)
        if status != body.get('status'):
            self._store.put(
                kinds.CRDS,
                self._record(body, {**body, 'status': status}),
                fields=stored.fields,
            )

    def _record(self, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
        """Record the API server as the owner of the status."""
        resource = self._catalog.find(kinds.CRDS.group, 'v1', kinds.CRDS.plural)
        assert resource is not None, 'CRDs are always served'
        author = managed_fields.Author(
            MANAGER, resource.api_version, self._format_now(), 'status', ('spec',)
        )
        managed = server_side.record_update(old, new, schema=resource.schema, author=author)

        return (
            {**new, 'metadata': {**new['metadata'], 'managedFields': managed}} if managed else new
        )

    def _reconsider(self, group: str) -> None:
        """Establish the CRDs that waited for the names that are free now."""
        for stored in self._store.shelf(kinds.CRDS).select(''):
            home = get_home(stored.name)
            if home.group == group and not self._catalog.find_versions(home):
                self._establish(home, stored)

    def _serve(self, home: kinds.Home, body: dict[str, Any]) -> None:
        self._catalog.discard(home)
        for resource in crds.build_resources(body):
            self._catalog.add(resource)
        # All versions of the resource share the stored objects.
        for resource in list(self._catalog.find_versions(home).values())[:1]:
            self._restate(resource)

    def _restate(self, resource: kinds.Resource) -> None:
        for stored in self._store.shelf(resource.home).select(''):
            self._store.restate(resource.home, stored, conversions.reread(resource, stored.load()))


def get_home(name: str) -> kinds.Home:
    """Return the home of a CRD's objects by the CRD's name."""
    plural, _, group = name.partition('.')
    return kinds.Home(group, plural)
