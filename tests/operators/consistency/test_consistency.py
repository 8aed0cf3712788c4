"""
After an operator has changed an object, handlers of changes wait for that change to come back with
the stream: they are never called for what is known to be outdated. Changes of others made meanwhile
are neither lost nor mixed up.
"""

import asyncio
import json

import aiohttp.web
import pytest
from clusters import FINALIZER, get_last_handled, get_progress, get_time, wait_until

import kopf
from kopf._cogs.structs import vaults

TIMEOUT = 2


class Proxy:
    """
    Between an operator and its cluster: holds the events of objects, if told so, to pass or to drop
    them later.
    """

    def __init__(self, target):
        self.target, self.url, self.session = target, None, None
        self.is_holding, self.held = False, None

    async def handle(self, request):
        headers = {
            key: value
            for key, value in request.headers.items()
            if key not in ('Host', 'Accept-Encoding')
        }
        async with self.session.request(
            request.method,
            f'{self.target}{request.path_qs}',
            data=await request.read() or None,
            headers=headers,
        ) as answer:
            if 'watch' not in request.query:
                return aiohttp.web.Response(
                    status=answer.status, body=await answer.read(), content_type=answer.content_type
                )
            response = aiohttp.web.StreamResponse(headers={'Content-Type': 'application/json'})
            await response.prepare(request)
            async for line in answer.content:
                if 'kopfexamples' not in request.path or await self._is_passed(line):
                    await response.write(line)
            return response

    async def _is_passed(self, line):
        event = json.loads(line)
        if not self.is_holding or event['type'] == 'BOOKMARK':
            return True
        self.held = event['object'], asyncio.get_running_loop().create_future()
        return await self.held[1]

    async def decide(self, is_passed, condition=lambda body: True):
        """Wait for the next held event, which must be such, and pass it or drop it."""
        body, future = await wait_until(lambda: self.held)
        assert condition(body), body
        self.held = None
        future.set_result(is_passed)


@pytest.fixture
async def proxy(sandbox):
    """A proxy to the sandbox, which passes everything until told otherwise."""
    proxy = Proxy(sandbox.url)
    app = aiohttp.web.Application()
    app.router.add_route('*', '/{path:.*}', proxy.handle)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, '127.0.0.1', 0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as proxy.session:
        await site.start()
        proxy.url = f'http://127.0.0.1:{runner.addresses[0][1]}'
        yield proxy
        await runner.cleanup()


@pytest.fixture
def run_behind_proxy(run_operator, proxy, sandbox, settings):
    settings.persistence.consistency_timeout = TIMEOUT
    info = kopf.ConnectionInfo(server=proxy.url, token=sandbox.token)
    return lambda: run_operator(vault=vaults.Vault({'proxy': info}))


@pytest.fixture
def calls():
    """
    The calls of handlers: the time since the latest write of the operator, the name, and the
    fields.
    """
    return []


@pytest.fixture
def handlers(registry, cluster, proxy, calls):
    """
    Handlers of everything. When ``spec.x`` becomes 2, somebody else changes ``spec.y`` while it is
    being handled.

    So there are two events to come then: of that foreign change, and, after it, of the operator's
    own change.
    """

    def remember(name, spec):
        since = cluster.writes[-1].time if cluster.writes else get_time()
        calls.append((round(get_time() - since, 1), name, spec.get('x'), spec.get('y')))

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(spec, **_):
        remember('event', spec)

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    @kopf.on.update('kopfexamples', registry=registry)
    async def update_fn(spec, diff, **_):
        remember('update', spec)
        if ('change', ('spec', 'x'), 1, 2) in diff and not proxy.is_holding:
            proxy.is_holding = True
            await cluster.patch({'spec': {'y': 1}})


async def begin(cluster, calls):
    """
    Let an object be created and handled; then be changed, and be changed by somebody else while it
    is handled.
    """
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(60)
    calls.clear()
    writes = len(cluster.writes)
    await cluster.patch({'spec': {'x': 2}})
    await wait_until(lambda: len(cluster.writes) == writes + 1 and cluster.writes[-1].code == 200)
    calls.clear()


def is_foreign(body):
    return body['spec'].get('y') == 1 and get_last_handled(body)['spec'].get('x') == 1


def is_own(body):
    return get_last_handled(body)['spec'].get('x') == 2


@pytest.mark.guarantee('NEW-089', 'NEW-091', 'NEW-095')
async def test_foreign_changes_are_handled_after_our_own_ones_made_later(
    cluster, handlers, run_behind_proxy, proxy, calls
):
    await run_behind_proxy()
    await begin(cluster, calls)
    await asyncio.sleep(0.5)
    await proxy.decide(True, is_foreign)
    await asyncio.sleep(0.5)
    await proxy.decide(True, is_own)
    proxy.is_holding = False
    body = await cluster.wait_until_handled(x=2, y=1)

    assert calls[:3] == [(0.5, 'event', 2, 1), (1.0, 'event', 2, 1), (1.0, 'update', 2, 1)]
    assert [name for _, name, *_ in calls].count('update') == 1
    assert not get_progress(body)


@pytest.mark.guarantee('NEW-092', 'NEW-093', 'NEW-095', 'NEW-096')
async def test_handlers_go_on_after_a_timeout_if_our_own_changes_do_not_come_back(
    cluster, handlers, run_behind_proxy, proxy, calls
):
    await run_behind_proxy()
    await begin(cluster, calls)
    await asyncio.sleep(0.5)
    await proxy.decide(True, is_foreign)
    await proxy.decide(False, is_own)
    proxy.is_holding = False
    await wait_until(lambda: [name for _, name, *_ in calls].count('update'))

    assert calls[:2] == [(0.5, 'event', 2, 1), (TIMEOUT, 'update', 2, 1)]


@pytest.mark.guarantee('NEW-094')
async def test_handlers_do_not_wait_for_our_own_changes_if_there_is_no_timeout(
    cluster, handlers, run_behind_proxy, proxy, calls, settings
):
    await run_behind_proxy()
    settings.persistence.consistency_timeout = 0
    await begin(cluster, calls)
    await asyncio.sleep(0.5)
    await proxy.decide(True, is_foreign)
    await proxy.decide(False, is_own)
    proxy.is_holding = False
    await wait_until(lambda: [name for _, name, *_ in calls].count('update'))

    assert calls[:2] == [(0.5, 'event', 2, 1), (0.5, 'update', 2, 1)]


@pytest.mark.guarantee('NEW-090')
async def test_objects_that_were_not_changed_by_us_are_handled_at_once(
    cluster, handlers, run_behind_proxy, proxy, calls
):
    await run_behind_proxy()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(60)
    calls.clear()
    changed = get_time()
    await cluster.patch({'spec': {'x': 3}})
    await wait_until(lambda: len(calls) >= 2)

    assert [call[1:] for call in calls[:2]] == [('event', 3, None), ('update', 3, None)]
    assert get_time() - changed < 0.1


async def test_newer_states_include_our_own_changes(
    cluster, handlers, run_behind_proxy, proxy, calls
):
    await run_behind_proxy()
    await begin(cluster, calls)
    await asyncio.sleep(0.5)
    await proxy.decide(False, is_foreign)
    await proxy.decide(False, is_own)
    await cluster.patch({'spec': {'y': 2}})
    await proxy.decide(True)
    proxy.is_holding = False
    await wait_until(lambda: [name for _, name, *_ in calls].count('update'))

    assert calls[:2] == [(0.5, 'event', 2, 2), (0.5, 'update', 2, 2)]


@pytest.mark.guarantee('NEW-097')
async def test_changes_by_event_handlers_are_sent_at_once_and_waited_for(
    cluster, handlers, registry, run_behind_proxy, proxy, calls
):
    @kopf.on.event('kopfexamples', registry=registry, field='spec.y', value=1)
    async def changing_fn(patch, **_):
        patch.status['noticed'] = True

    await run_behind_proxy()
    await begin(cluster, calls)
    first = cluster.writes[-1].time
    await asyncio.sleep(1.5)
    await proxy.decide(True, is_foreign)
    await proxy.decide(False, is_own)
    await cluster.wait(lambda body: 'noticed' in body.get('status', {}))
    second = cluster.writes[-1].time
    await asyncio.sleep(1.5)
    await proxy.decide(True)
    proxy.is_holding = False
    await wait_until(lambda: [name for _, name, *_ in calls].count('update'))

    assert round(second - first, 1) == 1.5
    assert calls[:3] == [(1.5, 'event', 2, 1), (1.5, 'event', 2, 1), (1.5, 'update', 2, 1)]


@pytest.mark.guarantee('NEW-087')
async def test_finalizers_are_not_removed_while_our_own_changes_are_not_seen(
    cluster, registry, run_behind_proxy, proxy, calls
):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(meta, **_):
        calls.append(('event', bool(meta.deletion_timestamp)))

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, **_):
        proxy.is_holding = True
        await cluster.delete()
        patch.status['created'] = True

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(status, **_):
        calls.append(('delete', status.get('created')))

    await run_behind_proxy()
    await cluster.create(spec={'x': 1})
    await cluster.wait(lambda body: body.get('status'))
    calls.clear()
    await proxy.decide(True)
    await wait_until(lambda: calls)
    await asyncio.sleep(TIMEOUT / 2)
    held = await cluster.get()
    await proxy.decide(True, lambda body: body.get('status'))
    proxy.is_holding = False
    await cluster.wait(lambda body: body is None)

    assert held['metadata']['finalizers'] == [FINALIZER]
    assert calls[:3] == [('event', True), ('event', True), ('delete', True)]
    assert calls.count(('delete', True)) == 1


@pytest.mark.guarantee('NEW-089', 'NEW-092')
@pytest.mark.parametrize(
    'lasting, expected',
    [
        pytest.param(3, [0, 3], id='until-it-comes'),
        pytest.param(60, [0, 5], id='until-the-timeout'),
    ],
)
async def test_retries_wait_for_the_records_of_the_previous_ones(
    cluster, registry, run_operator, lasting, expected
):
    """The stream is silent, so that nobody knows if the record of the first attempt is there."""
    times, silence = [], []

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        times.append(get_time())
        if len(times) == 1:
            silence.append(
                cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', stall=True)
            )
            raise kopf.TemporaryError('again', delay=1)

    await run_operator()
    await cluster.create()
    await wait_until(lambda: silence)
    await asyncio.sleep(lasting)
    silence[0].lift()
    await cluster.wait_until_handled(x=1)

    assert [round(time - times[0]) for time in times][:2] == expected


@pytest.mark.guarantee('HND-025')
async def test_own_records_and_results_call_nobody(cluster, registry, run_operator, calls):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, patch, **_):
        calls.append(('create', retry))
        patch.status['attempts'] = retry + 1
        if retry < 2:
            raise kopf.TemporaryError('again', delay=30)
        return {'done': True}

    @kopf.on.update('kopfexamples', registry=registry)
    @kopf.on.field('kopfexamples', field='spec', registry=registry)
    @kopf.on.field('kopfexamples', field='metadata.annotations', registry=registry)
    async def change_fn(reason, diff, **_):
        calls.append((reason, tuple(diff)))

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=1)
    await asyncio.sleep(600)

    assert [call for call in calls if call[0] == 'create' and isinstance(call[1], int)] == [
        ('create', 0),
        ('create', 1),
        ('create', 2),
    ]
    assert [call for call in calls if call[0] == 'update'] == []
