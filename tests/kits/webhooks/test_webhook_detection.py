"""The kind of the cluster is seen by the certificate of its API server."""

import asyncio
import contextlib
import datetime
import itertools

import pytest

import kopf
import kopf.testing
from kopf._cogs.helpers import certificates
from kopf._kits.webhooks import detection, servers, tunnels
from kopf._sandbox.auth import certificates as sandbox_certificates

NOW = datetime.datetime.now(datetime.UTC)


@pytest.mark.guarantee('ADM-086', 'NEW-226')
@pytest.mark.parametrize(
    'names, expected',
    [
        pytest.param(
            ['k3d-k3s-default-serverlb', 'kubernetes', 'localhost'], 'host.k3d.internal', id='k3d'
        ),
        pytest.param(
            ['k3s', 'k3s-server-ca@1615052312', 'kubernetes'], 'host.k3d.internal', id='k3s'
        ),
        pytest.param(['k3s-server-ca@1615052312'], 'host.k3d.internal', id='k3s-by-issuer'),
        pytest.param(
            ['minikubeCA', 'control-plane.minikube.internal'],
            'host.minikube.internal',
            id='minikube',
        ),
        pytest.param(['minikube'], 'host.minikube.internal', id='minikube-by-subject'),
        pytest.param(
            ['kubernetes', 'docker-for-desktop'], 'host.docker.internal', id='docker-desktop'
        ),
        pytest.param(['kubernetes', 'kind-control-plane', 'localhost'], None, id='kind'),
        pytest.param(['my-k3s', 'task3d-x', 'minikube.example.com'], None, id='alike'),
        pytest.param([], None, id='nothing'),
    ],
)
def test_host_is_chosen_by_the_names_in_the_certificate(names, expected):
    assert detection.choose_host(names) == expected


async def test_nothing_is_detected_without_an_operator():
    with pytest.raises(RuntimeError, match='only while an operator is running'):
        await detection.ClusterDetector.guess_host()


@pytest.fixture
async def serve_api():
    """
    Serve nothing, but with certificates for these names, as API servers have them; return the
    credentials.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def serve(*names, ca_name='kubernetes', **info):
            ca = certificates.issue(certificates.Profile(ca_name, is_authority=True), NOW)
            pair = sandbox_certificates.issue_server(
                ca, [*sandbox_certificates.LOCAL_HOSTS, *names], NOW
            )
            server = await asyncio.start_server(
                lambda reader, writer: writer.close(),
                '127.0.0.1',
                0,
                ssl=sandbox_certificates.build_server_context(pair),
            )
            await stack.enter_async_context(server)
            port = server.sockets[0].getsockname()[1]
            return kopf.ConnectionInfo(
                server=f'https://127.0.0.1:{port}', **({'ca_data': ca.pem} | info)
            )

        yield serve


async def guess(info, guess_host=detection.ClusterDetector.guess_host):
    """Ask from inside of an operator which is logged in with this."""
    registry, guessed, askers = kopf.OperatorRegistry(), [], []
    stop_flag = asyncio.Event()

    @kopf.on.login(registry=registry)
    async def login(**_):
        return info

    @kopf.on.startup(registry=registry)
    async def startup(**_):
        askers.append(asyncio.create_task(ask(), name='asker'))

    async def ask():
        try:
            guessed.append(await guess_host())
        finally:
            stop_flag.set()

    await kopf.operator(registry=registry, clusterwide=True, stop_flag=stop_flag, standalone=True)
    [host] = guessed
    return host


@pytest.mark.guarantee('ADM-086', 'ADM-087', 'NEW-226')
@pytest.mark.parametrize('cls', [servers.WebhookAutoServer, tunnels.WebhookAutoTunnel])
@pytest.mark.parametrize(
    'names, ca_name, expected',
    [
        pytest.param(
            ['k3d-k3s-default-server-0'], 'k3s-server-ca@123', 'host.k3d.internal', id='k3d'
        ),
        pytest.param(
            ['control-plane.minikube.internal'],
            'minikubeCA',
            'host.minikube.internal',
            id='minikube',
        ),
        pytest.param(
            ['docker-for-desktop'], 'kubernetes', 'host.docker.internal', id='docker-desktop'
        ),
        pytest.param([], 'kubernetes', None, id='unknown'),
    ],
)
async def test_local_clusters_are_recognised(serve_api, cls, names, ca_name, expected):
    info = await serve_api(*names, ca_name=ca_name)

    assert await guess(info, cls.guess_host) == expected


async def test_unverified_clusters_are_recognised(serve_api):
    info = await serve_api('docker-for-desktop', ca_data=None, insecure=True)

    assert await guess(info) == 'host.docker.internal'


async def test_plain_clusters_are_not_recognised():
    assert await guess(kopf.ConnectionInfo(server='http://127.0.0.1:9')) is None


async def test_clusters_behind_proxies_are_not_recognised():
    assert (
        await guess(
            kopf.ConnectionInfo(server='https://127.0.0.1:9', proxy_url='http://127.0.0.1:9')
        )
        is None
    )


async def test_unreachable_clusters_are_waited_for(serve_api, virtual_time, caplog):
    info = await serve_api('docker-for-desktop')
    attempts = []

    async def refuse_twice(*args, **kwargs):
        attempts.append(asyncio.get_running_loop().time())
        if len(attempts) < 3:
            raise ConnectionRefusedError('refused')
        return await connect(*args, **kwargs)

    connect = asyncio.open_connection
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, 'open_connection', refuse_twice)
        assert await guess(info) == 'host.docker.internal'

    assert [round(later - earlier) for earlier, later in itertools.pairwise(attempts)] == [1, 2]
    assert 'will try again' in caplog.text
