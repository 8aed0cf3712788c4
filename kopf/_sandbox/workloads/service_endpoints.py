"""
Service endpoints: the endpoints and the endpoint slices of the services that select pods.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from kopf._sandbox.storage import memory
from kopf._sandbox.workloads import endpoint_lists, interfaces, lookups, pod_states

Body = dict[str, Any]

_META = ('labels', 'annotations')


class EndpointsController:
    """Keeps the endpoints of services in sync with their pods."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('endpoint-controller')

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.ENDPOINTS:
            return [change.new.key]
        return find_services(change, self._context.lookup)

    async def reconcile(self, key: str) -> float | None:
        service = self._context.lookup.get(lookups.SERVICES, key)
        known = self._context.lookup.get(lookups.ENDPOINTS, key)
        if service is None:
            if known is not None and _is_managed(known):
                await self._client.delete(lookups.ENDPOINTS, known)
            return None

        if not is_selective(service):
            return None

        pods = self._context.lookup.select(lookups.PODS, service['metadata']['namespace'])
        now = pod_states.format_time(self._context.now())
        backends = endpoint_lists.list_backends(service, pods)
        wanted = endpoint_lists.build_endpoints(service, backends, now)

        if known is None:
            await self._client.create(lookups.ENDPOINTS, wanted)
        elif _differs(known, wanted, ('subsets',)):
            await self._client.change(
                lookups.ENDPOINTS, known, lambda obj: _replace(obj, wanted, ('subsets',))
            )

        return None


class SlicesController:
    """Keeps the endpoint slices of services in sync with their pods."""

    def __init__(self, context: interfaces.Context) -> None:
        self._context = context
        self._client = context.client('endpointslice-controller')

    def find_affected(self, change: memory.Change) -> Iterable[str]:
        if change.home == lookups.SLICES:
            key = lookups.find_controller_key(change, 'Service')
            return [key] if key else []
        return find_services(change, self._context.lookup)

    async def reconcile(self, key: str) -> float | None:
        service = self._context.lookup.get(lookups.SERVICES, key)
        if service is None or not is_selective(service) or pod_states.is_leaving(service):
            return None  # the garbage collector deletes the slices

        meta = service['metadata']
        pods = self._context.lookup.select(lookups.PODS, meta['namespace'])
        now = pod_states.format_time(self._context.now())
        backends = endpoint_lists.list_backends(service, pods)
        wanted = endpoint_lists.build_slices(service, backends, now)
        known = [
            item
            for item in self._context.lookup.list_controlled(meta['uid'], lookups.SLICES)
            if (item['metadata'].get('labels') or {}).get(endpoint_lists.SLICES_MANAGER)
            == endpoint_lists.SLICES_CONTROLLER
        ]
        await self._sync(known, wanted)

        return None

    async def _sync(self, known: Sequence[Body], wanted: Sequence[Body]) -> None:
        """Change, create and delete slices to get the wanted ones; their order does not matter."""
        fields = ('endpoints', 'ports')
        for old, new in zip(known, wanted, strict=False):
            if _differs(old, new, fields):
                replace = functools.partial(_replace, wanted=new, fields=fields)
                await self._client.change(lookups.SLICES, old, replace)

        for new in wanted[len(known) :]:
            await self._client.create(lookups.SLICES, new)
        for old in known[len(wanted) :]:
            await self._client.delete(lookups.SLICES, old)


def is_selective(service: Body) -> bool:
    spec = service['spec']
    return bool(spec.get('selector')) and spec.get('type') != 'ExternalName'


def find_services(change: memory.Change, lookup: lookups.Lookup) -> list[str]:
    """Return the services affected by a change of a service or of a pod."""
    if change.home == lookups.SERVICES:
        return [change.new.key]
    if change.home != lookups.PODS:
        return []

    states = [change.new.labels, change.old.labels if change.old is not None else {}]
    return [
        lookups.get_key(service)
        for service in lookup.select(lookups.SERVICES, change.new.namespace)
        if is_selective(service)
        and any(service['spec']['selector'].items() <= labels.items() for labels in states)
    ]


def _is_managed(endpoints: Body) -> bool:
    labels = endpoints['metadata'].get('labels') or {}
    return endpoint_lists.ENDPOINTS_MANAGER.items() <= labels.items()


def _differs(known: Body, wanted: Body, fields: Sequence[str]) -> bool:
    """Return whether an object must be changed; the time of the change does not count."""
    labels = [body['metadata'].get('labels') or {} for body in (known, wanted)]
    return labels[0] != labels[1] or any(
        (known.get(field) or []) != (wanted.get(field) or []) for field in fields
    )


def _replace(body: Body, wanted: Body, fields: Sequence[str]) -> None:
    for name in _META:
        body['metadata'].setdefault(name, {})
    body['metadata']['labels'] = wanted['metadata']['labels']
    body['metadata']['annotations'].update(wanted['metadata']['annotations'])
    for field in fields:
        body[field] = wanted.get(field) or []
