"""
Operators in clusters: which rights they need, and what the manifests for their deployment are like.

The roles of ``deploy/`` are applied to a sandbox that enforces them, and operators are run there as
in their pods: with the files of the service account. What was granted is compared with what was
asked for: neither may be more.
"""

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import aiohttp
import pytest
import yaml

import kopf
import kopf.testing
from kopf._core.intents import piggybacking

ROOT = pathlib.Path(__file__).parent.parent
NAMESPACE, ACCOUNT = 'kopf-example', 'example-operator'
USER = f'system:serviceaccount:{NAMESPACE}:{ACCOUNT}'
OBJECT = {
    'apiVersion': 'kopf.dev/v1',
    'kind': 'KopfExample',
    'metadata': {'name': 'obj', 'namespace': NAMESPACE},
    'spec': {'field': 'old'},
}

binds = []
"""The addresses that are listened on in this process, since the beginning of the current test."""


@pytest.fixture(scope='session')
def audit():
    sys.addaudithook(lambda event, args: binds.append(args[1]) if event == 'socket.bind' else None)


@pytest.fixture
def listened(audit, sandbox):
    binds.clear()
    return binds


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(rbac=True) as sandbox:
        await sandbox.apply(ROOT / 'examples/crd.yaml', ROOT / 'peering.yaml')
        yield sandbox


@pytest.fixture
async def pod(sandbox, monkeypatch, tmp_path):
    """
    As if in a pod of the service account of the manifests given: with its files and environment.
    """

    async def enter(*manifests):
        await sandbox.apply(
            *[ROOT / 'deploy' / manifest for manifest in (*manifests, 'peering.yaml')]
        )
        (tmp_path / 'token').write_text(await request_token(sandbox))
        (tmp_path / 'ca.crt').write_bytes(sandbox.ca_data)
        (tmp_path / 'namespace').write_text(NAMESPACE)
        host, port = sandbox.url.removeprefix('https://').split(':')
        monkeypatch.setenv('KUBERNETES_SERVICE_HOST', host)
        monkeypatch.setenv('KUBERNETES_SERVICE_PORT', port)
        monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', str(tmp_path))
        monkeypatch.setenv('KUBECONFIG', str(tmp_path / 'absent'))

    return enter


async def request_token(sandbox):
    url = f'{sandbox.url}/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token'
    request = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'TokenRequest', 'spec': {}}
    info = kopf.ConnectionInfo(server=sandbox.url, ca_path=str(sandbox.ca_path))
    headers = {'Authorization': f'Bearer {sandbox.token}'}
    connector = aiohttp.TCPConnector(ssl=info.as_ssl_context())
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.post(url, json=request) as response,
    ):
        assert response.status == 201, await response.text()
        return (await response.json())['status']['token']


@pytest.fixture
def registry():
    """
    An operator that does all that operators do with one resource, and logs in by the usual places.
    """
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_service_account)
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)

    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.delete('kopfexamples', registry=registry)
    async def change_fn(body, reason, patch, **_):
        kopf.info(body, reason='Handled', message=f'it is {reason}d')
        patch.status['last'] = str(reason)

    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def timer_fn(body, **_):
        kopf.info(body, reason='Tick', message='the same again')

    return registry


@contextlib.asynccontextmanager
async def operator(registry, **options):
    stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(
        kopf.operator(
            registry=registry,
            identity='me',
            stop_flag=stop_flag,
            ready_flag=ready_flag,
            peering_name=ACCOUNT,
            **options,
        ),
        name='operator',
    )
    try:
        await asyncio.wait_for(ready_flag.wait(), 60)
        yield
    finally:
        stop_flag.set()
        await task


async def live_through(sandbox):
    """Let an object be created, changed and deleted, and be handled each time."""
    await sandbox.create(OBJECT)
    await sandbox.wait(
        'kopfexamples',
        'obj',
        lambda body: body and body.get('status', {}).get('last') == 'create',
        namespace=NAMESPACE,
    )
    await asyncio.sleep(25)
    await sandbox.patch('kopfexamples', 'obj', {'spec': {'field': 'new'}}, namespace=NAMESPACE)
    await sandbox.wait(
        'kopfexamples',
        'obj',
        lambda body: body and body.get('status', {}).get('last') == 'update',
        namespace=NAMESPACE,
    )
    await sandbox.delete('kopfexamples', 'obj', namespace=NAMESPACE)
    await sandbox.wait('kopfexamples', 'obj', lambda body: body is None, namespace=NAMESPACE)


async def wait_until(condition):
    async with asyncio.timeout(600):
        while not condition():
            await asyncio.sleep(0.1)


def get_asked(sandbox, *, denied=False):
    """
    What was asked for by the operator about the objects of the cluster: verbs, groups, resources.
    """
    return {
        (asked.verb, asked.group, f'{asked.plural}/{asked.subresource}'.rstrip('/'))
        for asked in sandbox.requests
        if asked.user == USER and asked.plural and (asked.code == 403) is denied
    }


def get_granted(*manifests):
    """What is granted by the roles in these manifests, one by one."""
    documents = [
        document
        for manifest in manifests
        for document in yaml.safe_load_all((ROOT / 'deploy' / manifest).read_text())
    ]
    return {
        (verb, group, resource)
        for document in documents
        for rule in document.get('rules', [])
        for group in rule['apiGroups']
        for resource in rule['resources']
        for verb in rule['verbs']
    }


@pytest.mark.guarantee('DEP-005', 'DEP-006')
async def test_all_that_is_granted_to_operators_of_clusters_is_needed_and_nothing_else_is(
    sandbox, pod, registry
):
    await pod('rbac-cluster.yaml')
    async with operator(registry, clusterwide=True):
        await live_through(sandbox)

    assert get_asked(sandbox, denied=True) == set()
    assert get_asked(sandbox) == get_granted('rbac-cluster.yaml')


@pytest.mark.guarantee('DEP-004', 'DEP-006')
async def test_clusters_are_observed_only_by_listing_and_watching_their_resources_and_namespaces(
    sandbox, pod, registry
):
    await pod('rbac-cluster.yaml', 'rbac-patterns.yaml')
    async with operator(registry, namespaces=['kopf-*']):
        await live_through(sandbox)

    unneeded = {
        permission
        for permission in get_granted('rbac-cluster.yaml')
        if 'clusterkopfpeerings' in permission
    }
    assert get_asked(sandbox, denied=True) == set()
    assert get_asked(sandbox) == get_granted('rbac-cluster.yaml', 'rbac-patterns.yaml') - unneeded
    assert {
        (verb, resource)
        for verb, group, resource in get_asked(sandbox)
        if resource in {'customresourcedefinitions', 'namespaces'}
    } == {
        ('list', 'customresourcedefinitions'),
        ('watch', 'customresourcedefinitions'),
        ('list', 'namespaces'),
        ('watch', 'namespaces'),
    }


@pytest.mark.guarantee('DEP-008')
async def test_operators_of_single_namespaces_need_no_cluster_roles(sandbox, pod, registry):
    await pod('rbac-namespace.yaml')
    async with operator(registry, namespaces=[NAMESPACE]):
        await live_through(sandbox)

    assert get_asked(sandbox) == get_granted('rbac-namespace.yaml')
    assert {resource for _, _, resource in get_asked(sandbox, denied=True)} <= {
        'customresourcedefinitions',
        'namespaces',
    }
    assert not [
        document
        for document in yaml.safe_load_all((ROOT / 'deploy/rbac-namespace.yaml').read_text())
        if document['kind'].startswith('Cluster')
    ]


@pytest.mark.guarantee('DEP-006', 'ADM-044', 'FND-058')
async def test_webhooks_are_managed_only_by_reading_creating_and_patching_their_configurations(
    sandbox, pod, registry
):
    settings = kopf.OperatorSettings()
    settings.admission.managed = 'auto.kopf.dev'
    settings.admission.server = serve_webhooks
    kopf.on.validate('kopfexamples', registry=registry, ignore_failures=True)(lambda **_: None)
    kopf.on.mutate('kopfexamples', registry=registry, ignore_failures=True)(lambda **_: None)
    await pod('rbac-cluster.yaml', 'rbac-admission.yaml')
    async with operator(registry, clusterwide=True, settings=settings):
        for resource in ('validatingwebhookconfigurations', 'mutatingwebhookconfigurations'):
            await sandbox.wait(
                resource, 'auto.kopf.dev', lambda body: body and body.get('webhooks')
            )
        await live_through(sandbox)
        await asyncio.sleep(60)

    expected = get_granted('rbac-cluster.yaml', 'rbac-admission.yaml')
    assert get_asked(sandbox, denied=True) == set()
    assert get_asked(sandbox) == expected
    assert {
        verb for verb, _, resource in expected if resource.endswith('webhookconfigurations')
    } == {'get', 'create', 'patch'}


async def serve_webhooks(fn):
    """A server that can be reached by nobody."""
    yield {'url': 'https://127.0.0.1:1/'}
    await asyncio.Event().wait()


@pytest.mark.guarantee('DEP-005')
async def test_operators_that_only_watch_need_no_right_to_patch(sandbox, pod):
    seen = []
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_service_account)

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(type, **_):
        seen.append(type)

    await pod('rbac-cluster.yaml')
    role = await sandbox.get('clusterroles', ACCOUNT)
    for rule in role['rules']:
        if 'kopfexamples' in rule['resources']:
            rule['verbs'].remove('patch')
    role['rules'] = [
        rule for rule in role['rules'] if 'kopfexamples/status' not in rule['resources']
    ]
    await sandbox.update(role)
    await sandbox.create(OBJECT)
    async with operator(registry, clusterwide=True):
        await wait_until(lambda: seen)
        await sandbox.delete('kopfexamples', 'obj', namespace=NAMESPACE)
        await wait_until(lambda: 'DELETED' in seen)

    assert get_asked(sandbox, denied=True) == set()
    assert {verb for verb, _, resource in get_asked(sandbox) if resource == 'kopfexamples'} == {
        'list',
        'watch',
    }


@pytest.mark.guarantee('DEP-007')
async def test_objects_of_others_are_not_written_to_even_if_they_belong_to_the_handled_ones(
    sandbox, pod, registry
):
    await pod('rbac-cluster.yaml')
    owner = await sandbox.create({**OBJECT, 'metadata': {'name': 'parent', 'namespace': NAMESPACE}})
    reference = {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'name': 'parent',
        'uid': owner['metadata']['uid'],
        'controller': True,
    }
    before = await sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'child', 'namespace': NAMESPACE, 'ownerReferences': [reference]},
        }
    )
    async with operator(registry, clusterwide=True):
        await live_through(sandbox)
        after = await sandbox.get('configmaps', 'child', namespace=NAMESPACE)

    assert after == before
    assert {
        (verb, resource)
        for verb, _, resource in get_asked(sandbox)
        if verb not in {'list', 'watch'}
    } == {
        ('patch', 'kopfexamples'),
        ('patch', 'kopfexamples/status'),
        ('patch', 'clusterkopfpeerings'),
        ('create', 'events'),
        ('patch', 'events'),
    }


@pytest.mark.guarantee('DEP-009')
async def test_operators_in_pods_are_known_by_their_service_accounts(sandbox, pod, registry):
    await pod('rbac-cluster.yaml')
    async with operator(registry, clusterwide=True):
        await live_through(sandbox)

    (deployment,) = yaml.safe_load_all((ROOT / 'deploy/deployment.yaml').read_text())
    assert deployment['spec']['template']['spec']['serviceAccountName'] == ACCOUNT
    assert {asked.user for asked in sandbox.requests if asked.user_agent.startswith('kopf/')} == {
        USER
    }


@pytest.mark.guarantee('DEP-002')
async def test_operators_outside_of_clusters_do_the_same_with_the_same_code(
    sandbox, pod, registry, monkeypatch
):
    await pod('rbac-cluster.yaml')
    async with operator(registry, clusterwide=True):
        await live_through(sandbox)
    inside = get_asked(sandbox)
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', '/nowhere')
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))
    async with operator(registry, clusterwide=True):
        await live_through(sandbox)

    outside = {
        (asked.verb, asked.group, f'{asked.plural}/{asked.subresource}'.rstrip('/'))
        for asked in sandbox.requests
        if asked.user != USER and asked.user_agent.startswith('kopf/') and asked.plural
    }
    assert outside == inside


@pytest.mark.guarantee('DEP-003')
async def test_nothing_is_listened_on_unless_it_is_asked_for(sandbox, pod, registry, listened):
    await pod('rbac-cluster.yaml')
    async with operator(registry, clusterwide=True):
        await live_through(sandbox)

    assert listened == []


@pytest.mark.guarantee('DEP-003')
async def test_probes_are_listened_for_if_they_are_asked_for(
    sandbox, pod, registry, unused_tcp_port, listened
):
    await pod('rbac-cluster.yaml')
    async with operator(
        registry, clusterwide=True, liveness_endpoint=f'http://127.0.0.1:{unused_tcp_port}/healthz'
    ):
        pass

    assert listened == [('127.0.0.1', unused_tcp_port)]


def test_deployment_meets_the_restricted_standard_of_pods():
    (deployment,) = yaml.safe_load_all((ROOT / 'deploy/deployment.yaml').read_text())
    pod = deployment['spec']['template']['spec']
    (container,) = pod['containers']

    assert pod['securityContext'] == {
        'runAsNonRoot': True,
        'seccompProfile': {'type': 'RuntimeDefault'},
    }
    assert container['securityContext'] == {
        'allowPrivilegeEscalation': False,
        'readOnlyRootFilesystem': True,
        'capabilities': {'drop': ['ALL']},
    }
    assert not {'hostNetwork', 'hostPID', 'hostIPC'} & set(pod)
    assert {next(kind for kind in volume if kind != 'name') for volume in pod['volumes']} <= {
        'emptyDir',
        'configMap',
        'secret',
        'projected',
        'downwardAPI',
    }
    assert set(container['resources']) == {'requests', 'limits'}


async def test_manifests_are_accepted_by_the_cluster_without_warnings(sandbox):
    manifests = sorted(
        (ROOT / 'deploy').glob('*.yaml'), key=lambda path: path.name == 'peering.yaml'
    )
    applied = await sandbox.apply(*manifests)

    assert {body['kind'] for body in applied} == {
        'Namespace',
        'ServiceAccount',
        'Role',
        'RoleBinding',
        'ClusterRole',
        'ClusterRoleBinding',
        'Deployment',
        'PodDisruptionBudget',
        'ClusterKopfPeering',
        'KopfPeering',
    }


@pytest.mark.slow
@pytest.mark.guarantee('DEP-010')
def test_command_of_the_deployment_answers_its_probes_and_exits_gracefully_when_terminated(
    tmp_path, unused_tcp_port
):
    (deployment,) = yaml.safe_load_all((ROOT / 'deploy/deployment.yaml').read_text())
    (container,) = deployment['spec']['template']['spec']['containers']
    example = ROOT / 'examples/01-minimal/example.py'
    args = [
        arg.replace('0.0.0.0:8080', f'127.0.0.1:{unused_tcp_port}').replace(
            '/app/main.py', str(example)
        )
        for arg in container['args']
    ]
    with kopf.testing.Sandbox(
        rbac=True,
        apply=[
            ROOT / 'examples/crd.yaml',
            ROOT / 'peering.yaml',
            ROOT / 'deploy/rbac-cluster.yaml',
            ROOT / 'deploy/leadership.yaml',
            ROOT / 'deploy/peering.yaml',
        ],
    ) as sandbox:
        grant(sandbox)
        process = subprocess.Popen(
            [sys.executable, '-m', 'kopf', *args],
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                'POD_NAMESPACE': 'kopf-example',
                'KUBECONFIG': str(sandbox.add_user('op', groups=['operators']).kubeconfig),
            },
        )
        try:
            for probe in ('readinessProbe', 'livenessProbe'):
                wait_until_answers(
                    f'http://127.0.0.1:{unused_tcp_port}{container[probe]["httpGet"]["path"]}',
                    process,
                )
            records = sandbox.get('clusterkopfpeerings', ACCOUNT)['status']
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
        left = sandbox.get('clusterkopfpeerings', ACCOUNT).get('status', {})
        lease = sandbox.get('leases', ACCOUNT, 'kopf-example')

    assert process.returncode == 0, said
    assert len(records) == 1
    assert left == {}
    assert lease['spec']['holderIdentity'] == ''
    assert lease['spec']['leaseTransitions'] == 0
    assert deployment['spec']['replicas'] == 2
    assert deployment['spec']['strategy']['type'] == 'RollingUpdate'


def grant(sandbox):
    """Let the group ``operators`` do the same as the service account."""
    sandbox.create(
        {
            'apiVersion': 'rbac.authorization.k8s.io/v1',
            'kind': 'ClusterRoleBinding',
            'metadata': {'name': 'operators'},
            'roleRef': {
                'apiGroup': 'rbac.authorization.k8s.io',
                'kind': 'ClusterRole',
                'name': ACCOUNT,
            },
            'subjects': [
                {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Group', 'name': 'operators'}
            ],
        }
    )
    with contextlib.suppress(kopf.testing.ApiError):  # if there are such manifests
        binding = sandbox.get('rolebindings', f'{ACCOUNT}-leadership', 'kopf-example')
        subject = {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Group', 'name': 'operators'}
        sandbox.patch(
            'rolebindings', binding['metadata']['name'], {'subjects': [subject]}, 'kopf-example'
        )


def wait_until_answers(url, process):
    while process.poll() is None:
        with (
            contextlib.suppress(urllib.error.URLError),
            urllib.request.urlopen(url, timeout=5) as response,
        ):
            assert response.status == 200
            return
    pytest.fail(f'The operator has ended: {process.stderr.read()}')
