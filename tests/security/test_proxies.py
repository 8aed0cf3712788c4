"""
Proxies with passwords: operators work through them, and their passwords are in no message, whatever
goes wrong.

Before, the passwords of proxies without a scheme were shown, and so was what exec plugins print to
their stderr.
"""

import asyncio
import base64
import contextlib
import logging
import time
import traceback

import pytest

import kopf
import kopf.testing
from kopf._cogs.clients import errors
from kopf._cogs.clients.http import models, sessions
from kopf._cogs.helpers import execs
from kopf._cogs.structs import credentials, vaults
from kopf._core.intents import piggybacking

VERSION = models.Call('GET', '/version')
LIMITS = models.Timeouts(total=10)
PASSWORD = 'pr0xy-pass'
USERINFO = f'me:{PASSWORD}@'
PAIR = base64.b64encode(f'me:{PASSWORD}'.encode()).decode()
FORMS = [pytest.param('http://', id='scheme'), pytest.param('', id='no-scheme')]


class Proxy:
    """A proxy that makes tunnels for those who know the password."""

    def __init__(self):
        self.tunnels, self.refusals, self.address = 0, 0, ''
        self._tasks = set()

    async def serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b'\r\n\r\n')).decode()
            if f'Proxy-Authorization: Basic {PAIR}' not in head.splitlines():
                self.refusals += 1
                writer.write(
                    b'HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n'
                )
            else:
                self.tunnels += 1
                await self._tunnel(head.split()[1], reader, writer)
        writer.close()

    async def _tunnel(self, target, reader, writer):
        host, _, port = target.rpartition(':')
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b'HTTP/1.1 200 Connection established\r\n\r\n')
        await asyncio.gather(self._pump(reader, inner_writer), self._pump(inner_reader, writer))

    async def _pump(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def close(self):
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


@pytest.fixture
async def proxy():
    proxy = Proxy()
    server = await asyncio.start_server(proxy.serve, '127.0.0.1', 0)
    proxy.address = f'127.0.0.1:{server.sockets[0].getsockname()[1]}'
    yield proxy
    server.close()
    await proxy.close()


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def clean_environment(monkeypatch):
    for name in ('HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize('source', ['option', 'environment'])
@pytest.mark.parametrize('form', FORMS)
async def test_operators_work_through_proxies_with_passwords(
    sandbox, proxy, clean_environment, caplog, form, source
):
    caplog.set_level(logging.DEBUG)
    registry, handled = kopf.OperatorRegistry(), asyncio.Event()

    @kopf.on.event('configmaps', registry=registry)
    async def event_fn(name, **_):
        if name == 'mine':
            handled.set()

    url = f'{form}{USERINFO}{proxy.address}'
    if source == 'environment':
        clean_environment.setenv('HTTPS_PROXY', url)
    info = kopf.ConnectionInfo(
        server=sandbox.url,
        token=sandbox.token,
        ca_path=str(sandbox.ca_path),
        **({'proxy_url': url} if source == 'option' else {'trust_env': True}),
    )
    stop_flag = asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry,
            vault=vaults.Vault({'x': info}),
            clusterwide=True,
            standalone=True,
            stop_flag=stop_flag,
        )
    )
    await sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'mine', 'namespace': 'default'},
        }
    )
    try:
        await asyncio.wait_for(handled.wait(), 60)
    finally:
        stop_flag.set()
        await operator

    assert proxy.tunnels > 0
    assert proxy.refusals == 0
    assert PASSWORD not in caplog.text
    assert PAIR not in caplog.text


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize('trouble', ['refused', 'unreachable'])
@pytest.mark.parametrize('source', ['option', 'environment'])
@pytest.mark.parametrize('form', FORMS)
async def test_errors_of_proxies_have_no_passwords(
    sandbox, proxy, clean_environment, unused_tcp_port, form, source, trouble
):
    wrong = USERINFO.replace('me', 'other')
    address = proxy.address if trouble == 'refused' else f'127.0.0.1:{unused_tcp_port}'
    url = f'{form}{wrong}{address}'
    if source == 'environment':
        clean_environment.setenv('HTTPS_PROXY', url)
    info = kopf.ConnectionInfo(
        server=sandbox.url,
        ca_path=str(sandbox.ca_path),
        **({'proxy_url': url} if source == 'option' else {'trust_env': True}),
    )
    session = await sessions.open_session(info)
    try:
        with pytest.raises(errors.APIUnreachableError) as caught:
            await session.fetch(VERSION, LIMITS)
    finally:
        await session.close()

    said = (
        ''.join(traceback.format_exception(caught.value))
        + repr(caught.value)
        + repr(info)
        + repr(session)
    )
    assert not find_leaks(said)


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize(
    'url',
    [
        f'socks5://{USERINFO}proxy.example:1080',
        f'http://{USERINFO}',
        f'{USERINFO}proxy.example:nowhere',
        f'http://me:{PASSWORD}/x@proxy.example:3128',
    ],
)
async def test_unusable_proxies_are_refused_without_their_passwords(url):
    info = kopf.ConnectionInfo(server='https://cluster.example', proxy_url=url)

    with pytest.raises(kopf.LoginError, match='The proxy must be a URL') as caught:
        await sessions.open_session(info)

    assert not find_leaks(''.join(traceback.format_exception(caught.value)) + repr(info))


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize(
    'text, expected',
    [
        ('http://me:pass@proxy:3128', 'http://***@proxy:3128'),
        ('me:pass@proxy:3128', '***@proxy:3128'),
        ('me:p@ss/w?rd#@proxy:3128', '***@proxy:3128'),
        (
            'cannot connect to http://me:pass@proxy:3128/x, sorry',
            'cannot connect to http://***@proxy:3128/x, sorry',
        ),
        ("URL('http://me:pass@proxy:3128')", "URL('http://***@proxy:3128')"),
        ('https://cluster.example/path', 'https://cluster.example/path'),
    ],
)
def test_names_and_passwords_are_hidden_in_texts(text, expected):
    assert credentials.hide_userinfo(text) == expected


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize('word', ['a', 'a/', '://', '@a'])
def test_long_texts_are_looked_through_in_reasonable_time(word):
    since = time.perf_counter()

    credentials.hide_userinfo(word * 100_000)

    # It was minutes if every character could begin an address.
    assert time.perf_counter() - since < 5


def find_leaks(text):
    return [
        secret
        for secret in (PASSWORD, PAIR, base64.b64encode(f'other:{PASSWORD}'.encode()).decode())
        if secret in text
    ]


@pytest.fixture
def make_plugin(tmp_path):
    def make(script):
        path = tmp_path / 'plugin'
        path.write_text(f'#!/bin/sh\n{script}\n')
        path.chmod(0o755)
        return execs.Plugin('client.authentication.k8s.io/v1', str(path))

    return make


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize(
    'script, message',
    [
        pytest.param('yes s3cret', 'has printed more than 1048576 bytes', id='stdout'),
        pytest.param(
            'yes s3cret | head -c 50000000 >&2; exit 3', 'failed with the code 3', id='stderr'
        ),
    ],
)
def test_output_of_exec_plugins_is_limited(make_plugin, script, message, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(execs.PluginError, match=message) as caught:
        execs.run_plugin(make_plugin(script), {}, environ={'PATH': '/usr/bin:/bin'}, terminal=False)

    assert 's3cret' not in str(caught.value)
    assert len(caplog.text) < 2000


@pytest.fixture
def complaining(make_plugin, tmp_path, monkeypatch):
    """A kubeconfig with an exec plugin that fails with a secret in its complaints, in a moment."""
    plugin = make_plugin('sleep 0.5; echo "wrong password: s3cret" >&2; exit 1')
    (tmp_path / 'config').write_text(f"""
        {{apiVersion: v1, kind: Config, current-context: c,
          contexts: [{{name: c, context: {{cluster: c, user: u}}}}],
          clusters: [{{name: c, cluster: {{server: "https://cluster.example"}}}}],
          users: [{{name: u, user: {{exec: {{
            apiVersion: client.authentication.k8s.io/v1, command: {plugin.command}, interactiveMode: Never}}}}}}]}}""")
    monkeypatch.setenv('KUBECONFIG', str(tmp_path / 'config'))
    monkeypatch.delenv('KUBERNETES_SERVICE_HOST', raising=False)


@pytest.mark.guarantee('FND-060')
@pytest.mark.parametrize(
    'login', [kopf.login_with_kubeconfig, kopf.login_via_client, kopf.login_via_pykube]
)
def test_complaints_of_exec_plugins_are_not_told_by_any_login(complaining, caplog, login):
    caplog.set_level(logging.INFO)

    said = ''
    try:
        login(logger=logging.getLogger('kopf.test'))
    except kopf.LoginError as error:
        said = ''.join(traceback.format_exception(error))

    assert 's3cret' not in said + caplog.text


@pytest.mark.guarantee('FND-060')
async def test_others_can_log_while_complaints_of_exec_plugins_are_not_told(complaining, caplog):
    caplog.set_level(logging.INFO)

    login = asyncio.create_task(
        piggybacking.login_via_async_client(logger=logging.getLogger('kopf.test'))
    )
    while not login.done():
        logging.info('The handler is working.')
        await asyncio.sleep(0.1)

    assert isinstance(login.exception(), kopf.LoginError)
    assert 's3cret' not in str(login.exception()) + caplog.text
    assert (
        len(
            [
                record
                for record in caplog.records
                if record.getMessage() == 'The handler is working.'
            ]
        )
        > 2
    )
