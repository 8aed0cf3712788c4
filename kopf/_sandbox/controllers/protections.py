"""
Protections: volumes, their claims and their classes stay as long as they are used.

Each of them has a finalizer from its creation. It is put back if it is lost, and removed when the
object is being deleted and nothing uses it: pods on nodes use claims, claims use volumes,
and both use the classes of attributes.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.controllers import interfaces
from kopf._sandbox.meta import kinds
from kopf._sandbox.storage import memory

PODS: Final = kinds.Home('', 'pods')
CLAIMS: Final = kinds.Home('', 'persistentvolumeclaims')
VOLUMES: Final = kinds.Home('', 'persistentvolumes')
CLASSES: Final = kinds.Home('storage.k8s.io', 'volumeattributesclasses')

Body = Mapping[str, Any]
Place = tuple[kinds.Home, str]  # the home and the key of an object


class ProtectionController:
    """Puts and removes the finalizers of the protected objects."""

    def __init__(self, store: memory.Storage, hands: interfaces.Hands) -> None:
        self._store = store
        self._hands = hands
        self._suspects: dict[Place, None] = {}  # objects to examine, in order
        self._leaving: dict[Place, None] = {}  # those that are still used

    def notice(self, change: memory.Change) -> None:
        if change.home in PROTECTIONS:
            self._suspects[change.home, change.new.key] = None
        if change.home in _USERS and (change.type == 'DELETED' or change.home != PODS):
            self._suspects.update(self._leaving)

    def settle(self) -> bool:
        """Examine all suspects; return whether there were any."""
        suspects = self._suspects
        self._suspects = {}
        for place in suspects:
            self._leaving.pop(place, None)
            stored = self._store.shelf(place[0]).objects.get(place[1])
            if stored is not None:
                self._examine(place, stored)

        return bool(suspects)

    def _examine(self, place: Place, stored: memory.Stored) -> None:
        protection = PROTECTIONS[place[0]]
        body = stored.load()
        meta = body['metadata']
        finalizers: list[str] = meta.get('finalizers') or []

        if stored.is_leaving and protection.finalizer in finalizers:
            if protection.is_used(self._store, body):
                self._leaving[place] = None
                return
            meta['finalizers'] = [name for name in finalizers if name != protection.finalizer]
            if not meta['finalizers']:
                del meta['finalizers']
            self._hands.update(place[0], stored, body)
        elif not stored.is_leaving and protection.finalizer not in finalizers:
            meta['finalizers'] = [*finalizers, protection.finalizer]
            self._hands.update(place[0], stored, body)


@dataclasses.dataclass(frozen=True)
class Protection:
    """How the objects of one resource are protected."""

    finalizer: str
    is_used: Callable[[memory.Storage, Body], bool]


def _is_claim_used(store: memory.Storage, claim: Body) -> bool:
    """Return whether there are pods with this claim on any node, even if they have ended."""
    meta = claim['metadata']
    pods = (stored.load() for stored in store.shelf(PODS).select(meta['namespace']))
    return any(
        meta['name'] in _list_claims(pod) for pod in pods if (pod.get('spec') or {}).get('nodeName')
    )


def _list_claims(pod: Body) -> Iterator[str]:
    """Return the names of the claims that a pod uses, including those made for it."""
    for volume in pod['spec'].get('volumes') or ():
        if 'persistentVolumeClaim' in volume:
            yield volume['persistentVolumeClaim'].get('claimName') or ''
        elif 'ephemeral' in volume:
            yield f'{pod["metadata"]["name"]}-{volume["name"]}'


def _is_volume_used(store: memory.Storage, volume: Body) -> bool:
    return (volume.get('status') or {}).get('phase') == 'Bound'


def _is_class_used(store: memory.Storage, attributes: Body) -> bool:
    name = attributes['metadata']['name']
    users = (stored.load() for home in (CLAIMS, VOLUMES) for stored in store.shelf(home).select(''))
    return any(name in _list_classes(user) for user in users)


def _list_classes(user: Body) -> Iterator[str | None]:
    """Return the classes that a claim or a volume has, wants, or is changed to."""
    status = user.get('status') or {}
    yield (user.get('spec') or {}).get('volumeAttributesClassName')
    yield status.get('currentVolumeAttributesClassName')
    yield (status.get('modifyVolumeStatus') or {}).get('targetVolumeAttributesClassName')


PROTECTIONS: Final[Mapping[kinds.Home, Protection]] = {
    CLAIMS: Protection('kubernetes.io/pvc-protection', _is_claim_used),
    VOLUMES: Protection('kubernetes.io/pv-protection', _is_volume_used),
    CLASSES: Protection('kubernetes.io/vac-protection', _is_class_used),
}

_USERS: Final = frozenset((PODS, CLAIMS, VOLUMES))
