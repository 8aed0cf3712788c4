"""
Echoes: our own changes that come back in the stream are taken as they were answered; all others are
read as usual.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._cogs.clients.watching import own_writes, stream_states, watch_events


def build_body(version='5', uid='uid1', name='obj', **fields):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        **fields,
        'metadata': {'name': name, 'namespace': 'ns', 'uid': uid, 'resourceVersion': version},
    }


def build_line(body, type='MODIFIED', **formatting):
    return (
        json.dumps(
            {'type': type, 'object': body}, **{'separators': (',', ':'), **formatting}
        ).encode()
        + b'\n'
    )


@pytest.fixture
def known():
    """A body that is remembered."""
    return build_body()


@pytest.fixture
def own(known):
    own = own_writes.OwnWrites()
    own.expect(known)
    return own


def test_own_change_is_recognised_once_and_then_forgotten(own, known):
    line = build_line(known)

    recognised = [own.recognise(line) for _ in range(2)]

    assert recognised[0] is known
    assert recognised[1] is None


@pytest.mark.parametrize(
    'spec',
    [
        pytest.param({'text': '"resourceVersion":"6"'}, id='another-version-in-a-text'),
        pytest.param({'text': '"resourceVersion":"5"'}, id='same-version-in-a-text'),
        pytest.param(
            {'text': json.dumps(build_body('6', 'uid2'), separators=(',', ':'))},
            id='an-object-as-a-text',
        ),
        pytest.param(
            {'text': json.dumps(json.dumps(build_body('6', 'uid2'), separators=(',', ':')))},
            id='escaped-twice',
        ),
        pytest.param({'text': '\\'}, id='backslash'),
        pytest.param({'resourceVersion': 6}, id='a-number-of-the-same-name'),
        pytest.param({'x-resourceVersion': '6', 'resourceVersions': '7'}, id='similar-names'),
        pytest.param({'text': 'ünïcödé'}, id='not-ascii'),
    ],
)
@pytest.mark.parametrize('is_spec_first', [True, False], ids=['spec-first', 'spec-last'])
def test_own_change_is_recognised_whatever_texts_it_has(spec, is_spec_first):
    body = build_body(spec=spec)
    line = build_line(body if is_spec_first else {'metadata': body['metadata'], **body})
    own = own_writes.OwnWrites()
    own.expect(body)

    assert own.recognise(line) is body


@pytest.mark.parametrize(
    'line',
    [
        pytest.param(build_line(build_body('6')), id='another-version'),
        pytest.param(build_line(build_body('55')), id='longer-version'),
        pytest.param(build_line(build_body('')), id='empty-version'),
        pytest.param(build_line(build_body('5"')), id='version-with-a-quote'),
        pytest.param(build_line(build_body(5)), id='version-as-a-number'),
        pytest.param(build_line(build_body(uid='uid2')), id='another-uid'),
        pytest.param(build_line(build_body(uid='uid11')), id='longer-uid'),
        pytest.param(
            build_line(build_body('6', spec={'text': '"resourceVersion":"5"'})),
            id='version-only-in-a-text',
        ),
        pytest.param(
            build_line(build_body('6', spec={'resourceVersion': '5'})),
            id='version-only-in-the-spec',
        ),
        pytest.param(
            build_line(build_body('5', spec={'resourceVersion': '5'})),
            id='same-version-also-in-the-spec',
        ),
        pytest.param(
            build_line(build_body('5', spec={'resourceVersion': '6'})),
            id='another-version-in-the-spec',
        ),
        pytest.param(
            build_line(build_body('6', spec={'"resourceVersion': '5'})),
            id='version-under-a-quoted-name',
        ),
    ],
)
def test_other_changes_are_not_recognised_and_forget_nothing(own, known, line):
    recognised = own.recognise(line)

    assert recognised is None
    assert own.recognise(build_line(known)) is known


@pytest.mark.parametrize('type', ['ADDED', 'DELETED', 'BOOKMARK', 'ERROR', 'modified'])
def test_only_modifications_are_recognised(own, known, type):
    assert own.recognise(build_line(known, type)) is None


@pytest.mark.parametrize(
    'formatting',
    [
        pytest.param({'separators': (', ', ': ')}, id='spaces'),
        pytest.param({'indent': 2}, id='lines'),
        pytest.param({'separators': (',', ': ')}, id='spaces-before-values'),
        pytest.param({'sort_keys': True}, id='type-last'),
    ],
)
def test_unusual_json_is_left_to_be_read_as_usual(own, known, formatting):
    line = build_line(known, **formatting)

    assert own.recognise(line) is None
    assert watch_events.classify_line(line).event == {'type': 'MODIFIED', 'object': known}


@pytest.mark.parametrize(
    'line',
    [
        b'',
        b'\n',
        b'{',
        b'{"type":"MODIFIED","object":{',
        b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"',
        b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"5',
        b'{"type":"MODIFIED","object":{}}',
        b'\xff\xfe',
    ],
)
def test_garbage_is_not_recognised(own, line):
    assert own.recognise(line) is None


@pytest.mark.parametrize(
    'changes',
    [
        pytest.param({'version': 'abc'}, id='letters'),
        pytest.param({'version': '5a'}, id='letters-and-digits'),
        pytest.param({'version': '-5'}, id='negative'),
        pytest.param({'version': ''}, id='no-version'),
        pytest.param({'version': None}, id='null-version'),
        pytest.param({'uid': ''}, id='no-uid'),
        pytest.param({'uid': None}, id='null-uid'),
    ],
)
def test_objects_with_no_good_identity_are_not_remembered(changes):
    own, body = own_writes.OwnWrites(), build_body(**changes)
    own.expect(body)

    assert own.recognise(build_line(body)) is None


def test_objects_with_neither_uid_nor_version_are_not_remembered():
    own = own_writes.OwnWrites()
    own.expect({'metadata': {'name': 'obj'}})

    assert own.recognise(b'{"type":"MODIFIED","object":{"metadata":{"name":"obj"}}}') is None


def test_the_oldest_changes_are_dropped_if_there_are_too_many():
    own = own_writes.OwnWrites()
    bodies = [build_body(str(version)) for version in range(own_writes.LIMIT + 2)]
    for body in bodies:
        own.expect(body)

    recognised = [own.recognise(build_line(body)) for body in bodies]

    assert recognised == [None, None, *bodies[2:]]


def test_several_changes_are_recognised_in_any_order():
    own = own_writes.OwnWrites()
    bodies = [
        build_body(str(version), uid) for version, uid in [(8, 'uid1'), (9, 'uid2'), (10, 'uid1')]
    ]
    for body in bodies:
        own.expect(body)

    recognised = [own.recognise(build_line(body)) for body in reversed(bodies)]

    assert [body['metadata']['resourceVersion'] for body in recognised] == ['10', '9', '8']


VERSIONS, UIDS = st.sampled_from(['1', '2', '11']), st.sampled_from(['u1', 'u2'])
TEXTS = (
    st.text(max_size=5)
    | VERSIONS
    | UIDS
    | st.sampled_from(
        [
            '"resourceVersion":"1"',
            '\\"resourceVersion":"1',
            '"uid":"u1"',
            '{"metadata":{"resourceVersion":"1","uid":"u1"}}',
        ]
    )
)
NAMES = st.text(max_size=3) | st.sampled_from(
    [
        'resourceVersion',
        'uid',
        'metadata',
        'object',
        'type',
        '"resourceVersion',
        '\\"resourceVersion',
        '"uid',
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def draw_body(draw):
    """Draw an object with an identity, with anything around it, and in any order."""
    metadata = {
        **draw(st.dictionaries(NAMES, VALUES, max_size=2)),
        'uid': draw(UIDS),
        'resourceVersion': draw(VERSIONS),
        'name': 'obj',
    }
    body = {**draw(st.dictionaries(NAMES, VALUES, max_size=3)), 'metadata': metadata}
    return dict(draw(st.permutations(list(body.items()))))


@given(remembered=st.lists(draw_body(), max_size=3), coming=draw_body(), is_ascii=st.booleans())
def test_nothing_wrong_is_ever_recognised(remembered, coming, is_ascii):
    own = own_writes.OwnWrites()
    for body in remembered:
        own.expect(body)

    try:
        line = build_line(coming, ensure_ascii=is_ascii)
    except UnicodeEncodeError:  # lone surrogates are in no stream, unless they are escaped
        line = build_line(coming)
    recognised = own.recognise(line)

    if recognised is not None:
        assert any(recognised is body for body in remembered)
        assert recognised['metadata']['resourceVersion'] == coming['metadata']['resourceVersion']


@given(body=draw_body())
def test_what_is_recognised_is_what_would_be_read(body):
    own = own_writes.OwnWrites()
    own.expect(body)
    line = build_line(body)

    recognised = own.recognise(line)

    if recognised is not None:
        assert watch_events.classify_line(line) == watch_events.build_change('MODIFIED', recognised)


@pytest.mark.parametrize(
    'known, is_expected',
    [
        pytest.param(
            {watch_events.Key('ns', 'obj'): watch_events.Seen('uid1', '4')},
            True,
            id='older-version',
        ),
        pytest.param(
            {watch_events.Key('ns', 'obj'): watch_events.Seen('uid1', '5')},
            False,
            id='same-version',
        ),
        pytest.param(
            {watch_events.Key('ns', 'other'): watch_events.Seen('uid1', '4')},
            False,
            id='another-name',
        ),
        pytest.param(
            {watch_events.Key('', 'obj'): watch_events.Seen('uid1', '4')},
            False,
            id='another-namespace',
        ),
        pytest.param({}, False, id='unknown'),
    ],
)
def test_stream_expects_only_the_objects_it_knows_in_another_version(known, is_expected):
    state, body = stream_states.StreamState(known=known), build_body()

    state.expect(body)

    assert (state.own.recognise(build_line(body)) is body) is is_expected


@pytest.mark.parametrize(
    'version, metadata, expected',
    [
        pytest.param('7', {}, True, id='newer'),
        pytest.param('10', {}, True, id='newer-by-number'),
        pytest.param('5', {}, False, id='known'),
        pytest.param('4', {}, False, id='older'),
        pytest.param('abc', {}, False, id='unclear'),
        pytest.param('7', {'deletionTimestamp': 'x', 'finalizers': ['other']}, True, id='held'),
        pytest.param('7', {'deletionTimestamp': 'x', 'finalizers': []}, False, id='released'),
        pytest.param('7', {'deletionTimestamp': 'x'}, False, id='released-with-no-finalizers'),
    ],
)
def test_only_newer_states_of_existing_objects_are_expected(version, metadata, expected):
    state, body = stream_states.StreamState(), build_body(version)
    body['metadata'] |= metadata
    state.remember(watch_events.build_change('ADDED', build_body('5')))

    state.expect(body)

    assert (state.own.recognise(build_line(body)) is body) is expected


def test_everything_can_be_forgotten(own, known):
    own.clear()

    assert own.recognise(build_line(known)) is None
