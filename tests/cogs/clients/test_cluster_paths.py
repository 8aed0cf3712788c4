"""
The usual events in the life of a cluster. All that the tests need is a kubeconfig and a way to
restart the server.
"""

import asyncio
import contextlib
import dataclasses
import pathlib
import uuid
from collections.abc import Awaitable, Callable

import pytest
import yaml

from kopf._cogs.clients import requests
from kopf._cogs.structs import credentials
from kopf._core.intents import piggybacking

CONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap'}


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Some cluster, with the rights of its administrator."""

    kubeconfig: pathlib.Path
    restart: Callable[[], Awaitable[None]]  # the API server; it can be unavailable for a minute


@pytest.fixture
async def cluster(virtual_time, secure_sandbox):
    """The sandbox; anything else with these two fields will do, but then in real time."""

    async def restart():
        await secure_sandbox.faults.restart(downtime=20)

    return Cluster(secure_sandbox.kubeconfig, restart)


@pytest.fixture
async def log_in(make_context, monkeypatch):
    """Make the context of requests that logs in by the kubeconfig whenever it is needed."""
    tasks = []

    async def run(vault, path):
        while True:
            await vault.wait_until_needed()
            monkeypatch.setenv('KUBECONFIG', str(path))
            await vault.populate(
                {'kubeconfig': await asyncio.to_thread(piggybacking.login_with_kubeconfig)}
            )

    async def log_in(path):
        context = make_context()
        tasks.append(asyncio.create_task(run(context.vault, path), name='logging-in'))
        return context

    yield log_in
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, credentials.LoginError):
            await task


@pytest.fixture
async def admin(cluster, log_in):
    return await log_in(cluster.kubeconfig)


@pytest.fixture
async def namespace(admin):
    """A namespace of the test."""
    name = f'kopf-test-{uuid.uuid4()}'
    payload = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}}
    await requests.post('/api/v1/namespaces', context=admin, payload=payload)
    yield name
    await requests.delete(f'/api/v1/namespaces/{name}', context=admin)


@pytest.fixture
async def create(admin, namespace):
    """Create any core object in the namespace of the test."""

    async def create(plural, payload):
        return await requests.post(
            f'/api/v1/namespaces/{namespace}/{plural}', context=admin, payload=payload
        )

    return create


@pytest.fixture
async def account(admin, namespace, create):
    """A service account that may do everything in its namespace."""
    await create(
        'serviceaccounts',
        {'apiVersion': 'v1', 'kind': 'ServiceAccount', 'metadata': {'name': 'operator'}},
    )
    url = f'/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings'
    await requests.post(
        url,
        context=admin,
        payload={
            'apiVersion': 'rbac.authorization.k8s.io/v1',
            'kind': 'RoleBinding',
            'metadata': {'name': 'operator'},
            'roleRef': {
                'apiGroup': 'rbac.authorization.k8s.io',
                'kind': 'ClusterRole',
                'name': 'admin',
            },
            'subjects': [{'kind': 'ServiceAccount', 'name': 'operator', 'namespace': namespace}],
        },
    )
    return 'operator'


@pytest.fixture
async def issue_token(create, account):
    """Issue a token that is valid until the secret with the same name is deleted."""

    async def issue_token(name):
        secret = await create(
            'secrets', {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': name}}
        )
        bound = {
            'kind': 'Secret',
            'apiVersion': 'v1',
            'name': name,
            'uid': secret['metadata']['uid'],
        }
        answer = await create(
            f'serviceaccounts/{account}/token',
            {
                'apiVersion': 'authentication.k8s.io/v1',
                'kind': 'TokenRequest',
                'spec': {'expirationSeconds': 3600, 'boundObjectRef': bound},
            },
        )
        return answer['status']['token']

    return issue_token


class Kubeconfig:
    """A kubeconfig of the service account."""

    def __init__(self, path, origin, issue_token):
        self.path, self._origin, self._issue_token = path, origin, issue_token

    async def renew(self, name):
        """Replace the token there with a new one."""
        config = yaml.safe_load(self._origin.read_text())
        token = await self._issue_token(name)
        users = [{'name': user['name'], 'user': {'token': token}} for user in config['users']]
        self.path.write_text(yaml.safe_dump({**config, 'users': users}))


@pytest.fixture
async def kubeconfig(cluster, issue_token, tmp_path):
    kubeconfig = Kubeconfig(tmp_path / 'kubeconfig', cluster.kubeconfig, issue_token)
    await kubeconfig.renew('old')
    return kubeconfig


async def test_restarts_of_the_server_are_survived(cluster, admin, namespace, create, read):
    reading = await read(admin, namespace=namespace)
    await reading.wait_until_connected()
    await create('configmaps', {**CONFIG, 'metadata': {'name': 'before'}})
    await reading.wait_for(('ADDED', 'before', None))

    await cluster.restart()

    await create('configmaps', {**CONFIG, 'metadata': {'name': 'after'}})
    await reading.wait_for(('ADDED', 'after', None))
    assert (
        reading.events.count(('ADDED', 'before', None))
        == reading.events.count(('ADDED', 'after', None))
        == 1
    )


@pytest.mark.guarantee('AUT-028', 'AUT-029')
async def test_rotation_of_tokens_is_survived(
    admin, namespace, create, kubeconfig, log_in, read, operator_settings
):
    operator_settings.watching.server_timeout = 5  # the open streams live for as long as they live
    context = await log_in(kubeconfig.path)
    reading = await read(context, namespace=namespace)
    await reading.wait_until_connected()
    _, old = await context.vault.select()

    await kubeconfig.renew('new')
    await requests.delete(f'/api/v1/namespaces/{namespace}/secrets/old', context=admin)
    await reading.wait_until(lambda: context.vault.is_empty or reading.state.reconnects > 2)
    await create('configmaps', {**CONFIG, 'metadata': {'name': 'after'}})

    await reading.wait_for(('ADDED', 'after', None))
    url = f'/api/v1/namespaces/{namespace}/configmaps/after'
    patched = await requests.patch(url, context=context, payload={'data': {'x': '1'}})
    assert patched['data'] == {'x': '1'}
    _, new = await context.vault.select()
    assert new.token != old.token


async def test_rejected_tokens_with_no_new_ones_are_told(admin, namespace, kubeconfig, log_in):
    context = await log_in(kubeconfig.path)
    await requests.delete(f'/api/v1/namespaces/{namespace}/secrets/old', context=admin)

    with pytest.raises(credentials.LoginError, match='401'):
        await requests.get(f'/api/v1/namespaces/{namespace}/configmaps', context=context)
