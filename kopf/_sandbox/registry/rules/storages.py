"""
Storages: volumes, claims and storage classes.
"""

from typing import Any, Final

from kopf._sandbox.meta import errors, naming, quantities
from kopf._sandbox.registry.rules import checks, entries, pod_defaults

_ACCESS_MODES: Final = ('ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOnce', 'ReadWriteOncePod')
_VOLUME_MODES: Final = ('Block', 'Filesystem')
_RECLAIM_POLICIES: Final = ('Delete', 'Recycle', 'Retain')
_NOT_SOURCES: Final = frozenset(
    (
        'capacity',
        'accessModes',
        'claimRef',
        'persistentVolumeReclaimPolicy',
        'storageClassName',
        'mountOptions',
        'volumeMode',
        'nodeAffinity',
        'volumeAttributesClassName',
    )
)
_CLAIM_FIXED: Final = (
    'spec is immutable after creation except resources.requests and volumeAttributesClassName '
    'for bound claims\n'
)
_CLAIM_FINALIZER: Final = 'kubernetes.io/pvc-protection'
_VOLUME_FINALIZER: Final = 'kubernetes.io/pv-protection'
_ATTRIBUTES_FINALIZER: Final = 'kubernetes.io/vac-protection'


def default_claim(obj: dict[str, Any]) -> None:
    pod_defaults.fill(obj.setdefault('spec', {}), {'volumeMode': 'Filesystem'})
    pod_defaults.fill(obj.setdefault('status', {}), {'phase': 'Pending'})


def default_volume(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    pod_defaults.fill(spec, {'persistentVolumeReclaimPolicy': 'Retain', 'volumeMode': 'Filesystem'})
    if 'hostPath' in spec:
        pod_defaults.fill(spec['hostPath'], {'type': ''})
    pod_defaults.fill(obj.setdefault('status', {}), {'phase': 'Pending'})


def default_class(obj: dict[str, Any]) -> None:
    pod_defaults.fill(obj, {'reclaimPolicy': 'Delete', 'volumeBindingMode': 'Immediate'})


def default_driver(obj: dict[str, Any]) -> None:
    pod_defaults.fill(
        obj.setdefault('spec', {}),
        {
            'attachRequired': True,
            'podInfoOnMount': False,
            'storageCapacity': False,
            'requiresRepublish': False,
            'seLinuxMount': False,
            'fsGroupPolicy': 'ReadWriteOnceWithFSType',
            'volumeLifecycleModes': ['Persistent'],
        },
    )


def prepare_claim(obj: dict[str, Any], site: entries.Site) -> None:
    _protect(obj, _CLAIM_FINALIZER)
    spec = obj['spec']
    source = spec.get('dataSource')
    ref = spec.get('dataSourceRef')

    if source is not None and ref is None:
        spec['dataSourceRef'] = dict(source)
    elif ref is not None and source is None and not ref.get('namespace'):
        spec['dataSource'] = {
            'apiGroup': ref.get('apiGroup'),
            'kind': ref.get('kind'),
            'name': ref.get('name'),
        }


def prepare_volume(obj: dict[str, Any], site: entries.Site) -> None:
    _protect(obj, _VOLUME_FINALIZER)
    obj['status'] = {'phase': 'Pending', 'lastPhaseTransitionTime': site.now}


def prepare_attributes(obj: dict[str, Any], site: entries.Site) -> None:
    _protect(obj, _ATTRIBUTES_FINALIZER)


def _protect(obj: dict[str, Any], finalizer: str) -> None:
    finalizers = obj['metadata'].setdefault('finalizers', [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _validate_modes(modes: list[str], field: str) -> entries.Problems:
    problems = [
        errors.not_supported(field, mode, _ACCESS_MODES)
        for mode in modes
        if mode not in _ACCESS_MODES
    ]
    if 'ReadWriteOncePod' in modes and any(mode in _ACCESS_MODES[:3] for mode in modes):
        problems.append(
            errors.forbidden_field(field, 'may not use ReadWriteOncePod with other access modes')
        )

    return problems


def validate_claim(obj: entries.Object) -> entries.Problems:
    return validate_claim_spec(obj.get('spec') or {}, 'spec')


def validate_claim_spec(spec: entries.Object, field: str) -> entries.Problems:
    modes = spec.get('accessModes') or []
    problems = (
        []
        if modes
        else [errors.required(f'{field}.accessModes', 'at least 1 access mode is required')]
    )
    problems += checks.check_selector(spec.get('selector'), f'{field}.selector')
    problems += _validate_modes(modes, f'{field}.accessModes')
    size = checks.dig(spec, 'resources', 'requests', 'storage')

    if size is None:
        problems.append(errors.required(f'{field}.resources[storage]'))
    elif quantities.parse_quantity(size) <= 0:
        problems.append(
            errors.invalid_value(f'{field}.resources[storage]', size, 'must be greater than zero')
        )

    problems += checks.check_name(
        spec.get('storageClassName'), f'{field}.storageClassName', naming.check_subdomain
    )
    return problems + checks.check_optional_enum(
        spec.get('volumeMode'), f'{field}.volumeMode', _VOLUME_MODES
    )


def validate_claim_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    spec = dict(new.get('spec') or {})
    known = dict(old.get('spec') or {})
    is_bound = checks.dig(new, 'status', 'phase') == 'Bound'
    freed = [name for name in ('volumeName', 'storageClassName') if not known.get(name)]
    freed += ['resources', 'volumeAttributesClassName'] if is_bound else []
    problems = []
    if any(spec.get(name) != known.get(name) for name in {*spec, *known} - {*freed}):
        problems.append(errors.forbidden_field('spec', _CLAIM_FIXED))
    size, before = (
        checks.dig(obj, 'resources', 'requests', 'storage') or '0' for obj in (spec, known)
    )
    capacity = checks.dig(old, 'status', 'capacity', 'storage') or '0'
    amount = quantities.parse_quantity(size)

    if amount < quantities.parse_quantity(before) and amount <= quantities.parse_quantity(capacity):
        problems.append(
            errors.forbidden_field(
                'spec.resources.requests.storage', 'field can not be less than status.capacity'
            )
        )

    return problems + checks.check_immutable(
        spec.get('volumeMode'), known.get('volumeMode'), 'volumeMode'
    )


def validate_volume(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    modes = spec.get('accessModes') or []
    capacity = spec.get('capacity') or {}
    problems = [] if modes else [errors.required('spec.accessModes')]
    problems += _validate_modes(modes, 'spec.accessModes')
    if not capacity:
        problems.append(errors.required('spec.capacity'))
    if list(capacity) != ['storage']:
        problems.append(errors.not_supported('spec.capacity', capacity or None, ('storage',)))
    problems += [
        errors.invalid_value(f'spec.capacity[{name}]', amount, 'must be greater than zero')
        for name, amount in capacity.items()
        if quantities.parse_quantity(amount) <= 0
    ]
    problems += checks.check_optional_enum(
        spec.get('persistentVolumeReclaimPolicy'),
        'spec.persistentVolumeReclaimPolicy',
        _RECLAIM_POLICIES,
    )
    sources = [name for name in spec if name not in _NOT_SOURCES]
    if not sources:
        problems.append(errors.required('spec', 'must specify a volume type'))
    problems += [
        errors.forbidden_field(f'spec.{name}', 'may not specify more than 1 volume type')
        for name in sources[1:]
    ]
    problems += checks.check_name(
        spec.get('storageClassName'), 'spec.storageClassName', naming.check_subdomain
    )
    return problems + checks.check_optional_enum(
        spec.get('volumeMode'), 'spec.volumeMode', _VOLUME_MODES
    )


def validate_volume_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    spec = new.get('spec') or {}
    known = old.get('spec') or {}
    sources = [
        {name: value for name, value in obj.items() if name not in _NOT_SOURCES}
        for obj in (spec, known)
    ]
    problems = []

    if sources[0] != sources[1]:
        problems.append(
            errors.forbidden_field(
                'spec.persistentvolumesource',
                'spec.persistentvolumesource is immutable after creation\n',
            )
        )

    return problems + checks.check_immutable(
        spec.get('volumeMode'), known.get('volumeMode'), 'volumeMode'
    )


def validate_class(obj: entries.Object) -> entries.Problems:
    provisioner = obj.get('provisioner')
    problems = [] if provisioner else [errors.required('provisioner')]
    if provisioner:
        problems += [
            errors.invalid_value('provisioner', provisioner, text)
            for text in naming.check_key(provisioner.lower())
        ]

    problems += checks.check_optional_enum(
        obj.get('reclaimPolicy'), 'reclaimPolicy', ('Delete', 'Retain')
    )
    return problems + checks.check_optional_enum(
        obj.get('volumeBindingMode'), 'volumeBindingMode', ('Immediate', 'WaitForFirstConsumer')
    )


def validate_class_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    problems = [
        errors.forbidden_field(name, f'updates to {name} are forbidden.')
        for name in ('parameters', 'provisioner', 'reclaimPolicy')
        if new.get(name) != old.get(name)
    ]
    return problems + checks.check_immutable(
        new.get('volumeBindingMode'), old.get('volumeBindingMode'), 'volumeBindingMode'
    )


def validate_driver_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    spec = new.get('spec') or {}
    known = old.get('spec') or {}
    names = (
        ('attachRequired', 'attachedRequired'),
        ('volumeLifecycleModes', 'volumeLifecycleModes'),
    )

    return [
        errors.invalid_value(f'spec.{shown}', spec.get(name), 'field is immutable')
        for name, shown in names
        if spec.get(name) != known.get(name)
    ]


RULES: Final = {
    ('', 'PersistentVolumeClaim'): entries.Rules(
        initial_status={'phase': 'Pending'},
        defaults=default_claim,
        prepare_create=prepare_claim,
        validate=validate_claim,
        validate_update=validate_claim_update,
    ),
    ('', 'PersistentVolume'): entries.Rules(
        defaults=default_volume,
        prepare_create=prepare_volume,
        validate=validate_volume,
        validate_update=validate_volume_update,
    ),
    ('storage.k8s.io', 'StorageClass'): entries.Rules(
        defaults=default_class, validate=validate_class, validate_update=validate_class_update
    ),
    ('storage.k8s.io', 'CSIDriver'): entries.Rules(
        is_bumped=entries.bumped_by_spec,
        defaults=default_driver,
        validate_update=validate_driver_update,
        allows_unconditional_update=False,
    ),
    ('storage.k8s.io', 'CSIStorageCapacity'): entries.Rules(allows_unconditional_update=False),
    ('storage.k8s.io', 'VolumeAttributesClass'): entries.Rules(prepare_create=prepare_attributes),
    ('storage.k8s.io', 'CSINode'): entries.Rules(allows_unconditional_update=False),
    ('storage.k8s.io', 'VolumeAttachment'): entries.Rules(
        initial_status={'attached': False}, allows_unconditional_update=False
    ),
}
