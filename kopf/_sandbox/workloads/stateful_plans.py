"""
Stateful plans: which pods of a stateful set to create and delete next. All pure.
"""

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, pod_states, revisions

Body = dict[str, Any]
Object = Mapping[str, Any]

POD_NAME = 'statefulset.kubernetes.io/pod-name'
POD_INDEX = 'apps.kubernetes.io/pod-index'


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do next with the pods of a stateful set."""

    creations: Sequence[int] = ()  # ordinals
    deletions: Sequence[Body] = ()


@dataclasses.dataclass(frozen=True)
class Situation:
    """A stateful set with its pods and revisions, at one moment."""

    stateful_set: Body
    pods: Mapping[int, Body]  # by their ordinals
    current: str  # the names of the revisions
    updated: str
    now: datetime.datetime

    @property
    def spec(self) -> Body:
        return dict(self.stateful_set['spec'])

    @property
    def start(self) -> int:
        return int((self.spec.get('ordinals') or {}).get('start') or 0)

    @property
    def ordinals(self) -> range:
        return range(self.start, self.start + int(self.spec['replicas']))

    @property
    def is_ordered(self) -> bool:
        return bool(self.spec.get('podManagementPolicy') != 'Parallel')

    @property
    def partition(self) -> int:
        strategy = self.spec.get('updateStrategy') or {}
        return int((strategy.get('rollingUpdate') or {}).get('partition') or 0)

    @property
    def is_rolling(self) -> bool:
        return (self.spec.get('updateStrategy') or {}).get('type') == 'RollingUpdate'

    def is_available(self, pod: Object) -> bool:
        min_ready = self.spec.get('minReadySeconds') or 0
        return not pod_states.is_leaving(pod) and pod_states.is_available(pod, min_ready, self.now)


def find_ordinal(stateful_set: Object, pod: Object) -> int | None:
    """Return the ordinal in the name of a pod."""
    name = re.escape(stateful_set['metadata']['name'])
    found = re.fullmatch(rf'{name}-(\d+)', pod['metadata']['name'])
    return int(found[1]) if found else None


def plan(situation: Situation) -> Plan:
    """Decide what to do: first the missing pods, then the surplus, then the outdated ones."""
    creations: list[int] = []
    deletions: list[Body] = []
    for ordinal in situation.ordinals:
        pod = situation.pods.get(ordinal)
        if pod is None:
            creations.append(ordinal)
        elif pod_states.get_phase(pod) in pod_states.ENDED and not pod_states.is_leaving(pod):
            deletions.append(pod)
        if situation.is_ordered and (pod is None or not situation.is_available(pod)):
            return Plan(creations, deletions)

    surplus = _plan_surplus(situation)
    if surplus is not None:
        return Plan(creations, [*deletions, *surplus])
    return Plan(creations, [*deletions, *_plan_update(situation)])


def _plan_surplus(situation: Situation) -> list[Body] | None:
    """Return the surplus pods to delete, the last ones first; ``None`` if there are none at all."""
    condemned = [
        pod
        for ordinal, pod in sorted(situation.pods.items(), reverse=True)
        if ordinal not in situation.ordinals
    ]
    if not condemned:
        return None

    if situation.is_ordered:
        condemned = condemned[:1]
    return [pod for pod in condemned if not pod_states.is_leaving(pod)]


def _plan_update(situation: Situation) -> list[Body]:
    """Return the outdated pod to delete: the last one, if all after it are available."""
    if not situation.is_rolling:
        return []

    for ordinal in reversed(situation.ordinals):
        pod = situation.pods.get(ordinal)
        if ordinal < situation.start + situation.partition or pod is None:
            return []
        is_outdated = revisions.get_pod_revision(pod) != situation.updated
        if is_outdated and not pod_states.is_leaving(pod):
            return [pod]
        if not situation.is_available(pod):
            return []

    return []


def choose_revision(situation: Situation, ordinal: int) -> str:
    """Return the revision of a new pod: the old one below the partition, and in a rollout."""
    if not situation.is_rolling or situation.current == situation.updated:
        return situation.updated
    if ordinal < situation.start + situation.partition:
        return situation.current
    known = (situation.stateful_set.get('status') or {}).get('currentReplicas') or 0
    is_early = not situation.partition and ordinal < situation.start + known
    return situation.current if is_early else situation.updated


def build_status(situation: Situation) -> Body:
    """Count the pods of a stateful set."""
    pods = list(situation.pods.values())
    staying = [pod for pod in pods if not pod_states.is_leaving(pod)]
    ready = [pod for pod in staying if pod_states.is_ready(pod)]
    updated = _count_revision(staying, situation.updated)
    status = {
        'observedGeneration': situation.stateful_set['metadata'].get('generation') or 0,
        'replicas': len(pods),
        'availableReplicas': sum(map(situation.is_available, staying)),
        'currentRevision': situation.current,
        'updateRevision': situation.updated,
        'collisionCount': (situation.stateful_set.get('status') or {}).get('collisionCount') or 0,
    }
    counts = {
        'readyReplicas': len(ready),
        'currentReplicas': _count_revision(staying, situation.current),
        'updatedReplicas': updated,
    }

    if situation.is_rolling and {updated, len(pods), len(ready)} == {len(situation.ordinals)}:
        status['currentRevision'] = situation.updated
        counts['currentReplicas'] = updated

    return {**status, **pod_states.drop_zeros(counts)}


def _count_revision(pods: Iterable[Object], name: str) -> int:
    return sum(revisions.get_pod_revision(pod) == name for pod in pods)


def build_pod(stateful_set: Body, ordinal: int, template: Object, revision: str) -> Body:
    """Build the pod of an ordinal."""
    made = dependents.build_pod(stateful_set, template)
    name = f'{stateful_set["metadata"]["name"]}-{ordinal}'
    meta = made['metadata']
    spec = made['spec']
    meta['name'] = name
    meta['labels'] = {
        **(meta.get('labels') or {}),
        POD_NAME: name,
        POD_INDEX: str(ordinal),
        revisions.LABEL: revision,
    }
    spec['hostname'] = name
    if stateful_set['spec'].get('serviceName'):
        spec['subdomain'] = stateful_set['spec']['serviceName']
    claimed = [
        {
            'name': claim['metadata']['name'],
            'persistentVolumeClaim': {'claimName': f'{claim["metadata"]["name"]}-{name}'},
        }
        for claim in stateful_set['spec'].get('volumeClaimTemplates') or ()
    ]
    names = [volume['name'] for volume in claimed]
    others = [item for item in spec.get('volumes') or () if item['name'] not in names]
    if claimed:
        spec['volumes'] = [*claimed, *others]
    return made


def build_claims(stateful_set: Body, pod: Object) -> list[Body]:
    """Build the claims of a pod for its volumes."""
    spec = stateful_set['spec']
    namespace = stateful_set['metadata']['namespace']
    policy = spec.get('persistentVolumeClaimRetentionPolicy') or {}
    is_owned = policy.get('whenDeleted') == 'Delete'
    owners = [dependents.build_reference(stateful_set)] if is_owned else []

    return [
        {
            'apiVersion': 'v1',
            'kind': 'PersistentVolumeClaim',
            'metadata': {
                'name': f'{template["metadata"]["name"]}-{pod["metadata"]["name"]}',
                'namespace': namespace,
                'labels': {
                    **(template['metadata'].get('labels') or {}),
                    **(spec['selector'].get('matchLabels') or {}),
                },
                **_pick_annotations(template),
                **({'ownerReferences': owners} if owners else {}),
            },
            'spec': template['spec'],
        }
        for template in spec.get('volumeClaimTemplates') or ()
    ]


def _pick_annotations(template: Object) -> Body:
    annotations = template['metadata'].get('annotations')
    return {'annotations': annotations} if annotations else {}
