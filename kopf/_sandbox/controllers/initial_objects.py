"""
Initial objects: how clients in the cluster find the API server, and the networks of services.

The API server makes them for itself when it starts, and follows its own address with them. They
are built here in their stored form, owners of fields included: neither defaulted nor validated.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.controllers import internal_client
from kopf._sandbox.meta import kinds
from kopf._sandbox.registry import allocations

SERVICES: Final = kinds.Home('', 'services')
ENDPOINTS: Final = kinds.Home('', 'endpoints')
SLICES: Final = kinds.Home('discovery.k8s.io', 'endpointslices')
NETWORKS: Final = kinds.Home('networking.k8s.io', 'servicecidrs')
ADDRESSES: Final = kinds.Home('networking.k8s.io', 'ipaddresses')

PRIORITIES: Final = kinds.Home('scheduling.k8s.io', 'priorityclasses')

COMPONENTS: Final = kinds.Home('', 'componentstatuses')

NAME: Final = 'kubernetes'
NAMESPACE: Final = 'default'
PORT: Final = 443
PORT_NAME: Final = 'https'
SERVICE_ADDRESS: Final = str(allocations.ADDRESSES[1])
LOOPBACK: Final = '127.0.0.1'

_COMPONENTS: Final = ('controller-manager', 'scheduler', 'etcd-0')
_PREEMPTION: Final = 'PreemptLowerPriority'
_PRIORITIES: Final = (
    (
        'system-node-critical',
        2000001000,
        'Used for system critical pods that must not be moved from their current node.',
    ),
    (
        'system-cluster-critical',
        2000000000,
        'Used for system critical pods that must run in the cluster, but can be moved to another '
        'node if necessary.',
    ),
)

Fields = Mapping[str, Any]
Seeds = Iterator[tuple[kinds.Home, dict[str, Any]]]


def build_objects(host: str, port: int, now: str) -> Seeds:
    """Build all objects about an API server that listens there, in the order of their creation."""
    address = choose_address(host)
    yield NETWORKS, _build_network(now)
    yield ADDRESSES, _build_address(now)
    yield SERVICES, _build_service(port, now)
    yield ENDPOINTS, _build_endpoints(address, port, now)
    yield SLICES, _build_slice(address, port, now)


def build_priorities(now: str) -> Seeds:
    """Build the priority classes that every cluster has, in the order of their creation."""
    for name, value, description in _PRIORITIES:
        content = {'value': value, 'description': description, 'preemptionPolicy': _PREEMPTION}
        owned: Fields = {f'f:{key}': {} for key in content}
        yield (
            PRIORITIES,
            _build(
                ('scheduling.k8s.io/v1', 'PriorityClass'),
                {'name': name, 'generation': 1},
                [_own(internal_client.SERVER, now, owned)],
                **content,
            ),
        )


def build_components() -> Seeds:
    """Build the statuses of the components of the cluster, which are always healthy."""
    for name in _COMPONENTS:
        condition = {'type': 'Healthy', 'status': 'True', 'message': 'ok'}
        yield (
            COMPONENTS,
            {
                'kind': 'ComponentStatus',
                'apiVersion': 'v1',
                'metadata': {'name': name},
                'conditions': [condition],
            },
        )


def choose_address(host: str) -> str:
    """Return the address at which to reach a server that listens on a host, by name or address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return LOOPBACK

    if address.is_unspecified:
        return LOOPBACK if address.version == 4 else '::1'
    return str(address)


def _build_network(now: str) -> dict[str, Any]:
    condition = {
        'type': 'Ready',
        'status': 'True',
        'lastTransitionTime': now,
        'reason': '',
        'message': 'Kubernetes Service CIDR is ready',
    }
    key = 'k:{"type":"Ready"}'
    begun: Fields = {'f:conditions': {key: {'.': {}, 'f:status': {}, 'f:type': {}}}}
    ready = {'f:conditions': {key: _own_all(condition)}}
    finalizers = ['networking.k8s.io/service-cidr-finalizer']
    managed = [
        _own_status('kubernetes-service-cidr-controller', now, begun),
        _own_status('service-cidr-controller', now, ready),
        _own(internal_client.SERVER, now, {'f:spec': {'f:cidrs': {}}}),
        _own(
            internal_client.CONTROLLERS,
            now,
            {'f:metadata': {'f:finalizers': {'.': {}, f'v:"{finalizers[0]}"': {}}}},
        ),
    ]

    return _build(
        ('networking.k8s.io/v1', 'ServiceCIDR'),
        {'name': NAME, 'finalizers': finalizers},
        managed,
        spec={'cidrs': [str(allocations.ADDRESSES)]},
        status={'conditions': [condition]},
    )


def _build_address(now: str) -> dict[str, Any]:
    labels = {
        'ipaddress.kubernetes.io/ip-family': 'IPv4',
        'ipaddress.kubernetes.io/managed-by': 'ipallocator.k8s.io',
    }
    parent = {'resource': 'services', 'namespace': NAMESPACE, 'name': NAME}
    owned = {
        'f:metadata': {'f:labels': _own_all(labels)},
        'f:spec': {'f:parentRef': _own_all(parent)},
    }

    return _build(
        ('networking.k8s.io/v1', 'IPAddress'),
        {'name': SERVICE_ADDRESS, 'labels': labels},
        [_own(internal_client.SERVER, now, owned)],
        spec={'parentRef': parent},
    )


def _build_service(port: int, now: str) -> dict[str, Any]:
    labels = {'component': 'apiserver', 'provider': 'kubernetes'}
    item = {'name': PORT_NAME, 'protocol': 'TCP', 'port': PORT, 'targetPort': port}
    spec = {
        'ports': [item],
        'clusterIP': SERVICE_ADDRESS,
        'clusterIPs': [SERVICE_ADDRESS],
        'type': 'ClusterIP',
        'sessionAffinity': 'None',
        'ipFamilies': ['IPv4'],
        'ipFamilyPolicy': 'SingleStack',
        'internalTrafficPolicy': 'Cluster',
    }
    owned: dict[str, Any] = {
        f'f:{name}': {} for name in spec if name not in ('ports', 'clusterIPs', 'ipFamilies')
    }
    owned['f:ports'] = {'.': {}, f'k:{{"port":{PORT},"protocol":"TCP"}}': _own_all(item)}

    return _build(
        ('v1', 'Service'),
        {'name': NAME, 'namespace': NAMESPACE, 'labels': labels},
        [
            _own(
                internal_client.SERVER,
                now,
                {'f:metadata': {'f:labels': _own_all(labels)}, 'f:spec': owned},
            )
        ],
        spec=spec,
        status={'loadBalancer': {}},
    )


def _build_endpoints(address: str, port: int, now: str) -> dict[str, Any]:
    labels = {'endpointslice.kubernetes.io/skip-mirror': 'true'}
    owned = {'f:metadata': {'f:labels': _own_all(labels)}, 'f:subsets': {}}
    ports = [{'name': PORT_NAME, 'port': port, 'protocol': 'TCP'}]

    return _build(
        ('v1', 'Endpoints'),
        {'name': NAME, 'namespace': NAMESPACE, 'labels': labels},
        [_own(internal_client.SERVER, now, owned)],
        subsets=[{'addresses': [{'ip': address}], 'ports': ports}],
    )


def _build_slice(address: str, port: int, now: str) -> dict[str, Any]:
    labels = {'kubernetes.io/service-name': NAME}
    names = ('addressType', 'endpoints', 'ports')
    owned = {'f:metadata': {'f:labels': _own_all(labels)}, **{f'f:{name}': {} for name in names}}

    return _build(
        ('discovery.k8s.io/v1', 'EndpointSlice'),
        {'name': NAME, 'namespace': NAMESPACE, 'labels': labels, 'generation': 1},
        [_own(internal_client.SERVER, now, owned)],
        addressType='IPv6' if ':' in address else 'IPv4',
        endpoints=[{'addresses': [address], 'conditions': {'ready': True}}],
        ports=[{'name': PORT_NAME, 'port': port, 'protocol': 'TCP'}],
    )


def _build(
    kind: tuple[str, str],
    metadata: Mapping[str, Any],
    managed: list[dict[str, Any]],
    **content: Any,
) -> dict[str, Any]:
    for entry in managed:
        entry['apiVersion'] = kind[0]
    fields = {**metadata, 'managedFields': managed}
    return {'kind': kind[1], 'apiVersion': kind[0], 'metadata': fields, **content}


def _own(
    manager: str, now: str, fields: Mapping[str, Any], *, operation: str = 'Update'
) -> dict[str, Any]:
    return {
        'manager': manager,
        'operation': operation,
        'apiVersion': '',
        'time': now,
        'fieldsType': 'FieldsV1',
        'fieldsV1': fields,
    }


def _own_status(manager: str, now: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    entry = _own(manager, now, {'f:status': fields}, operation='Apply')
    return {**entry, 'subresource': 'status'}


def _own_all(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {'.': {}, **{f'f:{name}': {} for name in fields}}
