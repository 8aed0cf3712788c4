"""
Servers for whole operators: the sandbox and real clusters, with the same few things to do to them.
"""

import asyncio
import base64
import contextlib
import dataclasses
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import controlplane_fixtures
import controlplanes
import yaml

import kopf.testing
from kopf._cogs.structs import credentials

WRITES = ('create', 'update', 'patch', 'delete', 'deletecollection')

Action = Callable[[], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request that the server has answered."""

    verb: str
    plural: str
    namespace: str
    name: str
    user_agent: str
    code: int | None
    query: str


@dataclasses.dataclass(frozen=True)
class Server:
    """
    An API server, with the rights of its administrator. What it cannot do is ``None``.

    To be taken ``down`` is to lose all connections and the history of changes, until it is brought
    ``up`` again.
    """

    kubeconfig: pathlib.Path
    info: credentials.ConnectionInfo
    down: Action | None = None
    up: Action | None = None
    compact: Action | None = None
    read_asked: Callable[[], Sequence[Asked]] | None = None


def from_sandbox(sandbox: kopf.testing.Sandbox) -> Server:
    """Its downtime is that of the port: it goes on in the background until the end of the fault."""
    info = credentials.ConnectionInfo(
        server=sandbox.url, ca_data=sandbox.ca_data, token=sandbox.token
    )
    outage = contextlib.ExitStack()

    async def go_down() -> None:
        await asyncio.to_thread(outage.enter_context, sandbox.faults.inject(cut=True))

    async def come_up() -> None:
        await asyncio.to_thread(outage.close)

    async def compact() -> None:
        await asyncio.to_thread(sandbox.compact)

    def read_asked() -> list[Asked]:
        return [
            Asked(
                asked.verb,
                asked.plural,
                asked.namespace,
                asked.name,
                asked.user_agent,
                asked.code,
                asked.query,
            )
            for asked in sandbox.requests
        ]

    return Server(sandbox.kubeconfig, info, go_down, come_up, compact, read_asked)


def from_cluster(cluster: controlplane_fixtures.Cluster) -> Server:
    """Of others' clusters, nothing is known but the way in."""
    own = cluster.own
    if own is None:
        return Server(cluster.kubeconfig, cluster.login())

    async def go_down() -> None:
        await asyncio.to_thread(own.stop_apiserver)

    async def come_up() -> None:
        await asyncio.to_thread(own.start_apiserver)

    async def compact() -> None:
        await asyncio.to_thread(own.compact)

    return Server(
        cluster.kubeconfig, cluster.login(), go_down, come_up, compact, lambda: _read_audit(own)
    )


def _read_audit(controlplane: controlplanes.ControlPlane) -> list[Asked]:
    return [
        Asked(
            event['verb'],
            target.get('resource', ''),
            target.get('namespace', ''),
            target.get('name', ''),
            event.get('userAgent', ''),
            event.get('responseStatus', {}).get('code'),
            event['requestURI'].partition('?')[2],
        )
        for event in controlplane.read_audit()
        if event['stage'] != 'ResponseStarted'
        for target in [event.get('objectRef') or {}]
    ]


def write_kubeconfig(
    path: pathlib.Path, origin: pathlib.Path, *, server: str = '', token: str = ''
) -> None:
    """Write a kubeconfig that is as another one, but leads elsewhere, or has another token."""
    config = yaml.safe_load(origin.read_text())
    for cluster in config['clusters']:
        if server:
            cluster['cluster']['server'] = server
        if authority := cluster['cluster'].pop('certificate-authority', ''):
            raw = origin.parent.joinpath(authority).read_bytes()
            cluster['cluster']['certificate-authority-data'] = base64.b64encode(raw).decode()
    if token:
        for user in config['users']:
            user['user'] = {'token': token}
    path.write_text(yaml.safe_dump(config))


class Wire:
    """A way to the server that can be cut: it passes the bytes on, whatever they are."""

    def __init__(self, info: credentials.ConnectionInfo) -> None:
        host, _, port = info.server.removeprefix('https://').partition(':')
        self._target = host, int(port or 443)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f'https://127.0.0.1:{self._port}'

    async def mend(self) -> None:
        """Begin or continue to accept connections, always at the same port."""
        self._server = await asyncio.start_server(self._serve, '127.0.0.1', self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection(*self._target)
            self._writers |= {writer, back}
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        self._writers.discard(writer)
        writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.transport.abort()
