"""
Evictions: deletions of pods that their disruption budgets allow.
"""

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._sandbox.meta import errors, kinds, requests
from kopf._sandbox.registry import deletion, writer
from kopf._sandbox.registry.rules import checks
from kopf._sandbox.storage import memory

Body = dict[str, Any]
Object = Mapping[str, Any]

BUDGETS = kinds.Home('policy', 'poddisruptionbudgets')
_UNPROTECTED = ('', 'Pending', 'Succeeded', 'Failed')
_REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."
_TOO_MANY = (
    'This pod has more than one PodDisruptionBudget, which the eviction subresource '
    'does not support.'
)


async def evict(
    store: memory.Storage,
    writing: writer.Writer,
    request: requests.Request,
    budgets: kinds.Resource,
    options: deletion.Options,
    now: datetime.datetime,
) -> None:
    """Delete a pod, or refuse with 429 if too few pods would remain healthy."""
    stored = store.get(request.resource.home, request.namespace, request.name)
    pod = None if stored is None else stored.load()
    known = [item.load() for item in store.shelf(BUDGETS).select(request.namespace)]
    budget = None if pod is None else find_budget(pod, known)

    if pod is not None and budget is not None and is_counted(pod, budget):
        check_budget(budget)
        counting = dataclasses.replace(
            request,
            verb='patch',
            resource=budgets,
            name=budget['metadata']['name'],
            subresource='status',
        )
        await writing.patch(counting, lambda old: count_eviction(old, pod, now))

    await writing.delete(dataclasses.replace(request, verb='delete', subresource=''), options)


def find_budget(pod: Object, budgets: Iterable[Body]) -> Body | None:
    """Find the budget of a pod, if it protects the pod. Raises 500 if there are many."""
    phase = (pod.get('status') or {}).get('phase') or ''
    if phase in _UNPROTECTED or pod['metadata'].get('deletionTimestamp'):
        return None

    labels = pod['metadata'].get('labels') or {}
    matching = [
        budget for budget in budgets if checks.matches(budget['spec'].get('selector'), labels)
    ]
    if len(matching) > 1:
        raise errors.ApiError(500, '', _TOO_MANY)
    return matching[0] if matching else None


def is_counted(pod: Object, budget: Object) -> bool:
    """Return whether the eviction counts: unhealthy pods are evicted if enough others are well."""
    conditions = (pod.get('status') or {}).get('conditions') or ()
    if any(item['type'] == 'Ready' and item['status'] == 'True' for item in conditions):
        return True
    status = budget.get('status') or {}
    if budget['spec'].get('unhealthyPodEvictionPolicy') == 'AlwaysAllow':
        return False
    desired = status.get('desiredHealthy') or 0
    return not 0 < desired <= (status.get('currentHealthy') or 0)


def check_budget(budget: Object) -> None:
    """Raise 429 if the budget allows no evictions now."""
    meta = budget['metadata']
    status = budget.get('status') or {}
    name = meta['name']

    if (status.get('observedGeneration') or 0) < (meta.get('generation') or 0):
        text = f'The disruption budget {name} is still being processed by the server.'
        raise _refuse(text, retry_after=10)

    if not status.get('disruptionsAllowed'):
        desired, current = (
            status.get(field) or 0 for field in ('desiredHealthy', 'currentHealthy')
        )
        raise _refuse(
            f'The disruption budget {name} needs {desired} healthy pods and has {current} currently'
        )


def _refuse(text: str, retry_after: int | None = None) -> errors.ApiError:
    causes = [{'reason': 'DisruptionBudget', 'message': text}]
    return errors.ApiError(
        429, 'TooManyRequests', _REFUSAL, details={'causes': causes}, retry_after=retry_after
    )


def count_eviction(budget: Body, pod: Object, now: datetime.datetime) -> Body:
    """Count an eviction in the status of a budget; raise 429 if it is not allowed anymore."""
    check_budget(budget)
    status = budget['status']
    disrupted = {
        **(status.get('disruptedPods') or {}),
        pod['metadata']['name']: deletion.format_time(now),
    }
    allowed = status['disruptionsAllowed'] - 1

    return {
        **budget,
        'status': {**status, 'disruptionsAllowed': allowed, 'disruptedPods': disrupted},
    }
