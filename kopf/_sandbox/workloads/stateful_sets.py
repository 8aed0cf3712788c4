"""
Stateful sets: pods with stable names and volumes, created and updated in their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import (
    claiming,
    dependents,
    interfaces,
    lookups,
    pod_states,
    replica_sets,
    requesting,
    revisions,
    stateful_plans,
)

Body = dict[str, Any]

COMPONENT = 'statefulset-controller'
HASH = 'controller.kubernetes.io/hash'


async def keep_revision(
    client: requesting.Client, owner: Body, known: Sequence[Body], *, label: str
) -> Body:
    """Return the revision of the current template, as the latest one; create it if needed."""
    latest = max(map(revisions.get_number, known), default=0)
    current = revisions.find_current(owner, known)
    if current is None:
        made = revisions.build_revision(owner, latest + 1, label=label)
        return await client.create(lookups.REVISIONS, made)

    if revisions.get_number(current) == latest:
        return current

    changed = await client.change(
        lookups.REVISIONS, current, lambda obj: obj.update(revision=latest + 1)
    )
    return changed or current


class StatefulSetController:
    """Keeps the pods of stateful sets, their claims and revisions."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client(COMPONENT)
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.STATEFUL_SETS:
            return [change.new.key]
        if change.home != lookups.PODS:
            return []
        return replica_sets.find_pod_owners(change, 'StatefulSet', self._context.lookup)

    async def reconcile(self, key: str) -> float | None:
        lookup = self._context.lookup
        body = lookup.get(lookups.STATEFUL_SETS, key)
        if body is None or pod_states.is_leaving(body):
            return None

        await claiming.claim(lookup, self._client, body, lookups.PODS)
        known = lookup.list_controlled(body['metadata']['uid'], lookups.REVISIONS)
        updated = await keep_revision(self._client, body, known, label=HASH)
        name = updated['metadata']['name']
        current = (body.get('status') or {}).get('currentRevision') or name
        templates = {item['metadata']['name']: item for item in [*known, updated]}
        situation = self._look(body, current, name)
        failure = await self._act(situation, templates)
        situation = self._look(body, current, name)
        status = stateful_plans.build_status(situation)
        await self._client.set_status(lookups.STATEFUL_SETS, body, status)
        if failure is not None:
            raise failure

        used = {current, name, *map(revisions.get_pod_revision, situation.pods.values())}
        limit = body['spec'].get('revisionHistoryLimit')
        for item in revisions.choose_obsolete(body, known, used, limit):
            await self._client.delete(lookups.REVISIONS, item)
        pods = list(situation.pods.values())
        min_ready = body['spec'].get('minReadySeconds') or 0
        return pod_states.find_next_availability(pods, min_ready, situation.now)

    def _look(self, body: Body, current: str, updated: str) -> stateful_plans.Situation:
        uid = body['metadata']['uid']
        pods = {
            ordinal: pod
            for pod in self._context.lookup.list_controlled(uid, lookups.PODS)
            if (ordinal := stateful_plans.find_ordinal(body, pod)) is not None
        }
        return stateful_plans.Situation(body, pods, current, updated, self._context.now())

    async def _act(
        self, situation: stateful_plans.Situation, templates: Mapping[str, Body]
    ) -> errors.ApiError | None:
        """Create and delete pods; return the refusal of a creation."""
        plan = stateful_plans.plan(situation)
        body = situation.stateful_set
        for pod in plan.deletions:
            await self._delete(situation, pod)
        for ordinal in plan.creations:
            revision = stateful_plans.choose_revision(situation, ordinal)
            found = templates.get(revision)
            template = body['spec']['template'] if found is None else revisions.get_template(found)
            pod = stateful_plans.build_pod(body, ordinal, template, revision)
            try:
                await self._create(body, pod)
            except errors.ApiError as e:
                text = (
                    f'create Pod {pod["metadata"]["name"]} in StatefulSet '
                    f'{body["metadata"]["name"]} failed error: {e.message}'
                )
                await self._recorder.warn(body, 'FailedCreate', text)
                return e

        return None

    async def _create(self, body: Body, pod: Body) -> None:
        name = body['metadata']['name']
        namespace = body['metadata']['namespace']
        title = pod['metadata']['name']

        for claim in stateful_plans.build_claims(body, pod):
            claim_name = claim['metadata']['name']
            key = memory.make_key(namespace, claim_name)
            if self._context.lookup.get(lookups.CLAIMS, key) is None:
                await self._client.create(lookups.CLAIMS, claim)
                text = f'Create Claim {claim_name} Pod {title} in StatefulSet {name} success'
                await self._recorder.normal(body, 'SuccessfulCreate', text)

        await self._client.create(lookups.PODS, pod)
        text = f'Create Pod {title} in StatefulSet {name} successful'
        await self._recorder.normal(body, 'SuccessfulCreate', text)

    async def _delete(self, situation: stateful_plans.Situation, pod: Body) -> None:
        body = situation.stateful_set
        ordinal = stateful_plans.find_ordinal(body, pod)
        if ordinal not in situation.ordinals:
            await self._give_claims_away(body, pod)
        if await self._client.delete(lookups.PODS, pod):
            title = pod['metadata']['name']
            name = body['metadata']['name']
            text = f'Delete Pod {title} in StatefulSet {name} successful'
            await self._recorder.normal(body, 'SuccessfulDelete', text)

    async def _give_claims_away(self, body: Body, pod: Body) -> None:
        """Let the claims of a surplus pod be deleted with it, if the policy says so."""
        policy = body['spec'].get('persistentVolumeClaimRetentionPolicy') or {}
        if policy.get('whenScaled') != 'Delete':
            return

        reference = dependents.build_reference(pod)
        for wanted in stateful_plans.build_claims(body, pod):
            key = memory.make_key(body['metadata']['namespace'], wanted['metadata']['name'])
            claim = self._context.lookup.get(lookups.CLAIMS, key)
            if claim is not None:
                await self._client.change(
                    lookups.CLAIMS,
                    claim,
                    lambda obj: obj['metadata'].update(ownerReferences=[reference]),
                )
