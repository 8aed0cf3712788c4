"""
Daemon plans: which pods of a daemon set to create and delete next on its nodes. All pure.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, pod_states, revisions, scheduling

Body = dict[str, Any]
Object = Mapping[str, Any]

GENERATION = 'deprecated.daemonset.template.generation'
_TOLERATED = (
    ('node.kubernetes.io/not-ready', 'NoExecute'),
    ('node.kubernetes.io/unreachable', 'NoExecute'),
    ('node.kubernetes.io/disk-pressure', 'NoSchedule'),
    ('node.kubernetes.io/memory-pressure', 'NoSchedule'),
    ('node.kubernetes.io/pid-pressure', 'NoSchedule'),
    ('node.kubernetes.io/unschedulable', 'NoSchedule'),
)
_NETWORK = ('node.kubernetes.io/network-unavailable', 'NoSchedule')


@dataclasses.dataclass(frozen=True)
class Situation:
    """A daemon set with its pods and nodes, at one moment."""

    daemon_set: Body
    pods: Mapping[str, Sequence[Body]]  # by the names of their nodes
    nodes: Sequence[Body]
    digest: str  # of the current template
    now: datetime.datetime

    @property
    def eligible(self) -> list[str]:
        """The names of the nodes where pods must run."""
        return [node['metadata']['name'] for node in self.nodes if should_run(self, node)]

    def is_available(self, pod: Object) -> bool:
        min_ready = self.daemon_set['spec'].get('minReadySeconds') or 0
        return not pod_states.is_leaving(pod) and pod_states.is_available(pod, min_ready, self.now)

    def is_updated(self, pod: Object) -> bool:
        return revisions.get_pod_revision(pod) == self.digest


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do next with the pods of a daemon set."""

    creations: Sequence[str] = ()  # the names of the nodes
    deletions: Sequence[Body] = ()


def add_tolerations(spec: Body) -> Body:
    """Return a pod spec that tolerates the troubles of nodes."""
    wanted = [*_TOLERATED, *([_NETWORK] if spec.get('hostNetwork') else [])]
    known = spec.get('tolerations') or []
    added = [{'key': key, 'operator': 'Exists', 'effect': effect} for key, effect in wanted]
    return {**spec, 'tolerations': [*known, *(item for item in added if item not in known)]}


def should_run(situation: Situation, node: Object, *, effects: Sequence[str] = ()) -> bool:
    """Return whether a node must have a pod of a daemon set."""
    spec = add_tolerations(situation.daemon_set['spec']['template']['spec'])
    if not scheduling.matches_node(spec, node):
        return False
    kinds = effects or ('NoSchedule', 'NoExecute')
    return scheduling.find_untolerated(spec, node, kinds) is None


def find_node(pod: Object) -> str:
    """Return the node for which a pod of a daemon set is made."""
    spec = pod['spec']
    if spec.get('nodeName'):
        return str(spec['nodeName'])

    affinity = (spec.get('affinity') or {}).get('nodeAffinity') or {}
    required = affinity.get('requiredDuringSchedulingIgnoredDuringExecution') or {}
    for term in required.get('nodeSelectorTerms') or ():
        for field in term.get('matchFields') or ():
            if field['key'] == 'metadata.name' and field.get('values'):
                return str(field['values'][0])

    return ''


def plan(situation: Situation) -> Plan:
    """Decide which pods to create and to delete: first where they must be, then the updates."""
    eligible = situation.eligible
    creations = []
    deletions = []

    for name in eligible:
        pods = situation.pods.get(name) or ()
        ended = [pod for pod in pods if pod_states.get_phase(pod) in pod_states.ENDED]
        deletions += [pod for pod in ended if not pod_states.is_leaving(pod)]
        creations += [] if pods else [name]

    deletions += _list_misplaced(situation, eligible)
    strategy = situation.daemon_set['spec'].get('updateStrategy') or {}
    if strategy.get('type') != 'RollingUpdate' or creations or deletions:
        return Plan(creations, deletions)
    return _plan_update(situation, strategy.get('rollingUpdate') or {}, eligible)


def _list_misplaced(situation: Situation, eligible: Sequence[str]) -> list[Body]:
    """Return the pods on other nodes. Taints with the effect NoSchedule do not evict them."""
    staying = {
        *eligible,
        *(
            node['metadata']['name']
            for node in situation.nodes
            if should_run(situation, node, effects=['NoExecute'])
        ),
    }
    return [
        pod
        for name, pods in situation.pods.items()
        for pod in pods
        if name not in staying and not pod_states.is_leaving(pod)
    ]


def _plan_update(situation: Situation, rolling: Object, eligible: Sequence[str]) -> Plan:
    surge = pod_states.scale_value(rolling.get('maxSurge'), len(eligible), up=True)
    given = pod_states.scale_value(rolling.get('maxUnavailable'), len(eligible), up=True)
    if surge:
        return _plan_surge(situation, eligible, surge)

    old = [pod for name in eligible for pod in _list_outdated(situation, name)]
    broken = [pod for pod in old if not situation.is_available(pod)]
    unavailable = sum(
        not any(map(situation.is_available, situation.pods.get(name) or ())) for name in eligible
    )
    room = max(0, given - unavailable)
    healthy = [pod for pod in old if pod not in broken]

    return Plan(deletions=[*broken, *healthy[:room]])


def _plan_surge(situation: Situation, eligible: Sequence[str], surge: int) -> Plan:
    """Start new pods beside the old ones, which are deleted when the new ones are available."""
    creations = []
    deletions = []
    busy = 0

    for name in eligible:
        old = _list_outdated(situation, name)
        new = [pod for pod in situation.pods.get(name) or () if situation.is_updated(pod)]
        is_replaced = any(map(situation.is_available, new))
        if old and (is_replaced or not any(map(situation.is_available, old))):
            deletions += old
        busy += bool(old and new and not is_replaced)
        creations += [name] if old and not new else []

    return Plan(creations[: max(0, surge - busy)], deletions)


def _list_outdated(situation: Situation, name: str) -> list[Body]:
    return [
        pod
        for pod in situation.pods.get(name) or ()
        if not situation.is_updated(pod) and not pod_states.is_leaving(pod)
    ]


def build_pod(daemon_set: Body, node: str, digest: str) -> Body:
    """Build the pod of a node."""
    made = dependents.build_pod(daemon_set, daemon_set['spec']['template'])
    generation = (daemon_set['metadata'].get('annotations') or {}).get(GENERATION) or '1'
    made['metadata']['labels'] = {
        **(made['metadata'].get('labels') or {}),
        revisions.LABEL: digest,
        'pod-template-generation': generation,
    }
    made['spec'] = _pin(add_tolerations(made['spec']), node)

    return made


def _pin(spec: Body, node: str) -> Body:
    """Return a pod spec for one node, with the other requirements kept."""
    affinity = dict(spec.get('affinity') or {})
    node_affinity = dict(affinity.get('nodeAffinity') or {})
    field = {'key': 'metadata.name', 'operator': 'In', 'values': [node]}
    known = node_affinity.get('requiredDuringSchedulingIgnoredDuringExecution') or {}
    terms = known.get('nodeSelectorTerms') or [{}]
    node_affinity['requiredDuringSchedulingIgnoredDuringExecution'] = {
        'nodeSelectorTerms': [{**term, 'matchFields': [field]} for term in terms]
    }

    return {**spec, 'affinity': {**affinity, 'nodeAffinity': node_affinity}}


def build_status(situation: Situation) -> Body:
    """Count the pods and the nodes of a daemon set."""
    eligible = set(situation.eligible)
    running = {
        name: [pod for pod in pods if not pod_states.is_leaving(pod)]
        for name, pods in situation.pods.items()
    }
    present = [running[name] for name in eligible if running.get(name)]
    available = sum(any(map(situation.is_available, pods)) for pods in present)
    counts = {
        'updatedNumberScheduled': sum(any(map(situation.is_updated, pods)) for pods in present),
        'numberAvailable': available,
        'numberUnavailable': len(eligible) - available,
        'collisionCount': (situation.daemon_set.get('status') or {}).get('collisionCount') or 0,
    }

    return {
        'currentNumberScheduled': len(present),
        'numberMisscheduled': sum(
            bool(pods) for name, pods in running.items() if name not in eligible
        ),
        'desiredNumberScheduled': len(eligible),
        'numberReady': sum(any(map(pod_states.is_ready, pods)) for pods in present),
        'observedGeneration': situation.daemon_set['metadata'].get('generation') or 0,
        **pod_states.drop_zeros(counts),
    }
