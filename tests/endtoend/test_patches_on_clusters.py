"""
Patches of handlers on real API servers: stored otherwise than sent, refused, or too late.

The tests do not wait for silence: they count what was done to an object when others, created
later, have been handled.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import e2e_servers
import e2e_worlds
import pytest
from e2e_worlds import LAST_HANDLED, PATIENCE, PAUSE, PREFIX, wait_until

import kopf

MERGE = 'application/merge-patch+json'
STRICT = 'kopfstrictexamples'
ITEM = {
    'type': 'object',
    'properties': {'port': {'type': 'integer'}, 'protocol': {'type': 'string', 'default': 'TCP'}},
}
FIELDS = {
    'x': {'type': 'integer'},
    'y': {'type': 'string'},
    'size': {'type': 'integer', 'minimum': 0},
    'items': {'type': 'array', 'items': ITEM},
}
CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': f'{STRICT}.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'KopfStrictExample', 'plural': STRICT, 'singular': 'kopfstrictexample'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'properties': {'spec': {'type': 'object', 'properties': FIELDS}},
                    }
                },
            }
        ],
    },
}

PREFIXES = {'services': '/api/v1', 'deployments': '/apis/apps/v1', STRICT: '/apis/kopf.dev/v1'}
CONTAINER = {'name': 'main', 'image': 'image'}
SPECS = {
    'services': {'ports': [{'port': 1}]},
    'deployments': {
        'replicas': 0,
        'paused': True,  # otherwise, the controller changes its annotations
        'selector': {'matchLabels': {'app': 'x'}},
        'template': {'metadata': {'labels': {'app': 'x'}}, 'spec': {'containers': [CONTAINER]}},
    },
    STRICT: {'x': 1},
}
# The status, as soon as the object is there and each time it changes.
CONTROLLERS_WRITES = {'deployments': 2}
KINDS = {
    'services': {'apiVersion': 'v1', 'kind': 'Service'},
    'deployments': {'apiVersion': 'apps/v1', 'kind': 'Deployment'},
    STRICT: {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfStrictExample'},
}


@dataclasses.dataclass(frozen=True)
class Shelf:
    """The objects of one resource in the namespace of the test."""

    world: e2e_worlds.World
    plural: str

    def path(self, name: str = '') -> str:
        root = f'{PREFIXES[self.plural]}/namespaces/{self.world.namespace}/{self.plural}'
        return f'{root}/{name}' if name else root

    async def create(self, name: str = 'obj') -> Any:
        body = {**KINDS[self.plural], 'metadata': {'name': name}, 'spec': SPECS[self.plural]}
        return await self.world.api.ask('POST', self.path(), body)

    async def patch(self, patch: Mapping[str, Any], name: str = 'obj') -> Any:
        return await self.world.api.ask('PATCH', self.path(name), patch, MERGE)

    async def wait_until_handled(
        self, name: str = 'obj', labels: Mapping[str, str] | None = None
    ) -> Any:
        """Wait until the state with these labels is recorded as handled."""
        async with asyncio.timeout(PATIENCE):
            while True:
                body = await self.world.api.find(self.path(name))
                handled = get_handled(body)
                if handled is not None and handled.get('metadata', {}).get('labels') == labels:
                    return body
                await asyncio.sleep(PAUSE)

    async def settle(self) -> Any:
        """Create and handle other objects, to give time for circles of the first one."""
        for name in ('other-1', 'other-2'):
            await self.create(name)
            await self.wait_until_handled(name)
        return await self.world.api.find(self.path('obj'))

    def read_writes(self) -> list[e2e_servers.Asked]:
        """Read the operator's writes, except for those that have met a write of a controller."""
        asked = self.world.read_asked(*e2e_servers.WRITES, plural=self.plural, name='obj')
        met = [write for write in asked if write.code == 409]
        assert len(met) <= CONTROLLERS_WRITES.get(self.plural, 0)
        return [write for write in asked if write.code != 409]


def get_handled(body: Any) -> Any:
    """Return the last handled state; ``None`` if there is none, or if something is in progress."""
    annotations = ((body or {}).get('metadata') or {}).get('annotations') or {}
    ours = [key for key in annotations if key.startswith(PREFIX)]
    return json.loads(annotations[LAST_HANDLED]) if ours == [LAST_HANDLED] else None


@pytest.fixture(autouse=True)
def counted(own_server):
    """Only our own servers tell what they were asked of."""


@pytest.fixture(scope='module')
def strict_on_sandbox(sandbox_of_session):
    with define(sandbox_of_session):
        yield


@pytest.fixture(scope='module')
def strict_on_cluster(cluster_of_session):
    with define(cluster_of_session):
        yield


@contextlib.contextmanager
def define(server):
    """Define the resource with a schema; servers need a moment to do and to undo it."""
    asyncio.run(e2e_worlds.define(server, CRD))
    yield
    asyncio.run(e2e_worlds.undefine(server, CRD))


@pytest.fixture
def strict(request, server):
    """A resource with a schema on the server of the test."""
    origin = request.node.callspec.params['server']
    names = {'sandbox_of_session': 'strict_on_sandbox', 'cluster_of_session': 'strict_on_cluster'}
    request.getfixturevalue(names[origin])


@pytest.fixture
def errors(caplog):
    caplog.set_level(logging.INFO)
    return lambda: [record for record in caplog.records if record.levelno >= logging.ERROR]


def set_known_field(patch):
    patch.spec['y'] = 'value'


def set_known_field_of_deployments(patch):
    patch.spec['minReadySeconds'] = 3


def set_ports(patch):
    patch.spec['ports'] = [{'port': 80}]


def set_unknown_field(patch):
    patch.spec['unknown'] = 'value'


def set_resources(patch):
    resources = {'limits': {'cpu': '1000m', 'memory': '1024Mi'}}
    patch.spec['template'] = {'spec': {'containers': [{**CONTAINER, 'resources': resources}]}}


def set_items(patch):
    patch.spec['items'] = [{'port': 80}]


def set_items_by_function(patch):
    patch.fns.append(lambda body: body['spec'].update(items=[{'port': 80}]))


def set_wrong_type(patch):
    patch.spec['size'] = 'big'


def set_bad_label(patch):
    patch.metadata.labels['label'] = 'not a label!'


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to patch an object of a resource."""

    plural: str
    change: Callable[[Any], None]


@pytest.mark.guarantee('FND-001', 'FND-003')
@pytest.mark.parametrize(
    'way',
    [
        pytest.param(Way(STRICT, set_known_field), id='as-sent'),
        pytest.param(
            Way('deployments', set_known_field_of_deployments), id='as-sent-to-deployments'
        ),
        pytest.param(Way('services', set_ports), id='ports-of-services'),
        pytest.param(Way('deployments', set_unknown_field), id='unknown-fields-of-deployments'),
        pytest.param(Way('deployments', set_resources), id='quantities-of-deployments'),
        pytest.param(Way(STRICT, set_items), id='defaults-in-lists'),
        pytest.param(Way(STRICT, set_items_by_function), id='defaults-in-lists-by-functions'),
        pytest.param(Way(STRICT, set_unknown_field), id='pruned-fields'),
    ],
)
async def test_patches_stored_otherwise_are_of_one_call_and_two_writes(
    strict, world, registry, run_operator, way
):
    @kopf.on.create(way.plural, registry=registry)
    @kopf.on.update(way.plural, registry=registry)
    async def change_fn(name, reason, patch, **_):
        calls.append((name, reason))
        if name == 'obj':
            way.change(patch)

    calls = []
    shelf = Shelf(world, way.plural)
    async with run_operator():
        await shelf.create()
        await shelf.wait_until_handled()
        body = await shelf.settle()

    assert [reason for name, reason in calls if name == 'obj'] == ['create']
    assert len(shelf.read_writes()) <= 2
    assert get_handled(body)['spec'] == body['spec']


@pytest.mark.guarantee('FND-001')
async def test_patches_changed_by_webhooks_are_of_one_call_and_two_writes(
    world, registry, settings, run_operator
):
    @kopf.on.mutate('kopfexamples', id='enforce', registry=registry)
    async def enforce_fn(spec, patch, **_):
        if spec.get('y', 'enforced') != 'enforced':
            patch.spec['y'] = 'enforced'

    @kopf.on.create('kopfexamples', registry=registry, labels={'watched': 'yes'})
    @kopf.on.update('kopfexamples', registry=registry, labels={'watched': 'yes'})
    async def change_fn(name, reason, patch, **_):
        calls.append((name, reason))
        patch.spec['y'] = 'wanted'

    calls = []
    settings.admission.managed = f'{world.namespace}.kopf.dev'
    settings.admission.server = kopf.WebhookServer(addr='127.0.0.1', host='localhost')
    async with run_operator():
        await wait_until_enforced(world)
        for name in ('obj', 'other'):
            labels = {'name': name, 'labels': {'watched': 'yes'}}
            await world.create(name, spec={'x': 1}, metadata=labels)
            await world.wait_until_handled(name=name)
        body = await world.find()

    assert [reason for name, reason in calls if name == 'obj'] == ['create']
    assert len(world.read_writes(name='obj')) <= 2
    assert body['spec'] == {'x': 1, 'y': 'enforced'}
    assert get_handled(body)['spec'] == body['spec']


async def wait_until_enforced(world):
    """Wait until the webhook is in force: API servers see new configurations a moment later."""
    async with asyncio.timeout(PATIENCE):
        for number in itertools.count():
            body = await world.create(f'probe-{number}', spec={'y': 'wanted'})
            if body['spec']['y'] == 'enforced':
                return
            await asyncio.sleep(PAUSE)


@pytest.mark.guarantee('FND-002')
@pytest.mark.parametrize(
    'way',
    [
        pytest.param(Way(STRICT, set_wrong_type), id='wrong-type'),
        pytest.param(Way(STRICT, set_bad_label), id='bad-label'),
        pytest.param(Way('services', set_bad_label), id='bad-label-of-services'),
    ],
)
async def test_refused_patches_are_reported_once(
    strict, world, registry, run_operator, errors, way
):
    @kopf.on.create(way.plural, registry=registry)
    @kopf.on.update(way.plural, registry=registry)
    async def change_fn(name, reason, patch, **_):
        calls.append((name, reason))
        if name == 'obj':
            way.change(patch)

    calls = []
    shelf = Shelf(world, way.plural)
    async with run_operator():
        await shelf.create()
        await shelf.wait_until_handled()
        await shelf.settle()
        reasons = [reason for name, reason in calls if name == 'obj']
        reported = len(errors())
        writes = len(shelf.read_writes())
        await shelf.patch({'metadata': {'labels': {'edited': 'yes'}}})
        await shelf.wait_until_handled(labels={'edited': 'yes'})

    assert reasons == ['create']
    assert reported == 1
    assert writes <= 2
    assert [reason for name, reason in calls if name == 'obj'] == ['create', 'update']


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize('place', ['spec', 'status', 'functions', 'nothing'])
async def test_namesakes_are_handled_from_the_beginning(world, registry, run_operator, place):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def change_fn(uid, reason, spec, patch, **_):
        calls.append((uid, reason))
        if spec['x'] != 1:
            return
        await world.delete()
        objects.append(await world.create(spec={'x': 9}))
        await world.wait(lambda body: get_handled(body) is not None)
        if place in ('spec', 'status'):
            patch[place] = {'by': uid}
        if place == 'functions':
            patch.fns.append(lambda body: body['spec'].update(by=uid))

    calls = []
    async with run_operator():
        objects = [await world.create()]
        await world.wait(lambda body: objects[1:] and get_handled(body) is not None)
        await world.create('other', spec={'x': 7})
        await world.wait_until_handled(x=7, name='other')
        body = await world.find()

    former, present = [created['metadata']['uid'] for created in objects]
    relevant = [call for call in calls if call[0] in (former, present)]
    assert relevant == [(former, 'create'), (present, 'create')]
    assert body['metadata']['uid'] == present
    assert former not in json.dumps(body)
    assert get_handled(body)['spec'] == body['spec']


@pytest.mark.guarantee('FND-007')
async def test_indices_are_as_they_were_until_the_operator_has_stopped(
    world, registry, run_operator
):
    sizes = []

    @kopf.index('kopfexamples', id='names', registry=registry)
    async def names(name, **_):
        return {name: name}

    @kopf.daemon('kopfexamples', registry=registry, cancellation_timeout=PATIENCE)
    async def watch_until_the_end(names, stopped, **_):
        await stopped.wait()
        for _ in range(20):  # longer than the streams need to stop
            sizes.append(('daemon', len(names)))
            await asyncio.sleep(PAUSE)

    @kopf.on.create('kopfexamples', registry=registry, labels={'slow': 'yes'})
    async def linger(names, **_):
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        sizes.append(('handler', len(names)))

    @kopf.on.cleanup(registry=registry)
    async def look_again(names, **_):
        sizes.append(('cleanup', len(names)))

    started = asyncio.Event()
    async with run_operator():
        await world.create('one')
        await world.create(
            'two', metadata={'name': 'two', 'labels': {'slow': 'yes'}}, spec={'x': 1}
        )
        await wait_until(started.is_set)
        await world.wait(lambda body: 'finalizers' in body['metadata'], 'one')

    assert {kind for kind, _ in sizes} >= {'daemon', 'cleanup'}
    assert {size for _, size in sizes} == {2}
