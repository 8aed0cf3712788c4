"""
A sandbox to observe, a server in between that spoils what it says, and the context of requests;
queues of events; the options of operators.
"""

import asyncio
import contextlib
import itertools

import meddling
import pytest
import recorders
from api_fixtures import context, make_context, meddler, operator_settings, sandbox

import kopf.testing
from kopf._cogs.clients import errors
from kopf._cogs.structs import credentials, vaults
from kopf._core.reactor import observation, queueing
from kopf._core.reactor import slots as slots_

__all__ = ['context', 'make_context', 'meddler', 'operator_settings', 'sandbox']  # for pytest


@pytest.fixture
async def guarded_sandbox():
    """A sandbox in which rights matter."""
    async with kopf.testing.Sandbox(tls=False, rbac=True) as sandbox:
        yield sandbox


@pytest.fixture
async def meddled_context(sandbox, meddler, make_context):
    """The context of requests through the meddler."""
    return make_context(admin=credentials.ConnectionInfo(server=meddler.url, token=sandbox.token))


@pytest.fixture
async def troubled_context(sandbox, meddler, make_context, fault):
    """The context of requests with a login that brings new credentials again and again."""
    url = meddler.url if meddling.is_meddled(fault) else sandbox.url
    context = make_context(admin=credentials.ConnectionInfo(server=url, token=sandbox.token))

    async def login():
        for priority in itertools.count(1):
            await context.vault.wait_until_needed()
            info = credentials.ConnectionInfo(server=url, token=sandbox.token, priority=priority)
            await context.vault.populate({'admin': info})

    task = asyncio.create_task(login(), name='login')
    yield context
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.fixture(params=meddling.FAULTS, ids=lambda fault: fault.replace(' ', '-'))
def fault(request):
    """Every fault, one by one."""
    return request.param


@pytest.fixture
def troubled(sandbox, meddler, fault):
    """
    Keep the fault for the block, and until the requests in question have met it at least once.
    """

    def troubled(is_meant, **where):
        return meddling.keep_fault(
            fault, sandbox, meddler, downtime=700, is_meant=is_meant, where=where
        )

    return troubled


@pytest.fixture
def record(outcomes, fault, troubled_context):
    """
    Record what became of the operation in this fault: the usual, unless nothing has failed or a
    login has helped.
    """

    async def record(operation, usual, *, is_failed):
        _, info = await troubled_context.vault.select()
        unfailed = {'404': 'answered', 'huge line': 'read'}.get(fault, 'waited')
        outcomes.record(
            fault, operation, 'logged in' if info.priority else usual if is_failed else unfailed
        )

    return record


@pytest.fixture
def record_stream(record, caplog):
    """
    Record what became of the stream, in the words of the matrix of faults; it can be also refused
    to be opened.
    """

    async def record_stream(operation, state, *, is_begun):
        if 'as it is not permitted to watch' in caplog.text:
            await record(operation, 'refused', is_failed=True)
            return
        is_failed = (
            state.error is not None and getattr(state.error, 'message', '') != meddling.TRIGGER
        )
        is_replaced = is_begun and isinstance(state.error, errors.APITimeoutError)
        usual = (
            'relisted'
            if state.relists
            else 'replaced'
            if is_replaced
            else 'continued'
            if is_begun
            else 'retried'
        )
        await record(operation, usual, is_failed=is_failed or state.relists > 0)

    return record_stream


class Observing:
    """A task of an observer, and what it has found."""

    def __init__(self, insights, coroutine):
        self.insights = insights
        self.task = asyncio.create_task(coroutine, name='observing')

    async def wait_until(self, condition, timeout=3600):
        """Wait until the insights are such; they must be told of, not just be there."""
        async with asyncio.timeout(timeout):
            while not condition(self.insights):
                await self.insights.wait_until_changed(self.insights.revision)

    async def poll(self, condition):
        """Wait until the condition is true, with nothing to tell of it."""
        delay = 0.001
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(delay)
                delay = min(1.0, delay * 1.5)

    async def close(self):
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture
async def start(make_context):  # which is closed after the observers are
    """Start observers; end them with the test."""
    started = []

    def start(run, **kwargs):
        insights = observation.Insights()
        started.append(Observing(insights, run(insights=insights, **kwargs)))
        return started[-1]

    yield start
    for observing in started:
        if not observing.task.done():
            await observing.close()


@pytest.fixture
async def grant(guarded_sandbox):
    """Permit the user some verbs on some resources."""

    async def grant(resource, *verbs):
        group = {'customresourcedefinitions': 'apiextensions.k8s.io'}.get(resource, '')
        name = f'operator-{resource}'
        api = {'apiVersion': 'rbac.authorization.k8s.io/v1', 'metadata': {'name': name}}
        await guarded_sandbox.apply(
            {
                **api,
                'kind': 'ClusterRole',
                'rules': [{'apiGroups': [group], 'resources': [resource], 'verbs': list(verbs)}],
            },
            {
                **api,
                'kind': 'ClusterRoleBinding',
                'roleRef': {
                    'apiGroup': 'rbac.authorization.k8s.io',
                    'kind': 'ClusterRole',
                    'name': name,
                },
                'subjects': [
                    {'apiGroup': 'rbac.authorization.k8s.io', 'kind': 'User', 'name': 'operator'}
                ],
            },
        )

    return grant


@pytest.fixture
async def limited_context(guarded_sandbox, make_context):
    """The context of requests of a user who is permitted nothing but the discovery."""
    user = await guarded_sandbox.add_user('operator')
    return make_context(
        operator=credentials.ConnectionInfo(server=guarded_sandbox.url, token=user.token)
    )


@pytest.fixture
async def recorder(virtual_time):
    return recorders.Recorder(virtual_time)


@pytest.fixture(name='limits')
def worker_limits():
    """The limit of workers; it can be changed at any moment."""
    return {'workers': None}


@pytest.fixture
def slots(limits):
    return slots_.Slots(lambda: limits['workers'])


@pytest.fixture
async def make_queue(recorder, slots):
    queues = []

    def make(handle=recorder.handle):
        queues.append(queueing.Queue(queueing.Handling(handle), slots, name='things'))
        return queues[-1]

    yield make
    for queue in queues:
        await queue.close(timeout=0)


@pytest.fixture
def queue(make_queue):
    return make_queue()


@pytest.fixture
def registry():
    return kopf.OperatorRegistry()


@pytest.fixture
def options(registry):
    """The options of an operator with nothing to do in a cluster that does not answer."""
    info = kopf.ConnectionInfo(server='http://127.0.0.1:1')
    return {'registry': registry, 'vault': vaults.Vault({'nowhere': info}), 'clusterwide': True}


@pytest.fixture
def activities(registry):
    """All activities that were executed."""
    activities = []

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        activities.append('startup')

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        activities.append('cleanup')

    return activities
