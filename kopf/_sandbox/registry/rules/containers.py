"""
Containers: the validation of pods' containers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kopf._sandbox.meta import errors, naming, quantities
from kopf._sandbox.registry.rules import checks, entries

PROTOCOLS: Final = ('SCTP', 'TCP', 'UDP')
PULL_POLICIES: Final = ('Always', 'IfNotPresent', 'Never')
_MESSAGE_POLICIES: Final = ('File', 'FallbackToLogsOnError')
_HANDLERS: Final = ('exec', 'httpGet', 'tcpSocket', 'grpc', 'sleep')
_PROBES: Final = ('livenessProbe', 'readinessProbe', 'startupProbe')
_PROBE_COUNTS: Final = (
    'initialDelaySeconds',
    'timeoutSeconds',
    'periodSeconds',
    'successThreshold',
    'failureThreshold',
)
_STANDARD_RESOURCES: Final = frozenset(('cpu', 'memory', 'ephemeral-storage'))
_FIELD_PATHS: Final = (
    'metadata.annotations',
    'metadata.labels',
    'metadata.name',
    'metadata.namespace',
    'metadata.uid',
    'spec.nodeName',
    'spec.serviceAccountName',
    'status.hostIP',
    'status.hostIPs',
    'status.podIP',
    'status.podIPs',
)
_RESOURCE_FIELDS: Final = (
    'limits.cpu',
    'limits.ephemeral-storage',
    'limits.memory',
    'requests.cpu',
    'requests.ephemeral-storage',
    'requests.memory',
)
_VALUE_SOURCES: Final = (
    'fieldRef',
    'resourceFieldRef',
    'configMapKeyRef',
    'secretKeyRef',
    'fileKeyRef',
)
_SECURITY_FIELDS: Final = (
    'Capabilities',
    'Privileged',
    'SELinuxOptions',
    'WindowsOptions',
    'RunAsUser',
    'RunAsGroup',
    'RunAsNonRoot',
    'ReadOnlyRootFilesystem',
    'AllowPrivilegeEscalation',
    'ProcMount',
    'SeccompProfile',
    'AppArmorProfile',
)
_ONLY_SIDECARS: Final = 'may not be set for init containers without restartPolicy=Always'


def validate_containers(
    containers: Sequence[entries.Object], volumes: Collection[str], field: str
) -> entries.Problems:
    """Return the problems of the main containers."""
    if not containers:
        return [errors.required(field)]

    problems = []
    names = set()
    for index, container in enumerate(containers):
        path = f'{field}[{index}]'
        problems += _validate_common(container, volumes, path)
        name = container.get('name') or ''
        if name in names:
            problems.append(errors.duplicate(f'{path}.name', name))
        names.add(name)
        problems += _validate_life(container, path)

    return problems + _find_port_conflicts(containers, field)


def validate_init_containers(
    containers: Sequence[entries.Object],
    main: Sequence[entries.Object],
    volumes: Collection[str],
    field: str,
) -> entries.Problems:
    """Return the problems of the init containers, including the sidecars."""
    problems = []
    names = {container.get('name') or '' for container in main}
    for index, container in enumerate(containers):
        path = f'{field}[{index}]'
        problems += _validate_common(container, volumes, path)
        name = container.get('name') or ''
        if name in names:
            problems.append(errors.duplicate(f'{path}.name', name))
        elif name:
            names.add(name)
        if container.get('restartPolicy') == 'Always':
            problems += _validate_life(container, path)
        else:
            problems += [
                errors.forbidden_field(f'{path}.{key}', _ONLY_SIDECARS)
                for key in ('lifecycle', *_PROBES)
                if key in container
            ]

    return problems


def _validate_common(
    container: entries.Object, volumes: Collection[str], field: str
) -> entries.Problems:
    problems = checks.check_required_name(
        container.get('name'), f'{field}.name', naming.check_label
    )
    if not container.get('image'):
        problems.append(errors.required(f'{field}.image'))
    return [
        *problems,
        *checks.check_enum(
            container.get('terminationMessagePolicy'),
            f'{field}.terminationMessagePolicy',
            _MESSAGE_POLICIES,
        ),
        *_validate_ports(container.get('ports') or (), f'{field}.ports'),
        *_validate_env(container.get('env') or (), f'{field}.env'),
        *_validate_env_from(container.get('envFrom') or (), f'{field}.envFrom'),
        *_validate_mounts(container.get('volumeMounts') or (), volumes, f'{field}.volumeMounts'),
        *checks.check_enum(
            container.get('imagePullPolicy'), f'{field}.imagePullPolicy', PULL_POLICIES
        ),
        *validate_resources(container.get('resources') or {}, f'{field}.resources'),
        *_validate_security(container.get('securityContext') or {}, f'{field}.securityContext'),
    ]


def _validate_ports(ports: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    names = set()
    for index, port in enumerate(ports):
        path = f'{field}[{index}]'
        name = port.get('name')
        if name and (texts := naming.check_port_name(name)):
            problems += [errors.invalid_value(f'{path}.name', name, text) for text in texts]
        elif name and name in names:
            problems.append(errors.duplicate(f'{path}.name', name))
        names.add(name)
        if not port.get('containerPort'):
            problems.append(errors.required(f'{path}.containerPort'))
        else:
            problems += checks.check_port(port['containerPort'], f'{path}.containerPort')
        if port.get('hostPort'):
            problems += checks.check_port(port['hostPort'], f'{path}.hostPort')
        problems += checks.check_enum(port.get('protocol'), f'{path}.protocol', PROTOCOLS)

    return problems


def _find_port_conflicts(containers: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    taken = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get('ports') or ()):
            if not port.get('hostPort'):
                continue
            text = f'{port.get("protocol")}/{port.get("hostIP") or ""}/{port["hostPort"]}'
            if text in taken:
                problems.append(
                    errors.duplicate(f'{field}[{index}].ports[{number}].hostPort', text)
                )
            taken.add(text)

    return problems


def _validate_env(variables: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    for index, variable in enumerate(variables):
        path = f'{field}[{index}]'
        problems += checks.check_required_name(
            variable.get('name'), f'{path}.name', naming.check_env_name
        )
        if 'valueFrom' in variable:
            problems += _validate_value_source(variable, f'{path}.valueFrom')

    return problems


def _validate_value_source(variable: entries.Object, field: str) -> entries.Problems:
    source: entries.Object = variable['valueFrom']
    problems = []
    if 'fieldRef' in source:
        problems += _validate_field_ref(source['fieldRef'], f'{field}.fieldRef')
    if 'resourceFieldRef' in source:
        problems += _validate_resource_ref(source['resourceFieldRef'], f'{field}.resourceFieldRef')
    for name in ('configMapKeyRef', 'secretKeyRef'):
        if name in source:
            problems += _validate_key_ref(source[name], f'{field}.{name}')

    count = sum(name in source for name in _VALUE_SOURCES)
    if count == 0:
        listed = '`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`'
        problems.append(errors.invalid_value(field, '', f'must specify one of: {listed}'))
    elif variable.get('value'):
        problems.append(
            errors.invalid_value(field, '', 'may not be specified when `value` is not empty')
        )
    elif count > 1:
        problems.append(
            errors.invalid_value(field, '', 'may not have more than one field specified at a time')
        )

    return problems


def _validate_field_ref(ref: entries.Object, field: str) -> entries.Problems:
    path = ref.get('fieldPath')
    if not path:
        return [errors.required(f'{field}.fieldPath')]
    if ref.get('apiVersion') != 'v1':
        return [
            errors.invalid_value(
                f'{field}.fieldPath',
                path,
                f'error converting fieldPath: unsupported pod version: {ref.get("apiVersion")}',
            )
        ]

    name, subscript, _ = path.partition('[')
    if subscript:
        is_known = name in ('metadata.annotations', 'metadata.labels')
    else:
        is_known = path in _FIELD_PATHS and path not in ('metadata.annotations', 'metadata.labels')

    if is_known:
        return []
    if path in _FIELD_PATHS or path in ('spec.restartPolicy', 'spec.schedulerName', 'status.phase'):
        return [errors.not_supported(f'{field}.fieldPath', path, _FIELD_PATHS[2:])]

    text = f'error converting fieldPath: field label not supported: {path}'
    return [errors.invalid_value(f'{field}.fieldPath', path, text)]


def _validate_resource_ref(ref: entries.Object, field: str) -> entries.Problems:
    if not ref.get('resource'):
        return [errors.required(f'{field}.resource')]
    return checks.check_optional_enum(ref['resource'], f'{field}.resource', _RESOURCE_FIELDS)


def _validate_key_ref(ref: entries.Object, field: str) -> entries.Problems:
    name = ref.get('name') or ''
    problems = [
        errors.invalid_value(f'{field}.name', name, text) for text in naming.check_subdomain(name)
    ]
    if not ref.get('key'):
        return [*problems, errors.required(f'{field}.key')]
    return problems + checks.check_name(ref['key'], f'{field}.key', naming.check_config_key)


def _validate_env_from(sources: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    for index, source in enumerate(sources):
        path = f'{field}[{index}]'
        problems += checks.check_name(source.get('prefix'), f'{path}.prefix', naming.check_env_name)
        names = [name for name in ('configMapRef', 'secretRef') if name in source]
        for name in names:
            problems += checks.check_required_name(
                source[name].get('name'), f'{path}.{name}.name', naming.check_subdomain
            )
        if not names:
            problems.append(
                errors.invalid_value(
                    field, '', 'must specify one of: `configMapRef` or `secretRef`'
                )
            )
        elif len(names) > 1:
            problems.append(
                errors.invalid_value(
                    field, '', 'may not have more than one field specified at a time'
                )
            )

    return problems


def _validate_mounts(
    mounts: Sequence[entries.Object], volumes: Collection[str], field: str
) -> entries.Problems:
    problems = []
    taken = set()
    for index, mount in enumerate(mounts):
        path = f'{field}[{index}]'
        name = mount.get('name') or ''
        where = mount.get('mountPath') or ''
        if not name:
            problems.append(errors.required(f'{path}.name'))
        if name not in volumes:
            problems.append(errors.absent_value(f'{path}.name', name))
        if not where:
            problems.append(errors.required(f'{path}.mountPath'))
        if where in taken:
            problems.append(errors.invalid_value(f'{path}.mountPath', where, 'must be unique'))
        taken.add(where)
        problems += validate_inner_path(mount.get('subPath'), f'{field}.subPath')
        problems += validate_inner_path(mount.get('subPathExpr'), f'{field}.subPathExpr')

    return problems


def validate_inner_path(path: str | None, field: str) -> entries.Problems:
    """Check that a path, if set, is relative and does not go up."""
    problems = []
    if path and path.startswith('/'):
        problems.append(errors.invalid_value(field, path, 'must be a relative path'))
    if path and '..' in path.split('/'):
        problems.append(errors.invalid_value(field, path, "must not contain '..'"))
    return problems


def validate_resources(resources: entries.Object, field: str) -> entries.Problems:
    """Check the requests and limits of resources."""
    limits = resources.get('limits') or {}
    requests = resources.get('requests') or {}
    problems = []
    for name, amount in limits.items():
        problems += _validate_amount(name, amount, f'{field}.limits[{name}]')
    for name, amount in requests.items():
        problems += _validate_amount(name, amount, f'{field}.requests[{name}]')
        problems += _compare_with_limit(name, amount, limits, field)

    return problems


def _validate_amount(name: str, amount: str, field: str) -> entries.Problems:
    problems = [errors.invalid_value(field, name, text) for text in naming.check_key(name)]
    if '/' not in name and name not in _STANDARD_RESOURCES and not name.startswith('hugepages-'):
        problems.append(
            errors.invalid_value(field, name, 'must be a standard resource type or fully qualified')
        )
        problems.append(
            errors.invalid_value(field, name, 'must be a standard resource for containers')
        )

    value = quantities.parse_quantity(amount)
    if value < 0:
        problems.append(errors.invalid_value(field, amount, checks.NEGATIVE))
    if '/' in name and value != int(value):
        problems.append(errors.invalid_value(field, amount, 'must be an integer'))
    return problems


def _compare_with_limit(
    name: str, amount: str, limits: Mapping[str, str], field: str
) -> entries.Problems:
    is_exact = '/' in name or name.startswith('hugepages-')
    if name not in limits:
        text = 'Limit must be set for non overcommitable resources'
        return [errors.required(f'{field}.limits', text)] if is_exact else []

    value = quantities.parse_quantity(amount)
    limit = quantities.parse_quantity(limits[name])
    if is_exact and value != limit:
        return [
            errors.invalid_value(
                f'{field}.requests', amount, f'must be equal to {name} limit of {limits[name]}'
            )
        ]

    if value > limit:
        text = f'must be less than or equal to {name} limit of {limits[name]}'
        return [errors.invalid_value(f'{field}.requests', amount, text)]

    return []


def _validate_security(context: entries.Object, field: str) -> entries.Problems:
    problems = []
    for name in ('runAsUser', 'runAsGroup'):
        if not 0 <= (context.get(name) or 0) < 2**31:
            problems.append(
                errors.invalid_value(f'{field}.{name}', context[name], naming.between(0, 2**31 - 1))
            )

    if context.get('allowPrivilegeEscalation') is False and context.get('privileged'):
        shown = {name: context.get(f'{name[:1].lower()}{name[1:]}') for name in _SECURITY_FIELDS}
        problems.append(
            checks.invalid_struct(
                field,
                shown,
                'cannot set `allowPrivilegeEscalation` to false and `privileged` to true',
            )
        )

    return problems


def _validate_life(container: entries.Object, field: str) -> entries.Problems:
    problems = []
    for name in ('postStart', 'preStop'):
        handler = checks.dig(container, 'lifecycle', name)
        if handler is not None:
            problems += _validate_handler(handler, f'{field}.lifecycle.{name}')

    for name in _PROBES:
        if name in container:
            problems += _validate_probe(container[name], f'{field}.{name}')

    for name in ('livenessProbe', 'startupProbe'):
        threshold = checks.dig(container, name, 'successThreshold')
        if threshold is not None and threshold != 1:
            problems.append(
                errors.invalid_value(f'{field}.{name}.successThreshold', threshold, 'must be 1')
            )

    return problems


def _validate_probe(probe: entries.Object, field: str) -> entries.Problems:
    problems = _validate_handler(probe, field) + checks.check_counts(probe, field, *_PROBE_COUNTS)
    grace = probe.get('terminationGracePeriodSeconds')
    if grace is not None and grace <= 0:
        problems.append(
            errors.invalid_value(
                f'{field}.terminationGracePeriodSeconds', grace, 'must be greater than 0'
            )
        )

    return problems


def _validate_handler(handler: entries.Object, field: str) -> entries.Problems:
    names = [name for name in _HANDLERS if name in handler]
    if not names:
        return [errors.required(field, 'must specify a handler type')]

    [first, *others] = names
    action = handler[first]
    path = f'{field}.{first}'
    problems = []

    if first == 'exec' and not action.get('command'):
        problems.append(errors.required(f'{path}.command'))
    elif first != 'exec' and first != 'sleep':
        problems += checks.check_port(action.get('port') or 0, f'{path}.port')

    if first == 'httpGet':
        problems += checks.check_enum(action.get('scheme'), f'{path}.scheme', ('HTTP', 'HTTPS'))
    return problems + [
        errors.forbidden_field(f'{field}.{name}', 'may not specify more than 1 handler type')
        for name in others
    ]
