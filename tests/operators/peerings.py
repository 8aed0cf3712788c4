"""
Peerings for the tests of whole operators: their definitions, their objects, and what operators
leave in these.
"""

import asyncio
import contextlib
import datetime

import aiohttp
from clusters import build_crd, wait_until

import kopf
import kopf.testing
from kopf._cogs.aiokits import clocks
from kopf._cogs.structs import vaults

KINDS = {'clusterkopfpeerings': 'ClusterKopfPeering', 'kopfpeerings': 'KopfPeering'}


def build_peering_crd(
    plural='clusterkopfpeerings', *, group='kopf.dev', has_status=False, scope=None
):
    scope = scope or ('Cluster' if plural == 'clusterkopfpeerings' else 'Namespaced')
    return build_crd(plural, KINDS[plural], group=group, scope=scope, has_status=has_status)


def build_peering(name='default', *, namespace=None, group='kopf.dev', status=None):
    return {
        'apiVersion': f'{group}/v1',
        'kind': KINDS['kopfpeerings' if namespace else 'clusterkopfpeerings'],
        'metadata': {'name': name, **({'namespace': namespace} if namespace else {})},
        **({'status': status} if status else {}),
    }


def build_record(priority=0, *, lifetime=60, age=0.0):
    """
    Build a record of another operator, as if it was made so many seconds ago. To be called in an
    event loop.
    """
    moment = clocks.Clock()() - datetime.timedelta(seconds=age)
    return {'priority': priority, 'lifetime': lifetime, 'lastseen': moment.isoformat()}


def get_writes(sandbox, plural='clusterkopfpeerings'):
    """The requests of operators to the peering objects, but those that only read."""
    return [
        asked
        for asked in sandbox.requests.select(resource=plural)
        if asked.user_agent.startswith('kopf/') and asked.verb not in ('list', 'watch')
    ]


class Town:
    """
    Several operators on one sandbox, each with handlers that tell who has handled which object.
    """

    def __init__(self, sandbox, run_operator):
        self.sandbox, self._run = sandbox, run_operator
        self.handled = []  # (identity, name)
        self.events = []  # (identity, type, name)
        self.counter = 0
        self._stack = contextlib.AsyncExitStack()
        self._operators = []
        self._occupant = None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self._stop_occupant()
        for operator in self._operators:
            if not operator.task.done():
                await operator.stop()
        await self._stack.aclose()

    def build_registry(self, identity):
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login_fn(**_):
            raise kopf.PermanentError('There is no second way to the cluster.')

        @kopf.on.create('kopfexamples', registry=registry)
        @kopf.on.update('kopfexamples', registry=registry)
        async def change_fn(name, **_):
            self.handled.append((identity, name))

        @kopf.on.event('kopfexamples', registry=registry)
        async def event_fn(name, type, **_):
            self.events.append((identity, type, name))

        return registry

    async def run(self, identity, *, registry=None, settings=None, **options):
        """Run an operator; it can be stopped, or killed as if by SIGKILL: with no more requests."""
        session = aiohttp.ClientSession(headers={'Authorization': f'Bearer {self.sandbox.token}'})
        self._stack.push_async_callback(session.close)
        vault = vaults.Vault(
            {'sandbox': kopf.AiohttpSession(server=self.sandbox.url, aiohttp_session=session)}
        )
        operator = await self._run(
            **{
                'vault': vault,
                'identity': identity,
                'settings': settings or kopf.OperatorSettings(),
                'registry': self.build_registry(identity) if registry is None else registry,
                **options,
            }
        )

        async def kill():
            await session.close()
            operator.task.cancel()
            await asyncio.wait([operator.task])

        operator.kill = kill
        self._operators.append(operator)
        return operator

    async def find(self, name='default', namespace=None):
        plural = 'kopfpeerings' if namespace else 'clusterkopfpeerings'
        return await self.sandbox.get(plural, name, namespace or 'default')

    async def get_records(self, name='default', namespace=None):
        return (await self.find(name, namespace)).get('status') or {}

    async def wait_until_recorded(self, *identities, name='default', namespace=None, timeout=600):
        """Wait until exactly these operators are in the peering."""
        plural = 'kopfpeerings' if namespace else 'clusterkopfpeerings'
        return await self.sandbox.wait(
            plural,
            name,
            lambda body: set((body or {}).get('status') or {}) == set(identities),
            namespace or 'default',
            timeout=timeout,
        )

    async def wait_until_handled(self, identity, name, timeout=600):
        await wait_until(lambda: (identity, name) in self.handled, timeout=timeout)

    async def write(self, records, name='default', namespace=None):
        """Write records in the place of other operators; ``None`` removes."""
        plural = 'kopfpeerings' if namespace else 'clusterkopfpeerings'
        await self.sandbox.patch(plural, name, {'status': records}, namespace or 'default')

    async def occupy(self, *, priority):
        """Pretend that there is another operator, alive for as long as it is not told to go."""
        await self.write({'other': build_record(priority, lifetime=600)})
        self._occupant = asyncio.create_task(self._renew(priority), name='another operator')

    async def vacate(self):
        """Let that operator go."""
        await self._stop_occupant()
        await self.write({'other': None})

    async def _renew(self, priority):
        while True:
            await asyncio.sleep(500)
            await self.write({'other': build_record(priority, lifetime=600)})

    async def _stop_occupant(self):
        if self._occupant is not None:
            self._occupant.cancel()
            await asyncio.wait([self._occupant])

    async def check(self, *identities, cluster):
        """Check that these operators are active, and no others."""
        self.counter += 1
        name = f'check{self.counter}'
        await cluster.create(name)

        def get_active():
            return {identity for identity, _, other in self.events if other == name}

        await wait_until(lambda: get_active() >= set(identities), timeout=100)
        await asyncio.sleep(1)
        assert get_active() == set(identities)

    def get_streams(self, plural='kopfexamples'):
        return [
            asked
            for asked in self.sandbox.requests
            if asked.verb == 'watch' and asked.plural == plural
        ]
