"""
Credentials over plain HTTP: nobody on the way may read them. Only this machine itself gets them so.

Before, tokens and passwords were sent to any server whose address began with ``http:``.
"""

import asyncio
import contextlib
import datetime
import logging

import aiohttp
import pytest

import kopf
from kopf._cogs.clients.http import models, sessions
from kopf._cogs.helpers import tokens
from kopf._cogs.structs import credentials

VERSION = models.Call('GET', '/version')
LIMITS = models.Timeouts(total=10)
SECRETS = ('s3cret', 'czNjcmV0', 'bWU6czNjcmV0')  # as it is, in base64, and as a pair in base64


class Listener:
    """A server of HTTP that remembers what it was asked, and redirects somewhere if told so."""

    def __init__(self, location=None):
        self.asked, self.location, self.port = '', location, 0

    async def serve(self, reader, writer):
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.asked += (await reader.readuntil(b'\r\n\r\n')).decode()
            redirect = f'Location: {self.location}\r\n' if self.location else ''
            line = 'HTTP/1.1 302 Found' if self.location else 'HTTP/1.1 200 OK'
            writer.write(
                f'{line}\r\n{redirect}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}'.encode()
            )
            await writer.drain()
        writer.close()


@pytest.fixture
async def listen():
    """Start listeners: ``listener = await listen()``."""
    async with contextlib.AsyncExitStack() as stack:

        async def listen(**options):
            listener = Listener(**options)
            server = await asyncio.start_server(listener.serve, '127.0.0.1', 0)
            listener.port = server.sockets[0].getsockname()[1]
            stack.callback(server.close)
            return listener

        yield listen


@pytest.fixture
def remote(monkeypatch):
    """Let all names lead to this machine, though nobody can know that."""
    original = asyncio.BaseEventLoop.getaddrinfo

    async def getaddrinfo(loop, host, port, **options):
        return await original(loop, '127.0.0.1', port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, 'getaddrinfo', getaddrinfo)


async def fetch(**options):
    session = await sessions.open_session(kopf.ConnectionInfo(**options))
    try:
        return await session.fetch(VERSION, LIMITS)
    finally:
        await session.close()


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'token': 's3cret'}, id='token'),
        pytest.param({'token': 's3cret', 'scheme': 'Custom'}, id='custom-scheme'),
        pytest.param({'scheme': 's3cret'}, id='lone-scheme'),
        pytest.param({'username': 'me', 'password': 's3cret'}, id='password'),
        pytest.param({'token': 's3cret', 'trust_env': True}, id='foreign-session'),
        pytest.param({'userinfo': 'me:s3cret@'}, id='url'),
    ],
)
async def test_credentials_are_not_sent_over_plain_http_to_others(listen, remote, caplog, options):
    listener = await listen()
    userinfo = options.get('userinfo', '')
    server = f'http://{userinfo}cluster.example:{listener.port}'

    await fetch(
        server=server, **{key: value for key, value in options.items() if key != 'userinfo'}
    )

    assert listener.asked.startswith('GET ')
    assert 'uthorization' not in listener.asked
    assert not any(secret in listener.asked + caplog.text for secret in SECRETS)
    (warning,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert f'not sent to http://cluster.example:{listener.port}' in warning
    assert 'Use https://' in warning


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '127.1.2.3'])
async def test_credentials_are_sent_over_plain_http_within_the_machine(
    listen, remote, caplog, host
):
    listener = await listen()

    await fetch(
        server=f'http://{host}:{listener.port}'.replace('127.1.2.3', '127.0.0.1'), token='s3cret'
    )

    assert 'Authorization: Bearer s3cret' in listener.asked
    assert caplog.records == []


@pytest.fixture
def passwords(tmp_path, monkeypatch):
    """Passwords for all hosts in the file of the user."""
    (tmp_path / 'netrc').write_text('default login me password s3cret\n')
    monkeypatch.setenv('NETRC', str(tmp_path / 'netrc'))
    for name in ('HTTP_PROXY', 'NO_PROXY'):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.guarantee('FND-056')
async def test_passwords_of_files_are_not_sent_over_plain_http_to_others(listen, remote, passwords):
    listener = await listen()

    await fetch(server=f'http://cluster.example:{listener.port}', trust_env=True)

    assert listener.asked.startswith('GET ')
    assert 'uthorization' not in listener.asked


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({'token': 't0ken'}, 'Authorization: Bearer t0ken', id='token'),
        pytest.param({}, 'Authorization: Basic bWU6czNjcmV0', id='no-token'),
    ],
)
async def test_passwords_of_files_are_only_for_those_with_no_others(
    listen, passwords, options, expected
):
    listener = await listen()

    await fetch(server=f'http://127.0.0.1:{listener.port}', trust_env=True, **options)

    assert [line for line in listener.asked.splitlines() if 'uthorization' in line] == [expected]


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize('source', ['option', 'environment'])
async def test_passwords_of_files_are_for_proxies_too(listen, passwords, monkeypatch, source):
    listener = await listen()
    proxy_url = f'http://127.0.0.1:{listener.port}'
    monkeypatch.setenv('http_proxy', proxy_url if source == 'environment' else '')

    await fetch(
        server='http://127.0.0.1:1',
        token='t0ken',
        trust_env=True,
        proxy_url=proxy_url if source == 'option' else None,
    )

    assert 'Proxy-Authorization: Basic bWU6czNjcmV0' in listener.asked


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize('source', ['option', 'environment'])
async def test_credentials_are_not_sent_over_plain_http_to_proxies_of_others(
    listen, remote, passwords, monkeypatch, source
):
    listener = await listen()
    proxy_url = f'http://proxy.example:{listener.port}'
    monkeypatch.setenv('http_proxy', proxy_url if source == 'environment' else '')

    await fetch(
        server='http://127.0.0.1:1',
        token='t0ken',
        trust_env=source == 'environment',
        proxy_url=proxy_url if source == 'option' else None,
    )

    assert listener.asked.startswith('GET http://127.0.0.1:1/')
    assert 't0ken' not in listener.asked


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize(
    'server, is_exposed',
    [
        ('http://127.9.9.9', False),
        ('http://[::1]:8080', False),
        ('http://localhost', False),
        ('http://LOCALHOST.', False),
        ('http://10.0.0.1', True),
        ('http://localhost.example', True),
        ('http://127.0.0.1.example', True),
        ('http://[::ffff:10.0.0.1]', True),
        ('http://0.0.0.0', True),
        ('http://127.0.0.1@evil.example', True),
        ('https://cluster.example', False),
    ],
)
def test_only_addresses_of_the_machine_itself_are_safe_without_tls(server, is_exposed):
    assert credentials.is_exposed(kopf.ConnectionInfo(server=server)) is is_exposed


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'headers': {'Authorization': 'Bearer s3cret'}}, id='header'),
    ],
)
async def test_ready_made_sessions_with_credentials_are_refused_over_plain_http(options):
    async with aiohttp.ClientSession(**options) as http:
        info = kopf.AiohttpSession(server='http://cluster.example', aiohttp_session=http)
        with pytest.raises(kopf.LoginError, match='over plain HTTP') as caught:
            await sessions.open_session(info)

    assert 's3cret' not in str(caught.value)


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize(
    'options',
    [
        pytest.param({}, id='direct'),
        pytest.param({'trust_env': True}, id='foreign'),
    ],
)
async def test_credentials_do_not_follow_redirects_to_other_servers(listen, options):
    target = await listen()
    for host in ('localhost', '127.0.0.1'):
        source = await listen(location=f'http://{host}:{target.port}/version')
        answer = await fetch(server=f'http://127.0.0.1:{source.port}', token='s3cret', **options)
        assert answer.code == 302

    assert target.asked == ''


@pytest.mark.guarantee('FND-056')
@pytest.mark.parametrize(
    'location',
    [
        'http://c.example/version',
        'http://c.example:443/version',
        '//evil.example/x',
        'https://c.example.evil/x',
        'https://c.example:444/x',
    ],
)
def test_redirects_are_not_followed_out_of_tls_or_of_the_server(location):
    assert models.find_redirect(VERSION, 'https://c.example', '/version', 302, location) is None
    assert models.find_redirect(VERSION, 'https://c.example', '/version', 302, '/other') == '/other'


@pytest.mark.guarantee('FND-061')
@pytest.mark.parametrize(
    'payload, seconds',
    [
        pytest.param(None, 60, id='opaque'),
        pytest.param({}, 60, id='no-expiration'),
        pytest.param({'exp': 3600}, 60, id='long'),
        pytest.param({'exp': 40}, 30, id='short'),
        pytest.param({'exp': 5}, 1, id='almost-over'),
        pytest.param({'exp': -100}, 1, id='over'),
        pytest.param({'exp': 'never'}, 60, id='text'),
        pytest.param({'exp': 1e300}, 60, id='too-much'),
    ],
)
def test_tokens_of_files_are_read_again_before_they_expire(payload, seconds):
    import base64
    import json

    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    token = 'opaque'
    if payload is not None:
        moment = payload.get('exp')
        is_relative = isinstance(moment, int)
        claims = {'exp': now.timestamp() + moment} if is_relative else payload
        token = (
            f'e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")}.c2ln'
        )

    assert tokens.choose_rereading(token, now) == now + datetime.timedelta(seconds=seconds)
