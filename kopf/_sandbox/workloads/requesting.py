"""
Requesting: the writes of controllers, with the same checks and webhooks as the requests of clients.

Changes are made to the newest state of an object; those that change nothing are not stored.
"""

import copy
from collections.abc import Callable
from typing import Any

from kopf._sandbox import clusters
from kopf._sandbox.meta import errors, kinds, requests
from kopf._sandbox.registry import deletion
from kopf._sandbox.workloads import lookups

Body = dict[str, Any]
Change = Callable[[Body], None]
"""Modifies a fresh copy of the object."""


class Client:
    """Writes objects as one component of the cluster."""

    def __init__(self, cluster: clusters.Cluster, user: requests.User, manager: str) -> None:
        self._cluster = cluster
        self._user = user
        self._manager = manager

    async def create(self, home: kinds.Home, body: Body) -> Body:
        """Create an object; return it as stored. Raises `ApiError`."""
        meta = body['metadata']
        request = self._ask('create', home, meta.get('namespace') or '', '')
        return (await self._cluster.writer.create(request, copy.deepcopy(body))).stored.load()

    async def change(
        self, home: kinds.Home, body: Body, change: Change, *, subresource: str = ''
    ) -> Body | None:
        """
        Change an object; return it as stored, or ``None`` if it does not exist, or is another one
        with the same name.
        """
        uid = body['metadata']['uid']
        meta = body['metadata']
        request = self._ask('patch', home, meta.get('namespace') or '', meta['name'], subresource)

        def apply(old: Body) -> Body:
            if old['metadata']['uid'] != uid:
                raise errors.not_found(home.group, home.plural, meta['name'])
            change(old)
            return old

        try:
            return (await self._cluster.writer.patch(request, apply)).stored.load()
        except errors.ApiError as e:
            if e.code != 404:
                raise

        return None

    async def set_status(self, home: kinds.Home, body: Body, status: Body) -> Body | None:
        """Replace the status of an object, unless it is the same; return the object."""
        if (body.get('status') or {}) == status:
            return body
        return await self.change(
            home, body, lambda obj: obj.update(status=status), subresource='status'
        )

    async def delete(self, home: kinds.Home, body: Body, *, grace: int | None = None) -> bool:
        """Delete an object in the background; return whether it existed."""
        meta = body['metadata']
        request = self._ask('delete', home, meta.get('namespace') or '', meta['name'])
        options = deletion.Options(grace_period=grace, propagation='Background', uid=meta['uid'])

        try:
            await self._cluster.writer.delete(request, options)
        except errors.ApiError as e:
            if e.code not in (404, 409):
                raise
            return False

        return True

    async def bind(self, pod: Body, node: str) -> None:
        """Assign a pod to a node."""

        def assign(obj: Body) -> None:
            obj['spec'].setdefault('nodeName', node)

        await self.change(lookups.PODS, pod, assign, subresource='binding')

    def _ask(
        self, verb: str, home: kinds.Home, namespace: str, name: str, subresource: str = ''
    ) -> requests.Request:
        resource = self._cluster.catalog.find(home.group, 'v1', home.plural)
        assert resource is not None, 'all kinds of workloads are built-in'
        return requests.Request(
            verb,
            resource,
            self._user,
            namespace=namespace,
            name=name,
            subresource=subresource,
            options={'fieldManager': self._manager},
            field_manager=self._manager,
        )
