"""
Bodies and their parts: read-only, live, with no copies; and the references to objects.
"""

import copy
import gc
import pickle
import typing
import weakref
from collections.abc import Mapping, MutableMapping

import pytest

from kopf._cogs.structs import bodies, objects


@pytest.fixture
def raw():
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {
            'name': 'name1',
            'namespace': 'ns1',
            'uid': 'uid1',
            'labels': {'l': '1'},
            'annotations': {'a': '2'},
            'creationTimestamp': '2026-11-15T00:00:00Z',
            'deletionTimestamp': '2026-11-16T00:00:00Z',
        },
        'spec': {'x': {'y': [1]}},
        'status': {'z': 1},
    }


@pytest.mark.guarantee('KWA-021')
def test_bodies_are_read_only_mappings_of_everything(raw):
    body = objects.Body(raw)

    assert isinstance(body, Mapping)
    assert not isinstance(body, MutableMapping)
    assert body == raw
    assert dict(body) == raw
    assert body['spec'] is raw['spec']
    with pytest.raises(TypeError):
        body['spec'] = {}


@pytest.mark.guarantee('KWA-022', 'KWA-023')
def test_bodies_have_their_stanzas_as_attributes(raw):
    body = objects.Body(raw)

    assert isinstance(body.metadata, objects.Meta)
    assert isinstance(body.spec, objects.Spec)
    assert isinstance(body.status, objects.Status)
    assert body.metadata is body.meta
    assert (body.meta, body.spec, body.status) == (raw['metadata'], raw['spec'], raw['status'])


@pytest.mark.guarantee('KWA-023')
@pytest.mark.parametrize(
    'cls, stanza',
    [
        (objects.Meta, 'metadata'),
        (objects.Spec, 'spec'),
        (objects.Status, 'status'),
    ],
)
def test_stanzas_are_read_only_and_made_of_bodies(raw, cls, stanza):
    part = cls(objects.Body(raw))

    assert isinstance(part, Mapping)
    assert part == raw[stanza]
    with pytest.raises(TypeError):
        part['x'] = 1
    raw[stanza]['added'] = 'value'
    assert part['added'] == 'value'


@pytest.mark.guarantee('KWA-024', 'KWA-026', 'KWA-027')
@pytest.mark.parametrize(
    'raw',
    [
        pytest.param({}, id='absent'),
        pytest.param({'metadata': {}, 'spec': {}, 'status': {}}, id='empty'),
        pytest.param({'metadata': None, 'spec': None, 'status': None}, id='none'),
        pytest.param({'metadata': {'labels': None, 'annotations': None}}, id='none-inside'),
    ],
)
def test_absent_stanzas_are_empty(raw):
    body = objects.Body(raw)

    assert (dict(body.spec), dict(body.status)) == ({}, {})
    assert body.spec.get('x', 5) == body.status.get('x', 5) == body.meta.get('x', 5) == 5
    assert (body.meta.labels, body.meta.annotations) == ({}, {})
    assert (body.meta.name, body.meta.namespace, body.meta.uid) == (None, None, None)
    assert (body.meta.creation_timestamp, body.meta.deletion_timestamp) == (None, None)
    with pytest.raises(KeyError):
        body.meta['namespace']


@pytest.mark.guarantee('KWA-025', 'KWA-026', 'KWA-027')
def test_metadata_has_its_fields_as_attributes(raw):
    meta = objects.Body(raw).meta

    assert (meta.name, meta.namespace, meta.uid) == ('name1', 'ns1', 'uid1')
    assert meta.creation_timestamp == '2026-11-15T00:00:00Z'
    assert meta.deletion_timestamp == '2026-11-16T00:00:00Z'
    assert (meta.labels, meta.annotations) == ({'l': '1'}, {'a': '2'})
    with pytest.raises(TypeError):
        meta.labels['x'] = 'y'


def test_all_parts_follow_the_replaced_content(raw):
    body = objects.Body(raw)
    meta, spec, status, labels, annotations = (
        body.meta,
        body.spec,
        body.status,
        body.meta.labels,
        body.meta.annotations,
    )

    body._replace_with({'metadata': {'name': 'new', 'labels': {'l': '9'}}, 'spec': {'x': 'new'}})

    assert (meta.name, meta.namespace, labels, annotations) == ('new', None, {'l': '9'}, {})
    assert (spec, status) == ({'x': 'new'}, {})
    assert 'status' not in body


def test_bodies_of_bodies_do_not_follow_them(raw):
    live = objects.Body(raw)
    frozen = objects.Body(live)

    live._replace_with(objects.Body({'spec': {'x': 'new'}}))

    assert frozen == raw
    assert live == {'spec': {'x': 'new'}}


def test_bodies_are_shown_as_dicts(raw):
    body = objects.Body(raw)

    assert repr(body) == repr(raw)
    assert repr(body.spec) == "{'x': {'y': [1]}}"
    assert repr(body.meta.labels) == "{'l': '1'}"


def test_values_of_secrets_are_not_shown():
    configuration = '{"data":{"password":"czNjcjN0"}}'
    body = objects.Body(
        {
            'apiVersion': 'v1',
            'kind': 'Secret',
            'type': 'Opaque',
            'metadata': {
                'name': 'name1',
                'annotations': {'kopf.zalando.org/last-handled-configuration': configuration},
            },
            'data': {'password': 'czNjcjN0'},
            'stringData': {'token': 'czNjcjN0'},
        }
    )

    shown = [repr(part) for part in (body, body.meta, body.meta.annotations)]

    assert 'czNjcjN0' not in ''.join(shown)
    assert all(name in shown[0] for name in ('Opaque', 'name1', 'password', 'token'))
    assert body['data'] == {'password': 'czNjcjN0'}


def test_copies_of_bodies_are_dicts(raw):
    body = objects.Body(raw)

    copied = copy.deepcopy(body)
    copied['spec']['x']['y'].append(2)

    assert (type(copied), type(copy.copy(body.spec))) == (dict, dict)
    assert raw['spec'] == {'x': {'y': [1]}}


def test_bodies_are_picklable(raw):
    body = pickle.loads(pickle.dumps(objects.Body(raw)))

    assert isinstance(body, objects.Body)
    assert (body, body.spec) == (raw, raw['spec'])


def test_bodies_are_freed_with_no_garbage_collection(raw):
    gc.collect()
    body = objects.Body(raw)
    _ = (body.meta.labels, body.spec, body.status)
    gc.disable()
    try:
        del body
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.guarantee('KWA-029', 'CFG-080')
def test_typed_dicts_have_their_keys():
    assert set(bodies.RawEvent.__annotations__) == {'type', 'object'}
    assert set(bodies.RawBody.__annotations__) == {
        'apiVersion',
        'kind',
        'metadata',
        'spec',
        'status',
    }
    assert set(bodies.BodyEssence.__annotations__) == {'metadata', 'spec', 'status'}
    assert typing.get_args(bodies.RawEventType) == (
        None,
        'ADDED',
        'MODIFIED',
        'DELETED',
        'BOOKMARK',
    )


@pytest.mark.guarantee('EVT-012')
@pytest.mark.parametrize('wrap', [dict, objects.Body])
def test_objects_are_referred_to(raw, wrap):
    assert bodies.build_object_reference(wrap(raw)) == {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'name': 'name1',
        'uid': 'uid1',
        'namespace': 'ns1',
    }


@pytest.mark.guarantee('EVT-012', 'HIE-023')
def test_absent_fields_are_not_referred_to():
    raw = {'kind': 'KopfExample', 'metadata': {'name': 'name1', 'namespace': ''}}

    assert bodies.build_object_reference(raw) == {'kind': 'KopfExample', 'name': 'name1'}
    assert bodies.build_owner_reference(raw) == {
        'controller': True,
        'blockOwnerDeletion': True,
        'kind': 'KopfExample',
        'name': 'name1',
    }


@pytest.mark.guarantee('HIE-023')
@pytest.mark.parametrize(
    'flags, expected',
    [
        ({}, (True, True)),
        ({'controller': False}, (False, True)),
        ({'block_owner_deletion': False}, (True, False)),
    ],
)
def test_owners_are_referred_to(raw, flags, expected):
    assert bodies.build_owner_reference(raw, **flags) == {
        'controller': expected[0],
        'blockOwnerDeletion': expected[1],
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'name': 'name1',
        'uid': 'uid1',
    }


@pytest.mark.guarantee('FND-032')
@pytest.mark.parametrize('name', ['body', 'meta', 'spec', 'status', 'labels', 'annotations'])
def test_attributes_and_weak_references_are_accepted_as_by_plain_objects(name):
    body = objects.Body(
        {'metadata': {'labels': {'a': 'b'}, 'annotations': {'a': 'b'}}, 'spec': {'a': 'b'}}
    )
    parts = {
        'body': body,
        'meta': body.meta,
        'spec': body.spec,
        'status': body.status,
        'labels': body.meta.labels,
        'annotations': body.meta.annotations,
    }
    part = parts[name]
    before = dict(part)

    part.state = 'initial'
    part.state += '-changed'
    reference = weakref.ref(part)

    assert part.state == 'initial-changed'
    assert reference() is part
    assert dict(part) == before
    assert vars(part) == {'state': 'initial-changed'}
    del part.state
    assert not hasattr(part, 'state')
