import pytest

from kopf._sandbox.meta import equality


@pytest.mark.parametrize(
    'one, another, expected',
    [
        pytest.param(1, 1, True, id='integers'),
        pytest.param(1, True, False, id='integer-and-boolean'),
        pytest.param(0, False, False, id='zero-and-boolean'),
        pytest.param(1, 1.0, False, id='integer-and-float'),
        pytest.param('1', 1, False, id='string-and-integer'),
        pytest.param(None, None, True, id='nulls'),
        pytest.param({'a': [1, {'b': 2}]}, {'a': [1, {'b': 2}]}, True, id='nested'),
        pytest.param({'a': [1, {'b': 1}]}, {'a': [1, {'b': True}]}, False, id='nested-boolean'),
        pytest.param({'a': 1, 'b': 2}, {'b': 2, 'a': 1}, True, id='reordered'),
        pytest.param([1, 0], [True, 0], False, id='lists'),
        pytest.param({}, [], False, id='empty'),
    ],
)
def test_values_of_different_types_are_different(one, another, expected):
    assert equality.is_same(one, another) is expected
    assert equality.is_same(another, one) is expected
