"""
An API to talk to: a sandbox, a server in between that spoils what it says, the context of requests.

For the tests of clients, and of what stands right above them. They are imported by `conftest.py`.
"""

import contextlib
import logging

import meddling
import pytest

import kopf.testing
from kopf._cogs.clients import limits, requests
from kopf._cogs.configs import settings
from kopf._cogs.structs import credentials, vaults


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
def operator_settings():
    return settings.OperatorSettings()


@pytest.fixture
async def make_context(operator_settings):
    """Make contexts of requests with these credentials; the delays there are exact."""
    async with contextlib.AsyncExitStack() as stack:

        def make(**infos):
            vault = vaults.Vault(infos)
            stack.push_async_callback(vault.close)
            return requests.Context(
                vault,
                operator_settings,
                logging.getLogger('kopf.test'),
                limits.Gates(),
                chance=lambda: 0.0,
            )

        yield make


@pytest.fixture
async def context(sandbox, make_context):
    return make_context(admin=credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token))


@pytest.fixture
async def meddler(sandbox):
    async with meddling.Meddler(sandbox.url) as meddler:
        yield meddler
