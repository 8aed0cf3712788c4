"""
The metrics in the format of Prometheus: what is exported, and that it is all documented.
"""

import asyncio
import json
import pathlib
import re
import subprocess
import sys
import types

import pytest
from prometheus_client import parser, registry
from prometheus_client.openmetrics import parser as openmetrics

import kopf
from kopf._cogs.aiokits import pulses
from kopf._cogs.clients.watching import stream_states
from kopf._cogs.helpers import meters
from kopf._cogs.structs import references
from kopf._core.engines.daemons import daemon_tasks, timer_tasks
from kopf._core.engines.indexing import indices
from kopf._core.engines.probing import metrics
from kopf._core.engines.reconciling import stores

ROOT = pathlib.Path(kopf.__file__).parent.parent
DOCUMENT = ROOT / 'docs' / 'metrics.md'
DASHBOARD = ROOT / 'examples' / 'monitoring' / 'dashboard.json'


class Backlog:
    def __init__(self, waiting, working, pending):
        self.waiting, self.working, self.pending = waiting, working, pending


def build_task(kind, id):
    task = object.__new__(kind)
    task.handler = types.SimpleNamespace(id=id)
    return task


@pytest.fixture
async def sources():
    """Something of everything."""
    meter = meters.Meter()
    flow = meter.flows['pods.v1']
    flow.events.update({None: 3, 'MODIFIED': 2})
    flow.cycles.update({'finished': 4})
    flow.durations.add(0.3)
    flow.waits.add(0.02)
    flow.reconnects, flow.relists, flow.failures = 5, 2, 1
    flow.backlogs.extend([Backlog(1, 2, 3), Backlog(10, 20, 30)])
    meter.pauses['namespace', 'higher-priority'] = 4
    meter.count_attempt('create_fn', 'succeeded', 1.5)
    meter.conversion_errors['pods.v1'] = 6
    meter.count_call('patch', 200, 0.1)
    meter.count_call('get', 'timeout', 60)
    meter.calls['patch'].throttled, meter.calls['patch'].waits = 7, 1.5
    pulse = pulses.Pulse(asyncio.get_running_loop())
    pulse.lags.add(0.002)
    pulse.blockages = 1
    index = indices.LiveIndex()
    index.replace('a', {'x': 1, 'y': 2})
    index.replace('b', {'x': 3})
    streams = [
        (
            'pods.v1',
            stream_states.StreamState(
                phase=stream_states.Phase.CONNECTED, begun=0, fed=95, known={1: 2, 3: 4}
            ),
        ),
        (
            'pods.v1',
            stream_states.StreamState(
                phase=stream_states.Phase.WAITING, begun=0, fed=60, known={1: 2}
            ),
        ),
        ('nodes.v1', stream_states.StreamState(phase=stream_states.Phase.ENDED, begun=0)),
    ]
    daemons = [
        build_task(daemon_tasks.DaemonTask, 'daemon_fn'),
        build_task(daemon_tasks.DaemonTask, 'daemon_fn'),
        build_task(timer_tasks.TimerTask, 'timer_fn'),
    ]
    store = stores.Store(references.Resource('', 'v1', 'secrets'))
    store.put('ADDED', {'metadata': {'name': 'a', 'namespace': 'ns', 'uid': 'uid'}})
    return metrics.Sources(
        meter=meter,
        pulse=pulse,
        indices={'idx': index},
        get_streams=lambda: streams,
        get_daemons=lambda: daemons,
        get_pauses=lambda: ['namespace', 'namespace'],
        clock=lambda: 100.0,
        stored=[store],
        mapping_errors={'find_parents': 3},
    )


def read_samples(text, parse=parser.text_string_to_metric_families):
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parse(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    'name, labels, value',
    [
        ('kopf_events_received_total', ['initial', 'pods.v1'], 3),
        ('kopf_events_received_total', ['modified', 'pods.v1'], 2),
        ('kopf_cycles_total', ['finished', 'pods.v1'], 4),
        ('kopf_cycle_duration_seconds_count', ['pods.v1'], 1),
        ('kopf_cycle_duration_seconds_sum', ['pods.v1'], 0.3),
        ('kopf_cycle_duration_seconds_bucket', ['0.25', 'pods.v1'], 0),
        ('kopf_cycle_duration_seconds_bucket', ['0.5', 'pods.v1'], 1),
        ('kopf_cycle_duration_seconds_bucket', ['+Inf', 'pods.v1'], 1),
        ('kopf_queue_wait_seconds_sum', ['pods.v1'], 0.02),
        ('kopf_queue_depth', ['pods.v1'], 11),
        ('kopf_workers_busy', ['pods.v1'], 22),
        ('kopf_retries_pending', ['pods.v1'], 33),
        ('kopf_handler_runs_total', ['create_fn', 'succeeded'], 1),
        ('kopf_handler_duration_seconds_sum', ['create_fn'], 1.5),
        ('kopf_api_requests_total', ['200', 'patch'], 1),
        ('kopf_api_requests_total', ['get', 'timeout'], 1),
        ('kopf_api_request_duration_seconds_sum', ['get'], 60),
        ('kopf_api_throttled_requests_total', ['patch'], 7),
        ('kopf_api_throttled_seconds_total', ['patch'], 1.5),
        ('kopf_streams', ['connected', 'pods.v1'], 1),
        ('kopf_streams', ['pods.v1', 'waiting'], 1),
        ('kopf_streams', ['listing', 'pods.v1'], 0),
        ('kopf_streams', ['ended', 'nodes.v1'], 1),
        ('kopf_stream_silence_seconds', ['pods.v1'], 40),
        ('kopf_stream_reconnects_total', ['pods.v1'], 5),
        ('kopf_stream_relists_total', ['pods.v1'], 2),
        ('kopf_stream_failures_total', ['pods.v1'], 1),
        ('kopf_objects', ['pods.v1'], 3),
        ('kopf_daemons_running', ['daemon_fn'], 2),
        ('kopf_timers_running', ['timer_fn'], 1),
        ('kopf_index_keys', ['idx'], 2),
        ('kopf_index_objects', ['idx'], 2),
        ('kopf_stored_objects', ['secrets.v1'], 1),
        ('kopf_stored_bytes', ['secrets.v1'], 54),
        ('kopf_mapping_errors_total', ['find_parents'], 3),
        ('kopf_peering_pauses_total', ['higher-priority', 'namespace'], 4),
        ('kopf_peering_paused', ['namespace'], 2),
        ('kopf_peering_paused', ['cluster'], 0),
        ('kopf_event_loop_lag_seconds_count', [], 1),
        ('kopf_event_loop_blockages_total', [], 1),
    ],
)
async def test_numbers_are_exported(sources, name, labels, value):
    body, _ = metrics.Exposition(sources).expose()

    assert read_samples(body.decode())[(name, *sorted(labels))] == value


async def test_versions_are_exported(sources):
    body, _ = metrics.Exposition(sources).expose()

    (family,) = [
        family
        for family in parser.text_string_to_metric_families(body.decode())
        if family.name == 'kopf_build_info'
    ]
    assert family.samples[0].labels['version'] == kopf.__version__
    assert family.samples[0].value == 1


@pytest.mark.parametrize(
    'accepted, expected, parse',
    [
        pytest.param('', 'text/plain', parser.text_string_to_metric_families, id='default'),
        pytest.param(
            'text/plain;version=0.0.4',
            'text/plain',
            parser.text_string_to_metric_families,
            id='text',
        ),
        pytest.param(
            'application/openmetrics-text;version=1.0.0,text/plain;q=0.5',
            'application/openmetrics-text',
            openmetrics.text_string_to_metric_families,
            id='openmetrics',
        ),
    ],
)
async def test_format_is_what_the_client_accepts(sources, accepted, expected, parse):
    body, content_type = metrics.Exposition(sources).expose(accepted)

    assert content_type.startswith(expected)
    assert read_samples(body.decode(), parse)['kopf_queue_depth', 'pods.v1'] == 11


@pytest.mark.guarantee('FND-051')
async def test_metrics_take_a_limited_share_of_the_time(sources):
    # It takes a second to collect them.
    times = iter([100.0, 101.0, 101.0, 105.0, 111.0, 112.0, 112.0])
    exposition = metrics.Exposition(sources, clock=lambda: next(times))

    first, _ = exposition.expose()
    sources.meter.flows['pods.v1'].events['ADDED'] += 1
    second, _ = exposition.expose()
    third, _ = exposition.expose()

    assert first == second != third


@pytest.mark.guarantee('FND-051')
async def test_metrics_are_kept_in_two_formats_whatever_the_clients_accept(sources):
    exposition = metrics.Exposition(sources, clock=lambda: 0)
    kinds, versions = (
        ['application/openmetrics-text', 'text/plain', '*/*'],
        ['1.0.0', '1.5.7', '99.0.0', 'abc', ''],
    )
    escapings = ['allow-utf-8', 'dots', 'values', 'any']

    types = {
        exposition.expose(f'{kind};version={version};escaping={escaping}')[1]
        for kind in kinds
        for version in versions
        for escaping in escapings
    }

    assert len(types) == 2


async def test_ended_streams_are_not_silent(sources):
    body, _ = metrics.Exposition(sources).expose()

    assert ('kopf_stream_silence_seconds', 'nodes.v1') not in read_samples(body.decode())


def read_table():
    """The names, types and labels as they are documented."""
    rows = re.findall(r'^\| `(kopf_\w+)` \| (\w+) \| (.*?) \|', DOCUMENT.read_text(), re.MULTILINE)
    return {name: (kind, frozenset(re.findall(r'`(\w+)`', labels))) for name, kind, labels in rows}


async def test_all_metrics_are_documented_and_exist(sources):
    body, _ = metrics.Exposition(sources, common=registry.CollectorRegistry()).expose()
    found = {}
    for family in parser.text_string_to_metric_families(body.decode()):
        name = f'{family.name}_total' if family.type == 'counter' else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {'le'}
        found[name] = (family.type, labels)

    assert found == read_table()


async def test_dashboard_shows_all_metrics_and_no_others():
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = ' '.join(
        target['expr'] for panel in dashboard['panels'] for target in panel.get('targets', ())
    )
    used = {
        re.sub('_(bucket|sum|count)$', '', name) for name in re.findall(r'\bkopf_\w+', expressions)
    }

    assert used == set(read_table())


def test_libraries_are_not_loaded_until_something_is_served():
    program = 'import kopf._core.reactor.running; import sys; print(*sys.modules)'

    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True
    )

    assert {'prometheus_client', 'aiohttp.web'}.isdisjoint(done.stdout.split())
