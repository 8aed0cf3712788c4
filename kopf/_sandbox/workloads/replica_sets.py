"""
Replica sets: as many pods of a template as requested.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import claiming, dependents, interfaces, lookups, pod_states

Body = dict[str, Any]

COMPONENT = 'replicaset-controller'
BURST = 500
"""The number of pods to create or delete at once."""


class ReplicaSetController:
    """Creates and deletes pods of replica sets, and counts them."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client(COMPONENT)
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.REPLICA_SETS:
            return [change.new.key]
        if change.home != lookups.PODS:
            return []
        return find_pod_owners(change, 'ReplicaSet', self._context.lookup)

    async def reconcile(self, key: str) -> float | None:
        lookup = self._context.lookup
        now = self._context.now()
        replica_set = lookup.get(lookups.REPLICA_SETS, key)
        if replica_set is None:
            return None

        claimed = await claiming.claim(lookup, self._client, replica_set, lookups.PODS)
        active = [pod for pod in claimed if pod_states.is_active(pod)]
        failure = None

        if not pod_states.is_leaving(replica_set):
            failure = await self._scale(replica_set, active)
            claimed = lookup.list_controlled(replica_set['metadata']['uid'], lookups.PODS)

        status = build_status(replica_set, claimed, failure, pod_states.format_time(now))
        await self._client.set_status(lookups.REPLICA_SETS, replica_set, status)
        if failure is not None:
            raise failure

        min_ready = replica_set['spec'].get('minReadySeconds') or 0
        return pod_states.find_next_availability(claimed, min_ready, now)

    async def _scale(self, replica_set: Body, active: Sequence[Body]) -> errors.ApiError | None:
        """Create or delete pods; return the refusal of a creation."""
        missing = replica_set['spec']['replicas'] - len(active)
        try:
            for _ in range(min(missing, BURST)):
                await self._create(replica_set)
        except errors.ApiError as e:
            await self._recorder.warn(replica_set, 'FailedCreate', f'Error creating: {e.message}')
            return e

        for pod in choose_surplus(active, -missing)[:BURST]:
            if await self._client.delete(lookups.PODS, pod):
                text = f'Deleted pod: {pod["metadata"]["name"]}'
                await self._recorder.normal(replica_set, 'SuccessfulDelete', text)

        return None

    async def _create(self, replica_set: Body) -> None:
        pod = dependents.build_pod(replica_set, replica_set['spec'].get('template') or {})
        made = await self._client.create(lookups.PODS, pod)
        text = f'Created pod: {made["metadata"]["name"]}'
        await self._recorder.normal(replica_set, 'SuccessfulCreate', text)


def find_pod_owners(change: memory.Change, kind: str, lookup: lookups.Lookup) -> list[str]:
    """Return the controllers to which a pod belongs, or may belong if it has none."""
    if b'"controller":true' in change.new.raw:
        key = lookups.find_controller_key(change, kind)
        return [key] if key else []

    before = change.old is not None and b'"controller":true' in change.old.raw
    if change.new.labels or before:
        return lookup.list_keys(lookups.KINDS[kind], change.new.namespace)
    return []


def choose_surplus(active: Sequence[Body], count: int) -> list[Body]:
    """Choose the pods to delete."""
    if count <= 0:
        return []
    return pod_states.sort_for_deletion(active, dependents.count_by_node(active))[:count]


def build_status(
    replica_set: Body, pods: Sequence[Body], failure: errors.ApiError | None, now: str
) -> Body:
    """Count the pods of a replica set."""
    spec = replica_set['spec']
    old = replica_set.get('status') or {}
    labels = ((spec.get('template') or {}).get('metadata') or {}).get('labels') or {}
    active = [pod for pod in pods if pod_states.is_active(pod)]
    moment = pod_states.parse_time(now)
    assert moment is not None, 'the time is formatted'
    ready = [pod for pod in active if pod_states.is_ready(pod)]
    min_ready = spec.get('minReadySeconds') or 0
    counts = {
        'fullyLabeledReplicas': sum(
            labels.items() <= (pod['metadata'].get('labels') or {}).items() for pod in active
        ),
        'readyReplicas': len(ready),
        'availableReplicas': sum(pod_states.is_available(pod, min_ready, moment) for pod in ready),
    }
    status = {
        'replicas': len(active),
        **pod_states.drop_zeros(counts),
        'terminatingReplicas': sum(
            pod_states.is_leaving(pod) and pod_states.get_phase(pod) not in pod_states.ENDED
            for pod in pods
        ),
        'observedGeneration': replica_set['metadata'].get('generation') or 0,
    }
    conditions = _update_failure(old.get('conditions') or [], failure, now)

    return {**status, **({'conditions': conditions} if conditions else {})}


def _update_failure(
    conditions: Sequence[Body], failure: errors.ApiError | None, now: str
) -> list[Body]:
    known = next((item for item in conditions if item['type'] == 'ReplicaFailure'), None)
    others = [item for item in conditions if item['type'] != 'ReplicaFailure']
    if failure is None:
        return others

    made = {
        'type': 'ReplicaFailure',
        'status': 'True',
        'reason': 'FailedCreate',
        'message': failure.message,
        'lastTransitionTime': now,
    }
    return [*others, known or made]
