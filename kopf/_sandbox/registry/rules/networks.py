"""
Networks: ingresses, network policies, endpoints.
"""

import ipaddress
import re
from collections.abc import Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, naming
from kopf._sandbox.registry.rules import checks, containers, entries, pod_defaults, services

GROUP: Final = 'networking.k8s.io'
_PATH_TYPES: Final = ('Exact', 'ImplementationSpecific', 'Prefix')
_BAD_SEQUENCES: Final = ('//', '/./', '/../', '%2f', '%2F')
_BAD_ENDINGS: Final = ('/..', '/.')
_ADDRESS_TYPES: Final = ('FQDN', 'IPv4', 'IPv6')
_ENDPOINTS_LIMIT: Final = 1000


def default_ingress_class(obj: dict[str, Any]) -> None:
    parameters = checks.dig(obj, 'spec', 'parameters')
    if parameters is not None and parameters.get('scope') is None:
        parameters['scope'] = 'Cluster'


def default_policy(obj: dict[str, Any]) -> None:
    spec = obj.setdefault('spec', {})
    for rule in (*(spec.get('ingress') or ()), *(spec.get('egress') or ())):
        for port in rule.get('ports') or ():
            pod_defaults.fill(port, {'protocol': 'TCP'})
    if not spec.get('policyTypes'):
        spec['policyTypes'] = ['Ingress', 'Egress'] if spec.get('egress') else ['Ingress']


def default_endpoints(obj: dict[str, Any]) -> None:
    for subset in obj.get('subsets') or ():
        for port in subset.get('ports') or ():
            pod_defaults.fill(port, {'protocol': 'TCP'})


def default_slice(obj: dict[str, Any]) -> None:
    for port in obj.get('ports') or ():
        pod_defaults.fill(port, {'name': '', 'protocol': 'TCP'})


def validate_ingress(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    rules = spec.get('rules') or ()
    backend = spec.get('defaultBackend')
    problems = []

    if not rules and backend is None:
        problems.append(
            errors.invalid_value(
                'spec', None, 'either `defaultBackend` or `rules` must be specified'
            )
        )

    if backend is not None:
        problems += _validate_backend(backend, 'spec.defaultBackend')
    for index, rule in enumerate(rules):
        problems += _validate_rule(rule, f'spec.rules[{index}]')
    for index, tls in enumerate(spec.get('tls') or ()):
        field = f'spec.tls[{index}]'
        for number, host in enumerate(tls.get('hosts') or ()):
            problems += _validate_host(host, f'{field}.hosts[{number}]')
        problems += checks.check_name(
            tls.get('secretName'), f'{field}.secretName', naming.check_subdomain
        )

    return problems + checks.check_name(
        spec.get('ingressClassName'), 'spec.ingressClassName', naming.check_subdomain
    )


def _validate_host(host: str, field: str) -> entries.Problems:
    return checks.check_name(
        host, field, naming.check_wildcard if '*' in host else naming.check_subdomain
    )


def _validate_rule(rule: entries.Object, field: str) -> entries.Problems:
    host = rule.get('host') or ''
    http = rule.get('http')
    problems = []

    if services.is_address(host):
        problems.append(
            errors.invalid_value(f'{field}.host', host, 'must be a DNS name, not an IP address')
        )

    problems += _validate_host(host, f'{field}.host')
    if http is not None and not http.get('paths'):
        problems.append(errors.required(f'{field}.http.paths'))
    for index, path in enumerate((http or {}).get('paths') or ()):
        problems += _validate_path(path, f'{field}.http.paths[{index}]')
    return problems


def _validate_path(path: entries.Object, field: str) -> entries.Problems:
    kind = path.get('pathType')
    text = path.get('path') or ''
    if kind is None:
        return [errors.required(f'{field}.pathType', 'pathType must be specified')]

    problems = checks.check_optional_enum(kind, f'{field}.pathType', _PATH_TYPES)
    is_strict = kind in ('Exact', 'Prefix')
    if not problems and not text.startswith('/') and (text or is_strict):
        problems.append(errors.invalid_value(f'{field}.path', text, 'must be an absolute path'))
    if is_strict:
        problems += [
            errors.invalid_value(f'{field}.path', text, f"must not contain '{part}'")
            for part in _BAD_SEQUENCES
            if part in text
        ]
        problems += [
            errors.invalid_value(f'{field}.path', text, f"cannot end with '{part}'")
            for part in _BAD_ENDINGS
            if text.endswith(part)
        ]

    return problems + _validate_backend(path.get('backend') or {}, f'{field}.backend')


def _validate_backend(backend: entries.Object, field: str) -> entries.Problems:
    resource = backend.get('resource')
    service = backend.get('service')
    if resource is not None and service is not None:
        return [errors.invalid_value(field, '', 'cannot set both resource and service backends')]
    if resource is not None:
        return _validate_reference(resource, f'{field}.resource')
    if service is None:
        return [errors.invalid_value(field, '', 'resource or service backend is required')]

    problems = checks.check_required_name(
        service.get('name'), f'{field}.service.name', naming.check_old_label
    )
    port = service.get('port') or {}
    if port.get('name') and port.get('number'):
        problems.append(errors.invalid_value(field, '', 'cannot set both port name & port number'))
    elif port.get('name'):
        problems += checks.check_port(port['name'], f'{field}.service.port.name')
    elif port.get('number'):
        problems += checks.check_port(port['number'], f'{field}.service.port.number')
    else:
        problems.append(errors.required(field, 'port name or number is required'))

    return problems


def _validate_reference(ref: entries.Object, field: str) -> entries.Problems:
    problems = checks.check_name(ref.get('apiGroup'), f'{field}.apiGroup', naming.check_subdomain)
    for name in ('kind', 'name'):
        problems += checks.check_required_name(
            ref.get(name), f'{field}.{name}', naming.check_path_segment
        )
    return problems


def validate_ingress_class(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    controller = spec.get('controller') or ''
    field = 'spec.controller'
    problems = [errors.too_long(field, 250)] if len(controller) > 250 else []
    host, _, path = controller.partition('/')

    if not controller:
        problems.append(errors.required(field))
    elif not host or not path:
        problems.append(
            errors.invalid_value(
                field, controller, 'must be a domain-prefixed path (such as "acme.io/foo")'
            )
        )
    else:
        problems += checks.check_name(host, field, naming.check_subdomain)

    parameters = spec.get('parameters')
    return problems + (
        _validate_reference(parameters, 'spec.parameters') if parameters is not None else []
    )


def validate_ingress_class_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    return checks.check_immutable(
        checks.dig(new, 'spec', 'controller'),
        checks.dig(old, 'spec', 'controller'),
        'spec.controller',
    )


def validate_policy(obj: entries.Object) -> entries.Problems:
    spec = obj.get('spec') or {}
    problems = checks.check_selector(spec.get('podSelector'), 'spec.podSelector')
    for direction, side in (('ingress', 'from'), ('egress', 'to')):
        for index, rule in enumerate(spec.get(direction) or ()):
            field = f'spec.{direction}[{index}]'
            for number, port in enumerate(rule.get('ports') or ()):
                problems += _validate_policy_port(port, f'{field}.ports[{number}]')
            for number, peer in enumerate(rule.get(side) or ()):
                problems += _validate_peer(peer, f'{field}.{side}[{number}]')

    return problems + [
        errors.not_supported(f'spec.policyTypes[{index}]', name, ('Ingress', 'Egress'))
        for index, name in enumerate(spec.get('policyTypes') or ())
        if name not in ('Ingress', 'Egress')
    ]


def validate_policy_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    """Validate the new policy again, as the API does; no changes are forbidden."""
    return validate_policy(new)


def _validate_policy_port(port: entries.Object, field: str) -> entries.Problems:
    problems = checks.check_optional_enum(
        port.get('protocol'), f'{field}.protocol', ('TCP', 'UDP', 'SCTP')
    )
    start = port.get('port')
    end = port.get('endPort')
    if start is not None:
        problems += checks.check_port(start, f'{field}.port')
    if end is None:
        return problems

    if not isinstance(start, int):
        what = 'not specified' if start is None else 'non-numeric'
        problems.append(
            errors.invalid_value(
                f'{field}.endPort', end, f'may not be specified when `port` is {what}'
            )
        )
    elif end < start:
        problems.append(
            errors.invalid_value(
                f'{field}.endPort', start, 'must be greater than or equal to `port`'
            )
        )

    return problems


def _validate_peer(peer: entries.Object, field: str) -> entries.Problems:
    if not peer:
        return [errors.required(field, 'must specify a peer')]

    problems = []
    for name in ('podSelector', 'namespaceSelector'):
        problems += checks.check_selector(peer.get(name), f'{field}.{name}')
    if 'ipBlock' in peer:
        problems += _validate_block(peer['ipBlock'], f'{field}.ipBlock')
        if len(peer) > 1:
            problems.append(
                errors.forbidden_field(field, 'may not specify both ipBlock and another peer')
            )

    return problems


def _validate_block(block: entries.Object, field: str) -> entries.Problems:
    if not block.get('cidr'):
        return [errors.required(f'{field}.cidr')]
    blocks = [(f'{field}.cidr', block['cidr'])]
    blocks += [
        (f'{field}.except[{index}]', text) for index, text in enumerate(block.get('except') or ())
    ]
    hint = 'must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)'

    return [errors.invalid_value(path, text, hint) for path, text in blocks if not _is_block(text)]


def _is_block(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return '/' in text


def validate_slice(obj: entries.Object) -> entries.Problems:
    kind = obj.get('addressType')
    problems = checks.check_enum(kind, 'addressType', _ADDRESS_TYPES)
    names = set()

    for index, port in enumerate(obj.get('ports') or ()):
        name = port.get('name') or ''
        field = f'ports[{index}]'
        problems += checks.check_name(name, f'{field}.name', naming.check_label)
        problems += [errors.duplicate(f'{field}.name', name)] if name in names else []
        names.add(name)
        problems += checks.check_enum(
            port.get('protocol'), f'{field}.protocol', containers.PROTOCOLS
        )

    return problems + _validate_endpoints(obj.get('endpoints') or (), kind or '')


def _validate_endpoints(endpoints: Sequence[entries.Object], kind: str) -> entries.Problems:
    if len(endpoints) > _ENDPOINTS_LIMIT:
        return [errors.too_many('endpoints', len(endpoints), _ENDPOINTS_LIMIT)]

    problems = []
    for index, endpoint in enumerate(endpoints):
        field = f'endpoints[{index}].addresses'
        if not endpoint.get('addresses'):
            problems.append(errors.required(field, 'must contain at least 1 address'))
        for number, address in enumerate(endpoint.get('addresses') or ()):
            if kind in ('IPv4', 'IPv6') and not services.is_address(address):
                problems.append(
                    errors.invalid_value(
                        f'{field}[{number}]',
                        address,
                        'must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
                    )
                )
            elif kind == 'IPv4' and ':' in address:
                problems.append(errors.invalid_value(field, address, 'must be an IPv4 address'))
            elif kind == 'IPv6' and ':' not in address:
                problems.append(errors.invalid_value(field, address, 'must be an IPv6 address'))

    return problems


def validate_slice_update(new: entries.Object, old: entries.Object) -> entries.Problems:
    return checks.check_immutable(new.get('addressType'), old.get('addressType'), 'addressType')


def is_slice_changed(new: entries.Object, old: entries.Object) -> bool:
    """Return whether the generation changes: by the content or by the labels."""
    return entries.bumped_by_content(new, old) or checks.dig(
        new, 'metadata', 'labels'
    ) != checks.dig(old, 'metadata', 'labels')


def check_canonical_address(text: str) -> list[str]:
    """Return what is wrong with an address as the name of an object."""
    if re.search(r'(^|[.:])0+[0-9]', text) and re.fullmatch(r'[0-9.]+', text):
        return ['must not have leading 0s']

    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ['must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)']

    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return ['must not be an IPv4-mapped IPv6 address']
    return [] if str(address) == text else [f'must be in canonical form ("{address}")']


def validate_address(obj: entries.Object) -> entries.Problems:
    parent = (obj.get('spec') or {}).get('parentRef')
    if parent is None:
        return [errors.required('spec.parentRef')]
    return [
        errors.required(f'spec.parentRef.{name}')
        for name in ('resource', 'name')
        if not parent.get(name)
    ]


RULES: Final = {
    (GROUP, 'Ingress'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        initial_status={'loadBalancer': {}},
        validate=validate_ingress,
    ),
    (GROUP, 'IngressClass'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        changes_first=True,
        defaults=default_ingress_class,
        validate=validate_ingress_class,
        validate_update=validate_ingress_class_update,
    ),
    (GROUP, 'NetworkPolicy'): entries.Rules(
        has_generation=True,
        is_bumped=entries.bumped_by_spec,
        defaults=default_policy,
        validate=validate_policy,
        validate_update=validate_policy_update,
    ),
    (GROUP, 'ServiceCIDR'): entries.Rules(initial_status={}),
    (GROUP, 'IPAddress'): entries.Rules(
        name_rule=check_canonical_address, validate=validate_address
    ),
    ('', 'Endpoints'): entries.Rules(defaults=default_endpoints, allows_create_on_update=True),
    ('discovery.k8s.io', 'EndpointSlice'): entries.Rules(
        has_generation=True,
        is_bumped=is_slice_changed,
        repeats_update=False,
        defaults=default_slice,
        validate=validate_slice,
        validate_update=validate_slice_update,
    ),
}
