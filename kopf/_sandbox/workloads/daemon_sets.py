"""
Daemon sets: a pod on each node that fits.
"""

from collections.abc import Iterable
from typing import Any

from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import (
    claiming,
    daemon_plans,
    interfaces,
    lookups,
    pod_states,
    replica_sets,
    revisions,
    stateful_sets,
)

Body = dict[str, Any]

COMPONENT = 'daemonset-controller'


class DaemonSetController:
    """Keeps the pods of daemon sets, and their revisions."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('daemon-set-controller')
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.DAEMON_SETS:
            return [change.new.key]
        if change.home == lookups.NODES:
            return self._context.lookup.list_keys(lookups.DAEMON_SETS)
        if change.home != lookups.PODS:
            return []
        return replica_sets.find_pod_owners(change, 'DaemonSet', self._context.lookup)

    async def reconcile(self, key: str) -> float | None:
        lookup = self._context.lookup
        body = lookup.get(lookups.DAEMON_SETS, key)
        if body is None or pod_states.is_leaving(body):
            return None

        await claiming.claim(lookup, self._client, body, lookups.PODS)
        known = lookup.list_controlled(body['metadata']['uid'], lookups.REVISIONS)
        current = await stateful_sets.keep_revision(
            self._client, body, known, label=revisions.LABEL
        )
        digest = current['metadata']['labels'][revisions.LABEL]
        situation = self._look(body, digest)
        failure = await self._act(situation)
        situation = self._look(body, digest)
        status = daemon_plans.build_status(situation)
        await self._client.set_status(lookups.DAEMON_SETS, body, status)
        if failure is not None:
            raise failure

        pods = [pod for items in situation.pods.values() for pod in items]
        digests = {digest, *map(revisions.get_pod_revision, pods)}
        used = {f'{body["metadata"]["name"]}-{item}' for item in digests}
        limit = body['spec'].get('revisionHistoryLimit')
        for item in revisions.choose_obsolete(body, known, used, limit):
            await self._client.delete(lookups.REVISIONS, item)
        min_ready = body['spec'].get('minReadySeconds') or 0
        return pod_states.find_next_availability(pods, min_ready, situation.now)

    def _look(self, body: Body, digest: str) -> daemon_plans.Situation:
        pods: dict[str, list[Body]] = {}
        for pod in self._context.lookup.list_controlled(body['metadata']['uid'], lookups.PODS):
            pods.setdefault(daemon_plans.find_node(pod), []).append(pod)
        nodes = self._context.lookup.select(lookups.NODES)
        return daemon_plans.Situation(body, pods, nodes, digest, self._context.now())

    async def _act(self, situation: daemon_plans.Situation) -> errors.ApiError | None:
        """Create and delete pods; return the refusal of a creation."""
        plan = daemon_plans.plan(situation)
        body = situation.daemon_set
        for pod in plan.deletions:
            if await self._client.delete(lookups.PODS, pod):
                text = f'Deleted pod: {pod["metadata"]["name"]}'
                await self._recorder.normal(body, 'SuccessfulDelete', text)

        for node in plan.creations:
            pod = daemon_plans.build_pod(body, node, situation.digest)
            try:
                made = await self._client.create(lookups.PODS, pod)
            except errors.ApiError as e:
                await self._recorder.warn(body, 'FailedCreate', f'Error creating: {e.message}')
                return e
            text = f'Created pod: {made["metadata"]["name"]}'
            await self._recorder.normal(body, 'SuccessfulCreate', text)

        return None
