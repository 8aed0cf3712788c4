"""Sockets are taken at all addresses of a host, at one port, or not at all."""

import errno
import socket

import pytest

from kopf._cogs.aiokits import sockets


@pytest.fixture
def close_later():
    taken = []
    yield taken
    for sock in taken:
        sock.close()


@pytest.mark.parametrize('host', [None, 'localhost'])
async def test_all_addresses_share_one_random_port(close_later, host):
    close_later += await sockets.bind(host, 0)

    assert len({sock.getsockname()[1] for sock in close_later}) == 1
    assert len({sock.family for sock in close_later}) == len(close_later)


async def test_given_port_is_taken(close_later):
    close_later += await sockets.bind('127.0.0.1', 0)
    port = close_later[0].getsockname()[1]
    close_later.pop().close()

    close_later += await sockets.bind('127.0.0.1', port)

    assert [sock.getsockname() for sock in close_later] == [('127.0.0.1', port)]


async def test_busy_ports_are_errors(close_later):
    close_later.append(socket.create_server(('127.0.0.1', 0)))

    with pytest.raises(OSError) as error:
        await sockets.bind('127.0.0.1', close_later[0].getsockname()[1])

    assert error.value.errno == errno.EADDRINUSE


async def test_foreign_addresses_are_errors():
    with pytest.raises(OSError) as error:
        await sockets.bind('192.0.2.1', 0)

    assert error.value.errno == errno.EADDRNOTAVAIL


async def test_random_port_that_is_busy_elsewhere_is_not_taken(close_later, monkeypatch):
    failures = [OSError(errno.EADDRINUSE, 'busy')]
    bind = sockets._bind

    def fail_once(sock, address):
        if address[1] and failures:
            raise failures.pop()
        bind(sock, address)

    monkeypatch.setattr(sockets, '_bind', fail_once)
    monkeypatch.setattr('asyncio.base_events.BaseEventLoop.getaddrinfo', resolve_twice)
    close_later += await sockets.bind('somewhere', 0)

    assert [sock.getsockname()[0] for sock in close_later] == ['127.0.0.1', '127.0.0.2']
    assert len({sock.getsockname()[1] for sock in close_later}) == 1


async def resolve_twice(loop, host, port, **_):
    return [
        (socket.AF_INET, socket.SOCK_STREAM, 6, '', (address, port))
        for address in ('127.0.0.1', '127.0.0.2')
    ]
