"""
Who gets into the sandbox: only those with a token, only by its own names, and never a page in a
browser.

Before, everyone was an administrator without TLS, including any page in a browser, by means of a
DNS name of its own.
"""

import http.client
import json
import pathlib
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
import yaml

import kopf
import kopf.testing
from kopf._cogs.structs import credentials
from kopf._sandbox.http import filters

CONFIGMAPS = '/api/v1/namespaces/default/configmaps'
CONFIGMAP = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'x'}}
KUBECTL = (
    shutil.which('kubectl') or pathlib.Path.home() / '.cache/kopf-tests/kubectl-1.35.4/kubectl'
)


@pytest.fixture(params=[True, False], ids=['tls', 'no-tls'])
def sandbox(request):
    with kopf.testing.Sandbox(tls=request.param) as sandbox:
        yield sandbox


@pytest.fixture
def plain_sandbox():
    with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


def ask(sandbox, method='GET', path=CONFIGMAPS, body=None, **headers):
    """Ask with these headers and no others; return the code and the body of the answer."""
    place = urllib.parse.urlsplit(sandbox.url)
    if place.scheme == 'https':
        context = ssl.create_default_context(cafile=sandbox.ca_path)
        connection = http.client.HTTPSConnection(
            place.hostname, place.port, context=context, timeout=10
        )
    else:
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=10)
    named = {name.replace('_', '-'): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, {'Host': place.netloc, **named})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def list_created(sandbox):
    """List the config maps, except those that every cluster has."""
    bodies = sandbox.list('configmaps')
    return [body for body in bodies if body['metadata']['name'] != 'kube-root-ca.crt']


def authorize(sandbox):
    return {'Authorization': f'Bearer {sandbox.token}'}


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'headers',
    [
        pytest.param({}, id='nothing'),
        pytest.param({'Authorization': ''}, id='empty'),
        pytest.param({'Authorization': 'Bearer wrong'}, id='wrong-token'),
        pytest.param({'Authorization': 'Basic YWRtaW46YWRtaW4='}, id='password'),
        pytest.param({'Impersonate_User': 'admin'}, id='impersonation'),
    ],
)
@pytest.mark.parametrize(
    'method, body', [('GET', None), ('POST', json.dumps(CONFIGMAP)), ('DELETE', None)]
)
def test_token_is_required(sandbox, headers, method, body):
    code, status = ask(sandbox, method, body=body, **headers)

    assert (code, status['reason']) == (401, 'Unauthorized')
    assert list_created(sandbox) == []


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'host',
    [
        'evil.example',
        'evil.example:443',
        'localhost.evil.example',
        '127.0.0.1.nip.io',
        '192.168.1.1',
        '8.8.8.8:80',
        '[2001:db8::1]',
        '0.0.0.0',
        'localhost@evil.example',
        '',
        'evil.example#localhost',
        '2130706433',
        '[',
        'xlocalhost',
    ],
)
def test_foreign_hosts_are_refused(sandbox, host):
    code, status = ask(sandbox, Host=host, **authorize(sandbox))

    assert (code, status['kind'], status['reason']) == (403, 'Status', 'Forbidden')
    assert 'not served under this host' in status['message']


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'host',
    [
        'localhost',
        'LOCALHOST:1',
        'localhost.',
        '127.0.0.1',
        '127.1.2.3:80',
        '[::1]:80',
        '[::ffff:127.0.0.1]',
        'my.localhost:8080',
        'kubernetes.default.svc',
    ],
)
def test_hosts_of_this_machine_are_answered(sandbox, host):
    code, _ = ask(sandbox, Host=host, **authorize(sandbox))

    assert code == 200


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'header, host, expected',
    [
        pytest.param('192.168.1.1:80', '192.168.1.1', True, id='the-address-itself'),
        pytest.param('192.168.1.2:80', '192.168.1.1', False, id='another-address'),
        pytest.param('localhost:80', '192.168.1.1', True, id='local-beside-an-address'),
        pytest.param('machine:80', 'machine', True, id='the-name-itself'),
        pytest.param('Machine', 'machine', True, id='case'),
        pytest.param('other', 'machine', False, id='another-name'),
        pytest.param('192.168.1.1:80', '0.0.0.0', True, id='address-of-all'),
        pytest.param('[fe80::1]:80', '::', True, id='address-of-all-v6'),
        pytest.param('evil.example', '0.0.0.0', False, id='name-of-all'),
        pytest.param('evil.example', '', False, id='name-of-nothing'),
    ],
)
def test_hosts_are_those_where_it_listens(header, host, expected):
    assert filters.is_host_served(header, host) is expected


@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize(
    'type',
    [
        'text/plain',
        'text/plain;charset=UTF-8',
        'application/x-www-form-urlencoded',
        'multipart/form-data; boundary=x',
        'text/html',
        'application/xml',
        'x',
    ],
)
@pytest.mark.parametrize(
    'method, path',
    [
        pytest.param('POST', CONFIGMAPS, id='create'),
        pytest.param('PUT', f'{CONFIGMAPS}/old', id='update'),
        pytest.param('PATCH', f'{CONFIGMAPS}/old', id='patch'),
        pytest.param('DELETE', f'{CONFIGMAPS}/old', id='delete'),
        pytest.param('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', id='review'),
    ],
)
def test_forms_and_texts_of_browsers_are_refused(sandbox, type, method, path):
    old = sandbox.create({**CONFIGMAP, 'metadata': {'name': 'old'}})

    code, status = ask(
        sandbox, method, path, json.dumps(CONFIGMAP), Content_Type=type, **authorize(sandbox)
    )

    assert (code, status['reason']) == (415, 'UnsupportedMediaType')
    assert list_created(sandbox) == [old]


@pytest.mark.guarantee('FND-063')
def test_pages_of_browsers_are_let_read_nothing(sandbox):
    place = urllib.parse.urlsplit(sandbox.url)
    headers = {'Origin': 'https://evil.example', 'Access_Control_Request_Method': 'POST'}
    context = (
        ssl.create_default_context(cafile=sandbox.ca_path) if place.scheme == 'https' else None
    )
    request = urllib.request.Request(
        f'{sandbox.url}/version', headers={**headers, **authorize(sandbox)}
    )

    with urllib.request.urlopen(request, context=context, timeout=10) as response:
        assert not [name for name in response.headers if name.lower().startswith('access-control')]


@pytest.mark.guarantee('FND-063')
def test_kubeconfig_without_tls_has_the_token_in_the_address(plain_sandbox):
    config = yaml.safe_load(plain_sandbox.kubeconfig.read_text())
    server = config['clusters'][0]['cluster']['server']

    assert server == f'{plain_sandbox.url}/token/{plain_sandbox.token}'
    assert ask(plain_sandbox, path=f'/token/{plain_sandbox.token}{CONFIGMAPS}')[0] == 200
    assert ask(plain_sandbox, path=f'/token/wrong{CONFIGMAPS}')[0] == 401
    assert ask(plain_sandbox, path=f'/token/{CONFIGMAPS}')[0] == 401
    assert (
        ask(plain_sandbox, path=f'/token/{plain_sandbox.token}/version', Host='evil.example')[0]
        == 403
    )


@pytest.mark.guarantee('FND-063')
def test_tokens_of_addresses_are_those_of_their_users():
    with kopf.testing.Sandbox(tls=False, rbac=True) as sandbox:
        user = sandbox.add_user('alice')
        code, status = ask(sandbox, path=f'/token/{user.token}{CONFIGMAPS}')
        server = yaml.safe_load(user.kubeconfig.read_text())['clusters'][0]['cluster']['server']

    assert code == 403
    assert 'User "alice" cannot list resource "configmaps"' in status['message']
    assert server.endswith(f'/token/{user.token}')


@pytest.mark.guarantee('FND-063')
def test_tokens_of_addresses_are_neither_recorded_nor_shown(plain_sandbox, caplog):
    caplog.set_level('DEBUG')

    ask(plain_sandbox, path=f'/token/{plain_sandbox.token}{CONFIGMAPS}?x=y')

    assert [asked.path for asked in plain_sandbox.requests] == [CONFIGMAPS]
    assert plain_sandbox.token not in caplog.text
    assert plain_sandbox.token not in credentials.hide_userinfo(
        f'{plain_sandbox.url}/token/{plain_sandbox.token}/api'
    )


@pytest.mark.guarantee('FND-063')
def test_tokens_of_addresses_mean_nothing_with_tls():
    with kopf.testing.Sandbox() as sandbox, pytest.raises(json.JSONDecodeError):
        # It is "404 page not found".
        ask(sandbox, path=f'/token/{sandbox.token}{CONFIGMAPS}', **authorize(sandbox))


@pytest.mark.slow
@pytest.mark.guarantee('FND-063')
@pytest.mark.skipif(not pathlib.Path(KUBECTL).exists(), reason='There is no kubectl.')
def test_kubectl_works_without_tls(plain_sandbox, tmp_path):
    manifest = tmp_path / 'x.yaml'
    manifest.write_text(json.dumps({**CONFIGMAP, 'data': {'a': '1'}}))

    for arguments in (
        ['apply', '-f', manifest],
        ['apply', '--server-side', '--force-conflicts', '-f', manifest],
        ['get', 'configmap', 'x', '-o', 'yaml'],
        ['explain', 'pod.spec'],
        ['api-resources'],
        ['delete', 'configmap', 'x'],
    ):
        done = subprocess.run(
            [
                KUBECTL,
                '--kubeconfig',
                plain_sandbox.kubeconfig,
                '--cache-dir',
                tmp_path / 'cache',
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ''), arguments


@pytest.mark.guarantee('FND-063')
def test_operators_work_without_tls_and_do_not_show_the_token(plain_sandbox, tmp_path, monkeypatch):
    handlers = tmp_path / 'handlers.py'
    handlers.write_text(
        'import kopf\n'
        "@kopf.on.create('configmaps')\n"
        "def fn(patch, **_): patch['data'] = {'a': '1'}\n"
    )
    monkeypatch.setenv('KUBECONFIG', str(plain_sandbox.kubeconfig))
    plain_sandbox.create(CONFIGMAP)

    with kopf.testing.KopfRunner(
        ['run', '--all-namespaces', '--verbose', str(handlers)], timeout=60
    ) as runner:
        plain_sandbox.wait(
            'configmaps', 'x', lambda body: body.get('data') == {'a': '1'}, timeout=30
        )

    assert runner.exit_code == 0
    assert plain_sandbox.url in runner.output
    assert plain_sandbox.token not in runner.output


@pytest.mark.slow
@pytest.mark.guarantee('FND-063')
@pytest.mark.parametrize('client', ['kubernetes', 'kr8s', 'pykube'])
def test_clients_of_others_work_without_tls(plain_sandbox, client):
    codes = {
        'kubernetes': 'import kubernetes; kubernetes.config.load_kube_config();'
        'print(kubernetes.client.CoreV1Api().list_namespace())',
        'kr8s': 'import kr8s; print([o.name for o in kr8s.get("namespaces")])',
        'pykube': 'import pykube; api = pykube.HTTPClient(pykube.KubeConfig.from_env());'
        'print([o.name for o in pykube.Namespace.objects(api)])',
    }
    environment = {'KUBECONFIG': str(plain_sandbox.kubeconfig), 'HOME': '/nonexistent'}
    done = subprocess.run(
        [sys.executable, '-c', codes[client]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 'kube-system' in done.stdout, done.stderr
