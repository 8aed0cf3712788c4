"""
Moments as they are written on objects: in the usual form, in others, and in none.
"""

import datetime

import pytest

from kopf._cogs.helpers import times

MOMENT = datetime.datetime(2026, 11, 6, 12, tzinfo=datetime.UTC)


@pytest.mark.guarantee('FND-064')
@pytest.mark.parametrize(
    'value, expected',
    [
        ('2026-11-06T12:00:00+00:00', MOMENT),
        ('2026-11-06T12:00:00.000000', MOMENT),
        ('2026-11-06T14:00:00+02:00', MOMENT),
        ('2026-11-06T12:00:00Z', MOMENT),
        ('2026-11-6T12:00:00Z', MOMENT),
        ('20261106T12Z', MOMENT),
        ('2026-11', datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)),
        ('0001-01-01T00:00:00+23:59', None),
        ('yesterday', None),
        ('', None),
        (None, None),
        (5, None),
        ({}, None),
    ],
)
def test_moments_are_understood_in_all_forms(value, expected):
    assert times.parse_moment(value) == expected
