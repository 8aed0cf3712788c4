"""
Whole operators on real API servers, in real time: each test is for the sandbox and for a real
cluster alike.
"""

import asyncio
import contextlib
import pathlib
import secrets

import controlplane_fixtures
import e2e_servers
import e2e_worlds
import pytest
import yaml

import kopf
import kopf.testing

EXAMPLES = pathlib.Path(kopf.__file__).parent.parent / 'examples'


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == 'endtoend':
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope='session')
def sandbox_of_session():
    with kopf.testing.Sandbox(rbac=True, apply=[EXAMPLES / 'crd.yaml']) as sandbox:
        yield e2e_servers.from_sandbox(sandbox)


@pytest.fixture(scope='session')
def cluster_of_session(controlplane):
    """A real cluster with the resource of the examples, for as long as it is needed."""
    server = e2e_servers.from_cluster(controlplane)
    crd = yaml.safe_load((EXAMPLES / 'crd.yaml').read_text())
    is_ours = asyncio.run(e2e_worlds.define(server, crd))
    yield server
    if is_ours:
        asyncio.run(e2e_worlds.undefine(server, crd))


@pytest.fixture(
    params=[
        pytest.param('sandbox_of_session', id='sandbox'),
        pytest.param('cluster_of_session', id='controlplane', marks=pytest.mark.controlplane),
    ]
)
def server(request):
    """Any server; only those things can be done to it that it offers."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def own_server(server):
    """A server that is in our power."""
    if server.compact is None:
        pytest.skip(controlplane_fixtures.FOREIGNNESS)
    return server


@pytest.fixture
async def world(server):
    """A namespace of the test."""
    async with e2e_worlds.connect(server) as api:
        world = e2e_worlds.World(server, api, f'kopf-e2e-{secrets.token_hex(4)}')
        await api.ask('POST', '/api/v1/namespaces', {'metadata': {'name': world.namespace}})
        yield world
        await world.release()


@pytest.fixture
async def account(world):
    """A service account with no rights."""
    await world.create('operator', 'serviceaccounts')
    return 'operator'


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
def settings():
    return kopf.OperatorSettings()


@pytest.fixture
def kubeconfig(server, monkeypatch):
    """The kubeconfig by which the operators log in: the administrator's one by default."""
    monkeypatch.setenv('KUBECONFIG', str(server.kubeconfig))
    return server.kubeconfig


@pytest.fixture
async def run_operator(world, registry, settings, kubeconfig):
    """
    Run an operator in the namespace of the test: ``async with run_operator() as task``. It is
    stopped in the end.
    """

    @contextlib.asynccontextmanager
    async def run(login=kopf.login_with_kubeconfig, namespaces=None):
        kopf.on.login(registry=registry, id='login', errors=kopf.ErrorsMode.PERMANENT)(login)
        stopping, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=settings,
                namespaces=namespaces or [world.namespace],
                stop_flag=stopping,
                ready_flag=ready,
            ),
            name='operator of the test',
        )
        waiting = asyncio.create_task(ready.wait(), name='readiness')
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await asyncio.wait({waiting})
        try:
            yield task
        finally:
            stopping.set()
            await task

    return run
