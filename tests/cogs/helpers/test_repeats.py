"""
Lines that others can cause at any rate are written at a limited one.
"""

import pytest

from kopf._cogs.helpers import repeats


@pytest.mark.parametrize(
    'burst, moments, expected',
    [
        pytest.param(1, [0], [0], id='first'),
        pytest.param(1, [0, 1, 599], [0, None, None], id='repeated'),
        pytest.param(1, [0, 600], [0, 0], id='after-the-period'),
        pytest.param(1, [0, 1, 2, 600, 601, 1200], [0, None, None, 2, None, 1], id='counted'),
        pytest.param(2, [0, 1, 2, 600, 601, 602], [0, 0, None, 1, 0, None], id='burst'),
        pytest.param(3, [0, 600], [0, 0], id='unused-burst'),
    ],
)
def test_lines_are_limited_in_each_period(burst, moments, expected):
    lines = repeats.Repeats(burst)

    assert [lines.admit('line', now=moment) for moment in moments] == expected


def test_other_lines_are_counted_apart():
    lines = repeats.Repeats()

    assert [lines.admit(kind, now=0.0) for kind in 'abab'] == [0, 0, None, None]


def test_oldest_lines_are_forgotten(monkeypatch):
    monkeypatch.setattr(repeats, 'MEMORY', 2)
    lines = repeats.Repeats()

    assert [lines.admit(kind, now=0.0) for kind in 'abcca'] == [0, 0, 0, None, 0]


@pytest.mark.parametrize(
    'left_out, expected',
    [(0, ''), (5, ' It was so 5 more times since it was reported last.')],
)
def test_number_of_lines_left_out_is_told(left_out, expected):
    assert repeats.describe(left_out) == expected
