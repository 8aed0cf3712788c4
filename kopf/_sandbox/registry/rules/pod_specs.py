"""
Pod specs: the validation of pod specs, both in pods and in templates.
"""

from collections.abc import Sequence
from typing import Final

from kopf._sandbox.meta import errors, metadata, naming
from kopf._sandbox.registry.rules import checks, containers, entries

RESTART_POLICIES: Final = ('Always', 'OnFailure', 'Never')
_DNS_POLICIES: Final = ('ClusterFirstWithHostNet', 'ClusterFirst', 'Default', 'None')
_EFFECTS: Final = ('NoSchedule', 'PreferNoSchedule', 'NoExecute')
_MODE_HINT: Final = 'must be a number between 0 and 0777 (octal), both inclusive'
_PATH_TYPES: Final = (
    '',
    'BlockDevice',
    'CharDevice',
    'Directory',
    'DirectoryOrCreate',
    'File',
    'FileOrCreate',
    'Socket',
)
_REQUIRED_IN_VOLUMES: Final = {
    'secret': 'secretName',
    'configMap': 'name',
    'persistentVolumeClaim': 'claimName',
    'hostPath': 'path',
    'csi': 'driver',
    'image': 'reference',
}


def validate_template(template: entries.Object, field: str) -> entries.Problems:
    """Return the problems of a pod template."""
    meta = template.get('metadata') or {}
    spec = template.get('spec') or {}
    problems = [
        *metadata.validate_labels(meta.get('labels') or {}, f'{field}.labels'),
        *metadata.validate_annotations(meta.get('annotations') or {}, f'{field}.annotations'),
        *validate_spec(spec, f'{field}.spec'),
    ]

    if spec.get('ephemeralContainers'):
        problems.append(
            errors.forbidden_field(
                f'{field}.spec.ephemeralContainers',
                'ephemeral containers not allowed in pod template',
            )
        )

    return problems


def validate_spec(spec: entries.Object, field: str) -> entries.Problems:
    """Return the problems of a pod spec."""
    volumes = spec.get('volumes') or ()
    names = {volume.get('name') for volume in volumes}
    main = spec.get('containers') or ()

    return [
        *_validate_volumes(volumes, f'{field}.volumes'),
        *containers.validate_containers(main, names, f'{field}.containers'),
        *containers.validate_init_containers(
            spec.get('initContainers') or (), main, names, f'{field}.initContainers'
        ),
        *_validate_host_ports(spec, field),
        *checks.check_enum(spec.get('restartPolicy'), f'{field}.restartPolicy', RESTART_POLICIES),
        *checks.check_enum(spec.get('dnsPolicy'), f'{field}.dnsPolicy', _DNS_POLICIES),
        *metadata.validate_labels(spec.get('nodeSelector') or {}, f'{field}.nodeSelector'),
        *_validate_security(spec.get('securityContext') or {}, f'{field}.securityContext'),
        *_validate_spreading(
            spec.get('topologySpreadConstraints') or (), f'{field}.topologySpreadConstraints'
        ),
        *checks.check_name(
            spec.get('serviceAccountName'), f'{field}.serviceAccountName', naming.check_subdomain
        ),
        *checks.check_name(spec.get('nodeName'), f'{field}.nodeName', naming.check_subdomain),
        *_validate_deadline(spec, field),
        *checks.check_name(spec.get('hostname'), f'{field}.hostname', naming.check_label),
        *checks.check_name(spec.get('subdomain'), f'{field}.subdomain', naming.check_label),
        *_validate_tolerations(spec.get('tolerations') or (), f'{field}.tolerations'),
        *checks.check_name(
            spec.get('priorityClassName'), f'{field}.priorityClassName', naming.check_subdomain
        ),
        *checks.check_name(
            spec.get('runtimeClassName'), f'{field}.runtimeClassName', naming.check_subdomain
        ),
        *checks.check_optional_enum(
            spec.get('preemptionPolicy'),
            f'{field}.preemptionPolicy',
            ('PreemptLowerPriority', 'Never'),
        ),
    ]


def _validate_volumes(volumes: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    names = set()
    for index, volume in enumerate(volumes):
        path = f'{field}[{index}]'
        name = volume.get('name') or ''
        problems += _validate_source(volume, path)
        if not name:
            problems.append(errors.required(f'{path}.name'))
        elif texts := naming.check_label(name):
            problems += [errors.invalid_value(f'{path}.name', name, text) for text in texts]
        elif name in names:
            problems.append(errors.duplicate(f'{path}.name', name))
        names.add(name)

    return problems


def _validate_source(volume: entries.Object, field: str) -> entries.Problems:
    kinds = [kind for kind, source in volume.items() if kind != 'name' and isinstance(source, dict)]
    if not kinds:
        return [errors.required(field, 'must specify a volume type')]

    [first, *others] = kinds
    source = volume[first]
    path = f'{field}.{first}'
    required = _REQUIRED_IN_VOLUMES.get(first)
    problems = []

    if required is not None and not source.get(required):
        problems.append(errors.required(f'{path}.{required}'))
    elif first == 'hostPath':
        problems += _validate_host_path(source, path)

    mode = source.get('defaultMode')
    if mode is not None and not 0 <= mode <= 0o777:
        problems.append(errors.invalid_value(f'{path}.defaultMode', mode, _MODE_HINT))
    if first in ('secret', 'configMap'):
        problems += _validate_items(source.get('items') or (), f'{path}.items')
    return problems + [
        errors.forbidden_field(f'{field}.{kind}', 'may not specify more than 1 volume type')
        for kind in others
    ]


def _validate_host_path(source: entries.Object, field: str) -> entries.Problems:
    problems = []
    if '..' in source['path'].split('/'):
        problems.append(
            errors.invalid_value(f'{field}.path', source['path'], "must not contain '..'")
        )
    return problems + checks.check_optional_enum(source.get('type'), f'{field}.type', _PATH_TYPES)


def _validate_items(items: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    for index, item in enumerate(items):
        path = f'{field}[{index}]'
        if not item.get('key'):
            problems.append(errors.required(f'{path}.key'))
        if not item.get('path'):
            problems.append(errors.required(f'{path}.path'))
        problems += containers.validate_inner_path(item.get('path'), f'{path}.path')
        if not 0 <= (item.get('mode') or 0) <= 0o777:
            problems.append(errors.invalid_value(f'{path}.mode', item['mode'], _MODE_HINT))

    return problems


def _validate_host_ports(spec: entries.Object, field: str) -> entries.Problems:
    if not spec.get('hostNetwork'):
        return []
    return [
        errors.invalid_value(
            f'{field}.containers[{index}].ports[{number}].hostPort',
            port.get('hostPort') or 0,
            'must match `containerPort` when `hostNetwork` is true',
        )
        for index, container in enumerate(spec.get('containers') or ())
        for number, port in enumerate(container.get('ports') or ())
        if port.get('hostPort') != port.get('containerPort')
    ]


def _validate_security(context: entries.Object, field: str) -> entries.Problems:
    return [
        errors.invalid_value(f'{field}.{name}', context[name], naming.between(0, 2**31 - 1))
        for name in ('fsGroup', 'runAsUser', 'runAsGroup')
        if not 0 <= (context.get(name) or 0) < 2**31
    ]


def _validate_spreading(constraints: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    for index, constraint in enumerate(constraints):
        path = f'{field}[{index}]'
        skew = constraint.get('maxSkew') or 0
        if skew <= 0:
            problems.append(
                errors.invalid_value(f'{path}.maxSkew', skew, 'must be greater than zero')
            )
        if not constraint.get('topologyKey'):
            problems.append(errors.required(f'{path}.topologyKey', 'can not be empty'))
        problems += checks.check_optional_enum(
            constraint.get('whenUnsatisfiable') or '',
            f'{path}.whenUnsatisfiable',
            ('DoNotSchedule', 'ScheduleAnyway'),
        )
        problems += checks.check_selector(constraint.get('labelSelector'), f'{path}.labelSelector')

    return problems


def _validate_deadline(spec: entries.Object, field: str) -> entries.Problems:
    deadline = spec.get('activeDeadlineSeconds')
    if deadline is None or 1 <= deadline < 2**31:
        return []
    return [
        errors.invalid_value(
            f'{field}.activeDeadlineSeconds', deadline, naming.between(1, 2**31 - 1)
        )
    ]


def _validate_tolerations(tolerations: Sequence[entries.Object], field: str) -> entries.Problems:
    return [
        problem
        for index, toleration in enumerate(tolerations)
        for problem in _validate_toleration(toleration, f'{field}[{index}]')
    ]


def _validate_toleration(toleration: entries.Object, field: str) -> entries.Problems:
    key = toleration.get('key') or ''
    operator = toleration.get('operator') or ''
    value = toleration.get('value') or ''
    effect = toleration.get('effect') or ''
    problems = checks.check_name(key, f'{field}.key', naming.check_key)

    if not key and operator != 'Exists':
        text = (
            'operator must be Exists when `key` is empty, which means "match all values '
            'and all keys"'
        )
        problems.append(errors.invalid_value(f'{field}.operator', operator, text))

    if toleration.get('tolerationSeconds') is not None and effect != 'NoExecute':
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        problems.append(errors.invalid_value(f'{field}.effect', effect, text))

    problems += _validate_operator(operator, value, f'{field}.operator')
    if effect:
        problems += checks.check_enum(effect, f'{field}.effect', _EFFECTS)
    return problems


def _validate_operator(operator: str, value: str, field: str) -> entries.Problems:
    """Check the operator of a toleration, and its value; all errors name the operator."""
    if operator in ('Equal', ''):
        texts = naming.check_label_value(value)
        return [errors.invalid_value(field, value, ';'.join(texts))] if texts else []

    if operator != 'Exists':
        return [errors.not_supported(field, operator, ('Equal', 'Exists'))]

    if value:
        text = "value must be empty when `operator` is 'Exists'"
        return [errors.invalid_value(field, value, text)]

    return []
