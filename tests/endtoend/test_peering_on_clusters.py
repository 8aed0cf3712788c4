"""
Operators of several namespaces on clusters, and those who write to the peering of one of them.
"""

import asyncio
import pathlib
import secrets

import e2e_worlds
import pytest
import yaml

import kopf

MANIFEST = pathlib.Path(kopf.__file__).parent.parent / 'peering.yaml'


@pytest.fixture
async def crd(server):
    """The kind of the peerings in namespaces, for the time of the test if it was not there."""
    crds = [
        document
        for document in yaml.safe_load_all(MANIFEST.read_text())
        if document['kind'] == 'CustomResourceDefinition'
        and document['spec']['scope'] == 'Namespaced'
    ]
    is_new = await e2e_worlds.define(server, crds[0])
    yield
    if is_new:
        await e2e_worlds.undefine(server, crds[0])


@pytest.fixture
async def neighbour(world):
    """One more namespace, of somebody else."""
    name = f'neighbour-{secrets.token_hex(4)}'
    await world.api.ask('POST', '/api/v1/namespaces', {'metadata': {'name': name}})
    yield e2e_worlds.World(world.server, world.api, name)
    await world.api.ask('DELETE', f'/api/v1/namespaces/{name}')


@pytest.mark.guarantee('FND-054')
async def test_tenant_pauses_only_its_own_namespace(
    world, neighbour, crd, registry, run_operator, caplog
):
    handled = set()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(namespace, name, **_):
        handled.add((namespace, name))

    peerings = f'/apis/kopf.dev/v1/namespaces/{neighbour.namespace}/kopfpeerings'
    greedy = {'priority': 10**9, 'lifetime': 10**9}
    await world.api.ask(
        'POST',
        peerings,
        {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfPeering',
            'metadata': {'name': 'default'},
            'status': {'tenant': greedy},
        },
    )
    async with run_operator(namespaces=[world.namespace, neighbour.namespace]):
        await e2e_worlds.wait_until(lambda: 'tenant (priority 1000000000)' in caplog.text)
        await neighbour.create('theirs')
        await world.create('ours')
        await e2e_worlds.wait_until(lambda: (world.namespace, 'ours') in handled)
        await asyncio.sleep(1)
        assert (neighbour.namespace, 'theirs') not in handled

        await world.api.ask(
            'PATCH',
            f'{peerings}/default',
            {'status': {'tenant': None}},
            'application/merge-patch+json',
        )
        await e2e_worlds.wait_until(lambda: (neighbour.namespace, 'theirs') in handled)
