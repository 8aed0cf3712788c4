"""
Talks: one sequence of requests to one API server, with all its answers written down in order.

The sequences are written once (see the modules of transcripts) and run on both servers. What they
send may depend on what was answered, so they also follow the server where its versions, uids and
tokens lead.
"""

import asyncio
import contextlib
import dataclasses
import io
import json
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import yaml

from kopf._cogs.structs import credentials

USER_AGENT = 'fidelity/1.0'  # becomes the manager of fields, so it is the same for both servers
# Seconds; what is missed by the controllers of a real server, they see again in a minute.
PATIENCE = 90.0
PAUSE = 0.05
# What clients act upon.
HEADERS = (
    'Content-Type',
    'Warning',
    'Retry-After',
    'Location',
    'Allow',
    'WWW-Authenticate',
)
INITIAL_EVENTS_END = 'k8s.io/initial-events-end'
CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'

Compactor = Callable[[], Awaitable[None]]
Script = Callable[['Talk'], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Server:
    """
    Where to send the requests, and how to make it forget the history, if that is possible and
    allowed.

    Those who compact do not touch what the server itself keeps in memory; those who forget do.
    """

    info: credentials.ConnectionInfo
    compact: Compactor | None = None
    forget: Compactor | None = None


@dataclasses.dataclass(frozen=True)
class Exchange:
    """
    One request with its answer, or one event of a watch-stream; the body is decoded if it is JSON
    or YAML.
    """

    label: str
    code: int
    headers: Mapping[str, Any]
    body: Any
    prefix: str = ''  # of the name, if the server was asked to generate it
    is_event: bool = False


@dataclasses.dataclass(frozen=True)
class Transcript:
    """
    A named sequence of requests. The name is also that of its namespace, and a part of the group of
    its kinds.
    """

    name: str
    script: Script
    is_intrusive: bool = False  # forgets the history of the cluster, or listens on the loopback: only for our own one


class Stream:
    """A watch-stream in progress."""

    def __init__(
        self, response: aiohttp.ClientResponse, label: str, exchanges: list[Exchange]
    ) -> None:
        self._response = response
        self._label = label
        self._exchanges = exchanges
        self._count = 0

    async def next(self, *, bookmarks: bool = False) -> Any:
        """
        Take the next event; ``None`` if the stream has ended. Bookmarks come by the clock, and are
        skipped if so.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                line = await self._response.content.readline()
                event = json.loads(line) if line else None
                if bookmarks or not is_periodic(event):
                    break
        self._count += 1
        label = f'event {self._count} of {self._label}'
        self._exchanges.append(Exchange(label, self._response.status, {}, event, is_event=True))
        return event

    async def take(self, count: int, *, bookmarks: bool = False) -> list[Any]:
        """Take some next events."""
        return [await self.next(bookmarks=bookmarks) for _ in range(count)]

    async def rest(self) -> None:
        """Take all events until the end of the stream."""
        while await self.next() is not None:
            pass


class Talk:
    """The requests of one transcript to one server."""

    def __init__(
        self, session: aiohttp.ClientSession, transcript: Transcript, suffix: str, server: Server
    ) -> None:
        self._session = session
        self._server = server
        self._label = ''
        self.exchanges: list[Exchange] = []
        self.namespace = f'{transcript.name}-{suffix}'
        self.group = f'{self.namespace}.kopf.dev'

    def core(self, plural: str, name: str = '', *more: str) -> str:
        """Build the path of a core resource in the namespace of the transcript."""
        return '/'.join(filter(None, ['/api/v1/namespaces', self.namespace, plural, name, *more]))

    def apps(self, plural: str, name: str = '', *more: str) -> str:
        """Build the path of a resource of ``apps/v1`` in the namespace of the transcript."""
        return '/'.join(
            filter(None, ['/apis/apps/v1/namespaces', self.namespace, plural, name, *more])
        )

    def custom(self, plural: str, name: str = '', *more: str, version: str = 'v1') -> str:
        """Build the path of a custom resource in the namespace of the transcript."""
        prefix = f'/apis/{self.group}/{version}/namespaces'
        return '/'.join(filter(None, [prefix, self.namespace, plural, name, *more]))

    def note(self, label: str) -> None:
        """Say what the next requests are about: it is shown with their differences."""
        self._label = label

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type: str = 'application/json',
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Any:
        """Make a request, and write down the answer; return the body."""
        exchange = await self._request(method, path, body, type=type, headers=headers, **query)
        self.exchanges.append(exchange)
        return exchange.body

    async def get(self, path: str, **options: Any) -> Any:
        return await self.ask('GET', path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Any:
        return await self.ask('POST', path, body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Any:
        return await self.ask('PUT', path, body, **options)

    async def merge(self, path: str, body: Any, **options: Any) -> Any:
        return await self.ask('PATCH', path, body, type='application/merge-patch+json', **options)

    async def json(self, path: str, *operations: tuple[Any, ...], **options: Any) -> Any:
        """Make a JSON patch of operations: ``(op, path)`` or ``(op, path, value)``."""
        body = [
            {'op': op, 'path': place, **({'value': value[0]} if value else {})}
            for op, place, *value in operations
        ]
        return await self.ask('PATCH', path, body, type='application/json-patch+json', **options)

    async def strategic(self, path: str, body: Any, **options: Any) -> Any:
        return await self.ask(
            'PATCH', path, body, type='application/strategic-merge-patch+json', **options
        )

    async def apply(self, path: str, body: Any, manager: str = 'applier', **options: Any) -> Any:
        return await self.ask(
            'PATCH',
            path,
            body,
            type='application/apply-patch+yaml',
            fieldManager=manager,
            **options,
        )

    async def delete(self, path: str, body: Any = None, **options: Any) -> Any:
        return await self.ask('DELETE', path, body, **options)

    @contextlib.asynccontextmanager
    async def watch(
        self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any
    ) -> AsyncIterator[Stream]:
        """Begin a watch; its events are written down when they are taken from the stream."""
        label = self._build_label('WATCH', path, query)
        url = _build_url(path, {'watch': 'true', **query})
        async with self._session.get(url, headers=headers) as response:
            body = None if response.status == 200 else await _read_body(response)
            self.exchanges.append(Exchange(label, response.status, _select_headers(response), body))
            try:
                yield Stream(response, label, self.exchanges)
            finally:
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()  # a polite end of TLS would outlive the event loop

    async def wait_until(self, path: str, check: Callable[[int, Any], bool], **query: Any) -> Any:
        """
        Wait for a state without writing down how it came: some things take their time after the
        answers.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                exchange = await self._request('GET', path, **query)
                if check(exchange.code, exchange.body):
                    return exchange.body
                await asyncio.sleep(PAUSE)

    async def wait_until_refused(self, path: str, body: Any) -> None:
        """
        Wait until such objects are denied by a webhook: those that are not yet are not stored
        anyway.
        """
        await self.wait_until_denied(path, body, 'denied the request')

    async def wait_until_denied(self, path: str, body: Any, text: str) -> None:
        """Wait until such objects are refused with a text: they are not stored anyway."""
        async with asyncio.timeout(PATIENCE):
            while text not in str((await self._request('POST', path, body, dryRun='All')).body):
                await asyncio.sleep(PAUSE)

    async def wait_until_accepted(self, path: str, body: Any) -> None:
        """
        Wait until such objects can be made: when the controllers have made what they need. They are
        not stored.
        """
        async with asyncio.timeout(PATIENCE):
            while (await self._request('POST', path, body, dryRun='All')).code != 201:
                await asyncio.sleep(PAUSE)

    async def wait_until_forbidden(self, path: str, body: Any) -> None:
        """
        Wait until such objects are refused: when the server has seen what it refuses them for.
        """
        async with asyncio.timeout(PATIENCE):
            while (await self._request('POST', path, body, dryRun='All')).code != 403:
                await asyncio.sleep(PAUSE)

    async def wait_until_gone(self, path: str) -> None:
        await self.wait_until(path, lambda code, _: code == 404)

    async def compact(self) -> None:
        """Make the server forget all versions but the current ones."""
        assert self._server.compact is not None, 'the transcript is not for this server'
        await self._server.compact()

    async def forget(self, plural: str) -> None:
        """
        Make the server forget them for sure, even by a restart; wait until the custom resource is
        served again.
        """
        assert self._server.forget is not None, 'the transcript is not for this server'
        await self._server.forget()
        await self.wait_until_listed(self.group, 'v1', plural)

    async def define(self, crd: Mapping[str, Any]) -> None:
        """
        Create a definition of a custom resource without writing it down, and wait until it is
        served everywhere.
        """
        exchange = await self._request('POST', CRDS, crd)
        assert exchange.code == 201, exchange.body
        spec = crd['spec']
        await self.wait_until(
            f'{CRDS}/{crd["metadata"]["name"]}', lambda _, body: is_established(body)
        )
        await self.wait_until_listed(
            spec['group'], spec['versions'][0]['name'], spec['names']['plural']
        )

    async def wait_until_listed(self, group: str, version: str, plural: str) -> None:
        """Wait until a resource is in the discovery."""

        def is_listed(code: int, body: Any) -> bool:
            return code == 200 and any(item['name'] == plural for item in body['resources'])

        await self.wait_until(f'/apis/{group}/{version}', is_listed)
        await self.wait_until(f'/apis/{group}/{version}/{plural}', lambda code, _: code == 200)

    async def set_up(self) -> None:
        """Make the namespace."""
        body = {'metadata': {'name': self.namespace}}
        exchange = await self._request('POST', '/api/v1/namespaces', body)
        assert exchange.code == 201, exchange.body

    async def tear_down(self) -> None:
        """
        Remove what the transcript has made outside of its namespace, and the namespace itself.
        """
        await self._request('DELETE', f'/api/v1/namespaces/{self.namespace}')
        found = await self._request('GET', CRDS)
        for crd in found.body['items']:
            if crd['spec']['group'].endswith(self.group):
                await self._request('DELETE', f'{CRDS}/{crd["metadata"]["name"]}')

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        type: str = 'application/json',
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Exchange:
        encoded = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        # Large bytes are not welcome otherwise.
        content = io.BytesIO(encoded) if encoded is not None else None
        given = {**({'Content-Type': type} if content is not None else {}), **(headers or {})}
        url = _build_url(path, query)
        async with (
            asyncio.timeout(PATIENCE),
            self._session.request(method, url, data=content, headers=given) as answer,
        ):
            label = self._build_label(method, path, query)
            return Exchange(
                label,
                answer.status,
                _select_headers(answer),
                await _read_body(answer),
                _get_prefix(body),
            )

    def _build_label(self, method: str, path: str, query: Mapping[str, Any]) -> str:
        asked = '&'.join(f'{key}={value}' for key, value in query.items())
        number = sum(not exchange.is_event for exchange in self.exchanges) + 1
        return f'{number}. {method} {path}{"?" if asked else ""}{asked}{" — " if self._label else ""}{self._label}'


def is_periodic(event: Any) -> bool:
    """
    Tell if it is a bookmark that comes when its time comes, not one that tells of the end of the
    initial events.
    """
    return (
        event is not None
        and event.get('type') == 'BOOKMARK'
        and INITIAL_EVENTS_END not in json.dumps(event)
    )


def is_established(crd: Any) -> bool:
    """Tell if the definition is in effect."""
    conditions = crd.get('status', {}).get('conditions') or ()
    return any(item['type'] == 'Established' and item['status'] == 'True' for item in conditions)


async def run_transcript(transcript: Transcript, server: Server, suffix: str) -> list[Exchange]:
    """
    Run a transcript on one server, and return all that it has answered. It leaves nothing there.
    """
    info = server.info
    connector = aiohttp.TCPConnector(ssl=await asyncio.to_thread(info.as_ssl_context))
    headers = {'User-Agent': USER_AGENT, **info.as_http_headers()}
    async with aiohttp.ClientSession(info.server, connector=connector, headers=headers) as session:
        talk = Talk(session, transcript, suffix, server)
        try:
            await talk.set_up()
            await transcript.script(talk)
        finally:
            await talk.tear_down()
        return talk.exchanges


def _get_prefix(body: Any) -> str:
    match body:
        case {'metadata': {'generateName': str(prefix), **_rest}}:
            return prefix
        case _:
            return ''


def _build_url(path: str, query: Mapping[str, Any]) -> str:
    return f'{path}?{urllib.parse.urlencode(query)}' if query else path


async def _read_body(response: aiohttp.ClientResponse) -> Any:
    raw = await response.read()
    match response.content_type:
        case 'application/json':
            return json.loads(raw)
        case 'application/yaml':
            return yaml.safe_load(raw)
        case _:
            return raw.decode(errors='replace')


def _select_headers(response: aiohttp.ClientResponse) -> dict[str, Any]:
    return {name: response.headers.getall(name) for name in HEADERS if name in response.headers}
