"""
Handlers with API clients of their own: they reach the sandbox of the operator, whichever way it
runs.
"""

import contextlib
import gc
import itertools
import json
import os
import subprocess
import sys
import warnings

import aiohttp
import pytest

import kopf
import kopf.testing
from kopf.testing import chaos

LOGIN = """
    @kopf.on.login()
    async def log_in(**kwargs):
        return await kopf.login_via_async_client(**kwargs)
"""

HANDLERS = {
    'kubernetes': """
    import kopf
    import kubernetes

    @kopf.on.create('kopfexamples')
    def create_fn(namespace, patch, **_):
        api = kubernetes.client.CoreV1Api()
        body = {'metadata': {'name': 'child'}}
        try:
            api.create_namespaced_config_map(namespace, body)
        except kubernetes.client.ApiException as e:
            if e.status != 409:
                raise
        patch.status['child'] = api.read_namespaced_config_map('child', namespace).metadata.name
    """,
    'kubernetes, imported late': """
    import kopf

    @kopf.on.create('kopfexamples')
    def create_fn(namespace, patch, **_):
        import kubernetes
        api = kubernetes.client.CoreV1Api()
        body = {'metadata': {'name': 'child'}}
        try:
            api.create_namespaced_config_map(namespace, body)
        except kubernetes.client.ApiException as e:
            if e.status != 409:
                raise
        patch.status['child'] = api.read_namespaced_config_map('child', namespace).metadata.name
    """,
    'kubernetes_asyncio': """
    import kopf
    from kubernetes_asyncio import client

    @kopf.on.create('kopfexamples')
    async def create_fn(namespace, patch, **_):
        async with client.ApiClient() as session:
            api = client.CoreV1Api(session)
            body = {'metadata': {'name': 'child'}}
            try:
                await api.create_namespaced_config_map(namespace, body)
            except client.ApiException as e:
                if e.status != 409:
                    raise
            patch.status['child'] = (await api.read_namespaced_config_map('child', namespace)).metadata.name
    """,
    'kubernetes_asyncio, with its default path': """
    import kopf
    from kubernetes_asyncio import client, config

    @kopf.on.startup()
    async def set_up(memo, **_):
        await config.load_kube_config()

    @kopf.on.create('kopfexamples')
    async def create_fn(namespace, patch, **_):
        async with client.ApiClient() as session:
            api = client.CoreV1Api(session)
            body = {'metadata': {'name': 'child'}}
            try:
                await api.create_namespaced_config_map(namespace, body)
            except client.ApiException as e:
                if e.status != 409:
                    raise
            patch.status['child'] = (await api.read_namespaced_config_map('child', namespace)).metadata.name
    """,
    'pykube': """
    import kopf
    import pykube

    @kopf.on.create('kopfexamples')
    def create_fn(namespace, patch, **_):
        api = pykube.HTTPClient(pykube.KubeConfig.from_env())
        body = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'child', 'namespace': namespace}}
        child = pykube.ConfigMap(api, body)
        if not child.exists():
            child.create()
        patch.status['child'] = pykube.ConfigMap.objects(api).filter(namespace=namespace).get(name='child').name
        api.session.close()
    """,
    'kr8s': """
    import kopf
    import kr8s.objects

    @kopf.on.create('kopfexamples')
    def create_fn(namespace, patch, **_):
        child = kr8s.objects.ConfigMap({'metadata': {'name': 'child', 'namespace': namespace}})
        if not child.exists():
            child.create()
        patch.status['child'] = kr8s.objects.ConfigMap.get('child', namespace=namespace).name
    """,
    'kr8s.asyncio': """
    import kopf
    import kr8s.asyncio.objects

    @kopf.on.create('kopfexamples')
    async def create_fn(namespace, patch, **_):
        body = {'metadata': {'name': 'child', 'namespace': namespace}}
        child = await kr8s.asyncio.objects.ConfigMap(body)
        if not await child.exists():
            await child.create()
        patch.status['child'] = (await kr8s.asyncio.objects.ConfigMap.get('child', namespace=namespace)).name
    """,
}
HANDLERS['kubernetes_asyncio, by a login handler'] = HANDLERS['kubernetes_asyncio'] + LOGIN


def parametrize(*names):
    leaking = [  # kr8s has no means to close its connections
        pytest.mark.filterwarnings('ignore::ResourceWarning'),
        pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning'),
    ]
    return [pytest.param(name, marks=leaking if 'kr8s' in name else []) for name in names]


@pytest.fixture(params=parametrize(*HANDLERS))
def path(write, request, monkeypatch):
    monkeypatch.setenv('HOME', '/nonexistent')  # nobody's own configuration counts
    yield write('handlers.py', HANDLERS[request.param])
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # as above
        gc.collect()


@pytest.fixture(autouse=True)
def pod(monkeypatch):
    """Run as if in a pod of another cluster, e.g. in a CI job: it must not be reached."""
    monkeypatch.setenv('KUBERNETES_SERVICE_HOST', '127.0.0.1')
    monkeypatch.setenv('KUBERNETES_SERVICE_PORT', '1')
    yield
    assert os.environ['KUBERNETES_SERVICE_HOST'] == '127.0.0.1'
    assert os.environ['KUBERNETES_SERVICE_PORT'] == '1'
    assert 'KUBECONFIG' not in os.environ


def has_status(body):
    return 'child' in ((body or {}).get('status') or {})


def test_clients_reach_simulations(path, crd, build_object):
    with kopf.testing.Simulation(apply=[crd]) as simulation:
        simulation.run(path)
        simulation.create(build_object())
        simulation.wait('kopfexamples', 'obj', has_status)

        assert simulation.get('configmaps', 'child')
        assert simulation.elapsed < 10


async def test_clients_reach_sandboxes_in_event_loops(path, crd, build_object):
    async with kopf.testing.Sandbox(apply=[crd]) as sandbox, kopf.testing.Operator(sandbox, path):
        await sandbox.create(build_object())
        await sandbox.wait('kopfexamples', 'obj', has_status)

        assert await sandbox.get('configmaps', 'child')


@pytest.mark.parametrize(
    'path', parametrize(*(name for name in HANDLERS if name != 'kubernetes_asyncio')), indirect=True
)
def test_clients_reach_sandboxes_of_commands_in_threads(path, env, sandbox, build_object):
    hidden = dict.fromkeys(['KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT'])
    with kopf.testing.KopfRunner(['run', '-A', path], env={**env, **hidden}, timeout=10):
        sandbox.create(build_object())
        sandbox.wait('kopfexamples', 'obj', has_status)

        assert sandbox.get('configmaps', 'child')


def test_clients_reach_sandboxes_in_chaos(path, crd, build_object):
    report = chaos.check_convergence(
        path,
        lambda sandbox: sandbox.create(build_object()),
        apply=[crd],
        perturbation='crashes',  # not all clients have timeouts for unanswered requests
        seeds=range(4),
    )

    assert 'ConfigMap default/child' in map(str, report.peace.state)


@pytest.mark.parametrize(
    'path',
    parametrize('kubernetes', 'kubernetes_asyncio, by a login handler', 'kr8s.asyncio'),
    indirect=True,
)
def test_clients_reach_sandboxes_of_commands(path, tmp_path, crd, build_object):
    manifests = tmp_path / 'manifests.json'
    manifests.write_text('\n---\n'.join(map(json.dumps, [crd, build_object()])))
    command = [sys.executable, '-m', 'kopf', 'run', '--sandbox', f'--apply={manifests}', path]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        said = list(itertools.takewhile(lambda line: 'Creation is' not in line, process.stderr))
    finally:
        process.terminate()
        said += process.communicate(timeout=10)[1].splitlines()

    assert any("Handler 'create_fn' succeeded." in line for line in said), said


# The variables of the process.


def test_variables_are_of_the_latest_sandbox_in_whatever_order_they_end(crd, registry, monkeypatch):
    monkeypatch.setenv('KUBECONFIG', 'mine')
    one, two = kopf.testing.Simulation(), kopf.testing.Simulation()
    with contextlib.ExitStack() as ones, contextlib.ExitStack() as twos:
        ones.enter_context(one).run(registry=registry)
        twos.enter_context(two).run(registry=registry)
        paths = [str(one.kubeconfig), str(two.kubeconfig)]
        seen = [os.environ['KUBECONFIG']]
        ones.close()
        seen.append(os.environ['KUBECONFIG'])

    assert seen == [paths[1], paths[1]]
    assert os.environ['KUBECONFIG'] == 'mine'
    monkeypatch.delenv('KUBECONFIG')


def test_variables_set_by_others_meanwhile_are_left(registry, monkeypatch):
    with kopf.testing.Simulation() as simulation:
        simulation.run(registry=registry)
        os.environ['KUBECONFIG'] = 'mine'

    assert os.environ.pop('KUBECONFIG') == 'mine'


def test_variables_are_restored_when_files_cannot_be_loaded(write):
    with kopf.testing.Simulation() as simulation, pytest.raises(SyntaxError):
        simulation.run(write('handlers.py', 'wrong syntax'))

    assert 'KUBECONFIG' not in os.environ


# The login handlers.


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.mark.parametrize('is_async', [False, True])
def test_login_handlers_get_only_what_they_name(registry, caplog, is_async):
    calls = []
    if is_async:

        @kopf.on.login(registry=registry)
        async def login_fn(retry):
            calls.append(retry)
    else:

        @kopf.on.login(registry=registry)
        def login_fn():
            calls.append(0)

    kopf.on.event('configmaps', registry=registry)(lambda **_: None)
    with kopf.testing.Simulation() as simulation:
        simulation.run(registry=registry)
        simulation.sleep(1)

    assert calls == [0]
    assert 'has failed' not in caplog.text


def test_login_handlers_are_called_before_other_requests(registry, crd, build_object):
    calls = []

    @kopf.on.startup(registry=registry)
    async def start_fn(memo, **_):
        calls.append('startup')

    @kopf.on.login(registry=registry)
    def login_fn(retry, **_):
        calls.append(('login', retry))
        return kopf.ConnectionInfo(server='https://127.0.0.1:1')

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        calls.append('event')

    with kopf.testing.Simulation(apply=[crd, build_object()]) as simulation:
        simulation.run(registry=registry)
        simulation.sleep(100)

    assert calls == ['startup', ('login', 0), 'event']


def test_failures_of_login_handlers_are_only_warnings(registry, crd, build_object, caplog):
    calls = []

    @kopf.on.login(registry=registry, id='log_in')
    async def login_fn(**_):
        raise kopf.TemporaryError('There is no such cluster here.', delay=1000)

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        calls.append('event')

    with kopf.testing.Simulation(apply=[crd, build_object()]) as simulation:
        simulation.run(registry=registry)
        simulation.sleep(100)

    assert calls == ['event']
    assert [r.message for r in caplog.records if 'no such cluster' in r.message] == [
        "The login handler 'log_in' has failed, but its credentials are not needed here: "
        "TemporaryError('There is no such cluster here.')"
    ]


def test_sessions_of_login_handlers_are_closed(registry, crd):
    sessions = []

    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        sessions.append(aiohttp.ClientSession())
        return kopf.AiohttpSession(server='https://127.0.0.1:1', aiohttp_session=sessions[-1])

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        pass

    with kopf.testing.Simulation(apply=[crd]) as simulation:
        simulation.run(registry=registry)
        simulation.sleep(100)

        assert sessions[0].closed
