"""
Tables of clusters: namespaces, nodes, plain objects in them, and events.
"""

import datetime
from collections.abc import Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import cells

_ROLE_LABEL = 'kubernetes.io/role'
_ROLE_PREFIX = 'node-role.kubernetes.io/'


def print_aged(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.age(obj, now)]


def print_namespace(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.text(obj, 'status', 'phase'), cells.age(obj, now)]


def print_config_map(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    count = len(cells.mapping(obj, 'data')) + len(cells.mapping(obj, 'binaryData'))
    return [cells.name(obj), count, cells.age(obj, now)]


def print_secret(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.text(obj, 'type'),
        len(cells.mapping(obj, 'data')),
        cells.age(obj, now),
    ]


def print_node(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    system = cells.mapping(obj, 'status', 'nodeInfo')
    return [
        cells.name(obj),
        _show_node_status(obj),
        ','.join(_list_roles(obj)) or cells.NONE,
        cells.age(obj, now),
        cells.text(system, 'kubeletVersion'),
        _find_address(obj, 'InternalIP'),
        _find_address(obj, 'ExternalIP'),
        cells.text(system, 'osImage', default=cells.UNKNOWN),
        cells.text(system, 'kernelVersion', default=cells.UNKNOWN),
        cells.text(system, 'containerRuntimeVersion', default=cells.UNKNOWN),
    ]


def _show_node_status(obj: cells.Object) -> str:
    conditions = reversed(cells.items(obj, 'status', 'conditions'))  # the last one wins
    ready = cells.find_condition(conditions, 'Ready')
    status = (
        'Unknown' if ready is None else 'Ready' if ready.get('status') == 'True' else 'NotReady'
    )
    return f'{status},SchedulingDisabled' if cells.flag(obj, 'spec', 'unschedulable') else status


def _list_roles(obj: cells.Object) -> list[str]:
    labels = cells.mapping(obj, 'metadata', 'labels')
    roles = {label.removeprefix(_ROLE_PREFIX) for label in labels if label.startswith(_ROLE_PREFIX)}
    return sorted((roles | {cells.text(labels, _ROLE_LABEL)}) - {''})


def _find_address(obj: cells.Object, kind: str) -> str:
    addresses = cells.items(obj, 'status', 'addresses')
    return next(
        (cells.text(item, 'address') for item in addresses if item.get('type') == kind), cells.NONE
    )


def print_event(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    """Print a k8s-event of the core group or of ``events.k8s.io``, with its other field names."""
    involved = cells.mapping(obj, 'involvedObject') or cells.mapping(obj, 'regarding')
    kind = cells.text(involved, 'kind').lower()
    name = cells.text(involved, 'name')
    first, last = _show_event_times(obj, now)

    return [
        last,
        cells.text(obj, 'type'),
        cells.text(obj, 'reason'),
        f'{kind}/{name}' if name else kind,
        cells.text(involved, 'fieldPath'),
        _show_event_source(obj),
        (cells.text(obj, 'message') or cells.text(obj, 'note')).strip(),
        first,
        _count_event(obj),
        cells.name(obj),
    ]


def _show_event_times(obj: cells.Object, now: datetime.datetime) -> tuple[str, str]:
    first = last = cells.since(cells.dig(obj, 'eventTime'), now)
    if (known := _either(obj, 'firstTimestamp', 'deprecatedFirstTimestamp')) is not None:
        first = last = cells.since(known, now)
    if (known := _either(obj, 'lastTimestamp', 'deprecatedLastTimestamp')) is not None:
        last = cells.since(known, now)
    if cells.dig(obj, 'series') is not None:
        last = cells.since(cells.dig(obj, 'series', 'lastObservedTime'), now)
    return first, last


def _show_event_source(obj: cells.Object) -> str:
    source = _either(obj, 'source', 'deprecatedSource')
    reporter = _either(obj, 'reportingComponent', 'reportingController')
    component = cells.text(source, 'component') or (reporter if isinstance(reporter, str) else '')
    instance = cells.text(source, 'host') or cells.text(obj, 'reportingInstance')
    return f'{component}, {instance}' if instance else component


def _count_event(obj: cells.Object) -> int:
    if cells.dig(obj, 'series') is not None:
        return cells.number(obj, 'series', 'count')
    return cells.number(obj, 'count') or cells.number(obj, 'deprecatedCount') or 1


def _either(obj: cells.Object, core: str, newer: str) -> Any:
    return obj.get(core) if obj.get(core) is not None else obj.get(newer)


def print_quota(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    hard = cells.mapping(obj, 'status', 'hard')
    used = cells.mapping(obj, 'status', 'used')
    shown = {
        name: f'{name}: {cells.quantity(used, name)}/{cells.quantity(hard, name)}'
        for name in sorted(hard)
    }
    limits = [text for resource, text in shown.items() if resource.startswith('limits.')]
    requests = [text for resource, text in shown.items() if not resource.startswith('limits.')]

    return [cells.name(obj), ', '.join(requests), ', '.join(limits), cells.age(obj, now)]


def print_lease(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.text(obj, 'spec', 'holderIdentity'), cells.age(obj, now)]


def print_priority_class(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.number(obj, 'value'),
        cells.flag(obj, 'globalDefault'),
        cells.age(obj, now),
        cells.text(obj, 'preemptionPolicy'),
    ]


def print_runtime_class(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.text(obj, 'handler'), cells.age(obj, now)]


def print_claim(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), _show_claim_state(obj), cells.age(obj, now)]


def _show_claim_state(obj: cells.Object) -> str:
    is_allocated = cells.dig(obj, 'status', 'allocation') is not None
    states = {
        'deleted': cells.is_deleting(obj),
        'allocated': is_allocated,
        'reserved': is_allocated and bool(cells.items(obj, 'status', 'reservedFor')),
    }
    return ','.join(state for state, present in states.items() if present) or 'pending'


def print_slice(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [
        cells.name(obj),
        cells.text(obj, 'spec', 'nodeName'),
        cells.text(obj, 'spec', 'driver'),
        cells.text(obj, 'spec', 'pool', 'name'),
        cells.age(obj, now),
    ]


def print_component_status(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    healthy = cells.find_condition(cells.items(obj, 'conditions'), 'Healthy')
    status = (
        'Unknown'
        if healthy is None
        else 'Healthy'
        if healthy.get('status') == 'True'
        else 'Unhealthy'
    )
    return [cells.name(obj), status, cells.text(healthy, 'message'), cells.text(healthy, 'error')]


_EVENT = cells.Printer(
    [
        cells.column('Last Seen', 'The time since it happened last.'),
        cells.column('Type', 'Whether it is normal or a warning.'),
        cells.column('Reason', 'What happened, in one word.'),
        cells.column('Object', 'To which object it happened.'),
        cells.wide('Subobject', 'To which part of the object it happened.'),
        cells.wide('Source', 'Who has reported it.'),
        cells.column('Message', 'What happened, in words.'),
        cells.wide('First Seen', 'The time since it happened first.'),
        cells.wide('Count', 'How many times it happened.'),
        cells.Header('Name', format='name', description=cells.NAME.description, priority=1),
    ],
    print_event,
)
_AGED = cells.Printer([cells.NAME, cells.AGE], print_aged)

PRINTERS = {
    ('', 'Namespace'): cells.Printer(
        [
            cells.NAME,
            cells.column('Status', 'The phase of the namespace.'),
            cells.AGE,
        ],
        print_namespace,
    ),
    ('', 'ConfigMap'): cells.Printer(
        [
            cells.NAME,
            cells.column('Data', 'How many keys there are.'),
            cells.AGE,
        ],
        print_config_map,
    ),
    ('', 'Secret'): cells.Printer(
        [
            cells.NAME,
            cells.column('Type', 'What the secret is for.'),
            cells.column('Data', 'How many keys there are.'),
            cells.AGE,
        ],
        print_secret,
    ),
    ('', 'ServiceAccount'): _AGED,
    ('resource.k8s.io', 'DeviceClass'): _AGED,
    ('resource.k8s.io', 'ResourceClaimTemplate'): _AGED,
    ('', 'Node'): cells.Printer(
        [
            cells.NAME,
            cells.column('Status', 'Whether the node is ready and accepts pods.'),
            cells.column('Roles', 'The roles of the node.'),
            cells.AGE,
            cells.column('Version', 'The version of the kubelet.'),
            cells.wide('Internal-IP', 'The address inside of the cluster.'),
            cells.wide('External-IP', 'The address outside of the cluster.'),
            cells.wide('OS-Image', 'The operating system.'),
            cells.wide('Kernel-Version', 'The version of the kernel.'),
            cells.wide('Container-Runtime', 'The container runtime and its version.'),
        ],
        print_node,
    ),
    ('', 'Event'): _EVENT,
    ('events.k8s.io', 'Event'): _EVENT,
    ('', 'ResourceQuota'): cells.Printer(
        [
            cells.NAME,
            cells.column('Request', 'How much is used of the quotas on requests and on objects.'),
            cells.column('Limit', 'How much is used of the quotas on limits.'),
            cells.AGE,
        ],
        print_quota,
    ),
    ('coordination.k8s.io', 'Lease'): cells.Printer(
        [
            cells.NAME,
            cells.column('Holder', 'Who holds the lease.'),
            cells.AGE,
        ],
        print_lease,
    ),
    ('scheduling.k8s.io', 'PriorityClass'): cells.Printer(
        [
            cells.NAME,
            cells.column('Value', 'The priority: the higher, the more important.', 'integer'),
            cells.column(
                'Global-Default', 'Whether it is the class of pods that name no class.', 'boolean'
            ),
            cells.AGE,
            cells.column('PreemptionPolicy', 'Whether the pods may evict others.'),
        ],
        print_priority_class,
    ),
    ('node.k8s.io', 'RuntimeClass'): cells.Printer(
        [
            cells.NAME,
            cells.column('Handler', 'The configuration of the container runtime.'),
            cells.AGE,
        ],
        print_runtime_class,
    ),
    ('resource.k8s.io', 'ResourceClaim'): cells.Printer(
        [
            cells.NAME,
            cells.column('State', 'Whether the claim is allocated and used.'),
            cells.AGE,
        ],
        print_claim,
    ),
    ('resource.k8s.io', 'ResourceSlice'): cells.Printer(
        [
            cells.NAME,
            cells.column('Node', 'The node that has the resources.'),
            cells.column('Driver', 'The driver that provides the resources.'),
            cells.column('Pool', 'The pool of the resources.'),
            cells.AGE,
        ],
        print_slice,
    ),
    ('', 'ComponentStatus'): cells.Printer(
        [
            cells.NAME,
            cells.column('Status', 'Whether the component is healthy.'),
            cells.column('Message', 'What the component says.'),
            cells.column('Error', 'What is wrong with the component.'),
        ],
        print_component_status,
    ),
}
