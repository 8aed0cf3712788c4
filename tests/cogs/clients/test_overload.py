"""
Overloaded servers: everyone in the process comes back no sooner and no more often than the server
permits.
"""

import asyncio
import contextlib
import itertools
import logging

import pytest

from kopf._cogs.clients import discovery, errors, limits, requests
from kopf._cogs.clients.patching import object_requests, targets
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.structs import credentials, references, vaults

CONFIGS = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)


async def follow(context):
    stream = event_streams.stream_events(
        CONFIGS, 'default', context=context, state=stream_states.StreamState()
    )
    async with contextlib.aclosing(stream):
        async for _ in stream:
            pass


async def patch(context):
    """Patch again and again, as workers of objects do."""
    target = targets.Target(CONFIGS, 'default', 'same')
    while True:
        try:
            await object_requests.patch_object(target, merge={'data': {'x': '1'}}, context=context)
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
            contexts.append(
                requests.Context(
                    vault,
                    operator_settings,
                    logging.getLogger('kopf.test'),
                    limits.get_common_gates(),
                )
            )
        yield contexts


@pytest.fixture
async def crowd(operators):
    """Start all kinds of callers at once, many of each; end them with the test."""
    tasks = []

    async def crowd():
        for context, operation in itertools.product(operators, [follow, patch, discover]):
            tasks.extend(
                asyncio.create_task(operation(context), name=operation.__name__) for _ in range(5)
            )
        return tasks

    yield crowd
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@pytest.mark.parametrize('code, delay', [(429, 7), (503, 30)])
async def test_no_more_requests_are_made_than_the_server_permits_in_10_minutes(
    virtual_time, sandbox, crowd, code, delay
):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'same'}})
    fault = sandbox.faults.inject(code=code, retry_after=delay)
    tasks = await crowd()
    await asyncio.sleep(600)

    moments = [round(asked.time - sandbox.requests[0].time, 6) for asked in sandbox.requests]
    # The others were sent before the first refusal has come.
    later = [moment for moment in moments if moment > 1]
    assert len(moments) - len(later) <= len(tasks)
    assert 600 / (delay * 1.1) - 2 <= len(later) <= 600 / delay  # neither more, nor much less
    assert all(round(two - one, 6) >= delay for one, two in itertools.pairwise(later))

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


@pytest.mark.guarantee('FND-010')
@pytest.mark.parametrize('code, delay', [(429, 60), (503, 3600)])
async def test_one_request_per_30_seconds_is_made_if_the_server_asks_for_longer(
    virtual_time, sandbox, crowd, code, delay
):
    await sandbox.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'same'}})
    fault = sandbox.faults.inject(code=code, retry_after=delay)
    tasks = await crowd()
    await asyncio.sleep(600)

    moments = [round(asked.time - sandbox.requests[0].time, 6) for asked in sandbox.requests]
    # The others were sent before the first refusal has come.
    later = [moment for moment in moments if moment > 1]
    assert len(moments) - len(later) <= len(tasks)
    assert 600 / (60 * 1.1) - 2 <= len(later) <= 600 / 30
    assert all(round(two - one, 6) >= limits.HOLD for one, two in itertools.pairwise(later))

    fault.lift()
    await asyncio.sleep(delay * 1.1 + 60)
    callers = [task for task in tasks if task.get_name() != 'follow']
    assert all(task.done() and task.exception() is None for task in callers)
    watches = [asked for asked in sandbox.requests.select(verb='watch') if asked.code == 200]
    assert len(watches) >= len(tasks) - len(callers)


def list_moments(sandbox):
    """List who asked the server and when, in seconds since the first request."""
    since = sandbox.requests[0].time
    return [
        (asked.path.rpartition('/')[-1], round(asked.time - since)) for asked in sandbox.requests
    ]


def ask(context, *names):
    return [
        asyncio.create_task(requests.get(f'/api/v1/{name}', context=context), name=name)
        for name in names
    ]


@pytest.mark.guarantee('FND-010')
@pytest.mark.parametrize('code', [429, 503])
async def test_long_delay_is_of_the_refused_request_while_the_others_try_one_by_one(
    virtual_time, sandbox, context, code
):
    fault = sandbox.faults.inject(code=code, retry_after=3600)
    refused = ask(context, 'pods')
    await asyncio.sleep(1)
    others = ask(context, 'nodes', 'secrets', 'services', 'endpoints', 'events')
    await asyncio.sleep(69)
    fault.lift()

    await asyncio.gather(*refused, *others)

    assert list_moments(sandbox) == [
        ('pods', 0),
        ('nodes', 30),
        ('secrets', 60),
        ('services', 90),
        ('endpoints', 90),
        ('events', 90),
        ('pods', 3600),
        ('nodes', 3630),
        ('secrets', 3660),
    ]


@pytest.mark.guarantee('FND-010')
async def test_requests_that_come_after_the_good_answer_do_not_wait(virtual_time, sandbox, context):
    sandbox.faults.inject(code=429, retry_after=3600, times=1)
    refused = ask(context, 'pods')
    await asyncio.sleep(10)
    await asyncio.gather(*ask(context, 'nodes'))
    await asyncio.sleep(10)
    await asyncio.gather(*ask(context, 'secrets'))
    await asyncio.gather(*refused)

    assert list_moments(sandbox) == [('pods', 0), ('nodes', 30), ('secrets', 40), ('pods', 3600)]


@pytest.mark.guarantee('FND-010')
async def test_short_delay_is_of_all_requests(virtual_time, sandbox, context):
    sandbox.faults.inject(code=429, retry_after=7, times=1)
    refused = ask(context, 'pods')
    await asyncio.sleep(1)
    others = ask(context, 'nodes', 'secrets')

    await asyncio.gather(*refused, *others)

    assert sorted(list_moments(sandbox)) == [('nodes', 7), ('pods', 0), ('pods', 7), ('secrets', 7)]


@pytest.mark.guarantee('FND-010')
async def test_cancelled_probe_leaves_the_trying_to_another_request(virtual_time, sandbox, context):
    sandbox.faults.inject(code=429, retry_after=3600, times=1)
    refused = ask(context, 'pods')
    await asyncio.sleep(1)
    sandbox.faults.inject(stall=True, times=1)
    others = ask(context, 'nodes', 'secrets', 'services')
    await asyncio.sleep(31)
    others[0].cancel()

    results = await asyncio.gather(*others, return_exceptions=True)

    assert isinstance(results[0], asyncio.CancelledError)
    assert list_moments(sandbox) == [('pods', 0), ('nodes', 30), ('secrets', 32), ('services', 32)]
    await asyncio.gather(*refused)
