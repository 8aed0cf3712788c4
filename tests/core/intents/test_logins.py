"""Logging in by kubeconfigs and service accounts, with no other libraries."""

import base64
import dataclasses
import datetime
import json
import os
import pathlib
import stat
import subprocess
import sys

import aiohttp
import pytest
import yaml

import kopf.testing
from kopf._cogs.structs import credentials
from kopf._core.intents import piggybacking


@dataclasses.dataclass
class Networking:
    trust_env: bool = False


@dataclasses.dataclass
class Settings:
    networking: Networking = dataclasses.field(default_factory=Networking)


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """Neither in a pod, nor with a kubeconfig."""
    monkeypatch.setattr(piggybacking, 'SERVICE_ACCOUNT', str(tmp_path / 'serviceaccount'))
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    for name in ('KUBECONFIG', 'KUBERNETES_SERVICE_HOST', 'KUBERNETES_SERVICE_PORT'):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def write_account(tmp_path):
    """Put files to where pods have those of their service account."""

    def write_account(**files):
        directory = tmp_path / 'serviceaccount'
        directory.mkdir(exist_ok=True)
        for name, content in files.items():
            (directory / name.replace('_', '.')).write_text(content)
        return directory

    return write_account


@pytest.fixture
def make_plugin(tmp_path):
    """Make an exec plugin that issues the given status; return its entry of a kubeconfig."""

    def make_plugin(version='client.authentication.k8s.io/v1', **status):
        path = tmp_path / 'plugin'
        response = {'apiVersion': version, 'kind': 'ExecCredential', 'status': status}
        path.write_text(f'#!{sys.executable}\nprint({json.dumps(response)!r})\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return {'apiVersion': version, 'command': './plugin', 'interactiveMode': 'Never'}

    return make_plugin


def build_expected(**fields):
    return credentials.ConnectionInfo(
        **{'server': 'https://localhost:6443', 'priority': 10, **fields}
    )


@pytest.mark.guarantee('AUT-008')
def test_nothing_is_returned_where_it_is_not_applicable():
    kwargs = {'settings': Settings(), 'logger': None, 'memo': None, 'retry': 0}

    assert piggybacking.login_with_service_account(**kwargs) is None
    assert piggybacking.login_with_kubeconfig(**kwargs) is None


@pytest.mark.guarantee('AUT-008')
def test_fallback_chain_takes_the_first_applicable(write_account, write_kubeconfig):
    def log_in(**kwargs):
        return piggybacking.login_with_service_account(
            **kwargs
        ) or piggybacking.login_with_kubeconfig(**kwargs)

    write_kubeconfig(user={'token': 'of-kubeconfig'})
    assert log_in(settings=Settings()).token == 'of-kubeconfig'

    write_account(token='of-account')
    assert log_in(settings=Settings()).token == 'of-account'


def test_settings_may_be_absent(write_kubeconfig):
    write_kubeconfig()

    assert piggybacking.login_with_kubeconfig().trust_env is False


@pytest.mark.parametrize('trust_env', [True, False])
def test_proxies_of_the_environment_are_trusted_by_settings(
    write_kubeconfig, write_account, trust_env
):
    write_kubeconfig()
    write_account(token='abc')
    settings = Settings(Networking(trust_env=trust_env))

    assert piggybacking.login_with_kubeconfig(settings=settings).trust_env is trust_env
    assert piggybacking.login_with_service_account(settings=settings).trust_env is trust_env


@pytest.mark.guarantee('NEW-182')
def test_files_of_the_environment_are_merged(tmp_path, monkeypatch, write_kubeconfig):
    second = write_kubeconfig(user={'token': 'second'})
    first = tmp_path / 'first'
    first.write_text(yaml.safe_dump({'users': [{'name': 'u', 'user': {'token': 'first'}}]}))
    monkeypatch.setenv(
        'KUBECONFIG', os.pathsep.join([str(first), str(tmp_path / 'absent'), str(second)])
    )

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    assert info == build_expected(token='first')


@pytest.mark.guarantee('NEW-182')
def test_file_at_home_is_read_when_no_other_is_named(tmp_path, monkeypatch, write_kubeconfig):
    path = write_kubeconfig(user={'token': 'abc'})
    (tmp_path / 'home/.kube').mkdir(parents=True)
    path.rename(tmp_path / 'home/.kube/config')
    monkeypatch.delenv('KUBECONFIG')

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    assert info == build_expected(token='abc')


@pytest.mark.guarantee('NEW-182')
@pytest.mark.parametrize(
    'content, message',
    [
        pytest.param('{}', 'There is no current-context', id='no-context'),
        pytest.param('current-context: x', "There is no context 'x'", id='unknown-context'),
        pytest.param('a: b: s3cret', 'is not valid YAML at the line 1', id='malformed'),
    ],
)
def test_wrong_kubeconfigs_are_explained(write_kubeconfig, content, message):
    path = write_kubeconfig()
    path.write_text(content)

    with pytest.raises(credentials.LoginError, match=message) as caught:
        piggybacking.login_with_kubeconfig(settings=Settings())

    assert str(path) in str(caught.value)
    assert 's3cret' not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    'cluster, user, context, expected',
    [
        pytest.param({}, {}, {}, {}, id='nothing'),
        pytest.param({}, {'token': 'abc'}, {}, {'token': 'abc'}, id='token'),
        pytest.param(
            {},
            {'username': 'u', 'password': 'p'},
            {},
            {'username': 'u', 'password': 'p'},
            id='basic',
        ),
        pytest.param({}, {}, {'namespace': 'ns'}, {'default_namespace': 'ns'}, id='namespace'),
        pytest.param({'insecure-skip-tls-verify': True}, {}, {}, {'insecure': True}, id='insecure'),
        pytest.param(
            {'proxy-url': 'http://proxy'}, {}, {}, {'proxy_url': 'http://proxy'}, id='proxy'
        ),
        pytest.param(
            {'tls-server-name': 'name'}, {}, {}, {'tls_server_name': 'name'}, id='tls-server-name'
        ),
        pytest.param({'certificate-authority': '/ca'}, {}, {}, {'ca_path': '/ca'}, id='ca-path'),
        pytest.param(
            {'certificate-authority-data': 'CA', 'certificate-authority': '/ca'},
            {},
            {},
            {'ca_data': 'CA'},
            id='ca-data',
        ),
        pytest.param(
            {},
            {'client-certificate': '/crt', 'client-key': '/key'},
            {},
            {'certificate_path': '/crt', 'private_key_path': '/key'},
            id='certificate-path',
        ),
        pytest.param(
            {},
            {'client-certificate-data': 'CRT', 'client-key-data': 'KEY', 'client-key': '/key'},
            {},
            {'certificate_data': 'CRT', 'private_key_data': 'KEY'},
            id='certificate-data',
        ),
        pytest.param(
            {},
            {'auth-provider': {'name': 'oidc', 'config': {'id-token': 'abc', 'access-token': 'x'}}},
            {},
            {'token': 'abc'},
            id='oidc',
        ),
        pytest.param(
            {},
            {'auth-provider': {'name': 'gcp', 'config': {'access-token': 'abc'}}},
            {},
            {'token': 'abc'},
            id='gcp',
        ),
        pytest.param(
            {},
            {'token': 'abc', 'exec': {'command': 'absent'}},
            {},
            {'token': 'abc'},
            id='token-before-exec',
        ),
    ],
)
def test_fields_of_the_kubeconfig_become_credentials(
    write_kubeconfig, cluster, user, context, expected
):
    write_kubeconfig(cluster, user, context)

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    assert info == build_expected(**expected)
    assert info.context  # which is only for the log, and so is not compared


def test_paths_are_relative_to_the_kubeconfig(tmp_path, write_kubeconfig):
    write_kubeconfig(
        {'certificate-authority': 'ca'}, {'client-certificate': 'crt', 'client-key': 'key'}
    )

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    assert info == build_expected(
        ca_path=str(tmp_path / 'ca'),
        certificate_path=str(tmp_path / 'crt'),
        private_key_path=str(tmp_path / 'key'),
    )


@pytest.mark.parametrize(
    'user, expected',
    [
        pytest.param({'tokenFile': 'token'}, 'of-file', id='file'),
        pytest.param({'tokenFile': 'token', 'token': 'inline'}, 'of-file', id='both'),
        pytest.param({'tokenFile': 'absent', 'token': 'inline'}, 'inline', id='absent-file'),
    ],
)
def test_token_files_are_read_and_soon_read_again(tmp_path, write_kubeconfig, user, expected):
    (tmp_path / 'token').write_text('of-file\n')
    write_kubeconfig(user=user)

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    assert info.token == expected
    assert (info.expiration is None) is (expected == 'inline')
    assert info.expiration is None or is_in_a_minute(info.expiration)


def is_in_a_minute(moment: datetime.datetime) -> bool:
    return 30 < (moment - datetime.datetime.now(datetime.UTC)).total_seconds() <= 60


@pytest.mark.parametrize(
    'user, message',
    [
        pytest.param(
            {'tokenFile': 'absent'},
            "Cannot read .*/absent for the field 'tokenFile' .*: No such",
            id='token',
        ),
        pytest.param(
            {'auth-provider': {'name': 'oidc'}},
            'The auth-provider in the user .* has no token',
            id='provider',
        ),
        pytest.param(
            {'as': 'someone'}, 'asks for impersonation .* not supported', id='impersonation'
        ),
        pytest.param(
            {
                'exec': {
                    'apiVersion': 'client.authentication.k8s.io/v1',
                    'command': 'absent-plugin',
                    'installHint': 'Get it.',
                }
            },
            "'absent-plugin' is not found.*\nGet it",
            id='plugin',
        ),
        pytest.param(
            {'exec': {'apiVersion': 'client.authentication.k8s.io/v1alpha1', 'command': 'x'}},
            'v1alpha1.*; supported are',
            id='plugin-version',
        ),
    ],
)
def test_unusable_users_are_explained(write_kubeconfig, user, message):
    write_kubeconfig(user=user)

    with pytest.raises(credentials.LoginError, match=message) as caught:
        piggybacking.login_with_kubeconfig(settings=Settings())

    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    'version', ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1']
)
def test_exec_plugins_issue_tokens_with_expiration(write_kubeconfig, make_plugin, version):
    write_kubeconfig(
        user={'exec': make_plugin(version, token='abc', expirationTimestamp='2030-01-01T00:00:00Z')}
    )

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    expiration = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    assert info == build_expected(token='abc', expiration=expiration)


def test_exec_plugins_issue_certificates(write_kubeconfig, make_plugin):
    write_kubeconfig(user={'exec': make_plugin(clientCertificateData='CRT', clientKeyData='KEY')})

    info = piggybacking.login_with_kubeconfig(settings=Settings())

    assert info == build_expected(certificate_data='CRT', private_key_data='KEY')


@pytest.mark.guarantee('NEW-181')
def test_service_account_is_read_from_its_files(write_account):
    directory = write_account(token='abc\n', ca_crt='PEM', namespace='ns')

    info = piggybacking.login_with_service_account(settings=Settings())

    assert pathlib.Path(info.ca_path) == directory / 'ca.crt'
    assert (info.server, info.token, info.default_namespace, info.priority) == (
        'https://kubernetes.default.svc',
        'abc',
        'ns',
        20,
    )
    assert is_in_a_minute(info.expiration)


def test_service_account_may_have_only_a_token(write_account):
    write_account(token='abc')

    info = piggybacking.login_with_service_account(settings=Settings())

    assert (info.token, info.ca_path, info.default_namespace) == ('abc', None, None)


def test_rotated_token_of_the_service_account_is_read_again(write_account):
    write_account(token='old')
    old = piggybacking.login_with_service_account(settings=Settings())

    write_account(token='new')
    new = piggybacking.login_with_service_account(settings=Settings())

    assert (old.token, new.token) == ('old', 'new')


def test_empty_token_of_the_service_account_is_explained(write_account):
    write_account(token='\n')

    with pytest.raises(
        credentials.LoginError, match=r'The token of the service account is empty: see .*/token'
    ):
        piggybacking.login_with_service_account(settings=Settings())


@pytest.mark.parametrize(
    'host, port, expected',
    [
        pytest.param('10.0.0.1', '443', 'https://10.0.0.1:443', id='ipv4'),
        pytest.param('fd00::1', '443', 'https://[fd00::1]:443', id='ipv6'),
        pytest.param('10.0.0.1', '', 'https://kubernetes.default.svc', id='no-port'),
        pytest.param('', '443', 'https://kubernetes.default.svc', id='no-host'),
    ],
)
def test_server_of_the_service_account_is_known_from_the_environment(
    monkeypatch, write_account, host, port, expected
):
    monkeypatch.setenv('KUBERNETES_SERVICE_HOST', host)
    monkeypatch.setenv('KUBERNETES_SERVICE_PORT', port)
    write_account(token='abc')

    info = piggybacking.login_with_service_account(settings=Settings())

    assert info.server == expected


@pytest.mark.guarantee('NEW-175')
@pytest.mark.parametrize(
    'installed, expected',
    [
        pytest.param(
            {'pykube', 'kubernetes', 'kubernetes_asyncio'},
            ['login_via_pykube', 'login_via_client'],
            id='all',
        ),
        pytest.param({'pykube'}, ['login_via_pykube'], id='pykube'),
        pytest.param({'kubernetes'}, ['login_via_client'], id='client'),
        pytest.param({'kubernetes_asyncio'}, ['login_via_async_client'], id='async-client'),
        pytest.param(
            {'pykube', 'kubernetes_asyncio'},
            ['login_via_pykube', 'login_via_async_client'],
            id='mixed',
        ),
        pytest.param(set(), ['login_with_service_account', 'login_with_kubeconfig'], id='none'),
    ],
)
def test_installed_libraries_are_used_by_default(monkeypatch, installed, expected):
    for library in {'pykube', 'kubernetes', 'kubernetes_asyncio'} - installed:
        monkeypatch.setitem(sys.modules, library, None)

    logins = piggybacking.list_default_logins()

    assert [login.__name__ for login in logins] == expected


USUAL_PLACES = ['login_with_service_account', 'login_with_kubeconfig']


@pytest.mark.guarantee('FND-017')
@pytest.mark.parametrize(
    'installed, expected',
    [
        pytest.param(
            {'pykube', 'kubernetes', 'kubernetes_asyncio'},
            [['login_via_async_client'], USUAL_PLACES],
            id='all',
        ),
        pytest.param(
            {'kubernetes', 'kubernetes_asyncio'},
            [['login_via_async_client'], USUAL_PLACES],
            id='twins',
        ),
        pytest.param({'pykube'}, [USUAL_PLACES], id='pykube'),
        pytest.param({'kubernetes'}, [USUAL_PLACES], id='client'),
        pytest.param({'kubernetes_asyncio'}, [USUAL_PLACES], id='async-client'),
        pytest.param({'pykube', 'kubernetes_asyncio'}, [USUAL_PLACES], id='mixed'),
        pytest.param(set(), [], id='none'),
    ],
)
def test_all_ways_that_are_not_used_by_default_are_left_for_later(monkeypatch, installed, expected):
    for library in {'pykube', 'kubernetes', 'kubernetes_asyncio'} - installed:
        monkeypatch.setitem(sys.modules, library, None)

    groups = piggybacking.list_fallback_logins()

    assert [[login.__name__ for login in group] for group in groups] == expected


def test_directories_with_the_names_of_libraries_are_not_libraries(tmp_path):
    for library in ('pykube', 'kubernetes', 'kubernetes_asyncio'):
        (tmp_path / library).mkdir()
    program = (
        f'import sys; sys.path[:] = [{str(tmp_path)!r}, *(p for p in sys.path if "-packages" not in p)]\n'
        f'from kopf._core.intents import piggybacking\n'
        f'print(*(login.__name__ for login in piggybacking.list_default_logins()))'
    )
    root = pathlib.Path(piggybacking.__file__).parents[3]

    done = subprocess.run(
        [sys.executable, '-c', program], cwd=root, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ['login_with_service_account', 'login_with_kubeconfig']


def test_failure_of_all_logins_tells_what_was_tried(monkeypatch):
    monkeypatch.delenv('KUBECONFIG', raising=False)
    attempts = {
        'login_with_service_account': None,
        'login_fn': credentials.LoginError('Too bad.'),
        'other': KeyError(),
    }

    error = piggybacking.build_login_error(attempts)

    assert str(error).splitlines() == [
        'Cannot log in to the cluster. Tried:',
        '  login_with_service_account: not applicable here',
        '  login_fn: Too bad.',
        '  other: KeyError',
        'Set KUBECONFIG to a kubeconfig, or put it in ~/.kube/config, or run in a pod with a service account, '
        'or declare a handler with @kopf.on.login(). To try it with no cluster: kopf run --sandbox.',
    ]


def test_failure_of_all_logins_tells_which_kubeconfig_was_asked_for(monkeypatch):
    monkeypatch.setenv('KUBECONFIG', '/misspelt')

    error = piggybacking.build_login_error({'login_with_kubeconfig': None})

    assert 'Set KUBECONFIG (now: /misspelt) to a kubeconfig, or ' in str(error)


async def who_am_i(info: credentials.ConnectionInfo) -> str:
    review = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}
    async with (
        aiohttp.ClientSession(headers=info.as_http_headers()) as session,
        session.post(
            f'{info.server}/apis/authentication.k8s.io/v1/selfsubjectreviews',
            json=review,
            ssl=info.as_ssl_context(),
            server_hostname=info.tls_server_name,
        ) as response,
    ):
        body = await response.json()
        return (
            body['status']['userInfo']['username']
            if response.status == 201
            else str(response.status)
        )


@pytest.mark.guarantee('AUT-020')
@pytest.mark.parametrize('certificate', [False, True], ids=['token', 'certificate'])
async def test_cluster_is_reached_by_a_kubeconfig(monkeypatch, certificate):
    async with kopf.testing.Sandbox(rbac=True) as sandbox:
        jane = await sandbox.add_user('jane', certificate=certificate)
        monkeypatch.setenv('KUBECONFIG', str(jane.kubeconfig))

        info = piggybacking.login_with_kubeconfig(settings=Settings())

        assert await who_am_i(info) == 'jane'


@pytest.mark.parametrize('certificate', [False, True], ids=['token', 'certificate'])
async def test_cluster_is_reached_by_an_exec_plugin(write_kubeconfig, make_plugin, certificate):
    async with kopf.testing.Sandbox(rbac=True) as sandbox:
        jane = await sandbox.add_user('jane', certificate=certificate)
        user = yaml.safe_load(jane.kubeconfig.read_text())['users'][0]['user']
        issued = (
            {
                key: base64.b64decode(user[field]).decode()
                for key, field in [
                    ('clientCertificateData', 'client-certificate-data'),
                    ('clientKeyData', 'client-key-data'),
                ]
            }
            if certificate
            else {'token': jane.token}
        )
        cluster = {
            'server': sandbox.url,
            'certificate-authority': str(sandbox.ca_path),
            'tls-server-name': 'kubernetes',
        }
        write_kubeconfig(cluster, {'exec': make_plugin(**issued)})

        info = piggybacking.login_with_kubeconfig(settings=Settings())

        assert await who_am_i(info) == 'jane'


@pytest.mark.guarantee('AUT-020')
async def test_cluster_is_reached_by_a_service_account(monkeypatch, write_account):
    async with kopf.testing.Sandbox(rbac=True) as sandbox:
        host, _, port = sandbox.url.removeprefix('https://').rpartition(':')
        monkeypatch.setenv('KUBERNETES_SERVICE_HOST', host)
        monkeypatch.setenv('KUBERNETES_SERVICE_PORT', port)
        jane = await sandbox.add_user('jane')
        write_account(token=jane.token, ca_crt=sandbox.ca_data.decode(), namespace='default')

        info = piggybacking.login_with_service_account(settings=Settings())

        assert await who_am_i(info) == 'jane'
