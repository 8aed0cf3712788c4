"""
The ways into clusters: by kubeconfigs and service accounts, on our own and by the client libraries.
"""

import base64

import e2e_servers
import kr8s.asyncio
import kubernetes
import kubernetes_asyncio
import pykube
import pytest
import yaml

import kopf
from kopf._core.intents import piggybacking

LIBRARIES = [
    pytest.param(kopf.login_via_client, id='kubernetes'),
    pytest.param(kopf.login_via_async_client, id='kubernetes_asyncio'),
    pytest.param(kopf.login_via_pykube, id='pykube'),
]


@pytest.fixture(autouse=True)
def clean_world(server, tmp_path, monkeypatch):
    """
    Neither in a pod, nor with a kubeconfig, once the server is found; the libraries are restored
    afterwards.
    """
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    for name in ('KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT', 'HTTP_PROXY', 'HTTPS_PROXY'):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for library in (kubernetes, kubernetes_asyncio):
        monkeypatch.setattr(library.client.Configuration, '_default', None)


@pytest.fixture
async def token(world, account):
    await world.grant(account)
    return await world.issue_token(account, 'token')


@pytest.fixture
def kubeconfig(server, token, tmp_path, monkeypatch):
    """The operator is nobody but its service account."""
    path = tmp_path / 'kubeconfig'
    e2e_servers.write_kubeconfig(path, server.kubeconfig, token=token)
    monkeypatch.setenv('KUBECONFIG', str(path))
    return path


@pytest.fixture
def pod(world, kubeconfig, token, tmp_path, monkeypatch):
    """Be in a pod of the service account, as far as the libraries can see."""
    cluster = yaml.safe_load(kubeconfig.read_text())['clusters'][0]['cluster']
    authority = base64.b64decode(cluster['certificate-authority-data']).decode()
    for name, content in {
        'token': token,
        'ca.crt': authority,
        'namespace': world.namespace,
    }.items():
        (tmp_path / name).write_text(content)
    host, _, port = cluster['server'].removeprefix('https://').partition(':')
    monkeypatch.delenv('KUBECONFIG')
    monkeypatch.setenv('KUBERNETES_SERVICE_HOST', host)
    monkeypatch.setenv('KUBERNETES_SERVICE_PORT', port or '443')
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', str(tmp_path))
    for library in (kubernetes, kubernetes_asyncio):
        module = library.config.incluster_config
        monkeypatch.setattr(module, 'SERVICE_TOKEN_FILENAME', str(tmp_path / 'token'))
        monkeypatch.setattr(module, 'SERVICE_CERT_FILENAME', str(tmp_path / 'ca.crt'))
    original = pykube.KubeConfig.from_service_account.__func__
    monkeypatch.setattr(
        pykube.KubeConfig,
        'from_service_account',
        classmethod(lambda cls: original(cls, path=str(tmp_path))),
    )


@pytest.fixture
async def check(world, registry, run_operator):
    """Check that the operator works with this login."""
    calls = []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(name, **_):
        calls.append(name)

    async def check(login):
        async with run_operator(login):
            await world.create()
            await world.wait_until_handled()
        assert calls == ['obj']

    return check


@pytest.mark.guarantee('AUT-019', 'AUT-020')
@pytest.mark.parametrize('login', [pytest.param(kopf.login_with_kubeconfig, id='own'), *LIBRARIES])
async def test_operator_gets_in_by_a_kubeconfig(check, login):
    await check(login)


@pytest.mark.guarantee('AUT-019', 'AUT-020')
@pytest.mark.parametrize(
    'login', [pytest.param(kopf.login_with_service_account, id='own'), *LIBRARIES]
)
async def test_operator_gets_in_by_a_service_account(check, pod, login):
    await check(login)


def create_by_client(child):
    with kubernetes.client.ApiClient() as client:
        kubernetes.client.CoreV1Api(client).create_namespaced_config_map(
            child['metadata']['namespace'], child
        )


async def create_by_async_client(child):
    async with kubernetes_asyncio.client.ApiClient() as client:
        api = kubernetes_asyncio.client.CoreV1Api(client)
        await api.create_namespaced_config_map(child['metadata']['namespace'], child)


def create_by_pykube(child):
    api = pykube.HTTPClient(pykube.KubeConfig.from_env())
    try:
        pykube.ConfigMap(api, child).create()
    finally:
        api.session.close()


async def create_by_kr8s(child):
    api = await kr8s.asyncio.api()
    try:
        await (await kr8s.asyncio.objects.ConfigMap(child, api=api)).create()
    finally:
        # It does not close its connections by itself, and has no means for that.
        await api._session.aclose()


@pytest.mark.guarantee('WLD-001')
@pytest.mark.parametrize(
    'login, create',
    [
        pytest.param(kopf.login_via_client, create_by_client, id='kubernetes'),
        pytest.param(kopf.login_via_async_client, create_by_async_client, id='kubernetes_asyncio'),
        pytest.param(kopf.login_via_pykube, create_by_pykube, id='pykube'),
        pytest.param(kopf.login_with_kubeconfig, create_by_kr8s, id='kr8s'),
    ],
)
async def test_handlers_make_children_by_the_libraries(
    world, registry, run_operator, login, create
):
    def build_child():
        child = {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'child'},
            'data': {'key': 'value'},
        }
        kopf.adopt(child)
        return child

    if create in (create_by_client, create_by_pykube):

        @kopf.on.create('kopfexamples', registry=registry)
        def sync_fn(**_):
            create(build_child())
    else:

        @kopf.on.create('kopfexamples', registry=registry)
        async def async_fn(**_):
            await create(build_child())

    async with run_operator(login):
        parent = await world.create()
        await world.wait_until_handled()

    child = await world.find('child', 'configmaps')
    assert child['data'] == {'key': 'value'}
    assert [owner['uid'] for owner in child['metadata']['ownerReferences']] == [
        parent['metadata']['uid']
    ]
