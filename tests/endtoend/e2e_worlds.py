"""
Worlds: a namespace of one test on a server, as its administrator sees and changes it.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import e2e_servers

PATIENCE = 60.0  # seconds of the real time
PAUSE = 0.05
CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
EXAMPLES = 'kopfexamples'
LAST_HANDLED = 'kopf.zalando.org/last-handled-configuration'
PREFIX = 'kopf.zalando.org/'


class Refusal(Exception):
    """The server has answered with an error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f'{code}: {text}')
        self.code = code


async def wait_until(check: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """Wait for a condition, and return its true value."""
    async with asyncio.timeout(timeout):
        while not (value := check()):
            await asyncio.sleep(PAUSE)
        return value


@dataclasses.dataclass(frozen=True)
class Api:
    """The API of a server, for one event loop."""

    session: aiohttp.ClientSession

    async def ask(
        self, method: str, path: str, payload: Any = None, type: str = 'application/json'
    ) -> Any:
        headers = {} if payload is None else {'Content-Type': type}
        async with self.session.request(method, path, json=payload, headers=headers) as response:
            if response.status >= 400:
                raise Refusal(response.status, await response.text())
            return await response.json()

    async def check(self, path: str, token: str) -> int:
        """Ask for something with another token; return the code."""
        async with self.session.get(path, headers={'Authorization': f'Bearer {token}'}) as response:
            return response.status

    async def find(self, path: str) -> Any:
        """Get something; ``None`` if it does not exist."""
        try:
            return await self.ask('GET', path)
        except Refusal as e:
            if e.code != 404:
                raise
            return None

    async def wait_until_served(self, path: str) -> None:
        """
        Wait until this can be asked for: the servers refuse in several ways before they are ready.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self.ask('GET', path)
                    return
                except Refusal:
                    await asyncio.sleep(PAUSE)

    async def ensure(self, path: str, body: Mapping[str, Any]) -> bool:
        """Create an object, unless it exists; tell if it did not."""
        try:
            await self.ask('POST', path, body)
        except Refusal as e:
            if e.code != 409:
                raise
            return False
        return True


@contextlib.asynccontextmanager
async def connect(server: e2e_servers.Server) -> AsyncIterator[Api]:
    """Talk to the server as its administrator."""
    info = server.info
    connector = aiohttp.TCPConnector(ssl=await asyncio.to_thread(info.as_ssl_context))
    async with aiohttp.ClientSession(
        info.server, connector=connector, headers=info.as_http_headers()
    ) as session:
        yield Api(session)


async def define(server: e2e_servers.Server, crd: Mapping[str, Any]) -> bool:
    """
    Define a custom resource, unless it is defined; wait until it is served. Tell if it was not.
    """
    async with connect(server) as api:
        is_new = await api.ensure(CRDS, crd)
        await api.wait_until_served(
            f'/apis/{crd["spec"]["group"]}/v1/{crd["spec"]["names"]["plural"]}'
        )
        return is_new


async def undefine(server: e2e_servers.Server, crd: Mapping[str, Any]) -> None:
    async with connect(server) as api:
        await api.ask('DELETE', f'{CRDS}/{crd["metadata"]["name"]}')


@dataclasses.dataclass(frozen=True)
class World:
    """
    One namespace with its objects; by default, these are the custom resources of the examples.
    """

    server: e2e_servers.Server
    api: Api
    namespace: str

    def path(self, plural: str = EXAMPLES, name: str = '', *more: str) -> str:
        prefix = '/apis/kopf.dev/v1' if plural == EXAMPLES else '/api/v1'
        return '/'.join(
            filter(None, [f'{prefix}/namespaces/{self.namespace}', plural, name, *more])
        )

    async def create(self, name: str = 'obj', plural: str = EXAMPLES, **fields: Any) -> Any:
        fields = {'spec': {'x': 1}} if plural == EXAMPLES and not fields else fields
        kind = {'apiVersion': 'kopf.dev/v1', 'kind': 'KopfExample'} if plural == EXAMPLES else {}
        return await self.api.ask(
            'POST', self.path(plural), {'metadata': {'name': name}, **kind, **fields}
        )

    async def find(self, name: str = 'obj', plural: str = EXAMPLES) -> Any:
        return await self.api.find(self.path(plural, name))

    async def find_all(self, plural: str = EXAMPLES) -> list[Any]:
        found = await self.api.ask('GET', self.path(plural))
        return list(found['items'])

    async def patch(self, patch: Any, name: str = 'obj', plural: str = EXAMPLES) -> Any:
        return await self.api.ask(
            'PATCH', self.path(plural, name), patch, 'application/merge-patch+json'
        )

    async def delete(self, name: str = 'obj', plural: str = EXAMPLES) -> None:
        await self.api.ask('DELETE', self.path(plural, name))

    async def wait(
        self, check: Callable[[Any], Any], name: str = 'obj', plural: str = EXAMPLES
    ) -> Any:
        """Wait until the object, or ``None`` in its absence, is as expected; return it."""
        async with asyncio.timeout(PATIENCE):
            while not check(body := await self.find(name, plural)):
                await asyncio.sleep(PAUSE)
            return body

    async def wait_until_gone(self, name: str = 'obj', plural: str = EXAMPLES) -> None:
        await self.wait(lambda body: body is None, name, plural)

    async def wait_until_handled(self, x: int = 1, name: str = 'obj') -> Any:
        """Wait until the operator is done with this state of the object."""

        def is_handled(body: Any) -> bool:
            found = (body or {}).get('metadata', {}).get('annotations') or {}
            annotations = {key: value for key, value in found.items() if key.startswith(PREFIX)}
            return (
                f'"x":{x}' in annotations.pop(LAST_HANDLED, '').replace(' ', '') and not annotations
            )

        return await self.wait(is_handled, name)

    def read_asked(
        self, *verbs: str, plural: str = EXAMPLES, name: str = ''
    ) -> list[e2e_servers.Asked]:
        """Read which of these requests the operators have made here."""
        assert self.server.read_asked is not None
        return [
            asked
            for asked in self.server.read_asked()
            if asked.user_agent.startswith('kopf/')
            and asked.namespace == self.namespace
            and asked.verb in verbs
            and asked.plural == plural
            and name in ('', asked.name)
        ]

    def read_writes(self, name: str = '') -> list[e2e_servers.Asked]:
        """Read which requests of operators were to change the objects."""
        return self.read_asked(*e2e_servers.WRITES, name=name)

    async def grant(self, account: str) -> None:
        """Let a service account do everything to the objects in the namespace."""
        prefix = f'/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}'
        await self.api.ask(
            'POST',
            f'{prefix}/roles',
            {
                'metadata': {'name': account},
                'rules': [
                    {'apiGroups': ['kopf.dev'], 'resources': ['*'], 'verbs': ['*']},
                    {'apiGroups': [''], 'resources': ['events', 'configmaps'], 'verbs': ['*']},
                ],
            },
        )
        await self.api.ask(
            'POST',
            f'{prefix}/rolebindings',
            {
                'metadata': {'name': account},
                'roleRef': {
                    'apiGroup': 'rbac.authorization.k8s.io',
                    'kind': 'Role',
                    'name': account,
                },
                'subjects': [
                    {'kind': 'ServiceAccount', 'name': account, 'namespace': self.namespace}
                ],
            },
        )

    async def issue_token(self, account: str, name: str) -> str:
        """
        Issue a token of a service account that is valid until the secret of this name is deleted.
        """
        secret = await self.create(name, 'secrets')
        bound = {
            'kind': 'Secret',
            'apiVersion': 'v1',
            'name': name,
            'uid': secret['metadata']['uid'],
        }
        answer = await self.api.ask(
            'POST',
            self.path('serviceaccounts', account, 'token'),
            {'spec': {'expirationSeconds': 3600, 'boundObjectRef': bound}},
        )
        return str(answer['status']['token'])

    async def wait_until_rejected(self, token: str) -> None:
        """
        Wait until a token is not accepted any more: servers trust those that they have seen for
        some seconds.
        """
        async with asyncio.timeout(PATIENCE):
            while await self.api.check(self.path(), token) != 401:
                await asyncio.sleep(PAUSE)

    async def release(self) -> None:
        """Remove everything that would hold the objects, and the namespace."""
        for body in await self.find_all():
            await self.patch({'metadata': {'finalizers': None}}, body['metadata']['name'])
        await self.api.ask('DELETE', f'/api/v1/namespaces/{self.namespace}')
