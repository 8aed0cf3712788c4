"""
Meters: plain numbers of what has happened.
"""

import pytest

from kopf._cogs.helpers import meters


@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param(0.0, [1, 0, 0], id='least'),
        pytest.param(1.0, [1, 0, 0], id='first-bound'),
        pytest.param(1.1, [0, 1, 0], id='between'),
        pytest.param(2.0, [0, 1, 0], id='last-bound'),
        pytest.param(2.1, [0, 0, 1], id='beyond'),
    ],
)
def test_values_are_counted_up_to_their_bounds_inclusively(value, expected):
    histogram = meters.Histogram(bounds=(1.0, 2.0))

    histogram.add(value)

    assert histogram.counts == expected
    assert histogram.total == value
    assert len(histogram) == 1


def test_calls_are_counted_by_verbs_and_answers():
    meter = meters.Meter()

    meter.count_call('get', 200, 0.1)
    meter.count_call('get', 404, 0.2)
    meter.count_call('get', 200, 0.3)
    meter.count_call('watch', 'timeout', 60.0)

    assert {verb: dict(calls.answers) for verb, calls in meter.calls.items()} == {
        'get': {200: 2, 404: 1},
        'watch': {'timeout': 1},
    }
    assert meter.calls['get'].durations.total == pytest.approx(0.6)


def test_attempts_are_counted_by_handlers_and_outcomes():
    meter = meters.Meter()

    meter.count_attempt('create_fn', 'retried', 1.0)
    meter.count_attempt('create_fn', 'succeeded', 2.0)

    assert dict(meter.attempts['create_fn'].outcomes) == {'retried': 1, 'succeeded': 1}
    assert meter.attempts['create_fn'].durations.total == 3.0
