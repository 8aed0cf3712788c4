"""
What is wrong with the options of servers is told when they start, all at once, with what to do.
"""

import inspect
import math
import pathlib
import ssl

import pytest

from kopf._kits.webhooks import server_options, servers, tunnels

ALL = (
    'addr',
    'port',
    'path',
    'host',
    'cadata',
    'cafile',
    'cadump',
    'context',
    'insecure',
    'certfile',
    'pkeyfile',
    'password',
    'extra_sans',
    'verify_mode',
    'verify_cafile',
    'verify_capath',
    'verify_cadata',
    'file_check_interval',
    'inflight_bytes',
)


@pytest.mark.guarantee('ADM-062', 'NEW-227', 'ADM-082', 'ADM-086')
@pytest.mark.parametrize(
    'cls',
    [
        servers.WebhookServer,
        servers.WebhookK3dServer,
        servers.WebhookMinikubeServer,
        servers.WebhookDockerDesktopServer,
        servers.WebhookAutoServer,
    ],
)
def test_servers_have_the_same_keyword_options_with_the_same_defaults(cls):
    parameters = inspect.signature(cls).parameters

    assert tuple(parameters) == ALL
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert {
        name: parameter.default
        for name, parameter in parameters.items()
        if parameter.default is not None
    } == {
        'insecure': False,
        'extra_sans': (),
        'file_check_interval': 60.0,
        'inflight_bytes': 64 * 1024 * 1024,
    }


@pytest.mark.guarantee('ADM-083', 'ADM-087')
@pytest.mark.parametrize(
    'cls, names',
    [
        (tunnels.WebhookNgrokTunnel, ('addr', 'port', 'path', 'token', 'region', 'binary')),
        (tunnels.WebhookAutoTunnel, ('addr', 'port', 'path')),
    ],
)
def test_tunnels_have_their_keyword_options(cls, names):
    parameters = inspect.signature(cls).parameters
    tunnel = cls(**{name: object() for name in names})

    assert tuple(parameters) == names
    assert {(parameter.kind, parameter.default) for parameter in parameters.values()} == {
        (inspect.Parameter.KEYWORD_ONLY, None)
    }
    assert vars(tunnel).keys() >= set(names)


@pytest.mark.guarantee('ADM-062')
def test_options_are_attributes_as_they_are_given():
    values = {name: object() for name in ALL}

    server = servers.WebhookServer(**values)

    assert {name: getattr(server, name) for name in ALL} == values


@pytest.mark.guarantee('ADM-067', 'NEW-225')
@pytest.mark.parametrize(
    'cls, expected',
    [
        (servers.WebhookServer, None),
        (servers.WebhookK3dServer, 'host.k3d.internal'),
        (servers.WebhookMinikubeServer, 'host.minikube.internal'),
        (servers.WebhookDockerDesktopServer, 'host.docker.internal'),
        (servers.WebhookAutoServer, None),
    ],
)
def test_servers_have_default_hosts(cls, expected):
    assert expected == cls.DEFAULT_HOST
    assert issubclass(cls, servers.WebhookServer)


@pytest.mark.guarantee('ADM-063')
@pytest.mark.parametrize(
    'given',
    [
        pytest.param({}, id='nothing'),
        pytest.param({'addr': '0.0.0.0', 'port': 9443, 'path': '/a', 'host': 'x.y'}, id='place'),
        pytest.param({'addr': '[::1]', 'port': 0, 'host': '::1'}, id='v6'),
        pytest.param(
            {'certfile': 'a', 'pkeyfile': pathlib.Path('b'), 'password': 'x', 'cafile': 'c'},
            id='files',
        ),
        pytest.param({'certfile': 'both.pem'}, id='file-of-both'),
        pytest.param(
            {'cadata': b'pem', 'cadump': pathlib.Path('d'), 'insecure': True},
            id='insecure-with-authority',
        ),
        pytest.param(
            {'verify_mode': ssl.CERT_REQUIRED, 'verify_cadata': b'x', 'verify_capath': 'p'},
            id='verification',
        ),
        pytest.param({'verify_mode': 1, 'verify_cadata': 'x'}, id='mode-as-number'),
        pytest.param(
            {'context': ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), 'extra_sans': ['a', 'b']},
            id='context',
        ),
        pytest.param({'file_check_interval': math.inf}, id='never'),
        pytest.param({'file_check_interval': 1}, id='every-second'),
        pytest.param({'inflight_bytes': 7 * 1024 * 1024}, id='one-request-at-a-time'),
    ],
)
def test_good_options_are_accepted(given):
    server_options.check_options(server_options.ServerOptions(**given))


@pytest.mark.guarantee('ADM-063')
@pytest.mark.parametrize(
    'given, complaints',
    [
        pytest.param({'addr': 1}, ['addr= must be a string, not int'], id='addr-type'),
        pytest.param({'port': '9443'}, ['port= must be an integer, not str'], id='port-type'),
        pytest.param({'port': True}, ['port= must be an integer, not bool'], id='port-bool'),
        pytest.param({'port': 65536}, ['port= must be of 1 to 65535'], id='port'),
        pytest.param(
            {'host': 'https://x.y'}, ['host= must be only a name', 'port= and path='], id='host-url'
        ),
        pytest.param({'host': 'x.y:9443'}, ['host= must be only a name'], id='host-port'),
        pytest.param({'addr': 'x/y'}, ['addr= must be only a name'], id='addr-path'),
        pytest.param({'path': '/a?b'}, ['path= must have no queries'], id='query'),
        pytest.param({'path': '/a#b'}, ['path= must have no queries'], id='fragment'),
        pytest.param({'cadata': 'pem'}, ['cadata= must be bytes, not str'], id='cadata'),
        pytest.param({'certfile': b'x'}, ['certfile= must be a path, not bytes'], id='certfile'),
        pytest.param(
            {'context': True}, ['context= must be an ssl.SSLContext, not bool'], id='context'
        ),
        pytest.param(
            {'insecure': None}, ['insecure= must be True or False, not NoneType'], id='insecure'
        ),
        pytest.param(
            {'extra_sans': 'x.y'},
            ['extra_sans= must be a collection of strings, not str'],
            id='sans',
        ),
        pytest.param(
            {'extra_sans': [1]},
            ['extra_sans= must be a collection of strings'],
            id='sans-of-numbers',
        ),
        pytest.param({'verify_mode': 'x'}, ['verify_mode= must be an ssl.VerifyMode'], id='mode'),
        pytest.param(
            {'verify_mode': 9}, ['verify_mode= must be an ssl.VerifyMode'], id='mode-number'
        ),
        pytest.param(
            {'verify_cadata': 1}, ['verify_cadata= must be a string or bytes'], id='verify-cadata'
        ),
        pytest.param(
            {'file_check_interval': None},
            ['file_check_interval= must be a number'],
            id='interval-type',
        ),
        pytest.param(
            {'file_check_interval': 0}, ['file_check_interval= must be above zero'], id='interval'
        ),
        pytest.param(
            {'file_check_interval': math.nan},
            ['file_check_interval= must be above zero'],
            id='interval-nan',
        ),
        pytest.param(
            {'inflight_bytes': None},
            ['inflight_bytes= must be an integer, not NoneType'],
            id='bytes-type',
        ),
        pytest.param(
            {'inflight_bytes': 7e9},
            ['inflight_bytes= must be an integer, not float'],
            id='bytes-float',
        ),
        pytest.param(
            {'inflight_bytes': 1_000_000}, ['inflight_bytes= must be 7340032 or more'], id='bytes'
        ),
        pytest.param(
            {'insecure': True, 'certfile': 'x', 'pkeyfile': 'y'},
            ['insecure=True', 'certfile=, pkeyfile=', 'leave either'],
            id='insecure-and-certificate',
        ),
        pytest.param(
            {'insecure': True, 'verify_mode': ssl.CERT_REQUIRED},
            ['cannot be verified'],
            id='insecure-verify',
        ),
        pytest.param({'pkeyfile': 'y'}, ['no certfile=: add it'], id='key-only'),
        pytest.param(
            {'cadata': b'x', 'cafile': 'y'}, ['either cadata= or cafile='], id='two-authorities'
        ),
        pytest.param(
            {'port': -1, 'pkeyfile': 'y', 'path': '?'}, ['port=', 'pkeyfile=', 'path='], id='many'
        ),
        pytest.param({'port': 'x', 'addr': 1}, ['port=', 'addr='], id='many-types'),
    ],
)
def test_wrong_options_are_told_about(given, complaints):
    with pytest.raises(server_options.WebhookServerError) as error:
        server_options.check_options(server_options.ServerOptions(**given))

    assert all(complaint in str(error.value) for complaint in complaints)


def test_secrets_are_not_shown():
    given = server_options.ServerOptions(
        password='s3cret', cadata=b's3cret', verify_cadata='s3cret'
    )
    server = servers.WebhookServer(password='s3cret')
    tunnel = tunnels.WebhookNgrokTunnel(token='s3cret')

    assert 's3cret' not in f'{given!r} {server!r} {tunnel!r}'
