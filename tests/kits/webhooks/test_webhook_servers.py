"""Servers that really serve: by HTTP and HTTPS, whatever they are sent."""

import asyncio
import base64
import gzip
import io
import logging
import socket
import ssl

import aiohttp
import pytest

from kopf._cogs.helpers import certificates as shared
from kopf._cogs.structs import reviews
from kopf._kits.webhooks import addresses, server_options, servers, x509_fields


@pytest.mark.guarantee('ADM-068', 'NEW-266', 'ADM-089', 'ADM-091')
async def test_server_is_secure_and_at_a_random_port_of_all_interfaces_by_default(serve, reviewer):
    served = await serve()

    assert served.url == f'https://localhost:{served.port}'
    assert await served.post(data=b'{"uid": "123"}') == (
        200,
        {
            'apiVersion': 'admission.k8s.io/v1',
            'kind': 'AdmissionReview',
            'response': {'uid': '123', 'allowed': True},
        },
    )
    assert [call['request'] for call in reviewer.calls] == [{'uid': '123'}]
    for family in (socket.AF_INET, socket.AF_INET6) if socket.has_ipv6 else (socket.AF_INET,):
        with socket.socket(family) as sock:
            # Is there the protocol at all?
            sock.bind(('::' if family == socket.AF_INET6 else '0.0.0.0', 0))
            with pytest.raises(OSError, match='in use'):
                socket.create_server(
                    ('::' if family == socket.AF_INET6 else '', served.port), family=family
                )


@pytest.mark.guarantee('ADM-068')
async def test_secure_server_refuses_plain_requests(serve, session):
    served = await serve()

    with pytest.raises(aiohttp.ClientError):
        await session.post(served.url.replace('https:', 'http:'), data=b'{}')


@pytest.mark.guarantee('ADM-069')
async def test_insecure_server_is_plain(serve):
    served = await serve(insecure=True)

    assert served.config == {'url': f'http://localhost:{served.port}'}
    assert (await served.post())[0] == 200


@pytest.mark.guarantee('ADM-066')
@pytest.mark.parametrize(
    'addr, host', [('127.0.0.1', '127.0.0.1'), ('localhost', 'localhost'), ('0.0.0.0', '127.0.0.1')]
)
async def test_server_listens_at_the_given_address_and_port(serve, unused_port, addr, host):
    served = await serve(addr=addr, port=unused_port)

    assert served.url == f'https://{host}:{unused_port}'
    assert (await served.post())[0] == 200


@pytest.mark.parametrize('addr', ['::1', '[::1]'])
async def test_server_listens_at_ipv6(serve, addr):
    served = await serve(addr=addr)

    assert served.url == f'https://[::1]:{served.port}'
    assert (await served.post())[0] == 200


@pytest.mark.guarantee('ADM-067', 'ADM-074', 'ADM-076', 'ADM-082', 'NEW-225')
@pytest.mark.parametrize(
    'cls',
    [servers.WebhookK3dServer, servers.WebhookMinikubeServer, servers.WebhookDockerDesktopServer],
)
async def test_special_servers_have_special_hosts_in_urls_and_certificates(serve, session, cls):
    served = await serve(cls(addr='127.0.0.1', extra_sans=(name for name in ['x.y', '10.0.0.1'])))

    assert served.url == f'https://{cls.DEFAULT_HOST}:{served.port}'
    assert x509_fields.read_pem(served.authority).names == {cls.DEFAULT_HOST, 'x.y'}
    for name in (cls.DEFAULT_HOST, 'x.y', '10.0.0.1', '127.0.0.1'):
        async with session.post(
            f'https://127.0.0.1:{served.port}', data=b'{}', ssl=served.trust(), server_hostname=name
        ) as response:
            assert response.status == 200


@pytest.mark.guarantee('ADM-066', 'ADM-067', 'ADM-003')
async def test_given_host_wins_over_the_special_one(serve):
    served = await serve(servers.WebhookK3dServer(host='x.y', insecure=True))

    assert served.url == f'http://x.y:{served.port}'


@pytest.mark.guarantee('ADM-065', 'ADM-058', 'ADM-090')
async def test_webhooks_are_under_the_given_path(serve, reviewer):
    served = await serve(insecure=True, path='a/b/')

    assert served.url == f'http://localhost:{served.port}/a/b'
    assert (await served.post())[0] == 200
    assert (await served.post('/'))[0] == 200
    assert (await served.post('/fn%2Fspec.field?timeout=10s'))[0] == 200
    assert (await served.post('/fn/spec.field'))[0] == 200
    assert [call['webhook'] for call in reviewer.calls] == [
        None,
        None,
        'fn/spec.field',
        'fn/spec.field',
    ]


@pytest.mark.guarantee('ADM-054', 'ADM-055', 'ADM-057')
async def test_headers_are_passed_as_they_are_whatever_the_type_of_the_content(serve, reviewer):
    served = await serve(insecure=True)
    headers = {
        'X-My-Header': 'Hello',
        'Content-Type': 'application/x-www-form-urlencoded',
        'Authorization': f'Basic {base64.b64encode(b"user:pass").decode()}',
    }

    status, _ = await served.post(headers=headers)

    [call] = reviewer.calls
    assert status == 200
    assert (
        call['headers'].items()
        >= {**headers, 'Host': f'localhost:{served.port}', 'Content-Length': '2'}.items()
    )
    assert call['sslpeer'] is None


@pytest.mark.guarantee('ADM-056', 'ADM-075', 'ADM-054')
async def test_verified_certificates_of_clients_are_passed(
    serve, reviewer, make_ca, make_certificate
):
    ca = make_ca()
    client = make_certificate(ca, name='the-client', purpose=shared.Purpose.CLIENT).export()
    served = await serve(verify_cadata=ca.pem, verify_mode=ssl.CERT_OPTIONAL)

    await served.post(tls=served.trust(pair=client))
    await served.post(tls=served.trust())

    [with_certificate, without] = [call['sslpeer'] for call in reviewer.calls]
    assert with_certificate['subject'] == ((('commonName', 'the-client'),),)
    assert with_certificate['issuer'] == ((('commonName', 'test-ca'),),)
    assert with_certificate.keys() >= {'version', 'serialNumber', 'notBefore', 'notAfter'}
    assert without is None


@pytest.mark.guarantee('ADM-056', 'ADM-071')
async def test_certificates_of_clients_are_not_asked_for_if_nothing_verifies_them(
    serve, reviewer, make_ca, make_certificate, files
):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    client = make_certificate(ca, name='the-client', purpose=shared.Purpose.CLIENT).export()
    served = await serve(certfile=files.cert, pkeyfile=files.key, cafile=files.ca)

    await served.post(tls=served.trust(pair=client))

    assert [call['sslpeer'] for call in reviewer.calls] == [None]


@pytest.mark.guarantee('ADM-075')
async def test_clients_without_certificates_are_refused_if_they_are_required(
    serve, reviewer, make_ca
):
    served = await serve(verify_cadata=make_ca().pem, verify_mode=ssl.CERT_REQUIRED)

    with pytest.raises((aiohttp.ClientError, OSError)):
        await served.post()

    assert not reviewer.calls


@pytest.mark.guarantee('ADM-070', 'ADM-071', 'ADM-002')
async def test_given_certificate_is_shown(serve, files, make_ca, make_certificate):
    ca = make_ca()
    issued = make_certificate(ca)
    files.write(issued, ca)
    files.key.write_bytes(issued.export('s3cret').key)
    served = await serve(
        certfile=str(files.cert), pkeyfile=files.key, password='s3cret', cafile=files.ca
    )

    assert served.authority == ca.pem
    assert (await served.post())[0] == 200


@pytest.mark.guarantee('ADM-070')
async def test_own_key_can_have_a_password(serve):
    served = await serve(password='s3cret')

    assert (await served.post())[0] == 200


@pytest.mark.guarantee('ADM-072')
async def test_given_certificate_needs_no_authority(serve, files, make_ca, make_certificate):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    served = await serve(certfile=files.cert, pkeyfile=files.key)

    assert served.config == {'url': served.url}
    assert (await served.post(tls=served.trust(ca.pem)))[0] == 200


@pytest.mark.guarantee('ADM-073')
@pytest.mark.parametrize('is_given', [False, True])
async def test_authority_is_dumped(serve, files, make_ca, make_certificate, is_given):
    ca = make_ca()
    files.write(make_certificate(ca), ca)
    given = {'certfile': files.cert, 'pkeyfile': files.key, 'cafile': files.ca} if is_given else {}
    served = await serve(cadump=files.dump, **given)

    assert files.dump.read_bytes() == served.authority
    assert (await served.post(tls=served.trust(files.dump.read_bytes())))[0] == 200
    assert files.ca.read_bytes() == ca.pem


async def test_given_context_is_used(serve, session):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    served = await serve(context=context)

    _, writer = await asyncio.open_connection('localhost', served.port, ssl=served.trust())
    writer.close()

    assert writer.get_extra_info('ssl_object').version() == 'TLSv1.2'


async def test_only_http_1_is_offered(serve):
    served = await serve()
    context = served.trust()
    context.set_alpn_protocols(['h2', 'http/1.1'])

    _, writer = await asyncio.open_connection('localhost', served.port, ssl=context)
    writer.close()

    assert writer.get_extra_info('ssl_object').selected_alpn_protocol() == 'http/1.1'


@pytest.mark.guarantee('NEW-231')
@pytest.mark.parametrize(
    'method, path, data, status, text',
    [
        pytest.param('POST', '/a', b'hello', 400, 'it is not JSON', id='not-json'),
        pytest.param('POST', '/a', b'', 400, 'it is not JSON', id='empty'),
        pytest.param('POST', '/a', b'\xff\xfe', 400, 'it is not JSON', id='binary'),
        pytest.param('POST', '/a', b'[' * 100_000, 400, 'it is not JSON', id='deep'),
        pytest.param(
            'POST',
            '/a',
            b'{"a":' * 100_000 + b'1' + b'}' * 100_000,
            400,
            'it is not JSON',
            id='deep-object',
        ),
        pytest.param('POST', '/a', b'[]', 400, 'a JSON object', id='list'),
        pytest.param('POST', '/a', b'null', 400, 'a JSON object', id='null'),
        pytest.param('POST', '/b', b'{}', 404, 'no webhooks outside of /a/', id='path'),
        pytest.param('POST', '/ab', b'{}', 404, 'no webhooks outside of /a/', id='similar-path'),
        pytest.param('GET', '/a', None, 405, 'by POST', id='get'),
        pytest.param('PUT', '/a', b'{}', 405, 'by POST', id='put'),
        pytest.param('OPTIONS', '/a', None, 405, 'by POST', id='options'),
    ],
)
async def test_what_is_not_a_review_is_refused_and_the_server_goes_on(
    serve, reviewer, method, path, data, status, text
):
    served = await serve(insecure=True, path='/a')
    url = f'http://localhost:{served.port}{path}'

    async with served.session.request(method, url, data=data) as response:
        refusal = await response.json()
    again = await served.post()

    assert (response.status, response.headers.get('Allow')) == (
        status,
        'POST' if status == 405 else None,
    )
    assert refusal == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'code': status,
        'message': refusal['message'],
    }
    assert text in refusal['message']
    assert again[0] == 200
    assert len(reviewer.calls) == 1


@pytest.mark.parametrize('encoding', ['gzip', 'deflate', 'br', 'x'])
async def test_compressed_reviews_are_refused(serve, reviewer, caplog, encoding):
    served = await serve(insecure=True)
    url = f'http://localhost:{served.port}/'
    headers = {'Content-Encoding': encoding}
    data = gzip.compress(b'{}')

    async with served.session.request('POST', url, data=data, headers=headers) as response:
        refusal = await response.json()
    again = await served.post()

    assert (response.status, refusal['code']) == (415, 415)
    assert 'send JSON with no Content-Encoding' in refusal['message']
    assert again[0] == 200
    assert len(reviewer.calls) == 1
    assert not caplog.records


@pytest.mark.guarantee('NEW-231')
async def test_what_the_operator_refuses_has_its_code_and_message(serve, reviewer):
    served = await serve(insecure=True)
    reviewer.error = reviews.ReviewRefused('There is no such resource.', code=404)

    status, refusal = await served.post()

    assert (status, refusal['code'], refusal['message']) == (404, 404, 'There is no such resource.')


async def test_unexpected_errors_are_logged_and_not_shown_to_clients(serve, reviewer, caplog):
    served = await serve(insecure=True)
    reviewer.error = ZeroDivisionError('the-details')

    async with served.request('POST') as response:
        text = await response.text()

    assert response.status == 500
    assert 'the-details' not in text and 'Traceback' not in text and 'See the logs' in text
    assert 'the-details' in caplog.text


async def test_responses_that_cannot_be_written_are_errors(serve, reviewer):
    served = await serve(insecure=True)
    server = servers.WebhookServer(insecure=True)

    async def fn(request, **_):
        return {'x': object()}

    async with server:
        served.config = await anext(server(fn))
        status, _ = await served.post()

    assert status == 500


@pytest.mark.parametrize('is_chunked', [False, True])
@pytest.mark.parametrize('excess, status', [(0, 200), (1, 413)])
async def test_requests_are_up_to_7_mebibytes(serve, reviewer, excess, status, is_chunked):
    served = await serve()
    content = b'{"a": "' + b'x' * (7 * 1024 * 1024 - 9 + excess) + b'"}'

    async def iterate():
        for position in range(0, len(content), 100_000):
            yield content[position : position + 100_000]

    result, _ = await served.post(data=iterate() if is_chunked else io.BytesIO(content))
    again, _ = await served.post()

    assert (result, again) == (status, 200)


async def test_compressed_requests_are_not_json(serve):
    served = await serve(insecure=True)

    async with served.request('POST', data=b'{}' * 1000, compress='gzip') as response:
        assert response.status == 415


async def test_clients_that_wait_before_sending_are_asked_to_continue(serve):
    served = await serve(insecure=True)

    status, _ = await served.post(expect100=True)

    assert status == 200


async def test_slow_reviews_do_not_block_others(serve, reviewer):
    served = await serve(insecure=True)
    reviewer.gate = gate = asyncio.Event()
    slow = [asyncio.create_task(served.post('/slow')) for _ in range(20)]
    while len(reviewer.calls) < 20:
        await asyncio.sleep(0)
    reviewer.gate = None

    assert (await served.post('/fast'))[0] == 200
    assert not any(task.done() for task in slow)
    gate.set()
    assert {status for status, _ in await asyncio.gather(*slow)} == {200}


async def test_busy_ports_are_told_about(serve):
    served = await serve(insecure=True)

    with pytest.raises(
        server_options.WebhookServerError, match=f'port={served.port}: Address already in use'
    ):
        await serve(insecure=True, port=served.port)


@pytest.mark.parametrize('addr', ['192.0.2.1', 'no-such-host.invalid'])
async def test_foreign_addresses_are_told_about(serve, addr):
    with pytest.raises(
        server_options.WebhookServerError, match=f"addr='{addr}'.*an address of this machine"
    ):
        await serve(insecure=True, addr=addr)


@pytest.mark.guarantee('ADM-004')
async def test_wrong_options_fail_the_start_and_not_the_constructor(reviewer):
    server = servers.WebhookServer(port='9443')

    with pytest.raises(
        server_options.WebhookServerError, match='port= must be an integer, not str'
    ):
        await anext(server(reviewer))


async def test_unwritable_dump_fails_the_start_and_releases_the_port(
    reviewer, unused_port, tmp_path
):
    server = servers.WebhookServer(port=unused_port, cadump=tmp_path / 'absent' / 'dump.pem')

    with pytest.raises(server_options.CertificateError, match='cadump='):
        await anext(server(reviewer))

    socket.create_server(('127.0.0.1', unused_port)).close()


async def test_secrets_are_not_logged(serve, caplog, files, make_certificate):
    caplog.set_level(logging.DEBUG)
    issued = make_certificate()
    files.write(issued)
    files.key.write_bytes(issued.export('s3cret').key)
    served = await serve(certfile=files.cert, pkeyfile=files.key, password='s3cret')

    await served.post(headers={'Authorization': 'Bearer t0ken'})

    assert 's3cret' not in caplog.text
    assert 't0ken' not in caplog.text
    assert f'listens for https://localhost:{served.port}' in caplog.text


def test_limits_are_as_designed():
    assert server_options.MAX_SIZE == 7 * 1024 * 1024
    assert addresses.LOCALHOST == 'localhost'


@pytest.fixture
def unused_port():
    with socket.create_server(('', 0)) as sock:
        return sock.getsockname()[1]
