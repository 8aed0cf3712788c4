"""
Users: they edit and create objects all the time, whatever happens to the operator.
"""

import asyncio
import contextlib
import itertools
import json
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import figures
import servers

LOADS = '/apis/bench.dev/v1/namespaces/default/loads'

PROBES = 200  # objects to edit in turn: each is left alone for some seconds
LABEL = 'edited'
SHARE = 3  # every third action is a creation


class Users(threading.Thread):
    """
    Edits and creates objects at the given rate until stopped; names and marks are never reused.

    New objects are edited too, in their turn. The actions are in ``edits``; the changes that these
    users see in their own watch-stream are in ``sightings``: no operator can handle a change before
    the server sends it. Read both at the end.
    """

    def __init__(
        self, cluster: servers.Cluster, names: list[str], *, numbers: itertools.count, rate: float
    ) -> None:
        super().__init__(name='users')
        self.edits: list[figures.Edit] = []
        self.sightings: list[figures.Call] = []
        self.error: BaseException | None = None
        self._cluster, self._names, self._numbers, self._rate = cluster, names, numbers, rate
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            asyncio.run(self._act())
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        """Stop the users, and wait. Raises their error if they have failed."""
        self._stopping.set()
        self.join()
        if self.error is not None:
            raise self.error

    async def _act(self) -> None:
        turns = itertools.cycle(range(SHARE))
        async with connect(self._cluster) as session, asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(session))
            due = time.monotonic()
            while not self._stopping.is_set():
                number = next(self._numbers)
                if next(turns) == 0:
                    group.create_task(self._create(session, number))
                else:
                    name = self._names.pop(0)
                    self._names.append(name)
                    group.create_task(self._edit(session, name, number))
                due += 1 / self._rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            watching.cancel()

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        async with session.get(LOADS, params={'limit': '1'}) as response:
            version = (await response.json())['metadata']['resourceVersion']
        forever = aiohttp.ClientTimeout(total=None)
        while True:
            params = {'watch': 'true', 'resourceVersion': version, 'labelSelector': f'{LABEL}=yes'}
            async with session.get(
                LOADS, params=params, timeout=forever, read_bufsize=2**20
            ) as response:
                async for line in response.content:
                    body = json.loads(line)['object']
                    version = body['metadata']['resourceVersion']
                    self.sightings.append(
                        figures.Call(
                            'see',
                            body['metadata']['name'],
                            body['spec']['replicas'],
                            time.monotonic(),
                        )
                    )

    async def _create(self, session: aiohttp.ClientSession, number: int) -> None:
        manifest = make_object(number, mark=number)
        name, since = manifest['metadata']['name'], time.monotonic()
        await servers.send(session, 'POST', LOADS, manifest)
        accepted = time.monotonic()
        self.edits.append(
            figures.Edit(name, number, accepted, is_creation=True, took=accepted - since)
        )
        self._names.append(name)

    async def _edit(self, session: aiohttp.ClientSession, name: str, mark: int) -> None:
        since = time.monotonic()
        await servers.send(
            session, 'PATCH', f'{LOADS}/{name}', {'spec': {'replicas': mark}}, kind=servers.MERGE
        )
        accepted = time.monotonic()
        self.edits.append(figures.Edit(name, mark, accepted, took=accepted - since))


def make_object(number: int, *, mark: int) -> dict[str, Any]:
    """Make an object like all others, but with a label: the users watch only their own objects."""
    manifest = servers.make_object(number)
    manifest['metadata']['labels'][LABEL] = 'yes'
    manifest['spec']['replicas'] = mark
    return manifest


def create_probes(cluster: servers.Cluster, numbers: itertools.count) -> list[str]:
    """Create the objects to be edited later."""
    manifests = [make_object(next(numbers), mark=1) for _ in range(PROBES)]

    async def create() -> None:
        async with connect(cluster) as session:
            for manifest in manifests:
                await servers.send(session, 'POST', LOADS, manifest)

    asyncio.run(create())
    return [manifest['metadata']['name'] for manifest in manifests]


@contextlib.asynccontextmanager
async def connect(cluster: servers.Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=cluster.context)
    headers = {'Authorization': f'Bearer {cluster.token}'}
    async with aiohttp.ClientSession(cluster.url, headers=headers, connector=connector) as session:
        yield session
