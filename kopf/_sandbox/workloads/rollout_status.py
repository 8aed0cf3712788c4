"""
Rollout status: the numbers and the conditions of deployments. All pure.
"""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import pod_states, rollouts

Body = dict[str, Any]
Object = Mapping[str, Any]

AVAILABLE = 'NewReplicaSetAvailable'
TIMED_OUT = 'ProgressDeadlineExceeded'
PAUSED = 'DeploymentPaused'
UNLIMITED = 2**31 - 1


def build_counts(deployment: Object, new: Body | None, all_sets: Sequence[Body]) -> Body:
    """Count the pods of a deployment."""
    available = rollouts.count_status(all_sets, 'availableReplicas')
    total = rollouts.count_spec(all_sets)
    counts = {
        'observedGeneration': deployment['metadata'].get('generation') or 0,
        'replicas': rollouts.count_status(all_sets, 'replicas'),
        'updatedReplicas': rollouts.count_status([new] if new else [], 'replicas'),
        'readyReplicas': rollouts.count_status(all_sets, 'readyReplicas'),
        'availableReplicas': available,
        'unavailableReplicas': max(0, total - available),
        'collisionCount': (deployment.get('status') or {}).get('collisionCount') or 0,
    }

    return {
        **pod_states.drop_zeros(counts),
        'terminatingReplicas': rollouts.count_status(all_sets, 'terminatingReplicas'),
    }


def build_condition(type: str, status: str, reason: str, message: str, now: str) -> Body:
    return {
        'type': type,
        'status': status,
        'lastUpdateTime': now,
        'lastTransitionTime': now,
        'reason': reason,
        'message': message,
    }


def set_condition(conditions: Sequence[Body], new: Body) -> list[Body]:
    """Replace a condition, unless its status and reason are the same."""
    known = next((item for item in conditions if item['type'] == new['type']), None)
    if known is not None and (known['status'], known['reason']) == (new['status'], new['reason']):
        return list(conditions)
    if known is not None and known['status'] == new['status']:
        new = {**new, 'lastTransitionTime': known['lastTransitionTime']}
    return [*(item for item in conditions if item['type'] != new['type']), new]


def note_availability(deployment: Object, counts: Object, now: str) -> list[Body]:
    """Return the conditions of the deployment with its current availability."""
    conditions = (deployment.get('status') or {}).get('conditions') or []
    minimum = deployment['spec']['replicas'] - rollouts.resolve_limits(deployment).unavailable
    is_available = (counts.get('availableReplicas') or 0) >= minimum
    made = (
        build_condition(
            'Available',
            'True',
            'MinimumReplicasAvailable',
            'Deployment has minimum availability.',
            now,
        )
        if is_available
        else build_condition(
            'Available',
            'False',
            'MinimumReplicasUnavailable',
            'Deployment does not have minimum availability.',
            now,
        )
    )

    return set_condition(conditions, made)


def is_complete(deployment: Object, status: Object) -> bool:
    """Return whether all pods are updated and available, and there are no old ones."""
    desired = deployment['spec']['replicas']
    counted = {
        status.get(field) or 0 for field in ('updatedReplicas', 'replicas', 'availableReplicas')
    }
    generation = deployment['metadata'].get('generation') or 0
    return counted == {desired} and (status.get('observedGeneration') or 0) >= generation


def has_deadline(deployment: Object) -> bool:
    return deployment['spec'].get('progressDeadlineSeconds') not in (None, UNLIMITED)


def note_progress(
    deployment: Object,
    status: Body,
    new: Object | None,
    failures: Sequence[Object],
    now: datetime.datetime,
) -> list[Body]:
    """Return the conditions of a rollout with its progress."""
    conditions: list[Body] = status['conditions']
    current = _find(conditions, 'Progressing')
    was_complete = (
        status.get('replicas') == status.get('updatedReplicas')
        and (current or {}).get('reason') == AVAILABLE
    )
    if has_deadline(deployment) and not was_complete:
        conditions = _judge_progress(deployment, status, new, now)
    conditions = [item for item in conditions if item['type'] != 'ReplicaFailure']
    if failures:
        moment = pod_states.format_time(now)
        made = build_condition(
            'ReplicaFailure', 'True', failures[0]['reason'], failures[0]['message'], moment
        )
        known = _find(status['conditions'], 'ReplicaFailure')
        conditions = set_condition([*conditions, *([known] if known else [])], made)

    return conditions


def _judge_progress(
    deployment: Object, status: Body, new: Object | None, now: datetime.datetime
) -> list[Body]:
    conditions: list[Body] = status['conditions']
    current = _find(conditions, 'Progressing')
    moment = pod_states.format_time(now)
    title = (
        f'ReplicaSet "{new["metadata"]["name"]}"'
        if new is not None
        else f'Deployment "{deployment["metadata"]["name"]}"'
    )

    if is_complete(deployment, status):
        text = f'{title} has successfully progressed.'
        return set_condition(
            conditions, build_condition('Progressing', 'True', AVAILABLE, text, moment)
        )

    if is_progressing(deployment, status):
        text = f'{title} is progressing.'
        made = build_condition('Progressing', 'True', 'ReplicaSetUpdated', text, moment)
        if current is not None and current['status'] == 'True':
            made['lastTransitionTime'] = current['lastTransitionTime']
        return [*(item for item in conditions if item['type'] != 'Progressing'), made]

    if current is not None and (measure_deadline(deployment, current, now) or 0) < 0:
        text = f'{title} has timed out progressing.'
        return set_condition(
            conditions, build_condition('Progressing', 'False', TIMED_OUT, text, moment)
        )

    return conditions


def is_progressing(deployment: Object, status: Object) -> bool:
    """Return whether more pods are updated, ready or available, or fewer are old, than before."""
    old = deployment.get('status') or {}

    def grows(field: str) -> bool:
        return bool((status.get(field) or 0) > (old.get(field) or 0))

    def count_old(state: Object) -> int:
        return int((state.get('replicas') or 0) - (state.get('updatedReplicas') or 0))

    return any(map(grows, ('updatedReplicas', 'readyReplicas', 'availableReplicas'))) or count_old(
        status
    ) < count_old(old)


def measure_deadline(deployment: Object, current: Object, now: datetime.datetime) -> float | None:
    """Return the seconds to the deadline of the progress; negative if it is over."""
    if current['reason'] == TIMED_OUT:
        return -1.0
    since = pod_states.parse_time(current.get('lastUpdateTime'))
    if current['reason'] == AVAILABLE or since is None:
        return None
    deadline = deployment['spec']['progressDeadlineSeconds']
    return float((since - now).total_seconds() + deadline)


def measure_wait(deployment: Object, status: Object, now: datetime.datetime) -> float | None:
    """Return after how many seconds a rollout must be checked for its deadline, if at all."""
    current = _find(status.get('conditions') or [], 'Progressing')
    if current is None or not has_deadline(deployment) or deployment['spec'].get('paused'):
        return None
    if is_complete(deployment, status) or current['reason'] == TIMED_OUT:
        return None
    left = measure_deadline(deployment, current, now)
    return None if left is None else max(left, 0.0) + 1.0


def note_pause(deployment: Object, now: str) -> list[Body] | None:
    """Return the conditions with the pause or with its end; ``None`` if nothing has changed."""
    conditions = (deployment.get('status') or {}).get('conditions') or []
    current = _find(conditions, 'Progressing')
    is_paused = deployment['spec'].get('paused')
    reason = (current or {}).get('reason')
    if not has_deadline(deployment) or reason == TIMED_OUT or bool(is_paused) == (reason == PAUSED):
        return None

    made = (
        build_condition('Progressing', 'Unknown', PAUSED, 'Deployment is paused', now)
        if is_paused
        else build_condition(
            'Progressing', 'Unknown', 'DeploymentResumed', 'Deployment is resumed', now
        )
    )
    return set_condition(conditions, made)


def _find(conditions: Sequence[Body], type: str) -> Body | None:
    return next((item for item in conditions if item['type'] == type), None)
