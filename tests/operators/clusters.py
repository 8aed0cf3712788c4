"""
Clusters for the tests of whole operators: their resources, their objects, and what operators leave
on these.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import kopf
import kopf.testing

GROUP, VERSION, PLURAL = 'kopf.dev', 'v1', 'kopfexamples'
FINALIZER = 'kopf.zalando.org/KopfFinalizerMarker'
LAST_HANDLED = 'kopf.zalando.org/last-handled-configuration'

WRITES = ('create', 'update', 'patch', 'delete', 'deletecollection')


def build_crd(
    plural='kopfexamples', kind='KopfExample', *, group=GROUP, scope='Namespaced', has_status=False
):
    """Build a definition of a custom resource that accepts anything."""
    anything = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.{group}'},
        'spec': {
            'group': group,
            'scope': scope,
            'names': {'kind': kind, 'plural': plural, 'singular': kind.lower(), 'shortNames': []},
            'versions': [
                {
                    'name': VERSION,
                    'served': True,
                    'storage': True,
                    **({'subresources': {'status': {}}} if has_status else {}),
                    'schema': {
                        'openAPIV3Schema': {
                            'type': 'object',
                            'properties': {'spec': anything, 'status': anything},
                        }
                    },
                }
            ],
        },
    }


def build_object(name='obj', *, spec=None, kind='KopfExample', namespace='default', **metadata):
    return {
        'apiVersion': f'{GROUP}/{VERSION}',
        'kind': kind,
        'spec': {'x': 1} if spec is None else spec,
        'metadata': {'name': name, 'namespace': namespace, **metadata},
    }


async def wait_until(check: Callable[[], Any], timeout: float = 600.0) -> Any:
    """
    Wait for a condition, and return its true value; the time is that of the event loop, usually
    virtual.
    """
    try:
        async with asyncio.timeout(timeout):
            while not (value := check()):
                await asyncio.sleep(0.01)
            return value
    except TimeoutError:
        raise AssertionError(f'The condition is not met in {timeout} s.') from None


@dataclasses.dataclass(eq=False)
class Cluster:
    """The sandbox, with shortcuts for the objects of one resource."""

    sandbox: Any
    plural: str = PLURAL

    async def create(self, name='obj', **kwargs):
        return await self.sandbox.create(build_object(name, **kwargs))

    async def get(self, name='obj'):
        return await self.sandbox.get(self.plural, name)

    async def find(self, name='obj'):
        """The object, or ``None`` if it does not exist."""
        with contextlib.suppress(kopf.testing.ApiError):
            return await self.get(name)

    async def patch(self, patch, name='obj', **kwargs):
        return await self.sandbox.patch(self.plural, name, patch, **kwargs)

    async def delete(self, name='obj'):
        await self.sandbox.delete(self.plural, name)

    async def wait(self, condition, name='obj', timeout=600.0):
        """Wait until the object (or ``None``, if it is gone) satisfies the condition."""
        return await self.sandbox.wait(self.plural, name, condition, timeout=timeout)

    async def wait_until_watched(self, times=1):
        """Wait until operators have listed the objects and began to watch them so many times."""
        await wait_until(
            lambda: (
                len(
                    [
                        asked
                        for asked in self.sandbox.requests
                        if asked.verb == 'watch' and asked.plural == self.plural
                    ]
                )
                >= times
            )
        )

    async def wait_until_handled(self, name='obj', **spec):
        """
        Wait until the last handled state has these values in the spec, and nothing is in progress.
        """

        def is_handled(body):
            handled = get_last_handled(body)
            return (
                handled is not None
                and not get_progress(body)
                and all(
                    (handled.get('spec') or {}).get(key) == value for key, value in spec.items()
                )
            )

        return await self.wait(is_handled, name)

    @property
    def writes(self):
        """
        The requests of operators that have changed the objects, with ``method``, ``path``, ``code``
        etc.
        """
        return [
            asked
            for asked in self.sandbox.requests
            if asked.verb in WRITES
            and asked.plural == self.plural
            and asked.user_agent.startswith('kopf/')
        ]


def get_last_handled(body):
    """The last handled state that is stored on the object; ``None`` if there is none."""
    raw = ((body or {}).get('metadata') or {}).get('annotations', {}).get(LAST_HANDLED)
    return None if raw is None else kopf.AnnotationsDiffBaseStorage().fetch(body=kopf.Body(body))


def get_progress(body):
    """The annotations of the framework on the object, but the last handled state."""
    annotations = ((body or {}).get('metadata') or {}).get('annotations', {})
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith('kopf.zalando.org/') and key != LAST_HANDLED
    }


def get_finalizers(body):
    """Get the finalizers of an object, ours and of others."""
    return body['metadata'].get('finalizers', [])


def get_time():
    """Get the time of the event loop, which is virtual in these tests."""
    return asyncio.get_running_loop().time()
