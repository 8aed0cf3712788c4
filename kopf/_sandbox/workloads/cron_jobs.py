"""
Cron jobs: jobs started by the clock.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kopf._sandbox.meta import errors
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import cron_plans, interfaces, jobs, lookups, pod_states

Body = dict[str, Any]

COMPONENT = 'cronjob-controller'


class CronJobController:
    """Starts the jobs of cron jobs, and deletes the old ones."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client(COMPONENT)
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.CRON_JOBS:
            return [change.new.key]
        if change.home != lookups.JOBS:
            return []
        key = lookups.find_controller_key(change, 'CronJob')
        return [key] if key else []

    async def reconcile(self, key: str) -> float | None:
        body = self._context.lookup.get(lookups.CRON_JOBS, key)
        if body is None or pod_states.is_leaving(body):
            return None

        body = await self._note_finished(body)
        plan = cron_plans.plan(body, self._list_jobs(body), self._context.now())
        if plan.has_many:
            text = (
                'too many missed start times. Set or decrease '
                '.spec.startingDeadlineSeconds or check clock skew'
            )
            await self._recorder.warn(body, 'TooManyMissedTimes', text)

        if plan.missed:
            post = self._recorder.warn if plan.missed == 'MissSchedule' else self._recorder.normal
            await post(body, plan.missed, plan.message)

        for job in plan.replaced:
            await self._delete(body, job)
        if plan.start is not None:
            await self._start(body, plan)
        for job in cron_plans.choose_obsolete(body, self._list_jobs(body)):
            await self._delete(body, job)
        return plan.wait

    def _list_jobs(self, body: Body) -> list[Body]:
        uid = body['metadata']['uid']
        return self._context.lookup.list_controlled(uid, lookups.JOBS)

    async def _note_finished(self, body: Body) -> Body:
        """Update the status by the jobs that have finished or disappeared."""
        status = body.get('status') or {}
        owned = {job['metadata']['uid']: job for job in self._list_jobs(body)}
        active = []

        for reference in status.get('active') or ():
            job = owned.get(reference['uid'])
            finish = None if job is None else jobs.find_finish(job)
            if job is not None and finish is not None:
                text = f'Saw completed job: {reference["name"]}, condition: {finish["type"]}'
                await self._recorder.normal(body, 'SawCompletedJob', text)
            elif job is not None:
                active.append(reference)

        ends = [(job.get('status') or {}).get('completionTime') or '' for job in owned.values()]
        last = max([*ends, status.get('lastSuccessfulTime') or ''])
        made = {**status, 'active': active, 'lastSuccessfulTime': last}
        made = {key: value for key, value in made.items() if value}

        return await self._client.set_status(lookups.CRON_JOBS, body, made) or body

    async def _start(self, body: Body, plan: cron_plans.Plan) -> None:
        assert plan.start is not None, 'there is a moment to start'
        wanted = cron_plans.build_job(body, plan.start)
        key = memory.make_key(body['metadata']['namespace'], wanted['metadata']['name'])
        job = self._context.lookup.get(lookups.JOBS, key)

        if job is None:
            try:
                job = await self._client.create(lookups.JOBS, wanted)
            except errors.ApiError as e:
                text = f'Error creating job: {e.message}'
                await self._recorder.warn(body, 'FailedCreate', text)
                raise
            text = f'Created job {job["metadata"]["name"]}'
            await self._recorder.normal(body, 'SuccessfulCreate', text)

        active = [] if plan.replaced else (body.get('status') or {}).get('active') or []
        status = {
            **(body.get('status') or {}),
            'active': _add(active, cron_plans.build_reference(job)),
            'lastScheduleTime': pod_states.format_time(plan.start),
        }
        await self._client.set_status(lookups.CRON_JOBS, body, status)

    async def _delete(self, body: Body, job: Body) -> None:
        if await self._client.delete(lookups.JOBS, job):
            text = f'Deleted job {job["metadata"]["name"]}'
            await self._recorder.normal(body, 'SuccessfulDelete', text)


def _add(active: Sequence[Body], reference: Body) -> list[Body]:
    return [*(item for item in active if item['uid'] != reference['uid']), reference]
