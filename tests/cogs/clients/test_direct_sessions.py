"""
Our own connections to the API: kept for the next requests, and given up in time.
"""

import asyncio
import gzip

import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.http import connections, direct, models, sessions
from kopf._cogs.structs import credentials

VERSION = models.Call('GET', '/version')
PATCH = models.Call('PATCH', '/x', {}, b'{}')
POST = models.Call('POST', '/x', {}, b'{}', is_repeatable=False)
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'
STREAM = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'
NO_LIMITS = models.Timeouts()


@pytest.fixture
async def open_session():
    opened = []

    async def open_session(server, **kwargs):
        opened.append(
            await sessions.open_session(credentials.ConnectionInfo(server=server, **kwargs))
        )
        return opened[-1]

    yield open_session
    for session in opened:
        await session.close()


async def test_library_is_not_needed_for_direct_connections(scripted, open_session):
    async with scripted(OK) as server:
        session = await open_session(server.url)
        answer = await session.fetch(VERSION, NO_LIMITS)

    assert isinstance(session, direct.DirectSession)
    assert (answer.code, answer.raw) == (200, b'{}')


@pytest.mark.parametrize(
    'kwargs',
    [
        pytest.param({'proxy_url': 'http://127.0.0.1:1'}, id='proxy'),
        pytest.param({'trust_env': True}, id='environment'),
    ],
)
async def test_library_is_for_proxies(open_session, kwargs, monkeypatch):
    monkeypatch.setenv('http_proxy', 'http://127.0.0.1:1')
    monkeypatch.setenv('no_proxy', '')

    assert not isinstance(await open_session('http://127.0.0.1:2', **kwargs), direct.DirectSession)


@pytest.mark.parametrize('call', [VERSION, PATCH], ids=['get', 'patch'])
async def test_repeatable_requests_are_repeated_if_kept_connections_are_closed_by_the_server(
    scripted, open_session, call
):
    async with scripted(OK, b'', OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        asking = asyncio.create_task(session.fetch(call, NO_LIMITS))
        await server.wait_until_asked(times=2)
        server.disconnect()
        answer = await asking

    assert answer.code == 200
    assert (len(server.asked), server.connections) == (3, 2)


async def test_other_requests_are_not_repeated(scripted, open_session):
    async with scripted(OK, b'', OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        asking = asyncio.create_task(session.fetch(POST, NO_LIMITS))
        await server.wait_until_asked(times=2)
        server.disconnect()
        with pytest.raises(
            errors.APIDisconnectedError,
            match='POST /x: the connection was closed without an answer',
        ):
            await asking

    assert len(server.asked) == 2


async def test_answers_that_have_begun_are_not_asked_for_again(scripted, open_session):
    async with scripted(OK, OK[:20], OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        asking = asyncio.create_task(session.fetch(VERSION, NO_LIMITS))
        await server.wait_until_asked(times=2)
        server.disconnect()  # with what was sent
        with pytest.raises(errors.APIDisconnectedError, match='in the middle of the answer'):
            await asking


async def test_connections_closed_by_the_server_are_forgotten(scripted, open_session):
    async with scripted(OK, OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        kept = next(iter(session._alive))
        server.disconnect()
        await kept.lost
        await session.fetch(POST, NO_LIMITS)

    assert server.connections == 2


async def test_unused_connections_are_closed_after_a_while(scripted, open_session, virtual_time):
    async with scripted(OK, OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        await server.left.wait()

    assert direct.KEEPALIVE <= virtual_time.elapsed < 3 * direct.KEEPALIVE


async def test_used_connections_are_kept(scripted, open_session, virtual_time):
    async with scripted(*[OK] * 10) as server:
        session = await open_session(server.url)
        for _ in range(10):
            await session.fetch(VERSION, NO_LIMITS)
            await asyncio.sleep(direct.KEEPALIVE / 2)

    assert server.connections == 1


@pytest.mark.parametrize(
    'answer',
    [
        pytest.param(
            b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}', id='closing'
        ),
        pytest.param(OK + b'HTTP/1.1 200 OK\r\n', id='more-than-asked'),
    ],
)
async def test_connections_that_are_not_reusable_are_not_reused(scripted, open_session, answer):
    async with scripted(answer, OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        await session.fetch(VERSION, NO_LIMITS)

    assert server.connections == 2


async def test_cancelled_requests_take_their_connections_with_them(scripted, open_session):
    async with scripted(OK) as server:
        session = await open_session(server.url)
        await session.fetch(VERSION, NO_LIMITS)
        asking = asyncio.create_task(session.fetch(VERSION, NO_LIMITS))
        await server.wait_until_asked(times=2)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.left.wait()

    assert not session._asked


@pytest.mark.parametrize(
    'location, code',
    [
        pytest.param('/y?z=1', 200, id='path'),
        pytest.param('{url}/y', 200, id='same-server'),
        pytest.param('http://127.0.0.2:1/y', 302, id='other-server'),
        pytest.param('http://[', 302, id='not-a-url'),
    ],
)
async def test_redirects_are_followed_only_within_the_server(
    scripted, open_session, location, code
):
    async with scripted() as server:
        target = location.format(url=server.url)
        server.answers += [
            f'HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n'.encode(),
            OK,
        ]
        session = await open_session(server.url, token='t0ken')
        answer = await session.fetch(VERSION, NO_LIMITS)

    assert answer.code == code
    assert len(server.asked) == (2 if code == 200 else 1)


async def test_endless_redirects_end(scripted, open_session):
    redirect = b'HTTP/1.1 302 Found\r\nLocation: /version\r\nContent-Length: 0\r\n\r\n'
    async with scripted(*[redirect] * 100) as server:
        session = await open_session(server.url)
        answer = await session.fetch(VERSION, NO_LIMITS)

    assert answer.code == 302
    assert len(server.asked) == models.REDIRECTS_LIMIT


async def test_servers_with_paths_are_asked_by_these_paths(scripted, open_session):
    async with scripted(OK, OK) as server:
        session = await open_session(f'{server.url}/k8s/clusters/c1/')
        await session.fetch(VERSION, NO_LIMITS)
        await session.fetch(PATCH, NO_LIMITS)

    assert [head.split(b'\r\n')[0] for head in server.asked] == [
        b'GET /k8s/clusters/c1/version HTTP/1.1',
        b'PATCH /k8s/clusters/c1/x HTTP/1.1',
    ]


async def test_names_of_several_addresses_are_tried_all(scripted, open_session):
    async with scripted(OK) as server:
        # The other address does not listen.
        session = await open_session(server.url.replace('127.0.0.1', 'localhost'))
        answer = await session.fetch(VERSION, NO_LIMITS)

    assert answer.code == 200
    assert b'\r\nHost: localhost:' in server.asked[0]


async def test_big_answers_can_be_compressed(scripted, open_session):
    raw = gzip.compress(b'x' * 1000000)
    async with scripted(
        b'HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s'
        % (len(raw), raw)
    ) as server:
        session = await open_session(server.url)
        answer = await session.fetch(VERSION, NO_LIMITS)

    assert answer.raw == b'x' * 1000000
    assert b'\r\nAccept-Encoding: gzip\r\n' in server.asked[0]


@pytest.mark.parametrize('token', ['t0ken\n', 'a\r\nX-Injected: 1', '\u20ac'])
async def test_tokens_that_would_break_the_requests_are_unusable(token):
    with pytest.raises(credentials.LoginError, match='line breaks') as caught:
        await sessions.open_session(
            credentials.ConnectionInfo(server='http://127.0.0.1:1', token=token)
        )

    assert token not in str(caught.value)


async def test_streams_that_nobody_reads_are_held_back(open_session):
    sent = 0

    async def serve(reader, writer):
        nonlocal sent
        await reader.readuntil(b'\r\n\r\n')
        writer.write(STREAM)
        while sent < 64 * 1024 * 1024:
            writer.write(b'10000\r\n' + b'x' * 65536 + b'\r\n')
            await writer.drain()
            sent += 65536
        writer.write(b'0\r\n\r\n')
        writer.close()

    server = await asyncio.start_server(serve, '127.0.0.1', 0)
    session = await open_session(f'http://127.0.0.1:{server.sockets[0].getsockname()[1]}')
    async with session.stream(VERSION, NO_LIMITS) as chunks:
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        held = sent
        received = 0
        while chunk := await chunks.read_chunk():
            received += len(chunk)
    server.close()

    assert held < 32 * 1024 * 1024  # it is mostly in the buffers of the system
    assert received == 64 * 1024 * 1024


async def test_streams_give_everything_that_came_before_they_were_cut(scripted, open_session):
    async with scripted(STREAM + b'5\r\nhello\r\n') as server:
        session = await open_session(server.url)
        async with session.stream(VERSION, NO_LIMITS) as chunks:
            first = await chunks.read_chunk()
            server.disconnect()
            with pytest.raises(errors.APIDisconnectedError):
                await chunks.read_chunk()

    assert first == b'hello'


async def test_silence_of_streams_is_limited_by_the_reader_and_is_not_the_end(
    scripted, open_session, virtual_time
):
    async with scripted(STREAM + b'5\r\nhello\r\n0\r\n') as server:
        session = await open_session(server.url)
        async with session.stream(VERSION, NO_LIMITS) as chunks:
            assert await chunks.read_chunk(100) == b'hello'
            with pytest.raises(TimeoutError):
                await chunks.read_chunk(100)
            waiting = asyncio.create_task(chunks.read_chunk())
            server._writers[0].write(b'\r\n')
            assert await waiting == b''

    assert virtual_time.elapsed >= 100


def test_addresses_are_shown_with_ports():
    assert str(connections.Address('h', 1)) == 'h:1'
    assert str(connections.Address('::1', 1)) == '[::1]:1'


async def test_names_in_other_alphabets_are_sent_as_they_are_resolved(
    scripted, open_session, monkeypatch
):
    async def connect(address):
        asked.append(address.host)
        return await connect_in_fact(connections.Address('127.0.0.1', address.port))

    asked, connect_in_fact = [], connections.connect
    monkeypatch.setattr(connections, 'connect', connect)
    async with scripted(OK) as server:
        session = await open_session(server.url.replace('127.0.0.1', 'кластер.example'))
        await session.fetch(VERSION, NO_LIMITS)

    assert asked == ['xn--80akne1aeh.example']
    assert b'\r\nHost: xn--80akne1aeh.example:' in server.asked[0]
