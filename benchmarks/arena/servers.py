"""The API servers that operators are measured with: a real control plane, or the sandbox; with many objects in it."""
import asyncio
import base64
import contextlib
import importlib.util
import json
import os
import pathlib
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import aiohttp
import processes
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
LOADS = '/apis/bench.dev/v1/namespaces/default/loads'
CRD = {
    'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition',
    'metadata': {'name': 'loads.bench.dev'},
    'spec': {'group': 'bench.dev', 'scope': 'Namespaced', 'names': {'plural': 'loads', 'kind': 'Load'}, 'versions': [{
        'name': 'v1', 'served': True, 'storage': True,
        'schema': {'openAPIV3Schema': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}}}]},
}
MERGE = 'application/merge-patch+json'
CONNECTIONS = 10


def make_object(number: int) -> dict[str, Any]:
    """An object of 1 kB as it is stored, besides ``managedFields``."""
    return {
        'apiVersion': 'bench.dev/v1', 'kind': 'Load',
        'metadata': {'name': f'load-{number}', 'labels': {'app': 'bench', 'shard': str(number % 10)}},
        'spec': {'replicas': 1, 'items': [{'name': f'item-{n}', 'size': n, 'note': 'y' * 20} for n in range(10)]},
    }


class Cluster:
    """How to make load on a server: many requests by a few connections. Each method runs a loop of its own."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self.kubeconfig = kubeconfig
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config['clusters'][0]['cluster']
        self.url, self.token = cluster['server'], config['users'][0]['user']['token']
        if 'certificate-authority-data' in cluster:
            authority = base64.b64decode(cluster['certificate-authority-data']).decode()
        else:
            authority = (kubeconfig.parent / cluster['certificate-authority']).read_text()
        self.context = ssl.create_default_context(cadata=authority)

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[aiohttp.ClientSession]:
        headers = {'Authorization': f'Bearer {self.token}'}
        connector = aiohttp.TCPConnector(ssl=self.context, limit=CONNECTIONS)
        async with aiohttp.ClientSession(self.url, headers=headers, connector=connector) as session:
            yield session

    def prepare(self) -> None:
        """Define the resource, and wait until it is served."""
        async def define() -> None:
            async with self.connect() as session:
                await send(session, 'POST', CRDS, CRD)
                while True:
                    async with session.get(LOADS) as response:
                        if response.ok:
                            return
                    await asyncio.sleep(0.1)
        asyncio.run(define())

    def create(self, total: int) -> None:
        self._repeat(range(total), lambda session, number: send(session, 'POST', LOADS, make_object(number)))

    def update(self, total: int, replicas: int) -> None:
        patch = {'spec': {'replicas': replicas}}
        self._repeat(range(total), lambda session, number: send(
            session, 'PATCH', f'{LOADS}/load-{number}', patch, kind=MERGE))

    def delete(self, total: int) -> None:
        self._repeat(range(total), lambda session, number: send(session, 'DELETE', f'{LOADS}/load-{number}', None))

    def count(self) -> int:
        async def ask() -> int:
            async with self.connect() as session, session.get(LOADS, params={'limit': '1'}) as response:
                found = await response.json()
                return len(found['items']) + found['metadata'].get('remainingItemCount', 0)
        return asyncio.run(ask())

    def clear(self) -> None:
        """Remove all objects, whatever holds them."""
        async def wipe(session: aiohttp.ClientSession, name: str) -> None:
            await send(session, 'PATCH', f'{LOADS}/{name}', {'metadata': {'finalizers': None}}, kind=MERGE)
            await send(session, 'DELETE', f'{LOADS}/{name}', None)

        self._repeat(self.list_versions(), wipe)

    def list_versions(self) -> dict[str, str]:
        """All objects by their names."""
        async def ask() -> list[dict[str, Any]]:
            async with self.connect() as session, session.get(LOADS) as response:
                return [item['metadata'] for item in (await response.json())['items']]
        return {metadata['name']: metadata['resourceVersion'] for metadata in asyncio.run(ask())}

    def _repeat(self, values: Iterable[Any], action: Callable[[aiohttp.ClientSession, Any], Awaitable[None]]) -> None:
        """Do it with all values, several at once."""
        async def work(session: aiohttp.ClientSession, queue: Iterator[Any]) -> None:
            for value in queue:
                await action(session, value)

        async def work_all() -> None:
            queue = iter(values)
            async with self.connect() as session, asyncio.TaskGroup() as group:
                for _ in range(CONNECTIONS):
                    group.create_task(work(session, queue))
        asyncio.run(work_all())


async def send(session: aiohttp.ClientSession, method: str, url: str, body: Any, *,
               kind: str = 'application/json') -> None:
    data = None if body is None else json.dumps(body)
    async with session.request(method, url, data=data, headers={'Content-Type': kind}) as response:
        text = await response.text()
        if not response.ok and response.status != 404:
            raise SystemExit(f'{method} {url}: {response.status}: {text[:500]}')


@contextlib.contextmanager
def serve_controlplane() -> Iterator[Cluster]:
    """A real one, as the tests use it: it has to be built before that."""
    spec = importlib.util.spec_from_file_location('controlplanes', ROOT / 'tests' / 'controlplanes.py')
    assert spec is not None and spec.loader is not None
    sys.modules['controlplanes'] = controlplanes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(controlplanes)
    build = controlplanes.find_build(os.environ)
    if build is None:
        raise SystemExit('There is no control plane here: `make controlplane` builds it; or use --sandbox.')
    with controlplanes.run_controlplane(build) as controlplane:
        cluster = Cluster(controlplane.admin.kubeconfig)
        cluster.prepare()
        yield cluster


@contextlib.contextmanager
def serve_sandbox() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        kubeconfig = directory / 'kubeconfig'
        command = [sys.executable, '-m', 'kopf', 'sandbox', '--kubeconfig', str(kubeconfig)]
        sandbox = processes.Measured(command, directory=directory, environ={})
        try:
            sandbox.wait_until(lambda: kubeconfig.exists() and kubeconfig.stat().st_size > 0)
            cluster = Cluster(kubeconfig)
            cluster.prepare()
            yield cluster
        finally:
            sandbox.stop()
