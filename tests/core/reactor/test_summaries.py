"""
What operators tell of themselves when they start and when they end.
"""

import pytest

import kopf
from kopf._cogs.helpers import meters
from kopf._cogs.structs import credentials
from kopf._core.reactor import summaries


def fn(**_):
    pass


@pytest.mark.guarantee('FND-045')
@pytest.mark.parametrize(
    'patterns, clusterwide, expected',
    [
        pytest.param((), True, 'the whole cluster', id='clusterwide'),
        pytest.param(('ns-1',), False, 'the namespace ns-1', id='one'),
        pytest.param(('ns*',), False, 'the namespaces ns*', id='one-pattern'),
        pytest.param(
            ('ns1', 'app-*,!*-test'), False, 'the namespaces ns1, app-*,!*-test', id='patterns'
        ),
    ],
)
def test_scope_is_described(patterns, clusterwide, expected):
    assert summaries.describe_scope(patterns, clusterwide=clusterwide) == expected


@pytest.mark.guarantee('FND-045')
def test_handlers_are_counted_by_resources():
    registry = kopf.OperatorRegistry()
    for decorator in (
        kopf.on.create,
        kopf.on.update,
        kopf.on.event,
        kopf.daemon,
        kopf.index,
        kopf.on.validate,
    ):
        decorator('kopf.dev', 'v1', 'kopfexamples', registry=registry)(fn)
    kopf.timer('pods', interval=1, registry=registry)(fn)
    kopf.on.event(kopf.EVERYTHING, registry=registry)(fn)
    kopf.on.startup(registry=registry)(fn)
    kopf.on.login(registry=registry)(fn)

    text = summaries.describe_handlers(registry._iter_handlers())

    assert (
        text
        == '1 of kopf.EVERYTHING, 6 of kopfexamples.v1.kopf.dev, 1 of pods, 2 of the operator itself'
    )


@pytest.mark.guarantee('FND-045')
def test_absence_of_handlers_is_described():
    assert summaries.describe_handlers([]) == 'none'


@pytest.mark.guarantee('FND-045')
def test_runs_and_failures_of_all_handlers_are_counted():
    meter = meters.Meter()
    for handler, outcome in [
        ('one', 'succeeded'),
        ('one', 'retried'),
        ('one', 'retried'),
        ('two', 'failed'),
        ('two', 'succeeded'),
        ('three', 'waiting'),
        ('three', 'ignored'),
    ]:
        meter.count_attempt(handler, outcome, 1.0)

    assert summaries.count_runs(meter) == (7, 4)


@pytest.mark.guarantee('FND-045')
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, 'https://localhost:6443', id='bare'),
        pytest.param({'token': 'secret'}, 'https://localhost:6443', id='token'),
        pytest.param(
            {'context': 'kind'}, "https://localhost:6443 (the context 'kind')", id='context'
        ),
        pytest.param(
            {'server': 'https://me:secret@localhost:6443'},
            'https://***@localhost:6443',
            id='userinfo',
        ),
    ],
)
def test_clusters_are_described_with_no_secrets(options, expected):
    info = credentials.ConnectionInfo(**{'server': 'https://localhost:6443', **options})

    assert credentials.describe(info) == expected
