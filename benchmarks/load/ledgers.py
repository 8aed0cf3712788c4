"""
Ledgers: the calls of the operator, its requests to the API server, and its traces on objects.
"""

import asyncio
import collections
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import figures
import servers
import users

import kopf

FINALIZER = kopf.OperatorSettings().persistence.finalizer
PREFIX = 'kopf.zalando.org/'
RECORD = f'{PREFIX}last-handled-configuration'
PAGE = 500
EXAMPLES = 3


class Ledger:
    """The records of handlers, read as they grow."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.path.touch()
        self.calls: list[figures.Call] = []
        self._offset = 0

    def read(self) -> list[figures.Call]:
        """Read the new records, and return all records."""
        with self.path.open('rb') as file:
            file.seek(self._offset)
            raw = file.read()
        complete = raw[: raw.rfind(b'\n') + 1]
        self._offset += len(complete)
        self.calls += [figures.Call(*json.loads(line)) for line in complete.splitlines()]
        return self.calls

    def select(self, *whats: str) -> list[figures.Call]:
        return [call for call in self.read() if call.what in whats]


Count = Callable[[], Mapping[str, int]]
"""Counts all requests of the operator since the beginning, by verb."""


class Audit:
    """The audit log of a real API server, with all requests."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory

    def count(self) -> Mapping[str, int]:
        paths = self._directory.glob('audit*.log')  # the log is rotated when it grows
        return collections.Counter(verb for path in paths for verb in self._read(path))

    def _read(self, path: pathlib.Path) -> Iterator[str]:
        with path.open('rb') as lines:
            for line in lines:
                if b'"userAgent":"kopf/' in line and b'"loads"' in line:
                    event = json.loads(line)
                    if event['stage'] == 'ResponseComplete':
                        yield event['verb']


def list_objects(cluster: servers.Cluster) -> dict[str, dict[str, Any]]:
    """Return all objects by name."""

    async def ask() -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        params = {'limit': str(PAGE)}
        async with users.connect(cluster) as session:
            while True:
                async with session.get(users.LOADS, params=params) as response:
                    page = await response.json()
                found |= {item['metadata']['name']: item for item in page['items']}
                if not page['metadata'].get('continue'):
                    return found
                params = {'limit': str(PAGE), 'continue': page['metadata']['continue']}

    return asyncio.run(ask())


def check_object(body: dict[str, Any]) -> str:
    """Describe what is wrong with the operator's traces on an object; empty if all is well."""
    storage = kopf.OperatorSettings().persistence.diffbase_storage
    wrapped = kopf.Body(body)
    if storage.fetch(body=wrapped) != storage.build(body=wrapped):
        return 'its last state is not recorded as handled'
    if FINALIZER not in body['metadata'].get('finalizers', ()):
        return 'it has no finalizer'
    if any(key.startswith(PREFIX) and key != RECORD for key in body['metadata']['annotations']):
        return 'there is unfinished progress on it'
    return ''


def find_lost(
    objects: Mapping[str, dict[str, Any]],
    calls: Collection[figures.Call],
    expected: Mapping[str, figures.Call],
    edits: Collection[figures.Edit],
) -> list[str]:
    """
    Return what was lost or done needlessly, one line per problem.

    ``expected`` are the calls for the objects that existed at the start, by name; besides them,
    only calls for the edits are permitted.
    """
    problems: dict[str, list[str]] = collections.defaultdict(list)
    for name, body in objects.items():
        if trouble := check_object(body):
            problems[trouble].append(name)
    done = {(call.what, call.name, call.mark) for call in calls}
    for name, call in expected.items():
        if (call.what, name, call.mark) not in done:
            problems['it was not handled'].append(name)
        if call.what == 'delete' and name in objects:
            problems['it still exists'].append(name)
    handled = {(name, mark) for _, name, mark in done}
    for name in {edit.name for edit in edits}:
        if name not in objects or (name, objects[name]['spec']['replicas']) not in handled:
            problems['its last edit was not handled'].append(name)
    permitted = {(call.name, call.mark) for call in expected.values()} | {
        (edit.name, edit.mark) for edit in edits
    }
    for name, _ in sorted(handled - permitted):
        problems['it was handled without a reason'].append(name)
    return [
        f'{len(names)} objects, e.g. {", ".join(names[:EXAMPLES])}: {trouble}'
        for trouble, names in problems.items()
    ]
