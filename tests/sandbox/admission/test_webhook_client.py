"""
The calls to webhooks trust only whom they are told to, end in time, and explain their failures as
the API does.
"""

import asyncio
import base64
import dataclasses
import datetime
import ssl

import pytest
from aiohttp import web

from kopf._sandbox.admission import admission_review, matching, webhook_client
from kopf._sandbox.auth import certificates
from kopf._sandbox.meta import selectors

NOW = datetime.datetime.now(datetime.UTC)
CA = certificates.make_ca(NOW)
PAIR = certificates.issue_server(CA, ['localhost', 'hook.ns.svc'], NOW)
SERVICE = matching.Service('ns', 'hook', path='/v')


@dataclasses.dataclass
class Server:
    """A server on a loopback port that answers all requests in the same way."""

    port: int = 0
    response: object = dataclasses.field(
        default_factory=lambda: lambda request: web.Response(text='answer')
    )
    requests: list[web.Request] = dataclasses.field(default_factory=list)

    @property
    def url(self):
        return f'https://localhost:{self.port}/v'

    @property
    def connections(self):
        return {request.protocol for request in self.requests}


@pytest.fixture
async def server():
    server = Server()

    async def handle(request):
        await request.read()
        server.requests.append(request)
        return server.response(request)

    app = web.Application()
    app.router.add_route('*', '/{path:.*}', handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, '127.0.0.1', 0, ssl_context=certificates.build_server_context(PAIR))
    await site.start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
def services():
    return webhook_client.Services()


@pytest.fixture
async def caller(services):
    caller = webhook_client.Caller(services)
    yield caller
    await caller.close()


def make_hook(url='', *, ca=CA.pem, service=None):
    nothing = selectors.Selector()
    return matching.Hook(
        'a.b.c', 'id', (), nothing, nothing, url, service, base64.b64encode(ca).decode()
    )


async def fail(caller, hook):
    with pytest.raises(admission_review.CallError) as info:
        await caller.ask(hook, {'request': {}})
    return str(info.value)


async def test_webhook_is_called_as_the_api_calls_it(caller, server):
    raw = await caller.ask(make_hook(server.url), {'request': {}})

    request = server.requests[0]
    assert raw == b'answer'
    assert (request.method, request.path_qs) == ('POST', '/v?timeout=10s')
    assert request.headers['User-Agent'] == 'kube-apiserver-admission'
    assert request.headers['Content-Type'] == 'application/json'
    assert request.headers['Accept'] == 'application/json, */*'


async def test_connection_is_kept_between_calls(caller, server):
    for _ in range(3):
        await caller.ask(make_hook(server.url), {})

    assert len(server.requests) == 3
    assert len(server.connections) == 1


async def test_kept_connection_that_is_closed_meanwhile_is_replaced(caller, server):
    def respond(request):
        if len(server.connections) == 1:
            request.transport.abort()
        return web.Response(text='second')

    await caller.ask(make_hook(server.url), {})
    server.response = respond

    assert await caller.ask(make_hook(server.url), {}) == b'second'


async def test_calls_go_on_after_closing(caller, server):
    await caller.ask(make_hook(server.url), {})
    await caller.close()

    assert await caller.ask(make_hook(server.url), {}) == b'answer'


def respond(status, text):
    return lambda request: web.Response(status=status, text=text)


def disconnect(request):
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize(
    'response, message',
    [
        pytest.param(
            respond(400, 'x'), 'the server rejected our request for an unknown reason', id='400'
        ),
        pytest.param(respond(403, 'go away'), 'go away', id='403'),
        pytest.param(
            respond(404, 'x'), 'the server could not find the requested resource', id='404'
        ),
        pytest.param(
            respond(409, '{"kind": "Status", "message": "inner msg"}'), 'inner msg', id='status'
        ),
        pytest.param(
            respond(418, 'x'),
            'the server responded with the status code 418 but did not return more information',
            id='418',
        ),
        pytest.param(
            respond(500, 'some error text'),
            'an error on the server ("some error text") has prevented the request from succeeding',
            id='500',
        ),
        pytest.param(
            respond(200, ''),
            '0-length response with status code: 200 and content type: text/plain; charset=utf-8',
            id='empty',
        ),
        pytest.param(disconnect, 'Post "{url}?timeout=10s": EOF', id='disconnected'),
    ],
)
async def test_failed_call_is_explained_as_the_api_does(caller, server, response, message):
    server.response = response

    error = await fail(caller, make_hook(server.url))

    assert error == f'failed to call webhook: {message.format(url=server.url)}'


@pytest.mark.parametrize(
    'ca',
    [
        pytest.param(b'', id='of-the-system'),
        pytest.param(certificates.make_ca(NOW).pem, id='another'),
    ],
)
async def test_webhook_of_unknown_authority_is_not_trusted(caller, server, ca):
    error = await fail(caller, make_hook(server.url, ca=ca))

    assert error == (
        f'failed to call webhook: Post "{server.url}?timeout=10s": tls: failed to verify certificate: '
        f'x509: certificate signed by unknown authority'
    )
    assert server.requests == []


async def test_webhook_under_another_name_is_not_trusted(caller, server):
    url = f'https://127.0.0.1:{server.port}/v'

    error = await fail(caller, make_hook(url))

    assert error == (
        f'failed to call webhook: Post "{url}?timeout=10s": tls: failed to verify certificate: '
        f'x509: certificate is not valid for any names, but wanted to match 127.0.0.1'
    )


async def test_webhook_can_be_trusted_by_its_own_certificate(caller, server):
    assert await caller.ask(make_hook(server.url, ca=PAIR.certificate), {}) == b'answer'


async def test_strict_verification_is_not_demanded_of_webhooks(caller, server, monkeypatch):
    contexts = []
    build = ssl.create_default_context

    def build_strictly(*args, **kwargs):
        contexts.append(build(*args, **kwargs))
        contexts[-1].verify_flags |= ssl.VERIFY_X509_STRICT  # as newer versions of Python do
        return contexts[-1]

    monkeypatch.setattr(ssl, 'create_default_context', build_strictly)
    await caller.ask(make_hook(server.url), {})

    assert not contexts[0].verify_flags & ssl.VERIFY_X509_STRICT


async def test_malformed_bundle_is_explained(caller, server):
    error = await fail(caller, make_hook(server.url, ca=b'nonsense'))

    assert (
        error
        == 'could not get REST client: unable to load root certificates: unable to parse bytes as PEM block'
    )


async def test_absent_server_is_explained(caller, unused_tcp_port_factory):
    port = unused_tcp_port_factory()

    error = await fail(caller, make_hook(f'https://localhost:{port}/v'))

    assert error == (
        f'failed to call webhook: Post "https://localhost:{port}/v?timeout=10s": '
        f'dial tcp 127.0.0.1:{port}: connect: connection refused'
    )


async def test_service_is_called_where_it_is_registered(caller, services, server):
    services.register('ns', 'hook', f'https://127.0.0.1:{server.port}')

    await caller.ask(make_hook(service=SERVICE), {})

    assert server.requests[0].path_qs == '/v?timeout=10s'


async def test_service_must_have_its_own_certificate(caller, services, server):
    services.register('ns', 'other', f'https://127.0.0.1:{server.port}')

    error = await fail(caller, make_hook(service=matching.Service('ns', 'other', path='/v')))

    assert error == (
        'failed to call webhook: Post "https://other.ns.svc:443/v?timeout=10s": tls: failed to verify '
        'certificate: x509: certificate is not valid for any names, but wanted to match other.ns.svc'
    )


async def test_service_is_served_by_a_function_on_its_port(caller, services):
    async def serve(path, review):
        return {'path': path, **review}

    services.register('ns', 'hook', serve, port=8443)

    raw = await caller.ask(
        make_hook(service=matching.Service('ns', 'hook', 8443, '/v')), {'a': 'b'}
    )

    assert raw == b'{"path":"/v","a":"b"}'


async def test_function_gets_a_review_of_its_own(caller, services):
    async def serve(path, review):
        review['request']['object']['changed'] = True
        return review

    services.register('ns', 'hook', serve)
    review = {'request': {'object': {}}}

    raw = await caller.ask(make_hook(service=SERVICE), review)

    assert raw == b'{"request":{"object":{"changed":true}}}'
    assert review == {'request': {'object': {}}}


async def test_unknown_service_is_not_found(caller, services):
    services.register('ns', 'other', 'https://127.0.0.1:1')

    error = await fail(caller, make_hook(service=SERVICE))

    assert (
        error
        == 'failed to call webhook: Post "https://hook.ns.svc:443/v?timeout=10s": service "hook" not found'
    )


async def test_function_that_raises_is_a_failed_call(caller, services):
    async def serve(path, review):
        raise ValueError('boo')

    services.register('ns', 'hook', serve)

    assert (await fail(caller, make_hook(service=SERVICE))).endswith('ValueError: boo')


async def test_slow_webhook_is_left_after_its_timeout(virtual_time, caller, services):
    async def hang(path, review):
        await asyncio.Event().wait()

    services.register('ns', 'hook', hang)

    error = await fail(caller, make_hook(service=SERVICE))

    assert error == (
        'failed to call webhook: Post "https://hook.ns.svc:443/v?timeout=10s": '
        'context deadline exceeded'
    )
    assert virtual_time.elapsed == 10
