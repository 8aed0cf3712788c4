"""
Sessions: how the servers are reached, and what is said to them in every request.
"""

import asyncio
import contextlib
import subprocess
import sys

import aiohttp
import pytest

from kopf._cogs.clients import errors
from kopf._cogs.clients.http import models, sessions
from kopf._cogs.helpers import versions
from kopf._cogs.structs import credentials

VERSION = models.Call('GET', '/version')
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'
NO_LIMITS = models.Timeouts()


async def test_requests_are_made_by_http(sandbox, open_session):
    session = await open_session(server=f'{sandbox.url}/', token=sandbox.token)

    answer = await session.fetch(VERSION, NO_LIMITS)

    assert answer.code == 200
    assert b'gitVersion' in answer.raw


@pytest.mark.parametrize('verification', ['path', 'data', 'none'])
async def test_requests_are_made_by_https(secure_sandbox, open_session, verification):
    trust = {
        'path': {'ca_path': secure_sandbox.ca_path},
        'data': {'ca_data': secure_sandbox.ca_data},
        'none': {'insecure': True},
    }
    session = await open_session(
        server=secure_sandbox.url, token=secure_sandbox.token, **trust[verification]
    )

    answer = await session.fetch(models.Call('GET', '/api/v1/namespaces/default'), NO_LIMITS)

    assert answer.code == 200


async def test_untrusted_servers_get_no_requests(secure_sandbox, open_session):
    session = await open_session(server=secure_sandbox.url, token='secret')

    with pytest.raises(errors.APIUnreachableError, match='certificate verify failed'):
        await session.fetch(VERSION, NO_LIMITS)

    assert list(secure_sandbox.requests) == []


@pytest.mark.parametrize('name, is_trusted', [('localhost', True), ('somebody-else', False)])
async def test_name_of_the_server_in_its_certificate_can_be_given(
    secure_sandbox, open_session, name, is_trusted
):
    session = await open_session(
        server=secure_sandbox.url, ca_data=secure_sandbox.ca_data, tls_server_name=name
    )

    with contextlib.nullcontext() if is_trusted else pytest.raises(errors.APIUnreachableError):
        await session.fetch(VERSION, NO_LIMITS)

    assert len(secure_sandbox.requests) == is_trusted


@pytest.mark.parametrize(
    'server',
    [
        '',
        'host',
        'localhost:8080',
        'ftp://host',
        'https://',
        'https://host:port',
        'https://user:secret@:1',
        'https://a..b',
        f'https://{"x" * 64}.y',
        'https://\u200b',
    ],
)
async def test_wrong_servers_are_unusable_credentials(server):
    with pytest.raises(credentials.LoginError, match='must be a URL') as caught:
        await sessions.open_session(credentials.ConnectionInfo(server=server))

    assert 'secret' not in str(caught.value)


async def test_connections_are_reused(scripted, open_session):
    async with scripted(OK, OK, OK) as server:
        session = await open_session(server=server.url)
        for _ in range(3):
            await session.fetch(VERSION, NO_LIMITS)

    assert server.connections == 1


@pytest.mark.guarantee('CFG-040')
async def test_connections_are_not_limited(scripted, open_session):
    async with scripted() as server:
        session = await open_session(server=server.url)
        tasks = [asyncio.create_task(session.fetch(VERSION, NO_LIMITS)) for _ in range(150)]
        await server.wait_until_asked(times=150)
        await session.close()
        await asyncio.wait(tasks)

    assert server.connections == 150
    assert {type(task.exception()) for task in tasks} == {errors.APISessionClosedError}


@pytest.mark.guarantee('NEW-157')
async def test_agent_and_credentials_are_told_in_every_request(scripted, open_session):
    async with scripted(OK) as server:
        session = await open_session(server=server.url, token='t0ken')
        await session.fetch(models.Call('GET', '/x?a=b%2Cc', {'X-Own': '1'}), NO_LIMITS)

    lines = server.asked[0].decode().splitlines()
    assert lines[0] == 'GET /x?a=b%2Cc HTTP/1.1'
    assert {
        f'User-Agent: kopf/{versions.version}',
        'Authorization: Bearer t0ken',
        'X-Own: 1',
    } <= set(lines)


@pytest.mark.guarantee('NEW-157', 'NEW-171', 'NEW-172')
@pytest.mark.parametrize(
    'headers, agent',
    [
        pytest.param({}, f'kopf/{versions.version}', id='missing-agent'),
        pytest.param({'User-Agent': 'mine/1.0'}, 'mine/1.0', id='own-agent'),
    ],
)
async def test_custom_sessions_are_used_as_they_are_and_closed(scripted, headers, agent):
    http = aiohttp.ClientSession(headers={'Authorization': 'Custom x', **headers})
    async with scripted(OK) as server:
        info = credentials.AiohttpSession(server=server.url, aiohttp_session=http)
        session = await sessions.open_session(info)
        await session.fetch(VERSION, NO_LIMITS)
        await session.close()

    assert {f'User-Agent: {agent}', 'Authorization: Custom x'} <= set(
        server.asked[0].decode().splitlines()
    )
    assert http.closed


@pytest.mark.parametrize(
    'userinfo, header',
    [
        pytest.param('', None, id='anonymous'),
        pytest.param('me:p%40ss@', 'Proxy-Authorization: Basic bWU6cEBzcw==', id='password'),
    ],
)
async def test_requests_by_http_go_via_a_proxy(scripted, open_session, userinfo, header):
    async with scripted(OK) as proxy:
        url = proxy.url.replace('//', f'//{userinfo}')
        session = await open_session(server='http://cluster.local:1234', proxy_url=url)
        await session.fetch(VERSION, NO_LIMITS)

    lines = proxy.asked[0].decode().splitlines()
    assert lines[0] == 'GET http://cluster.local:1234/version HTTP/1.1'
    assert [line for line in lines if line.startswith('Proxy-Auth')] == (
        [] if header is None else [header]
    )


@pytest.mark.guarantee('NEW-163')
@pytest.mark.parametrize(
    'userinfo, headers',
    [
        pytest.param('', [], id='anonymous'),
        pytest.param('me:secret@', ['Proxy-Authorization: Basic bWU6c2VjcmV0'], id='password'),
    ],
)
async def test_requests_by_https_go_via_a_tunnel_of_a_proxy(
    secure_sandbox, open_session, userinfo, headers
):
    asked = []
    target = secure_sandbox.url.removeprefix('https://')

    async def pump(reader, writer):
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
        writer.close()

    async def serve(reader, writer):
        asked.append((await reader.readuntil(b'\r\n\r\n')).decode())
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n')
        host, port = target.split(':')
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    proxy = await asyncio.start_server(serve, '127.0.0.1', 0)
    port = proxy.sockets[0].getsockname()[1]
    session = await open_session(
        server=secure_sandbox.url,
        token=secure_sandbox.token,
        ca_data=secure_sandbox.ca_data,
        proxy_url=f'http://{userinfo}127.0.0.1:{port}',
    )
    answer = await session.fetch(VERSION, NO_LIMITS)
    await session.close()
    proxy.close()

    assert answer.code == 200
    assert asked[0].startswith(f'CONNECT {target} HTTP/1.1\r\n')
    assert [line for line in asked[0].splitlines() if 'Authorization' in line] == headers


async def test_refusing_proxies_are_unreachable_servers_and_their_passwords_are_secret(
    scripted, open_session
):
    async with scripted(
        b'HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n'
    ) as proxy:
        session = await open_session(
            server='https://cluster.local:1234',
            insecure=True,
            proxy_url=proxy.url.replace('//', '//me:secret@'),
        )
        with pytest.raises(errors.APIUnreachableError) as caught:
            await session.fetch(VERSION, NO_LIMITS)

    assert '407' in str(caught.value)
    assert 'secret' not in f'{caught.value!r} {caught.value.__cause__!r} {caught.value.__cause__}'


@pytest.mark.parametrize('trust_env', [True, False])
async def test_environment_is_trusted_only_on_demand(
    scripted, open_session, monkeypatch, trust_env
):
    async with scripted(OK) as server, scripted(OK) as proxy:
        for name in ('http_proxy', 'HTTP_PROXY'):
            monkeypatch.setenv(name, proxy.url)
        for name in ('no_proxy', 'NO_PROXY'):
            monkeypatch.setenv(name, '')
        session = await open_session(server=server.url, trust_env=trust_env)
        await session.fetch(VERSION, NO_LIMITS)

    assert (len(server.asked), len(proxy.asked)) == ((0, 1) if trust_env else (1, 0))


@pytest.mark.parametrize(
    'answer, cls',
    [
        pytest.param(b'', errors.APIDisconnectedError, id='closed'),
        pytest.param(
            b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{',
            errors.APIDisconnectedError,
            id='cut',
        ),
        pytest.param(
            b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{',
            errors.APIDisconnectedError,
            id='cut-chunk',
        ),
        pytest.param(b'SSH-2.0-OpenSSH_9.6\r\n', errors.APIGarbledError, id='not-http'),
    ],
)
async def test_failures_of_the_network_are_told_apart(scripted, open_session, answer, cls):
    async with scripted(answer) as server:
        session = await open_session(server=server.url)
        # The rest is not repeated by the HTTP library.
        call = models.Call('PATCH', '/', {'Connection': 'close'})

        with pytest.raises(cls) as caught:
            await session.fetch(call, NO_LIMITS)

    assert type(caught.value) is cls
    assert str(caught.value).startswith('PATCH /: ')


@pytest.mark.parametrize('server', ['http://127.0.0.1:1', 'http://host.invalid'])
async def test_unreachable_servers_are_told_apart(open_session, server):
    session = await open_session(server=server)

    with pytest.raises(errors.APIUnreachableError):
        await session.fetch(VERSION, NO_LIMITS)


async def test_whole_request_is_limited_in_time(scripted, open_session, virtual_time):
    async with scripted() as server:
        session = await open_session(server=server.url)

        with pytest.raises(
            errors.APITimeoutError, match='GET /version: there is no answer in time'
        ):
            await session.fetch(VERSION, models.Timeouts(total=300))

    assert 300 <= virtual_time.elapsed < 303


async def test_connecting_is_limited_in_time_apart(open_session, deaf_url, virtual_time):
    session = await open_session(server=deaf_url)

    with pytest.raises(errors.APIUnreachableError):
        await session.fetch(VERSION, models.Timeouts(total=300, connect=20))

    assert 20 <= virtual_time.elapsed < 23


async def test_redirects_are_followed_for_reading_only(scripted, open_session):
    async with scripted() as server:
        answer = (
            f'HTTP/1.1 302 Found\r\nLocation: {server.url}/y\r\nContent-Length: 0\r\n\r\n'.encode()
        )
        server.answers.extend([answer, OK, answer])
        session = await open_session(server=server.url)
        followed = await session.fetch(VERSION, NO_LIMITS)
        refused = await session.fetch(models.Call('POST', '/'), NO_LIMITS)

    assert (followed.code, refused.code) == (200, 302)


@pytest.mark.guarantee('NEW-160')
async def test_streams_are_closed_before_the_session(sandbox, open_session):
    session = await open_session(server=sandbox.url, token=sandbox.token)
    watch = models.Call('GET', '/api/v1/pods?watch=true')

    async with session.stream(watch, NO_LIMITS) as one, session.stream(watch, NO_LIMITS) as two:
        await session.close()

        for chunks in (one, two):
            with pytest.raises(errors.APISessionClosedError):
                await chunks.read_chunk()

    with pytest.raises(errors.APISessionClosedError) as caught:
        await session.fetch(VERSION, NO_LIMITS)
    assert not caught.value.is_sent


async def test_closing_again_is_harmless(sandbox, open_session):
    session = await open_session(server=sandbox.url, token=sandbox.token)

    await session.close()
    await session.close()

    assert session.is_closed


async def test_unrepeatable_requests_are_let_finish_when_the_session_is_closed(
    sandbox, open_session
):
    session = await open_session(server=sandbox.url, token=sandbox.token)
    stall = sandbox.faults.inject(verb='create', stall=True)
    call = models.Call(
        'POST',
        '/api/v1/namespaces',
        {'Content-Type': 'application/json'},
        b'{"metadata": {"name": "new"}}',
        is_repeatable=False,
    )
    posting = asyncio.create_task(session.fetch(call, NO_LIMITS))
    await stall.wait_until_hit()

    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    stall.lift()

    assert (await posting).code == 201
    await closing


async def test_unrepeatable_requests_do_not_hold_the_session_for_long(
    scripted, open_session, virtual_time
):
    async with scripted() as server:
        session = await open_session(server=server.url)
        posting = asyncio.create_task(
            session.fetch(models.Call('POST', '/', is_repeatable=False), NO_LIMITS)
        )
        await server.wait_until_asked()
        since = virtual_time.elapsed

        await session.close()

        assert virtual_time.elapsed - since < models.CLOSING_TIMEOUT + 1
        with pytest.raises(errors.APISessionClosedError) as caught:
            await posting
        assert caught.value.is_sent


async def test_sessions_are_closed_at_once_from_several_places(
    scripted, open_session, virtual_time
):
    async with scripted() as server:
        session = await open_session(server=server.url)
        both = [VERSION, models.Call('POST', '/', is_repeatable=False)]
        tasks = [asyncio.create_task(session.fetch(call, NO_LIMITS)) for call in both]
        await server.wait_until_asked(times=2)

        await asyncio.gather(session.close(), session.close(), session.close())

        await asyncio.wait(tasks)
        assert {type(task.exception()) for task in tasks} == {errors.APISessionClosedError}


async def test_cancelled_requests_are_cancelled(scripted, open_session):
    async with scripted() as server:
        session = await open_session(server=server.url)
        task = asyncio.create_task(session.fetch(VERSION, NO_LIMITS))
        await server.wait_until_asked()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


async def test_sessions_show_no_secrets(open_session):
    session = await open_session(server='https://me:secret@host', insecure=True, token='secret')

    assert repr(session) == '<Session of https://***@host>'
    assert 'secret' not in repr(models.Call('POST', '/', body=b'secret'))


def test_http_library_is_loaded_only_when_used():
    program = 'import kopf._cogs.clients.requests, sys; print(*sys.modules)'

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )

    assert not {'aiohttp', 'yarl', 'email.utils'} & set(done.stdout.split())


async def test_custom_sessions_closed_in_the_middle_are_told(scripted):
    http = aiohttp.ClientSession()
    async with scripted() as server:
        session = await sessions.open_session(
            credentials.AiohttpSession(server=server.url, aiohttp_session=http)
        )
        asking = asyncio.create_task(session.fetch(VERSION, NO_LIMITS))
        await server.wait_until_asked()

        await http.close()

        with pytest.raises(errors.APISessionClosedError):
            await asking


async def test_answers_are_ours_to_judge_even_if_ready_made_sessions_want_to(scripted):
    refusal = b'HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}'
    async with scripted(refusal) as server, aiohttp.ClientSession(raise_for_status=True) as http:
        session = await sessions.open_session(
            credentials.AiohttpSession(server=server.url, aiohttp_session=http)
        )
        answer = await session.fetch(VERSION, NO_LIMITS)

    assert answer.code == 404
