"""
Recreations: objects vanish at any moment, and new ones take their names immediately.

It is as if a user has removed the finalizers, deleted the object, and applied the manifests again,
all at once. The new objects have everything that others have written to the old ones, and nothing
that the operator has written.
"""

import asyncio
import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._kits.chaos import meddlers, plans, server_behaviours, timelines
from kopf._sandbox.meta import kinds
from kopf._sandbox.registry import prepare
from kopf._sandbox.storage import memory

VOLATILE = (
    'uid',
    'resourceVersion',
    'creationTimestamp',
    'generation',
    'managedFields',
    'finalizers',
    'selfLink',
)


@dataclasses.dataclass(frozen=True)
class Place:
    """The location of an object in the storage."""

    home: kinds.Home
    namespace: str
    name: str


class Recreator:
    """Keeps the manifests of all objects of one run, and re-creates some of them as planned."""

    def __init__(
        self,
        plan: plans.Plan,
        store: memory.Storage,
        sources: prepare.Sources,
        server: server_behaviours.BehavingServer,
        timeline: timelines.Timeline,
    ) -> None:
        self._planned = {recreation.change: recreation for recreation in plan.recreations}
        self._store = store
        self._sources = sources
        self._server = server
        self._timeline = timeline
        self._manifests: dict[Place, dict[str, Any]] = {}
        self._count = 0
        self._is_lifted = False

        if self._planned:
            self._remember_all()
            store.observe(self._notice)

    def lift(self) -> None:
        """Do not touch anything from now on."""
        self._is_lifted = True

    def _remember_all(self) -> None:
        for home, shelf in self._store:
            for stored in shelf.objects.values():
                self._manifests[Place(home, stored.namespace, stored.name)] = stored.load()

    def _notice(self, change: memory.Change) -> None:
        place = Place(change.home, change.new.namespace, change.new.name)
        self._remember(place, change)
        if change.home.plural in meddlers.UNCOUNTED:
            return
        self._count += 1
        planned = self._planned.get(self._count)
        if planned is not None and is_recreatable(change.home):
            asyncio.get_running_loop().call_later(planned.delay, self._recreate, place)

    def _remember(self, place: Place, change: memory.Change) -> None:
        """Remember what others have written; the operator re-creates its own objects itself."""
        is_foreign = not meddlers.is_by_operator()
        if change.type == 'DELETED':
            self._manifests.pop(place, None)
        elif change.type == 'ADDED' and is_foreign:
            self._manifests[place] = change.new.load()
        elif change.old is not None and is_foreign and place in self._manifests:
            known = self._manifests[place]
            self._manifests[place] = replay(known, change.old.load(), change.new.load())

    def _recreate(self, place: Place) -> None:
        """Replace the object, unless it is gone or is being deleted."""
        stored = self._store.get(place.home, place.namespace, place.name)
        manifest = self._manifests.get(place)
        if self._is_lifted or stored is None or manifest is None:
            return
        if stored.load()['metadata'].get('deletionTimestamp'):
            return

        what = f'{place.home.plural} {stored.key}'
        self._timeline.note('rebirth', f'{what}: replaced by a new object of the same name')
        body = self._server.rewrite(build_newborn(manifest))
        body['metadata'] |= {
            'uid': self._sources.make_uid(),
            'generation': 1,
            'creationTimestamp': self._sources.format_now(),
        }
        self._store.remove(place.home, stored)
        self._store.put(place.home, body, fields=stored.fields)


def is_recreatable(home: kinds.Home) -> bool:
    """Return whether it is a custom resource: other resources have life cycles of their own."""
    return '.' in home.group and not home.group.endswith('.k8s.io')


def build_newborn(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """
    Build an object as created from this manifest: with no status, with nothing set by the API.
    """
    body = {key: copy.deepcopy(value) for key, value in manifest.items() if key != 'status'}
    metadata = body['metadata']
    body['metadata'] = {key: metadata[key] for key in metadata if key not in VOLATILE}
    return body


def replay(known: Any, old: Any, new: Any) -> Any:
    """Apply the changes between the old and the new value to the known value."""
    if not all(isinstance(value, Mapping) for value in (known, old, new)):
        return copy.deepcopy(new)

    result = {key: value for key, value in known.items() if key in new or key not in old}
    for key, value in new.items():
        if key not in old:
            result[key] = copy.deepcopy(value)
        elif value != old[key]:
            result[key] = replay(known.get(key), old[key], value)

    return result
