"""
A sandbox to talk to, a server that says whatever it is told to, and the context of requests.
"""
import asyncio
import contextlib
import logging
import socket

import pytest

import kopf.testing
from kopf._cogs.clients import limits, requests, sessions
from kopf._cogs.configs import settings
from kopf._cogs.structs import credentials, vaults


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
async def secure_sandbox():
    async with kopf.testing.Sandbox() as sandbox:
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
async def open_session():
    """Open sessions, and close them when the test ends."""
    async with contextlib.AsyncExitStack() as stack:
        async def open_session(**kwargs):
            session = await sessions.open_session(credentials.ConnectionInfo(**kwargs))
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
