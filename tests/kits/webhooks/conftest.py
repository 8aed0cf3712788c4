"""
Servers that are really running, and clients that really connect to them.
"""

import asyncio
import base64
import contextlib
import dataclasses
import datetime
import ssl

import aiohttp
import pytest

from kopf._cogs.helpers import certificates
from kopf._kits.webhooks import servers

NOW = datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass
class Reviewer:
    """Makes reviews, and remembers what it was called with."""

    calls: list = dataclasses.field(default_factory=list)
    error: Exception | None = None
    gate: asyncio.Event | None = None

    async def __call__(self, request, *, webhook=None, headers=None, sslpeer=None):
        self.calls.append(
            {'request': request, 'webhook': webhook, 'headers': headers, 'sslpeer': sslpeer}
        )
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        return {
            'apiVersion': 'admission.k8s.io/v1',
            'kind': 'AdmissionReview',
            'response': {'uid': request.get('uid', ''), 'allowed': True},
        }


@dataclasses.dataclass
class Served:
    """A running server, as its clients see it."""

    configs: object
    config: dict
    session: aiohttp.ClientSession

    @property
    def url(self):
        return self.config['url']

    @property
    def port(self):
        return int(self.url.split('/')[2].rpartition(':')[2])

    @property
    def authority(self):
        return base64.b64decode(self.config['caBundle'])

    async def next(self):
        """Wait for the next config of the server; from now on, it is the one to use."""
        self.config = await anext(self.configs)
        return self.config

    def trust(self, authority=None, pair=None):
        """Make the TLS of a client that trusts only this authority: by default, of the config."""
        context = ssl.create_default_context(cadata=(authority or self.authority).decode())
        if pair is not None:
            certificates.load_pair(context, pair)
        return context

    @contextlib.asynccontextmanager
    async def request(self, method, path='', *, data=b'{}', tls=None, **options):
        if tls is None:
            tls = self.trust() if self.config.get('caBundle') else False
        async with self.session.request(
            method, f'{self.url}{path}', data=data, ssl=tls, **options
        ) as response:
            yield response

    async def post(self, path='', **options):
        """Post something; return the status and the parsed answer."""
        async with self.request('POST', path, **options) as response:
            return response.status, await response.json()


@pytest.fixture
def reviewer():
    return Reviewer()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def serve(reviewer, session):
    """Start servers: of given options, or ready ones; all of them are stopped in the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def serve(server=None, **options):
            server = server if server is not None else servers.WebhookServer(**options)
            entered = await stack.enter_async_context(server)
            configs = entered(reviewer)
            return Served(configs, await anext(configs), session)

        yield serve


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a certificate, replaced in whole or by parts."""

    folder: object

    def __getattr__(self, name):
        return self.folder / f'{name}.pem'

    def write(self, issued, ca=None):
        pair = issued.export()
        self.cert.write_bytes(pair.certificate)
        self.key.write_bytes(pair.key)
        self.ca.write_bytes((ca or issued).pem)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


@pytest.fixture
def make_ca():
    return lambda name='test-ca': certificates.issue(
        certificates.Profile(name, is_authority=True), NOW
    )


@pytest.fixture
def make_certificate():
    """
    Make certificates for servers at localhost: signed by the authority or, if there is none, by
    themselves.
    """

    def make(ca=None, *, name='localhost', purpose=certificates.Purpose.SERVER):
        profile = certificates.Profile(
            name, hosts=('localhost', '127.0.0.1'), purpose=purpose, is_authority=ca is None
        )
        return certificates.issue(profile, NOW, ca)

    return make
