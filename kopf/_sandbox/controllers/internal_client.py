"""
The internal client: the writes that the cluster makes by itself, without requests.
"""

from collections.abc import Mapping
from typing import Any

from kopf._sandbox.apply import managed_fields, server_side
from kopf._sandbox.meta import kinds
from kopf._sandbox.registry import deletion, prepare
from kopf._sandbox.storage import memory

SERVER = 'kube-apiserver'
CONTROLLERS = 'kube-controller-manager'


class Housekeeper:
    """Writes objects on behalf of the controllers."""

    def __init__(
        self, store: memory.Storage, catalog: kinds.Catalog, sources: prepare.Sources
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._sources = sources

    def create(
        self, home: kinds.Home, body: dict[str, Any], *, owned: Mapping[str, Any] | None = None
    ) -> None:
        """
        Store a new object, which is complete besides its uid and time. It passes no checks.

        ``owned`` are the fields that the controllers own, if any. They are not computed: it costs
        more than all the rest, and these objects come with every namespace.
        """
        meta = body['metadata']
        now = self._sources.format_now()
        meta |= {'uid': self._sources.make_uid(), 'creationTimestamp': now}

        if owned is not None:
            entry = {
                'manager': CONTROLLERS,
                'operation': 'Update',
                'apiVersion': body['apiVersion'],
            }
            entry |= {'time': now, 'fieldsType': 'FieldsV1', 'fieldsV1': owned}
            meta['managedFields'] = [entry]

        resource = self._find(home)
        fields = {} if resource is None else prepare.extract_fields(resource, body)
        self._store.put(home, body, fields=fields)

    def update(self, home: kinds.Home, stored: memory.Stored, body: dict[str, Any]) -> None:
        """Store a new state of an object, or remove the object if its last finalizer is gone."""
        resource = self._find(home)
        if resource is not None and deletion.is_released(resource, body):
            self._store.remove(home, stored)
        elif body != (old := stored.load()):
            recorded = body if resource is None else self._record(resource, old, body)
            self._store.put(home, recorded, fields=stored.fields)

    def delete(self, home: kinds.Home, stored: memory.Stored, propagation: str) -> None:
        """Remove an object, or mark it as being deleted."""
        resource = self._find(home)
        body = stored.load()
        if resource is None:
            self._store.remove(home, stored)
            return

        verdict = deletion.mark(
            resource, body, deletion.Options(propagation=propagation), self._sources.now()
        )
        if verdict is deletion.Verdict.REMOVE:
            self._store.remove(home, stored)
        elif verdict is not deletion.Verdict.WAIT:
            marked = self._store.put(home, body, fields=stored.fields)
            if verdict is deletion.Verdict.DISMISS:
                self._store.remove(home, marked)

    def _record(
        self, resource: kinds.Resource, old: dict[str, Any], new: dict[str, Any]
    ) -> dict[str, Any]:
        """Record the owner of the changed fields: the component that does it in real clusters."""
        manager = SERVER if resource.home == kinds.CRDS else CONTROLLERS
        subresource = 'status' if new.get('status') != old.get('status') else ''
        author = managed_fields.Author(
            manager, new['apiVersion'], self._sources.format_now(), subresource
        )
        managed = server_side.record_update(old, new, schema=resource.schema, author=author)
        rest = {name: value for name, value in new['metadata'].items() if name != 'managedFields'}

        return {**new, 'metadata': {**rest, **({'managedFields': managed} if managed else {})}}

    def _find(self, home: kinds.Home) -> kinds.Resource | None:
        return next(iter(self._catalog.find_versions(home).values()), None)
