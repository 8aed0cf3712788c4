"""Logging in by what other Kubernetes libraries know, when they are installed."""

import asyncio
import base64
import inspect
import json
import logging
import os
import ssl
import stat
import sys
import types
import urllib.request

import kubernetes
import kubernetes_asyncio
import pykube
import pytest
import yaml

import kopf.testing
from kopf._cogs.structs import credentials
from kopf._core.intents import piggybacking

logger = logging.getLogger(__name__)

ALL = [
    pytest.param(piggybacking.login_via_client, 10, id='kubernetes'),
    pytest.param(piggybacking.login_via_async_client, 15, id='kubernetes_asyncio'),
    pytest.param(piggybacking.login_via_pykube, 20, id='pykube'),
]


def log_in(login, *, trust_env: bool = False) -> credentials.ConnectionInfo | None:
    settings = types.SimpleNamespace(networking=types.SimpleNamespace(trust_env=trust_env))
    result = login(logger=logger, settings=settings, memo=None, retry=0)
    return asyncio.run(result) if inspect.isawaitable(result) else result


def who_am_i(info: credentials.ConnectionInfo) -> str:
    review = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}
    request = urllib.request.Request(
        f'{info.server}/apis/authentication.k8s.io/v1/selfsubjectreviews',
        data=json.dumps(review).encode(),
        headers={'Content-Type': 'application/json', **info.as_http_headers()},
    )
    with urllib.request.urlopen(request, context=info.as_ssl_context()) as response:
        return json.load(response)['status']['userInfo']['username']


@pytest.fixture(autouse=True)
def clean_world(tmp_path, monkeypatch):
    """
    Neither in a pod, nor with a kubeconfig; the global configurations of the libraries are restored
    afterwards.
    """
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    for name in (
        'KUBECONFIG',
        'KUBERNETES_SERVICE_HOST',
        'KUBERNETES_SERVICE_PORT',
        'HTTP_PROXY',
        'HTTPS_PROXY',
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for library in (kubernetes, kubernetes_asyncio):
        monkeypatch.setattr(library.client.Configuration, '_default', None)


@pytest.fixture(scope='module')
def sandbox():
    with kopf.testing.Sandbox(rbac=True) as sandbox:
        yield sandbox


@pytest.fixture
def service_account(sandbox, tmp_path, monkeypatch):
    """
    Be in a pod of the sandbox, as far as the libraries can see; the token is of the administrator.
    """
    files = {'token': sandbox.token, 'ca.crt': sandbox.ca_data.decode(), 'namespace': 'ns'}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    host, _, port = sandbox.url.removeprefix('https://').rpartition(':')
    monkeypatch.setenv('KUBERNETES_SERVICE_HOST', host)
    monkeypatch.setenv('KUBERNETES_SERVICE_PORT', port)
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


@pytest.mark.guarantee('AUT-019', 'NEW-176')
@pytest.mark.parametrize('certificate', [False, True], ids=['token', 'certificate'])
@pytest.mark.parametrize('login, priority', ALL)
def test_cluster_is_reached_by_the_kubeconfig_of_the_library(
    sandbox, monkeypatch, login, priority, certificate
):
    name = f'jane-{priority}-{certificate}'
    jane = sandbox.add_user(name, certificate=certificate)
    monkeypatch.setenv('KUBECONFIG', str(jane.kubeconfig))

    info = log_in(login)

    assert who_am_i(info) == name
    assert info.default_namespace == 'default'
    assert info.trust_env is False


@pytest.mark.guarantee('AUT-019')
@pytest.mark.parametrize('login, priority', ALL)
def test_cluster_is_reached_by_the_service_account_of_the_library(
    sandbox, service_account, login, priority
):
    info = log_in(login)

    assert who_am_i(info) == who_am_i(
        credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token, ca_data=sandbox.ca_data)
    )
    assert info.default_namespace == 'ns'
    assert info.scheme == 'Bearer'


@pytest.mark.guarantee('NEW-180')
@pytest.mark.parametrize('login, priority', ALL)
def test_libraries_have_priorities(write_kubeconfig, login, priority):
    write_kubeconfig()

    assert log_in(login).priority == priority


@pytest.mark.guarantee('NEW-156')
@pytest.mark.parametrize('trust_env', [True, False])
@pytest.mark.parametrize(
    'login',
    [*[param.values[0] for param in ALL], piggybacking.login_with_kubeconfig],
    ids=['kubernetes', 'kubernetes_asyncio', 'pykube', 'kubeconfig'],
)
def test_environment_is_trusted_by_settings(write_kubeconfig, login, trust_env):
    write_kubeconfig()

    assert log_in(login, trust_env=trust_env).trust_env is trust_env


@pytest.mark.guarantee('AUT-025')
@pytest.mark.parametrize('login, priority', ALL)
def test_library_is_asked_again_on_each_login(write_kubeconfig, login, priority):
    write_kubeconfig(user={'token': 'old'})
    old = log_in(login)

    write_kubeconfig(user={'token': 'new'})
    new = log_in(login)

    assert (old.token, new.token) == ('old', 'new')


@pytest.mark.guarantee('NEW-178')
@pytest.mark.parametrize(
    'login, expected',
    [
        pytest.param(piggybacking.login_with_kubeconfig, 'http://proxy:3128', id='kubeconfig'),
        pytest.param(piggybacking.login_via_pykube, 'http://proxy:3128', id='pykube'),
        pytest.param(
            piggybacking.login_via_async_client, 'http://proxy:3128', id='kubernetes_asyncio'
        ),
        pytest.param(piggybacking.login_via_client, None, id='kubernetes'),
    ],
)
def test_proxy_of_the_kubeconfig_is_respected(write_kubeconfig, login, expected):
    write_kubeconfig(cluster={'proxy-url': 'http://proxy:3128'})

    assert log_in(login).proxy_url == expected


@pytest.mark.parametrize('login, priority', ALL)
def test_fields_of_the_kubeconfig_are_extracted(write_kubeconfig, login, priority):
    write_kubeconfig(
        {'insecure-skip-tls-verify': True, 'tls-server-name': 'name'},
        {'username': 'user', 'password': 'pass'},
        {'namespace': 'ns'},
    )

    info = log_in(login)

    assert (info.server, info.insecure, info.tls_server_name) == (
        'https://localhost:6443',
        True,
        'name',
    )
    assert info.as_http_headers() == {'Authorization': 'Basic dXNlcjpwYXNz'}
    assert (info.default_namespace, info.context) == ('ns', 'x')


@pytest.mark.parametrize('login, priority', ALL)
def test_anonymous_kubeconfig_has_no_headers(write_kubeconfig, login, priority):
    write_kubeconfig()

    assert log_in(login).as_http_headers() == {}


@pytest.mark.guarantee('AUT-025')
@pytest.mark.parametrize('certificate', [False, True], ids=['token', 'certificate'])
@pytest.mark.parametrize('login, priority', ALL)
def test_plugins_are_run_by_the_library(
    sandbox, tmp_path, write_kubeconfig, login, priority, certificate
):
    name = f'john-{priority}-{certificate}'
    issued = sandbox.add_user(name, certificate=certificate)
    user = yaml.safe_load(issued.kubeconfig.read_text())['users'][0]['user']
    status = (
        {
            'clientCertificateData': base64.b64decode(user['client-certificate-data']).decode(),
            'clientKeyData': base64.b64decode(user['client-key-data']).decode(),
        }
        if certificate
        else {'token': issued.token}
    )
    version = 'client.authentication.k8s.io/v1beta1'
    response = {'apiVersion': version, 'kind': 'ExecCredential', 'status': status}
    plugin = tmp_path / 'plugin'
    plugin.write_text(f'#!{sys.executable}\nprint({json.dumps(response)!r})\n')
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    write_kubeconfig(
        {'server': sandbox.url, 'certificate-authority': str(sandbox.ca_path)},
        {'exec': {'apiVersion': version, 'command': str(plugin)}},
    )

    info = log_in(login)

    assert who_am_i(info) == name


@pytest.mark.guarantee('WLD-001')
def test_official_client_can_be_used_after_the_login(sandbox, monkeypatch):
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))

    log_in(piggybacking.login_via_client)

    with kubernetes.client.ApiClient() as client:
        namespaces = kubernetes.client.CoreV1Api(client).list_namespace()
    assert 'default' in [namespace.metadata.name for namespace in namespaces.items]


@pytest.mark.guarantee('WLD-001')
async def test_async_client_can_be_used_after_the_login(sandbox, monkeypatch):
    monkeypatch.setenv('KUBECONFIG', str(sandbox.kubeconfig))

    await piggybacking.login_via_async_client(logger=logger)

    async with kubernetes_asyncio.client.ApiClient() as client:
        namespaces = await kubernetes_asyncio.client.CoreV1Api(client).list_namespace()
    assert 'default' in [namespace.metadata.name for namespace in namespaces.items]


@pytest.mark.guarantee('NEW-174')
def test_async_login_is_a_coroutine_function():
    assert inspect.iscoroutinefunction(piggybacking.login_via_async_client)


@pytest.mark.guarantee('NEW-177')
@pytest.mark.parametrize(
    'login, library',
    [
        (piggybacking.login_via_client, 'kubernetes'),
        (piggybacking.login_via_async_client, 'kubernetes_asyncio'),
        (piggybacking.login_via_pykube, 'pykube'),
    ],
)
def test_nothing_is_returned_when_the_library_is_not_installed(
    monkeypatch, write_kubeconfig, login, library
):
    write_kubeconfig()
    monkeypatch.setitem(sys.modules, library, None)

    assert log_in(login) is None


@pytest.mark.guarantee('NEW-177')
@pytest.mark.parametrize(
    'login, library',
    [
        (piggybacking.login_via_client, 'kubernetes'),
        (piggybacking.login_via_async_client, 'kubernetes_asyncio'),
        (piggybacking.login_via_pykube, 'pykube'),
    ],
)
def test_login_fails_when_the_library_finds_nothing(login, library):
    with pytest.raises(
        credentials.LoginError, match=f"The library '{library}' finds neither a service account"
    ):
        log_in(login)


LIBRARIES = [
    pytest.param(piggybacking.login_via_client, 'kubernetes', id='kubernetes'),
    pytest.param(
        piggybacking.login_via_async_client, 'kubernetes_asyncio', id='kubernetes_asyncio'
    ),
    pytest.param(piggybacking.login_via_pykube, 'pykube', id='pykube'),
]


@pytest.fixture
def replace_library(tmp_path, monkeypatch):
    """
    Replace an installed library by a package with these files; remember nothing of it afterwards.
    """

    def replace_library(library, **files):
        for name in [name for name in sys.modules if name.partition('.')[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        directory = tmp_path / 'packages' / library
        directory.mkdir(parents=True)
        for name, source in files.items():
            (directory / f'{name}.py').write_text(source)
        monkeypatch.syspath_prepend(directory.parent)

    yield replace_library
    replaced = [path.name for path in tmp_path.glob('packages/*')]
    for name in [name for name in sys.modules if name.partition('.')[0] in replaced]:
        del sys.modules[name]


@pytest.mark.guarantee('FND-017', 'NEW-177')
@pytest.mark.parametrize(
    'files, error',
    [
        pytest.param({'__init__': 'raise ImportError("boo!")'}, 'ImportError: boo!', id='import'),
        pytest.param(
            {'__init__': 'import no_such_library'},
            "ModuleNotFoundError: No module named 'no_such_library'",
            id='dependency',
        ),
        pytest.param(
            {'__init__': 'import sys; sys.no_such_thing'}, 'AttributeError: module', id='attribute'
        ),
        pytest.param({'__init__': 'def broken('}, 'SyntaxError: ', id='syntax'),
        pytest.param({'__init__': 'raise RuntimeError'}, 'RuntimeError.', id='runtime'),
        pytest.param(
            {'__init__': '', 'config': '1 / 0', 'http': '1 / 0'},
            'ZeroDivisionError: division',
            id='submodule',
        ),
        pytest.param({'__init__': ''}, 'ModuleNotFoundError: No module named', id='incomplete'),
    ],
)
@pytest.mark.parametrize('login, library', LIBRARIES)
def test_installed_library_that_cannot_be_imported_is_an_error(
    replace_library, write_kubeconfig, login, library, files, error
):
    write_kubeconfig()
    replace_library(library, **files)

    for _ in range(2):
        with pytest.raises(credentials.LoginError) as caught:
            log_in(login)

        assert f'The library {library!r} is installed, but cannot be imported: {error}' in str(
            caught.value
        )


@pytest.mark.guarantee('NEW-177')
@pytest.mark.parametrize('login, library', LIBRARIES)
def test_directory_with_the_name_of_the_library_is_as_no_library(
    monkeypatch, replace_library, write_kubeconfig, login, library
):
    write_kubeconfig()
    replace_library(library)
    monkeypatch.setattr(sys, 'path', [path for path in sys.path if '-packages' not in path])

    infos = [log_in(login) for _ in range(2)]

    assert infos == [None, None]


CONFIGURING = [
    pytest.param(
        piggybacking.login_via_client, kubernetes.config, 'load_kube_config', id='kubernetes'
    ),
    pytest.param(
        piggybacking.login_via_client, kubernetes.config, 'list_kube_config_contexts', id='contexts'
    ),
    pytest.param(
        piggybacking.login_via_client,
        kubernetes.client.Configuration,
        'get_default_copy',
        id='copying',
    ),
    pytest.param(
        piggybacking.login_via_async_client,
        kubernetes_asyncio.config,
        'load_kube_config',
        id='asyncio',
    ),
    pytest.param(
        piggybacking.login_via_async_client,
        kubernetes_asyncio.config,
        'list_kube_config_contexts',
        id='asyncio-contexts',
    ),
    pytest.param(
        piggybacking.login_via_async_client,
        kubernetes_asyncio.client.Configuration,
        'get_default_copy',
        id='asyncio-copying',
    ),
    pytest.param(piggybacking.login_via_pykube, pykube.KubeConfig, 'from_file', id='pykube'),
    pytest.param(
        piggybacking.login_via_pykube, pykube.http, 'KubernetesHTTPAdapter', id='pykube-adapting'
    ),
]


@pytest.mark.guarantee('FND-017', 'NEW-177')
@pytest.mark.parametrize(
    'error',
    [
        kubernetes.config.ConfigException('boo!'),
        KeyError('boo!'),
        TypeError('boo!'),
        AttributeError('boo!'),
        yaml.YAMLError('boo!'),
        StopIteration('boo!'),
        OSError('boo!'),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize('login, owner, name', CONFIGURING)
def test_library_that_cannot_be_configured_is_an_error(
    monkeypatch, write_kubeconfig, login, owner, name, error
):
    def fail(*_, **__):
        raise error

    write_kubeconfig()
    monkeypatch.setattr(owner, name, fail)

    with pytest.raises(
        credentials.LoginError, match=rf"The library '\w+' .*{type(error).__name__}: '?boo!"
    ):
        log_in(login)


@pytest.mark.parametrize('login, priority', ALL)
def test_errors_of_libraries_do_not_quote_secrets(write_kubeconfig, login, priority):
    path = write_kubeconfig()
    path.write_text(
        yaml.safe_dump(
            {
                'clusters': [{'name': 'c', 'cluster': {'server': 'https://localhost:6443'}}],
                'users': [{'name': 'u', 'token': 's3cret'}],
                'contexts': [{'name': 'x', 'context': {'cluster': 'c', 'user': 'u'}}],
                'current-context': 'x',
            }
        )
    )

    with pytest.raises(credentials.LoginError) as caught:
        log_in(login)

    assert 's3cret' not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.guarantee('NEW-179')
@pytest.mark.parametrize(
    'keys, expected',
    [
        pytest.param({'authorization': 'Bearer old'}, 'old', id='older'),
        pytest.param({'BearerToken': 'Bearer new'}, 'new', id='newer'),
        pytest.param(
            {'BearerToken': 'Bearer new', 'authorization': 'Bearer old'}, 'new', id='both'
        ),
    ],
)
def test_tokens_of_all_versions_of_the_client_are_found(
    monkeypatch, write_kubeconfig, keys, expected
):
    write_kubeconfig()

    def load_kube_config(config_file):
        loaded = kubernetes.client.Configuration()
        loaded.api_key = keys
        kubernetes.client.Configuration.set_default(loaded)

    monkeypatch.setattr(kubernetes.config, 'load_kube_config', load_kube_config)

    info = log_in(piggybacking.login_via_client)

    assert (info.scheme, info.token) == ('Bearer', expected)


def test_kubeconfig_set_after_the_import_of_libraries_is_found(write_kubeconfig):
    write_kubeconfig(user={'token': 'abc'})
    assert os.environ['KUBECONFIG'] != kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION

    assert log_in(piggybacking.login_via_client).token == 'abc'


def test_authority_of_the_environment_is_preferred_by_pykube(
    monkeypatch, write_kubeconfig, sandbox
):
    monkeypatch.setenv('PYKUBE_SSL_CERTIFICATE_AUTHORITY', str(sandbox.ca_path))
    write_kubeconfig(cluster={'certificate-authority-data': base64.b64encode(b'other').decode()})

    info = log_in(piggybacking.login_via_pykube)

    assert info.ca_path == str(sandbox.ca_path)
    assert isinstance(info.as_ssl_context(), ssl.SSLContext)
