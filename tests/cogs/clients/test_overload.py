"""
Overloaded servers: everyone in the process comes back no sooner and no more often than the server permits.
"""
import asyncio
import contextlib
import itertools
import logging

import pytest

from kopf._cogs.clients import discovery, errors, limits, patching, requests, watching
from kopf._cogs.structs import credentials, references, vaults

CONFIGS = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)


async def follow(context):
    stream = watching.stream_events(CONFIGS, 'default', context=context, state=watching.StreamState())
    async with contextlib.aclosing(stream):
        async for _ in stream:
            pass


async def patch(context):
    """Patch again and again, as workers of objects do."""
    target = patching.Target(CONFIGS, 'default', 'same')
    while True:
        try:
            await patching.patch_object(target, merge={'data': {'x': '1'}}, context=context)
        except errors.RequestError:
            await asyncio.sleep(0.1)
        else:
            return


async def discover(context):
    while True:
        try:
            await discovery.read_resources(context=context)
        except errors.RequestError:
            await asyncio.sleep(0.1)
        else:
            return


@pytest.fixture
async def operators(sandbox, operator_settings):
    """The contexts of several operators in one process; they do not know of each other."""
    async with contextlib.AsyncExitStack() as stack:
        contexts = []
        for _ in range(3):
            info = credentials.ConnectionInfo(server=sandbox.url, token=sandbox.token)
            vault = vaults.Vault({'admin': info})
            stack.push_async_callback(vault.close)
            contexts.append(requests.Context(
                vault, operator_settings, logging.getLogger('kopf.test'), limits.get_common_gates()))
        yield contexts


@pytest.fixture
async def crowd(operators):
    """Start all kinds of callers at once, many of each; end them with the test."""
    tasks = []

    async def crowd():
        for context, operation in itertools.product(operators, [follow, patch, discover]):
            tasks.extend(asyncio.create_task(operation(context), name=operation.__name__) for _ in range(5))
        return tasks

    yield crowd
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize('code, delay', [(429, 7), (429, 60), (503, 30)])
async def test_no_more_requests_are_made_than_the_server_permits_in_10_minutes(
        virtual_time, sandbox, crowd, code, delay):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'same'}})
    fault = sandbox.faults.inject(code=code, retry_after=delay)
    tasks = await crowd()
    await asyncio.sleep(600)

    moments = [asked.time - sandbox.requests[0].time for asked in sandbox.requests]
    later = [moment for moment in moments if moment > 1]  # the others were sent before the first refusal has come
    assert len(moments) - len(later) <= len(tasks)
    assert 600 / (delay * 1.1) - 2 <= len(later) <= 600 / delay  # neither more, nor much less
    assert all(two - one >= delay for one, two in itertools.pairwise(later))

    fault.lift()
    await asyncio.sleep(120)
    callers = [task for task in tasks if task.get_name() != 'follow']
    assert all(task.done() and task.exception() is None for task in callers)
    watches = [asked for asked in sandbox.requests.select(verb='watch') if asked.code == 200]
    assert len(watches) == len(tasks) - len(callers)


async def test_first_requests_do_not_wait_for_each_other(virtual_time, sandbox, crowd):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'same'}})
    tasks = await crowd()
    callers = [task for task in tasks if task.get_name() != 'follow']

    await asyncio.wait(callers)

    assert virtual_time.elapsed < 1
