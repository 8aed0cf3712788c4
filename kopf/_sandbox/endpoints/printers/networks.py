"""
Tables of networks: services, their endpoints, ingresses, and addresses.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import cells


def print_service(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    addresses = cells.texts(obj, 'spec', 'clusterIPs')
    ports = ','.join(_show_port(port) for port in cells.items(obj, 'spec', 'ports'))
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'type'),
        addresses[0] if addresses else cells.NONE,
        _show_external_address(obj),
        ports or cells.NONE,
        cells.age(obj, now),
        cells.labels(obj, 'spec', 'selector'),
    ]


def _show_port(port: cells.Object) -> str:
    node_port = cells.number(port, 'nodePort')
    shown = f'{cells.number(port, "port")}' + (f':{node_port}' if node_port > 0 else '')
    return f'{shown}/{cells.text(port, "protocol")}'


def _show_external_address(obj: cells.Object) -> str:
    addresses = ','.join(cells.texts(obj, 'spec', 'externalIPs'))
    match cells.text(obj, 'spec', 'type'):
        case 'ClusterIP' | 'NodePort':
            return addresses or cells.NONE
        case 'LoadBalancer':
            return ','.join(filter(None, [_show_balancer(obj), addresses])) or '<pending>'
        case 'ExternalName':
            return cells.text(obj, 'spec', 'externalName')
        case _:
            return cells.UNKNOWN


def _show_balancer(obj: cells.Object) -> str:
    points = cells.items(obj, 'status', 'loadBalancer', 'ingress')
    addresses = {cells.text(point, 'ip') or cells.text(point, 'hostname') for point in points}
    return ','.join(sorted(addresses - {''}))


def print_endpoints(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    subsets = cells.items(obj, 'subsets')
    shown = [address for subset in subsets for address in _list_subset(subset)]
    return [cells.name(obj), cells.shorten(shown) if subsets else cells.NONE, cells.age(obj, now)]


def _list_subset(subset: cells.Object) -> list[str]:
    addresses = [cells.text(address, 'ip') for address in cells.items(subset, 'addresses')]
    ports = cells.items(subset, 'ports')
    return (
        [_join_port(address, cells.number(port, 'port')) for port in ports for address in addresses]
        if ports
        else addresses
    )


def _join_port(address: str, port: int) -> str:
    return f'[{address}]:{port}' if ':' in address else f'{address}:{port}'


def print_endpoint_slice(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    ports = [_show_slice_port(port) for port in cells.items(obj, 'ports')]
    endpoints = cells.items(obj, 'endpoints')
    addresses = [
        address for endpoint in endpoints for address in cells.texts(endpoint, 'addresses')
    ]

    return [
        cells.name(obj),
        cells.text(obj, 'addressType'),
        cells.shorten(ports) or cells.UNSET,
        cells.shorten(addresses) or cells.UNSET,
        cells.age(obj, now),
    ]


def _show_slice_port(port: cells.Object) -> str:
    if port.get('port') is not None:
        return str(cells.number(port, 'port'))
    return cells.text(port, 'name') if port.get('name') is not None else '*'


def print_ingress(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'ingressClassName', default=cells.NONE),
        _show_hosts(cells.items(obj, 'spec', 'rules')),
        _show_balancer(obj),
        '80, 443' if cells.items(obj, 'spec', 'tls') else '80',
        cells.age(obj, now),
    ]


def _show_hosts(rules: list[cells.Object], limit: int = 3) -> str:
    """Format the first few hosts. As in the API, rules without hosts are counted as more."""
    hosts: list[str] = []
    for rule in rules:
        if len(hosts) == limit:
            return f'{",".join(hosts)} + {len(rules) - limit} more...'
        if host := cells.text(rule, 'host'):
            hosts.append(host)

    return ','.join(hosts) or '*'


def print_ingress_class(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    parameters = cells.dig(obj, 'spec', 'parameters')
    group = cells.text(parameters, 'apiGroup')
    kind = cells.text(parameters, 'kind') + (f'.{group}' if group else '')

    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'controller'),
        cells.NONE if parameters is None else f'{kind}/{cells.text(parameters, "name")}',
        cells.age(obj, now),
    ]


def print_network_policy(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.selector(obj, 'spec', 'podSelector'), cells.age(obj, now)]


def print_service_cidr(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), ','.join(cells.texts(obj, 'spec', 'cidrs')), cells.age(obj, now)]


def print_ip_address(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    """Print the address with its age. As in the API, there is no column for the age."""
    return [cells.name(obj), _show_parent(cells.dig(obj, 'spec', 'parentRef')), cells.age(obj, now)]


def _show_parent(parent: Any) -> str:
    if parent is None:
        return cells.NONE
    group = cells.text(parent, 'group')
    resource = cells.text(parent, 'resource') + (f'.{group}' if group else '')
    return '/'.join(
        filter(
            None, [resource.lower(), cells.text(parent, 'namespace'), cells.text(parent, 'name')]
        )
    )


PRINTERS = {
    ('', 'Service'): cells.Printer(
        [
            cells.NAME,
            cells.column('Type', 'How the service is exposed.'),
            cells.column('Cluster-IP', 'The address inside of the cluster.'),
            cells.column('External-IP', 'The addresses outside of the cluster.'),
            cells.column(
                'Port(s)', 'The ports of the service, with the ports of nodes if there are any.'
            ),
            cells.AGE,
            cells.SELECTOR,
        ],
        print_service,
    ),
    ('', 'Endpoints'): cells.Printer(
        [
            cells.NAME,
            cells.column('Endpoints', 'The addresses and ports behind the service.'),
            cells.AGE,
        ],
        print_endpoints,
    ),
    ('discovery.k8s.io', 'EndpointSlice'): cells.Printer(
        [
            cells.NAME,
            cells.column('AddressType', 'Which addresses are in the slice.'),
            cells.column('Ports', 'The ports of every endpoint.'),
            cells.column('Endpoints', 'The addresses of the endpoints.'),
            cells.AGE,
        ],
        print_endpoint_slice,
    ),
    ('networking.k8s.io', 'Ingress'): cells.Printer(
        [
            cells.NAME,
            cells.column('Class', 'The class of the ingress.'),
            cells.column('Hosts', 'The hosts that are routed.'),
            cells.column('Address', 'The addresses of the load balancer.'),
            cells.column('Ports', 'The ports that are open.'),
            cells.AGE,
        ],
        print_ingress,
    ),
    ('networking.k8s.io', 'IngressClass'): cells.Printer(
        [
            cells.NAME,
            cells.column('Controller', 'The controller that serves the class.'),
            cells.column('Parameters', 'An object with parameters for the controller.'),
            cells.AGE,
        ],
        print_ingress_class,
    ),
    ('networking.k8s.io', 'NetworkPolicy'): cells.Printer(
        [
            cells.NAME,
            cells.column('Pod-Selector', 'The labels of the pods to which the policy applies.'),
            cells.AGE,
        ],
        print_network_policy,
    ),
    ('networking.k8s.io', 'ServiceCIDR'): cells.Printer(
        [
            cells.NAME,
            cells.column('CIDRs', 'The ranges of addresses for services.'),
            cells.AGE,
        ],
        print_service_cidr,
    ),
    ('networking.k8s.io', 'IPAddress'): cells.Printer(
        [
            cells.NAME,
            cells.column('ParentRef', 'The object to which the address is given.'),
        ],
        print_ip_address,
    ),
}
