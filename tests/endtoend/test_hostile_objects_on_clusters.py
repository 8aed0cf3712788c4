"""
Objects as hostile as API servers accept: they are left alone one by one, and all others are
handled, on any Python.

Beyond 9,990 levels, the API server itself cannot list what it has accepted.
"""

import asyncio
import json
import logging

import pytest
from e2e_worlds import EXAMPLES, LAST_HANDLED, PATIENCE, PAUSE, wait_until

import kopf

pytestmark = pytest.mark.guarantee('FND-050')


@pytest.fixture
def levels(request):
    return 9900 if 'controlplane' in request.node.callspec.id else 300


@pytest.fixture
async def create_deep(world, levels):
    """
    Create objects as texts, as these are too deep for Python; they are deleted before others read
    them.
    """
    created = []

    async def create(name, opening='{"a":', closing='}'):
        manifest = json.dumps(
            {
                'apiVersion': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'metadata': {'name': name},
                'spec': {'f': '?'},
            }
        )
        raw = manifest.replace('"?"', f'{opening * levels}1{closing * levels}')
        async with world.api.session.post(
            world.path(EXAMPLES), data=raw, headers={'Content-Type': 'application/json'}
        ) as response:
            assert response.status == 201, await response.text()
        created.append(name)

    yield create
    for name in created:
        async with world.api.session.delete(world.path(EXAMPLES, name)) as response:
            assert response.status in (200, 404)


async def test_deep_objects_are_left_alone_and_others_are_handled_also_after_restarts(
    world, registry, run_operator, create_deep, caplog
):
    caplog.set_level(logging.INFO)
    handled = []

    @kopf.on.event(EXAMPLES, registry=registry)
    async def event_fn(name, type, **_):
        handled.append((f'event:{type}', name))

    @kopf.on.create(EXAMPLES, registry=registry)
    @kopf.on.delete(EXAMPLES, registry=registry)
    async def fn(name, reason, **_):
        handled.append((str(reason), name))

    def find_reported():
        texts = [
            record.getMessage() for record in caplog.records if record.levelno == logging.ERROR
        ]
        return [
            text.partition('/')[2].partition(' ')[0] for text in texts if 'is left alone' in text
        ]

    await world.create('good1')
    await create_deep('bad1')
    await create_deep('bad2', '[', ']')
    async with run_operator():
        await wait_until(lambda: ('create', 'good1') in handled)
        await create_deep('bad3')
        await world.create('good2')
        await wait_until(lambda: ('create', 'good2') in handled)
    await world.create('good3')
    async with run_operator():
        await wait_until(lambda: ('create', 'good3') in handled)
        await world.delete('bad1')
        await wait_until(lambda: ('event:DELETED', 'bad1') in handled)
        await world.patch({'spec': {'f': None}}, 'bad2')
        await wait_until(lambda: ('create', 'bad2') in handled)
        await world.delete('good1')
        await wait_until(lambda: ('delete', 'good1') in handled)

    assert sorted(find_reported()) == ['bad1', 'bad1', 'bad2', 'bad2', 'bad3', 'bad3']
    assert ('create', 'bad1') not in handled
    assert ('create', 'bad3') not in handled


async def test_handled_object_that_becomes_deep_is_released_when_it_is_corrected(
    world, registry, run_operator, levels, caplog
):
    handled = []

    @kopf.on.update(EXAMPLES, registry=registry)
    @kopf.on.delete(EXAMPLES, registry=registry)
    async def fn(reason, **_):
        handled.append(str(reason))

    await world.create()
    async with run_operator():
        await wait_until_handled(world)
        raw = f'{{"spec":{{"f":{"[" * levels}{"]" * levels}}}}}'
        async with world.api.session.patch(
            world.path(EXAMPLES, 'obj'),
            data=raw,
            headers={'Content-Type': 'application/merge-patch+json'},
        ) as response:
            assert response.status == 200
        await wait_until(lambda: 'is left alone' in caplog.text)
        async with world.api.session.delete(world.path(EXAMPLES, 'obj')) as response:
            assert response.status == 200
        await wait_until(lambda: 'Its deletion is blocked' in caplog.text)
        assert handled == []
        await world.patch({'spec': {'f': None}})
        await wait_until(lambda: handled == ['delete'])


async def wait_until_handled(world):
    async with asyncio.timeout(PATIENCE):
        while LAST_HANDLED not in ((await world.find())['metadata'].get('annotations') or {}):
            await asyncio.sleep(PAUSE)
