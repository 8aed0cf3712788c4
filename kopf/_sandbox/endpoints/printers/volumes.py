"""
Tables of storage: volumes, claims, classes, and drivers.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import cells

_ACCESS_MODES = {
    'ReadWriteOnce': 'RWO',
    'ReadOnlyMany': 'ROX',
    'ReadWriteMany': 'RWX',
    'ReadWriteOncePod': 'RWOP',
}
_CLASS_ANNOTATION = 'volume.beta.kubernetes.io/storage-class'
_DEFAULT_ANNOTATIONS = (
    'storageclass.kubernetes.io/is-default-class',
    'storageclass.beta.kubernetes.io/is-default-class',
)


def print_volume(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    claim = cells.dig(obj, 'spec', 'claimRef')
    return [
        cells.name(obj),
        cells.quantity(obj, 'spec', 'capacity', 'storage'),
        _show_access_modes(obj, 'spec', 'accessModes'),
        cells.text(obj, 'spec', 'persistentVolumeReclaimPolicy'),
        _show_phase(obj),
        '' if claim is None else f'{cells.text(claim, "namespace")}/{cells.text(claim, "name")}',
        _show_class(obj),
        cells.text(obj, 'spec', 'volumeAttributesClassName', default=cells.UNSET),
        cells.text(obj, 'status', 'reason'),
        cells.age(obj, now),
        cells.text(obj, 'spec', 'volumeMode', default=cells.UNSET),
    ]


def print_claim(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    volume = cells.text(obj, 'spec', 'volumeName')
    return [
        cells.name(obj),
        _show_phase(obj),
        volume,
        cells.quantity(obj, 'status', 'capacity', 'storage') if volume else '',
        _show_access_modes(obj, 'status', 'accessModes') if volume else '',
        _show_class(obj),
        cells.text(obj, 'spec', 'volumeAttributesClassName', default=cells.UNSET),
        cells.age(obj, now),
        cells.text(obj, 'spec', 'volumeMode', default=cells.UNSET),
    ]


def _show_phase(obj: cells.Object) -> str:
    return 'Terminating' if cells.is_deleting(obj) else cells.text(obj, 'status', 'phase')


def _show_access_modes(obj: cells.Object, *keys: str) -> str:
    modes = cells.texts(obj, *keys)
    return ','.join(short for mode, short in _ACCESS_MODES.items() if mode in modes)


def _show_class(obj: cells.Object) -> str:
    annotated = cells.dig(obj, 'metadata', 'annotations', _CLASS_ANNOTATION)
    return annotated if isinstance(annotated, str) else cells.text(obj, 'spec', 'storageClassName')


def print_storage_class(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    annotations = cells.mapping(obj, 'metadata', 'annotations')
    is_default = any(annotations.get(key) == 'true' for key in _DEFAULT_ANNOTATIONS)
    return [
        cells.name(obj) + (' (default)' if is_default else ''),
        cells.text(obj, 'provisioner'),
        cells.text(obj, 'reclaimPolicy', default='Delete'),
        cells.text(obj, 'volumeBindingMode', default='Immediate'),
        cells.flag(obj, 'allowVolumeExpansion'),
        cells.age(obj, now),
    ]


def print_attributes_class(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.text(obj, 'driverName'), cells.age(obj, now)]


def print_attachment(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'attacher'),
        cells.text(obj, 'spec', 'source', 'persistentVolumeName'),
        cells.text(obj, 'spec', 'nodeName'),
        cells.flag(obj, 'status', 'attached'),
        cells.age(obj, now),
    ]


def print_csi_driver(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    tokens = cells.dig(obj, 'spec', 'tokenRequests')
    audiences = ','.join(
        cells.text(token, 'audience') for token in cells.items(obj, 'spec', 'tokenRequests')
    )
    return [
        cells.name(obj),
        cells.flag(obj, 'spec', 'attachRequired', default=True),
        cells.flag(obj, 'spec', 'podInfoOnMount'),
        cells.flag(obj, 'spec', 'storageCapacity'),
        cells.UNSET if tokens is None else audiences,
        cells.flag(obj, 'spec', 'requiresRepublish'),
        ','.join(cells.texts(obj, 'spec', 'volumeLifecycleModes')) or cells.NONE,
        cells.age(obj, now),
    ]


def print_csi_node(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), len(cells.items(obj, 'spec', 'drivers')), cells.age(obj, now)]


PRINTERS = {
    ('', 'PersistentVolume'): cells.Printer(
        [
            cells.NAME,
            cells.column('Capacity', 'The size of the volume.'),
            cells.column('Access Modes', 'How the volume can be mounted.'),
            cells.column('Reclaim Policy', 'What happens to the volume when it is released.'),
            cells.column('Status', 'The phase of the volume.'),
            cells.column('Claim', 'The claim to which the volume is bound.'),
            cells.column('StorageClass', 'The storage class of the volume.'),
            cells.column('VolumeAttributesClass', 'The attributes class of the volume.'),
            cells.column('Reason', 'Why the volume is in this phase.'),
            cells.AGE,
            cells.wide('VolumeMode', 'Whether it is a filesystem or a block device.'),
        ],
        print_volume,
    ),
    ('', 'PersistentVolumeClaim'): cells.Printer(
        [
            cells.NAME,
            cells.column('Status', 'The phase of the claim.'),
            cells.column('Volume', 'The volume to which the claim is bound.'),
            cells.column('Capacity', 'The size of the volume.'),
            cells.column('Access Modes', 'How the volume can be mounted.'),
            cells.column('StorageClass', 'The storage class of the claim.'),
            cells.column('VolumeAttributesClass', 'The attributes class of the claim.'),
            cells.AGE,
            cells.wide('VolumeMode', 'Whether it is a filesystem or a block device.'),
        ],
        print_claim,
    ),
    ('storage.k8s.io', 'StorageClass'): cells.Printer(
        [
            cells.NAME,
            cells.column('Provisioner', 'What makes the volumes.'),
            cells.column('ReclaimPolicy', 'What happens to the volumes when they are released.'),
            cells.column('VolumeBindingMode', 'When the volumes are made and bound.'),
            cells.column('AllowVolumeExpansion', 'Whether the volumes can grow.'),
            cells.AGE,
        ],
        print_storage_class,
    ),
    ('storage.k8s.io', 'VolumeAttributesClass'): cells.Printer(
        [
            cells.NAME,
            cells.column('DriverName', 'The driver of the volumes.'),
            cells.AGE,
        ],
        print_attributes_class,
    ),
    ('storage.k8s.io', 'VolumeAttachment'): cells.Printer(
        [
            cells.NAME,
            cells.Header(
                'Attacher', format='name', description='The driver that attaches the volume.'
            ),
            cells.column('PV', 'The volume to attach.'),
            cells.column('Node', 'The node to attach to.'),
            cells.column('Attached', 'Whether the volume is attached.', 'boolean'),
            cells.AGE,
        ],
        print_attachment,
    ),
    ('storage.k8s.io', 'CSIDriver'): cells.Printer(
        [
            cells.NAME,
            cells.column('AttachRequired', 'Whether volumes must be attached.', 'boolean'),
            cells.column('PodInfoOnMount', 'Whether the driver is told of the pods.', 'boolean'),
            cells.column(
                'StorageCapacity', 'Whether the capacity is considered when scheduling.', 'boolean'
            ),
            cells.column('TokenRequests', 'The audiences of the tokens given to the driver.'),
            cells.column(
                'RequiresRepublish', 'Whether the volumes are published repeatedly.', 'boolean'
            ),
            cells.column('Modes', 'The supported kinds of volumes.'),
            cells.AGE,
        ],
        print_csi_driver,
    ),
    ('storage.k8s.io', 'CSINode'): cells.Printer(
        [
            cells.NAME,
            cells.column('Drivers', 'How many drivers are on the node.', 'integer'),
            cells.AGE,
        ],
        print_csi_node,
    ),
}
