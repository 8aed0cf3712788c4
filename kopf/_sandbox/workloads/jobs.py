"""
Jobs: pods that run until enough of them have succeeded.

Ended pods are counted exactly once, by their finalizers: a pod is noted in the status, released,
and then counted.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import (
    claiming,
    indexes,
    interfaces,
    job_plans,
    lookups,
    pod_states,
    replica_sets,
)

Body = dict[str, Any]

COMPONENT = 'job-controller'
FINISHED = ('Complete', 'Failed')


class JobController:
    """Runs the pods of jobs, counts them, and deletes finished jobs when their time is over."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client(COMPONENT)
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.JOBS:
            return [change.new.key]
        if change.home != lookups.PODS:
            return []
        return replica_sets.find_pod_owners(change, 'Job', self._context.lookup)

    async def reconcile(self, key: str) -> float | None:
        job = self._context.lookup.get(lookups.JOBS, key)
        if job is None:
            await self._release_orphans(key)
            return None

        pods = await claiming.claim(self._context.lookup, self._client, job, lookups.PODS)
        if find_finish(job) is not None:
            await self._release(pods)
            return await self._expire(job)

        if pod_states.is_leaving(job):
            await self._release([pod for pod in pods if not pod_states.is_active(pod)])
            return None

        now = self._context.now()
        job = await self._begin(job)
        counted = job_plans.tally(job, pods)
        failure = job_plans.find_failure(job, counted, now)
        if failure is not None:
            return await self._fail(job, pods, counted, failure)

        plan = job_plans.plan(job, counted, pods, now)
        await self._delete(job, plan.deletions)
        for index in plan.creations:
            failures = job_plans.count_index_failures(job, pods).get(index or 0, 0)
            made = await self._client.create(
                lookups.PODS, job_plans.build_pod(job, index, failures)
            )
            text = f'Created pod: {made["metadata"]["name"]}'
            await self._recorder.normal(job, 'SuccessfulCreate', text)

        await self._count(job, conclude=job_plans.is_complete(job, counted))
        waits = [plan.wait, self._measure_deadline(job)]
        return min((wait for wait in waits if wait is not None), default=None)

    async def _begin(self, job: Body) -> Body:
        """Note the start, the suspension, or the resumption."""
        status = job.get('status') or {}
        now = self._format_now()
        known = pod_states.find_condition(job, 'Suspended') or {}
        is_suspended = bool(job['spec'].get('suspend'))
        made: Body = {**status}

        if is_suspended != (known.get('status') == 'True'):
            made['conditions'] = set_condition(job, _describe_suspension(is_suspended, now))
            reason, text = (
                ('Suspended', 'Job suspended') if is_suspended else ('Resumed', 'Job resumed')
            )
            await self._recorder.normal(job, reason, text)

        is_restarted = not is_suspended and known.get('status') == 'True'
        if not is_suspended and (is_restarted or not status.get('startTime')):
            made['startTime'] = now
        return await self._client.set_status(lookups.JOBS, job, made) or job

    async def _fail(
        self,
        job: Body,
        pods: Sequence[Body],
        counted: job_plans.Tally,
        failure: tuple[str, str],
    ) -> float | None:
        """End a job: first its pods, and then itself."""
        if not pod_states.is_true(job, 'FailureTarget'):
            made = build_condition('FailureTarget', *failure, self._format_now())
            status = {**(job.get('status') or {}), 'conditions': set_condition(job, made)}
            job = await self._client.set_status(lookups.JOBS, job, status) or job

        await self._delete(job, counted.active)
        await self._count(job, failure=failure)
        return None

    async def _delete(self, job: Body, pods: Sequence[Body]) -> None:
        for pod in pods:
            if await self._client.delete(lookups.PODS, pod):
                text = f'Deleted pod: {pod["metadata"]["name"]}'
                await self._recorder.normal(job, 'SuccessfulDelete', text)

    async def _count(
        self, job: Body, *, conclude: bool = False, failure: tuple[str, str] | None = None
    ) -> None:
        """Count the ended pods; conclude the job if it is over."""
        pods = await self._forgive(job)
        counted = job_plans.tally(job, pods)
        ended = [pod for pod in pods if has_ended(job, pod)]

        if ended:
            noted = {
                **build_status(job, counted),
                'succeeded': 0,
                'failed': 0,
                **_pick_counts(job),
                'uncountedTerminatedPods': _list_uids(ended),
            }
            await self._client.set_status(lookups.JOBS, job, noted)
            await self._release(ended)

        status = build_status(job, counted)
        is_over = not counted.active and (not counted.terminating or failure is None)
        if is_over and (conclude or failure is not None):
            status = await self._conclude(job, status, failure)
        await self._client.set_status(lookups.JOBS, job, status)

    async def _forgive(self, job: Body) -> list[Body]:
        """Return the pods of a job; those deleted because of its suspension do not count."""
        pods = self._context.lookup.list_controlled(job['metadata']['uid'], lookups.PODS)
        if not job['spec'].get('suspend'):
            return pods
        await self._release([pod for pod in pods if pod_states.is_leaving(pod)])
        return [pod for pod in pods if not pod_states.is_leaving(pod)]

    async def _conclude(self, job: Body, status: Body, failure: tuple[str, str] | None) -> Body:
        now = self._format_now()
        if failure is not None:
            await self._recorder.warn(job, *failure)
            made = build_condition('Failed', *failure, now)
            return {**status, 'conditions': set_condition({'status': status}, made)}

        await self._recorder.normal(job, 'Completed', 'Job completed')
        for type in ('SuccessCriteriaMet', 'Complete'):
            made = build_condition(type, *job_plans.DONE, now)
            status = {**status, 'conditions': set_condition({'status': status}, made)}

        return {**status, 'completionTime': now}

    async def _release(self, pods: Sequence[Body]) -> None:
        for pod in pods:
            if job_plans.is_tracked(pod):
                await self._client.change(lookups.PODS, pod, _untrack)

    async def _release_orphans(self, key: str) -> None:
        """Release the pods of a job that does not exist anymore."""
        namespace, _, name = key.rpartition('/')
        for pod in self._context.lookup.select(lookups.PODS, namespace):
            kind, _, owner = lookups.get_controller(pod)
            if job_plans.is_tracked(pod) and kind in ('', 'Job') and owner in ('', name):
                await self._client.change(lookups.PODS, pod, _untrack)

    async def _expire(self, job: Body) -> float | None:
        """Delete a finished job when its time is over; return the seconds until that."""
        finish = find_finish(job)
        ttl = job['spec'].get('ttlSecondsAfterFinished')
        since = pod_states.parse_time((finish or {}).get('lastTransitionTime'))
        if ttl is None or since is None or pod_states.is_leaving(job):
            return None

        left = (since - self._context.now()).total_seconds() + ttl
        if left > 0:
            return float(left)

        await self._client.delete(lookups.JOBS, job)
        return None

    def _measure_deadline(self, job: Body) -> float | None:
        deadline = job['spec'].get('activeDeadlineSeconds')
        since = pod_states.parse_time((job.get('status') or {}).get('startTime'))
        if deadline is None or since is None or job['spec'].get('suspend'):
            return None
        return max(0.0, float((since - self._context.now()).total_seconds() + deadline))

    def _format_now(self) -> str:
        return pod_states.format_time(self._context.now())


def has_ended(job: Body, pod: Body) -> bool:
    """Return whether a pod must be counted."""
    is_over = job_plans.has_succeeded(pod) or job_plans.has_failed(job, pod)
    return job_plans.is_tracked(pod) and is_over


def _pick_counts(job: Body) -> Body:
    status = job.get('status') or {}
    return {key: status[key] for key in ('succeeded', 'failed') if key in status}


def find_finish(job: Body) -> Body | None:
    """Return the condition by which a job has finished, if it has."""
    conditions = (job.get('status') or {}).get('conditions') or ()
    return next(
        (item for item in conditions if item['type'] in FINISHED and item['status'] == 'True'),
        None,
    )


def build_status(job: Body, counted: job_plans.Tally) -> Body:
    """Build the status of a job, with its pods counted."""
    old = job.get('status') or {}
    counts = {
        'active': len(counted.active),
        'succeeded': counted.succeeded,
        'failed': counted.failed,
    }
    status: Body = {
        **{key: old[key] for key in ('conditions', 'startTime', 'completionTime') if key in old},
        **pod_states.drop_zeros(counts),
        'ready': counted.ready,
        'terminating': counted.terminating,
        'uncountedTerminatedPods': {},
    }
    if counted.completed:
        status['completedIndexes'] = indexes.format_indexes(counted.completed)
    if job['spec'].get('backoffLimitPerIndex') is not None:
        status['failedIndexes'] = indexes.format_indexes(counted.given_up)
    return status


def build_condition(type: str, reason: str, message: str, now: str, status: str = 'True') -> Body:
    return {
        'type': type,
        'status': status,
        'lastProbeTime': now,
        'lastTransitionTime': now,
        'reason': reason,
        'message': message,
    }


def _describe_suspension(is_suspended: bool, now: str) -> Body:
    if is_suspended:
        return build_condition('Suspended', 'JobSuspended', 'Job suspended', now)
    return build_condition('Suspended', 'JobResumed', 'Job resumed', now, 'False')


def set_condition(job: Body, made: Body) -> list[Body]:
    """Return the conditions with one of them set, at its place."""
    conditions = (job.get('status') or {}).get('conditions') or []
    if any(item['type'] == made['type'] for item in conditions):
        return [made if item['type'] == made['type'] else item for item in conditions]
    return [*conditions, made]


def _list_uids(pods: Sequence[Body]) -> Body:
    uids: dict[str, list[str]] = {'succeeded': [], 'failed': []}
    for pod in pods:
        is_good = job_plans.has_succeeded(pod)
        uids['succeeded' if is_good else 'failed'].append(pod['metadata']['uid'])
    return {key: items for key, items in uids.items() if items}


def _untrack(pod: Body) -> None:
    finalizers = pod['metadata'].pop('finalizers', None) or []
    kept = [name for name in finalizers if name != job_plans.FINALIZER]
    pod['metadata'].update({'finalizers': kept} if kept else {})
