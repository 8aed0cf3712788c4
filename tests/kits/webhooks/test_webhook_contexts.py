"""Servers release everything they have taken, and can be made of other servers."""

import asyncio
import gc
import socket

import pytest

from kopf._kits.webhooks import contexts, servers


def is_free(port):
    try:
        socket.create_server(('127.0.0.1', port)).close()
    except OSError:
        return False
    return True


def get_port(config):
    return int(config['url'].rpartition(':')[2].partition('/')[0])


@pytest.mark.guarantee('ADM-092')
async def test_server_enters_as_itself():
    server = servers.WebhookServer()

    async with server as entered:
        assert entered is server
    assert isinstance(server, contexts.WebhookContextManager)


@pytest.mark.guarantee('ADM-094')
async def test_exit_ends_the_iterators_that_are_paused(reviewer):
    async with servers.WebhookServer(insecure=True) as server:
        configs = server(reviewer)
        port = get_port(await anext(configs))
        assert not is_free(port)

    assert is_free(port)
    with pytest.raises(StopAsyncIteration):
        await anext(configs)


@pytest.mark.guarantee('ADM-094')
async def test_exit_ends_the_iterators_that_are_waited_for(reviewer):
    async with servers.WebhookServer(insecure=True) as server:
        configs = server(reviewer)
        port = get_port(await anext(configs))
        waiting = asyncio.create_task(anext(configs, None))
        await asyncio.sleep(0)

    assert is_free(port)
    assert await waiting is None


@pytest.mark.guarantee('ADM-094')
async def test_exit_ends_the_iterators_that_were_not_started(reviewer):
    async with servers.WebhookServer(insecure=True) as server:
        configs = server(reviewer)

    with pytest.raises(StopAsyncIteration):
        await anext(configs)


@pytest.mark.guarantee('ADM-093')
async def test_server_works_without_the_context_until_it_is_cancelled(reviewer):
    ports = []

    async def consume():
        async for config in servers.WebhookServer(insecure=True)(reviewer):
            ports.append(get_port(config))

    task = asyncio.create_task(consume())
    while not ports:
        await asyncio.sleep(0.01)
    assert not is_free(ports[0])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert is_free(ports[0])


async def test_abandoned_iterator_releases_the_port(reviewer):
    configs = servers.WebhookServer(insecure=True)(reviewer)
    port = get_port(await anext(configs))

    del configs
    gc.collect()

    while not is_free(port):
        await asyncio.sleep(0.01)


@pytest.mark.guarantee('ADM-095', 'ADM-094')
async def test_server_can_be_inherited_from(serve, reviewer):
    class Tunnel(servers.WebhookServer):
        async def __call__(self, fn):
            async for config in super().__call__(fn):
                yield {**config, 'url': config['url'] + '/tunnel'}

    async with Tunnel(insecure=True) as tunnel:
        configs = tunnel(reviewer)
        config = await anext(configs)
        port = get_port(config)
        assert not is_free(port)

    assert config['url'] == f'http://localhost:{port}/tunnel'
    assert is_free(port)


@pytest.mark.guarantee('ADM-095', 'ADM-088')
async def test_server_can_be_a_part_of_a_tunnel(session, reviewer):
    async def tunnel(fn):
        async with servers.WebhookServer(insecure=True) as server:
            async for config in server(fn):
                yield {'service': {'name': 'x', 'namespace': 'y'}, 'url': config['url']}

    configs = tunnel(reviewer)
    config = await anext(configs)
    async with session.post(config['url'], data=b'{}') as response:
        assert response.status == 200
    await configs.aclose()

    assert config['service'] == {'name': 'x', 'namespace': 'y'}
    assert is_free(get_port(config))


async def test_two_runs_of_a_server_are_independent(reviewer):
    async with servers.WebhookServer(insecure=True) as server:
        one, two = server(reviewer), server(reviewer)
        ports = [get_port(await anext(one)), get_port(await anext(two))]
        await one.aclose()

        assert [is_free(port) for port in ports] == [True, False]
    assert is_free(ports[1])
