import itertools

import pytest

from kopf._core.actions import throttlers


class ReiterableOnly:
    """Has nothing but an iterator, as an endless generator of delays would have."""

    def __iter__(self):
        return itertools.count(10)


@pytest.mark.parametrize(
    'delays, expected',
    [
        pytest.param((1, 2), [101, 102, 102, 102], id='last-one-is-repeated'),
        pytest.param([5], [105, 105, 105, 105], id='one-delay'),
        pytest.param(3, [103, 103, 103, 103], id='one-number'),
        pytest.param((), [100, 100, 100, 100], id='no-delays'),
        pytest.param(ReiterableOnly(), [110, 111, 112, 113], id='endless'),
    ],
)
def test_delays_grow_as_given(delays, expected):
    throttler = throttlers.Throttler()

    untils = [throttler.fail(now=100, delays=delays) for _ in expected]

    assert untils == expected
