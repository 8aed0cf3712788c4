"""
Cancellation at every await: whatever is done at the moment, nothing is left open, taken, or
running.
"""

import asyncio
import contextlib
import dataclasses
import gc
import itertools

import pytest

from kopf._cogs.clients import discovery, requests
from kopf._cogs.clients.http import sessions
from kopf._cogs.clients.patching import object_requests, targets
from kopf._cogs.clients.watching import event_streams, stream_states
from kopf._cogs.structs import credentials, references

CONFIGS = references.Resource('', 'v1', 'configmaps', kind='ConfigMap', namespaced=True)
CONFIG = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'old'}}
VALUES = itertools.count()
URL = CONFIGS.get_url(namespace='default')


class Interrupted:
    """Await something, but be cancelled at the given await of all those inside of it."""

    def __init__(self, coroutine, at):
        self._coroutine, self._at = coroutine, at
        self.awaits = 0

    def __await__(self):
        step, value = self._coroutine.send, None
        while True:
            try:
                waited = step(value)
            except StopIteration as stopped:
                return stopped.value
            self.awaits += 1
            if self.awaits == self._at:
                asyncio.current_task().cancel()  # of what is waited for, right when the loop gets it
            try:
                step, value = self._coroutine.send, (yield waited)
            except BaseException as error:
                step, value = self._coroutine.throw, error


async def follow(context, sandbox):
    """List two pages, watch, fall, and continue."""
    changes = iter(['fall', 'end'])
    stream = event_streams.stream_events(
        CONFIGS, 'default', context=context, state=stream_states.StreamState()
    )
    async with contextlib.aclosing(stream):
        async for item in stream:
            change = (
                None
                if item is stream_states.Marker.LISTED or item['type'] is None
                else next(changes)
            )
            if change == 'end':
                return
            if change == 'fall':
                sandbox.faults.inject(verb='watch', code=500, times=1)
                sandbox.faults.cut_streams()
            if item is stream_states.Marker.LISTED or change == 'fall':
                await sandbox.patch('configmaps', 'old', {'data': {'x': str(next(VALUES))}})


async def read(context, sandbox):
    """Try with rejected credentials and with a failing server, and then succeed."""
    sandbox.faults.inject(verb='list', code=500, times=1)
    sandbox.faults.inject(verb='list', code=429, retry_after=5, times=1)
    await requests.get(URL, context=context)


async def patch(context, sandbox):
    target = targets.Target(CONFIGS, 'default', 'old')
    await object_requests.patch_object(target, merge={'data': {'y': '1'}}, context=context)


async def discover(context, sandbox):
    await discovery.read_resources(context=context, groups=['', 'apps'])


@dataclasses.dataclass(frozen=True)
class Blind:
    """A server that does not tell who is connected."""

    url: str
    open: int = 0
    connections: int = 0


@pytest.fixture
async def prepare(virtual_time, operator_settings):
    """Let there be two pages."""

    async def prepare(sandbox):
        operator_settings.watching.chunk_size = 1
        await sandbox.create(CONFIG)
        await sandbox.create({**CONFIG, 'metadata': {'name': 'other'}})

    return prepare


async def wait_until(condition):
    delay = 0.001
    async with asyncio.timeout(3600):
        while not condition():
            await asyncio.sleep(delay)
            delay *= 1.5


async def is_interrupted(scenario, at, *, context, sandbox, server):
    """
    Make a try with the cancellation; check that it leaves nothing. Tell if it came that far at all.
    """
    before = asyncio.all_tasks()
    interrupted = Interrupted(scenario(context, sandbox), at)

    async def run():
        await interrupted

    task = asyncio.create_task(run(), name=f'interrupted-{at}')
    await asyncio.wait([task])
    sandbox.faults.lift()
    assert task.cancelled() or task.exception() is None
    await wait_until(lambda: server.open == 0)  # the other side has seen the end, too
    assert context.gates[server.url].traffic.in_flight == 0
    async with context.vault.extended(sessions.open_session) as lease:
        session = lease.item
    other = credentials.ConnectionInfo(server='http://localhost')
    await context.vault.populate({'bad': other, 'admin': other})
    assert session.is_closed  # as soon as nobody leases it: so all others have ended theirs
    await context.vault.close()
    await wait_until(lambda: server.connections == 0)
    await wait_until(
        lambda: not {other for other in asyncio.all_tasks() - before if is_ours(other)}
    )
    return task.cancelled()


def is_ours(task):
    """Tell the tasks of the client from those of the servers, which live in the same loop."""
    return 'aiohttp/web_protocol' not in str(task.get_coro().cr_code.co_filename)


async def interrupt_everywhere(scenario, *, sandbox, server, make_context):
    """Make as many tries as there are awaits; tell how many."""
    for at in itertools.count(1):
        trust = {'server': server.url, 'ca_data': sandbox.ca_data or None}
        context = make_context(
            bad=credentials.ConnectionInfo(token='wrong', priority=10, **trust),
            admin=credentials.ConnectionInfo(token=sandbox.token, **trust),
        )
        if not await is_interrupted(scenario, at, context=context, sandbox=sandbox, server=server):
            gc.collect()  # whatever is not closed, complains
            return at
    raise AssertionError('the tries are not limited')


@pytest.mark.guarantee('NEW-148')
@pytest.mark.parametrize(
    'scenario, is_streaming',
    [
        pytest.param(follow, False, id='stream'),
        pytest.param(follow, True, id='stream-without-listing'),
        pytest.param(read, False, id='read'),
        pytest.param(patch, False, id='patch'),
        pytest.param(discover, False, id='discovery'),
    ],
)
async def test_nothing_is_left_when_cancelled_at_any_await(
    prepare, sandbox, meddler, make_context, operator_settings, scenario, is_streaming
):
    operator_settings.watching.initial_streaming = is_streaming
    await prepare(sandbox)

    awaits = await interrupt_everywhere(
        scenario, sandbox=sandbox, server=meddler, make_context=make_context
    )

    assert awaits > 5


async def test_nothing_is_left_when_cancelled_at_any_await_with_tls(
    prepare, secure_sandbox, make_context
):
    await prepare(secure_sandbox)

    awaits = await interrupt_everywhere(
        follow, sandbox=secure_sandbox, server=Blind(secure_sandbox.url), make_context=make_context
    )

    assert awaits > 10
