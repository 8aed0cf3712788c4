"""Credentials become headers and TLS, compare by their values, and show no secrets."""

import base64
import dataclasses
import datetime
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import time

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import serialization

import kopf.testing
from kopf._cogs.structs import credentials
from kopf._sandbox.auth import certificates

NOW = datetime.datetime(2020, 1, 1, 12, 0, 0, tzinfo=datetime.UTC)
SECRETS = {
    'username': 's3cret-user',
    'password': 's3cret-password',
    'scheme': 's3cret-scheme',
    'token': 's3cret-token',
    'private_key_data': 's3cret-key',
}


@pytest.fixture(scope='module')
def ca():
    return certificates.make_ca(datetime.datetime.now(datetime.UTC))


@pytest.fixture(scope='module')
def pair(ca):
    return certificates.issue_client(ca, 'jane', ['devs'], datetime.datetime.now(datetime.UTC))


@pytest.fixture
def certificate_path(tmp_path, pair):
    path = tmp_path / 'client.crt'
    path.write_bytes(pair.certificate)
    return path


@pytest.fixture
def private_key_path(tmp_path, pair):
    path = tmp_path / 'client.key'
    path.write_bytes(pair.key)
    return path


@pytest.mark.guarantee(
    'AUT-009', 'NEW-161', 'NEW-162'
)  # of which the newer one wins: not by positions
def test_only_keywords_are_accepted_and_only_the_server_is_mandatory():
    info = credentials.ConnectionInfo(server='https://localhost')

    fields = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    assert fields.pop('server') == 'https://localhost'
    assert fields.pop('priority') == 0
    assert fields.pop('trust_env') is False
    assert set(fields) == {
        'ca_path',
        'ca_data',
        'insecure',
        'username',
        'password',
        'scheme',
        'token',
        'certificate_path',
        'certificate_data',
        'private_key_path',
        'private_key_data',
        'default_namespace',
        'expiration',
        'proxy_url',
        'tls_server_name',
        'context',
    }
    assert set(fields.values()) == {None}
    with pytest.raises(TypeError):
        credentials.ConnectionInfo('https://localhost')
    with pytest.raises(TypeError):
        credentials.ConnectionInfo()
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.token = '...'


@pytest.mark.guarantee('AUT-010', 'NEW-164')
@pytest.mark.parametrize('kind', ['path', 'data'])
def test_everything_given_is_an_attribute_of_the_same_name(kind):
    given = {
        'server': 'https://localhost',
        'insecure': True,
        'username': 'me',
        'password': 'secret',
        'scheme': 'Bearer',
        'token': 'secret',
        'default_namespace': 'ns',
        'priority': 123,
        'expiration': NOW,
        **{
            f'{name}_{kind}': '/path' if kind == 'path' else b'data'
            for name in ('ca', 'certificate', 'private_key')
        },
    }

    info = kopf.ConnectionInfo(**given)

    assert {name: getattr(info, name) for name in given} == given


@pytest.mark.guarantee('AUT-033')
def test_login_error_is_a_direct_exception():
    assert credentials.LoginError.__bases__ == (Exception,)


@pytest.mark.guarantee('AUT-011', 'NEW-165')  # of which the newer one wins
@pytest.mark.parametrize('name', ['ca', 'certificate', 'private_key'])
def test_path_and_data_of_the_same_thing_are_refused(name):
    with pytest.raises(ValueError, match=f'Both {name}_path and {name}_data are given'):
        credentials.ConnectionInfo(
            server='https://localhost', **{f'{name}_path': '/path', f'{name}_data': 'data'}
        )


@pytest.mark.guarantee('NEW-167', 'AUT-015', 'AUT-016')
@pytest.mark.parametrize(
    'fields, expected',
    [
        pytest.param({}, None, id='nothing'),
        pytest.param({'username': 'user'}, None, id='username-only'),
        pytest.param({'password': 'pass'}, None, id='password-only'),
        pytest.param({'username': 'user', 'password': 'pass'}, 'Basic dXNlcjpwYXNz', id='basic'),
        pytest.param(
            {'username': 'user', 'password': ''}, 'Basic dXNlcjo=', id='basic-with-empty-password'
        ),
        pytest.param(
            {'username': 'u', 'password': 'p', 'scheme': 'S', 'token': 't'},
            'Basic dTpw',
            id='basic-first',
        ),
        pytest.param({'token': 'abc'}, 'Bearer abc', id='token'),
        pytest.param({'scheme': 'Digest', 'token': 'abc'}, 'Digest abc', id='scheme-and-token'),
        pytest.param({'scheme': 'Digest xyz'}, 'Digest xyz', id='scheme-only'),
        pytest.param({'scheme': '', 'token': ''}, None, id='empty'),
    ],
)
def test_authorization_header_is_made_of_what_is_given(fields, expected):
    info = credentials.ConnectionInfo(server='https://localhost', **fields)

    headers = info.as_http_headers()

    assert headers == ({} if expected is None else {'Authorization': expected})
    assert headers is not info.as_http_headers()


@pytest.mark.guarantee('NEW-012')
def test_basic_auth_for_aiohttp_is_deprecated_and_empty():
    info = credentials.ConnectionInfo(server='https://localhost', username='user', password='pass')

    with pytest.deprecated_call(match='as_http_headers'):
        auth = info.as_aiohttp_basic_auth()

    assert auth is None


def test_secrets_are_not_represented():
    info = credentials.ConnectionInfo(
        server='https://s3cret:s3cret@localhost:6443/path',
        ca_data='PEM',
        priority=5,
        proxy_url='http://s3cret@proxy',
        certificate_path='/path',
        **SECRETS,
    )

    text = f'{info} {info!r} {info!s} {[info]}'

    assert 's3cret' not in text
    assert repr(info) == (
        "ConnectionInfo(server='https://***@localhost:6443/path', priority=5, ca_data=<set>, username=<hidden>, "
        "password=<hidden>, scheme=<hidden>, token=<hidden>, certificate_path='/path', private_key_data=<hidden>, "
        "proxy_url='http://***@proxy')"
    )


async def test_custom_sessions_are_represented_with_no_secrets():
    async with aiohttp.ClientSession(headers={'Authorization': 's3cret'}) as session:
        info = credentials.AiohttpSession(
            server='https://s3cret@localhost', aiohttp_session=session
        )

        assert repr(info).startswith(
            "AiohttpSession(server='https://***@localhost', aiohttp_session=<aiohttp.client"
        )
        assert 's3cret' not in repr(info)


@pytest.mark.parametrize(
    'one, two, expected',
    [
        pytest.param({'token': 'a'}, {'token': 'a'}, True, id='equal'),
        pytest.param({'token': 'a', 'expiration': NOW}, {'token': 'a'}, True, id='expiration'),
        pytest.param({'token': 'a'}, {'token': 'b'}, False, id='token'),
        pytest.param({'token': 'a'}, {'token': 'a', 'scheme': 'Digest'}, False, id='scheme'),
        pytest.param({'ca_path': '/a'}, {'ca_path': '/b'}, False, id='ca'),
    ],
)
def test_credentials_are_the_same_by_values_whenever_they_expire(one, two, expected):
    one = credentials.ConnectionInfo(server='https://localhost', **one)
    two = credentials.ConnectionInfo(server='https://localhost', **two)

    assert credentials.are_same(one, two) is expected


@pytest.mark.guarantee('AUT-018')
@pytest.mark.parametrize('timezone', ['UTC', 'Asia/Tokyo', 'America/New_York'])
@pytest.mark.parametrize(
    'expiration, expected',
    [
        pytest.param(None, False, id='never'),
        pytest.param(NOW, True, id='aware-now'),
        pytest.param(NOW + datetime.timedelta(seconds=1), False, id='aware-later'),
        pytest.param(
            NOW.astimezone(datetime.timezone(datetime.timedelta(hours=9))),
            True,
            id='aware-elsewhere',
        ),
        pytest.param(NOW.replace(tzinfo=None), True, id='naive-now'),
        pytest.param(
            NOW.replace(tzinfo=None) + datetime.timedelta(seconds=1), False, id='naive-later'
        ),
    ],
)
def test_naive_expiration_is_in_utc(monkeypatch, timezone, expiration, expected):
    monkeypatch.setenv('TZ', timezone)
    time.tzset()
    try:
        info = credentials.ConnectionInfo(server='https://localhost', expiration=expiration)

        assert credentials.is_expired(info, NOW) is expected
    finally:
        monkeypatch.undo()
        time.tzset()


def test_tls_and_http_are_not_loaded_by_import():
    program = 'import sys, kopf._cogs.structs.credentials; print(*sys.modules)'

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )

    assert not {'aiohttp', 'asyncio', 'ssl'} & set(done.stdout.split())


def as_bytes_path(path: pathlib.Path) -> bytes:
    return os.fsencode(path)


def encode(pem: bytes) -> bytes:
    return base64.b64encode(pem)


@pytest.mark.guarantee('NEW-164', 'NEW-166')
@pytest.mark.parametrize(
    'convert',
    [
        bytes,
        bytes.decode,
        encode,
        base64.encodebytes,
        lambda pem: encode(pem).decode(),
        lambda pem: b'# \xc3\xa9\n' + pem,
    ],
    ids=['pem', 'text', 'base64', 'wrapped', 'base64-text', 'with-comments'],
)
def test_certificates_are_loaded_from_data(ca, pair, convert):
    info = credentials.ConnectionInfo(
        server='https://localhost',
        ca_data=convert(ca.pem),
        certificate_data=convert(pair.certificate),
        private_key_data=convert(pair.key),
    )

    context = info.as_ssl_context()

    assert [cert['subject'] for cert in context.get_ca_certs()] == [
        ((('commonName', 'kopf-sandbox-ca'),),)
    ]


@pytest.mark.guarantee('NEW-164')
@pytest.mark.parametrize(
    'convert', [str, as_bytes_path, pathlib.Path], ids=['str', 'bytes', 'path-like']
)
def test_certificates_are_loaded_from_paths(
    tmp_path, ca, certificate_path, private_key_path, convert
):
    ca_path = tmp_path / 'ca.crt'
    ca_path.write_bytes(ca.pem)
    info = credentials.ConnectionInfo(
        server='https://localhost',
        ca_path=convert(ca_path),
        certificate_path=convert(certificate_path),
        private_key_path=convert(private_key_path),
    )

    context = info.as_ssl_context()

    assert len(context.get_ca_certs()) == 1


def test_home_directory_is_expanded_in_paths(tmp_path, monkeypatch, ca):
    monkeypatch.setenv('HOME', str(tmp_path))
    (tmp_path / 'ca.crt').write_bytes(ca.pem)
    info = credentials.ConnectionInfo(server='https://localhost', ca_path='~/ca.crt')

    context = info.as_ssl_context()

    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    'insecure, has_ca', [(None, True), (None, False), (True, True), (True, False)]
)
def test_verification_is_disabled_only_when_asked_for(ca, insecure, has_ca):
    info = credentials.ConnectionInfo(
        server='https://localhost', insecure=insecure, ca_data=ca.pem if has_ca else None
    )

    context = info.as_ssl_context()

    assert context.check_hostname is not bool(insecure)
    assert context.verify_mode is (ssl.CERT_NONE if insecure else ssl.CERT_REQUIRED)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.guarantee('NEW-169')
def test_temporary_files_are_deleted_at_once(tmp_path, monkeypatch, ca, pair):
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    good = credentials.ConnectionInfo(
        server='https://localhost',
        ca_data=ca.pem,
        certificate_data=pair.certificate,
        private_key_data=pair.key,
    )
    bad = credentials.ConnectionInfo(
        server='https://localhost',
        certificate_data=pair.certificate,
        private_key_data=pair.certificate,
    )

    good.as_ssl_context()
    with pytest.raises(credentials.LoginError):
        bad.as_ssl_context()

    assert os.listdir(tmp_path) == []


def test_certificate_authority_needs_no_files(monkeypatch, ca):
    monkeypatch.setattr(tempfile, 'tempdir', '/nonexistent')

    credentials.ConnectionInfo(server='https://localhost', ca_data=ca.pem).as_ssl_context()


def test_key_can_be_in_the_same_file_as_the_certificate(tmp_path, pair):
    path = tmp_path / 'client.pem'
    path.write_bytes(pair.key + pair.certificate)

    credentials.ConnectionInfo(server='https://localhost', certificate_path=path).as_ssl_context()


@pytest.mark.parametrize(
    'fields, message',
    [
        pytest.param(
            {'ca_path': '/nonexistent'},
            'Cannot load the certificate authority of /nonexistent: No such file',
            id='absent-ca',
        ),
        pytest.param(
            {'ca_path': os.devnull},
            'Cannot load the certificate authority of .*it is not PEM',
            id='wrong-ca',
        ),
        pytest.param(
            {'ca_data': 's3cret'},
            'Cannot load the inline certificate authority: .*neither PEM nor base64',
            id='wrong-ca-data',
        ),
        pytest.param(
            {'ca_data': '-----BEGIN s3cret-----'},
            'Cannot load the inline certificate authority: ',
            id='broken-ca-data',
        ),
        pytest.param(
            {'private_key_data': 's3cret'},
            'the private key: it is given without its client certificate',
            id='lone-key',
        ),
        pytest.param(
            {'certificate_path': '/nonexistent', 'private_key_data': '-----BEGIN s3cret'},
            'Cannot load the client certificate of /nonexistent with the inline private key: No such file',
            id='absent-certificate',
        ),
        pytest.param(
            {'certificate_data': '-----BEGIN x', 'private_key_data': 's3cret'},
            'Cannot load the inline client certificate with the inline private key: .*neither PEM',
            id='wrong-key',
        ),
    ],
)
def test_unusable_certificates_are_explained(fields, message):
    info = credentials.ConnectionInfo(server='https://localhost', **fields)

    with pytest.raises(credentials.LoginError, match=message) as caught:
        info.as_ssl_context()

    assert 's3cret' not in f'{caught.value!r} {caught.value.__cause__!r}'


def test_key_of_another_certificate_is_explained(ca, pair):
    another = certificates.issue_client(ca, 'john', [], datetime.datetime.now(datetime.UTC))
    info = credentials.ConnectionInfo(
        server='https://localhost', certificate_data=pair.certificate, private_key_data=another.key
    )

    with pytest.raises(credentials.LoginError, match='key values mismatch'):
        info.as_ssl_context()


def test_encrypted_keys_are_refused_rather_than_asked_for_in_the_terminal(pair):
    key = serialization.load_pem_private_key(pair.key, password=None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b'password'),
    )
    info = credentials.ConnectionInfo(
        server='https://localhost', certificate_data=pair.certificate, private_key_data=encrypted
    )

    with pytest.raises(credentials.LoginError, match='the private key is encrypted'):
        info.as_ssl_context()


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(rbac=True) as sandbox:
        yield sandbox


async def who_am_i(info: credentials.ConnectionInfo) -> str:
    """Ask the cluster with nothing but what the credentials have made."""
    context = info.as_ssl_context() if info.server.startswith('https://') else True
    review = {'apiVersion': 'authentication.k8s.io/v1', 'kind': 'SelfSubjectReview'}
    async with (
        aiohttp.ClientSession(headers=info.as_http_headers()) as session,
        session.post(
            f'{info.server}/apis/authentication.k8s.io/v1/selfsubjectreviews',
            json=review,
            ssl=context,
            server_hostname=info.tls_server_name,
        ) as response,
    ):
        body = await response.json()
        return (
            body['status']['userInfo']['username']
            if response.status == 201
            else str(response.status)
        )


async def issue_pair(sandbox, user):
    """Make a user with a client certificate; return the certificate and the key."""
    issued = await sandbox.add_user(user, certificate=True)
    entry = yaml.safe_load(issued.kubeconfig.read_text())['users'][0]['user']
    return entry['client-certificate-data'], entry['client-key-data']


@pytest.mark.guarantee('AUT-013', 'AUT-016')
async def test_server_is_verified_and_the_token_is_accepted(sandbox):
    jane = await sandbox.add_user('jane')

    by_path = credentials.ConnectionInfo(
        server=sandbox.url, ca_path=sandbox.ca_path, token=jane.token
    )
    by_data = credentials.ConnectionInfo(
        server=sandbox.url, ca_data=sandbox.ca_data, token=jane.token
    )
    wrong = credentials.ConnectionInfo(server=sandbox.url, ca_data=sandbox.ca_data, token='wrong')

    assert await who_am_i(by_path) == 'jane'
    assert await who_am_i(by_data) == 'jane'
    assert await who_am_i(wrong) == '401'


@pytest.mark.guarantee('AUT-014', 'NEW-168')
async def test_client_is_known_by_its_certificate(sandbox, tmp_path):
    certificate, private_key = await issue_pair(sandbox, 'jane')
    (tmp_path / 'client.crt').write_bytes(base64.b64decode(certificate))
    (tmp_path / 'client.key').write_bytes(base64.b64decode(private_key))
    inline = {'certificate_data': certificate, 'private_key_data': private_key}
    files = {
        'certificate_path': tmp_path / 'client.crt',
        'private_key_path': tmp_path / 'client.key',
    }
    mixed = {'certificate_path': tmp_path / 'client.crt', 'private_key_data': private_key}

    for fields in inline, files, mixed:
        info = credentials.ConnectionInfo(server=sandbox.url, ca_data=sandbox.ca_data, **fields)
        assert await who_am_i(info) == 'jane'


@pytest.mark.guarantee('AUT-012', 'NEW-168')
async def test_unknown_server_is_trusted_only_when_insecure(sandbox):
    insecure = credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token, insecure=True)
    secure = credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)

    assert await who_am_i(insecure) != '401'
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await who_am_i(secure)


async def test_server_is_expected_under_another_name(sandbox):
    expected = credentials.ConnectionInfo(
        server=sandbox.url,
        token=sandbox.token,
        ca_data=sandbox.ca_data,
        tls_server_name='kubernetes.default.svc',
    )
    foreign = dataclasses.replace(expected, tls_server_name='example.com')

    assert await who_am_i(expected) != '401'
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await who_am_i(foreign)


async def test_plain_http_needs_no_tls():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        info = credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)

        assert info.server.startswith('http://')
        assert await who_am_i(info) != '401'
