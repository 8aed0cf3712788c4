"""
A sandbox with two resources, the context of requests to it, and objects to be changed.
"""

import logging

import pytest
from things import WITH_STATUS, WITHOUT_STATUS, Thing, build_crd

import kopf.testing
from kopf._cogs.clients import limits, requests
from kopf._cogs.configs import settings
from kopf._cogs.structs import credentials, vaults


@pytest.fixture
async def sandbox():
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        await sandbox.apply(
            build_crd('With', has_status=True), build_crd('Without', has_status=False)
        )
        yield sandbox


@pytest.fixture
def operator_settings():
    return settings.OperatorSettings()


@pytest.fixture
async def context(sandbox, operator_settings):
    info = credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)
    vault = vaults.Vault({'sandbox': info})
    yield requests.Context(
        vault, operator_settings, logging.getLogger('kopf.test'), limits.Gates(), chance=lambda: 0.0
    )
    await vault.close()


@pytest.fixture
async def stateful(sandbox, context):
    """An object whose status is a subresource."""
    return Thing(sandbox, context, WITH_STATUS)


@pytest.fixture
async def stateless(sandbox, context):
    """An object whose status is a usual field."""
    return Thing(sandbox, context, WITHOUT_STATUS)


@pytest.fixture(params=[WITH_STATUS, WITHOUT_STATUS], ids=['with-status', 'without-status'])
async def thing(request, sandbox, context):
    return Thing(sandbox, context, request.param)


@pytest.fixture
def logs(caplog):
    caplog.set_level(logging.DEBUG, 'kopf.obj')
    return lambda level=logging.DEBUG: [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= level and record.name == 'kopf.obj'
    ]
