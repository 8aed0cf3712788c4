"""
Disruptions: how many pods may be evicted, by their disruption budgets.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kopf._sandbox.registry.rules import checks
from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import interfaces, lookups, pod_states

Body = dict[str, Any]
Object = Mapping[str, Any]

COMPONENT = 'controllermanager'
DELETION_TIMEOUT = 120.0
"""Seconds for the deletion of an evicted pod to begin."""


class DisruptionController:
    """Counts the healthy pods of disruption budgets."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('disruption-controller')
        self._recorder = context.recorder(COMPONENT)

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.BUDGETS:
            return [change.new.key]
        related = (lookups.PODS, lookups.DEPLOYMENTS, lookups.REPLICA_SETS, lookups.STATEFUL_SETS)
        if change.home not in related:
            return []
        return self._context.lookup.list_keys(lookups.BUDGETS, change.new.namespace)

    async def reconcile(self, key: str) -> float | None:
        budget = self._context.lookup.get(lookups.BUDGETS, key)
        if budget is None:
            return None

        selector = budget['spec'].get('selector')
        pods = [
            pod
            for pod in self._context.lookup.select(lookups.PODS, budget['metadata']['namespace'])
            if checks.matches(selector, pod['metadata'].get('labels') or {})
            and pod_states.get_phase(pod) not in pod_states.ENDED
        ]
        if not pods:
            await self._recorder.normal(budget, 'NoPods', 'No matching pods found')
        now = pod_states.format_time(self._context.now())
        status = build_status(budget, pods, self._count_expected(pods), now)
        await self._client.set_status(lookups.BUDGETS, budget, status)

        return None

    def _count_expected(self, pods: Sequence[Body]) -> int:
        """Return how many pods their controllers want; those without one count as themselves."""
        scales: dict[str, int] = {}
        for pod in pods:
            uid, replicas = self._find_scale(pod)
            scales[uid] = replicas
        return sum(scales.values())

    def _find_scale(self, pod: Body) -> tuple[str, int]:
        body = pod
        namespace = pod['metadata']['namespace']
        while True:
            kind, uid, name = lookups.get_controller(body)
            home = lookups.KINDS.get(kind)
            key = memory.make_key(namespace, name)
            owner = None if home is None else self._context.lookup.get(home, key)
            if owner is None or owner['metadata']['uid'] != uid:
                break
            body = owner

        replicas = (body.get('spec') or {}).get('replicas')
        return body['metadata']['uid'], 1 if body is pod or replicas is None else int(replicas)


def build_status(budget: Object, pods: Sequence[Body], expected: int, now: str) -> Body:
    """Count the pods of a budget."""
    generation = budget['metadata'].get('generation') or 0
    disrupted = _keep_disrupted(budget, pods, now)
    healthy = sum(is_healthy(pod) and pod['metadata']['name'] not in disrupted for pod in pods)
    expected, desired = choose_desired(budget, len(pods), expected)
    allowed = max(0, healthy - desired) if expected > 0 else 0

    return {
        'observedGeneration': generation,
        'disruptionsAllowed': allowed,
        'currentHealthy': healthy,
        'desiredHealthy': desired,
        'expectedPods': expected,
        'conditions': _build_conditions(budget, is_allowed=allowed > 0, now=now),
        **({'disruptedPods': disrupted} if disrupted else {}),
    }


def is_healthy(pod: Object) -> bool:
    return pod_states.is_ready(pod) and not pod_states.is_leaving(pod)


def _keep_disrupted(budget: Object, pods: Sequence[Object], now: str) -> dict[str, str]:
    """Return the evicted pods whose deletions have not begun yet, and are still expected."""
    known = (budget.get('status') or {}).get('disruptedPods') or {}
    present = {pod['metadata']['name'] for pod in pods if not pod_states.is_leaving(pod)}
    moment = pod_states.parse_time(now)

    return {
        name: since
        for name, since in known.items()
        if name in present and measure_age(since, moment) < DELETION_TIMEOUT
    }


def measure_age(since: str, moment: datetime.datetime | None) -> float:
    begun = pod_states.parse_time(since)
    return 0.0 if begun is None or moment is None else (moment - begun).total_seconds()


def choose_desired(budget: Object, present: int, scale: int) -> tuple[int, int]:
    """
    Return how many pods are expected, and how many of them must be healthy.

    The scale of their controllers counts for percentages and for the maximum of unavailable ones.
    """
    spec = budget['spec']
    if spec.get('maxUnavailable') is not None:
        tolerated = pod_states.scale_value(spec['maxUnavailable'], scale, up=True)
        return scale, max(0, scale - tolerated)

    minimum = spec.get('minAvailable')
    expected = scale if isinstance(minimum, str) else present
    return expected, pod_states.scale_value(1 if minimum is None else minimum, expected, up=True)


def _build_conditions(budget: Object, *, is_allowed: bool, now: str) -> list[Body]:
    type = 'DisruptionAllowed'
    status = 'True' if is_allowed else 'False'
    known = pod_states.find_condition(budget, type) or {}
    made = {
        'type': type,
        'status': status,
        'observedGeneration': budget['metadata'].get('generation') or 0,
        'lastTransitionTime': known['lastTransitionTime'] if known.get('status') == status else now,
        'reason': 'SufficientPods' if is_allowed else 'InsufficientPods',
        'message': '',
    }
    others = (budget.get('status') or {}).get('conditions') or ()

    return [*(item for item in others if item['type'] != type), made]
