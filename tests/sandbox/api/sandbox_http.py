"""
A sandbox asked by plain HTTP, with no client library in between.
"""

import asyncio
import contextlib
import dataclasses
import io
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

import kopf.testing

GROUP = 'api.tests.kopf.dev'
PATIENCE = 10.0
INITIAL = 'kube-root-ca.crt'  # the cluster keeps such a config map in every namespace

SCHEMA = {
    'type': 'object',
    'properties': {
        'spec': {
            'type': 'object',
            'properties': {
                'size': {'type': 'integer', 'minimum': 0},
                'color': {'type': 'string', 'default': 'grey'},
                'replicas': {'type': 'integer'},
            },
        },
        'status': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
    },
}


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer: the body is decoded if it is JSON."""

    code: int
    body: Any
    headers: Mapping[str, str]
    warnings: tuple[str, ...]


class Stream:
    """A watch-stream in progress."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, Any]:
        """
        The next event, not counting the initial objects: its type and object. Fails the test if
        there are no more.
        """
        while True:
            line = await asyncio.wait_for(self._response.content.readline(), timeout=PATIENCE)
            assert line, 'the stream has ended'
            event = json.loads(line)
            assert set(event) == {'type', 'object'}
            if event['object'].get('metadata', {}).get('name') != INITIAL:
                return event['type'], event['object']

    async def take(self, count: int) -> list[tuple[str, str]]:
        """Some next events: their types and the names of their objects."""
        events = [await self.next() for _ in range(count)]
        return [(type, obj['metadata'].get('name', '')) for type, obj in events]

    async def rest(self) -> list[tuple[str, Any]]:
        """All events until the end of the stream, not counting the initial objects."""
        raw = await asyncio.wait_for(self._response.content.read(), timeout=PATIENCE)
        events = [(event['type'], event['object']) for event in map(json.loads, raw.splitlines())]
        return [event for event in events if event[1].get('metadata', {}).get('name') != INITIAL]


class Api:
    """The requests of one user."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type: str = 'application/json',
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        content = body if isinstance(body, bytes | io.IOBase | None) else json.dumps(body).encode()
        given = (
            {'Content-Type': type, **(headers or {})}
            if content is not None
            else dict(headers or {})
        )
        params = {key: str(value) for key, value in query.items()}
        async with self._session.request(
            method, path, data=content, headers=given, params=params
        ) as response:
            raw = await response.read()
            is_json = response.content_type == 'application/json'
            warnings = tuple(response.headers.getall('Warning', ()))
            return Reply(
                response.status, json.loads(raw) if is_json else raw, response.headers, warnings
            )

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.ask('GET', path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Reply:
        return await self.ask('POST', path, body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Reply:
        return await self.ask('PUT', path, body, **options)

    async def merge(self, path: str, body: Any, **options: Any) -> Reply:
        return await self.ask('PATCH', path, body, type='application/merge-patch+json', **options)

    async def apply(self, path: str, body: Any, **options: Any) -> Reply:
        return await self.ask('PATCH', path, body, type='application/apply-patch+yaml', **options)

    async def delete(self, path: str, body: Any = None, **options: Any) -> Reply:
        return await self.ask('DELETE', path, body, **options)

    async def make(self, path: str, body: Any) -> Any:
        """Create an object that must be accepted."""
        reply = await self.post(path, body)
        assert reply.code == 201, reply.body
        return reply.body

    async def names(self, path: str, **options: Any) -> list[str]:
        """The names of all objects in a list, not counting the initial ones."""
        reply = await self.get(path, **options)
        assert reply.code == 200, reply.body
        names = [item['metadata']['name'] for item in reply.body['items']]
        return [name for name in names if name != INITIAL]

    async def wait_until_gone(self, path: str) -> None:
        """Wait until there is no such object: the controllers work after the answers."""
        async with asyncio.timeout(PATIENCE):
            while (await self.get(path)).code != 404:
                pass

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> AsyncIterator[Stream]:
        params = {key: str(value) for key, value in {'watch': 'true', **query}.items()}
        async with self._session.get(path, params=params, headers=headers) as response:
            assert response.status == 200, await response.text()
            try:
                yield Stream(response)
            finally:
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()  # a polite end of TLS would outlive the event loop


@contextlib.asynccontextmanager
async def open_api(
    sandbox: kopf.testing.Sandbox, token: str, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Api]:
    context = ssl.create_default_context(cafile=sandbox.ca_path)
    connector = aiohttp.TCPConnector(ssl=context)
    given = {
        'User-Agent': 'api-tests/1.0',
        **({'Authorization': f'Bearer {token}'} if token else {}),
        **(headers or {}),
    }
    async with aiohttp.ClientSession(sandbox.url, connector=connector, headers=given) as session:
        yield Api(session)


def build_version(name: str = 'v1', **fields: Any) -> dict[str, Any]:
    return {
        'name': name,
        'served': True,
        'storage': True,
        'schema': {'openAPIV3Schema': SCHEMA},
        **fields,
    }


def build_crd(
    plural: str, *versions: Mapping[str, Any], scope: str = 'Namespaced'
) -> dict[str, Any]:
    """The body of a CRD of our group, by default with one version without subresources."""
    singular = plural.removesuffix('s')
    names = {'kind': singular.capitalize(), 'plural': plural, 'singular': singular}
    return {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': f'{plural}.{GROUP}'},
        'spec': {
            'group': GROUP,
            'scope': scope,
            'names': names,
            'versions': [*(versions or [build_version()])],
        },
    }


SCALE = {
    'specReplicasPath': '.spec.replicas',
    'statusReplicasPath': '.status.replicas',
    'labelSelectorPath': '.status.selector',
}
THINGS = build_crd('things', build_version(subresources={'status': {}, 'scale': SCALE}))
PLAINS = build_crd('plains')
