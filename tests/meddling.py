"""
Faults of clusters: all that can happen to requests and answers, and a server that spoils answers on
their way.
"""

import asyncio
import contextlib

import aiohttp
import yarl
from aiohttp import web

TRIGGER = 'it is time to list or to watch again'
"""The message of those who end streams only to make them meet a fault."""

FAULTS = {
    '400': {'code': 400},
    '401': {'code': 401, 'times': 3},  # more of them would be a login that is of no use
    '403': {'code': 403},
    '404': {'code': 404},
    '409': {'code': 409},
    '410': {'code': 410},
    '422': {'code': 422},
    '429': {'code': 429},
    '429 in 5 s': {'code': 429, 'retry_after': 5},
    '500': {'code': 500},
    '503': {'code': 503},
    '503 in 5 s': {'code': 503, 'retry_after': 5},
    '504': {'code': 504},
    'refused': 'refused',
    'disconnected': {'cut': True},
    'reset': 'torn',
    'black hole': {'stall': True},
    'slow': {'latency': 40},
    'malformed': 'malformed',
    'empty': 'empty',
    'huge line': 'huge',
}
"""By their names: what to inject into the sandbox, or in which way to meddle."""


class Meddler:
    """
    A server in front of a sandbox: it passes everything through, but spoils some of the answers on
    the way.

    The spoilt requests are executed. The ways of spoiling: ``torn`` (the connection is lost in the
    middle of the answer), ``malformed``, ``empty``, ``huge`` (8 MB more of JSON's spaces than
    usual), ``outdated`` (the same as the last time before), ``late`` (what was true then, but not
    until the spoiling is lifted).
    """

    WAYS = 'torn', 'malformed', 'empty', 'huge', 'outdated', 'late'
    HUGE = b' ' * 8_000_000

    def __init__(self, target):
        self.open = 0  # how many requests are in progress
        self.hits = 0
        self.hit = asyncio.Event()
        self.ignored = ()  # names in the queries, of which the server behind does not know
        self._lifted = asyncio.Event()
        self._target, self._way, self._is_spoilt, self._remembered = (
            target,
            '',
            lambda http: False,
            {},
        )

    @property
    def url(self):
        host, port, *_ = self._listener.sockets[0].getsockname()
        return f'http://{host}:{port}'

    @property
    def connections(self):
        """How many clients are connected, with requests or without."""
        return len(self._server.connections)

    def spoil(self, way, is_spoilt):
        """Begin to spoil those requests for which the function returns true."""
        self._way, self._is_spoilt = way, is_spoilt
        self._lifted.clear()

    def remember(self, path, answer):
        """Change what is answered when the answers are outdated."""
        self._remembered[path] = answer

    def lift(self):
        self._is_spoilt = lambda http: False
        self._lifted.set()

    async def __aenter__(self):
        self._client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        self._server = web.Server(self._serve, handler_cancellation=True, access_log=None)
        self._listener = await asyncio.get_running_loop().create_server(
            self._server, '127.0.0.1', 0
        )
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        await self._server.shutdown(timeout=0.1)
        await self._client.close()

    async def _serve(self, http):
        self.open += 1
        try:
            headers = {name: http.headers[name] for name in http.headers if name != 'Host'}
            url = yarl.URL(f'{self._target}{http.raw_path}', encoded=True).without_query_params(
                *self.ignored
            )
            body = await http.read()
            async with self._client.request(http.method, url, headers=headers, data=body) as answer:
                response = web.StreamResponse(
                    status=answer.status,
                    headers={
                        name: value
                        for name, value in answer.headers.items()
                        if name in ('Content-Type', 'Retry-After')
                    },
                )
                response.enable_chunked_encoding()
                await response.prepare(http)
                await self._pass(http, answer, response)
                return response
        except aiohttp.ClientError:  # the same happens to the client
            http.transport.abort()
            raise asyncio.CancelledError from None
        finally:
            self.open -= 1

    async def _pass(self, http, answer, response):
        way = self._way if self._is_spoilt(http) else ''
        content = await answer.read() if way == 'late' else b''
        if way:
            self.hits += 1
            self.hit.set()
        if way == 'torn':
            await response.write(b'{"type": "ADD')
            http.transport.abort()
            return
        if way == 'malformed':
            await response.write(b'{"type": nonsense}\n')
        elif way == 'late':
            await self._lifted.wait()
            await response.write(content)
        elif way == 'outdated':
            await response.write(self._remembered[http.path])
        elif way in ('', 'huge'):
            await self._copy(http, answer, response, self.HUGE if way else b'')
        await response.write_eof()

    async def _copy(self, http, answer, response, padding):
        self._remembered[http.path] = b''
        async for chunk in answer.content.iter_any():
            if 'watch' not in http.query:
                self._remembered[http.path] += chunk
            await response.write(chunk[:1] + padding + chunk[1:])
            padding = b''


def is_meddled(fault):
    """Tell if the requests must go through the meddler: it is the one who does harm."""
    return FAULTS[fault] in Meddler.WAYS


@contextlib.asynccontextmanager
async def keep_fault(fault, sandbox, meddler, *, downtime, is_meant, where):
    """
    Keep the fault for the block, and until the requests in question have met it at least once.

    The requests are told apart by a function in the meddler, and by the criteria in the sandbox.
    """
    trouble = FAULTS[fault]
    if trouble == 'refused':
        restarting = asyncio.create_task(
            sandbox.faults.restart(downtime=downtime), name='restarting'
        )
        await asyncio.sleep(0)
        yield
        await restarting
    elif isinstance(trouble, str):
        meddler.spoil(trouble, is_meant)
        yield
        await meddler.hit.wait()
        meddler.lift()
    else:
        with sandbox.faults.inject(**where, **trouble) as injected:
            yield
            await injected.wait_until_hit()
