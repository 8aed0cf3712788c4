"""
Endpoint lists: the pods behind a service, as in its endpoints and in its endpoint slices. All pure.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]
Ports = tuple[tuple[str, int, str, str], ...]  # names, numbers, protocols, application protocols

TRIGGER = 'endpoints.kubernetes.io/last-change-trigger-time'
ENDPOINTS_MANAGER = {'endpoints.kubernetes.io/managed-by': 'endpoint-controller'}
SLICES_MANAGER = 'endpointslice.kubernetes.io/managed-by'
SLICES_CONTROLLER = 'endpointslice-controller.k8s.io'
SERVICE_NAME = 'kubernetes.io/service-name'
HEADLESS = 'service.kubernetes.io/headless'
SLICE_LIMIT = 100


@dataclasses.dataclass(frozen=True)
class Backend:
    """One pod behind a service."""

    pod: Object
    ports: Ports
    is_ready: bool
    hostname: str

    @property
    def address(self) -> str:
        return str(self.pod['status']['podIP'])

    @property
    def reference(self) -> Body:
        meta = self.pod['metadata']
        names = ('namespace', 'name', 'uid')
        return {'kind': 'Pod', **{name: meta[name] for name in names}}


def is_headless(service: Object) -> bool:
    return bool(service['spec'].get('clusterIP') == 'None')


def list_backends(service: Object, pods: Sequence[Object]) -> list[Backend]:
    """List the running pods that a service selects, in the order of their addresses."""
    selector = service['spec'].get('selector') or {}
    is_tolerant = bool(service['spec'].get('publishNotReadyAddresses'))
    found = [
        Backend(
            pod=pod,
            ports=_resolve_ports(service, pod),
            is_ready=is_tolerant or pod_states.is_ready(pod),
            hostname=_get_hostname(service, pod),
        )
        for pod in pods
        if selector.items() <= (pod['metadata'].get('labels') or {}).items() and _is_running(pod)
    ]

    return sorted(found, key=lambda backend: [int(part) for part in backend.address.split('.')])


def _is_running(pod: Object) -> bool:
    has_address = bool((pod.get('status') or {}).get('podIP'))
    return has_address and pod_states.get_phase(pod) not in pod_states.ENDED


def _get_hostname(service: Object, pod: Object) -> str:
    spec = pod['spec']
    is_named = spec.get('subdomain') == service['metadata']['name']
    return (spec.get('hostname') or '') if is_named else ''


def _resolve_ports(service: Object, pod: Object) -> Ports:
    ports = []
    for port in service['spec'].get('ports') or ():
        target = port.get('targetPort') or port['port']
        protocol = port.get('protocol') or 'TCP'
        number = _find_port(pod, target, protocol) if isinstance(target, str) else target
        if number:
            ports.append((port.get('name') or '', number, protocol, port.get('appProtocol') or ''))

    return tuple(ports)


def _find_port(pod: Object, name: str, protocol: str) -> int:
    for container in pod['spec']['containers']:
        for port in container.get('ports') or ():
            if (port.get('name'), port.get('protocol') or 'TCP') == (name, protocol):
                return int(port['containerPort'])
    return 0


def build_endpoints(service: Object, backends: Sequence[Backend], now: str) -> Body:
    """Build the endpoints of a service."""
    meta = service['metadata']
    present = [item for item in backends if not pod_states.is_leaving(item.pod)]
    labels = {**(meta.get('labels') or {}), **ENDPOINTS_MANAGER}
    made: Body = {
        'apiVersion': 'v1',
        'kind': 'Endpoints',
        'metadata': {
            'name': meta['name'],
            'namespace': meta['namespace'],
            'labels': {**labels, HEADLESS: ''} if is_headless(service) else labels,
            'annotations': {TRIGGER: now},
        },
    }
    subsets = [
        _build_subset(ports, [item for item in present if item.ports == ports])
        for ports in dict.fromkeys(item.ports for item in present)
        if ports or is_headless(service)
    ]

    return {**made, **({'subsets': subsets} if subsets else {})}


def _build_subset(ports: Ports, backends: Sequence[Backend]) -> Body:
    groups = {
        'addresses': [_build_address(item) for item in backends if item.is_ready],
        'notReadyAddresses': [_build_address(item) for item in backends if not item.is_ready],
        'ports': _build_ports(ports),
    }
    return {name: items for name, items in groups.items() if items}


def _build_address(backend: Backend) -> Body:
    node = backend.pod['spec'].get('nodeName')
    return {
        'ip': backend.address,
        **({'hostname': backend.hostname} if backend.hostname else {}),
        **({'nodeName': node} if node else {}),
        'targetRef': backend.reference,
    }


def _build_ports(ports: Ports) -> list[Body]:
    return [
        {
            **({'name': name} if name else {}),
            'port': number,
            'protocol': protocol,
            **({'appProtocol': application} if application else {}),
        }
        for name, number, protocol, application in ports
    ]


def build_slices(service: Object, backends: Sequence[Backend], now: str) -> list[Body]:
    """Build the slices of a service: at least one, even if it is empty."""
    chunks: list[tuple[Ports, Sequence[Backend]]] = []
    for ports in dict.fromkeys(item.ports for item in backends):
        group = [item for item in backends if item.ports == ports]
        for first in range(0, len(group), SLICE_LIMIT):
            chunks.append((ports, group[first : first + SLICE_LIMIT]))
    return [_build_slice(service, *chunk, now) for chunk in chunks or [((), ())]]


def _build_slice(service: Object, ports: Ports, backends: Sequence[Backend], now: str) -> Body:
    meta = service['metadata']
    labels = {
        **(meta.get('labels') or {}),
        SLICES_MANAGER: SLICES_CONTROLLER,
        SERVICE_NAME: meta['name'],
        **({HEADLESS: ''} if is_headless(service) else {}),
    }
    listed = [{**port, 'name': port.get('name') or ''} for port in _build_ports(ports)]

    return {
        'apiVersion': 'discovery.k8s.io/v1',
        'kind': 'EndpointSlice',
        'metadata': {
            'generateName': f'{meta["name"]}-',
            'namespace': meta['namespace'],
            'labels': labels,
            'annotations': {TRIGGER: now},
            'ownerReferences': [dependents.build_reference(service)],
        },
        'addressType': 'IPv4',
        'endpoints': [_build_endpoint(item) for item in backends],
        'ports': listed,
    }


def _build_endpoint(backend: Backend) -> Body:
    is_leaving = pod_states.is_leaving(backend.pod)
    node = backend.pod['spec'].get('nodeName')
    return {
        'addresses': [backend.address],
        'conditions': {
            'ready': backend.is_ready and not is_leaving,
            'serving': backend.is_ready,
            'terminating': is_leaving,
        },
        **({'hostname': backend.hostname} if backend.hostname else {}),
        **({'nodeName': node} if node else {}),
        'targetRef': backend.reference,
    }
