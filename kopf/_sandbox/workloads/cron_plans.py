"""
Cron plans: when a cron job starts its next job, and which finished ones it keeps. All pure.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, jobs, pod_states, schedules

Body = dict[str, Any]
Object = Mapping[str, Any]

SCHEDULED = 'batch.kubernetes.io/cronjob-scheduled-timestamp'
TOO_MANY = 100


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do now: start the job of a moment, after deleting others; and when to look again."""

    start: datetime.datetime | None = None
    replaced: Sequence[Body] = ()
    missed: str = ''  # why a moment is not started: the reason of an event, if any
    message: str = ''
    wait: float | None = None
    has_many: bool = False


def plan(cron_job: Object, owned: Sequence[Body], now: datetime.datetime) -> Plan:
    """Decide whether to start a job now."""
    spec = cron_job['spec']
    text = spec['schedule']
    zone = spec.get('timeZone')
    if spec.get('suspend'):
        return Plan()

    following = schedules.find_next(text, zone, now)
    wait = None if following is None else (following - now).total_seconds() + 0.1
    moment, count = schedules.list_missed(text, zone, _find_beginning(cron_job, now), now)
    if moment is None:
        return Plan(wait=wait)

    has_many = count > TOO_MANY
    deadline = spec.get('startingDeadlineSeconds')
    if deadline is not None and (now - moment).total_seconds() > deadline:
        shown = moment.strftime('%a, %d %b %Y %H:%M:%S +0000')
        message = f'Missed scheduled time to start a job: {shown}'
        return Plan(missed='MissSchedule', message=message, wait=wait, has_many=has_many)

    active = [job for job in owned if jobs.find_finish(job) is None]
    if active and spec.get('concurrencyPolicy') == 'Forbid':
        message = (
            'Not starting job because prior execution is running and concurrency policy is Forbid'
        )
        return Plan(missed='JobAlreadyActive', message=message, wait=wait, has_many=has_many)

    replaced = active if spec.get('concurrencyPolicy') == 'Replace' else []
    return Plan(start=moment, replaced=replaced, wait=wait, has_many=has_many)


def _find_beginning(cron_job: Object, now: datetime.datetime) -> datetime.datetime:
    """Return the moment after which jobs could be missed."""
    known = (cron_job.get('status') or {}).get('lastScheduleTime')
    created = cron_job['metadata'].get('creationTimestamp')
    since = pod_states.parse_time(known or created) or now
    deadline = cron_job['spec'].get('startingDeadlineSeconds')
    if deadline is None:
        return since
    return max(since, now - datetime.timedelta(seconds=deadline + 60))


def build_job(cron_job: Body, moment: datetime.datetime) -> Body:
    """Build the job of a moment, named by its minute."""
    meta = cron_job['metadata']
    template = cron_job['spec']['jobTemplate']
    template_meta = template.get('metadata') or {}
    labels = template_meta.get('labels') or {}

    return {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        'metadata': {
            'name': f'{meta["name"]}-{int(moment.timestamp()) // 60}',
            'namespace': meta['namespace'],
            **({'labels': labels} if labels else {}),
            'annotations': {
                **(template_meta.get('annotations') or {}),
                SCHEDULED: _format_local(moment, cron_job['spec'].get('timeZone')),
            },
            'ownerReferences': [dependents.build_reference(cron_job)],
        },
        'spec': template.get('spec') or {},
    }


def _format_local(moment: datetime.datetime, zone: str | None) -> str:
    if not zone:
        return pod_states.format_time(moment)
    return moment.astimezone(schedules.find_zone(zone)).isoformat().replace('+00:00', 'Z')


def choose_obsolete(cron_job: Object, owned: Sequence[Body]) -> list[Body]:
    """Choose the finished jobs beyond the limits of the history."""
    obsolete: list[Body] = []
    limits = {'Complete': 'successfulJobsHistoryLimit', 'Failed': 'failedJobsHistoryLimit'}
    for type, field in limits.items():
        limit = cron_job['spec'].get(field)
        finished = [job for job in owned if (jobs.find_finish(job) or {}).get('type') == type]
        ordered = sorted(finished, key=lambda job: (job.get('status') or {}).get('startTime') or '')
        if limit is not None:
            obsolete += ordered[: max(0, len(ordered) - limit)]

    return obsolete


def build_reference(job: Object) -> Body:
    """Build the reference to an active job, for the status."""
    meta = job['metadata']
    return {
        'apiVersion': 'batch/v1',
        'kind': 'Job',
        **{name: meta[name] for name in ('name', 'namespace', 'uid', 'resourceVersion')},
    }
