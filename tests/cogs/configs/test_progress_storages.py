"""
Storages of progress: what they put into patches, what they read from bodies, what they hide from
essences.
"""

import copy
import json

import hypothesis
import pytest
from hypothesis import strategies

from kopf._cogs.configs import progress
from kopf._cogs.structs import objects, patches

RECORD = {
    'started': '2026-11-15T23:53:07.202658+00:00',
    'delayed': '2026-11-15T23:54:47.203658+00:00',
    'purpose': 'create',
    'retries': 1,
    'success': False,
    'failure': False,
    'message': 'later',
}
WRITTEN = (
    '{"started":"2026-11-15T23:53:07.202658+00:00","delayed":"2026-11-15T23:54:47.203658+00:00",'
    '"purpose":"create","retries":1,"success":false,"failure":false,"message":"later"}'
)
NAME = 'kopf.zalando.org/create_fn'

STORAGES = {
    'annotations': progress.AnnotationsProgressStorage(),
    'annotations-with-prefix': progress.AnnotationsProgressStorage(prefix='my-op.example.com'),
    'annotations-verbose': progress.AnnotationsProgressStorage(verbose=True),
    'annotations-v2': progress.AnnotationsProgressStorage(v1=False),
    'status': progress.StatusProgressStorage(),
    'status-with-field': progress.StatusProgressStorage(field=['spec', 'my.field']),
    'multi': progress.MultiProgressStorage(
        [progress.StatusProgressStorage(), progress.AnnotationsProgressStorage()]
    ),
    'smart': progress.SmartProgressStorage(),
}
EACH_STORAGE = pytest.mark.parametrize('storage', STORAGES.values(), ids=STORAGES)

TEXTS = strategies.none() | strategies.text(strategies.characters(codec='utf-8'), max_size=5)
RECORDS = strategies.fixed_dictionaries(
    {},
    optional={
        'started': TEXTS,
        'stopped': TEXTS,
        'delayed': TEXTS,
        'purpose': TEXTS,
        'message': TEXTS,
        'essence': TEXTS,
        'retries': strategies.none() | strategies.integers(0, 9),
        'success': strategies.none() | strategies.booleans(),
        'failure': strategies.none() | strategies.booleans(),
        'subrefs': strategies.none()
        | strategies.lists(strategies.sampled_from(['a/b', 'a/c']), max_size=2),
    },
)
KEYS = strategies.sampled_from(['fn', 'fn/spec.a', 'a/<b>', '_', 'x' * 80])


def annotated(annotations):
    return objects.Body({'metadata': {'annotations': annotations}})


def apply(body, patch):
    return objects.Body(patches.merge(body, patch))


def without_nones(record):
    return {key: value for key, value in record.items() if value is not None}


@pytest.mark.guarantee('CFG-059', 'NEW-116', 'NEW-117')
def test_records_are_json_in_annotations():
    patch, record = patches.Patch(), {**RECORD, 'stopped': None}

    STORAGES['annotations'].store(
        key='create_fn', record=record, body=objects.Body({}), patch=patch
    )

    assert patch == {'metadata': {'annotations': {NAME: WRITTEN}}}


@pytest.mark.guarantee('NEW-116')
def test_empty_fields_are_there_only_if_verbose():
    patch = patches.Patch()
    record = {'started': 'x', 'stopped': None}

    STORAGES['annotations-verbose'].store(
        key='create_fn', record=record, body=objects.Body({}), patch=patch
    )

    assert patch == {'metadata': {'annotations': {NAME: '{"started":"x","stopped":null}'}}}


@pytest.mark.guarantee('WLD-003')
@pytest.mark.parametrize(
    'record, written',
    [
        pytest.param(
            {'retries': 1, 'subrefs': ['parent/child-2', 'parent/child-1']},
            '{"retries":1,"subrefs":["parent/child-2","parent/child-1"]}',
            id='list',
        ),
        pytest.param(
            {'subrefs': frozenset({'b', 'a', 'c'})}, '{"subrefs":["a","b","c"]}', id='set'
        ),
        pytest.param({'subrefs': ()}, '{"subrefs":[]}', id='empty'),
        pytest.param(
            {'success': True, 'essence': 'digest'},
            '{"success":true,"essence":"digest"}',
            id='essence',
        ),
    ],
)
def test_records_are_written_in_a_stable_form(record, written):
    patch = patches.Patch()

    STORAGES['annotations'].store(
        key='create_fn', record=record, body=objects.Body({}), patch=patch
    )

    assert patch['metadata']['annotations'] == {NAME: written}


@pytest.mark.guarantee('CFG-061')
def test_records_are_structures_in_the_status():
    patch = patches.Patch()

    STORAGES['status'].store(
        key='fn/spec.a', record={**RECORD, 'stopped': None}, body=objects.Body({}), patch=patch
    )

    assert patch == {'status': {'kopf': {'progress': {'fn/spec.a': RECORD}}}}


@pytest.mark.guarantee('CFG-061')
def test_records_in_the_status_lose_the_fields_that_they_do_not_have_any_more():
    patch = patches.Patch()
    body = objects.Body(
        {'status': {'kopf': {'progress': {'fn': {'delayed': 'x', 'retries': 1}, 'other': {}}}}}
    )

    STORAGES['status'].store(key='fn', record={'retries': 2}, body=body, patch=patch)

    assert apply(body, patch) == {
        'status': {'kopf': {'progress': {'fn': {'retries': 2}, 'other': {}}}}
    }


@pytest.mark.guarantee('CFG-061', 'CFG-062')
@pytest.mark.parametrize(
    'field, path',
    [
        ('status.{name}.a', ('status', 'me', 'a')),
        (('status', '{name}', 'a.b'), ('status', 'me', 'a.b')),
        (['spec', 'x'], ('spec', 'x')),
    ],
)
def test_fields_of_the_status_are_adjustable(field, path):
    storage = progress.StatusProgressStorage(name='me', field=field, touch_field=field)
    assert (storage.field, storage.touch_field) == (path, path)

    storage = progress.StatusProgressStorage(name='me')
    assert (storage.field, storage.touch_field) == (
        ('status', 'me', 'progress'),
        ('status', 'me', 'dummy'),
    )
    storage.field = storage.touch_field = field
    assert (storage.field, storage.touch_field) == (path, path)


def test_fields_of_the_status_are_not_empty():
    with pytest.raises(ValueError, match='cannot be empty'):
        progress.StatusProgressStorage(field='')


@pytest.mark.guarantee('NEW-120')
def test_long_ids_are_stored_twice_and_read_by_the_newer_name():
    storage, patch = STORAGES['annotations'], patches.Patch()
    newer, older = storage.make_keys('x' * 80)

    storage.store(key='x' * 80, record=RECORD, body=objects.Body({}), patch=patch)

    assert patch['metadata']['annotations'] == {newer: WRITTEN, older: WRITTEN}
    assert storage.fetch(
        key='x' * 80, body=annotated({newer: '{"retries":2}', older: WRITTEN})
    ) == {'retries': 2}
    assert storage.fetch(key='x' * 80, body=annotated({newer: 'garbage', older: WRITTEN})) == RECORD
    assert storage.fetch(key='x' * 80, body=annotated({older: WRITTEN})) == RECORD
    assert STORAGES['annotations-v2'].fetch(key='x' * 80, body=annotated({older: WRITTEN})) is None


@pytest.mark.guarantee('CFG-070')
@EACH_STORAGE
@hypothesis.settings(deadline=None)
@hypothesis.given(KEYS, RECORDS, RECORDS)
def test_records_are_read_as_they_were_stored(storage, key, record1, record2):
    body = objects.Body({'metadata': {'name': 'name1'}})

    for record in (record1, record2):
        patch = patches.Patch()
        storage.store(key=key, record=record, body=body, patch=patch)
        body = apply(body, patch)
        assert without_nones(storage.fetch(key=key, body=body)) == without_nones(record)

        storage.store(key=key, record=record, body=body, patch=(patch := patches.Patch()))
        assert not patch

    storage.purge(key=key, body=body, patch=(patch := patches.Patch()))
    assert storage.fetch(key=key, body=apply(body, patch)) is None


@pytest.mark.guarantee('CFG-068')
@EACH_STORAGE
def test_records_of_handlers_are_separate(storage):
    patch = patches.Patch()
    storage.store(key='fn1', record={'retries': 1}, body=objects.Body({}), patch=patch)
    storage.store(key='fn2', record={'message': 'x'}, body=objects.Body({}), patch=patch)
    body = apply({}, patch)

    storage.purge(key='fn1', body=body, patch=(patch := patches.Patch()))
    body = apply(body, patch)

    assert storage.fetch(key='fn1', body=body) is None
    assert storage.fetch(key='fn2', body=body) == {'message': 'x'}


@EACH_STORAGE
def test_absent_records_are_purged_with_no_changes(storage):
    patch = patches.Patch()

    storage.purge(
        key='fn', body=objects.Body({'metadata': {'annotations': {'x': 'y'}}}), patch=patch
    )

    assert not patch
    assert patch == {}


@EACH_STORAGE
def test_records_that_were_not_sent_are_purged_from_the_patch(storage):
    patch = patches.Patch()
    storage.store(key='fn', record=RECORD, body=objects.Body({}), patch=patch)
    storage.touch(body=objects.Body({}), patch=patch, value='now')

    storage.touch(body=objects.Body({}), patch=patch, value=None)
    storage.purge(key='fn', body=objects.Body({}), patch=patch)

    assert patch == {}


@EACH_STORAGE
def test_the_last_word_in_a_patch_wins(storage):
    storage.store(
        key='fn', record={'retries': 1}, body=objects.Body({}), patch=(patch := patches.Patch())
    )
    body = apply({}, patch)

    patch = patches.Patch()
    storage.purge(key='fn', body=body, patch=patch)
    storage.store(key='fn', record={'retries': 1}, body=body, patch=patch)
    assert patch == {}

    storage.store(key='fn', record={'retries': 2}, body=body, patch=patch)
    storage.purge(key='fn', body=body, patch=patch)
    assert storage.fetch(key='fn', body=apply(body, patch)) is None


def test_other_parts_of_the_patch_are_kept():
    storage = STORAGES['multi']
    patch = patches.Patch({'metadata': {'annotations': {'user': 'note'}}, 'status': {'user': 1}})

    storage.store(key='fn', record=RECORD, body=objects.Body({}), patch=patch)
    storage.purge(key='fn', body=objects.Body({}), patch=patch)

    assert patch == {'metadata': {'annotations': {'user': 'note'}}, 'status': {'user': 1}}


@pytest.mark.parametrize(
    'body',
    [
        pytest.param({}, id='nothing'),
        pytest.param({'metadata': {'annotations': None}, 'status': None}, id='none'),
        pytest.param(
            {'metadata': {'annotations': {NAME: 'not json'}}, 'status': 'text'}, id='not-json'
        ),
        pytest.param(
            {'metadata': {'annotations': {NAME: ''}}, 'status': {'kopf': 'text'}}, id='empty'
        ),
        pytest.param(
            {'metadata': {'annotations': {NAME: '[1]'}}, 'status': {'kopf': {'progress': []}}},
            id='list',
        ),
        pytest.param(
            {
                'metadata': {'annotations': {NAME: 'null'}},
                'status': {'kopf': {'progress': {'create_fn': 1}}},
            },
            id='null',
        ),
        pytest.param({'metadata': {'annotations': {NAME: 123}}}, id='number'),
    ],
)
@EACH_STORAGE
def test_what_cannot_be_read_is_not_there_and_is_overwritten(storage, body):
    body = objects.Body(body)

    assert storage.fetch(key='create_fn', body=body) is None
    storage.store(key='create_fn', record=RECORD, body=body, patch=(patch := patches.Patch()))
    assert storage.fetch(key='create_fn', body=apply(body, patch)) == RECORD


@pytest.mark.parametrize(
    'raw, record',
    [
        pytest.param(
            {'retries': 'many', 'purpose': 'create'}, {'purpose': 'create'}, id='text-for-number'
        ),
        pytest.param({'retries': True, 'success': 1, 'message': ['x']}, {}, id='other-types'),
        pytest.param({'subrefs': 'abc', 'retries': 1}, {'retries': 1}, id='text-for-list'),
        pytest.param({'subrefs': ['a', 1], 'retries': 1}, {'retries': 1}, id='numbers-for-ids'),
        pytest.param(
            {'future': {'a': [1]}, 'retries': 1},
            {'future': {'a': [1]}, 'retries': 1},
            id='unknown-fields',
        ),
    ],
)
def test_fields_of_wrong_types_are_not_there(raw, record):
    written = annotated({NAME: json.dumps(raw)})
    structured = objects.Body({'status': {'kopf': {'progress': {'create_fn': raw}}}})

    assert STORAGES['annotations'].fetch(key='create_fn', body=written) == record
    assert STORAGES['status'].fetch(key='create_fn', body=structured) == record


def test_records_of_other_writers_are_not_rewritten_if_they_mean_the_same():
    body = annotated({NAME: json.dumps(dict(reversed(RECORD.items())), indent=2)})

    STORAGES['annotations'].store(
        key='create_fn', record=RECORD, body=body, patch=(patch := patches.Patch())
    )

    assert not patch


@pytest.mark.guarantee('CFG-071')
@pytest.mark.parametrize(
    'storage, expected',
    [
        pytest.param(
            'annotations',
            {'metadata': {'annotations': {'kopf.zalando.org/touch-dummy': 'now'}}},
            id='notes',
        ),
        pytest.param('status', {'status': {'kopf': {'dummy': 'now'}}}, id='status'),
        pytest.param(
            'smart',
            {'metadata': {'annotations': {'kopf.zalando.org/touch-dummy': 'now'}}},
            id='smart',
        ),
        pytest.param(
            'multi',
            {
                'metadata': {'annotations': {'kopf.zalando.org/touch-dummy': 'now'}},
                'status': {'kopf': {'dummy': 'now'}},
            },
            id='multi',
        ),
    ],
)
def test_touches_are_apart_from_records(storage, expected):
    storage, patch = STORAGES[storage], patches.Patch()

    storage.touch(body=objects.Body({}), patch=patch, value='now')
    assert patch == expected

    storage.touch(body=objects.Body(expected), patch=(patch := patches.Patch()), value='now')
    assert not patch

    storage.touch(body=objects.Body(expected), patch=patch, value=None)
    assert without_touches(apply(expected, patch)) == {}


def without_touches(body):
    return {
        key: value
        for key, value in body.items()
        if value not in ({'annotations': {}}, {'kopf': {}})
    }


def test_touches_are_adjustable():
    storage = progress.MultiProgressStorage(
        [
            progress.AnnotationsProgressStorage(touch_key='my'),
            progress.StatusProgressStorage(touch_field='status.my'),
        ]
    )

    storage.touch(body=objects.Body({}), patch=(patch := patches.Patch()), value='now')

    assert patch == {
        'metadata': {'annotations': {'kopf.zalando.org/my': 'now'}},
        'status': {'my': 'now'},
    }


@pytest.mark.guarantee('NEW-114')
def test_unusual_prefixes_are_marked_once_something_is_stored():
    storage, patch = STORAGES['annotations-with-prefix'], patches.Patch()

    storage.store(key='fn', record=RECORD, body=objects.Body({}), patch=patch)
    assert patch['metadata']['annotations'] == {
        'my-op.example.com/fn': WRITTEN,
        'my-op.example.com/kopf-managed': 'yes',
    }

    body = apply({}, patch)
    storage.store(key='fn', record={'retries': 2}, body=body, patch=(patch := patches.Patch()))
    assert patch['metadata']['annotations'] == {'my-op.example.com/fn': '{"retries":2}'}

    storage.purge(key='fn', body=body, patch=(patch := patches.Patch()))
    assert patch['metadata']['annotations'] == {'my-op.example.com/fn': None}


@pytest.mark.guarantee('NEW-114')
def test_usual_prefixes_are_not_marked():
    patch = patches.Patch()

    progress.AnnotationsProgressStorage(prefix='kopf.dev').store(
        key='fn', record={'retries': 2}, body=objects.Body({}), patch=patch
    )

    assert patch['metadata']['annotations'] == {'kopf.dev/fn': '{"retries":2}'}


@pytest.mark.guarantee('CFG-063', 'NEW-107')
def test_multi_storage_writes_to_all_and_reads_from_the_first():
    storage = STORAGES['multi']
    both = {
        'metadata': {'annotations': {'kopf.zalando.org/fn': '{"retries":1}'}},
        'status': {'kopf': {'progress': {'fn': {'retries': 2}}}},
    }

    assert storage.fetch(key='fn', body=objects.Body(both)) == {'retries': 2}
    assert storage.fetch(key='fn', body=objects.Body({'metadata': both['metadata']})) == {
        'retries': 1
    }

    storage.store(
        key='fn', record={'retries': 3}, body=objects.Body({}), patch=(patch := patches.Patch())
    )
    assert patch == {
        'metadata': {'annotations': {'kopf.zalando.org/fn': '{"retries":3}'}},
        'status': {'kopf': {'progress': {'fn': {'retries': 3}}}},
    }

    storage.purge(key='fn', body=objects.Body(both), patch=(patch := patches.Patch()))
    assert patch == {
        'metadata': {'annotations': {'kopf.zalando.org/fn': None}},
        'status': {'kopf': {'progress': {'fn': None}}},
    }


@pytest.mark.guarantee('CFG-057', 'CFG-064', 'NEW-104')
def test_smart_storage_writes_to_annotations_and_cleans_the_status():
    storage = progress.SmartProgressStorage()
    older = objects.Body({'status': {'kopf': {'progress': {'fn': {'retries': 1}}}}})
    assert isinstance(storage, progress.MultiProgressStorage)
    assert storage.fetch(key='fn', body=older) == {'retries': 1}

    patch = patches.Patch()
    storage.store(key='fn', record={'retries': 2}, body=older, patch=patch)
    storage.touch(body=older, patch=patch, value='now')
    assert set(patch) == {'metadata'}

    both = apply(older, patch)
    assert storage.fetch(key='fn', body=both) == {'retries': 2}

    storage.purge(key='fn', body=both, patch=(patch := patches.Patch()))
    assert patch == {
        'metadata': {'annotations': {'kopf.zalando.org/fn': None}},
        'status': {'kopf': {'progress': {'fn': None}}},
    }

    storage.purge(key='fn', body=older, patch=(patch := patches.Patch()))
    assert set(patch) == {'status'}


@pytest.mark.guarantee('CFG-064')
def test_smart_storage_is_adjustable():
    storage = progress.SmartProgressStorage(
        name='me',
        field='status.{name}.f',
        touch_key='t',
        touch_field='status.{name}.t',
        prefix='x.y',
        v1=False,
        verbose=True,
    )
    annotations, status = storage.storages

    assert (annotations.prefix, annotations.v1, annotations.verbose, annotations.touch_key) == (
        'x.y',
        False,
        True,
        't',
    )
    assert (status.field, status.touch_field) == (('status', 'me', 'f'), ('status', 'me', 't'))


@pytest.mark.guarantee('CFG-072')
@EACH_STORAGE
def test_storages_are_not_seen_in_essences(storage):
    essence = {'spec': {'x': 1}, 'metadata': {'annotations': {'user': 'note'}}, 'status': {'y': 1}}
    patch = patches.Patch()
    storage.store(key='fn', record=RECORD, body=objects.Body(essence), patch=patch)
    storage.touch(body=objects.Body(essence), patch=patch, value='now')
    polluted = patches.merge(essence, patch)
    before = copy.deepcopy(polluted)

    assert storage.clear(essence=polluted) == essence
    assert polluted == before


@pytest.mark.guarantee('CFG-072')
@EACH_STORAGE
def test_stanzas_of_nothing_but_storages_are_not_seen(storage):
    patch = patches.Patch()
    storage.store(key='fn', record=RECORD, body=objects.Body({}), patch=patch)

    assert storage.clear(essence=dict(patch)) == {}


@pytest.mark.guarantee('CFG-065')
def test_base_storage_is_abstract():
    assert progress.ProgressStorage.__abstractmethods__ == {
        'fetch',
        'store',
        'purge',
        'touch',
        'clear',
    }
    with pytest.raises(TypeError, match='abstract'):
        progress.ProgressStorage()


@pytest.mark.guarantee('CFG-065', 'CFG-066', 'WLD-006')
def test_users_storage_can_keep_records_anywhere_and_change_essences_in_place():
    class Database(progress.ProgressStorage):
        def __init__(self):
            self.records, self.flushed = {}, 0

        def fetch(self, *, key, body):
            return self.records.get((body.meta.uid, key))

        def store(self, *, key, record, body, patch):
            self.records[body.meta.uid, key] = record

        def purge(self, *, key, body, patch):
            self.records.pop((body.meta.uid, key), None)

        def touch(self, *, body, patch, value):
            patch.metadata.annotations['dummy'] = value

        def clear(self, *, essence):
            del essence['spec']['inner']['mine']
            self.remove_annotations(essence, {'dummy'})
            self.remove_empty_stanzas(essence)
            return super().clear(essence=essence)

        def flush(self):
            super().flush()
            self.flushed += 1

    database = Database()
    storage = progress.MultiProgressStorage([database, progress.AnnotationsProgressStorage()])
    body, patch = objects.Body({'metadata': {'uid': 'uid1'}}), patches.Patch()
    storage.store(key='fn', record=RECORD, body=body, patch=patch)
    essence = {'spec': {'inner': {'mine': 1, 'x': 2}}, 'metadata': {'annotations': {'dummy': '1'}}}
    before = copy.deepcopy(essence)

    assert storage.fetch(key='fn', body=body) == RECORD
    assert storage.clear(essence=essence) == {'spec': {'inner': {'x': 2}}}
    assert essence == before
    storage.purge(key='fn', body=body, patch=patch)
    storage.touch(body=body, patch=patch, value='x')
    storage.flush()
    assert (database.records, database.flushed) == ({}, 1)


@pytest.mark.guarantee('WLD-006')
def test_users_subclasses_extend_every_method():
    class Shouting(progress.AnnotationsProgressStorage):
        def make_keys(self, key, *, body=None):
            return [name.upper() for name in super().make_keys(key, body=body)]

        def fetch(self, *, key, body):
            record = super().fetch(key=key, body=body)
            return None if record is None else {**record, 'message': record['message'].upper()}

        def store(self, *, key, record, body, patch):
            super().store(key=key, record={**record, 'message': 'shout'}, body=body, patch=patch)

    storage, patch = Shouting(), patches.Patch()

    storage.store(key='fn', record={}, body=objects.Body({}), patch=patch)
    body = apply({}, patch)

    assert body == {'metadata': {'annotations': {'KOPF.ZALANDO.ORG/FN': '{"message":"shout"}'}}}
    assert storage.fetch(key='fn', body=body) == {'message': 'SHOUT'}
    storage.purge(key='fn', body=body, patch=(patch := patches.Patch()))
    assert patch == {'metadata': {'annotations': {'KOPF.ZALANDO.ORG/FN': None}}}


@pytest.mark.guarantee('CFG-067')
def test_records_have_their_fields():
    assert set(progress.ProgressRecord.__annotations__) == {
        'started',
        'stopped',
        'delayed',
        'purpose',
        'retries',
        'success',
        'failure',
        'message',
        'subrefs',
        'essence',
    }
    assert not progress.ProgressRecord.__required_keys__


@EACH_STORAGE
@pytest.mark.parametrize('is_touched', [True, False], ids=['touched', 'stored'])
def test_storage_is_not_blank_if_anything_is_kept_in_it(storage, is_touched):
    body, patch = objects.Body({'metadata': {}, 'status': {'x': 'y'}}), patches.Patch()
    if is_touched:
        storage.touch(body=body, patch=patch, value='now')
    else:
        storage.store(key='create_fn', record=RECORD, body=body, patch=patch)

    assert storage._is_blank(body)
    assert not patch or not storage._is_blank(objects.Body(patches.merge(body, patch)))


@EACH_STORAGE
def test_storage_is_blank_in_spite_of_what_is_not_progress(storage):
    names = ['last-handled-configuration', 'kopf-managed']
    annotations = {
        f'{prefix}/{name}': 'x'
        for prefix in ('kopf.zalando.org', 'my-op.example.com')
        for name in names
    }
    body = objects.Body(
        {'metadata': {'annotations': {'other.example.com/create_fn': WRITTEN, **annotations}}}
    )

    assert storage._is_blank(body)


def test_storages_of_users_are_never_believed_to_be_blank():
    class UsersStorage(progress.AnnotationsProgressStorage):
        pass

    assert not progress.MultiProgressStorage([UsersStorage()])._is_blank(objects.Body({}))


STANZAS = strategies.fixed_dictionaries(
    {},
    optional={
        'spec': strategies.just({'x': 1}),
        'kopf': strategies.sampled_from([{}, {'progress': {}}]),
        'status': strategies.sampled_from(
            [
                {},
                {'x': 1},
                {'kopf': {}},
                {'kopf': {'progress': {'fn': {}}}},
                {'kopf': {'dummy': '1'}},
            ]
        ),
        'metadata': strategies.sampled_from(
            [
                {},
                {'labels': {}},
                {'labels': {'x': 'y'}},
                {'annotations': {}},
                {'annotations': {'x': 'y'}, 'labels': {'x': 'y'}},
                {'annotations': {'kopf.zalando.org/fn': '{}'}},
                {'annotations': {'kopf.zalando.org/last-handled-configuration': '{}', 'x': 'y'}},
                {'annotations': {'kopf.zalando.org.x/fn': '{}'}},
            ]
        ),
    },
)


@hypothesis.given(STANZAS)
@pytest.mark.parametrize(
    'storage',
    [
        progress.AnnotationsProgressStorage(),
        progress.StatusProgressStorage(),
        progress.StatusProgressStorage(field='kopf.progress', touch_field='kopf.dummy'),
        progress.MultiProgressStorage([]),
        progress.SmartProgressStorage(),
    ],
    ids=lambda storage: type(storage).__name__,
)
def test_essences_that_need_no_clearing_are_recognised(storage, essence):
    if storage._is_clear(essence):
        assert storage.clear(essence=essence) == essence
