"""
Deployments: replica sets of the past and present templates, and the rollouts between them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import (
    claiming,
    interfaces,
    lookups,
    pod_states,
    rollout_status,
    rollouts,
)

Body = dict[str, Any]

COMPONENT = 'deployment-controller'


class DeploymentController:
    """Rolls deployments out, scales them, and reports on them."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client(COMPONENT)
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.DEPLOYMENTS:
            return [change.new.key]

        if change.home == lookups.REPLICA_SETS:
            key = lookups.find_controller_key(change, 'Deployment')
            if key or b'"controller":true' in change.new.raw:
                return [key] if key else []
            return self._context.lookup.list_keys(lookups.DEPLOYMENTS, change.new.namespace)

        if change.home == lookups.PODS and change.type == 'DELETED':
            return self._find_recreated(change)
        return []

    def _find_recreated(self, change: memory.Change) -> list[str]:
        """Return the deployment of a deleted pod: it may wait for that to create new ones."""
        key = lookups.find_controller_key(change, 'ReplicaSet')
        owner = self._context.lookup.get(lookups.REPLICA_SETS, key) if key else None
        kind, _, name = lookups.get_controller(owner or lookups.NOTHING)
        return [memory.make_key(change.new.namespace, name)] if kind == 'Deployment' else []

    async def reconcile(self, key: str) -> float | None:
        deployment = self._context.lookup.get(lookups.DEPLOYMENTS, key)
        if deployment is None:
            return None

        sets = await claiming.claim(
            self._context.lookup, self._client, deployment, lookups.REPLICA_SETS
        )
        if pod_states.is_leaving(deployment):
            return await self._report(deployment, sets, is_rollout=False)

        conditions = rollout_status.note_pause(deployment, self._format_now())
        if conditions is not None:
            status = {**(deployment.get('status') or {}), 'conditions': conditions}
            changed = await self._client.set_status(lookups.DEPLOYMENTS, deployment, status)
            deployment = changed or deployment

        if deployment['spec'].get('paused') or rollouts.is_scaled(deployment, sets):
            return await self._resize(deployment, sets)
        if rollouts.is_rolling(deployment):
            return await self._roll(deployment, sets)
        return await self._recreate(deployment, sets)

    async def _resize(self, deployment: Body, sets: Sequence[Body]) -> float | None:
        """Scale a deployment without rolling it out."""
        new, deployment = await self._sync_new(deployment, sets, is_creating=False)
        olds = [item for item in sets if new is None or not is_same(item, new)]
        for scaling in rollouts.plan_scaling(deployment, new, olds):
            await self._scale(deployment, scaling)
        if deployment['spec'].get('paused'):
            await self._clean_up(deployment, olds)
        return await self._report(deployment, sets, is_rollout=False)

    async def _roll(self, deployment: Body, sets: Sequence[Body]) -> float | None:
        new, deployment = await self._sync_new(deployment, sets, is_creating=True)
        assert new is not None, 'it is created if it does not exist'
        olds = [item for item in sets if not is_same(item, new)]
        size = new['spec'].get('replicas') or 0
        wanted = rollouts.choose_new_size(deployment, [*olds, new], size)

        if wanted != size:
            await self._scale(deployment, rollouts.Scaling(new, wanted))
        else:
            for scaling in rollouts.plan_old_sizes(deployment, new, olds):
                await self._scale(deployment, scaling)

        return await self._conclude(deployment, olds)

    async def _recreate(self, deployment: Body, sets: Sequence[Body]) -> float | None:
        """Start the new pods when all old ones are gone."""
        new, deployment = await self._sync_new(deployment, sets, is_creating=False)
        olds = [item for item in sets if new is None or not is_same(item, new)]
        active = [item for item in olds if item['spec'].get('replicas')]
        for item in active:
            await self._scale(deployment, rollouts.Scaling(item, 0))
        if active or self._have_pods(olds):
            return await self._report(deployment, sets, is_rollout=True)

        if new is None:
            new, deployment = await self._sync_new(deployment, sets, is_creating=True)
        assert new is not None, 'it is created if it does not exist'
        if (new['spec'].get('replicas') or 0) != deployment['spec']['replicas']:
            scaling = rollouts.Scaling(new, deployment['spec']['replicas'])
            await self._scale(deployment, scaling)

        return await self._conclude(deployment, olds)

    def _have_pods(self, olds: Sequence[Body]) -> bool:
        return any(
            pod_states.get_phase(pod) not in pod_states.ENDED
            for item in olds
            for pod in self._context.lookup.list_controlled(item['metadata']['uid'], lookups.PODS)
        )

    async def _conclude(self, deployment: Body, olds: Sequence[Body]) -> float | None:
        if rollout_status.is_complete(deployment, deployment.get('status') or {}):
            await self._clean_up(deployment, olds)
        uid = deployment['metadata']['uid']
        sets = self._context.lookup.list_controlled(uid, lookups.REPLICA_SETS)
        return await self._report(deployment, sets, is_rollout=True)

    async def _clean_up(self, deployment: Body, olds: Sequence[Body]) -> None:
        for item in rollouts.choose_obsolete(deployment, olds):
            await self._client.delete(lookups.REPLICA_SETS, item)

    async def _sync_new(
        self, deployment: Body, sets: Sequence[Body], *, is_creating: bool
    ) -> tuple[Body | None, Body]:
        """Find or create the replica set of the current template; note its revision on both."""
        new = rollouts.find_new(deployment, sets)
        olds = [item for item in sets if new is None or not is_same(item, new)]
        revision = max(map(rollouts.get_revision, olds), default=0) + 1
        if new is None and not is_creating:
            return None, deployment

        if new is None:
            new, deployment = await self._create(deployment, olds, revision)
        else:
            new = await self._annotate(deployment, new, revision)

        text = (new['metadata'].get('annotations') or {}).get(rollouts.REVISION) or str(revision)
        return new, await self._note_revision(deployment, new, text)

    async def _annotate(self, deployment: Body, new: Body, revision: int) -> Body:
        def change(obj: Body) -> None:
            rollouts.annotate(obj, deployment, revision)
            if deployment['spec'].get('minReadySeconds'):
                obj['spec']['minReadySeconds'] = deployment['spec']['minReadySeconds']
            else:
                obj['spec'].pop('minReadySeconds', None)

        return await self._client.change(lookups.REPLICA_SETS, new, change) or new

    async def _create(
        self, deployment: Body, olds: Sequence[Body], revision: int
    ) -> tuple[Body, Body]:
        size = rollouts.choose_new_size(deployment, olds, 0)
        made = rollouts.build_replica_set(deployment, size, revision)
        name = made['metadata']['name']

        try:
            new = await self._client.create(lookups.REPLICA_SETS, made)
        except errors.ApiError as e:
            await self._note_refusal(deployment, e)
            raise

        if size:
            text = f'Scaled up replica set {name} from 0 to {size}'
            await self._recorder.normal(deployment, 'ScalingReplicaSet', text)

        text = f'Created new replica set "{name}"'
        status = self._with_condition(deployment, 'True', 'NewReplicaSetCreated', text)
        changed = await self._client.set_status(lookups.DEPLOYMENTS, deployment, status)

        return new, changed or deployment

    async def _note_refusal(self, deployment: Body, refusal: errors.ApiError) -> None:
        """Report that a replica set cannot be created; if its name is taken, try another one."""
        if refusal.reason == 'AlreadyExists':
            old = deployment.get('status') or {}
            status = {**old, 'collisionCount': (old.get('collisionCount') or 0) + 1}
        else:
            text = f'Failed to create new replica set: {refusal.message}'
            await self._recorder.warn(deployment, 'ReplicaSetCreateError', text)
            status = self._with_condition(
                deployment, 'False', 'ReplicaSetCreateError', refusal.message
            )

        await self._client.set_status(lookups.DEPLOYMENTS, deployment, status)

    async def _note_revision(self, deployment: Body, new: Body, revision: str) -> Body:
        known = (deployment['metadata'].get('annotations') or {}).get(rollouts.REVISION)
        status = deployment.get('status') or {}
        if rollout_status.has_deadline(deployment) and not any(
            item['type'] == 'Progressing' for item in status.get('conditions') or ()
        ):
            text = f'Found new replica set "{new["metadata"]["name"]}"'
            status = self._with_condition(deployment, 'True', 'FoundNewReplicaSet', text)

        if known == revision and status == (deployment.get('status') or {}):
            return deployment

        def change(obj: Body) -> None:
            obj['metadata'].setdefault('annotations', {})[rollouts.REVISION] = revision
            obj['status'] = status

        changed = await self._client.change(
            lookups.DEPLOYMENTS, deployment, change, subresource='status'
        )
        return changed or deployment

    def _with_condition(self, deployment: Body, status: str, reason: str, text: str) -> Body:
        """Return the status of a deployment with its progress, if that is reported at all."""
        known = deployment.get('status') or {}
        if not rollout_status.has_deadline(deployment):
            return known

        made = rollout_status.build_condition(
            'Progressing', status, reason, text, self._format_now()
        )
        return {
            **known,
            'conditions': rollout_status.set_condition(known.get('conditions') or [], made),
        }

    async def _scale(self, deployment: Body, scaling: rollouts.Scaling) -> None:
        before = scaling.replica_set['spec'].get('replicas') or 0

        def change(obj: Body) -> None:
            obj['spec']['replicas'] = scaling.replicas
            rollouts.annotate_size(obj, deployment)

        await self._client.change(lookups.REPLICA_SETS, scaling.replica_set, change)
        if before != scaling.replicas:
            direction = 'up' if before < scaling.replicas else 'down'
            name = scaling.replica_set['metadata']['name']
            text = f'Scaled {direction} replica set {name} from {before} to {scaling.replicas}'
            await self._recorder.normal(deployment, 'ScalingReplicaSet', text)

    async def _report(
        self, deployment: Body, sets: Sequence[Body], *, is_rollout: bool
    ) -> float | None:
        """Update the status; return when to check the deadline of the progress."""
        now = self._context.now()
        new = rollouts.find_new(deployment, sets)
        counts = rollout_status.build_counts(deployment, new, sets)
        conditions = rollout_status.note_availability(deployment, counts, self._format_now())
        status = {**counts, 'conditions': conditions}

        if is_rollout:
            failures = [
                condition
                for item in ([new] if new else []) + list(sets)
                if (condition := pod_states.find_condition(item, 'ReplicaFailure'))
            ]
            status['conditions'] = rollout_status.note_progress(
                deployment, status, new, failures, now
            )

        await self._client.set_status(lookups.DEPLOYMENTS, deployment, status)
        return rollout_status.measure_wait(deployment, status, now)

    def _format_now(self) -> str:
        return pod_states.format_time(self._context.now())


def is_same(one: Body, another: Body) -> bool:
    """Return whether these are states of the same object."""
    return bool(one['metadata']['uid'] == another['metadata']['uid'])
