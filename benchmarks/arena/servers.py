"""The API servers for the measurements: a real control plane, or the sandbox; with many objects."""

import asyncio
import base64
import contextlib
import copy
import importlib.util
import json
import os
import pathlib
import ssl
import sys
import tempfile
import urllib.error
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

import aiohttp
import paces
import processes
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
NAMESPACES = '/api/v1/namespaces'
CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1',
    'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'loads.bench.dev'},
    'spec': {
        'group': 'bench.dev',
        'scope': 'Namespaced',
        'names': {'plural': 'loads', 'kind': 'Load'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'schema': {
                    'openAPIV3Schema': {
                        'type': 'object',
                        'x-kubernetes-preserve-unknown-fields': True,
                    }
                },
            }
        ],
    },
}
MERGE = 'application/merge-patch+json'
CONNECTIONS = 10  # concurrent
ATTEMPTS, BUSY = 30, {429, 500, 503, 504}
PAGE = '2000'
FINALIZER = 'kopf.zalando.org/KopfFinalizerMarker'
HANDLED = 'kopf.zalando.org/last-handled-configuration'

Maker = Callable[[int], dict[str, Any]]
Result = TypeVar('Result')


def make_object(number: int) -> dict[str, Any]:
    """Make an object of 1 kB as stored, without ``managedFields``."""
    return {
        'apiVersion': 'bench.dev/v1',
        'kind': 'Load',
        'metadata': {
            'name': f'load-{number}',
            'labels': {'app': 'bench', 'shard': str(number % 10)},
        },
        'spec': {
            'replicas': 1,
            'items': [{'name': f'item-{n}', 'size': n, 'note': 'y' * 20} for n in range(10)],
        },
    }


def make_held_object(number: int) -> dict[str, Any]:
    """Make the same object with the finalizer, so that adding it is not measured."""
    body = make_object(number)
    body['metadata']['finalizers'] = [FINALIZER]
    return body


def make_handled_object(number: int) -> dict[str, Any]:
    """Make the same object as if it was handled before."""
    body = make_held_object(number)
    essence = {'spec': body['spec'], 'metadata': {'labels': body['metadata']['labels']}}
    body['metadata']['annotations'] = {HANDLED: json.dumps(essence, separators=(',', ':')) + '\n'}
    return body


def build_load_path(cluster: 'Cluster', number: int) -> str:
    return f'{cluster.loads}/load-{number}'


def build_load_change(due: float) -> dict[str, Any]:
    return {'spec': {'sent': due}}


class Cluster:
    """A load generator: many requests over a few connections. Each method runs its own loop."""

    def __init__(
        self, kubeconfig: pathlib.Path, *, compact: Callable[[], None] | None = None
    ) -> None:
        self.kubeconfig, self.namespace, self._compact = kubeconfig, 'default', compact
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config['clusters'][0]['cluster']
        self.url, self.token = cluster['server'], config['users'][0]['user']['token']
        if 'certificate-authority-data' in cluster:
            authority = base64.b64decode(cluster['certificate-authority-data']).decode()
        else:
            authority = (kubeconfig.parent / cluster['certificate-authority']).read_text()
        self.context = ssl.create_default_context(cadata=authority)

    @property
    def loads(self) -> str:
        return f'/apis/bench.dev/v1/namespaces/{self.namespace}/loads'

    def prepare(self) -> None:
        """Define the resource, and wait until it is served."""

        async def define(session: aiohttp.ClientSession) -> None:
            await send(session, 'POST', CRDS, CRD)
            while True:
                async with session.get(self.loads) as response:
                    if response.ok:
                        return
                await asyncio.sleep(0.1)

        self._run(define)

    def create_namespace(self, namespace: str) -> None:
        self._run(
            lambda session: send(session, 'POST', NAMESPACES, {'metadata': {'name': namespace}})
        )

    def enter(self, namespace: str) -> 'Cluster':
        """Return the same cluster as seen from that namespace."""
        entered = copy.copy(self)
        entered.namespace = namespace
        return entered

    def get_path(self, plural: str) -> str:
        """Return the path of a resource of the core API in the namespace."""
        return f'/api/v1/namespaces/{self.namespace}/{plural}'

    def create(
        self, total: int, *, make: Maker = make_object, first: int = 0, path: str | None = None
    ) -> None:
        self._repeat(
            range(first, total),
            lambda session, number: send(session, 'POST', path or self.loads, make(number)),
        )

    def update(self, total: int, replicas: int) -> None:
        self._repeat(
            range(total),
            lambda session, number: self._patch(session, number, {'replicas': replicas}),
        )

    def change(self, number: int, **spec: Any) -> None:
        """Change only one object."""
        self._repeat([number], lambda session, _: self._patch(session, number, spec))

    def pace(
        self,
        numbers: Iterable[int],
        *,
        rate: float,
        connections: int = CONNECTIONS,
        build_path: Callable[['Cluster', int], str] = build_load_path,
        build_body: Callable[[float], Any] = build_load_change,
    ) -> list[float]:
        """
        Change objects at this rate, if the server can sustain it; store due times in them.

        Returns the seconds of each request.
        """
        headers = {'Authorization': f'Bearer {self.token}'}
        sender = paces.Sender(self.url, headers, self.context, connections=connections)
        urls = [build_path(self, number) for number in numbers]
        return sender.send(urls, build_body, rate=rate)

    def delete(self, total: int) -> None:
        self._repeat(
            range(total),
            lambda session, number: send(session, 'DELETE', f'{self.loads}/load-{number}', None),
        )

    def count(self) -> int:
        return len(self.list_versions())

    def clear(self) -> None:
        """Remove all objects, despite their finalizers."""

        async def wipe(session: aiohttp.ClientSession, name: str) -> None:
            await send(
                session,
                'PATCH',
                f'{self.loads}/{name}',
                {'metadata': {'finalizers': None}},
                kind=MERGE,
            )
            await send(session, 'DELETE', f'{self.loads}/{name}', None)

        self._repeat(self.list_versions(), wipe)

    def compact(self) -> None:
        """
        Drop the history of objects, if it is stored, since it would fill the storage.

        There must be no watch-streams at that time.
        """
        if self._compact is not None:
            with contextlib.suppress(urllib.error.HTTPError):  # there is nothing new to drop
                self._compact()

    def list_versions(self) -> dict[str, str]:
        """Return the resource versions of all objects by name."""
        return self._list('resourceVersion')

    def list_uids(self) -> dict[str, str]:
        """Return the uids of all objects by name."""
        return self._list('uid')

    def _list(self, field: str) -> dict[str, str]:
        async def ask(session: aiohttp.ClientSession) -> dict[str, str]:
            found: dict[str, str] = {}
            token = ''
            while True:
                async with session.get(
                    self.loads, params={'limit': PAGE, 'continue': token}
                ) as response:
                    page = await response.json()
                found |= {
                    item['metadata']['name']: item['metadata'][field] for item in page['items']
                }
                token = page['metadata'].get('continue', '')
                if not token:
                    return found

        return self._run(ask)

    async def _patch(
        self, session: aiohttp.ClientSession, number: int, spec: dict[str, Any]
    ) -> None:
        await send(session, 'PATCH', f'{self.loads}/load-{number}', {'spec': spec}, kind=MERGE)

    def _repeat(
        self, values: Iterable[Any], action: Callable[[aiohttp.ClientSession, Any], Awaitable[None]]
    ) -> None:
        """Repeat the action for all values, several at once."""

        async def work(session: aiohttp.ClientSession, queue: Iterator[Any]) -> None:
            for value in queue:
                await action(session, value)

        async def work_all(session: aiohttp.ClientSession) -> None:
            queue = iter(values)
            async with asyncio.TaskGroup() as group:
                for _ in range(CONNECTIONS):
                    group.create_task(work(session, queue))

        self._run(work_all)

    def _run(self, action: Callable[[aiohttp.ClientSession], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            async with self._connect() as session:
                return await action(session)

        return asyncio.run(run())

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[aiohttp.ClientSession]:
        headers = {'Authorization': f'Bearer {self.token}'}
        connector = aiohttp.TCPConnector(ssl=self.context)
        async with aiohttp.ClientSession(self.url, headers=headers, connector=connector) as session:
            yield session


async def send(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    body: Any,
    *,
    kind: str = 'application/json',
) -> None:
    """Make a request. It is retried if the server is busy; the status 404 is not an error."""
    data = None if body is None else json.dumps(body)
    for _ in range(ATTEMPTS):
        async with session.request(
            method, url, data=data, headers={'Content-Type': kind}
        ) as response:
            text = await response.text()
            if response.ok or response.status == 404:
                return
        if response.status not in BUSY:
            break
        await asyncio.sleep(1)
    raise SystemExit(f'{method} {url}: {response.status}: {text[:500]}')


@contextlib.contextmanager
def serve_controlplane() -> Iterator[Cluster]:
    """Serve a real control plane, as in the tests: it must be built before."""
    spec = importlib.util.spec_from_file_location(
        'controlplanes', ROOT / 'tests' / 'controlplanes.py'
    )
    assert spec is not None and spec.loader is not None
    sys.modules['controlplanes'] = controlplanes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(controlplanes)
    build = controlplanes.find_build(os.environ)
    if build is None:
        raise SystemExit(
            'There is no control plane here: `make controlplane` builds it; or use --sandbox.'
        )
    with controlplanes.run_controlplane(build) as controlplane:
        cluster = Cluster(controlplane.admin.kubeconfig, compact=controlplane.compact)
        cluster.prepare()
        yield cluster


@contextlib.contextmanager
def serve_sandbox(*, core: int | None = None) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        kubeconfig = directory / 'kubeconfig'
        command = [sys.executable, '-m', 'kopf', 'sandbox', '--kubeconfig', str(kubeconfig)]
        sandbox = processes.Measured(command, directory=directory, environ={}, core=core)
        try:
            sandbox.wait_until(lambda: kubeconfig.exists() and kubeconfig.stat().st_size > 0)
            cluster = Cluster(kubeconfig)
            cluster.prepare()
            yield cluster
        finally:
            sandbox.stop()
