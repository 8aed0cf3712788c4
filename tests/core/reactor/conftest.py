"""
A sandbox to observe, a server in between that spoils what it says, and the context of requests.
"""
import asyncio
import contextlib
import itertools
import logging

import aiohttp
import pytest
import yarl
from aiohttp import web

import kopf.testing
from kopf._cogs.clients import limits, requests
from kopf._cogs.configs import settings
from kopf._cogs.structs import credentials, vaults
from kopf._core.reactor import observation

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


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
async def guarded_sandbox():
    """A sandbox in which rights matter."""
    async with kopf.testing.Sandbox(tls=False, rbac=True) as sandbox:
        yield sandbox


@pytest.fixture
def operator_settings():
    return settings.OperatorSettings()


@pytest.fixture
async def make_context(operator_settings):
    """Make contexts of requests with these credentials; the delays there are exact."""
    async with contextlib.AsyncExitStack() as stack:
        def make(**infos):
            vault = vaults.Vault(infos)
            stack.push_async_callback(vault.close)
            return requests.Context(vault, operator_settings, logging.getLogger('kopf.test'), limits.Gates(),
                                    chance=lambda: 0.0)
        yield make


@pytest.fixture
async def context(sandbox, make_context):
    return make_context(admin=credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token))


@pytest.fixture
async def meddled_context(sandbox, meddler, make_context):
    """The context of requests through the meddler."""
    return make_context(admin=credentials.ConnectionInfo(server=meddler.url, token=sandbox.token))


@pytest.fixture
async def troubled_context(sandbox, meddler, make_context, fault):
    """The context of requests with a login that brings new credentials again and again."""
    url = meddler.url if FAULTS[fault] in Meddler.WAYS else sandbox.url
    context = make_context(admin=credentials.ConnectionInfo(server=url, token=sandbox.token))

    async def login():
        for priority in itertools.count(1):
            await context.vault.wait_until_needed()
            info = credentials.ConnectionInfo(server=url, token=sandbox.token, priority=priority)
            await context.vault.populate({'admin': info})

    task = asyncio.create_task(login(), name='login')
    yield context
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Meddler:
    """
    A server in front of a sandbox: it passes everything through, but spoils some of the answers on the way.

    The ways of spoiling: ``torn`` (the connection is lost in the middle of the answer), ``malformed``, ``empty``,
    ``huge`` (8 MB more of JSON's spaces than usual), ``outdated`` (the same as the last time before), ``late`` (what
    was true then, but not until the spoiling is lifted).
    """
    WAYS = 'torn', 'malformed', 'empty', 'huge', 'outdated', 'late'
    HUGE = b' ' * 8_000_000

    def __init__(self, target):
        self.hit = asyncio.Event()
        self.hits = 0
        self._lifted = asyncio.Event()
        self._target, self._way, self._is_spoilt, self._remembered = target, '', lambda http: False, {}

    @property
    def url(self):
        host, port, *_ = self._listener.sockets[0].getsockname()
        return f'http://{host}:{port}'

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
        self._listener = await asyncio.get_running_loop().create_server(self._server, '127.0.0.1', 0)
        return self

    async def __aexit__(self, *_):
        self._listener.close()
        await self._server.shutdown(timeout=0.1)
        await self._client.close()

    async def _serve(self, http):
        headers = {name: http.headers[name] for name in http.headers if name != 'Host'}
        url, body = yarl.URL(f'{self._target}{http.raw_path}', encoded=True), await http.read()
        async with self._client.request(http.method, url, headers=headers, data=body) as answer:
            response = web.StreamResponse(status=answer.status, headers={
                name: value for name, value in answer.headers.items() if name in ('Content-Type', 'Retry-After')})
            response.enable_chunked_encoding()
            await response.prepare(http)
            await self._pass(http, answer, response)
            return response

    async def _pass(self, http, answer, response):
        way = self._way if self._is_spoilt(http) else ''
        if way:
            self.hits += 1
        if way and way != 'late':
            self.hit.set()
        if way in ('torn', 'malformed'):
            await response.write(b'{"type": "ADD' if way == 'torn' else b'{"type": nonsense}\n')
        if way == 'torn':
            http.transport.abort()
            return
        if way == 'late':
            content = await answer.read()
            self.hit.set()
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


@pytest.fixture
async def meddler(sandbox):
    async with Meddler(sandbox.url) as meddler:
        yield meddler


@pytest.fixture(params=FAULTS, ids=lambda fault: fault.replace(' ', '-'))
def fault(request):
    """Every fault, one by one."""
    return request.param


@pytest.fixture
def troubled(sandbox, meddler, fault):
    """Keep the fault for the block, and until the requests in question have met it at least once."""
    @contextlib.asynccontextmanager
    async def troubled(is_meant, **where):
        trouble = FAULTS[fault]
        if trouble == 'refused':
            restarting = asyncio.create_task(sandbox.faults.restart(downtime=700), name='restarting')
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
    return troubled


class Observing:
    """A task of an observer, and what it has found."""

    def __init__(self, insights, coroutine):
        self.insights = insights
        self.task = asyncio.create_task(coroutine, name='observing')

    async def wait_until(self, condition, timeout=3600):
        """Wait until the insights are such; they must be told of, not just be there."""
        async with asyncio.timeout(timeout):
            while not condition(self.insights):
                await self.insights.wait_until_changed(self.insights.revision)

    async def poll(self, condition):
        """Wait until the condition is true, with nothing to tell of it."""
        delay = 0.001
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(delay)
                delay = min(1.0, delay * 1.5)

    async def close(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def start(make_context):  # which is closed after the observers are
    """Start observers; end them with the test."""
    started = []

    def start(run, **kwargs):
        insights = observation.Insights()
        started.append(Observing(insights, run(insights=insights, **kwargs)))
        return started[-1]

    yield start
    for observing in started:
        if not observing.task.done():
            await observing.close()


@pytest.fixture
async def grant(guarded_sandbox):
    """Permit the user some verbs on some resources."""
    async def grant(resource, *verbs):
        group = {'customresourcedefinitions': 'apiextensions.k8s.io'}.get(resource, '')
        name = f'operator-{resource}'
        api = {'apiVersion': 'rbac.authorization.k8s.io/v1', 'metadata': {'name': name}}
        await guarded_sandbox.apply(
            {**api, 'kind': 'ClusterRole',
             'rules': [{'apiGroups': [group], 'resources': [resource], 'verbs': list(verbs)}]},
            {**api, 'kind': 'ClusterRoleBinding',
             'roleRef': {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'ClusterRole', 'name': name},
             'subjects': [{'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'User', 'name': 'operator'}]})
    return grant


@pytest.fixture
async def limited_context(guarded_sandbox, make_context):
    """The context of requests of a user who is permitted nothing but the discovery."""
    user = await guarded_sandbox.add_user('operator')
    return make_context(operator=credentials.ConnectionInfo(server=guarded_sandbox.url, token=user.token))
