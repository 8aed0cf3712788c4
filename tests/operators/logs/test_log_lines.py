"""
The log lines of the normal life of operators: all of them, at all levels, as they are in
``log_lines.txt``.
"""

import asyncio
import logging

import log_books
import pytest
from clusters import LAST_HANDLED, Cluster, build_crd, wait_until
from peerings import build_record
from webhook_servers import MANAGED, VALIDATING, Hall

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

pytestmark = pytest.mark.guarantee('FND-040', 'FND-041', 'FND-042', 'FND-043', 'FND-044', 'FND-045')


@pytest.fixture
def check(caplog):
    """Compare all that was logged with what is in the file: ``check('scenario')``."""
    caplog.set_level(logging.DEBUG)
    return lambda name: log_books.check(name, caplog.records)


@pytest.fixture
def on(registry):
    """Declare handlers of the resource: ``@on('create', **options)``."""

    def on(kind, **options):
        decorator = getattr(kopf.on, kind)
        return decorator('kopfexamples', registry=registry, **options)

    return on


async def test_start_and_stop(sandbox, registry, run_operator, check):
    @kopf.on.startup(registry=registry)
    @kopf.on.cleanup(registry=registry)
    async def activity_fn(**_):
        pass

    @kopf.on.login(registry=registry)
    async def login_fn(**_):
        return kopf.ConnectionInfo(server=sandbox.url, token=sandbox.token, context='sandbox')

    @kopf.on.event('pods', registry=registry)
    @kopf.on.create('pods', registry=registry)
    async def fn(**_):
        pass

    operator = await run_operator(vault=vaults.Vault())
    await wait_until(lambda: sandbox.requests.select(resource='pods', verb='watch'))
    await operator.stop()

    check('start and stop')


async def test_life_of_an_object(cluster, on, run_operator, check):
    @on('create')
    @on('update')
    @on('delete')
    async def fn(**_):
        return {'done': True}

    @on('field', field='spec.x')
    async def field_fn(**_):
        pass

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.wait_until_handled(x=2)
    await cluster.patch({'status': {'unimportant': 1}})
    await asyncio.sleep(1)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await asyncio.sleep(1)
    await operator.stop()

    check('life of an object')


async def test_resuming(cluster, on, run_operator, check):
    calls = []

    @on('resume')
    async def resume_fn(**_):
        calls.append('resume')

    await cluster.create(annotations={LAST_HANDLED: '{"spec":{"x":1}}'})
    operator = await run_operator()
    await wait_until(lambda: calls)
    await asyncio.sleep(1)
    await operator.stop()

    check('resuming')


async def test_errors(cluster, on, run_operator, check):
    @on('create')
    async def temporary_fn(retry, **_):
        if not retry:
            raise kopf.TemporaryError('Not yet.', delay=5)

    @on('create', backoff=5)
    async def arbitrary_fn(retry, **_):
        if not retry:
            raise ValueError('Unexpected.')

    @on('create', errors=kopf.ErrorsMode.PERMANENT)
    async def stopping_fn(**_):
        raise ValueError('Unexpected.')

    @on('create', errors=kopf.ErrorsMode.IGNORED)
    async def ignoring_fn(**_):
        raise ValueError('Unexpected.')

    @on('create')
    async def permanent_fn(**_):
        raise kopf.PermanentError('Never.')

    @on('create', retries=2, backoff=5)
    async def exhausted_fn(**_):
        raise ValueError('Unexpected.')

    @on('create', timeout=10)
    async def slow_fn(**_):
        await asyncio.sleep(60)

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(1)
    await operator.stop()

    check('errors')


async def test_subhandlers(cluster, on, run_operator, check):
    @on('create')
    async def create_fn(**_):
        @kopf.subhandler()
        async def waiting_fn(retry, **_):
            if not retry:
                raise kopf.TemporaryError('Not yet.', delay=5)

        @kopf.subhandler()
        async def good_fn(**_):
            pass

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(1)
    await operator.stop()

    check('sub-handlers')


async def test_background(cluster, on, run_operator, check):
    calls = []

    @on('daemon', cancellation_timeout=10)
    async def daemon_fn(stopped, **_):
        calls.append('daemon')
        await stopped.wait()

    @on('daemon')
    async def short_fn(retry, **_):
        if not retry:
            raise kopf.TemporaryError('Not yet.', delay=5)
        return {'done': True}

    @on('timer', interval=5)
    async def timer_fn(retry, **_):
        calls.append('timer')
        if not retry:
            raise kopf.TemporaryError('Not yet.', delay=5)

    operator = await run_operator()
    await cluster.create()
    await wait_until(lambda: calls.count('timer') >= 4)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    await cluster.create('other')
    await wait_until(lambda: calls.count('daemon') >= 2)
    await asyncio.sleep(12)
    await operator.stop()

    check('daemons and timers')


async def test_events_and_indices(cluster, on, run_operator, check):
    events = []

    @on('event')
    async def event_fn(type, **_):
        events.append(type)

    @on('event')
    async def failing_fn(**_):
        raise ValueError('Unexpected.')

    @on('index')
    async def index_fn(name, **_):
        return name

    @on('index')
    async def failing_index_fn(**_):
        raise ValueError('Unexpected.')

    operator = await run_operator()
    await cluster.wait_until_watched()
    await cluster.create()
    await wait_until(lambda: 'ADDED' in events)
    await cluster.delete()
    await wait_until(lambda: 'DELETED' in events)
    await operator.stop()

    check('events and indices')


@pytest.mark.usefixtures('peering')
async def test_peering_and_pause(cluster, town, check):
    operator = await town.run('me')
    await town.check('me', cluster=cluster)
    await town.write({'other': build_record(5, lifetime=300)})
    await asyncio.sleep(1)
    times = len(town.get_streams())
    await town.write({'other': None})
    await cluster.wait_until_watched(times + 1)
    await town.check('me', cluster=cluster)
    await operator.stop()

    check('peering and pause')


async def test_admission(sandbox, cluster, settings, on, run_operator, check):
    settings.admission.managed = MANAGED
    settings.admission.server = Hall(sandbox)

    @on('validate')
    async def validate_fn(spec, **_):
        if spec['x'] != 1:
            raise kopf.AdmissionError('Only 1 is good.', code=400)

    @on('validate')
    async def other_fn(**_):
        pass

    operator = await run_operator()
    await sandbox.wait(
        VALIDATING, MANAGED, lambda body: len((body or {}).get('webhooks') or ()) == 2
    )
    await cluster.create('good')
    with pytest.raises(kopf.testing.ApiError):
        await cluster.create('bad', spec={'x': 2})
    await operator.stop()

    check('admission')


async def test_namespaces_and_resources_that_come_later(sandbox, on, run_operator, logs, check):
    @on('event')
    async def event_fn(**_):
        pass

    operator = await run_operator(namespaces=['ns*'])
    await wait_until(lambda: logs(logging.WARNING))
    await sandbox.apply(build_crd())
    await wait_until(lambda: any('has come' in text for text in logs()))
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'ns1'}})
    await Cluster(sandbox).wait_until_watched()
    await operator.stop()

    check('namespaces and resources')


@pytest.mark.guarantee('FND-045')
async def test_runs_and_failures_are_told_at_the_end(cluster, on, run_operator, logs):
    @on('create')
    async def good_fn(**_):
        pass

    @on('create')
    async def bad_fn(**_):
        raise kopf.PermanentError('Never.')

    operator = await run_operator()
    await cluster.create()
    await cluster.wait_until_handled(x=1)
    await operator.stop()

    assert logs(logging.INFO)[-1] == 'The operator is stopped. Runs of handlers: 2, failed: 1.'
