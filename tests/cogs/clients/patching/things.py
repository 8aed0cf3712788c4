"""
Objects in the sandbox that are changed as operators change them; with the status as a subresource
or without.
"""

import contextlib
import logging

import kopf
import kopf.testing
from kopf._cogs.clients.patching import application, sender, targets
from kopf._cogs.structs import objects, references

FINALIZER = 'kopf.zalando.org/KopfFinalizerMarker'
MERGE, JSON = 'application/merge-patch+json', 'application/json-patch+json'
KEEP, BLOCK, ALLOW = application.Holding.KEEP, application.Holding.BLOCK, application.Holding.ALLOW

WITH_STATUS = references.Resource(
    'kopf.dev', 'v1', 'withs', namespaced=True, subresources=frozenset({'status'})
)
WITHOUT_STATUS = references.Resource('kopf.dev', 'v1', 'withouts', namespaced=True)


def build_crd(kind, *, has_status):
    anything = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    strict = {**anything, 'properties': {'size': {'type': 'integer'}}}
    pruned = {'type': 'object', 'properties': {'known': {'type': 'string'}}}
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{kind.lower()}s.kopf.dev'},
        'spec': {
            'group': 'kopf.dev',
            'scope': 'Namespaced',
            'names': {'kind': kind, 'plural': f'{kind.lower()}s'},
            'versions': [
                {
                    'name': 'v1',
                    'served': True,
                    'storage': True,
                    **({'subresources': {'status': {}}} if has_status else {}),
                    'schema': {
                        'openAPIV3Schema': {
                            'type': 'object',
                            'properties': {'spec': strict, 'status': strict, 'pruned': pruned},
                        }
                    },
                }
            ],
        },
    }


class Thing:
    """An object in the sandbox, and the changes of it as operators make them."""

    def __init__(self, sandbox, context, resource):
        self.sandbox, self.context, self.resource, self.body = sandbox, context, resource, None
        self.target = targets.Target(resource, references.NamespaceName('default'), 'obj')

    async def create(self, spec=None, status=None, **metadata):
        kind = 'With' if self.target.has_status else 'Without'
        self.body = await self.sandbox.create(
            {
                'apiVersion': 'kopf.dev/v1',
                'kind': kind,
                'spec': spec or {},
                'metadata': {'name': 'obj', **metadata},
            }
        )
        if status is not None:
            subresource = 'status' if self.target.has_status else None
            self.body = await self.patch({'status': status}, subresource=subresource)
        self.sandbox.requests.clear()

    async def get(self):
        return await self.sandbox.get(self.resource.plural, 'obj')

    async def patch(self, patch, **kwargs):
        return await self.sandbox.patch(self.resource.plural, 'obj', patch, **kwargs)

    async def delete(self):
        await self.sandbox.delete(self.resource.plural, 'obj')
        with contextlib.suppress(kopf.testing.ApiError):
            self.body = await self.get()

    async def apply(self, patch=None, own=None, holding=KEEP, fns=()):
        changes = application.Changes(kopf.Patch(patch, fns=fns), kopf.Patch(own), holding)
        return await sender.apply_changes(
            self.target,
            changes,
            objects.Body(self.body),
            context=self.context,
            logger=logging.getLogger('kopf.obj'),
        )

    @property
    def asked(self):
        """The requests of the operator: ``(subresource, content type, code)``."""
        return [
            (asked.subresource, asked.content_type, asked.code)
            for asked in self.sandbox.requests
            if asked.verb == 'patch' and asked.user_agent.startswith('kopf/')
        ]


def put(value, *path):
    """Make a patch function that puts the value there."""

    def fn(body):
        for key in path[:-1]:
            body = body.setdefault(key, {})
        body[path[-1]] = value

    return fn
