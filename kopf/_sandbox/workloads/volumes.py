"""
Volumes: claims are bound, to the volumes that fit them or to new ones.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kopf._sandbox.meta import quantities
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import interfaces, lookups, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

COMPONENT = 'persistentvolume-controller'
PROVISIONER = 'sandbox.kopf.dev/provisioner'
_COMPLETED = 'pv.kubernetes.io/bind-completed'
_CONTROLLED = 'pv.kubernetes.io/bound-by-controller'
_PROVISIONED = 'pv.kubernetes.io/provisioned-by'


class ClaimController:
    """Binds claims to volumes."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('persistent-volume-binder')
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.CLAIMS:
            return [change.new.key]
        if change.home == lookups.VOLUMES:
            return self._context.lookup.list_keys(lookups.CLAIMS)
        return []

    async def reconcile(self, key: str) -> float | None:
        claim = self._context.lookup.get(lookups.CLAIMS, key)
        if claim is None or pod_states.is_leaving(claim):
            return None
        if (claim.get('status') or {}).get('phase') == 'Bound':
            return None

        volumes = self._context.lookup.select(lookups.VOLUMES)
        volume = find_volume(claim, volumes)
        if volume is None and claim['spec'].get('volumeName'):
            return None  # until that volume exists

        if volume is None:
            volume = await self._client.create(lookups.VOLUMES, build_volume(claim))
            text = f'Successfully provisioned volume {volume["metadata"]["name"]}'
            await self._recorder.normal(claim, 'ProvisioningSucceeded', text)

        await self._bind(claim, volume)
        return None

    async def _bind(self, claim: Body, volume: Body) -> None:
        reference = build_reference(claim)
        name = volume['metadata']['name']

        def take(obj: Body) -> None:
            obj['spec']['claimRef'] = {**(obj['spec'].get('claimRef') or {}), **reference}

        def point(obj: Body) -> None:
            obj['spec']['volumeName'] = name
            annotations = obj['metadata'].setdefault('annotations', {})
            annotations.update({_COMPLETED: 'yes', _CONTROLLED: 'yes'})

        await self._client.change(lookups.VOLUMES, volume, take)
        await self._client.set_status(lookups.VOLUMES, volume, {'phase': 'Bound'})
        await self._client.change(lookups.CLAIMS, claim, point)
        status = {
            'phase': 'Bound',
            'accessModes': volume['spec'].get('accessModes') or [],
            'capacity': volume['spec'].get('capacity') or {},
        }
        await self._client.set_status(lookups.CLAIMS, claim, status)


class VolumeController:
    """Reports on the volumes, and deletes those whose claims are gone."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('persistent-volume-binder')

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.VOLUMES:
            return [change.new.key]
        if change.home == lookups.CLAIMS and change.type == 'DELETED':
            name = (change.new.load().get('spec') or {}).get('volumeName')
            return [name] if name else []
        return []

    async def reconcile(self, key: str) -> float | None:
        volume = self._context.lookup.get(lookups.VOLUMES, key)
        if volume is None or pod_states.is_leaving(volume):
            return None
        phase = choose_phase(volume, self._context.lookup)
        if phase == 'Released' and volume['spec'].get('persistentVolumeReclaimPolicy') == 'Delete':
            await self._client.delete(lookups.VOLUMES, volume)
        elif phase != (volume.get('status') or {}).get('phase'):
            await self._client.set_status(lookups.VOLUMES, volume, {'phase': phase})

        return None


def choose_phase(volume: Object, lookup: lookups.Lookup) -> str:
    reference = volume['spec'].get('claimRef')
    if not reference or not reference.get('uid'):
        return 'Available'
    key = memory.make_key(reference['namespace'], reference['name'])
    claim = lookup.get(lookups.CLAIMS, key)
    is_claimed = claim is not None and claim['metadata']['uid'] == reference['uid']
    return 'Bound' if is_claimed else 'Released'


def find_volume(claim: Object, volumes: Iterable[Body]) -> Body | None:
    """Find the smallest volume that fits a claim, or the one that it names."""
    fitting = [volume for volume in volumes if _fits(claim, volume)]
    return min(fitting, key=_measure, default=None)


def _fits(claim: Object, volume: Object) -> bool:
    spec = claim['spec']
    offered = volume['spec']
    reference = offered.get('claimRef') or {}
    if reference and not _refers(reference, claim):
        return False
    if spec.get('volumeName') or reference:
        return spec.get('volumeName') in (None, '', volume['metadata']['name'])

    classes = [item.get('storageClassName') or '' for item in (spec, offered)]
    modes = [set(item.get('accessModes') or ()) for item in (spec, offered)]
    asked = ((spec.get('resources') or {}).get('requests') or {}).get('storage') or '0'
    is_enough = _measure(volume) >= quantities.parse_quantity(asked)

    return classes[0] == classes[1] and modes[0] <= modes[1] and is_enough


def _refers(reference: Object, claim: Object) -> bool:
    meta = claim['metadata']
    names = (reference.get('namespace'), reference.get('name'))
    is_same = reference.get('uid') in (None, '', meta['uid'])
    return names == (meta['namespace'], meta['name']) and is_same


def _measure(volume: Object) -> Any:
    return quantities.parse_quantity((volume['spec'].get('capacity') or {}).get('storage') or '0')


def build_reference(claim: Object) -> Body:
    meta = claim['metadata']
    names = ('namespace', 'name', 'uid', 'resourceVersion')
    return {
        'apiVersion': 'v1',
        'kind': 'PersistentVolumeClaim',
        **{name: meta[name] for name in names},
    }


def build_volume(claim: Object) -> Body:
    """Build a volume for a claim."""
    spec = claim['spec']
    name = f'pvc-{claim["metadata"]["uid"]}'
    return {
        'apiVersion': 'v1',
        'kind': 'PersistentVolume',
        'metadata': {'name': name, 'annotations': {_PROVISIONED: PROVISIONER}},
        'spec': {
            'capacity': dict((spec.get('resources') or {}).get('requests') or {}),
            'accessModes': spec.get('accessModes') or [],
            'persistentVolumeReclaimPolicy': 'Delete',
            'storageClassName': spec.get('storageClassName') or '',
            'volumeMode': spec.get('volumeMode') or 'Filesystem',
            'hostPath': {'path': f'/var/lib/sandbox/{name}', 'type': ''},
            'claimRef': build_reference(claim),
        },
    }
