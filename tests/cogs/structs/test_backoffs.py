"""
Backoffs: delays that grow, with a cap and a jitter.
"""

import math

import pytest

import kopf
from kopf._cogs.structs import backoffs


@pytest.mark.parametrize(
    'attempts, delay', [(1, 1), (2, 2), (3, 4), (10, 512), (11, 600), (100, 600), (10**6, 600)]
)
def test_delays_grow_up_to_the_cap(attempts, delay):
    assert kopf.Backoff().choose_delay(attempts, chance=0) == delay


@pytest.mark.parametrize('chance, delay', [(0, 10), (0.5, 12.5), (1, 15)])
def test_delays_are_prolonged_at_random(chance, delay):
    assert kopf.Backoff(first=10, jitter=0.5).choose_delay(1, chance) == delay


def test_delays_stay_the_same_with_no_growth():
    backoff = kopf.Backoff(first=5, factor=1, jitter=0)

    assert [backoff.choose_delay(attempts, chance=1) for attempts in (1, 2, 10**9)] == [5, 5, 5]


def test_plain_numbers_are_the_delays_themselves():
    assert backoffs.choose_delay(7, attempts=5, chance=1) == 7


@pytest.mark.parametrize(
    'options, error',
    [
        ({'first': 0}, 'first must be above 0 seconds, not 0'),
        ({'factor': 0.5}, 'factor must be 1 or more, not 0.5'),
        ({'first': 10, 'cap': 5}, r'cap must not be less than first \(10\), as it is 5'),
        ({'jitter': -1}, 'jitter must be 0 or more, not -1'),
    ],
)
def test_wrong_numbers_are_refused(options, error):
    with pytest.raises(ValueError, match=error):
        kopf.Backoff(**options)


@pytest.mark.parametrize('value', ['1', None, True, math.inf, math.nan])
@pytest.mark.parametrize('name', ['first', 'factor', 'cap', 'jitter'])
def test_all_options_are_finite_numbers(name, value):
    with pytest.raises(TypeError, match=f'{name} must be a finite number'):
        kopf.Backoff(**{name: value})
