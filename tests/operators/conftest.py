"""
Whole operators on the sandbox, in the event loop of the test and in virtual time.

The fixtures give a cluster with one custom resource, a registry to declare handlers in, and a way
to run operators: to stop them, to kill them at once as if by SIGKILL, and to start them anew.
"""

import asyncio
import logging
import threading

import pytest
from clusters import Cluster, build_crd
from peerings import Town, build_peering, build_peering_crd
from timed_notes import TimedNotes

import kopf
import kopf.testing
from kopf._cogs.structs import vaults


@pytest.fixture
async def sandbox(virtual_time):
    async with kopf.testing.Sandbox(tls=False) as sandbox:
        yield sandbox


@pytest.fixture
async def cluster(sandbox):
    """A cluster with the custom resource ``kopfexamples``, whose status is not a subresource."""
    await sandbox.apply(build_crd())
    return Cluster(sandbox)


@pytest.fixture
def registry():
    """An own registry of the test: ``@kopf.on.create('kopfexamples', registry=registry)``."""
    return kopf.OperatorRegistry()


@pytest.fixture
def settings():
    return kopf.OperatorSettings()


@pytest.fixture
def calls():
    """The calls of handlers, in order: the handlers put them there, as they are or with their time."""
    return TimedNotes()


@pytest.fixture
def barrier():
    """Let sync functions wait in their threads; they are all let go in the end of the test."""
    event = threading.Event()
    yield event
    event.set()


class Operator:
    """A running operator."""

    def __init__(self, task, stop_flag, ready_flag):
        self.task, self.stop_flag, self.ready_flag = task, stop_flag, ready_flag

    async def stop(self):
        """Stop it gracefully; raises the error that has ended it, if any."""
        self.stop_flag.set()
        await self.task


@pytest.fixture
async def run_operator(sandbox, registry, settings):
    """
    Run operators: ``operator = await run_operator()``. Those that still run in the end of the test
    are stopped.

    By default, they are cluster-wide, and use the registry and the settings of the test.
    """
    operators = []

    async def run(**options):
        info = kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token)
        stop_flag, ready_flag = asyncio.Event(), asyncio.Event()
        options = {
            'registry': registry,
            'settings': settings,
            'vault': vaults.Vault({'sandbox': info}),
            'stop_flag': stop_flag,
            'ready_flag': ready_flag,
            **({} if 'namespaces' in options else {'clusterwide': True}),
            **options,
        }
        task = asyncio.create_task(kopf.operator(**options), name='operator of the test')
        operator = Operator(task, stop_flag, ready_flag)
        operators.append(operator)
        readiness = asyncio.create_task(ready_flag.wait(), name='readiness')
        await asyncio.wait({task, readiness}, return_when=asyncio.FIRST_COMPLETED)
        readiness.cancel()
        await asyncio.wait({readiness})
        return operator

    yield run
    for operator in operators:
        if not operator.task.done():
            await operator.stop()


@pytest.fixture
async def peering(sandbox):
    """A peering of the whole cluster."""
    await sandbox.apply(build_peering_crd())
    await sandbox.create(build_peering())


@pytest.fixture
async def town(sandbox, cluster, run_operator):
    """Several operators: ``await town.run('identity', priority=1)``."""
    async with Town(sandbox, run_operator) as town:
        yield town


@pytest.fixture
def check(town, cluster):
    """Check that these operators are active, and no others: ``await check('identity')``."""

    async def check(*identities):
        await town.check(*identities, cluster=cluster)

    return check


@pytest.fixture
def logs(caplog):
    """All that is logged, as texts."""
    caplog.set_level(logging.DEBUG)
    return lambda level=logging.DEBUG: [
        record.getMessage() for record in caplog.records if record.levelno >= level
    ]
