"""
Tokens in files that are replaced under a running operator: it takes the new ones before the old
ones are refused.

Before, the tokens that were found by the client libraries were used until the API server refused
them.
"""

import asyncio
import datetime
import functools
import json
import logging

import pytest

import kopf
import kopf.testing
from kopf._cogs.structs import vaults
from kopf._core.intents import piggybacking

NAMESPACE = 'default'


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(rbac=False) as sandbox:
        await sandbox.create(
            {
                'apiVersion': 'v1',
                'kind': 'ServiceAccount',
                'metadata': {'name': 'operator', 'namespace': NAMESPACE},
            }
        )
        yield sandbox


@pytest.fixture
async def clock(virtual_time):
    """The time of day, which goes with the virtual time, in all threads."""
    loop, begin = asyncio.get_running_loop(), datetime.datetime.now(datetime.UTC)
    since = loop.time()
    return lambda: begin + datetime.timedelta(seconds=loop.time() - since)


@pytest.fixture
async def place(sandbox, tmp_path, monkeypatch, clock):
    """The files of a pod, and a kubeconfig with the same token: whatever the login reads."""
    host, port = sandbox.url.removeprefix('https://').split(':')
    monkeypatch.setattr(piggybacking, '_read_clock', clock)
    (tmp_path / 'ca.crt').write_bytes(sandbox.ca_data)
    (tmp_path / 'namespace').write_text(NAMESPACE)
    (tmp_path / 'config').write_text(
        json.dumps(
            {
                'current-context': 'c',
                'contexts': [{'name': 'c', 'context': {'cluster': 'c', 'user': 'u'}}],
                'clusters': [
                    {
                        'name': 'c',
                        'cluster': {
                            'server': sandbox.url,
                            'certificate-authority': str(sandbox.ca_path),
                        },
                    }
                ],
                'users': [{'name': 'u', 'user': {'tokenFile': str(tmp_path / 'token')}}],
            }
        )
    )
    return monkeypatch, tmp_path, host, port


def enter_pod(place):
    monkeypatch, directory, host, port = place
    monkeypatch.setenv('KUBERNETES_SERVICE_HOST', host)
    monkeypatch.setenv('KUBERNETES_SERVICE_PORT', port)
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', str(directory))
    monkeypatch.setenv('KUBECONFIG', str(directory / 'absent'))
    kubernetes = pytest.importorskip('kubernetes.config.incluster_config')
    monkeypatch.setattr(kubernetes, 'SERVICE_TOKEN_FILENAME', str(directory / 'token'))
    monkeypatch.setattr(kubernetes, 'SERVICE_CERT_FILENAME', str(directory / 'ca.crt'))
    pykube = pytest.importorskip('pykube')
    original = pykube.KubeConfig.from_service_account
    monkeypatch.setattr(
        pykube.KubeConfig, 'from_service_account', functools.partial(original, path=str(directory))
    )


def enter_home(place):
    monkeypatch, directory, _, _ = place
    monkeypatch.setenv('KUBECONFIG', str(directory / 'config'))
    monkeypatch.delenv('KUBERNETES_SERVICE_HOST', raising=False)
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', '/nowhere')


@pytest.fixture
def rotate(sandbox, tmp_path):
    """
    Put a new token into the file: ``await rotate('name')``; it is valid until the secret of this
    name is deleted.
    """

    async def rotate(name):
        secret = await sandbox.create(
            {
                'apiVersion': 'v1',
                'kind': 'Secret',
                'metadata': {'name': name, 'namespace': NAMESPACE},
            }
        )
        url = f'{sandbox.url}/api/v1/namespaces/{NAMESPACE}/serviceaccounts/operator/token'
        bound = {
            'kind': 'Secret',
            'apiVersion': 'v1',
            'name': name,
            'uid': secret['metadata']['uid'],
        }
        import aiohttp

        info = kopf.ConnectionInfo(server=sandbox.url, ca_path=str(sandbox.ca_path))
        connector = aiohttp.TCPConnector(ssl=info.as_ssl_context())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(
                url,
                headers={'Authorization': f'Bearer {sandbox.token}'},
                json={
                    'apiVersion': 'authentication.k8s.io/v1',
                    'kind': 'TokenRequest',
                    'spec': {'expirationSeconds': 36000, 'boundObjectRef': bound},
                },
            ) as response,
        ):
            (tmp_path / 'token').write_text((await response.json())['status']['token'])

    return rotate


@pytest.mark.guarantee('FND-061')
@pytest.mark.parametrize(
    'login, enter',
    [
        pytest.param(kopf.login_with_service_account, enter_pod, id='service-account'),
        pytest.param(kopf.login_via_client, enter_pod, id='client-in-pod'),
        pytest.param(kopf.login_via_pykube, enter_pod, id='pykube-in-pod'),
        pytest.param(kopf.login_with_kubeconfig, enter_home, id='kubeconfig'),
        pytest.param(kopf.login_via_client, enter_home, id='client-with-kubeconfig'),
    ],
)
async def test_tokens_are_read_again_before_they_are_refused(
    sandbox, place, rotate, clock, caplog, login, enter
):
    caplog.set_level(logging.WARNING)
    enter(place)
    handled, registry = [], kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(login)

    @kopf.on.create('configmaps', registry=registry, when=lambda name, **_: name.startswith('obj'))
    async def create_fn(name, **_):
        handled.append(name)

    await rotate('token0')
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry,
            vault=vaults.Vault(now=clock),
            namespaces=[NAMESPACE],
            standalone=True,
            stop_flag=stop_flag,
            ready_flag=ready_flag,
        ),
        name='operator',
    )
    try:
        await asyncio.wait_for(ready_flag.wait(), 60)
        for number in range(3):
            await sandbox.create(
                {
                    'apiVersion': 'v1',
                    'kind': 'ConfigMap',
                    'metadata': {'name': f'obj{number}', 'namespace': NAMESPACE},
                }
            )
            async with asyncio.timeout(60):
                while f'obj{number}' not in handled:
                    await asyncio.sleep(0.1)
            await rotate(f'token{number + 1}')
            await asyncio.sleep(61)
            await sandbox.delete('secrets', f'token{number}')
            await asyncio.sleep(1)
    finally:
        stop_flag.set()
        await operator

    asked = [asked for asked in sandbox.requests if asked.user_agent.startswith('kopf/')]
    assert handled == ['obj0', 'obj1', 'obj2']
    assert [item for item in asked if item.code == 401] == []
    assert {item.user for item in asked} == {f'system:serviceaccount:{NAMESPACE}:operator'}
    assert [record for record in caplog.records if record.name.startswith('kopf._')] == []
