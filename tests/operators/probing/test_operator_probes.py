"""
The probes of running operators: liveness, readiness, and the handlers that tell of the rest.
"""

import asyncio
import json
import random
import threading

import aiohttp
import pytest
from operator_endpoints import Site
from peerings import build_peering, build_peering_crd, build_record

import kopf
from kopf._cogs.aiokits import pulses
from kopf._core.engines.probing import endpoints, health


@pytest.fixture
async def site(virtual_time):
    async with aiohttp.ClientSession() as session:
        yield Site(session)


@pytest.fixture
def event_handlers(registry):
    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        pass


# When and where they are served.


@pytest.mark.guarantee('PRB-001')
async def test_nothing_listens_by_default(cluster, event_handlers, run_operator, monkeypatch):
    loop, served = asyncio.get_running_loop(), []
    create_server = loop.create_server
    monkeypatch.setattr(
        loop,
        'create_server',
        lambda *args, **kwargs: served.append(args) or create_server(*args, **kwargs),
    )

    await run_operator()
    await cluster.wait_until_watched()

    assert served == []


@pytest.mark.guarantee('PRB-002', 'PRB-004', 'PRB-005', 'PRB-012')
async def test_probes_are_served_at_the_endpoint(cluster, event_handlers, run_operator, site):
    await run_operator(liveness_endpoint=site.url.replace('127.0.0.1', '0.0.0.0'))

    assert await site.wait_until('/healthz', 200) == '{}'
    assert (await site.fetch('/'))[0] == 404


async def test_probes_are_served_only_after_the_startup(
    cluster, registry, event_handlers, run_operator, site
):
    served = []

    @kopf.on.startup(registry=registry)
    async def startup_fn(**_):
        await asyncio.sleep(10)
        served.append(await site.is_served())

    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/healthz', 200)

    assert served == [False]


async def test_probes_are_served_until_the_end_of_the_cleanup(
    cluster, registry, event_handlers, run_operator, site
):
    answers = []

    @kopf.on.cleanup(registry=registry)
    async def cleanup_fn(**_):
        answers.extend([await site.fetch(), await site.fetch('/readyz')])

    operator = await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    await operator.stop()

    assert answers[0] == (200, '{}')
    assert answers[1][0] == 503
    assert 'stopping' in answers[1][1]
    assert not await site.is_served()


@pytest.mark.guarantee('PRB-003', 'NEW-264')
@pytest.mark.parametrize(
    'url', ['https://localhost:8080/healthz', 'tcp://localhost:8080', 'http://localhost:99999/']
)
async def test_wrong_endpoints_are_errors_at_the_start(cluster, registry, run_operator, url):
    calls = []
    kopf.on.startup(registry=registry)(lambda **_: calls.append('startup'))

    operator = await run_operator(liveness_endpoint=url)

    with pytest.raises(endpoints.EndpointError):
        await operator.task
    assert calls == []


async def test_busy_ports_are_errors_at_the_start(
    cluster, registry, event_handlers, run_operator, site
):
    calls = []
    kopf.on.cleanup(registry=registry)(lambda **_: calls.append('cleanup'))
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/healthz', 200)

    other = await run_operator(liveness_endpoint=site.url)

    with pytest.raises(endpoints.EndpointError, match='in use'):
        await other.task
    assert calls == ['cleanup']  # as the startup has succeeded


async def test_no_endpoint_is_the_same_as_an_empty_one(cluster, event_handlers, run_operator):
    operator = await run_operator(liveness_endpoint='')
    await cluster.wait_until_watched()

    await operator.stop()


# The handlers.


@pytest.mark.guarantee('PRB-006', 'PRB-007', 'PRB-008', 'PRB-009', 'PRB-010', 'NEW-264')
async def test_results_of_probe_handlers_are_told_and_cached(
    cluster, registry, event_handlers, run_operator, site
):
    @kopf.on.probe(id='now', registry=registry)
    def get_current_timestamp(**_):
        return '2019-11-07T18:03:52.513803+00:00'

    @kopf.on.probe(id='random', registry=registry)
    async def get_random_value(**_):
        return random.randint(0, 1_000_000_000)

    await run_operator(liveness_endpoint=site.url)
    first = json.loads(await site.wait_until('/healthz', 200))
    texts = [(await site.fetch())[1] for _ in range(10)]
    await asyncio.sleep(10)
    later = json.loads((await site.fetch())[1])

    assert set(first) == {'now', 'random'}
    assert first['now'] == '2019-11-07T18:03:52.513803+00:00'
    assert [json.loads(text) for text in texts] == [first] * 10
    assert later['random'] != first['random']


@pytest.mark.guarantee('PRB-011')
async def test_probe_handlers_see_the_operator(cluster, registry, run_operator, site):
    @kopf.on.startup(registry=registry)
    async def startup_fn(memo, **_):
        memo.started = 'yes'

    @kopf.index('kopfexamples', id='idx', registry=registry)
    async def idx(name, **_):
        return {name: 1}

    @kopf.on.probe(id='probe_fn', registry=registry, param='p')
    async def probe_fn(memo, settings, logger, retry, param, idx, **_):
        return {
            'memo': memo.started,
            'settings': type(settings).__name__,
            'logger': logger.name,
            'retry': retry,
            'param': param,
            'idx': list(idx),
        }

    await cluster.create()
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    await asyncio.sleep(20)  # for the results of earlier requests to be outdated
    results = json.loads((await site.fetch())[1])

    assert results == {
        'probe_fn': {
            'memo': 'yes',
            'settings': 'OperatorSettings',
            'logger': 'kopf.activities.probe',
            'retry': 0,
            'param': 'p',
            'idx': ['obj'],
        }
    }


async def test_probe_handlers_do_not_wait_for_the_threads_of_handlers(
    cluster, registry, settings, run_operator, site
):
    settings.execution.max_workers = 1
    entered, release = threading.Event(), threading.Event()

    @kopf.on.create('kopfexamples', registry=registry)
    def create_fn(**_):
        entered.set()
        release.wait()

    @kopf.on.probe(id='probe_fn', registry=registry)
    def probe_fn(**_):
        return 'fine'

    await cluster.create()
    await run_operator(liveness_endpoint=site.url)
    try:
        while not entered.is_set():
            await asyncio.sleep(0.1)
        assert json.loads(await site.wait_until('/healthz', 200)) == {'probe_fn': 'fine'}
    finally:
        release.set()


@pytest.mark.guarantee('PRB-004')
async def test_failing_probes_and_odd_results_are_still_answered(
    cluster, registry, event_handlers, run_operator, site, virtual_time
):
    @kopf.on.probe(id='failing_fn', registry=registry)
    def failing_fn(**_):
        raise kopf.TemporaryError('boo!', delay=600)

    @kopf.on.probe(id='odd_fn', registry=registry)
    def odd_fn(**_):
        return {
            1,
        }

    @kopf.on.probe(id='fine_fn', registry=registry)
    def fine_fn(**_):
        return 'fine'

    operator = await run_operator(liveness_endpoint=site.url)
    results = json.loads(await site.wait_until('/healthz', 200))

    assert results == {'failing_fn': None, 'odd_fn': '{1}', 'fine_fn': 'fine'}
    assert virtual_time.elapsed < 60
    assert not operator.task.done()


# Liveness.


@pytest.mark.guarantee('PRB-004')
async def test_operator_is_alive_in_spite_of_failing_handlers_and_streams(
    cluster, registry, run_operator, site
):
    @kopf.on.create('kopfexamples', registry=registry)
    async def failing_fn(**_):
        raise RuntimeError('boo!')

    await cluster.create()
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    cluster.sandbox.faults.cut_streams()
    cluster.sandbox.faults.inject(code=503)
    await site.wait_until('/readyz', 503)

    assert (await site.fetch())[0] == 200

    cluster.sandbox.faults.lift()
    await site.wait_until('/readyz', 200)


async def test_operator_is_dead_when_its_streams_fail_for_long(
    cluster, event_handlers, run_operator, site, virtual_time
):
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    cluster.sandbox.faults.cut_streams()
    cluster.sandbox.faults.inject(code=500)
    since = virtual_time.elapsed
    text = await site.wait_until('/healthz', 503, timeout=2000, period=5)

    assert virtual_time.elapsed - since == pytest.approx(health.DEATH_TIMEOUT, rel=0.2)
    assert any(
        'kopfexamples.v1.kopf.dev: failing for 6' in problem
        for problem in json.loads(text)['problems']
    )

    cluster.sandbox.faults.lift()
    assert await site.wait_until('/healthz', 200, timeout=2000, period=5) == '{}'


async def test_operator_is_dead_when_nothing_comes_out_of_a_stream(
    cluster, registry, run_operator, site, virtual_time
):
    is_stuck = asyncio.Event()

    @kopf.index('kopfexamples', id='stuck_idx', registry=registry)
    async def stuck_idx(**_):
        await is_stuck.wait()

    await cluster.create()
    await run_operator(liveness_endpoint=site.url)
    text = await site.wait_until('/healthz', 503, timeout=2000, period=5)

    assert virtual_time.elapsed > health.DEATH_TIMEOUT
    assert 'kopfexamples.v1.kopf.dev: silent for' in text
    is_stuck.set()


async def test_operator_is_dead_when_its_loop_is_blocked(
    cluster, registry, settings, run_operator, site, logs, monkeypatch
):
    noticed = threading.Event()
    monkeypatch.setattr(
        pulses.logger,
        'warning',
        lambda *args, original=pulses.logger.warning: (original(*args), noticed.set()),
    )

    @kopf.on.startup(registry=registry)
    async def configure(settings, **_):
        settings.execution.blocking_limit = 0.1

    @kopf.on.event('kopfexamples', id='blocking_fn', registry=registry)
    async def blocking_fn(**_):
        noticed.wait(60)  # in vain: nothing can happen in the loop meanwhile, but in the thread

    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    await cluster.create()
    text = await site.wait_until('/healthz', 503)

    assert 'event loop: blocked for' in text
    blocked = [line for line in logs() if 'The event loop is blocked' in line]
    assert 'blocking_fn' in blocked[0]


# Readiness.


async def test_operator_is_ready_when_all_is_listed_and_connected(
    cluster, registry, run_operator, site
):
    @kopf.on.event('kopfexamples', registry=registry)
    @kopf.on.event('pods', registry=registry)
    async def event_fn(**_):
        pass

    await cluster.create()
    await run_operator(liveness_endpoint=site.url)
    assert await site.wait_until('/readyz', 200) == 'ready\n'
    _, text = await site.fetch('/readyz?verbose')

    assert '[+] kopfexamples.v1.kopf.dev: connected, 1 objects' in text
    assert '[+] pods.v1: connected, 0 objects' in text
    assert '[+] customresourcedefinitions.v1.apiextensions.k8s.io: connected' in text


async def test_each_stream_is_named_with_its_namespace(cluster, event_handlers, run_operator, site):
    await cluster.sandbox.apply(
        {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'other'}}
    )
    await run_operator(liveness_endpoint=site.url, namespaces=['default', 'other'])
    await site.wait_until('/readyz', 200)
    _, text = await site.fetch('/readyz?verbose')

    assert "[+] kopfexamples.v1.kopf.dev in 'default': connected" in text
    assert "[+] kopfexamples.v1.kopf.dev in 'other': connected" in text
    assert '[+] namespaces.v1: connected' in text


async def test_operator_is_not_ready_while_its_stream_is_broken(
    cluster, event_handlers, run_operator, site
):
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    cluster.sandbox.faults.cut_streams(resource='kopfexamples')
    cluster.sandbox.faults.inject(code=503, resource='kopfexamples')
    text = await site.wait_until('/readyz', 503)

    assert '[-] kopfexamples.v1.kopf.dev: ' in text
    assert 'not ready' in text
    assert 'customresourcedefinitions' not in text

    cluster.sandbox.faults.lift()
    await site.wait_until('/readyz', 200)


@pytest.mark.guarantee('RCL-014')
async def test_operator_is_not_ready_until_related_objects_are_listed(
    cluster, registry, run_operator, site, calls
):
    @kopf.on.reconcile('kopfexamples', registry=registry, owns=['configmaps'])
    async def fn(name, **_):
        calls.append(name)

    await cluster.create('obj')
    cluster.sandbox.faults.inject(code=403, resource='configmaps')
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/healthz', 200)
    await asyncio.sleep(120)
    code, text = await site.fetch('/readyz')

    assert code == 503
    assert '[-] configmaps.v1: ' in text
    assert calls == []

    cluster.sandbox.faults.lift()
    await site.wait_until('/readyz', 200)
    assert calls == ['obj']


async def test_operator_without_rights_is_not_ready_but_is_alive(
    cluster, event_handlers, run_operator, site
):
    cluster.sandbox.faults.inject(code=403, resource='kopfexamples')
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/healthz', 200)
    await asyncio.sleep(5000)
    code, text = await site.fetch('/readyz')

    assert code == 503
    assert '[-] kopfexamples.v1.kopf.dev: ' in text
    assert 'Forbidden' in text
    assert (await site.fetch())[0] == 200

    cluster.sandbox.faults.lift()
    await site.wait_until('/readyz', 200)


async def test_operator_is_ready_without_rights_that_it_can_do_without(
    cluster, event_handlers, run_operator, site
):
    cluster.sandbox.faults.inject(code=403, resource='customresourcedefinitions')
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    _, text = await site.fetch('/readyz?verbose')

    assert '[+] customresourcedefinitions.v1.apiextensions.k8s.io: not observed' in text


async def test_operator_that_is_paused_for_others_is_ready_to_replace_them(
    cluster, sandbox, event_handlers, run_operator, site
):
    await sandbox.apply(build_peering_crd())
    await sandbox.create(build_peering(status={'other': build_record(priority=100, lifetime=3600)}))
    await run_operator(liveness_endpoint=site.url)
    await site.wait_until('/readyz', 200)
    _, text = await site.fetch('/readyz?verbose')

    assert '[+] kopfexamples.v1.kopf.dev: paused' in text


async def test_operator_that_is_paused_for_want_of_its_peering_is_not_ready(
    cluster, sandbox, event_handlers, run_operator, site
):
    await sandbox.apply(build_peering_crd())
    await run_operator(liveness_endpoint=site.url, peering_name='absent')
    await site.wait_until('/healthz', 200)
    await asyncio.sleep(100)
    code, text = await site.fetch('/readyz')

    assert code == 503
    assert "[-] the peering 'absent': paused" in text

    await sandbox.create(build_peering('absent'))
    await site.wait_until('/readyz', 200)
