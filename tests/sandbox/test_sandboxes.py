"""
The sandbox as synchronous tests of operators use it: `kopf.testing.Sandbox`.
"""

import base64
import concurrent.futures
import datetime
import gc
import json
import pathlib
import socket
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request

import pytest
import yaml
from sandbox_samples import CONFIG, CRD, EXAMPLE

import kopf.testing

ROOT = pathlib.Path(kopf.__file__).parent.parent


@pytest.fixture(autouse=True)
def temporary_files(tmp_path_factory, monkeypatch):
    """Where the temporary files go; in the end there must be none, nor threads of our own."""
    before = set(threading.enumerate())
    directory = tmp_path_factory.mktemp('temporary')
    monkeypatch.setattr(tempfile, 'tempdir', str(directory))
    yield directory
    assert list(directory.iterdir()) == []
    assert [
        thread.name for thread in set(threading.enumerate()) - before if 'sandbox' in thread.name
    ] == []


@pytest.fixture
def sandbox():
    with kopf.testing.Sandbox() as sandbox:
        yield sandbox


def ask(sandbox, path, *, token=None, method='GET', body=None, headers=()):
    """Make a request with nothing but the standard library."""
    context = (
        ssl.create_default_context(cadata=sandbox.ca_data.decode()) if sandbox.ca_data else None
    )
    sent = {
        'Content-Type': 'application/json',
        'User-Agent': 'tester/1.0',
        **dict(headers),
        'Authorization': f'Bearer {token or sandbox.token}',
    }
    request = urllib.request.Request(
        sandbox.url + path, body and json.dumps(body).encode(), sent, method=method
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as e:
        with e:
            return e.code, json.load(e)


def test_clients_reach_the_sandbox_by_its_url_certificate_and_token(sandbox):
    code, answer = ask(sandbox, '/api/v1/namespaces/default')

    assert sandbox.url.startswith('https://127.0.0.1:')
    assert sandbox.ca_path.read_bytes() == sandbox.ca_data
    assert (code, answer['metadata']['name']) == (200, 'default')


def test_kubeconfig_leads_to_the_sandbox_and_is_private_and_temporary():
    with kopf.testing.Sandbox() as sandbox:
        path = sandbox.kubeconfig
        config = yaml.safe_load(path.read_text())

        assert config['clusters'][0]['cluster']['server'] == sandbox.url
        assert config['users'][0]['user']['token'] == sandbox.token
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    assert not path.exists()


def test_objects_go_through_their_life(sandbox):
    created = sandbox.create(CONFIG)
    replaced = sandbox.update({**created, 'data': {'a': '2'}})
    patched = sandbox.patch('configmaps', 'cm', {'data': {'b': '3'}})

    assert patched == sandbox.get('configmaps', 'cm')
    assert patched['data'] == {'a': '2', 'b': '3'}
    assert patched['metadata']['uid'] == created['metadata']['uid']
    versions = [int(body['metadata']['resourceVersion']) for body in (created, replaced, patched)]
    assert versions == sorted(set(versions))

    sandbox.delete('configmaps', 'cm')
    with pytest.raises(kopf.testing.ApiError, match='configmaps "cm" not found') as caught:
        sandbox.get('configmaps', 'cm')
    assert (caught.value.code, caught.value.reason) == (404, 'NotFound')


def test_objects_are_listed_by_namespaces_and_selectors(sandbox):
    sandbox.apply(CONFIG, {**CONFIG, 'metadata': {'name': 'other', 'namespace': 'kube-public'}})

    def names(**kwargs):
        return [
            (body['metadata']['namespace'], body['metadata']['name'])
            for body in sandbox.list('cm', **kwargs)
            if body['metadata']['name'] != 'kube-root-ca.crt'
        ]

    assert names() == [('default', 'cm'), ('kube-public', 'other')]
    assert names(namespace='kube-public') == [('kube-public', 'other')]
    assert names(labels='app in (web)') == names(labels={'app': 'web'}) == [('default', 'cm')]
    assert names(fields={'metadata.name': 'other'}) == [('kube-public', 'other')]
    assert sandbox.list('cm')[0]['kind'] == 'ConfigMap'


@pytest.mark.parametrize(
    'patch, type',
    [
        pytest.param({'data': {'b': '2'}}, 'merge', id='merge'),
        pytest.param([{'op': 'add', 'path': '/data/b', 'value': '2'}], 'json', id='json'),
        pytest.param({'data': {'b': '2'}}, 'strategic', id='strategic'),
        pytest.param({'data': {'b': '2'}}, 'apply', id='apply'),
    ],
)
def test_patches_are_of_all_types(sandbox, patch, type):
    sandbox.create(CONFIG)

    patched = sandbox.patch('cm', 'cm', patch, type=type)

    assert patched['data'] == {'a': '1', 'b': '2'}


def test_patch_of_unknown_type_is_a_mistake(sandbox):
    with pytest.raises(ValueError, match="one of merge, json, strategic, apply, not 'yaml'"):
        sandbox.patch('cm', 'cm', {}, type='yaml')


def test_status_is_written_by_its_own_endpoint(sandbox):
    sandbox.apply(CRD, EXAMPLE)

    ignored = sandbox.patch('kex', 'ex', {'status': {'x': 1}})
    patched = sandbox.patch('kex', 'ex', {'status': {'x': 1}}, subresource='status')
    updated = sandbox.update({**patched, 'status': {'x': 2}}, subresource='status')

    assert 'status' not in ignored
    assert patched['status'] == {'x': 1}
    assert updated['status'] == {'x': 2}


def test_unsupported_verb_is_refused_as_by_the_api(sandbox):
    with pytest.raises(kopf.testing.ApiError, match='does not allow this method') as caught:
        sandbox.delete('componentstatuses', 'etcd-0')

    assert caught.value.code == 405


def test_deletion_with_finalizers_only_marks(sandbox):
    sandbox.create({**CONFIG, 'metadata': {'name': 'cm', 'finalizers': ['kopf.dev/x']}})

    sandbox.delete('cm', 'cm', propagation='Background', grace_period=0)

    assert sandbox.get('cm', 'cm')['metadata']['deletionTimestamp']


@pytest.mark.parametrize(
    'name',
    [
        'kopfexamples',
        'kopfexample',
        'KopfExample',
        'kex',
        'kopfexamples.kopf.dev',
        'kopfexamples.v1.kopf.dev',
        'kopf.dev/v1/kopfexamples',
        'kopf.dev/v1/KopfExample',
    ],
)
def test_custom_resources_have_many_names(sandbox, name):
    sandbox.apply(CRD, EXAMPLE)

    assert sandbox.get(name, 'ex')['spec'] == {'size': 1}


@pytest.mark.parametrize(
    'name, namespace',
    [
        pytest.param('namespaces', 'default', id='plural'),
        pytest.param('ns', '', id='short'),
        pytest.param('v1/namespaces', 'ignored', id='versioned'),
        pytest.param('namespaces.v1', 'default', id='versioned-as-in-kubectl'),
    ],
)
def test_namespace_is_ignored_where_there_are_none(sandbox, name, namespace):
    assert sandbox.get(name, 'default', namespace)['kind'] == 'Namespace'


def test_resource_with_two_shapes_is_one(sandbox):
    assert sandbox.list('events') == sandbox.list('events.k8s.io/v1/events') == []


def test_unknown_resource_is_told_as_kubectl_tells_it(sandbox):
    with pytest.raises(kopf.testing.ApiError, match='doesn\'t have a resource type "unknowns"'):
        sandbox.list('unknowns')


def test_ambiguous_resource_is_refused_with_the_options(sandbox):
    other = json.loads(json.dumps(CRD).replace('kopf.dev', 'example.com'))
    sandbox.apply(CRD, other)

    with pytest.raises(
        ValueError, match=r'ambiguous.* example.com/v1/kopfexamples or kopf.dev/v1/kopfexamples'
    ):
        sandbox.list('kopfexamples')

    assert sandbox.list('kopfexamples.kopf.dev') == []


@pytest.mark.parametrize(
    'make_source',
    [
        pytest.param(lambda path: path / 'both.yaml', id='file'),
        pytest.param(lambda path: str(path / 'both.yaml'), id='file-as-string'),
        pytest.param(lambda path: path, id='directory'),
        pytest.param(lambda path: (path / 'both.yaml').read_text(), id='text'),
        pytest.param(lambda path: [CRD, EXAMPLE], id='list'),
        pytest.param(
            lambda path: {'apiVersion': 'v1', 'kind': 'List', 'items': [CRD, EXAMPLE]},
            id='list-object',
        ),
    ],
)
def test_manifests_come_from_everywhere(sandbox, tmp_path, make_source):
    (tmp_path / 'both.yaml').write_text(yaml.safe_dump_all([CRD, EXAMPLE]))
    (tmp_path / 'ignored.txt').write_text('not a manifest')

    applied = sandbox.apply(make_source(tmp_path))

    assert [body['kind'] for body in applied] == ['CustomResourceDefinition', 'KopfExample']
    assert sandbox.get('kex', 'ex')['spec'] == {'size': 1}


def test_definitions_and_namespaces_are_applied_first_whatever_the_order(sandbox):
    namespace = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'ns'}}
    example = {**EXAMPLE, 'metadata': {'name': 'ex', 'namespace': 'ns'}}

    applied = sandbox.apply(example, namespace, CRD)

    assert [body['kind'] for body in applied] == [
        'KopfExample',
        'Namespace',
        'CustomResourceDefinition',
    ]
    assert sandbox.get('kex', 'ex', 'ns')


def test_applying_again_changes_only_what_differs(sandbox):
    (first,) = sandbox.apply(CONFIG)
    (second,) = sandbox.apply(CONFIG)
    (third,) = sandbox.apply({**CONFIG, 'data': {'b': '2'}})

    assert second == first
    assert third['data'] == {'b': '2'}
    assert third['metadata']['uid'] == first['metadata']['uid']


@pytest.mark.parametrize(
    'wrong, message',
    [
        pytest.param('a: [\n', 'not valid YAML or JSON', id='syntax'),
        pytest.param('- 1\n- 2\n', 'must contain objects', id='not-objects'),
        pytest.param({'kind': 'ConfigMap'}, 'has no apiVersion', id='no-version'),
        pytest.param(
            {'apiVersion': 'v1', 'kind': 'ConfigMap'}, 'has no metadata', id='no-metadata'
        ),
        pytest.param({**CONFIG, 'metadata': {'generateName': 'x-'}}, 'has no name', id='no-name'),
        pytest.param(
            EXAMPLE,
            "Cannot apply 'ex' from the manifest: there is no kind KopfExample in version kopf.dev/v1",
            id='unknown-kind',
        ),
        pytest.param(
            '/nonexistent/file.yaml',
            'Cannot read /nonexistent/file.yaml: No such file',
            id='no-file',
        ),
    ],
)
def test_nothing_is_applied_if_any_manifest_is_wrong(sandbox, wrong, message):
    with pytest.raises(kopf.testing.ManifestError, match=message):
        sandbox.apply(CONFIG, wrong)

    assert sandbox.list('cm', labels='app') == []


def test_refused_object_is_named_with_its_file(sandbox, tmp_path):
    path = tmp_path / 'cm.yaml'
    path.write_text(json.dumps({**CONFIG, 'metadata': {'name': 'cm', 'namespace': 'nons'}}))

    with pytest.raises(kopf.testing.ApiError) as caught:
        sandbox.apply(path)

    assert caught.value.message == 'namespaces "nons" not found'
    assert caught.value.__notes__ == [f'{path}: ConfigMap "cm"']


def test_source_of_another_type_is_a_mistake(sandbox):
    with pytest.raises(TypeError, match='not bytes'):
        sandbox.apply(b'kind: x\n')


def test_manifests_can_be_there_from_the_start():
    with kopf.testing.Sandbox(apply=[EXAMPLE, CRD]) as sandbox:
        assert sandbox.get('kex', 'ex')


def test_waiting_is_for_changes_made_by_others(sandbox):
    sandbox.create(CONFIG)
    path = '/api/v1/namespaces/default/configmaps/cm'
    headers = {'Content-Type': 'application/merge-patch+json'}
    other = threading.Thread(
        target=ask,
        args=(sandbox, path),
        kwargs={'method': 'PATCH', 'body': {'data': {'done': 'yes'}}, 'headers': headers},
    )
    other.start()

    body = sandbox.wait('cm', 'cm', lambda body: body and 'done' in body['data'])

    other.join()
    assert body['data'] == {'a': '1', 'done': 'yes'}


def test_waiting_can_be_for_an_absence(sandbox):
    assert sandbox.wait('cm', 'cm', lambda body: body is None) is None


def test_condition_may_use_the_sandbox_itself(sandbox):
    sandbox.create(CONFIG)

    assert sandbox.wait('cm', 'cm', lambda body: sandbox.get('cm', 'cm') == body)


def test_waiting_in_vain_is_a_timeout_that_tells_the_state(sandbox):
    with pytest.raises(
        TimeoutError,
        match=r"'cm' of configmaps is not as expected after 0 seconds: it does not exist",
    ):
        sandbox.wait('configmaps', 'cm', lambda body: body is not None, timeout=0)


def test_errors_of_conditions_are_raised_where_it_is_waited(sandbox):
    with pytest.raises(ZeroDivisionError):
        sandbox.wait('cm', 'cm', lambda body: 1 / 0)


def test_events_are_iterated(sandbox):
    sandbox.create(CONFIG)
    version = sandbox.patch('cm', 'cm', {'data': {'a': '2'}})['metadata']['resourceVersion']
    sandbox.delete('cm', 'cm')

    events = list(sandbox.watch('cm', labels='app', since=version, timeout=0))
    replayed = list(sandbox.watch('cm', 'kube-public', labels='app', timeout=0))

    assert [(event['type'], event['object']['metadata']['name']) for event in events] == [
        ('DELETED', 'cm')
    ]
    assert replayed == []


def test_events_are_of_what_exists_when_called_and_of_what_happens_since_then(sandbox):
    sandbox.create(CONFIG)
    events = sandbox.watch('cm', 'default', labels='app', timeout=0)
    later = sandbox.watch(
        'cm', 'default', since=sandbox.list('cm')[0]['metadata']['resourceVersion'], timeout=0
    )
    sandbox.patch('cm', 'cm', {'data': {'a': '2'}})
    sandbox.delete('cm', 'cm')

    assert [(event['type'], event['object']['data']) for event in events] == [
        ('ADDED', {'a': '1'}),
        ('MODIFIED', {'a': '2'}),
        ('DELETED', {'a': '2'}),
    ]
    assert [event['type'] for event in later] == ['MODIFIED', 'DELETED']


def test_states_are_followed_from_the_one_when_called(sandbox):
    states = sandbox.follow('cm', 'cm')
    sandbox.create(CONFIG)

    assert next(states) is None
    assert next(states)['data'] == {'a': '1'}


def test_iterators_that_are_held_for_longer_than_the_sandbox_just_end():
    with kopf.testing.Sandbox(tls=False) as sandbox:
        states, events, unused = (
            sandbox.follow('cm', 'cm'),
            sandbox.watch('ns'),
            sandbox.watch('ns'),
        )
        assert next(states) is None
        assert next(events)['type'] == 'ADDED'
    held, dropped = states, [sandbox, events, unused]

    del states, events, unused
    dropped.clear()
    gc.collect()

    assert list(held) == []


def test_iterators_end_when_the_sandbox_is_left():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with kopf.testing.Sandbox(tls=False) as sandbox:
            states, events = sandbox.follow('cm', 'cm'), sandbox.watch('secrets')
            next(states)
            following, watching = pool.submit(list, states), pool.submit(list, events)
            waiting = pool.submit(sandbox.wait, 'cm', 'cm', lambda body: body is not None)

        assert following.result(timeout=10) == watching.result(timeout=10) == []
        with pytest.raises(RuntimeError, match='not running'):
            waiting.result(timeout=10)


def test_watch_from_a_compacted_version_gets_410(sandbox):
    version = sandbox.create(CONFIG)['metadata']['resourceVersion']
    sandbox.patch('cm', 'cm', {'data': {'a': '2'}})
    sandbox.compact()

    (event,) = sandbox.watch('cm', since=version, timeout=1)

    assert (event['type'], event['object']['code']) == ('ERROR', 410)


def test_requests_of_clients_are_remembered(sandbox):
    sandbox.get('ns', 'default')  # not by the network
    ask(sandbox, '/api/v1/configmaps?limit=5')
    ask(sandbox, '/api/v1/namespaces/default/configmaps/unknown', method='DELETE')

    first, second = sandbox.requests
    assert (first.method, first.verb, first.path, first.query) == (
        'GET',
        'list',
        '/api/v1/configmaps',
        'limit=5',
    )
    assert (first.code, first.user_agent, first.user) == (200, 'tester/1.0', 'kopf-sandbox-admin')
    assert (second.verb, second.plural, second.namespace, second.name, second.code) == (
        'delete',
        'configmaps',
        'default',
        'unknown',
        404,
    )
    assert sandbox.requests.select(verb='delete') == [second]
    assert sandbox.requests[-1:] == [second]

    sandbox.requests.clear()
    assert len(sandbox.requests) == 0


def test_requests_are_remembered_after_the_end():
    with kopf.testing.Sandbox() as sandbox:
        ask(sandbox, '/version')

    assert [asked.path for asked in sandbox.requests] == ['/version']


def test_users_are_limited_by_roles():
    role = {
        'apiVersion': 'rbac.authorization.k8s.io/v1',
        'kind': 'ClusterRole',
        'metadata': {'name': 'reader'},
        'rules': [{'apiGroups': [''], 'resources': ['configmaps'], 'verbs': ['list']}],
    }
    binding = {
        'apiVersion': 'rbac.authorization.k8s.io/v1',
        'kind': 'ClusterRoleBinding',
        'metadata': {'name': 'reader'},
        'roleRef': {
            'apiGroup': 'rbac.authorization.k8s.io',
            'kind': 'ClusterRole',
            'name': 'reader',
        },
        'subjects': [{'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'Group', 'name': 'readers'}],
    }
    with kopf.testing.Sandbox(rbac=True, apply=[role, binding]) as sandbox:
        alice = sandbox.add_user('alice', ['readers'])
        bob = sandbox.add_user('bob')

        assert ask(sandbox, '/api/v1/configmaps', token=alice.token)[0] == 200
        code, answer = ask(sandbox, '/api/v1/configmaps', token=bob.token)
        assert code == 403
        assert answer['message'] == (
            'configmaps is forbidden: User "bob" cannot list resource "configmaps" '
            'in API group "" at the cluster scope'
        )
        assert yaml.safe_load(alice.kubeconfig.read_text())['users'][0]['user'] == {
            'token': alice.token
        }


def test_users_can_come_with_certificates(sandbox, tmp_path):
    carol = sandbox.add_user('carol', ['some'], certificate=True)
    user = yaml.safe_load(carol.kubeconfig.read_text())['users'][0]['user']
    pem = tmp_path / 'carol.pem'
    pem.write_bytes(
        b''.join(base64.b64decode(user[f'client-{part}-data']) for part in ('certificate', 'key'))
    )
    context = ssl.create_default_context(cadata=sandbox.ca_data.decode())
    context.load_cert_chain(pem)

    with urllib.request.urlopen(f'{sandbox.url}/version', context=context, timeout=10) as response:
        assert response.status == 200

    assert [asked.user for asked in sandbox.requests] == ['carol']
    assert carol.token == ''


@pytest.mark.guarantee('FND-063')
def test_plain_http_needs_credentials_but_no_certificates():
    with kopf.testing.Sandbox(tls=False) as sandbox:
        request = urllib.request.Request(f'{sandbox.url}/api/v1/namespaces')
        with pytest.raises(urllib.error.HTTPError, match='401'):
            urllib.request.urlopen(request, timeout=10)
        request.add_header('Authorization', f'Bearer {sandbox.token}')
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.status == 200

        assert sandbox.url.startswith('http://')
        assert sandbox.ca_data == b''
        assert 'certificate-authority-data' not in sandbox.kubeconfig.read_text()
        with pytest.raises(ValueError, match='no client certificates without TLS'):
            sandbox.add_user('carol', certificate=True)


def test_webhooks_can_be_served_by_functions(sandbox):
    async def deny(path, review):
        status = {'message': f'no {review["request"]["name"]} at {path}'}
        return {
            **review,
            'response': {'uid': review['request']['uid'], 'allowed': False, 'status': status},
        }

    sandbox.add_service('default', 'webhook', deny)
    sandbox.create(
        {
            'apiVersion': 'admissionregistration.k8s.io/v1',
            'kind': 'ValidatingWebhookConfiguration',
            'metadata': {'name': 'hook'},
            'webhooks': [
                {
                    'name': 'deny.kopf.dev',
                    'sideEffects': 'None',
                    'admissionReviewVersions': ['v1'],
                    'clientConfig': {
                        'service': {'namespace': 'default', 'name': 'webhook', 'path': '/check'}
                    },
                    'rules': [
                        {
                            'operations': ['*'],
                            'apiGroups': [''],
                            'apiVersions': ['v1'],
                            'resources': ['configmaps'],
                        }
                    ],
                }
            ],
        }
    )

    with pytest.raises(
        kopf.testing.ApiError, match=r'webhook "deny.kopf.dev" denied the request: no cm at /check'
    ):
        sandbox.create(CONFIG)


def test_times_are_of_the_given_clock():
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

    with kopf.testing.Sandbox(now=lambda: moment) as sandbox:
        assert sandbox.create(CONFIG)['metadata']['creationTimestamp'] == '2020-01-02T03:04:05Z'
        assert ask(sandbox, '/version')[0] == 200


def test_busy_port_is_an_error_that_says_so():
    with socket.create_server(('127.0.0.1', 0)) as busy:
        port = busy.getsockname()[1]

        with pytest.raises(OSError, match=f'Cannot listen on 127.0.0.1:{port}: the port is busy'):
            kopf.testing.Sandbox(port=port).__enter__()


def test_address_that_cannot_be_had_is_an_error_that_says_so(monkeypatch):
    async def fail(server):
        # With no number, as in newer versions of Python.
        raise OSError('could not bind on any address')

    monkeypatch.setattr('kopf._sandbox.http.server.Server.start', fail)

    with pytest.raises(
        OSError, match=r'^Cannot listen on 127.0.0.1:0: could not bind on any address\.$'
    ):
        kopf.testing.Sandbox().__enter__()


def test_start_that_fails_half_way_can_be_repeated(tmp_path):
    manifest = tmp_path / 'x.yaml'
    sandbox = kopf.testing.Sandbox(apply=[manifest])

    with pytest.raises(kopf.testing.ManifestError):
        sandbox.__enter__()

    manifest.write_text(json.dumps(CONFIG))
    with sandbox:
        assert sandbox.get('cm', 'cm')


def test_port_is_free_after_the_end():
    with kopf.testing.Sandbox() as other:
        port = int(other.url.rpartition(':')[2])
        ask(other, '/version')

    with kopf.testing.Sandbox(port=port) as again:
        assert again.url == f'https://127.0.0.1:{port}'


def test_errors_of_the_body_are_not_masked():
    with pytest.raises(ZeroDivisionError), kopf.testing.Sandbox():
        1 / 0  # noqa: B018


def test_sandbox_is_used_only_while_it_runs():
    sandbox = kopf.testing.Sandbox()

    for attribute in ('url', 'kubeconfig', 'token', 'faults', 'requests'):
        with pytest.raises(RuntimeError, match='not running'):
            getattr(sandbox, attribute)
    with sandbox, pytest.raises(RuntimeError, match='running already'):
        sandbox.__enter__()
    with pytest.raises(RuntimeError, match='not running'):
        sandbox.get('ns', 'default')


def test_imports_are_cheap():
    heavy = {'aiohttp', 'asyncio', 'ssl', 'yaml', 'cryptography', 'kopf._sandbox.http.server'}
    program = (
        'from kopf.testing import ApiError, Sandbox; Sandbox(); import sys; print(*sys.modules)'
    )

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True, cwd=ROOT
    )

    assert heavy & set(done.stdout.split()) == set()


def test_public_names_are_these():
    assert kopf.testing.__all__ == [
        'ApiError',
        'AsyncSandbox',
        'KopfRunner',
        'ManifestError',
        'Operator',
        'Sandbox',
        'Simulation',
        'Span',
        'Workloads',
        'call',
        'chaos',
        'find_overlaps',
    ]
    names = {name: getattr(kopf.testing, name).__name__ for name in kopf.testing.__all__}
    assert names.pop('chaos') == 'kopf.testing.chaos'
    assert all(name == known for known, name in names.items())
    with pytest.raises(AttributeError, match='misspelt'):
        kopf.testing.misspelt  # noqa: B018
