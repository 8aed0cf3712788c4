"""
Job plans: which pods a job should create and delete next, and whether it has finished. All pure.
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._sandbox.workloads import dependents, indexes, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

FINALIZER = 'batch.kubernetes.io/job-tracking'
INDEX = 'batch.kubernetes.io/job-completion-index'
INDEX_FAILURES = 'batch.kubernetes.io/job-index-failure-count'
BACKOFF = 10.0
"""Seconds before a pod is created after a failure; twice as long after each next one."""

BACKOFF_LIMIT = 600.0

DONE = ('CompletionsReached', 'Reached expected number of succeeded pods')
EXCEEDED = ('BackoffLimitExceeded', 'Job has reached the specified backoff limit')
EXPIRED = ('DeadlineExceeded', 'Job was active longer than specified deadline')
FAILED_INDEXES = ('FailedIndexes', 'Job has failed indexes')
MAX_FAILED_INDEXES = (
    'MaxFailedIndexesExceeded',
    'Job has exceeded the specified maximal number of failed indexes',
)


@dataclasses.dataclass(frozen=True)
class Tally:
    """The pods of a job by their states, with those that are counted and gone."""

    active: Sequence[Body]
    terminating: int
    succeeded: int
    failed: int
    completed: frozenset[int]  # indexes
    given_up: frozenset[int]  # indexes that have failed too often

    @property
    def ready(self) -> int:
        return sum(map(pod_states.is_ready, self.active))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do next with the pods of a job."""

    creations: Sequence[int | None] = ()  # the indexes of the new pods
    deletions: Sequence[Body] = ()
    wait: float | None = None  # seconds until the next creation


def is_indexed(job: Object) -> bool:
    return bool(job['spec'].get('completionMode') == 'Indexed')


def get_index(pod: Object) -> int | None:
    text = (pod['metadata'].get('annotations') or {}).get(INDEX) or ''
    return int(text) if text.isdigit() else None


def is_tracked(pod: Object) -> bool:
    """Return whether a pod is not yet counted as ended."""
    return FINALIZER in (pod['metadata'].get('finalizers') or ())


def has_succeeded(pod: Object) -> bool:
    return pod_states.get_phase(pod) == 'Succeeded'


def has_failed(job: Object, pod: Object) -> bool:
    """Return whether a pod counts as failed: those being deleted do, unless they are waited for."""
    if pod_states.get_phase(pod) == 'Failed':
        return True
    is_patient = job['spec'].get('podReplacementPolicy') == 'Failed'
    return pod_states.is_leaving(pod) and not is_patient and not has_succeeded(pod)


def tally(job: Object, pods: Sequence[Body]) -> Tally:
    """Count the pods of a job."""
    status = job.get('status') or {}
    pending = status.get('uncountedTerminatedPods') or {}
    counted = {uid for uids in pending.values() for uid in uids or ()}
    new = [pod for pod in pods if is_tracked(pod) and pod['metadata']['uid'] not in counted]
    good = [pod for pod in new if has_succeeded(pod)]
    bad = [pod for pod in new if has_failed(job, pod)]
    completed = _find_completed(job, good)

    return Tally(
        active=[pod for pod in pods if pod_states.is_active(pod)],
        terminating=sum(map(_is_stopping, pods)),
        succeeded=len(completed) if is_indexed(job) else _add(status, 'succeeded', good),
        failed=_add(status, 'failed', bad),
        completed=frozenset(completed),
        given_up=frozenset(_give_up(job, pods)),
    )


def _is_stopping(pod: Object) -> bool:
    return pod_states.is_leaving(pod) and pod_states.get_phase(pod) not in pod_states.ENDED


def _add(status: Object, field: str, pods: Sequence[Object]) -> int:
    """Return a count of the status, with the pods that are noted but not counted, and new ones."""
    pending = (status.get('uncountedTerminatedPods') or {}).get(field) or ()
    return (status.get(field) or 0) + len(pending) + len(pods)


def _find_completed(job: Object, good: Sequence[Object]) -> set[int]:
    if not is_indexed(job):
        return set()
    known = indexes.parse_indexes((job.get('status') or {}).get('completedIndexes'))
    found = {index for pod in good if (index := get_index(pod)) is not None}
    return (known | found) & set(range(job['spec'].get('completions') or 0))


def _give_up(job: Object, pods: Sequence[Body]) -> set[int]:
    """Return the indexes that have failed more often than allowed for an index."""
    limit = job['spec'].get('backoffLimitPerIndex')
    if limit is None:
        return set()
    known = indexes.parse_indexes((job.get('status') or {}).get('failedIndexes'))
    failures = count_index_failures(job, pods)
    return known | {index for index, count in failures.items() if count > limit}


def count_index_failures(job: Object, pods: Sequence[Object]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for pod in pods:
        index = get_index(pod)
        if index is not None and has_failed(job, pod):
            counts[index] = counts.get(index, 0) + 1
    return counts


def find_failure(job: Object, counted: Tally, now: datetime.datetime) -> tuple[str, str] | None:
    """Return the reason and the message if a job has failed."""
    spec = job['spec']
    status = job.get('status') or {}
    if _exceeds_limit(job, counted):
        return EXCEEDED

    since = pod_states.parse_time(status.get('startTime'))
    deadline = spec.get('activeDeadlineSeconds')
    if since is not None and deadline is not None and (now - since).total_seconds() >= deadline:
        return EXPIRED
    if spec.get('backoffLimitPerIndex') is None:
        return None

    most = spec.get('maxFailedIndexes')
    if most is not None and len(counted.given_up) > most:
        return MAX_FAILED_INDEXES

    is_over = len(counted.given_up | counted.completed) >= (spec.get('completions') or 0)
    return FAILED_INDEXES if counted.given_up and is_over else None


def _exceeds_limit(job: Object, counted: Tally) -> bool:
    spec = job['spec']
    limit = spec.get('backoffLimit')
    limit = 6 if limit is None else limit
    if counted.failed > limit:
        return True
    if spec['template']['spec'].get('restartPolicy') != 'OnFailure':
        return False
    restarts = sum(map(_count_all_restarts, counted.active))
    return restarts > 0 if limit == 0 else restarts >= limit


def _count_all_restarts(pod: Object) -> int:
    status = pod.get('status') or {}
    names = ('containerStatuses', 'initContainerStatuses')
    return sum(item.get('restartCount') or 0 for name in names for item in status.get(name) or ())


def is_complete(job: Object, counted: Tally) -> bool:
    """Return whether enough pods have succeeded, and no others are at work."""
    completions = job['spec'].get('completions')
    if completions is None:
        return counted.succeeded > 0 and not counted.active
    return counted.succeeded >= completions and not counted.active


def plan(job: Object, counted: Tally, pods: Sequence[Body], now: datetime.datetime) -> Plan:
    """Decide which pods to create and to delete."""
    spec = job['spec']
    if spec.get('suspend'):
        return Plan(deletions=list(counted.active))

    wanted = count_wanted(job, counted)
    active = list(counted.active)
    surplus = _find_repeated(job, active, counted)
    kept = [pod for pod in active if pod not in surplus]

    if len(kept) > wanted:
        ranked = pod_states.sort_for_deletion(kept, dependents.count_by_node(kept))
        surplus += ranked[: len(kept) - wanted]

    is_patient = spec.get('podReplacementPolicy') == 'Failed'
    missing = wanted - len(kept) - (counted.terminating if is_patient else 0)
    if missing <= 0:
        return Plan(deletions=surplus)

    wait = measure_backoff(job, pods, now)
    if wait:
        return Plan(deletions=surplus, wait=wait)
    if not is_indexed(job):
        return Plan([None] * missing, surplus)
    return Plan(_choose_indexes(job, counted, kept, missing), surplus)


def count_wanted(job: Object, counted: Tally) -> int:
    """Return how many pods should be active."""
    parallelism = job['spec'].get('parallelism')
    parallelism = 1 if parallelism is None else int(parallelism)
    completions = job['spec'].get('completions')
    if completions is None:
        return len(counted.active) if counted.succeeded else parallelism

    left = completions - counted.succeeded
    if is_indexed(job):
        left -= len(counted.given_up - counted.completed)
    return max(0, min(parallelism, int(left)))


def _find_repeated(job: Object, active: Sequence[Body], counted: Tally) -> list[Body]:
    """Return the active pods whose indexes others have, or that are not needed anymore."""
    if not is_indexed(job):
        return []

    done = counted.completed | counted.given_up
    repeated = []
    seen = set[int]()

    for pod in pod_states.sort_by_age(active):
        index = get_index(pod)
        limit = job['spec'].get('completions') or 0
        if index is None or index in done or index in seen or index >= limit:
            repeated.append(pod)
        else:
            seen.add(index)

    return repeated


def _choose_indexes(
    job: Object, counted: Tally, active: Sequence[Body], count: int
) -> list[int | None]:
    taken = counted.completed | counted.given_up | {get_index(pod) for pod in active}
    free = [index for index in range(job['spec'].get('completions') or 0) if index not in taken]
    return list(free[:count])


def measure_backoff(job: Object, pods: Sequence[Body], now: datetime.datetime) -> float:
    """Return the seconds to wait after the failures since the last success."""
    ended = [
        (find_end(pod), has_succeeded(pod))
        for pod in pods
        if has_succeeded(pod) or pod_states.get_phase(pod) == 'Failed'
    ]
    failures = 0
    last = ''
    for moment, is_good in sorted(ended):
        failures, last = (0, '') if is_good else (failures + 1, moment)
    since = pod_states.parse_time(last)
    if not failures or since is None:
        return 0.0

    delay = min(BACKOFF * 2.0 ** (failures - 1), BACKOFF_LIMIT)
    return max(0.0, (since - now).total_seconds() + delay)


def find_end(pod: Object) -> str:
    """Return when a pod has ended: by its containers, or its own times."""
    statuses = (pod.get('status') or {}).get('containerStatuses') or ()
    ends = [
        ((item.get('state') or {}).get('terminated') or {}).get('finishedAt') for item in statuses
    ]
    known = [end for end in ends if end]
    return max(known, default='') or pod['metadata'].get('creationTimestamp') or ''


def build_pod(job: Body, index: int | None, failures: int) -> Body:
    """Build a pod of a job, tracked by a finalizer."""
    made = dependents.build_pod(job, job['spec']['template'])
    meta = made['metadata']
    spec = made['spec']
    meta['finalizers'] = [*(meta.get('finalizers') or ()), FINALIZER]
    if index is None:
        return made

    name = job['metadata']['name']
    meta['generateName'] = f'{name}-{index}-'
    meta['labels'] = {**(meta.get('labels') or {}), INDEX: str(index)}
    meta['annotations'] = {**(meta.get('annotations') or {}), INDEX: str(index)}
    if job['spec'].get('backoffLimitPerIndex') is not None:
        meta['annotations'][INDEX_FAILURES] = str(failures)
    source = {'fieldRef': {'fieldPath': f"metadata.labels['{INDEX}']"}}
    variable = {'name': 'JOB_COMPLETION_INDEX', 'valueFrom': source}
    spec['hostname'] = f'{name}-{index}'

    for field in ('initContainers', 'containers'):
        if spec.get(field):
            spec[field] = [_add_variable(container, variable) for container in spec[field]]

    return made


def _add_variable(container: Object, variable: Body) -> Body:
    known = container.get('env') or []
    if any(item['name'] == variable['name'] for item in known):
        return dict(container)
    return {**container, 'env': [*known, variable]}
