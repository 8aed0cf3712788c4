"""Tunnels: with a library that only pretends to make them, as they need the internet."""

import asyncio
import dataclasses
import sys
import threading
import types

import pytest

from kopf._kits.webhooks import detection, server_options, servers, tunnels

PUBLIC_URL = 'https://1234.ngrok.example'


@dataclasses.dataclass
class FakeNgrok:
    """What ``pyngrok`` does, as far as it is used."""

    public_url: str = PUBLIC_URL
    error: Exception | None = None
    release: threading.Event | None = None
    others: list = dataclasses.field(default_factory=list)  # tunnels that are not ours
    calls: list = dataclasses.field(default_factory=list)

    def connect(self, addr, proto, *, pyngrok_config, **kwargs):
        self.calls.append(('connect', addr, proto, kwargs, pyngrok_config))
        if self.release is not None:
            self.release.wait(10)
        if self.error is not None:
            raise self.error
        return types.SimpleNamespace(public_url=self.public_url)

    def disconnect(self, url, *, pyngrok_config):
        self.calls.append(('disconnect', url))

    def get_tunnels(self, *, pyngrok_config):
        return self.others

    def kill(self, *, pyngrok_config):
        self.calls.append(('kill',))

    @property
    def names(self):
        return [name for name, *_ in self.calls]


@pytest.fixture
def ngrok(monkeypatch):
    fake = FakeNgrok()
    conf = types.SimpleNamespace(PyngrokConfig=lambda **kwargs: kwargs)
    monkeypatch.setitem(sys.modules, 'pyngrok', types.ModuleType('pyngrok'))
    monkeypatch.setitem(sys.modules, 'pyngrok.conf', conf)
    monkeypatch.setitem(sys.modules, 'pyngrok.ngrok', fake)
    return fake


async def test_users_are_told_that_the_tunnel_is_public(serve, ngrok, caplog):
    caplog.set_level('INFO')

    await serve(tunnels.WebhookNgrokTunnel())

    assert [text for text in caplog.messages if 'is public' in text]


@pytest.mark.guarantee('ADM-083', 'ADM-084', 'ADM-081')
async def test_tunnel_leads_to_a_plain_local_server_and_needs_no_authority(
    serve, session, reviewer, ngrok
):
    served = await serve(tunnels.WebhookNgrokTunnel(path='/secret'))

    [(_, target, proto, kwargs, _)] = ngrok.calls
    assert served.config == {'url': f'{PUBLIC_URL}/secret'}
    assert (proto, kwargs) == ('http', {'schemes': ['https']})
    async with session.post(f'http://{target}/secret/fn', data=b'{}') as response:
        assert response.status == 200
    assert [call['webhook'] for call in reviewer.calls] == ['fn']


@pytest.mark.guarantee('ADM-083')
async def test_tunnel_leads_to_the_given_address(serve, session, ngrok):
    await serve(tunnels.WebhookNgrokTunnel(addr='127.0.0.1'))

    [(_, target, *_)] = ngrok.calls
    assert target.startswith('127.0.0.1:')


@pytest.mark.guarantee('ADM-085')
@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param({}, {}, id='nothing'),
        pytest.param(
            {'token': 't', 'region': 'eu', 'binary': '/bin/x'},
            {'auth_token': 't', 'region': 'eu', 'ngrok_path': '/bin/x'},
            id='everything',
        ),
    ],
)
async def test_tunnel_is_configured(serve, ngrok, given, expected):
    await serve(tunnels.WebhookNgrokTunnel(**given))

    assert ngrok.calls[0][-1] == expected


@pytest.mark.guarantee('ADM-094')
async def test_tunnel_is_closed_with_its_program(reviewer, ngrok):
    async with tunnels.WebhookNgrokTunnel() as tunnel:
        await anext(tunnel(reviewer))
        assert ngrok.names == ['connect']

    assert ngrok.names == ['connect', 'disconnect', 'kill']
    assert ngrok.calls[1] == ('disconnect', PUBLIC_URL)


async def test_program_is_left_for_the_tunnels_of_others(reviewer, ngrok):
    ngrok.others.append('tunnel')
    async with tunnels.WebhookNgrokTunnel() as tunnel:
        await anext(tunnel(reviewer))

    assert ngrok.names == ['connect', 'disconnect']


@pytest.mark.guarantee('ADM-094')
async def test_tunnel_is_closed_when_another_task_waits_for_it(reviewer, ngrok):
    async with tunnels.WebhookNgrokTunnel() as tunnel:
        configs = tunnel(reviewer)
        await anext(configs)
        waiting = asyncio.create_task(anext(configs, None))
        await asyncio.sleep(0)

    assert await waiting is None
    assert ngrok.names == ['connect', 'disconnect', 'kill']


async def test_tunnel_is_closed_when_it_is_cancelled_while_being_opened(reviewer, ngrok):
    ngrok.release = threading.Event()
    opening = asyncio.create_task(anext(tunnels.WebhookNgrokTunnel()(reviewer)))
    while not ngrok.calls:
        await asyncio.sleep(0.01)

    opening.cancel()
    asyncio.get_running_loop().call_later(0.01, ngrok.release.set)
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert ngrok.names == ['connect', 'disconnect', 'kill']


@pytest.mark.guarantee('ADM-004')
async def test_absence_of_the_library_is_explained(reviewer, monkeypatch):
    monkeypatch.setitem(sys.modules, 'pyngrok', None)

    with pytest.raises(
        server_options.MissingLibraryError,
        match=r"'pyngrok'.*pip install pyngrok\).*kopf\.WebhookServer",
    ):
        await anext(tunnels.WebhookNgrokTunnel()(reviewer))


async def test_failures_are_explained_with_no_secrets(reviewer, ngrok):
    ngrok.error = RuntimeError('authentication failed: your token is t0ken')

    with pytest.raises(server_options.WebhookServerError, match='authentication failed') as error:
        await anext(tunnels.WebhookNgrokTunnel(token='t0ken')(reviewer))

    assert 't0ken' not in str(error.value)
    assert error.value.__suppress_context__


@pytest.mark.guarantee('ADM-087')
async def test_auto_tunnel_is_a_server_if_the_cluster_is_known(serve, reviewer, ngrok, monkeypatch):
    class KnownTunnel(tunnels.WebhookAutoTunnel):
        @staticmethod
        async def guess_host():
            return 'host.k3d.internal'

    served = await serve(KnownTunnel(path='/x'))

    assert served.url == f'https://host.k3d.internal:{served.port}/x'
    assert served.config['caBundle']
    assert not ngrok.calls


@pytest.mark.guarantee('ADM-087')
async def test_auto_tunnel_is_a_tunnel_if_the_cluster_is_not_known(serve, ngrok):
    class UnknownTunnel(tunnels.WebhookAutoTunnel):
        @staticmethod
        async def guess_host():
            return None

    served = await serve(UnknownTunnel(path='/x'))

    assert served.config == {'url': f'{PUBLIC_URL}/x'}


@pytest.mark.guarantee('ADM-086')
@pytest.mark.parametrize(
    'guessed, given, expected',
    [
        pytest.param('host.k3d.internal', {}, 'host.k3d.internal', id='known'),
        pytest.param(None, {}, 'localhost', id='unknown'),
        pytest.param(None, {'addr': '127.0.0.1'}, '127.0.0.1', id='unknown-with-address'),
        pytest.param('host.k3d.internal', {'host': 'x.y'}, 'x.y', id='overridden'),
    ],
)
async def test_auto_server_has_the_guessed_host_and_never_tunnels(
    serve, ngrok, guessed, given, expected
):
    class GuessingServer(servers.WebhookAutoServer):
        @staticmethod
        async def guess_host():
            return guessed

    served = await serve(GuessingServer(insecure=True, **given))

    assert served.url == f'http://{expected}:{served.port}'
    assert not ngrok.calls


def test_auto_ones_guess_in_the_same_way():
    assert issubclass(servers.WebhookAutoServer, detection.ClusterDetector)
    assert issubclass(tunnels.WebhookAutoTunnel, detection.ClusterDetector)
