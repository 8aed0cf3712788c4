"""
Nodes: the machines that do not exist, and their taints.
"""

from collections.abc import Iterable
from typing import Any

from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import interfaces, lookups, pod_states

Body = dict[str, Any]

_CAPACITY = {
    'cpu': '16',
    'memory': '64Gi',
    'pods': '110',
    'ephemeral-storage': '100Gi',
}
_CONDITIONS = (
    (
        'MemoryPressure',
        'False',
        'KubeletHasSufficientMemory',
        'kubelet has sufficient memory available',
    ),
    ('DiskPressure', 'False', 'KubeletHasNoDiskPressure', 'kubelet has no disk pressure'),
    ('PIDPressure', 'False', 'KubeletHasSufficientPID', 'kubelet has sufficient PID available'),
    ('Ready', 'True', 'KubeletReady', 'kubelet is posting ready status'),
)


def build_node(number: int, version: str, now: str) -> Body:
    """Build a node that is ready."""
    name = f'sandbox-{number}'
    conditions = [
        {
            'type': type,
            'status': status,
            'lastHeartbeatTime': now,
            'lastTransitionTime': now,
            'reason': reason,
            'message': message,
        }
        for type, status, reason, message in _CONDITIONS
    ]
    return {
        'apiVersion': 'v1',
        'kind': 'Node',
        'metadata': {
            'name': name,
            'labels': {
                'kubernetes.io/hostname': name,
                'kubernetes.io/os': 'linux',
                'kubernetes.io/arch': 'amd64',
                'beta.kubernetes.io/os': 'linux',
                'beta.kubernetes.io/arch': 'amd64',
            },
        },
        'spec': {
            'podCIDR': f'10.244.{number % 256}.0/24',
            'podCIDRs': [f'10.244.{number % 256}.0/24'],
        },
        'status': {
            'addresses': [
                {'type': 'InternalIP', 'address': f'172.18.{number // 250}.{number % 250 + 1}'},
                {'type': 'Hostname', 'address': name},
            ],
            'capacity': dict(_CAPACITY),
            'allocatable': dict(_CAPACITY),
            'conditions': conditions,
            'nodeInfo': {
                'architecture': 'amd64',
                'bootID': '',
                'containerRuntimeVersion': 'sandbox://1.0',
                'kernelVersion': '',
                'kubeProxyVersion': '',
                'kubeletVersion': version,
                'machineID': '',
                'operatingSystem': 'linux',
                'osImage': 'Kopf sandbox',
                'systemUUID': '',
            },
        },
    }


NOT_READY = 'node.kubernetes.io/not-ready'
UNSCHEDULABLE = 'node.kubernetes.io/unschedulable'


class NodeController:
    """Keeps the taints of nodes that follow from their conditions."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('node-controller')

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        return [change.new.key] if change.home == lookups.NODES else []

    async def reconcile(self, key: str) -> float | None:
        node = self._context.lookup.get(lookups.NODES, key)
        if node is not None and choose_taints(node) != (node['spec'].get('taints') or []):
            await self._client.change(lookups.NODES, node, _retaint)
        return None


def choose_taints(node: Body) -> list[Body]:
    """Return the taints that a node must have: its own ones, and those of its conditions."""
    spec = node.get('spec') or {}
    wanted = {
        NOT_READY: not pod_states.is_true(node, 'Ready'),
        UNSCHEDULABLE: bool(spec.get('unschedulable')),
    }
    known = spec.get('taints') or []
    kept = [
        item for item in known if item['effect'] != 'NoSchedule' or wanted.get(item['key'], True)
    ]
    present = {item['key'] for item in kept if item['effect'] == 'NoSchedule'}
    missing = [key for key, is_wanted in wanted.items() if is_wanted and key not in present]

    return [*kept, *({'key': key, 'effect': 'NoSchedule'} for key in missing)]


def _retaint(node: Body) -> None:
    taints = choose_taints(node)
    spec = node.setdefault('spec', {})
    spec.pop('taints', None)
    spec.update({'taints': taints} if taints else {})
