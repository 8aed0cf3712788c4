import pytest

from kopf._sandbox.codec import duplicates


@pytest.mark.parametrize(
    'raw, expected',
    [
        pytest.param(b'{"a": 1, "b": {"a": 2}}', [], id='none'),
        pytest.param(b'{"a": 1, "a": 2}', ['a'], id='top'),
        pytest.param(b'{"a": 1, "a": 2, "a": 3}', ['a'], id='many-times'),
        pytest.param(
            b'{"spec": {"k": 1, "k": 2}, "spec": {"k": 3}}', ['spec.k', 'spec'], id='nested'
        ),
        pytest.param(b'{"items": [{"x": 1}, {"y": 1, "y": 2}]}', ['items[1].y'], id='in-lists'),
        pytest.param(b'[{"op": "add", "value": 1, "value": 2}]', ['[0].value'], id='in-a-list'),
        pytest.param(b'{"a": 1, "a": ', [], id='not-json'),
        pytest.param(b'\xff\xfe', [], id='not-text'),
        pytest.param(b'[' * 100_000, [], id='too-deep'),
    ],
)
def test_repeated_fields_are_named_as_the_api_does(raw, expected):
    assert list(duplicates.find_duplicates(raw).paths) == expected
