"""
Storages of the last handled states: what is essential in bodies, and where it is kept.
"""

import copy
import json

import hypothesis
import pytest
from hypothesis import strategies

from kopf._cogs.configs import diffbase, progress
from kopf._cogs.structs import dicts, diffs, objects, patches

NAME = 'kopf.zalando.org/last-handled-configuration'
ESSENCE = {
    'spec': {'a': {'b': 1}},
    'metadata': {'labels': {'l1': 'v1'}, 'annotations': {'user': 'note'}},
}
WRITTEN = '{"spec":{"a":{"b":1}},"metadata":{"labels":{"l1":"v1"},"annotations":{"user":"note"}}}'

STORAGES = {
    'annotations': diffbase.AnnotationsDiffBaseStorage(),
    'annotations-with-prefix': diffbase.AnnotationsDiffBaseStorage(
        prefix='my-op.example.com', key='k' * 70
    ),
    'annotations-unmarked': diffbase.AnnotationsDiffBaseStorage(prefix='kopf.example.com', key='k'),
    'status': diffbase.StatusDiffBaseStorage(),
    'status-with-field': diffbase.StatusDiffBaseStorage(name='me', field=['spec', '{name}', 'x.y']),
    'multi': diffbase.MultiDiffBaseStorage(
        [
            diffbase.AnnotationsDiffBaseStorage(prefix='my-op.example.com'),
            diffbase.StatusDiffBaseStorage(),
        ]
    ),
}
EACH_STORAGE = pytest.mark.parametrize('storage', STORAGES.values(), ids=STORAGES)

VALUES = strategies.recursive(
    strategies.booleans()
    | strategies.integers(-(2**63), 2**64 - 1)  # the others are floats in JSON
    | strategies.text(strategies.characters(codec='utf-8'), max_size=3),
    lambda inner: (
        strategies.lists(inner, max_size=2)
        | strategies.dictionaries(strategies.sampled_from('abc'), inner)
    ),
    max_leaves=8,
)
BODIES = strategies.fixed_dictionaries(
    {'kind': strategies.sampled_from(['ReplicaSet', 'KopfExample'])},
    optional={
        'metadata': strategies.fixed_dictionaries(
            {},
            optional={
                'labels': strategies.dictionaries(
                    strategies.sampled_from('ab'), strategies.sampled_from('xy')
                ),
                'annotations': strategies.dictionaries(
                    strategies.sampled_from(
                        ['a', 'kopf.dev/b', 'kopf.zalando.org/c', 'my-op.example.com/d']
                    ),
                    strategies.sampled_from('xy'),
                ),
                'ownerReferences': strategies.just([{'kind': 'Deployment'}]),
            },
        ),
        'spec': strategies.dictionaries(strategies.sampled_from('abc'), VALUES),
        'status': strategies.dictionaries(strategies.sampled_from('abc'), VALUES),
        'data': VALUES,
    },
)


@pytest.fixture
def raw():
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {
            'name': 'name1',
            'namespace': 'ns1',
            'uid': 'uid1',
            'resourceVersion': '123',
            'generation': 1,
            'managedFields': [{}],
            'finalizers': ['x'],
            'labels': {'l1': 'v1'},
            'annotations': {
                'user': 'note',
                'kubectl.kubernetes.io/last-applied-configuration': '{}',
                NAME: '{}',
                'kopf.zalando.org/create_fn': '{}',
                'kopf.zalando.org/touch-dummy': 'now',
            },
        },
        'spec': {'a': {'b': 1}},
        'status': {'done': True, 'inner': {'x': 1, 'y': 2}},
    }


def apply(body, patch):
    return objects.Body(patches.merge(body, patch))


def annotated(annotations):
    return objects.Body({'metadata': {'annotations': annotations}})


@pytest.mark.guarantee('CFG-074', 'CFG-078', 'NEW-112', 'NEW-113', 'WLD-003')
@EACH_STORAGE
def test_essence_has_no_system_fields(storage, raw):
    before = copy.deepcopy(raw)

    assert storage.build(body=objects.Body(raw)) == ESSENCE
    assert raw == before


@pytest.mark.guarantee('NEW-112')
@EACH_STORAGE
@pytest.mark.parametrize(
    'raw, essence',
    [
        pytest.param({}, {}, id='nothing'),
        pytest.param({'kind': 'X', 'metadata': {}, 'status': {'x': 1}}, {}, id='no-essence'),
        pytest.param(
            {'metadata': {'labels': {}, 'annotations': {'kopf.zalando.org/x': ''}}, 'data': {}},
            {'data': {}},
            id='empty',
        ),
        pytest.param({'metadata': None, 'spec': None}, {'spec': None}, id='none'),
        pytest.param(
            {'data': {'x': 'y'}, 'type': 'Opaque'},
            {'data': {'x': 'y'}, 'type': 'Opaque'},
            id='other-stanzas',
        ),
    ],
)
def test_essence_has_no_empty_stanzas(storage, raw, essence):
    assert storage.build(body=objects.Body(raw)) == essence


@pytest.mark.guarantee('NEW-113', 'CFG-081')
def test_annotations_of_other_operators_are_not_essential():
    annotations = {
        'my-op.kopf.zalando.org/fn': '{}',
        'other.example.com/kopf-managed': 'yes',
        'other.example.com/fn': '{}',
        'kopf.example.com/last-handled-configuration': '{}',
        'kopf.example.com/fn': '{}',
    }
    essential = {
        'example.com/fn': '{}',
        'kopf.dev/x': 'y',
        'notkopf.zalando.org/x': 'y',
        'kopf-managed': 'no',
        'simple': 'x',
    }

    essence = STORAGES['annotations'].build(body=annotated({**annotations, **essential}))

    assert essence == {'metadata': {'annotations': essential}}


@pytest.mark.guarantee('CFG-081')
@EACH_STORAGE
def test_operators_do_not_see_the_bookkeeping_of_each_other(storage, raw):
    essence = storage.build(body=objects.Body(raw))
    theirs = (
        diffbase.AnnotationsDiffBaseStorage(prefix='their-op.example.com'),
        progress.AnnotationsProgressStorage(prefix='their-op.example.com'),
    )
    patch = patches.Patch()

    theirs[1].store(key='fn', record={'retries': 1}, body=objects.Body(raw), patch=patch)
    assert storage.build(body=apply(raw, patch)) == essence

    theirs[0].store(body=objects.Body(raw), patch=patch, essence=essence)
    theirs[1].purge(key='fn', body=objects.Body(raw), patch=patch)
    assert storage.build(body=apply(raw, patch)) == essence


@pytest.mark.guarantee('CFG-079')
@pytest.mark.parametrize(
    'extra_fields, expected',
    [
        pytest.param(['status.done'], {'status': {'done': True}}, id='dotted'),
        pytest.param(
            [('status', 'inner', 'x'), ['status', 'inner', 'y']],
            {'status': {'inner': {'x': 1, 'y': 2}}},
            id='tuple-and-list',
        ),
        pytest.param(
            ['status.inner.x', 'status.inner'],
            {'status': {'inner': {'x': 1, 'y': 2}}},
            id='overlapping',
        ),
        pytest.param(
            ['status'], {'status': {'done': True, 'inner': {'x': 1, 'y': 2}}}, id='whole-stanza'
        ),
        pytest.param(['status.absent', 'status.done.x', 'spec.absent'], {}, id='absent'),
        pytest.param(['spec', 'spec.a.b', 'metadata.labels'], {}, id='essential-anyway'),
        pytest.param(['metadata.annotations'], {}, id='annotations'),
        pytest.param([None, ''], {}, id='no-fields'),
        pytest.param(
            [('metadata', 'finalizers')],
            {'metadata': {**ESSENCE['metadata'], 'finalizers': ['x']}},
            id='meta',
        ),
        pytest.param(
            [
                ('metadata', 'annotations', 'kubectl.kubernetes.io/last-applied-configuration'),
                ('metadata', 'annotations', NAME),
            ],
            {
                'metadata': {
                    **ESSENCE['metadata'],
                    'annotations': {
                        'user': 'note',
                        'kubectl.kubernetes.io/last-applied-configuration': '{}',
                    },
                }
            },
            id='annotation',
        ),
        pytest.param(
            ['metadata'],
            {
                'metadata': {
                    'name': 'name1',
                    'namespace': 'ns1',
                    'uid': 'uid1',
                    'generation': 1,
                    'finalizers': ['x'],
                    **ESSENCE['metadata'],
                }
            },
            id='whole-metadata-but-what-always-changes',
        ),
        pytest.param(['kind'], {'kind': 'KopfExample'}, id='kind'),
    ],
)
@EACH_STORAGE
def test_extra_fields_are_essential(storage, raw, extra_fields, expected):
    before = copy.deepcopy(raw)

    assert storage.build(body=objects.Body(raw), extra_fields=iter(extra_fields)) == {
        **ESSENCE,
        **expected,
    }
    assert raw == before


@pytest.mark.guarantee('CFG-072')
@EACH_STORAGE
def test_storages_are_not_seen_even_in_extra_fields(storage, raw):
    patch = patches.Patch()
    extra_fields = ['status', 'metadata.annotations', 'metadata']
    essence = storage.build(body=objects.Body(raw), extra_fields=extra_fields)

    storage.store(body=objects.Body(raw), patch=patch, essence=essence)

    assert storage.build(body=apply(raw, patch), extra_fields=extra_fields) == essence


@pytest.mark.guarantee('NEW-108', 'NEW-109', 'NEW-110')
@pytest.mark.parametrize(
    'make',
    [
        diffbase.AnnotationsDiffBaseStorage,
        diffbase.StatusDiffBaseStorage,
        lambda ignored_fields: diffbase.MultiDiffBaseStorage(
            [
                diffbase.StatusDiffBaseStorage(),
                diffbase.AnnotationsDiffBaseStorage(ignored_fields=ignored_fields),
            ]
        ),
    ],
    ids=['annotations', 'status', 'multi'],
)
@pytest.mark.parametrize(
    'ignored_fields, expected',
    [
        pytest.param(None, {}, id='none'),
        pytest.param(['spec.a.b'], {'spec': None}, id='dotted'),
        pytest.param(
            [('metadata', 'labels', 'l1'), ['status', 'inner']],
            {'metadata': {'annotations': {'user': 'note'}}, 'status': {'done': True}},
            id='tuple-and-list',
        ),
        pytest.param(['status'], {'status': None}, id='extra'),
        pytest.param(['spec.x', 'spec.a.b.c', 'other.y', ''], {}, id='absent'),
        pytest.param(['metadata'], {'metadata': None}, id='metadata'),
    ],
)
def test_ignored_fields_are_not_essential(make, raw, ignored_fields, expected):
    before = copy.deepcopy(raw)
    storage = make(ignored_fields=ignored_fields)

    essence = storage.build(body=objects.Body(raw), extra_fields=['status'])

    assert diffs.diff({**ESSENCE, 'status': raw['status'], **expected}, essence) == ()
    assert raw == before


@pytest.mark.guarantee('NEW-108', 'NEW-111')
def test_ignored_fields_are_an_attribute():
    storage = diffbase.AnnotationsDiffBaseStorage(ignored_fields=iter(['spec.a']))
    assert storage.ignored_fields == ['spec.a']

    storage.ignored_fields.append('spec.b')

    assert storage.build(body=objects.Body({'spec': {'a': 1, 'b': 2, 'c': 3}})) == {
        'spec': {'c': 3}
    }
    assert diffbase.StatusDiffBaseStorage().ignored_fields == []
    with pytest.raises(TypeError):
        diffbase.MultiDiffBaseStorage([], ignored_fields=['spec.a'])
    with pytest.raises(TypeError, match='not one field'):
        diffbase.StatusDiffBaseStorage(ignored_fields='spec.a')


@pytest.mark.guarantee('NEW-109')
def test_changes_of_ignored_fields_are_not_seen():
    storage = diffbase.AnnotationsDiffBaseStorage(ignored_fields=['spec.a.b'])

    essences = [
        storage.build(body=objects.Body({'spec': spec}))
        for spec in ({'x': 1}, {'x': 1, 'a': {}}, {'x': 1, 'a': {'b': 1}}, {'x': 1, 'a': {'b': 2}})
    ]

    assert essences == [{'spec': {'x': 1}}] * 4


@pytest.mark.guarantee('CFG-073', 'NEW-115')
def test_state_is_json_with_a_newline_in_an_annotation():
    patch = patches.Patch()

    STORAGES['annotations'].store(body=objects.Body({}), patch=patch, essence=ESSENCE)

    assert patch == {'metadata': {'annotations': {NAME: f'{WRITTEN}\n'}}}


@pytest.mark.guarantee('CFG-075', 'NEW-115')
def test_state_is_json_with_no_newline_in_the_status():
    patch = patches.Patch()

    STORAGES['status'].store(body=objects.Body({}), patch=patch, essence=ESSENCE)

    assert patch == {'status': {'kopf': {'last-handled-configuration': WRITTEN}}}


@pytest.mark.guarantee('CFG-075')
def test_field_of_the_status_is_adjustable():
    storage = diffbase.StatusDiffBaseStorage(name='me')
    assert storage.field == ('status', 'me', 'last-handled-configuration')

    storage.field = 'status.{name}.x'

    assert storage.field == ('status', 'me', 'x')
    assert STORAGES['status-with-field'].field == ('spec', 'me', 'x.y')


@pytest.mark.guarantee('NEW-114')
def test_unusual_prefixes_are_marked():
    patch = patches.Patch()

    diffbase.AnnotationsDiffBaseStorage(prefix='my-op.example.com', key='k').store(
        body=objects.Body({}), patch=patch, essence={}
    )

    assert patch['metadata']['annotations'] == {
        'my-op.example.com/k': '{}\n',
        'my-op.example.com/kopf-managed': 'yes',
    }


@EACH_STORAGE
@hypothesis.settings(deadline=None)
@hypothesis.given(BODIES)
def test_states_are_read_as_they_were_stored(storage, raw):
    body, patch = objects.Body(raw), patches.Patch()
    essence = storage.build(body=body)
    assert storage.fetch(body=body) is None

    storage.store(body=body, patch=patch, essence=essence)
    handled = apply(body, patch)

    assert dicts.is_same(storage.fetch(body=handled), essence)
    assert dicts.is_same(storage.build(body=handled), essence)
    storage.store(body=handled, patch=(patch := patches.Patch()), essence=essence)
    assert not patch


def test_states_of_other_writers_are_not_rewritten_if_they_mean_the_same():
    body = annotated({NAME: json.dumps(dict(reversed(ESSENCE.items())), indent=2)})

    STORAGES['annotations'].store(body=body, patch=(patch := patches.Patch()), essence=ESSENCE)

    assert not patch


@pytest.mark.parametrize('value', ['', 'garbage', '[]', 'null', '"text"', 123, None, {'spec': {}}])
def test_what_cannot_be_read_is_not_there(value):
    assert STORAGES['annotations'].fetch(body=annotated({NAME: value})) is None
    assert (
        STORAGES['status'].fetch(
            body=objects.Body({'status': {'kopf': {'last-handled-configuration': value}}})
        )
        is None
    )
    assert STORAGES['status'].fetch(body=objects.Body({'status': {'kopf': value}})) is None


def test_states_of_the_first_versions_are_read_as_they_are_now():
    written = (
        '{"apiVersion": "kopf.dev/v1", "kind": "EphemeralVolumeClaim", '
        '"metadata": {"name": "my-claim", "namespace": "default"}, "spec": {}}'
    )

    assert STORAGES['annotations'].fetch(body=annotated({NAME: written})) == {'spec': {}}


@pytest.mark.guarantee('NEW-121')
def test_states_of_deployments_are_not_taken_for_those_of_their_replicasets():
    storage, patch = STORAGES['annotations'], patches.Patch()
    replicaset = {
        'kind': 'ReplicaSet',
        'metadata': {'ownerReferences': [{'kind': 'Deployment'}], 'annotations': {NAME: WRITTEN}},
    }
    assert storage.fetch(body=objects.Body(replicaset)) is None

    storage.store(body=objects.Body(replicaset), patch=patch, essence=ESSENCE)

    assert patch['metadata']['annotations'] == {f'{NAME}-ofDRS': f'{WRITTEN}\n'}


@pytest.mark.guarantee('CFG-076', 'CFG-082')
def test_storages_are_changed_by_a_transition():
    older, newer = (
        diffbase.AnnotationsDiffBaseStorage(),
        diffbase.AnnotationsDiffBaseStorage(prefix='new.example.com'),
    )
    both = diffbase.MultiDiffBaseStorage([newer, older])
    older.store(body=objects.Body({}), patch=(patch := patches.Patch()), essence={'spec': {'x': 1}})
    body = apply({}, patch)
    assert newer.fetch(body=body) is None
    assert both.fetch(body=body) == {'spec': {'x': 1}}

    both.store(body=body, patch=(patch := patches.Patch()), essence={'spec': {'x': 2}})
    body = apply(body, patch)

    assert [storage.fetch(body=body) for storage in (older, newer, both)] == [
        {'spec': {'x': 2}}
    ] * 3


@pytest.mark.guarantee('CFG-077')
def test_base_storage_is_abstract():
    assert diffbase.DiffBaseStorage.__abstractmethods__ == {'fetch', 'store'}
    with pytest.raises(TypeError, match='abstract'):
        diffbase.DiffBaseStorage()


@pytest.mark.guarantee('CFG-077', 'WLD-006')
@pytest.mark.parametrize(
    'wrap',
    [lambda storage: storage, lambda storage: diffbase.MultiDiffBaseStorage([storage])],
    ids=['alone', 'in-multi'],
)
@pytest.mark.parametrize(
    'base',
    [
        diffbase.AnnotationsDiffBaseStorage,
        diffbase.StatusDiffBaseStorage,
        diffbase.MultiDiffBaseStorage,
    ],
)
def test_users_subclasses_can_change_essences_in_place(base, wrap, raw):
    class MyStorage(base):
        def build(self, *, body, extra_fields=None):
            essence = super().build(body=body, extra_fields=extra_fields)
            assert (body.get('kind'), body.meta.name) == ('KopfExample', 'name1')
            essence['spec']['a'].pop('b', None)
            essence['status']['inner'].pop('x', None)
            self.remove_annotations(essence, ['user'])
            self.remove_empty_stanzas(essence)
            return essence

    before = copy.deepcopy(raw)
    args = (
        [[diffbase.AnnotationsDiffBaseStorage()]] if base is diffbase.MultiDiffBaseStorage else []
    )

    essence = wrap(MyStorage(*args)).build(body=objects.Body(raw), extra_fields=['status.inner'])

    assert essence == {
        'spec': {'a': {}},
        'metadata': {'labels': {'l1': 'v1'}},
        'status': {'inner': {'y': 2}},
    }
    assert raw == before


@pytest.mark.guarantee('WLD-006')
def test_users_storage_can_keep_states_anywhere_and_call_no_constructor(raw):
    class Database(diffbase.DiffBaseStorage):
        def __init__(self):
            self.states = {}

        def fetch(self, *, body):
            return self.states.get(body.meta.uid)

        def store(self, *, body, patch, essence):
            self.states[body.meta.uid] = essence

    storage = Database()

    storage.store(
        body=objects.Body(raw), patch=patches.Patch(), essence=storage.build(body=objects.Body(raw))
    )

    assert storage.fetch(body=objects.Body(raw)) == ESSENCE


def test_own_storages_share_the_nested_values_with_the_body(raw):
    assert STORAGES['annotations'].build(body=objects.Body(raw))['spec'] is raw['spec']
