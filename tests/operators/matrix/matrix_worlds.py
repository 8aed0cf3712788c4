"""
Worlds of the matrix: a cluster and an operator for one cell, until all is at rest.
"""

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import matrix_handlers
import matrix_patches
import matrix_servers
import matrix_storages
import settling
from clusters import PLURAL, Cluster
from matrix_servers import Meddling

import kopf
import kopf.testing


@dataclasses.dataclass(frozen=True)
class Cell:
    """One combination of the tables, by names."""

    patch_name: str
    server_name: str
    handling_name: str
    storage_name: str = 'default'
    has_status: bool = False

    def __str__(self) -> str:
        place = [self.storage_name, 'subresource'] if self.has_status else [self.storage_name]
        return '-'.join([self.patch_name, self.server_name, self.handling_name, *place])

    @property
    def patch(self) -> matrix_patches.Patch:
        return matrix_patches.PATCHES[self.patch_name]

    @property
    def server(self) -> matrix_servers.Server:
        return matrix_servers.SERVERS[self.server_name]

    @property
    def handling(self) -> matrix_handlers.Handling:
        return matrix_handlers.HANDLERS[self.handling_name]

    @property
    def storage(self) -> matrix_storages.Storage:
        return matrix_storages.STORAGES[self.storage_name]


@dataclasses.dataclass(frozen=True)
class Count:
    """What has happened in a part of the life of a cell."""

    calls: Sequence[matrix_handlers.Call]
    writes: Sequence[Any]  # requests, in order
    errors: Sequence[str]  # log lines

    @property
    def main_writes(self) -> list[Any]:
        return [asked for asked in self.writes if not asked.subresource]

    @property
    def status_writes(self) -> list[Any]:
        return [asked for asked in self.writes if asked.subresource]


class World:
    """A cluster with one object, handled by one operator. Used by one test."""

    def __init__(
        self,
        sandbox: Any,
        cell: Cell,
        settings: kopf.OperatorSettings,
        *,
        run: Callable[[], Awaitable[Any]],
        read_errors: Callable[[], Sequence[str]],
    ) -> None:
        self.cell = cell
        self.cluster = Cluster(sandbox)
        self.settings = settings
        self.calls = matrix_handlers.Calls()
        self.is_gone = False  # has the first object vanished?
        self.since = ''  # the version in the beginning
        self._run = run
        self._read_errors = read_errors
        self._is_meddled = False
        self._operator: Any = None
        self._start = 0, 0, 0

    async def prepare(self, registry: kopf.OperatorRegistry) -> None:
        """Set the cluster up, and declare the handlers."""
        sandbox = self.cluster.sandbox
        await matrix_servers.prepare(sandbox, self.cell.server, has_status=self.cell.has_status)
        self.since = (await sandbox.list('customresourcedefinitions'))[0]['metadata'][
            'resourceVersion'
        ]
        self.cell.storage.configure(self.settings)
        self.cell.handling.declare(registry, self.calls, self.act)

    async def act(self, kwargs: Mapping[str, Any]) -> Any:
        """Patch the object as the cell wants it; others meddle with the object once before that."""
        if not self._is_meddled:
            self._is_meddled = True
            await self._meddle(self.cell.server.meddling)
            self._break_requests()
        values = self.cell.server.get_values(self.cell.patch.place, kwargs['uid'])
        return self.cell.patch.write(kwargs['patch'], values)

    async def start(self) -> None:
        self._operator = await self._run()

    async def stop(self) -> None:
        await self._operator.stop()

    async def live(self) -> Count:
        """Bring the function to its turn, and wait until all is done."""
        trigger = self.cell.handling.trigger
        if trigger is matrix_handlers.Trigger.START:
            await self.cluster.create()
            self.begin()
            await self.start()
            return await self.settle()

        await self.start()
        self.begin()
        await self.cluster.create()
        if trigger is matrix_handlers.Trigger.EDIT:
            await self.settle()
            self.begin()
            await self.cluster.patch({'spec': {'x': 2}})
        return await self.settle()

    async def restart(self) -> Count:
        """Stop the operator, and start it again; wait until all is done."""
        await self.stop()
        self.begin()
        await self.start()
        return await self.settle()

    def begin(self) -> None:
        """Count from now on."""
        self._start = len(self.calls), len(self.cluster.writes), len(self._read_errors())

    def count(self) -> Count:
        calls, writes, errors = self._start
        return Count(self.calls[calls:], self.cluster.writes[writes:], self._read_errors()[errors:])

    async def settle(self) -> Count:
        """Wait until nothing happens for long; raises `NoRestError` if too much does."""
        await settling.settle(self.calls, lambda: self.count().writes)
        return self.count()

    async def pass_time(self, delay: float) -> Count:
        """Let so many seconds pass; raises `NoRestError` if too much happens in them."""
        await settling.pass_time(delay, self.calls, lambda: self.count().writes)
        return self.count()

    async def read_history(self) -> dict[str, list[dict[str, Any]]]:
        """Read all states that the objects have had, in order, by their uids."""
        history: dict[str, list[dict[str, Any]]] = {}
        async with contextlib.aclosing(
            self.cluster.sandbox.watch(PLURAL, since=self.since, timeout=1)
        ) as events:
            async for event in events:
                if event['type'] in ('ADDED', 'MODIFIED'):
                    history.setdefault(event['object']['metadata']['uid'], []).append(
                        event['object']
                    )
        return history

    async def _meddle(self, meddling: Meddling) -> None:
        if meddling is Meddling.NOTHING:
            return
        if meddling is Meddling.TOUCH:
            await self.cluster.patch(
                {'status': {'touched': True}}, subresource='status' if self.cell.has_status else ''
            )
        if meddling is Meddling.EDIT:
            await self.cluster.patch({'spec': {'x': 5}})
        if meddling in (Meddling.DELETE, Meddling.RECREATE):
            await self._remove()
        if meddling is Meddling.RECREATE:
            await self.cluster.create(spec={'x': 9})
        await asyncio.sleep(1)  # let the operator know

    async def _remove(self) -> None:
        await self.cluster.delete()
        with contextlib.suppress(
            kopf.testing.ApiError
        ):  # it is gone already if nothing has held it
            await self.cluster.patch({'metadata': {'finalizers': None}})
        self.is_gone = True

    def _break_requests(self) -> None:
        if self.cell.server.conflicts:
            self.cluster.sandbox.faults.inject(
                code=409,
                verb='patch',
                resource=PLURAL,
                user_agent='kopf/*',
                times=self.cell.server.conflicts,
            )


def describe(count: Count) -> str:
    """Describe all that has happened, for the log of a failed cell."""
    calls = [call.describe() for call in count.calls[:5]]
    writes = [
        (asked.content_type.partition('-')[0].rpartition('/')[2], asked.subresource, asked.code)
        for asked in count.writes[:8]
    ]
    return '; '.join(
        [
            f'{len(count.calls)} calls: {calls}',
            f'{len(count.writes)} writes: {writes}',
            f'{len(count.errors)} errors: {count.errors[:3]}',
        ]
    )


def read_errors(records: Sequence[logging.LogRecord]) -> list[str]:
    """Read the log lines about lost work."""
    return [record.getMessage() for record in records if record.levelno >= logging.ERROR]
