"""
Replicas of one operator in one event loop: who leads, and what the Lease says.
"""

import contextlib

from clusters import wait_until

import kopf
import kopf.testing

LEASE = 'examples.kopf.dev'


def build_settings(**changes):
    settings = kopf.OperatorSettings()
    settings.leadership.name, settings.leadership.namespace = LEASE, 'default'
    for name, value in changes.items():
        setattr(settings.leadership, name, value)
    return settings


class Fleet:
    """Several replicas: ``await fleet.run('a')``. Their handlers note the names of replicas."""

    def __init__(self, sandbox, run_operator):
        self._sandbox, self._run_operator = sandbox, run_operator
        self.calls = []  # (replica, what, name)
        self.operators = {}

    def build_registry(self, name):
        registry = kopf.OperatorRegistry()

        @kopf.on.create('kopfexamples', registry=registry)
        @kopf.on.update('kopfexamples', registry=registry)
        async def handle(reason, body, **_):
            self.calls.append((name, str(reason), body.metadata.name))

        @kopf.on.promoted(registry=registry)
        async def promoted(**_):
            self.calls.append((name, 'promoted', kopf.leading()))

        @kopf.on.demoted(registry=registry)
        async def demoted(**_):
            self.calls.append((name, 'demoted', kopf.leading()))

        return registry

    async def run(self, replica, /, *, settings=None, registry=None, **changes):
        operator = await self._run_operator(
            settings=settings or build_settings(**changes),
            registry=registry or self.build_registry(replica),
        )
        self.operators[replica] = operator
        return operator

    async def find_lease(self):
        with contextlib.suppress(kopf.testing.ApiError):
            return await self._sandbox.get('leases.coordination.k8s.io', LEASE)

    async def get_spec(self):
        lease = await self.find_lease()
        return (lease or {}).get('spec') or {}

    async def wait_until_promoted(self, name):
        await wait_until(lambda: any(call[:2] == (name, 'promoted') for call in self.calls))

    def select(self, what):
        return [(who, name) for who, kind, name in self.calls if kind == what]
