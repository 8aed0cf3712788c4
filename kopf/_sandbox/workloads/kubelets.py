"""
Kubelets: the pods on the nodes, which only pretend to run.

The state of the containers is in memory, and is reported in the status of the pods.
"""

import asyncio
import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import (
    behaviours,
    interfaces,
    lookups,
    pod_lives,
    pod_states,
    pod_status,
)

Body = dict[str, Any]

MESSAGES = {
    'started': ('Normal', 'Started', 'Started container {name}'),
    'unpulled': ('Warning', 'Failed', 'Failed to pull image "{image}": not found'),
    'backoff': (
        'Warning',
        'BackOff',
        'Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})',
    ),
}


@dataclasses.dataclass
class _Run:
    """One pod on a node. Modified only by the kubelet's reconciliation, and by `Kubelet.fail`."""

    uid: str
    life: pod_lives.Life
    addresses: Body
    stop_at: float = math.inf


class Kubelet:
    """Runs the pods of all nodes."""

    def __init__(self, context: interfaces.Context, troubles: behaviours.Troubles) -> None:
        self._context = context
        self._troubles = troubles
        self._client = context.client('kubelet', manager='kubelet')
        self._recorder = context.recorder('kubelet')
        self._runs: dict[str, _Run] = {}
        self._numbers = itertools.count()

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        return [change.new.key] if change.home == lookups.PODS else []

    def fail(self, key: str, containers: Sequence[str], code: int, reason: str) -> bool:
        """Make the containers of a pod fail; return whether any of them is running."""
        run = self._runs.get(key)
        if run is None:
            return False
        life = pod_lives.fail(run.life, containers, code, reason)
        is_failing = life != run.life
        run.life = life

        return is_failing

    async def reconcile(self, key: str) -> float | None:
        pod = self._context.lookup.get(lookups.PODS, key)
        node = (pod or lookups.NOTHING).get('spec', {}).get('nodeName') or ''
        if pod is None or self._context.lookup.get(lookups.NODES, node) is None:
            self._runs.pop(key, None)
            return None

        now = asyncio.get_running_loop().time()
        run = self._take(key, pod, now)
        if pod_states.is_leaving(pod):
            return await self._stop(pod, run, now)
        if pod_states.get_phase(pod) in pod_states.ENDED:
            return None

        behaviour = behaviours.choose_behaviour(
            pod, self._context.settings, self._troubles.find(pod)
        )
        moment = pod_lives.Moment(now + memory.TICK, self._format_now())
        run.life = pod_lives.advance(pod, run.life, behaviour, moment)
        steps = run.life.steps
        await self._report(pod, run, is_healthy=behaviour.is_healthy)
        for step in steps:
            await self._post(pod, step)
        if run.life.has_ended or math.isinf(run.life.due):
            return None
        return run.life.due - now

    def _take(self, key: str, pod: Body, now: float) -> _Run:
        """Return the run of a pod; begin it, or resume the one before a restart of the sandbox."""
        run = self._runs.get(key)
        if run is None or run.uid != pod['metadata']['uid']:
            has_begun = bool((pod.get('status') or {}).get('containerStatuses'))
            life = pod_lives.resume(pod, now) if has_begun else pod_lives.begin(pod)
            addresses = self._choose_addresses(pod)
            run = self._runs[key] = _Run(pod['metadata']['uid'], life, addresses)

        return run

    def _choose_addresses(self, pod: Body) -> Body:
        status = pod.get('status') or {}
        if status.get('podIP'):
            return {key: status[key] for key in ('hostIP', 'hostIPs', 'podIP', 'podIPs')}

        node = self._context.lookup.get(lookups.NODES, pod['spec']['nodeName']) or {}
        hosts = [
            item['address']
            for item in (node.get('status') or {}).get('addresses') or ()
            if item['type'] == 'InternalIP'
        ]
        own = hosts[0] if pod['spec'].get('hostNetwork') and hosts else self._allocate()

        return {
            **({'hostIP': hosts[0], 'hostIPs': [{'ip': hosts[0]}]} if hosts else {}),
            'podIP': own,
            'podIPs': [{'ip': own}],
        }

    def _allocate(self) -> str:
        """Return an address that no pod has."""
        used = {
            (pod.get('status') or {}).get('podIP')
            for pod in self._context.lookup.select(lookups.PODS)
        }
        while True:
            number = next(self._numbers) % (254 * 250)
            address = f'10.244.{number // 250}.{number % 250 + 2}'
            if address not in used:
                return address

    async def _stop(self, pod: Body, run: _Run, now: float) -> float | None:
        """End the containers of a pod that is being deleted, and then delete it for good."""
        grace = pod['metadata'].get('deletionGracePeriodSeconds') or 0
        if math.isinf(run.stop_at):
            for container in () if run.life.has_ended else run.life.mains:
                text = f'Stopping container {container.name}'
                await self._recorder.normal(pod, 'Killing', text)

        delay = 0.0 if run.life.has_ended else min(grace, self._context.settings.stopped_after)
        run.stop_at = min(run.stop_at, now + delay)
        if now + memory.TICK < run.stop_at:
            return run.stop_at - now

        run.life = pod_lives.stop(run.life, pod, self._format_now())
        if pod_states.get_phase(pod) not in pod_states.ENDED:
            await self._report(pod, run, is_healthy=False)
        if grace:
            await self._client.delete(lookups.PODS, pod, grace=0)
        return None

    async def _report(self, pod: Body, run: _Run, *, is_healthy: bool) -> None:
        status = pod_status.build_status(
            pod,
            run.life,
            is_healthy=is_healthy,
            addresses=run.addresses,
            now=self._format_now(),
        )
        await self._client.set_status(lookups.PODS, pod, status)

    async def _post(self, pod: Body, step: pod_lives.Step) -> None:
        type, reason, template = MESSAGES[step.what]
        meta = pod['metadata']
        spec = pod['spec']
        everything = [*(spec.get('initContainers') or ()), *spec['containers']]
        image = next(item['image'] for item in everything if item['name'] == step.container)
        is_init = step.container not in [item['name'] for item in spec['containers']]
        field = f'spec.{"initContainers" if is_init else "containers"}{{{step.container}}}'
        text = template.format(
            name=step.container,
            image=image,
            pod=meta['name'],
            namespace=meta['namespace'],
            uid=meta['uid'],
        )

        if step.what == 'started':
            pulled = f'Container image "{image}" already present on machine'
            await self._recorder.normal(pod, 'Pulled', pulled, field=field)
            created = f'Container created: {step.container}'
            await self._recorder.normal(pod, 'Created', created, field=field)

        post = self._recorder.normal if type == 'Normal' else self._recorder.warn
        await post(pod, reason, text, field=field)

    def _format_now(self) -> str:
        return pod_states.format_time(self._context.now())
