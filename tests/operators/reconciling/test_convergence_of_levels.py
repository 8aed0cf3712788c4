"""
Level-triggered functions converge: whatever happens to the objects, the operator and the streams, in
the end the world is as if the function was called once for it.
"""

import asyncio
import random

import pytest
from clusters import get_finalizers

import kopf

NAMES = ['one', 'two', 'three']
CHILDREN = ['a', 'b', 'c', 'd']


class World:
    """The random changes of a cluster, and what must be in the statuses of its objects."""

    def __init__(self, sandbox, cluster, seed):
        self.sandbox, self.cluster, self.chance = sandbox, cluster, random.Random(seed)

    async def change(self):
        name, child = self.chance.choice(NAMES), self.chance.choice(CHILDREN)
        value = self.chance.randrange(100)
        match self.chance.randrange(7):
            case 0:
                await self.ignore_absence(self.cluster.create(name, spec={'x': value}))
            case 1 | 2:
                await self.ignore_absence(self.cluster.patch({'spec': {'x': value}}, name))
            case 3 | 4:
                await self.ignore_absence(self.adopt(child, name, value))
            case 5:
                await self.ignore_absence(self.sandbox.delete('configmaps', child))
            case 6:
                await self.ignore_absence(self.cluster.delete(name))

    async def ignore_absence(self, action):
        try:
            await action
        except kopf.testing.ApiError as error:
            assert error.code in (404, 409)

    async def adopt(self, child, name, value):
        owner = kopf.build_owner_reference(await self.cluster.get(name))
        body = {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': child, 'namespace': 'default', 'ownerReferences': [owner]},
            'data': {'x': str(value)},
        }
        await self.sandbox.apply(body)

    async def collect(self):
        """Collect the statuses as they are, and as they must be."""
        children = await self.sandbox.list('configmaps', 'default')
        found, expected = {}, {}
        for body in await self.sandbox.list('kopfexamples', 'default'):
            uid, name = body['metadata']['uid'], body['metadata']['name']
            assert get_finalizers(body) == []
            assert 'annotations' not in body['metadata']
            found[name] = body.get('status')
            owned = {
                child['metadata']['name']: child['data']['x']
                for child in children
                for owner in child['metadata'].get('ownerReferences', [])
                if owner['uid'] == uid
            }
            expected[name] = {'x': body['spec']['x'], 'children': sorted(owned.items())}
        return found, {
            name: {**status, 'children': [list(pair) for pair in status['children']]}
            for name, status in expected.items()
        }


@pytest.mark.guarantee('RCL-001', 'RCL-002', 'RCL-005')
@pytest.mark.parametrize('seed', range(30))
async def test_any_interleaving_ends_in_the_same_world(
    sandbox, cluster, registry, run_operator, seed
):
    @kopf.on.reconcile('kopfexamples', registry=registry, owns=['configmaps'])
    async def fn(spec, owned, patch, **_):
        await asyncio.sleep(chance.choice([0, 0, 0.1, 2]))
        if chance.random() < 0.1:
            raise RuntimeError('boo')
        patch.status['x'] = spec['x']
        patch.status['children'] = [[body.metadata.name, body['data']['x']] for body in owned['cm']]

    chance, world = random.Random(seed), World(sandbox, cluster, seed)
    operator = await run_operator()
    for _ in range(40):
        await world.change()
        await asyncio.sleep(chance.choice([0, 0, 0, 0.01, 1]))
        match chance.randrange(12):
            case 0:
                operator.task.cancel()
                await asyncio.wait([operator.task])
                operator = await run_operator()
            case 1:
                sandbox.faults.cut_streams()
            case 2:
                await sandbox.compact()
                sandbox.faults.cut_streams()
    await asyncio.sleep(100)

    found, expected = await world.collect()
    assert found == expected

    sandbox.requests.clear()
    await asyncio.sleep(100)
    assert cluster.writes == []
    await operator.stop()
