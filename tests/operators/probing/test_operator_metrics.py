"""
The metrics of running operators: every one of those documented moves when it should.
"""

import asyncio
import dataclasses
import threading

import aiohttp
import pytest
from clusters import build_object
from operator_endpoints import Site

import kopf
from kopf._cogs.aiokits import pulses

RESOURCE = 'kopfexamples.v1.kopf.dev'


@pytest.fixture
async def http(virtual_time):
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def site(http):
    return Site(http)


@pytest.fixture
def run_served(run_operator, site):
    """Run an operator, and wait until it is ready."""

    async def run(**options):
        operator = await run_operator(liveness_endpoint=site.url, **options)
        await site.wait_until('/readyz', 200)
        return operator

    return run


async def test_build_is_told(cluster, run_served, site):
    await run_served()

    (labels,) = (await site.scrape()).get_labels('kopf_build_info')
    assert labels['version'] == kopf.__version__


@pytest.mark.guarantee('TYP-011')
async def test_calls_that_are_not_made_because_of_types_are_counted(
    cluster, registry, run_served, site
):
    @dataclasses.dataclass
    class Spec:
        x: str

    async def fn(spec: Spec, **_):
        pass

    kopf.on.create('kopfexamples', registry=registry)(fn)
    await cluster.create(spec={'x': 1})
    await run_served()
    await cluster.wait_until_handled()

    assert (await site.scrape()).get('kopf_conversion_errors_total', resource=RESOURCE) == 1


@pytest.mark.guarantee('RCL-011')
async def test_stored_objects_and_failures_of_mapping_functions_are_counted(
    sandbox, cluster, registry, run_served, site
):
    def fail(**_):
        raise RuntimeError('boo')

    kopf.on.reconcile('kopfexamples', registry=registry, watches={'secrets': fail})(
        lambda **_: None
    )
    await cluster.create()
    metadata = {'name': 'password', 'namespace': 'default'}
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Secret', 'metadata': metadata})
    await run_served()
    samples = await site.scrape()

    name = fail.__qualname__
    assert samples.get('kopf_stored_objects', resource=RESOURCE) == 1
    assert samples.get('kopf_stored_objects', resource='secrets.v1') == 1
    assert samples.get('kopf_stored_bytes', resource='secrets.v1') > 0
    assert samples.get('kopf_mapping_errors_total', function=name) == 1


async def test_events_are_counted_by_types(cluster, registry, run_served, site):
    kopf.on.event('kopfexamples', registry=registry)(lambda **_: None)
    await cluster.create('initial')
    await run_served()
    await cluster.create('added')
    await cluster.patch({'spec': {'x': 2}}, 'added')
    await cluster.delete('added')

    def get(samples):
        return {
            type: samples.get('kopf_events_received_total', resource=RESOURCE, type=type)
            for type in ('initial', 'added', 'modified', 'deleted')
        }

    await site.wait_for(
        lambda samples: get(samples) == {'initial': 1, 'added': 1, 'modified': 1, 'deleted': 1}
    )


async def test_cycles_are_counted_and_measured(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        await asyncio.sleep(3)
        if not retry:
            raise kopf.TemporaryError('again', delay=10)

    await run_served()
    await cluster.create()
    await cluster.wait_until_handled()

    samples = await site.wait_for(
        lambda samples: samples.get('kopf_cycles_total', outcome='finished')
    )
    assert samples.get('kopf_cycles_total', resource=RESOURCE, outcome='continued') >= 1
    assert samples.get('kopf_cycle_duration_seconds_sum', resource=RESOURCE) == pytest.approx(
        6, abs=1
    )
    assert samples.get('kopf_cycle_duration_seconds_count') == samples.get('kopf_cycles_total')


async def test_failures_beyond_handlers_are_counted(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', registry=registry, when=lambda **_: 1 / 0)
    async def create_fn(**_):
        pass

    await run_served()
    await cluster.create()

    await site.wait_for(
        lambda samples: samples.get('kopf_cycles_total', resource=RESOURCE, outcome='failed') >= 1
    )


@pytest.mark.guarantee('FND-005')
async def test_objects_handled_in_circles_are_counted(cluster, registry, run_served, site):
    for one, two in [('ping', 'pong'), ('pong', 'ping')]:

        @kopf.on.field('kopfexamples', id=one, field=f'spec.{one}', registry=registry)
        async def fn(patch, new, two=two, **_):
            patch.spec[two] = (new or 0) + 1

    await run_served()
    await cluster.create(spec={'ping': 1})

    await site.wait_for(
        lambda samples: samples.get('kopf_breaker_pauses_total', resource=RESOURCE) >= 1
    )


async def test_queues_are_measured(cluster, registry, settings, run_served, site):
    settings.queueing.worker_limit = 1
    go_on = asyncio.Event()

    @kopf.on.event('kopfexamples', registry=registry)
    async def event_fn(**_):
        await go_on.wait()

    await run_served()
    for number in range(4):
        await cluster.create(f'obj{number}')

    def get(samples):
        return samples.get('kopf_workers_busy', resource=RESOURCE), samples.get(
            'kopf_queue_depth', resource=RESOURCE
        )

    await site.wait_for(lambda samples: get(samples) == (1, 3))
    await asyncio.sleep(100)
    go_on.set()

    samples = await site.wait_for(lambda samples: get(samples) == (0, 0))
    assert samples.get('kopf_queue_wait_seconds_count', resource=RESOURCE) == 4
    assert samples.get('kopf_queue_wait_seconds_sum', resource=RESOURCE) == pytest.approx(
        300, rel=0.1
    )


async def test_pending_retries_are_counted(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(retry, **_):
        if not retry:
            raise kopf.TemporaryError('again', delay=100)

    await run_served()
    for number in range(3):
        await cluster.create(f'obj{number}')

    await site.wait_for(lambda samples: samples.get('kopf_retries_pending', resource=RESOURCE) == 3)
    await asyncio.sleep(100)
    await site.wait_for(lambda samples: samples.get('kopf_retries_pending', resource=RESOURCE) == 0)


async def test_runs_of_handlers_are_counted_by_outcomes(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(retry, **_):
        await asyncio.sleep(2)
        if not retry:
            raise kopf.TemporaryError('again', delay=1)

    @kopf.on.create('kopfexamples', id='failing_fn', registry=registry)
    def failing_fn(**_):
        raise kopf.PermanentError('never')

    @kopf.on.event('kopfexamples', id='event_fn', registry=registry)
    async def event_fn(**_):
        raise RuntimeError('ignored')

    @kopf.on.startup(id='startup_fn', registry=registry)
    async def startup_fn(**_):
        pass

    @kopf.on.probe(id='probe_fn', registry=registry)
    async def probe_fn(**_):
        pass

    await run_served()
    await cluster.create()
    await cluster.wait_until_handled()

    samples = await site.scrape()
    for handler, outcome in [
        ('create_fn', 'retried'),
        ('create_fn', 'succeeded'),
        ('failing_fn', 'failed'),
        ('startup_fn', 'succeeded'),
    ]:
        assert samples.get('kopf_handler_runs_total', handler=handler, outcome=outcome) == 1
    assert samples.get('kopf_handler_runs_total', handler='event_fn', outcome='ignored') >= 1
    assert samples.get('kopf_handler_runs_total', handler='probe_fn', outcome='succeeded') >= 1
    assert samples.get('kopf_handler_duration_seconds_count', handler='create_fn') == 2
    assert samples.get('kopf_handler_duration_seconds_sum', handler='create_fn') == pytest.approx(
        4, abs=0.5
    )


async def test_subhandlers_are_counted_together(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(name, **_):
        @kopf.subhandler(id=f'sub-{name}')
        async def sub_fn(**_):
            @kopf.subhandler(id=f'subsub-{name}')
            async def subsub_fn(retry, **_):
                if not retry:
                    raise kopf.TemporaryError('again', delay=1)

    await run_served()
    await cluster.create()
    await cluster.wait_until_handled()

    samples = await site.scrape()
    handlers = {labels['handler'] for labels in samples.get_labels('kopf_handler_runs_total')}
    assert handlers == {'create_fn', 'create_fn/*'}
    assert samples.get('kopf_handler_runs_total', handler='create_fn', outcome='waiting') >= 1
    assert samples.get('kopf_handler_runs_total', handler='create_fn/*', outcome='succeeded') == 2


async def test_daemons_and_timers_are_counted(cluster, registry, run_served, site):
    @kopf.daemon('kopfexamples', id='daemon_fn', registry=registry)
    async def daemon_fn(stopped, **_):
        await stopped.wait()

    @kopf.timer('kopfexamples', interval=10, id='timer_fn', registry=registry)
    async def timer_fn(**_):
        pass

    await run_served()
    for number in range(3):
        await cluster.create(f'obj{number}')

    def get(samples):
        return (
            samples.get('kopf_daemons_running', handler='daemon_fn'),
            samples.get('kopf_timers_running', handler='timer_fn'),
        )

    samples = await site.wait_for(lambda samples: get(samples) == (3, 3))
    before = samples.get('kopf_handler_runs_total', handler='timer_fn', outcome='succeeded')
    await asyncio.sleep(30)
    await cluster.delete('obj0')
    samples = await site.wait_for(lambda samples: get(samples) == (2, 2))
    assert (
        samples.get('kopf_handler_runs_total', handler='timer_fn', outcome='succeeded')
        >= before + 6
    )


async def test_indices_are_measured(cluster, registry, run_served, site):
    @kopf.index('kopfexamples', id='idx', registry=registry)
    async def idx(name, **_):
        return {'all': name, name: 1}

    for number in range(3):
        await cluster.create(f'obj{number}')
    await run_served()

    samples = await site.scrape()
    assert samples.get('kopf_index_keys', index='idx') == 4
    assert samples.get('kopf_index_objects', index='idx') == 3
    assert samples.get('kopf_objects', resource=RESOURCE) == 3
    assert samples.get('kopf_handler_runs_total', handler='idx', outcome='succeeded') == 3


async def test_streams_are_measured(cluster, registry, run_served, site):
    kopf.on.event('kopfexamples', registry=registry)(lambda **_: None)
    await run_served()
    await asyncio.sleep(30)

    samples = await site.scrape()
    assert samples.get('kopf_streams', resource=RESOURCE, phase='connected') == 1
    assert 0 < samples.get('kopf_stream_silence_seconds', resource=RESOURCE) <= 61
    before = samples.get('kopf_stream_reconnects_total', resource=RESOURCE)

    with cluster.sandbox.faults.inject(verb='watch', resource='kopfexamples', code=503):
        cluster.sandbox.faults.cut_streams(resource='kopfexamples')
        await site.wait_for(
            lambda samples: samples.get('kopf_streams', resource=RESOURCE, phase='waiting') == 1
        )
    samples = await site.wait_for(
        lambda samples: samples.get('kopf_streams', resource=RESOURCE, phase='connected') == 1
    )

    assert samples.get('kopf_stream_failures_total', resource=RESOURCE) >= 1
    assert samples.get('kopf_stream_reconnects_total', resource=RESOURCE) > before
    assert samples.get('kopf_stream_relists_total', resource=RESOURCE) == 0

    cluster.sandbox.faults.end_streams(410, resource='kopfexamples')

    await site.wait_for(
        lambda samples: samples.get('kopf_stream_relists_total', resource=RESOURCE) == 1
    )


async def test_requests_to_the_api_are_counted_and_measured(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    with cluster.sandbox.faults.inject(verb='patch', code=503, latency=2, times=1):
        await run_served()
        await cluster.create()
        await cluster.wait_until_handled()

    samples = await site.wait_for(
        lambda samples: samples.get('kopf_api_requests_total', verb='patch', code='200')
    )
    assert samples.get('kopf_api_requests_total', verb='patch', code='503') == 1
    assert samples.get('kopf_api_requests_total', verb='list', code='200') >= 1
    assert samples.get('kopf_api_requests_total', verb='watch', code='200') >= 1
    assert samples.get('kopf_api_requests_total', verb='get', code='200') >= 1
    assert samples.get('kopf_api_request_duration_seconds_sum', verb='patch') >= 2
    assert samples.get('kopf_api_request_duration_seconds_count', verb='patch') == samples.get(
        'kopf_api_requests_total', verb='patch'
    )


async def test_requests_with_no_answers_are_counted_too(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    with cluster.sandbox.faults.inject(
        verb='patch', cut=True, times=2
    ):  # one is forgiven to a kept connection
        await run_served()
        await cluster.create()
        await cluster.wait_until_handled()

    samples = await site.scrape()
    assert samples.get('kopf_api_requests_total', verb='patch', code='disconnected') == 1


async def test_throttled_requests_are_counted(cluster, registry, settings, run_served, site):
    settings.networking.rate_limit, settings.networking.rate_burst = 1.0, 1
    settings.posting.enabled = False

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    await run_served()
    for number in range(10):
        await cluster.create(f'obj{number}')
    for number in range(10):
        await cluster.wait_until_handled(f'obj{number}')

    samples = await site.scrape()
    assert 8 <= samples.get('kopf_api_throttled_requests_total', verb='patch') <= 10
    assert samples.get('kopf_api_throttled_seconds_total', verb='patch') >= 36


async def test_requests_that_do_not_wait_are_not_throttled(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        pass

    await run_served()
    await cluster.create()
    await cluster.wait_until_handled()

    samples = await site.scrape()
    assert samples.get('kopf_api_requests_total', verb='patch') >= 1
    assert samples.get('kopf_api_throttled_requests_total') == 0
    assert samples.get('kopf_api_throttled_seconds_total') == 0


async def test_lags_and_blockages_of_the_event_loop_are_measured(
    cluster, registry, run_served, site, monkeypatch
):
    noticed = threading.Event()
    monkeypatch.setattr(pulses.logger, 'warning', lambda *args: noticed.set())

    @kopf.on.startup(registry=registry)
    async def configure(settings, **_):
        settings.execution.blocking_limit = 0.1

    @kopf.on.event('kopfexamples', registry=registry)
    async def blocking_fn(**_):
        noticed.wait(60)

    await run_served()
    await cluster.create()

    samples = await site.wait_for(
        lambda samples: samples.get('kopf_event_loop_blockages_total') >= 1
    )
    assert samples.get('kopf_event_loop_lag_seconds_count') >= 1
    assert samples.get('kopf_event_loop_lag_seconds_sum') >= 0.1


async def test_neither_objects_nor_namespaces_are_in_labels(cluster, registry, run_served, site):
    @kopf.on.create('kopfexamples', id='create_fn', registry=registry)
    async def create_fn(name, **_):
        @kopf.subhandler(id=name)
        async def sub_fn(**_):
            pass

    @kopf.index('kopfexamples', id='idx', registry=registry)
    async def idx(name, **_):
        return {name: name}

    await cluster.sandbox.apply(
        {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'very-unique-place'}}
    )
    await cluster.sandbox.create(build_object('very-unique-name', namespace='very-unique-place'))
    await run_served(namespaces=['very-unique-place'])
    await site.wait_for(
        lambda samples: samples.get('kopf_handler_runs_total', handler='create_fn/*')
    )
    _, text = await site.fetch('/metrics')

    assert 'very-unique' not in text


async def test_operators_in_one_process_have_their_own_metrics(cluster, run_operator, http):
    sites = [Site(http), Site(http)]
    registries = [kopf.OperatorRegistry(), kopf.OperatorRegistry()]
    kopf.on.event('kopfexamples', registry=registries[0], id='one_fn')(lambda **_: None)
    kopf.on.event('kopfexamples', registry=registries[1], id='two_fn')(lambda **_: None)
    for site, registry in zip(sites, registries, strict=True):
        await run_operator(
            liveness_endpoint=site.url,
            registry=registry,
            settings=kopf.OperatorSettings(),
            standalone=True,
        )
        await site.wait_until('/readyz', 200)
    await cluster.create()

    for site, own, foreign in [(sites[0], 'one_fn', 'two_fn'), (sites[1], 'two_fn', 'one_fn')]:
        samples = await site.wait_for(
            lambda samples, own=own: samples.get('kopf_handler_runs_total', handler=own) == 1
        )
        assert samples.get('kopf_handler_runs_total', handler=foreign) == 0
