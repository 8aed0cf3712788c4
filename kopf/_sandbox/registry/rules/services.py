"""
Services: their defaults, their addresses and ports, and their validation.
"""

import ipaddress
from collections.abc import Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, metadata, naming
from kopf._sandbox.registry.rules import checks, containers, entries, pod_defaults

_TYPES: Final = ('ClusterIP', 'ExternalName', 'LoadBalancer', 'NodePort')
_EXTERNAL: Final = ('NodePort', 'LoadBalancer')
_HEADLESS: Final = 'None'
_TRAFFIC_POLICIES: Final = ('Cluster', 'Local')
_AFFINITY_SECONDS: Final = 10800
_NETWORK: Final = ipaddress.ip_network('10.96.0.0/12')
_ADDRESS_HINT: Final = 'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)'


def default_service(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    pod_defaults.fill(spec, {'sessionAffinity': 'None', 'type': 'ClusterIP'})
    if spec['sessionAffinity'] == 'None':
        spec.pop('sessionAffinityConfig', None)
    elif checks.dig(spec, 'sessionAffinityConfig', 'clientIP', 'timeoutSeconds') is None:
        spec['sessionAffinityConfig'] = {'clientIP': {'timeoutSeconds': _AFFINITY_SECONDS}}

    for port in spec.get('ports') or ():
        pod_defaults.fill(port, {'protocol': 'TCP'})
        port['targetPort'] = port.get('targetPort') or port.get('port') or 0

    if _is_external(spec):
        pod_defaults.fill(spec, {'externalTrafficPolicy': 'Cluster'})
    if spec['type'] != 'ExternalName':
        pod_defaults.fill(spec, {'internalTrafficPolicy': 'Cluster'})
    if spec['type'] == 'LoadBalancer':
        pod_defaults.fill(spec, {'allocateLoadBalancerNodePorts': True})


def _is_external(spec: entries.Object) -> bool:
    return spec.get('type') in _EXTERNAL or bool(
        spec.get('type') == 'ClusterIP' and spec.get('externalIPs')
    )


def prepare_service(obj: dict[str, Any], site: entries.Site) -> None:
    """Allocate the addresses and ports of a service. Modifies the service."""
    _allocate(obj['spec'], site.allocator)
    obj['status'] = {'loadBalancer': {}}


def prepare_service_update(new: dict[str, Any], old: entries.Object, site: entries.Site) -> None:
    """Keep the needed addresses and ports, allocate the missing ones. Modifies the new object."""
    spec = new['spec']
    known = old.get('spec') or {}
    if spec['type'] == 'ExternalName':
        if known.get('type') != 'ExternalName' and spec.get('clusterIP') == known.get('clusterIP'):
            for name in (
                'clusterIP',
                'clusterIPs',
                'ipFamilies',
                'ipFamilyPolicy',
                'internalTrafficPolicy',
            ):
                spec.pop(name, None)
        _drop_ports(spec, known)
        return

    if not spec.get('clusterIP'):
        spec.update({name: known[name] for name in ('clusterIP', 'clusterIPs') if name in known})
    elif spec.get('clusterIP') != known.get('clusterIP') and spec.get('clusterIPs') == known.get(
        'clusterIPs'
    ):
        spec['clusterIPs'] = [spec['clusterIP']] if spec.get('clusterIP') else []

    pod_defaults.fill(
        spec, {name: known[name] for name in ('ipFamilies', 'ipFamilyPolicy') if name in known}
    )
    _keep_ports(spec, known)
    _allocate(spec, site.allocator)


def _keep_ports(spec: dict[str, Any], known: entries.Object) -> None:
    if spec['type'] not in _EXTERNAL:
        _drop_ports(spec, known)
        return

    taken = {
        (before.get('protocol'), before.get('port')): before['nodePort']
        for before in known.get('ports') or ()
        if before.get('nodePort')
    }
    for port in spec.get('ports') or ():
        if not port.get('nodePort') and (port.get('protocol'), port.get('port')) in taken:
            port['nodePort'] = taken[port.get('protocol'), port.get('port')]


def _drop_ports(spec: dict[str, Any], known: entries.Object) -> None:
    """Remove the unchanged fields that only services of external types have. Modifies the spec."""
    taken = {before.get('nodePort') for before in known.get('ports') or ()}
    for port in spec.get('ports') or ():
        if port.get('nodePort') in taken:
            port.pop('nodePort', None)

    for name in ('externalTrafficPolicy', 'healthCheckNodePort', 'allocateLoadBalancerNodePorts'):
        if spec.get(name) == known.get(name) and not spec.get('externalIPs'):
            spec.pop(name, None)


def _allocate(spec: dict[str, Any], allocator: entries.Allocator) -> None:
    if spec['type'] == 'ExternalName':
        return
    _allocate_addresses(spec, allocator)
    if _wants_node_ports(spec):
        _allocate_node_ports(spec, allocator)
    if spec['type'] == 'LoadBalancer' and spec.get('externalTrafficPolicy') == 'Local':
        pod_defaults.fill(spec, {'healthCheckNodePort': allocator.allocate_port()})


def _allocate_addresses(spec: dict[str, Any], allocator: entries.Allocator) -> None:
    if not spec.get('clusterIP'):
        spec['clusterIP'] = (spec.get('clusterIPs') or [None])[0] or allocator.allocate_address()
    if not spec.get('clusterIPs'):
        spec['clusterIPs'] = [spec['clusterIP']]
    is_dual = spec['clusterIP'] == _HEADLESS and not spec.get('selector')
    pod_defaults.fill(
        spec,
        {
            'ipFamilies': ['IPv4', 'IPv6'] if is_dual else ['IPv4'],
            'ipFamilyPolicy': 'RequireDualStack' if is_dual else 'SingleStack',
        },
    )


def _wants_node_ports(spec: entries.Object) -> bool:
    if spec['type'] == 'LoadBalancer':
        return spec.get('allocateLoadBalancerNodePorts') is not False
    return bool(spec['type'] == 'NodePort')


def _allocate_node_ports(spec: entries.Object, allocator: entries.Allocator) -> None:
    for port in spec.get('ports') or ():
        if not port.get('nodePort'):
            taken = [other['nodePort'] for other in spec['ports'] if _is_twin(other, port)]
            port['nodePort'] = taken[0] if taken else allocator.allocate_port()


def _is_twin(other: entries.Object, port: entries.Object) -> bool:
    """Return whether both are one port with different protocols, and the other one has a node."""
    is_same = other.get('port') == port.get('port')
    return is_same and bool(other.get('nodePort')) and other.get('protocol') != port.get('protocol')


def validate_service(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    ports = spec.get('ports') or ()
    kind = spec.get('type')
    problems = _validate_type(spec)
    problems += _validate_ports(ports, 'spec.ports')
    problems += metadata.validate_labels(spec.get('selector') or {}, 'spec.selector')
    problems += checks.check_enum(
        spec.get('sessionAffinity'), 'spec.sessionAffinity', ('ClientIP', 'None')
    )
    problems += checks.check_enum(kind, 'spec.type', _TYPES)
    problems += _validate_port_use(ports, spec)
    problems += _validate_external_policy(spec)
    problems += checks.check_optional_enum(
        spec.get('internalTrafficPolicy'), 'spec.internalTrafficPolicy', _TRAFFIC_POLICIES
    )
    problems += [
        errors.invalid_value(f'spec.externalIPs[{index}]', address, _ADDRESS_HINT)
        for index, address in enumerate(spec.get('externalIPs') or ())
        if not is_address(address)
    ]

    return problems + _validate_addresses(spec)


def _validate_type(spec: entries.Object) -> entries.Problems:
    """Check the fields that the type of a service requires or forbids."""
    kind = spec.get('type')
    is_headless = spec.get('clusterIP') == _HEADLESS
    needs_ports = kind != 'ExternalName' and not is_headless
    problems = []
    if needs_ports and not spec.get('ports'):
        problems.append(errors.required('spec.ports'))
    if kind in _EXTERNAL and is_headless:
        text = f"may not be set to 'None' for {kind} services"
        problems.append(errors.invalid_value('spec.clusterIPs[0]', 'None', text))

    if kind == 'ExternalName':
        problems += _validate_external_name(spec)
    return problems


def _validate_external_policy(spec: entries.Object) -> entries.Problems:
    field = 'spec.externalTrafficPolicy'
    policy = spec.get('externalTrafficPolicy')
    if _is_external(spec):
        return checks.check_enum(policy, field, _TRAFFIC_POLICIES)
    if policy:
        text = 'may only be set for externally-accessible services'
        return [errors.invalid_value(field, policy, text)]

    return []


def _validate_external_name(spec: entries.Object) -> entries.Problems:
    problems = []
    if spec.get('clusterIPs'):
        problems.append(
            errors.forbidden_field('spec.clusterIPs', 'may not be set for ExternalName services')
        )

    name = (spec.get('externalName') or '').removesuffix('.')
    if not name:
        return [*problems, errors.required('spec.externalName')]
    return problems + checks.check_name(name, 'spec.externalName', naming.check_subdomain)


def _validate_ports(ports: Sequence[entries.Object], field: str) -> entries.Problems:
    problems = []
    names = set()
    for index, port in enumerate(ports):
        path = f'{field}[{index}]'
        name = port.get('name')
        if name:
            problems += checks.check_name(name, f'{path}.name', naming.check_label)
            problems += [errors.duplicate(f'{path}.name', name)] if name in names else []
            names.add(name)
        elif len(ports) > 1:
            problems.append(errors.required(f'{path}.name'))
        number = port.get('port') or 0
        problems += [
            errors.invalid_value(f'{path}.port', number, text) for text in naming.check_port(number)
        ]
        problems += checks.check_enum(
            port.get('protocol'), f'{path}.protocol', containers.PROTOCOLS
        )
        problems += checks.check_port(port.get('targetPort'), f'{path}.targetPort')
        problems += checks.check_name(
            port.get('appProtocol'), f'{path}.appProtocol', naming.check_key
        )

    return problems


def _validate_port_use(ports: Sequence[entries.Object], spec: entries.Object) -> entries.Problems:
    problems = []
    taken = set()
    used = set()

    for index, port in enumerate(ports):
        node = port.get('nodePort')
        protocol = port.get('protocol')
        if node and spec.get('type') not in _EXTERNAL:
            problems.append(
                errors.forbidden_field(
                    f'spec.ports[{index}].nodePort',
                    f"may not be used when `type` is '{spec.get('type')}'",
                )
            )
        if node and (protocol, node) in taken:
            problems.append(errors.duplicate(f'spec.ports[{index}].nodePort', node))
        taken.add((protocol, node))
        if (protocol, port.get('port')) in used:
            shown = {
                'Name': '',
                'Protocol': protocol,
                'AppProtocol': None,
                'Port': port.get('port'),
                'TargetPort': 0,
                'NodePort': 0,
            }
            problems.append(checks.duplicate_struct(f'spec.ports[{index}]', shown))
        used.add((protocol, port.get('port')))

    return problems


def _validate_addresses(spec: entries.Object) -> entries.Problems:
    if spec.get('type') == 'ExternalName':
        return []

    address = spec.get('clusterIP') or ''
    addresses = spec.get('clusterIPs') or []
    problems = []
    is_mismatch = bool(addresses) and addresses[0] != address

    if address and is_mismatch:
        problems.append(
            errors.invalid_value('spec.clusterIPs', addresses, 'first value must match `clusterIP`')
        )

    for index in range(len(addresses)):
        problems += _validate_address(addresses, index)
    if address != _HEADLESS:
        problems += _validate_families(spec.get('ipFamilies') or [])
    return problems


def _validate_address(addresses: Sequence[str], index: int) -> entries.Problems:
    address = addresses[index]
    if address == _HEADLESS:
        return []
    if not is_address(address):
        return [errors.invalid_value(f'spec.clusterIPs[{index}]', address, _ADDRESS_HINT)]

    if ipaddress.ip_address(address) not in _NETWORK:
        text = (
            f'failed to allocate IP {address}: the provided network does not match the '
            f'current range'
        )
        return [errors.invalid_value('spec.clusterIPs', addresses, text)]

    return []


def _validate_families(families: Sequence[str]) -> entries.Problems:
    if 'IPv6' not in families:
        return []
    field = f'spec.ipFamilies[{families.index("IPv6")}]'
    return [errors.invalid_value(field, 'IPv6', 'not configured on this cluster')]


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def validate_service_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    spec = new.get('spec') or {}
    known = old.get('spec') or {}
    if 'ExternalName' in (spec.get('type'), known.get('type')):
        return []

    before = known.get('clusterIPs') or []
    after = spec.get('clusterIPs') or []
    if before and (not after or after[0] != before[0]):
        text = 'may not change once set' if after else 'primary clusterIP can not be unset'
        return [errors.invalid_value('spec.clusterIPs[0]', after, text)]

    return []


RULES: Final = {
    ('', 'Service'): entries.Rules(
        name_rule=naming.check_old_label,
        changes_first=True,
        repeats_metadata=False,
        defaults=default_service,
        prepare_create=prepare_service,
        prepare_update=prepare_service_update,
        validate=validate_service,
        validate_update=validate_service_update,
        allows_create_on_update=True,
    ),
}
