"""
Operators and the outages of their clusters: restarts of the server, gaps in the streams, and lost
history.
"""

import asyncio

import e2e_servers
import pytest
from e2e_worlds import wait_until

import kopf


@pytest.fixture
async def wire(own_server):
    """A way to the server that can be cut."""
    wire = e2e_servers.Wire(own_server.info)
    await wire.mend()
    yield wire
    await wire.cut()


@pytest.fixture
def kubeconfig(server, wire, tmp_path, monkeypatch):
    """Operators go by the wire, and the administrator directly."""
    path = tmp_path / 'kubeconfig'
    e2e_servers.write_kubeconfig(path, server.kubeconfig, server=wire.url)
    monkeypatch.setenv('KUBECONFIG', str(path))
    return path


async def test_restart_of_the_server_loses_nothing(own_server, world, registry, run_operator):
    calls, finishing = [], asyncio.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, **_):
        calls.append(('create', name))
        if name == 'slow':
            await finishing.wait()

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(name, **_):
        calls.append(('update', name))

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(name, **_):
        calls.append(('delete', name))

    async with run_operator():
        await world.create('old')
        await world.wait_until_handled(name='old')
        await world.create('slow')
        await wait_until(lambda: ('create', 'slow') in calls)

        await own_server.down()
        finishing.set()
        await own_server.up()
        await world.api.wait_until_served(world.path())

        await world.patch({'spec': {'x': 2}}, 'old')
        await world.create('new')
        await world.wait_until_handled(name='slow')
        await world.wait_until_handled(name='new')
        await world.wait_until_handled(x=2, name='old')
        for name in ('old', 'slow', 'new'):
            await world.delete(name)
            await world.wait_until_gone(name)

    assert sorted(calls) == sorted(
        [
            ('create', 'old'),
            ('create', 'slow'),
            ('create', 'new'),
            ('update', 'old'),
            ('delete', 'old'),
            ('delete', 'slow'),
            ('delete', 'new'),
        ]
    )


@pytest.mark.parametrize('forgets', [False, True], ids=['resumed', 'forgotten'])
async def test_changes_in_a_gap_are_noticed(
    own_server, world, registry, run_operator, wire, forgets
):
    events, calls = [], []

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, name, **_):
        events.append((type, name))

    @kopf.index('kopfexamples', id='names', registry=registry)
    async def names(name, **_):
        return {name: None}

    @kopf.on.create('kopfexamples', registry=registry, labels={'counted': kopf.PRESENT})
    async def create_fn(name, names, **_):
        calls.append((name, sorted(names)))

    for name in ('same', 'modified', 'deleted', 'recreated'):
        await world.create(name)
    async with run_operator():
        await wait_until(lambda: len(events) == 4)
        await wait_until(lambda: world.read_asked('list'))
        await world.create('last-seen')
        await wait_until(lambda: ('ADDED', 'last-seen') in events)
        listed, _ = len(world.read_asked('list')), events.clear()

        await wire.cut()
        await world.patch({'spec': {'x': 2}}, 'modified')
        await world.delete('deleted')
        await world.delete('recreated')
        await world.create('recreated')
        await world.create(
            'new', metadata={'name': 'new', 'labels': {'counted': 'yes'}}, spec={'x': 1}
        )
        if forgets:
            await forget(own_server)
            await world.api.wait_until_served(world.path())
        await wire.mend()

        await world.wait_until_handled(name='new')
        await wait_until(
            lambda: {name for _, name in events} >= {'modified', 'deleted', 'recreated', 'new'}
        )

    # Not checks.
    asked = [
        asked for asked in world.read_asked('list') if 'resourceVersionMatch' not in asked.query
    ]
    assert len(asked) - listed == (1 if forgets else 0)
    assert calls == [('new', ['last-seen', 'modified', 'new', 'recreated', 'same'])]
    assert events.count(('DELETED', 'deleted')) == events.count(('DELETED', 'recreated')) == 1
    assert 'same' not in [name for _, name in events] and 'last-seen' not in [
        name for _, name in events
    ]


async def forget(server):
    """Leave no history: neither in the storage, nor in the memory of the server."""
    await server.compact()
    await server.down()
    await server.up()
