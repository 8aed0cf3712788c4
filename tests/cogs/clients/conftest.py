"""
A sandbox to talk to, servers that spoil what it says or say whatever they are told to, and the
context of requests.
"""

import asyncio
import contextlib
import itertools
import socket

import pytest
from api_fixtures import context, make_context, meddler, operator_settings, sandbox

import kopf.testing
from kopf._cogs.clients.http import aiohttp_sessions, environs, sessions
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.structs import credentials, references

__all__ = ['context', 'make_context', 'meddler', 'operator_settings', 'sandbox']  # for pytest


@pytest.fixture
async def secure_sandbox():
    async with kopf.testing.Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def renew(make_context):
    """
    Make contexts of requests with a login that always brings new credentials, as tokens are
    rejected in 401s.
    """
    tasks = []

    async def login(vault, server, token):
        for priority in itertools.count(1):  # so that it is also the number of logins
            await vault.wait_until_needed()
            await vault.populate(
                {'admin': credentials.ConnectionInfo(server=server, token=token, priority=priority)}
            )

    async def renew(server, token):
        context = make_context(admin=credentials.ConnectionInfo(server=server, token=token))
        tasks.append(asyncio.create_task(login(context.vault, server, token), name='login'))
        return context

    yield renew
    for task in tasks:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def renewed_context(sandbox, renew):
    return await renew(sandbox.url, sandbox.token)


class Reading:
    """A task that reads a stream of config maps, and all that it has read."""

    def __init__(self, context, state, namespace):
        self.state, self.items, self.namespace = state, [], namespace
        self._context, self._came = context, asyncio.Condition()

    @property
    def events(self):
        """
        All events in short: ``(type, name, value)``, and the markers. The config map that is in
        every namespace is left out.
        """
        return [
            item
            if item is stream_states.Marker.LISTED
            else (
                item['type'],
                item['object']['metadata']['name'],
                item['object'].get('data', {}).get('x'),
            )
            for item in self.items
            if item is stream_states.Marker.LISTED
            or item['object']['metadata'].get('name') != 'kube-root-ca.crt'
        ]

    @property
    def objects(self):
        """
        The objects that exist, if the events are right: ``(uid, version)`` by name. The events must
        be in order.
        """
        objects = {}
        for event in self.items:
            if event is stream_states.Marker.LISTED:
                continue
            metadata = event['object']['metadata']
            if event['type'] == 'DELETED':
                assert objects.pop(metadata['name'])['metadata']['uid'] == metadata['uid']
            else:
                assert event['type'] in ('MODIFIED', None) or metadata['name'] not in objects
                objects[metadata['name']] = event['object']
        return {
            name: (body['metadata']['uid'], body['metadata']['resourceVersion'])
            for name, body in objects.items()
        }

    async def run(self):
        resource = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)
        stream = event_streams.stream_events(
            resource, self.namespace, context=self._context, state=self.state
        )
        async with contextlib.aclosing(stream):
            async for item in stream:
                async with self._came:
                    self.items.append(item)
                    self._came.notify_all()

    async def wait_for(self, item, timeout=3600):
        async with asyncio.timeout(timeout), self._came:
            await self._came.wait_for(lambda: item in self.events)

    async def wait_until(self, condition):
        delay = 0.001
        async with asyncio.timeout(3600):
            while not condition():
                await asyncio.sleep(delay)
                delay = min(1.0, delay * 1.5)

    async def wait_until_connected(self):
        await self.wait_until(lambda: self.state.phase is stream_states.Phase.CONNECTED)


@pytest.fixture
async def read(context):
    """Begin to read a stream; end it with the test."""
    tasks = []

    async def read(context=context, state=None, namespace='default'):
        reading = Reading(context, state or stream_states.StreamState(), namespace)
        tasks.append(asyncio.create_task(reading.run(), name='reading'))
        return reading

    yield read
    for task in tasks:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.fixture
async def change_everything(sandbox):
    """
    Add, modify, delete, and recreate objects while nobody listens; the fixture itself creates them.
    """
    names = ['same', 'modified', 'deleted', 'recreated']
    bodies = {
        name: {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': name}}
        for name in [*names, 'new']
    }
    for name in names:
        await sandbox.create(bodies[name])

    async def change_everything():
        await sandbox.create(bodies['new'] | {'data': {'x': '1'}})
        await sandbox.patch('configmaps', 'modified', {'data': {'x': '2'}})
        await sandbox.delete('configmaps', 'deleted')
        await sandbox.delete('configmaps', 'recreated')
        await sandbox.create(bodies['recreated'] | {'data': {'x': '3'}})

    return change_everything


@pytest.fixture
async def check(sandbox):
    """Check that the stream tells in the end what there is in the cluster, and goes on."""

    async def check(reading):
        await sandbox.create(
            {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'last'}}
        )
        await reading.wait_for(('ADDED', 'last', None))
        bodies = await sandbox.list('configmaps', 'default')
        expected = {
            body['metadata']['name']: (body['metadata']['uid'], body['metadata']['resourceVersion'])
            for body in bodies
        }
        assert reading.objects == expected
        assert {key.name: tuple(seen) for key, seen in reading.state.known.items()} == expected

    return check


@pytest.fixture(params=['direct', 'foreign'])
async def open_session(request):
    """Open sessions of both kinds, and close them when the test ends."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_session(**kwargs):
            info = credentials.ConnectionInfo(**kwargs)
            if request.param == 'direct':
                session = await sessions.open_session(info)
            else:
                info = environs.resolve(info)
                session = aiohttp_sessions.make_session(
                    info, info.as_ssl_context() if info.server[:6] == 'https:' else None
                )
            stack.push_async_callback(session.close)
            return session

        yield open_session


class Scripted:
    """A server that answers each request with the next of the texts, and remembers the requests."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.connections = 0
        self.left = asyncio.Event()  # some client has disconnected
        self._came = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        host, port, *_ = self._server.sockets[0].getsockname()
        return f'http://{host}:{port}'

    async def wait_until_asked(self, times: int = 1) -> None:
        """Wait until there are so many requests."""
        async with self._came:
            await self._came.wait_for(lambda: len(self.asked) >= times)

    def disconnect(self) -> None:
        """Close all connections properly, with whatever was sent."""
        for writer in self._writers:
            writer.close()

    async def __aenter__(self) -> 'Scripted':
        self._server = await asyncio.start_server(self._serve, '127.0.0.1', 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b'\r\n\r\n')
                async with self._came:
                    self.asked.append(head)
                    self._came.notify_all()
                if not self.answers:
                    await reader.read()  # silence
                    break
                writer.write(self.answers.pop(0))
                await writer.drain()
                if b'connection: close' in head.lower():
                    break
        self.left.set()
        writer.close()


@pytest.fixture
def scripted():
    return Scripted


@pytest.fixture
def deaf_url():
    """The address of a server that never establishes connections: its queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(('127.0.0.1', 0))
        listener.listen(0)
        for _ in range(3):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield f'http://127.0.0.1:{listener.getsockname()[1]}'
