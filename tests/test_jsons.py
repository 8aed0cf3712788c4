import datetime
import importlib.util
import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._cogs.helpers import jsons


def load_without_orjson():
    """Load a second copy of the module, as if orjson were not installed."""
    spec = importlib.util.find_spec('kopf._cogs.helpers.jsons')
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, 'orjson', None)
        spec.loader.exec_module(module)
    return module


portable = load_without_orjson()
backends = pytest.mark.parametrize(
    'backend', [pytest.param(jsons, id='orjson'), pytest.param(portable, id='stdlib')]
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters())
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
documents = values.map(json.dumps)


def test_backends_differ():
    assert jsons.orjson is not None
    assert portable.orjson is None


@given(value=values)
def test_backends_write_equal_documents(value):
    assert json.loads(jsons.dumps(value)) == json.loads(portable.dumps(value))


@given(document=documents)
def test_backends_read_equal_values_and_types(document):
    assert repr(outcome_of(jsons.loads, document)) == repr(outcome_of(portable.loads, document))


@given(raw=st.binary(max_size=20) | st.text('[]{}:,"\\ud8eE+-.0123', max_size=20))
def test_backends_read_or_refuse_the_same_garbage(raw):
    assert repr(outcome_of(jsons.loads, raw)) == repr(outcome_of(portable.loads, raw))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_written_values_are_read_back(value):
    assert jsons.loads(jsons.dumps(value)) == value
    assert jsons.dumps(value) == portable.dumps(value)


def outcome_of(loads, raw):
    try:
        return loads(raw)
    except jsons.JSONDecodeError:
        return 'refused'


@backends
@pytest.mark.parametrize(
    'value, expected',
    [
        pytest.param({'a': [1, None, True, 'x']}, b'{"a":[1,null,true,"x"]}', id='compact'),
        pytest.param('żółw/„…”', '"żółw/„…”"'.encode(), id='not-escaped'),
        pytest.param('\x00\n"\\', b'"\\u0000\\n\\"\\\\"', id='escaped'),
        pytest.param('\ud800', b'"\\ud800"', id='lone-surrogate'),
        pytest.param(2**70, str(2**70).encode(), id='big-integer'),
        pytest.param({1: 2}, b'{"1":2}', id='integer-key'),
        pytest.param((1, 2), b'[1,2]', id='tuple'),
        pytest.param(
            [math.nan, {'x': math.inf}, 2**70],
            b'[null,{"x":null},1180591620717411303424]',
            id='not-a-number',
        ),
    ],
)
def test_values_are_written(backend, value, expected):
    assert backend.dumps(value) == expected


@backends
@pytest.mark.parametrize(
    'raw, expected',
    [
        pytest.param(b'{"a": [1, 2.5]}', {'a': [1, 2.5]}, id='bytes'),
        pytest.param('{"a": [1, 2.5]}', {'a': [1, 2.5]}, id='text'),
        pytest.param('"żółw"'.encode(), 'żółw', id='utf-8'),
        pytest.param(b'"\\ud800"', '\ud800', id='lone-surrogate'),
        pytest.param(b'{"a":1,"a":2}', {'a': 2}, id='duplicate-key'),
        pytest.param(b'18446744073709551615', 2**64 - 1, id='largest-integer'),
        pytest.param(b'18446744073709551616', float(2**64), id='integer-over-the-range'),
        pytest.param(b'1' + b'0' * 30, 1e30, id='long-integer'),
    ],
)
def test_documents_are_read(backend, raw, expected):
    result = backend.loads(raw)

    assert result == expected
    assert type(result) is type(expected)


@backends
@pytest.mark.parametrize(
    'raw',
    [
        pytest.param(b'', id='nothing'),
        pytest.param(b'{"a":1} x', id='tail'),
        pytest.param(b'[1,]', id='trailing-comma'),
        pytest.param(b'NaN', id='nan'),
        pytest.param(b'-Infinity', id='infinity'),
        pytest.param(b'1e400', id='float-over-the-range'),
        pytest.param(b'1' + b'0' * 5000, id='integer-over-the-range'),
        pytest.param(b'"\xff"', id='bad-utf-8'),
        pytest.param(b'"\xed\xa0\x80"', id='surrogate-in-utf-8'),
        pytest.param(b'\xef\xbb\xbf{}', id='byte-order-mark'),
        pytest.param(b'[' * 100_000 + b']' * 100_000, id='nested-too-deeply'),
    ],
)
def test_bad_documents_are_refused(backend, raw):
    with pytest.raises(json.JSONDecodeError):
        backend.loads(raw)


@backends
def test_circular_values_are_refused(backend):
    value = []
    value.append(value)

    with pytest.raises(ValueError):
        backend.dumps(value)


@backends
@pytest.mark.parametrize(
    'value',
    [
        pytest.param(object(), id='object'),
        pytest.param(b'x', id='bytes'),
        pytest.param({'x': {1, 2}}, id='set'),
        pytest.param({(1, 2): 3}, id='tuple-key'),
        pytest.param(datetime.datetime(2026, 11, 16), id='datetime'),
    ],
)
def test_foreign_objects_are_refused(backend, value):
    with pytest.raises(TypeError):
        backend.dumps(value)
