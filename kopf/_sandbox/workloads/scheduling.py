"""
Scheduling: pods are assigned to the nodes that fit them: those with the fewest pods first.

Fitting are the nodes that the selectors and the required affinity of a pod allow, whose taints it
tolerates, and that have room for one more pod. The amounts of resources are not considered.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import dependents, interfaces, lookups, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

DEFAULT = 'default-scheduler'
CAPACITY = 110
UNSCHEDULABLE = 'node.kubernetes.io/unschedulable'


class Scheduler:
    """Assigns pods to nodes."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('kube-scheduler', manager='kube-scheduler')
        self._recorder = context.recorder(DEFAULT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.PODS and change.type != 'DELETED':
            return [change.new.key]
        is_node = change.home == lookups.NODES and change.type != 'DELETED'
        if is_node or change.home == lookups.PODS:
            return [lookups.get_key(pod) for pod in self._list_unassigned()]
        return []

    def _list_unassigned(self) -> list[Body]:
        return [
            pod
            for pod in self._context.lookup.select(lookups.PODS)
            if not (pod.get('spec') or {}).get('nodeName')
        ]

    async def reconcile(self, key: str) -> float | None:
        pod = self._context.lookup.get(lookups.PODS, key)
        if pod is None or not is_schedulable(pod):
            return None

        nodes = self._context.lookup.select(lookups.NODES)
        active = [
            item
            for item in self._context.lookup.select(lookups.PODS)
            if pod_states.get_phase(item) not in pod_states.ENDED
        ]
        crowds = dependents.count_by_node(active)
        node = choose_node(pod, nodes, crowds)

        if node:
            await self._client.bind(pod, node)
            meta = pod['metadata']
            text = f'Successfully assigned {meta["namespace"]}/{meta["name"]} to {node}'
            await self._recorder.normal(pod, 'Scheduled', text)
            return None

        text = explain(pod, nodes, crowds)
        await self._recorder.warn(pod, 'FailedScheduling', text)
        await self._client.set_status(lookups.PODS, pod, self._build_status(pod, text))

        return None

    def _build_status(self, pod: Body, text: str) -> Body:
        status = pod.get('status') or {}
        known = pod_states.find_condition(pod, 'PodScheduled') or {}
        since = known.get('lastTransitionTime') or pod_states.format_time(self._context.now())
        made = {
            'type': 'PodScheduled',
            'status': 'False',
            'lastProbeTime': None,
            'lastTransitionTime': since,
            'reason': 'Unschedulable',
            'message': text,
            'observedGeneration': pod['metadata'].get('generation') or 0,
        }
        others = [item for item in status.get('conditions') or () if item['type'] != made['type']]

        return {**status, 'conditions': [*others, made]}


def is_schedulable(pod: Object) -> bool:
    """Return whether a pod waits for this scheduler."""
    spec = pod['spec']
    is_waiting = not spec.get('nodeName') and not spec.get('schedulingGates')
    is_ours = (spec.get('schedulerName') or DEFAULT) == DEFAULT
    return is_waiting and is_ours and pod_states.is_active(pod)


def choose_node(pod: Object, nodes: Sequence[Object], crowds: Mapping[str, int]) -> str:
    """Choose a node for a pod; '' if there is none."""
    fitting = [node['metadata']['name'] for node in nodes if not find_obstacle(pod, node, crowds)]
    return min(fitting, key=lambda name: (crowds.get(name, 0), name), default='')


def explain(pod: Object, nodes: Sequence[Object], crowds: Mapping[str, int]) -> str:
    """Build the message about a pod that fits no node."""
    if not nodes:
        return 'no nodes available to schedule pods'
    obstacles = [find_obstacle(pod, node, crowds) for node in nodes]
    counted = sorted(f'{obstacles.count(text)} {text}' for text in set(obstacles))
    return f'0/{len(nodes)} nodes are available: {", ".join(counted)}.'


def find_obstacle(pod: Object, node: Object, crowds: Mapping[str, int]) -> str:
    """Return why a pod does not fit a node; '' if it does."""
    untolerated = find_untolerated(pod['spec'], node)
    if untolerated is not None:
        if untolerated['key'] == UNSCHEDULABLE:
            return 'node(s) were unschedulable'
        shown = f'{untolerated["key"]}: {untolerated.get("value") or ""}'
        return f'node(s) had untolerated taint {{{shown}}}'

    if not matches_node(pod['spec'], node):
        return "node(s) didn't match Pod's node affinity/selector"

    allocatable = (node.get('status') or {}).get('allocatable') or {}
    if crowds.get(node['metadata']['name'], 0) >= int(allocatable.get('pods') or CAPACITY):
        return 'Too many pods'
    return ''


def find_untolerated(
    spec: Object, node: Object, effects: Sequence[str] = ('NoSchedule', 'NoExecute')
) -> Object | None:
    """Return the first taint of a node that keeps the pods of this spec away from it."""
    known = node.get('spec') or {}
    cordon = {'key': UNSCHEDULABLE, 'effect': 'NoSchedule'}
    taints = [*([cordon] if known.get('unschedulable') else []), *(known.get('taints') or ())]
    tolerations = spec.get('tolerations') or ()

    for taint in taints:
        if taint['effect'] in effects and not is_tolerated(taint, tolerations):
            return dict(taint)

    return None


def is_tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get('effect') not in (None, '', taint.get('effect')):
        return False
    if toleration.get('key') not in (None, '', taint['key']):
        return False
    if (toleration.get('operator') or 'Equal') == 'Exists':
        return True
    return bool(toleration.get('key')) and (toleration.get('value') or '') == (
        taint.get('value') or ''
    )


def matches_node(spec: Object, node: Object) -> bool:
    """Return whether the selector and the required affinity of a pod allow a node."""
    labels = node['metadata'].get('labels') or {}
    if not (spec.get('nodeSelector') or {}).items() <= labels.items():
        return False

    affinity = (spec.get('affinity') or {}).get('nodeAffinity') or {}
    required = affinity.get('requiredDuringSchedulingIgnoredDuringExecution')
    if required is None:
        return True

    fields = {'metadata.name': node['metadata']['name']}
    return any(
        _matches_terms(term.get('matchExpressions') or (), labels)
        and _matches_terms(term.get('matchFields') or (), fields)
        and bool(term.get('matchExpressions') or term.get('matchFields'))
        for term in required.get('nodeSelectorTerms') or ()
    )


def _matches_terms(terms: Iterable[Object], labels: Mapping[str, str]) -> bool:
    return all(_matches_term(term, labels) for term in terms)


def _matches_term(term: Object, labels: Mapping[str, str]) -> bool:
    values = list(term.get('values') or ())
    value = labels.get(term['key'])
    match term['operator']:
        case 'In':
            return value in values
        case 'NotIn':
            return value not in values
        case 'Exists':
            return value is not None
        case 'DoesNotExist':
            return value is None
        case 'Gt':
            return value is not None and int(value) > int(values[0])
        case _:
            return value is not None and int(value) < int(values[0])
