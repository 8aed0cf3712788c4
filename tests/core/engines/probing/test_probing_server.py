"""
The HTTP server of probes and metrics: its pages, and its safety from its clients.
"""

import asyncio
import contextlib
import datetime
import socket

import aiohttp
import pytest
from aiohttp import web

from kopf._cogs.clients import errors
from kopf._cogs.clients.watching import stream_states
from kopf._core.engines.probing import endpoints, health
from kopf._core.engines.probing import server as server_

LIMITS = health.Limits(silence=70.0, death=900.0, lag=5.0)


class Results:
    """Stands for the probe handlers."""

    def __init__(self, results):
        self.results = results

    async def collect(self):
        return self.results


def find_free_port():
    with socket.socket() as sock:
        sock.bind(('127.0.0.1', 0))
        return sock.getsockname()[1]


@pytest.fixture
async def serve(virtual_time):
    """Serve the pages at a local port, and return the endpoint."""
    async with contextlib.AsyncExitStack() as stack:

        async def serve(pages, host='127.0.0.1'):
            endpoint = endpoints.Endpoint(host, find_free_port(), '/healthz')
            server = server_.Server(endpoint, pages)
            stack.push_async_callback(server.close)
            await server.start()
            return endpoint

        yield serve


@pytest.fixture
async def fetch():
    async with aiohttp.ClientSession() as session:

        async def fetch(endpoint, path='/healthz', method='GET', **kwargs):
            async with session.request(
                method, f'http://{endpoint.host}:{endpoint.port}{path}', **kwargs
            ) as response:
                return response, await response.text()

        yield fetch


async def hello(request):
    return web.Response(text='hello')


def examine(**kwargs):
    return lambda: health.Vitals(now=10_000.0, limits=LIMITS, **kwargs)


def build_state(phase=stream_states.Phase.CONNECTED, **kwargs):
    return stream_states.StreamState(
        **{'phase': phase, 'begun': 9990.0, 'fed': 9999.0, 'is_listed': True, **kwargs}
    )


FAILING = build_state(
    stream_states.Phase.WAITING, failing_since=9900.0, error=errors.APIDisconnectedError('boo!')
)
DEAD = build_state(
    stream_states.Phase.WAITING, failing_since=9000.0, error=errors.APIDisconnectedError('boo!')
)


# The server.


async def test_pages_are_served_by_their_paths(serve, fetch):
    endpoint = await serve({'/healthz': hello, '/a b': hello})

    assert (await fetch(endpoint))[1] == 'hello'
    assert (await fetch(endpoint, '/a%20b'))[1] == 'hello'
    assert (await fetch(endpoint, '/healthz?verbose&x=y'))[1] == 'hello'
    response, text = await fetch(endpoint, '/other')
    assert response.status == 404
    assert '/healthz' in text


async def test_pages_can_only_be_read(serve, fetch):
    endpoint = await serve({'/healthz': hello})

    response, text = await fetch(endpoint, method='HEAD')
    assert (response.status, text) == (200, '')
    response, _ = await fetch(endpoint, method='POST', data=b'x' * 1_000_000)
    assert (response.status, response.headers['Allow']) == (405, 'GET, HEAD')


async def test_answers_are_never_cached_and_close_their_connections(serve, fetch):
    response, _ = await fetch(await serve({'/healthz': hello}))

    assert response.headers['Cache-Control'] == 'no-store'
    assert response.headers['Connection'] == 'close'
    assert response.version == aiohttp.HttpVersion11


@pytest.mark.guarantee('NEW-264')
async def test_local_host_is_served_at_all_its_addresses(serve, fetch):
    endpoint = await serve({'/healthz': hello}, host='localhost')

    assert (await fetch(endpoint))[1] == 'hello'
    assert (await fetch(endpoints.Endpoint('127.0.0.1', endpoint.port)))[1] == 'hello'


async def test_nothing_is_served_after_the_end(virtual_time, fetch):
    endpoint = endpoints.Endpoint('127.0.0.1', find_free_port())
    server = server_.Server(endpoint, {'/healthz': hello})
    await server.start()
    await server.close()

    with pytest.raises(aiohttp.ClientConnectorError):
        await fetch(endpoint)


async def test_busy_port_is_an_error(serve):
    endpoint = await serve({'/healthz': hello})

    with pytest.raises(
        endpoints.EndpointError, match=f'{endpoint.port}/healthz cannot be served: .*in use'
    ):
        await server_.Server(endpoint, {}).start()


@pytest.mark.parametrize(
    'host',
    [
        pytest.param('192.0.2.1', id='address-of-others'),
        pytest.param('no-such-host.invalid', id='unknown-name'),
    ],
)
async def test_wrong_host_is_an_error(host):
    with pytest.raises(endpoints.EndpointError, match=f'{host}:8080/ cannot be served'):
        await server_.Server(endpoints.Endpoint(host, 8080), {}).start()


@pytest.mark.parametrize(
    'sent',
    [
        pytest.param(b'', id='silent'),
        pytest.param(b'GET /healthz HTTP/1.1\r\nHost: x\r\n', id='unfinished'),
        pytest.param(
            b'POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx',
            id='unfinished-body',
        ),
    ],
)
async def test_slow_clients_are_cut_off(serve, virtual_time, sent):
    endpoint = await serve({'/healthz': hello})
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(sent)

    with contextlib.suppress(ConnectionResetError):
        await reader.read()  # until the end

    assert virtual_time.elapsed <= server_.LIMITS.headers_timeout + 1
    writer.close()


async def test_oversized_requests_are_refused(serve, fetch):
    endpoint = await serve({'/healthz': hello})

    for request in [
        b'GET /' + b'x' * 100_000 + b' HTTP/1.1\r\n\r\n',
        b'GET / HTTP/1.1\r\nX: ' + b'x' * 100_000 + b'\r\n\r\n',
    ]:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(request)
        answer = b''
        with contextlib.suppress(ConnectionResetError):
            answer = await reader.read()
        writer.close()
        assert not answer or answer.startswith((b'HTTP/1.0 400', b'HTTP/1.1 400'))

    assert (await fetch(endpoint))[1] == 'hello'


@pytest.mark.guarantee('FND-051')
async def test_oldest_connections_make_room_for_new_ones(serve, fetch):
    endpoint = await serve({'/healthz': hello})
    idle = [
        await asyncio.open_connection(endpoint.host, endpoint.port)
        for _ in range(server_.LIMITS.connections)
    ]

    assert (await fetch(endpoint))[1] == 'hello'

    with contextlib.suppress(ConnectionResetError):
        assert await idle[0][0].read() == b''  # the oldest one
    assert not idle[-1][0].at_eof()
    for _, writer in idle:
        writer.close()


async def test_failing_pages_do_not_break_the_server(serve, fetch, caplog):
    async def failing(request):
        raise RuntimeError('secret')

    endpoint = await serve({'/healthz': failing, '/fine': hello})

    response, text = await fetch(endpoint)
    assert response.status == 500
    assert 'secret' not in text
    assert (await fetch(endpoint, '/fine'))[1] == 'hello'
    assert 'secret' in caplog.text


# Liveness.


@pytest.mark.guarantee('PRB-005')
async def test_content_is_an_empty_object_without_probes(serve, fetch):
    endpoint = await serve({'/healthz': server_.build_liveness_page(Results({}), examine())})

    response, text = await fetch(endpoint)

    assert (response.status, response.content_type, text) == (200, 'application/json', '{}')


@pytest.mark.guarantee('PRB-007')
async def test_results_of_probes_are_one_json_object(serve, fetch):
    results = {'now': '2019-11-07T18:03:52.513803+00:00', 'random': 765846}
    endpoint = await serve({'/healthz': server_.build_liveness_page(Results(results), examine())})

    response, _ = await fetch(endpoint)

    assert await response.json() == results


@pytest.mark.parametrize(
    'result, expected',
    [
        pytest.param({'x': [1, 2.5, None, True]}, {'x': [1, 2.5, None, True]}, id='plain'),
        pytest.param(datetime.date(2020, 12, 31), '2020-12-31', id='date'),
        pytest.param(
            {
                1,
            },
            '{1}',
            id='set',
        ),
        pytest.param(
            {
                'x': {
                    1,
                }
            },
            "{'x': {1}}",
            id='nested',
        ),
        pytest.param({(1, 2): 3}, '{(1, 2): 3}', id='keys'),
        pytest.param(b'bytes', "b'bytes'", id='bytes'),
    ],
)
def test_results_not_of_json_become_texts(result, expected):
    assert server_.make_plain(result) == expected


def test_results_that_cannot_even_be_texts_are_harmless():
    class Broken:
        def __str__(self):
            raise RuntimeError('boo!')

    assert server_.make_plain(Broken()) == '<Broken: RuntimeError>'


@pytest.mark.guarantee('PRB-004')
async def test_operator_is_alive_while_its_streams_are_only_failing(serve, fetch):
    vitals = examine(streams={'pods.v1': FAILING}, missing=['x'])
    endpoint = await serve({'/healthz': server_.build_liveness_page(Results({'x': 1}), vitals)})

    response, _ = await fetch(endpoint)

    assert response.status == 200
    assert await response.json() == {'x': 1}


async def test_dead_operator_tells_why(serve, fetch, caplog):
    vitals = examine(streams={'pods.v1': DEAD}, lag=42.0)
    endpoint = await serve({'/healthz': server_.build_liveness_page(Results({'x': 1}), vitals)})

    response, _ = await fetch(endpoint)

    assert response.status == 503
    assert await response.json() == {
        'problems': [
            'pods.v1: failing for 1000 s: APIDisconnectedError: boo!',
            'event loop: blocked for 42.0 s',
        ],
        'probes': {'x': 1},
    }
    assert 'failing for 1000 s' in caplog.text


# Readiness.


async def test_ready_operator_is_brief(serve, fetch):
    endpoint = await serve(
        {'/readyz': server_.build_readiness_page(examine(streams={'pods.v1': build_state()}))}
    )

    response, text = await fetch(endpoint, '/readyz')

    assert (response.status, text) == (200, 'ready\n')


async def test_ready_operator_tells_of_each_stream_when_asked(serve, fetch):
    streams = {"pods.v1 in 'default'": build_state(), 'nodes.v1': build_state()}
    endpoint = await serve({'/readyz': server_.build_readiness_page(examine(streams=streams))})

    response, text = await fetch(endpoint, '/readyz?verbose')

    assert response.status == 200
    assert text.splitlines() == [
        "[+] pods.v1 in 'default': connected, 0 objects, silent for 1 s",
        '[+] nodes.v1: connected, 0 objects, silent for 1 s',
        'ready',
    ]


async def test_operator_that_is_not_ready_tells_why(serve, fetch):
    streams = {'pods.v1': FAILING, 'nodes.v1': build_state()}
    endpoint = await serve(
        {'/readyz': server_.build_readiness_page(examine(streams=streams, missing=['crds']))}
    )

    response, text = await fetch(endpoint, '/readyz')

    assert response.status == 503
    assert text.splitlines() == [
        '[-] crds: not begun yet',
        '[-] pods.v1: waiting, 0 objects, silent for 1 s, failing for 100 s: APIDisconnectedError: boo!',
        'not ready',
    ]


# Metrics.


async def test_metrics_are_told_in_the_accepted_format(serve, fetch):
    asked = []

    def expose(accepted):
        asked.append(accepted)
        return b'x 1\n', 'text/plain; version=0.0.4; charset=utf-8'

    endpoint = await serve({'/metrics': server_.build_metrics_page(expose)})

    response, text = await fetch(
        endpoint, '/metrics', headers={'Accept': 'application/openmetrics-text'}
    )

    assert (response.status, text) == (200, 'x 1\n')
    assert response.headers['Content-Type'] == 'text/plain; version=0.0.4; charset=utf-8'
    assert asked == ['application/openmetrics-text']
