"""
Tombstones: how much is kept of objects for the case that they vanish unseen.
"""

import json
import tracemalloc

import pytest

import kopf
from kopf._cogs.structs import dicts
from kopf._core.intents import handlers
from kopf._core.reactor import tombstones

NAMES, METADATA, WHOLE = tombstones.Part


def build_handler(**options):
    field = dicts.parse_field(options.pop('field', None)) or None
    return handlers.WatchingHandler(fn=lambda **_: None, id='fn', field=field, **options)


def build_body(**metadata):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'spec': {'x': 1},
        'metadata': {
            'namespace': 'ns',
            'name': 'obj',
            'uid': 'uid1',
            'resourceVersion': '5',
            'labels': {'l': 'v'},
            'annotations': {'a': 'v'},
            **metadata,
        },
    }


def build_vanished():
    return {
        'type': 'DELETED',
        'object': {
            'apiVersion': 'kopf.dev/v1',
            'kind': 'KopfExample',
            'metadata': {'namespace': 'ns', 'name': 'obj', 'uid': 'uid1'},
        },
    }


def accept(*_, **__):
    raise AssertionError('Functions are not to be called.')


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize(
    'filters, expected',
    [
        # By the metadata.
        pytest.param({'labels': {'l': 'v'}}, METADATA, id='label'),
        pytest.param({'labels': {'l': 'other'}}, NAMES, id='label-mismatch'),
        pytest.param({'labels': {'l': kopf.PRESENT}}, METADATA, id='label-present'),
        pytest.param({'labels': {'other': kopf.PRESENT}}, NAMES, id='label-present-mismatch'),
        pytest.param({'labels': {'other': kopf.ABSENT}}, METADATA, id='label-absent'),
        pytest.param(
            {'labels': {'l': kopf.ABSENT}}, METADATA, id='label-absent-mismatch'
        ),  # or it would match
        pytest.param({'annotations': {'a': 'v'}}, METADATA, id='annotation'),
        pytest.param({'annotations': {'a': 'other'}}, NAMES, id='annotation-mismatch'),
        pytest.param(
            {'labels': {'l': 'v'}, 'annotations': {'a': 'other'}}, NAMES, id='one-of-two-mismatches'
        ),
        # By fields.
        pytest.param({'field': 'spec.x'}, WHOLE, id='field'),
        pytest.param({'field': 'spec.y'}, NAMES, id='field-mismatch'),
        pytest.param({'field': 'spec.x', 'value': 1}, WHOLE, id='value'),
        pytest.param({'field': 'spec.x', 'value': 2}, NAMES, id='value-mismatch'),
        pytest.param({'field': 'spec.y', 'value': kopf.ABSENT}, METADATA, id='absent'),
        pytest.param(
            {'field': 'spec.x', 'value': kopf.ABSENT}, WHOLE, id='absent-mismatch'
        ),  # or it would match
        pytest.param(
            {'field': 'metadata.labels.l', 'value': 'v'}, METADATA, id='field-of-metadata'
        ),
        pytest.param({'field': 'metadata.name', 'value': 'obj'}, METADATA, id='name'),
        pytest.param({'field': 'metadata.name', 'value': 'other'}, NAMES, id='name-mismatch'),
        # By functions.
        pytest.param({'when': accept}, WHOLE, id='when'),
        pytest.param({'labels': {'l': accept}}, WHOLE, id='label-callable'),
        pytest.param({'labels': {'l': 'v'}, 'when': accept}, WHOLE, id='label-and-when'),
        pytest.param(
            {'labels': {'l': 'other'}, 'when': accept}, NAMES, id='label-mismatch-and-when'
        ),
        pytest.param(
            {'labels': {'l': kopf.ABSENT}, 'when': accept},
            METADATA,
            id='label-absent-mismatch-and-when',
        ),
        pytest.param({'field': 'spec.x', 'value': accept}, WHOLE, id='value-callable'),
        pytest.param(
            {'field': 'spec.x', 'value': 2, 'when': accept}, NAMES, id='value-mismatch-and-when'
        ),
    ],
)
def test_smallest_sufficient_part_is_chosen(filters, expected):
    assert tombstones.choose_part(build_body(), [build_handler(**filters)]) is expected


@pytest.mark.guarantee('FND-012')
def test_the_largest_part_for_several_handlers_is_chosen():
    selective = [build_handler(labels={'l': 'other'}), build_handler(labels={'l': 'v'})]

    assert tombstones.choose_part(build_body(), []) is NAMES
    assert tombstones.choose_part(build_body(), selective) is METADATA
    assert tombstones.choose_part(build_body(), [*selective, build_handler(when=accept)]) is WHOLE


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize(
    'filters, expected',
    [
        pytest.param({'labels': {'l': 'v'}}, {'metadata': build_body()['metadata']}, id='metadata'),
        pytest.param(
            {'when': accept}, {'metadata': build_body()['metadata'], 'spec': {'x': 1}}, id='whole'
        ),
        pytest.param({'labels': {'l': 'other'}}, {}, id='mismatch'),
        pytest.param({}, {}, id='unfiltered'),
    ],
)
def test_vanished_objects_are_completed_as_they_were_seen_last(filters, expected):
    kept = tombstones.Tombstones(lambda: [build_handler(**filters)], {})
    body = build_body(labels={'l': 'before'})
    kept.update({'type': None, 'object': body})
    body = build_body()
    kept.update({'type': 'MODIFIED', 'object': body})
    body['spec']['x'] = body['metadata']['labels']['l'] = 'changed by functions later'

    event = kept.update(build_vanished())

    assert event == {'type': 'DELETED', 'object': {**build_vanished()['object'], **expected}}
    assert kept.parts == {}


@pytest.mark.guarantee('FND-012')
def test_real_deletions_are_passed_as_they_are():
    kept = tombstones.Tombstones(lambda: [build_handler(labels={'l': 'v'})], {})
    kept.update({'type': 'ADDED', 'object': build_body()})
    event = {'type': 'DELETED', 'object': build_body(labels={}, resourceVersion='6')}

    assert kept.update(event) is event
    assert kept.parts == {}


@pytest.mark.guarantee('FND-012')
def test_parts_go_when_they_are_not_needed_any_more():
    kept = tombstones.Tombstones(lambda: [build_handler(labels={'l': 'v'})], {})
    kept.update({'type': 'ADDED', 'object': build_body()})
    assert len(kept.parts) == 1
    kept.update({'type': 'MODIFIED', 'object': build_body(labels={})})

    assert kept.parts == {}


@pytest.mark.guarantee('FND-012')
@pytest.mark.parametrize(
    'filters, expected',
    [
        pytest.param({}, 0, id='unfiltered'),
        pytest.param({'labels': {'l': 'other'}}, 0, id='mismatch'),
        pytest.param({'labels': {'l': 'v'}}, 500, id='match'),
        pytest.param({'when': accept}, 500, id='function'),
    ],
)
def test_parts_take_little_memory(filters, expected):
    number = 1000
    kept = tombstones.Tombstones(lambda: [build_handler(**filters)], {})
    tracemalloc.start()
    try:
        for i in range(number):
            kept.update({'type': None, 'object': build_body(uid=f'{i:036}')})
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert size / number <= expected + 10


@pytest.mark.guarantee('FND-012')
def test_of_too_deep_objects_only_the_metadata_are_kept():
    body = build_body()
    for _ in range(100_000):
        body['spec'] = {'x': body['spec']}
    kept = tombstones.Tombstones(lambda: [build_handler(when=accept)], {})
    kept.update({'type': 'ADDED', 'object': body})

    assert json.loads(kept.parts['uid1']).keys() == {'apiVersion', 'kind', 'metadata'}
