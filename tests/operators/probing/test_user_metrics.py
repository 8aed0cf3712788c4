"""
The users' own metrics: declared in their files as anywhere else, served with those of the operator.
"""

import textwrap

import aiohttp
import prometheus_client
import pytest

import kopf
import kopf.testing
from kopf._core.engines.probing import metrics

FILE = """
    import kopf
    import prometheus_client

    CREATED = prometheus_client.Counter('users_created', 'Created objects.')
    NESTED = {'x': [prometheus_client.Gauge('users_nested', 'Not a variable of the module.')]}

    @kopf.on.create('kopfexamples')
    def create_fn():
        CREATED.inc()
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / 'handlers.py'
    path.write_text(textwrap.dedent(FILE))
    return path


def list_names():
    return {family.name for family in prometheus_client.REGISTRY.collect()}


async def scrape(port, accept='text/plain'):
    async with aiohttp.ClientSession() as session:
        url = f'http://127.0.0.1:{port}/metrics'
        async with session.get(url, headers={'Accept': accept}) as response:
            assert response.status == 200
            return await response.text()


@pytest.mark.parametrize('accept', ['text/plain', 'application/openmetrics-text'])
async def test_metrics_of_files_are_served_with_those_of_the_process_and_of_the_operator(
    cluster, sandbox, path, unused_tcp_port, accept
):
    endpoint = f'http://127.0.0.1:{unused_tcp_port}/healthz'
    async with kopf.testing.Operator(sandbox, path, liveness_endpoint=endpoint):
        await cluster.create()
        await cluster.wait_until_handled()
        text = await scrape(unused_tcp_port, accept)

    assert 'users_created_total 1.0' in text
    assert 'kopf_handler_runs_total{' in text
    assert 'python_info{' in text and 'process_cpu_seconds_total ' in text
    types = [line for line in text.splitlines() if line.startswith('# TYPE ')]
    assert len(types) == len(set(types))


async def test_files_can_be_executed_again_while_running_and_afterwards(cluster, sandbox, path):
    for _ in range(2):
        async with kopf.testing.Operator(sandbox, path), kopf.testing.Operator(sandbox, path):
            assert {'users_created', 'users_nested'} <= list_names()

    assert not {'users_created', 'users_nested'} & list_names()


def test_files_can_be_executed_again_in_simulations_and_by_the_runner(path):
    for _ in range(2):
        with kopf.testing.Simulation() as simulation:
            simulation.run(path)
            assert 'users_created' in list_names()
        with kopf.testing.KopfRunner(['run', '-A', '--sandbox', str(path)], timeout=20) as runner:
            pass
        assert runner.exit_code == 0

    assert 'users_created' not in list_names()


def test_metrics_of_imported_modules_stay_as_the_modules_do(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'users_module.py').write_text(
        "import prometheus_client\nprometheus_client.Counter('users_imported', 'Once.')"
    )
    path = tmp_path / 'importing.py'
    path.write_text(
        "import kopf\nimport users_module\nkopf.on.event('pods')(lambda: None)\n"
        "import prometheus_client\nprometheus_client.Counter('users_own', 'Each time.')"
    )
    for _ in range(2):
        with kopf.testing.Simulation() as simulation:
            simulation.run(path)
            assert {'users_imported', 'users_own'} <= list_names()

    assert 'users_imported' in list_names()
    assert 'users_own' not in list_names()


class Broken:
    def collect(self):
        yield prometheus_client.metrics_core.GaugeMetricFamily('first', 'Before.', value=1)
        yield prometheus_client.metrics_core.GaugeMetricFamily('own', 'The same name.', value=2)
        raise ZeroDivisionError


class Own:
    def collect(self):
        yield prometheus_client.metrics_core.GaugeMetricFamily('own', 'Ours.', value=1)


def test_errors_and_repeated_names_of_users_do_not_spoil_the_rest(caplog):
    families = list(metrics._Joint(Own(), Broken()).collect())

    assert [(family.name, family.samples[0].value) for family in families] == [
        ('own', 1),
        ('first', 1),
    ]
    assert 'Some metrics of the default registry are not exposed' in caplog.text
