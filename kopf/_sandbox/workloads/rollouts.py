"""
Rollouts: how many pods each replica set of a deployment should have next. All pure.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

HASH = 'pod-template-hash'
REVISION = 'deployment.kubernetes.io/revision'
HISTORY = 'deployment.kubernetes.io/revision-history'
DESIRED = 'deployment.kubernetes.io/desired-replicas'
MAXIMUM = 'deployment.kubernetes.io/max-replicas'
_NOT_COPIED = (
    'kubectl.kubernetes.io/last-applied-configuration',
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    'deprecated.deployment.rollback.to',
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many pods a deployment may have more and less than requested while it rolls."""

    surge: int
    unavailable: int


@dataclasses.dataclass(frozen=True)
class Scaling:
    """The new size of one replica set."""

    replica_set: Body
    replicas: int


def resolve_limits(deployment: Object) -> Limits:
    """Compute the limits; if both are zero, one pod may be unavailable."""
    spec = deployment['spec']
    rolling = (spec.get('strategy') or {}).get('rollingUpdate')
    if not is_rolling(deployment) or rolling is None:
        return Limits(0, 0)

    surge = pod_states.scale_value(rolling.get('maxSurge'), spec['replicas'], up=True)
    given = rolling.get('maxUnavailable')
    unavailable = pod_states.scale_value(given, spec['replicas'], up=False)
    if not surge and not unavailable:
        unavailable = 1
    return Limits(surge, min(unavailable, spec['replicas']) if spec['replicas'] else unavailable)


def is_rolling(deployment: Object) -> bool:
    return (deployment['spec'].get('strategy') or {}).get('type') == 'RollingUpdate'


def count_spec(replica_sets: Sequence[Object]) -> int:
    return sum(item['spec'].get('replicas') or 0 for item in replica_sets)


def count_status(replica_sets: Sequence[Object], field: str) -> int:
    return sum((item.get('status') or {}).get(field) or 0 for item in replica_sets)


def find_new(deployment: Object, replica_sets: Sequence[Body]) -> Body | None:
    """Find the oldest replica set of the current template."""
    template = dependents.drop_label(deployment['spec']['template'], HASH)
    for item in pod_states.sort_by_age(replica_sets):
        if dependents.drop_label(item['spec']['template'], HASH) == template:
            return item
    return None


def get_revision(body: Object) -> int:
    text = (body['metadata'].get('annotations') or {}).get(REVISION) or '0'
    return int(text) if text.isdigit() else 0


def build_replica_set(deployment: Body, replicas: int, revision: int) -> Body:
    """Build the replica set of the current template."""
    meta = deployment['metadata']
    spec = deployment['spec']
    collisions = (deployment.get('status') or {}).get('collisionCount') or 0
    plain = dependents.drop_label(spec['template'], HASH)
    digest = dependents.compute_hash(plain, collisions)
    template_meta = plain.get('metadata') or {}
    labels = {**(template_meta.get('labels') or {}), HASH: digest}
    selector = spec['selector']
    made: Body = {
        'apiVersion': 'apps/v1',
        'kind': 'ReplicaSet',
        'metadata': {
            'name': f'{meta["name"]}-{digest}',
            'namespace': meta['namespace'],
            'labels': labels,
            'ownerReferences': [dependents.build_reference(deployment)],
        },
        'spec': {
            'replicas': replicas,
            'selector': {
                **selector,
                'matchLabels': {**(selector.get('matchLabels') or {}), HASH: digest},
            },
            'template': {**plain, 'metadata': {**template_meta, 'labels': labels}},
        },
    }
    if spec.get('minReadySeconds'):
        made['spec']['minReadySeconds'] = spec['minReadySeconds']
    annotate(made, deployment, revision)
    annotate_size(made, deployment)
    return made


def annotate(replica_set: Body, deployment: Object, revision: int) -> None:
    """Copy the annotations of the deployment, and note the revision. Modifies the replica set."""
    known = deployment['metadata'].get('annotations') or {}
    annotations = replica_set['metadata'].setdefault('annotations', {})
    annotations.update({key: known[key] for key in known if key not in _NOT_COPIED})
    current = annotations.get(REVISION) or '0'

    if int(current if current.isdigit() else 0) < revision:
        if current != '0':
            history = [item for item in (annotations.get(HISTORY) or '').split(',') if item]
            annotations[HISTORY] = ','.join([*history, current])
        annotations[REVISION] = str(revision)


def annotate_size(replica_set: Body, deployment: Object) -> None:
    """Note the size of the deployment, to notice when it is scaled. Modifies the replica set."""
    replicas = deployment['spec']['replicas']
    annotations = replica_set['metadata'].setdefault('annotations', {})
    annotations[DESIRED] = str(replicas)
    annotations[MAXIMUM] = str(replicas + resolve_limits(deployment).surge)


def is_scaled(deployment: Object, replica_sets: Sequence[Object]) -> bool:
    """Return whether the deployment was scaled since its replica sets were."""
    desired = str(deployment['spec']['replicas'])
    return any(
        (item['metadata'].get('annotations') or {}).get(DESIRED, desired) != desired
        for item in replica_sets
        if item['spec'].get('replicas')
    )


def choose_new_size(deployment: Object, replica_sets: Sequence[Object], current: int) -> int:
    """Choose the next size of the new replica set, which has ``current`` pods now."""
    desired = int(deployment['spec']['replicas'])
    if not is_rolling(deployment) or current >= desired:
        return desired
    room = desired + resolve_limits(deployment).surge - count_spec(replica_sets)
    return current if room <= 0 else current + min(room, desired - current)


def plan_old_sizes(deployment: Object, new: Object | None, olds: Sequence[Body]) -> list[Scaling]:
    """Choose the next sizes of the old replica sets: first, their unhealthy pods go."""
    everything = [*olds, *([new] if new is not None else [])]
    desired = deployment['spec']['replicas']
    minimum = desired - resolve_limits(deployment).unavailable
    unready = 0
    if new is not None:
        unready = count_spec([new]) - count_status([new], 'availableReplicas')
    room = count_spec(everything) - minimum - unready
    if room <= 0 or not count_spec(olds):
        return []

    sizes = {item['metadata']['uid']: item['spec'].get('replicas') or 0 for item in olds}
    before = dict(sizes)
    ordered = pod_states.sort_by_age(olds)

    for item in ordered:
        uid = item['metadata']['uid']
        dropped = min(room, max(0, sizes[uid] - count_status([item], 'availableReplicas')))
        sizes[uid] -= dropped
        room -= dropped

    spare = count_status(everything, 'availableReplicas') - minimum
    for item in ordered:
        uid = item['metadata']['uid']
        dropped = min(max(0, spare), sizes[uid])
        sizes[uid] -= dropped
        spare -= dropped

    return [
        Scaling(item, sizes[uid])
        for item in ordered
        if sizes[uid := item['metadata']['uid']] != before[uid]
    ]


def plan_scaling(deployment: Object, new: Body | None, olds: Sequence[Body]) -> list[Scaling]:
    """Distribute the size of a deployment that was scaled in the middle of a rollout, or paused."""
    desired = int(deployment['spec']['replicas'])
    everything = [*olds, *([new] if new is not None else [])]
    active = [item for item in everything if item['spec'].get('replicas')]

    if len(active) <= 1:
        latest = new or max(olds, key=pod_states.get_created, default=None)
        chosen = active[0] if active else latest
        return [] if chosen is None else [Scaling(chosen, desired)]

    if new is not None and _is_saturated(deployment, new):
        return [Scaling(item, 0) for item in active if item is not new]
    return _share(deployment, active) if is_rolling(deployment) else []


def _is_saturated(deployment: Object, new: Object) -> bool:
    desired = deployment['spec']['replicas']
    annotations = new['metadata'].get('annotations') or {}
    sizes = (new['spec'].get('replicas'), count_status([new], 'availableReplicas'))
    return annotations.get(DESIRED) == str(desired) and sizes == (desired, desired)


def _share(deployment: Object, active: Sequence[Body]) -> list[Scaling]:
    """Scale all replica sets in proportion to their sizes."""
    desired = deployment['spec']['replicas']
    allowed = desired + resolve_limits(deployment).surge if desired else 0
    rest = allowed - count_spec(active)
    oldest_first = pod_states.sort_by_age(active)
    by_age = oldest_first if rest < 0 else oldest_first[::-1]
    ordered = sorted(by_age, key=lambda item: -item['spec']['replicas'])
    sizes = []

    for item in ordered:
        size = item['spec']['replicas']
        known = (item['metadata'].get('annotations') or {}).get(MAXIMUM) or '0'
        before = int(known) or count_status([deployment], 'replicas') or 1
        wanted = int(size * allowed / before + 0.5) - size
        change = min(max(wanted, 0), rest) if rest > 0 else max(min(wanted, 0), rest)
        rest -= change
        sizes.append(size + change)

    if ordered:
        sizes[0] = max(0, sizes[0] + rest)
    return [Scaling(item, size) for item, size in zip(ordered, sizes, strict=True)]


def choose_obsolete(deployment: Object, olds: Sequence[Body]) -> list[Body]:
    """Choose the replica sets that are beyond the history of the deployment."""
    limit = deployment['spec'].get('revisionHistoryLimit')
    alive = [item for item in olds if not pod_states.is_leaving(item)]
    if limit is None or len(alive) <= limit:
        return []
    ordered = sorted(alive, key=lambda item: (get_revision(item), pod_states.get_created(item)))
    return [item for item in ordered[: len(alive) - limit] if _is_settled(item)]


def _is_settled(replica_set: Object) -> bool:
    status = replica_set.get('status') or {}
    meta = replica_set['metadata']
    is_observed = (status.get('observedGeneration') or 0) >= (meta.get('generation') or 0)
    return not status.get('replicas') and not replica_set['spec'].get('replicas') and is_observed
