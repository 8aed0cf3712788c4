"""
Lookups: the stored objects as controllers read them, decoded once per version.

The returned objects are shared: they must not be modified.
"""

from collections.abc import Iterator
from typing import Any

from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

Body = dict[str, Any]

PODS = kinds.Home('', 'pods')
NODES = kinds.Home('', 'nodes')
SERVICES = kinds.Home('', 'services')
ENDPOINTS = kinds.Home('', 'endpoints')
CLAIMS = kinds.Home('', 'persistentvolumeclaims')
VOLUMES = kinds.Home('', 'persistentvolumes')
EVENTS = kinds.Home('', 'events')
DEPLOYMENTS = kinds.Home('apps', 'deployments')
REPLICA_SETS = kinds.Home('apps', 'replicasets')
STATEFUL_SETS = kinds.Home('apps', 'statefulsets')
DAEMON_SETS = kinds.Home('apps', 'daemonsets')
REVISIONS = kinds.Home('apps', 'controllerrevisions')
JOBS = kinds.Home('batch', 'jobs')
CRON_JOBS = kinds.Home('batch', 'cronjobs')
SLICES = kinds.Home('discovery.k8s.io', 'endpointslices')
BUDGETS = kinds.Home('policy', 'poddisruptionbudgets')

KINDS = {
    'Deployment': DEPLOYMENTS,
    'ReplicaSet': REPLICA_SETS,
    'StatefulSet': STATEFUL_SETS,
    'DaemonSet': DAEMON_SETS,
    'Job': JOBS,
    'CronJob': CRON_JOBS,
    'Service': SERVICES,
}


class Lookup:
    """Reads stored objects: by their names, by namespaces, and by their controllers."""

    def __init__(self, store: memory.Storage) -> None:
        self._store = store
        self._decoded: dict[tuple[kinds.Home, str], tuple[memory.Stored, Body]] = {}
        self._dependents: dict[tuple[str, kinds.Home], dict[str, None]] = {}
        for home, shelf in store:
            for stored in shelf.select(''):
                self.notice(memory.Change(stored.version, 'ADDED', home, stored, None))

    def notice(self, change: memory.Change) -> None:
        """Keep the index of controlled objects."""
        key = change.new.key
        self._decoded.pop((change.home, key), None)
        if change.old is not None and (uid := get_controller(self._decode_once(change.old))[1]):
            self._dependents.get((uid, change.home), {}).pop(key, None)
        if change.type != 'DELETED' and (uid := get_controller(self._decode_once(change.new))[1]):
            self._dependents.setdefault((uid, change.home), {})[key] = None

    def get(self, home: kinds.Home, key: str) -> Body | None:
        """Return an object by its key: ``namespace/name``, or the name of a cluster-scoped one."""
        stored = self._store.shelf(home).objects.get(key)
        return None if stored is None else self._decode(home, stored)

    def select(self, home: kinds.Home, namespace: str = '') -> list[Body]:
        """Return all objects, or those of a namespace."""
        return [self._decode(home, stored) for stored in self._store.shelf(home).select(namespace)]

    def list_controlled(self, uid: str, home: kinds.Home) -> list[Body]:
        """Return the objects that have the controller with this uid."""
        return list(self._iterate_controlled(uid, home))

    def list_keys(self, home: kinds.Home, namespace: str = '') -> list[str]:
        return [stored.key for stored in self._store.shelf(home).select(namespace)]

    def _iterate_controlled(self, uid: str, home: kinds.Home) -> Iterator[Body]:
        for key in sorted(self._dependents.get((uid, home), ())):
            body = self.get(home, key)
            if body is not None:
                yield body

    def _decode(self, home: kinds.Home, stored: memory.Stored) -> Body:
        known = self._decoded.get((home, stored.key))
        if known is None or known[0] is not stored:
            known = self._decoded[home, stored.key] = stored, stored.load()
        return known[1]

    @staticmethod
    def _decode_once(stored: memory.Stored) -> Body:
        return stored.load() if b'"controller":true' in stored.raw else NOTHING


NOTHING: Body = {'metadata': {}}


def get_controller(body: Body) -> tuple[str, str, str]:
    """Return the kind, the uid and the name of the controller of an object; empty if none."""
    for reference in body['metadata'].get('ownerReferences') or ():
        if reference.get('controller'):
            return reference['kind'], reference['uid'], reference['name']
    return '', '', ''


def get_key(body: Body) -> str:
    meta = body['metadata']
    return memory.make_key(meta.get('namespace') or '', meta['name'])


def find_controller_key(change: memory.Change, kind: str) -> str:
    """Return the key of the controller of the changed object if it is of this kind, else ''."""
    if b'"controller":true' not in change.new.raw:
        return ''
    found, _, name = get_controller(change.new.load())
    return memory.make_key(change.new.namespace, name) if found == kind else ''
