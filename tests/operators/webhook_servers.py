"""
Webhook servers for the tests of admission, and the clients who make the reviewed requests.
"""

import asyncio
import base64
import contextlib
import datetime
import json
import re

import aiohttp
from aiohttp import web

from kopf._cogs.structs import reviews
from kopf._sandbox.auth import certificates

MANAGED = 'auto.kopf.dev'
VALIDATING, MUTATING = 'validatingwebhookconfigurations', 'mutatingwebhookconfigurations'


class Hall:
    """
    A webhook server behind a service of the sandbox: its reviews come as calls of a function.

    It is an async generator function with a memory: which paths were asked, and if it serves at the
    moment.
    """

    def __init__(self, sandbox):
        self._sandbox, self._configs = sandbox, asyncio.Queue()
        self.paths, self.reviews, self.is_open, self.fn = [], [], False, None
        self.headers, self.sslpeer = {'Host': 'hall'}, None

    async def __call__(self, fn):
        self.fn, self.is_open = fn, True
        await self._sandbox.add_service('default', 'hall', self.answer)
        try:
            yield {'service': {'namespace': 'default', 'name': 'hall', 'path': '/hooks'}}
            while True:
                yield await self._configs.get()
        finally:
            self.is_open = False

    def reconfigure(self, config):
        """Let the API reach it in another way."""
        self._configs.put_nowait(config)

    async def answer(self, path, review):
        if not self.is_open:
            raise ConnectionError('Nobody is there.')
        self.paths.append(path)
        self.reviews.append(review)
        webhook = path.removeprefix('/hooks').removeprefix('/')
        return await self.fn(review, webhook=webhook, headers=self.headers, sslpeer=self.sslpeer)


class SecureHall:
    """A webhook server as custom servers are: by HTTPS on a port of this machine."""

    def __init__(self):
        now = datetime.datetime.now(datetime.UTC)
        self._ca = certificates.make_ca(now)
        self._context = certificates.build_server_context(
            certificates.issue_server(self._ca, ['localhost'], now)
        )

    async def __call__(self, fn):
        async def handle(request):
            try:
                response = await fn(
                    await request.json(),
                    webhook=request.match_info['id'],
                    headers=dict(request.headers),
                )
            except reviews.ReviewRefused as refusal:
                return web.Response(status=refusal.code, text=str(refusal))
            return web.json_response(response)

        app = web.Application()
        app.router.add_post('/hooks/{id:.*}', handle)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, '127.0.0.1', 0, ssl_context=self._context).start()
            bundle = base64.b64encode(self._ca.pem).decode()
            yield {'url': f'https://localhost:{runner.addresses[0][1]}/hooks', 'caBundle': bundle}
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


class Answer:
    """What the API has answered to a client."""

    def __init__(self, code, body, warnings):
        self.code, self.body, self.warnings = code, body, warnings


class Client:
    """A client of the API that sees all of its answers."""

    def __init__(self, sandbox, session, plural='kopfexamples'):
        self._session, self._root = (
            session,
            f'{sandbox.url}/apis/kopf.dev/v1/namespaces/default/{plural}',
        )
        self._headers = {'Authorization': f'Bearer {sandbox.token}'}

    async def create(self, body, **params):
        return await self._ask('POST', self._root, body, **params)

    async def patch(self, patch, name='obj', subresource='', **params):
        url = '/'.join([self._root, name, *([subresource] if subresource else [])])
        return await self._ask('PATCH', url, patch, **params)

    async def delete(self, name='obj', **params):
        return await self._ask('DELETE', f'{self._root}/{name}', {}, **params)

    async def _ask(self, method, url, body, **params):
        media_type = 'application/merge-patch+json' if method == 'PATCH' else 'application/json'
        headers = {**self._headers, 'Content-Type': media_type}
        async with self._session.request(
            method, url, json=body, params=params, headers=headers
        ) as response:
            texts = [
                re.fullmatch(r'299 - "(.*)"', text)[1]
                for text in response.headers.getall('Warning', [])
            ]
            return Answer(response.status, await response.json(), texts)


async def find_records(sandbox, plural=VALIDATING, name=MANAGED):
    """Get the webhooks of a configuration; ``None`` if there is no such configuration."""
    configurations = {item['metadata']['name']: item for item in await sandbox.list(plural)}
    return configurations[name].get('webhooks', []) if name in configurations else None


async def wait_for_records(sandbox, number, plural=VALIDATING, timeout=600.0):
    """Wait until there are so many webhooks in the configuration, and return them."""
    async with asyncio.timeout(timeout):
        while len(await find_records(sandbox, plural) or ()) != number:
            await asyncio.sleep(0.1)
    return await find_records(sandbox, plural)


def list_writes(sandbox):
    """List the requests of operators to change the configurations, successful or not."""
    return [asked for asked in list_requests(sandbox) if asked.verb != 'get']


def list_requests(sandbox):
    """List the requests about the configurations made by operators, whatever they are."""
    return [
        asked
        for asked in sandbox.requests
        if asked.plural in (VALIDATING, MUTATING) and asked.user_agent.startswith('kopf/')
    ]


@contextlib.asynccontextmanager
async def open_client(sandbox, **kwargs):
    async with aiohttp.ClientSession() as session:
        yield Client(sandbox, session, **kwargs)


def build_answer(review, operations):
    """Build the answer of a mutating webhook: the object with these changes is permitted."""
    raw = base64.b64encode(json.dumps(operations).encode()).decode()
    mutation = {'patchType': 'JSONPatch', 'patch': raw} if operations else {}
    return {
        'apiVersion': review['apiVersion'],
        'kind': review['kind'],
        'response': {'uid': review['request']['uid'], 'allowed': True, **mutation},
    }


def build_mutator():
    """Build the configuration of a webhook that sees all writes: at the service ``mutator``."""
    rule = {
        'operations': ['CREATE', 'UPDATE'],
        'apiGroups': ['kopf.dev'],
        'apiVersions': ['*'],
        'resources': ['*'],
    }
    client = {'service': {'namespace': 'default', 'name': 'mutator', 'path': '/'}}
    return {
        'apiVersion': 'admissionregistration.k8s.io/v1',
        'kind': 'MutatingWebhookConfiguration',
        'metadata': {'name': 'mutator'},
        'webhooks': [
            {
                'name': 'mutator.kopf.dev',
                'rules': [rule],
                'clientConfig': client,
                'sideEffects': 'None',
                'admissionReviewVersions': ['v1'],
            }
        ],
    }
