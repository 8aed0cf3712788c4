"""
JSON that is large or hostile, as it comes from the API: what is wrong with one object is not wrong
with the others.
"""

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._cogs.clients import errors, listing
from kopf._cogs.clients.watching import watch_events
from kopf._cogs.helpers import documents, jsons

pytestmark = pytest.mark.guarantee('FND-050')

DEPTHS = [300, 990, 1100, 1600, 9900, 200_000]
KINDS = {
    'dict': ('{"a":', '}'),
    'list': ('[', ']'),
    'mixed': ('[{"a":', '}]'),
    'strings': ('{"]}\\"":', '}'),
}


def nest(levels, kind='dict'):
    opening, closing = KINDS[kind]
    return opening * levels + '1' + closing * levels


def build_item(name, spec, metadata=''):
    return (
        f'{{"apiVersion":"kopf.dev/v1","kind":"KopfExample","metadata":{{"name":"{name}","uid":"{name}-uid",'
        f'"resourceVersion":"5"{metadata}}},"spec":{spec}}}'
    )


def build_list(*items):
    return f'{{"kind":"KopfExampleList","metadata":{{"resourceVersion":"9"}},"items":[{",".join(items)}]}}'.encode()


@pytest.fixture(autouse=True, params=['any', 'portable'])
def backend(request, monkeypatch):
    if request.param == 'portable':
        monkeypatch.setattr(jsons, 'orjson', None)
        monkeypatch.setattr(jsons, 'IS_FAST', False)


@pytest.fixture(params=['at-once', 'by-parts'])
def size(request, monkeypatch):
    if request.param == 'by-parts':
        monkeypatch.setattr(documents, 'LARGE', 1)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('levels', DEPTHS)
def test_deep_object_is_apart_from_others_in_a_page(size, levels, kind):
    good1, good2, bad = (
        build_item('good1', '{}'),
        build_item('good2', '{"x":1}'),
        build_item('bad', nest(levels, kind)),
    )

    page = listing.parse_page(documents.read(build_list(good1, bad, good2)))

    assert page.items == [json.loads(good1), json.loads(good2)]
    assert [item['metadata']['name'] for item in page.misfits] == ['bad']
    assert page.misfits[0].flaw == documents.TOO_DEEP
    assert page.version == '9'


@pytest.mark.parametrize('levels', DEPTHS)
def test_deep_object_is_identified_in_a_stream(size, levels):
    managed = f',"managedFields":[{nest(levels)}],"deletionTimestamp":"2020-01-01T00:00:00Z","finalizers":["a"]'
    line = f'{{"type":"MODIFIED","object":{build_item("bad", nest(levels), managed)}}}'.encode()

    signal = watch_events.classify_line(line)

    assert signal == watch_events.Misfit(
        watch_events.Key('', 'bad'),
        watch_events.Seen('bad-uid', '5'),
        documents.TOO_DEEP,
        frozenset({'a'}),
    )


@pytest.mark.parametrize('levels', DEPTHS)
def test_deletion_of_deep_object_is_a_deletion_of_its_metadata(size, levels):
    line = f'{{"type":"DELETED","object":{build_item("bad", nest(levels))}}}'.encode()

    signal = watch_events.classify_line(line)

    assert isinstance(signal, watch_events.Change)
    assert signal.event == {
        'type': 'DELETED',
        'object': {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'name': 'bad', 'uid': 'bad-uid'},
        },
    }
    assert signal.version == '5'
    assert watch_events.is_made_up(signal.event)


@pytest.mark.parametrize(
    'number', ['1e400', '-1e400', '9' * 5000, '-' + '9' * 5000, 'NaN', '-Infinity']
)
def test_numbers_out_of_range_are_a_flaw_of_their_object(size, number):
    items = (
        build_item('good', '{"x":1}'),
        build_item('bad', f'{{"x":[{number}]}}'),
        build_item('worse', number),
    )

    page = listing.parse_page(documents.read(build_list(*items)))

    assert [item['metadata']['name'] for item in page.items] == ['good']
    assert [(item['metadata']['name'], item.flaw) for item in page.misfits] == [
        ('bad', documents.OUT_OF_RANGE),
        ('worse', documents.OUT_OF_RANGE),
    ]


@pytest.mark.parametrize(
    'text',
    [
        '',
        ' ',
        '<html>',
        '{',
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,}',
        '{"a":1}}',
        '{"a":[1,]}',
        '{"a":[1 2]}',
        '{1:2}',
        '{"a":tru}',
        '{"items":[{"a":1},]}',
        '{"items":[{"a":1}{"a":2}]}',
        '{"items":[{"a":1},{"a":2}',
        '{"a":"\n"}',
        '{"a" 1}',
        '[' * 100_000,
        '{"a":' * 100_000,
        '{"a":' + '[' * 5000 + ']' * 4999 + '}',
        '{"a":"' + '\\"' * 1000,
    ],
)
def test_what_is_not_json_is_refused(size, text):
    with pytest.raises(jsons.JSONDecodeError):
        documents.read(text.encode())


def test_invalid_encoding_is_refused(size):
    with pytest.raises(jsons.JSONDecodeError):
        documents.read(b'{"a":"\xff"}')


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec='utf-8'))
    | st.sampled_from(['},{', '"},{"', '}]', '\\', '"', ',"items":[{"']),
    lambda children: (
        st.lists(children) | st.dictionaries(st.text(st.characters(codec='utf-8')), children)
    ),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(items=st.lists(values), spaces=st.booleans())
def test_documents_read_by_parts_are_the_same_as_those_read_at_once(items, spaces):
    document = {'items': items, 'metadata': {'continue': '}],"items":[{'}, 'more': [items]}
    raw = json.dumps(document, separators=None if spaces else (',', ':')).encode()

    assert documents._read_by_parts(raw) == jsons.loads(raw)


def test_items_are_cut_where_they_end_whatever_is_in_them(size):
    chance = random.Random(5)
    baits = [
        '},{"apiVersion":',
        '"},{"',
        {'apiVersion': 'v1'},
        [{'apiVersion': 1}, {'apiVersion': 2}],
        'x' * 300,
    ]
    items = [
        {
            'apiVersion': 'v1',
            'metadata': {'name': f'n{i}', 'ownerReferences': chance.choices(baits, k=5)},
        }
        for i in range(200)
    ]
    raw = json.dumps({'items': items, 'metadata': {}}, separators=(',', ':')).encode()

    assert documents.read(raw)['items'] == items


@pytest.mark.parametrize(
    'items',
    [
        pytest.param([f'{{"k{i}":1}}' for i in range(80_000)], id='first-keys-differ'),
        pytest.param(['{"a":[{"a":1},{"a":1},{"a":1},{"a":1}]}'] * 20_000, id='first-keys-inside'),
    ],
)
def test_deep_object_with_many_items_is_read_in_reasonable_time(items):
    spec = f'{{"items":[{",".join(items)},{nest(2000)}]}}'
    line = f'{{"type":"MODIFIED","object":{build_item("bad", spec)}}}'.encode()
    since = time.perf_counter()

    signal = watch_events.classify_line(line)

    assert isinstance(signal, watch_events.Misfit)
    # It was over 30 if each item was searched for in all that follow.
    assert time.perf_counter() - since < 10


def test_items_of_a_list_are_read_in_reasonable_time_also_if_their_first_keys_differ():
    items = [f'{{"k{i}":1,"metadata":{{"name":"n{i}"}}}}' for i in range(60_000)]
    since = time.perf_counter()

    page = listing.parse_page(documents.read(build_list(*items)))

    assert len(page.items) == 60_000
    assert time.perf_counter() - since < 10


def test_stream_with_garbage_is_still_an_error():
    assert isinstance(
        watch_events.classify_line(b'{"type":"ADDED","object":{"metadata"'), errors.APIGarbledError
    )


@pytest.mark.parametrize('levels, is_deep', [(200, False), (250, False), (255, True), (5000, True)])
def test_texts_on_objects_are_read_if_they_are_not_deep(levels, is_deep):
    try:
        documents.read_shallow(nest(levels))
    except jsons.JSONDecodeError:
        assert is_deep
    else:
        assert not is_deep
