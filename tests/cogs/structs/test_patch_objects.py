"""
Patches: how they are collected, and what JSON patches they make.
"""

import copy
import functools
import gc
import pickle
import weakref

import hypothesis
import pytest
from hypothesis import strategies

from kopf._cogs.structs import dicts, objects, patches
from kopf._sandbox.apply import patches as api

SCALARS = (
    strategies.booleans() | strategies.integers(-2, 2) | strategies.sampled_from(['x', 'y', ''])
)
KEYS = strategies.sampled_from(['a', 'b/c', 'd~e', 'f~1g', ''])
VALUES = strategies.recursive(
    SCALARS,
    lambda inner: strategies.lists(inner, max_size=2) | strategies.dictionaries(KEYS, inner),
    max_leaves=12,
)
OBJECTS = strategies.dictionaries(KEYS, VALUES)
MERGES = strategies.dictionaries(
    KEYS,
    strategies.recursive(
        SCALARS | strategies.none(),
        lambda inner: strategies.dictionaries(KEYS, inner),
        max_leaves=12,
    ),
)


def without_empty(value):
    """
    Remove empty mappings: where nothing is to be deleted, the API creates them, and we do not.
    """
    if isinstance(value, dict):
        cleaned = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item != {}}
    return value


@pytest.fixture
def raw():
    return {
        'metadata': {'name': 'name1', 'labels': {'l': '1'}},
        'spec': {'x': {'y': 1}, 'items': [1, 2]},
    }


@pytest.mark.guarantee('KWA-035')
def test_stanzas_are_created_on_write():
    patch = patches.Patch()

    patch.spec['field'] = 1
    patch.status['counter'] = 2
    patch.metadata['x'] = 3
    patch.metadata.annotations['key'] = 'value'
    patch.meta.labels['key'] = None

    assert isinstance(patch, dict)
    assert patch == {
        'spec': {'field': 1},
        'status': {'counter': 2},
        'metadata': {'x': 3, 'annotations': {'key': 'value'}, 'labels': {'key': None}},
    }


@pytest.mark.guarantee('FND-030')
def test_stanzas_are_the_same_objects_however_reached():
    patch = patches.Patch()

    assert patch.meta is patch.metadata
    assert patch.meta is not patch.spec
    assert patch.spec is patch.spec
    assert patch.meta.labels is patch.metadata.labels
    assert patch.meta.annotations is not patch.meta.labels


@pytest.mark.parametrize(
    'make',
    [
        pytest.param(patches.Patch, id='constructor'),
        pytest.param(copy.copy, id='copy'),
        pytest.param(copy.deepcopy, id='deepcopy'),
        pytest.param(lambda patch: pickle.loads(pickle.dumps(patch)), id='pickle'),
    ],
)
def test_stanzas_of_copies_are_of_the_copies(make):
    patch = patches.Patch({'other': 1})
    status = patch.status
    copied = make(patch)

    copied.status['x'] = 1

    assert copied == {'other': 1, 'status': {'x': 1}}
    assert patch == {'other': 1}
    assert (patch.status is status, copied.status is status) == (True, False)


def test_patches_are_freed_without_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        patch = patches.Patch()
        patch.meta.labels['x'] = 'y'
        reference = weakref.ref(patch)
        del patch

        assert reference() is None
    finally:
        gc.enable()


@pytest.mark.guarantee('FND-030')
def test_patches_are_shown_with_their_class():
    def fn(body):
        pass

    assert repr(patches.Patch()) == str(patches.Patch()) == 'Patch()'
    assert repr(patches.Patch({'spec': {'x': 1}}, body={'spec': {}})) == "Patch({'spec': {'x': 1}})"
    assert repr(patches.Patch(fns=[fn])) == f'Patch(fns=[{fn!r}])'
    assert repr(patches.Patch({'x': 1}, fns=[fn])) == f"Patch({{'x': 1}}, fns=[{fn!r}])"


@pytest.mark.guarantee('KWA-035')
def test_stanzas_are_not_created_on_read():
    patch = patches.Patch()

    assert patch.spec.get('x') is None
    assert (dict(patch.status), len(patch.meta), list(patch.meta.labels)) == ({}, 0, [])
    assert 'key' not in patch.meta.annotations
    assert patch.spec.pop('x', 5) == 5
    with pytest.raises(KeyError):
        patch.spec['x']
    with pytest.raises(KeyError):
        del patch.meta.labels['x']
    assert patch == {}
    assert not patch


def test_emptied_stanzas_go():
    patch = patches.Patch(
        {'spec': {'x': 1}, 'metadata': {'labels': {'l': '1'}}, 'status': {'z': 1}}
    )

    del patch.spec['x']
    patch.meta.labels.clear()
    patch.status.pop('z')

    assert patch == {}
    assert not patch


def test_stanzas_are_live():
    patch = patches.Patch()
    spec = patch.spec

    patch['spec'] = {'x': 1}
    assert spec == {'x': 1}
    assert repr(spec) == "{'x': 1}"

    spec.update(y=2)
    spec.setdefault('z', []).append(3)
    assert patch == {'spec': {'x': 1, 'y': 2, 'z': [3]}}

    patch['spec'] = None
    assert dict(spec) == {}


def test_read_only_views_can_be_patched_further():
    body = objects.Body({'spec': {'x': 1}})
    patch = patches.Patch({'spec': body.spec})
    patch['status'] = body.spec

    patch.spec['y'] = 2
    patch.status['z'] = 3

    assert patch == {'spec': {'x': 1, 'y': 2}, 'status': {'x': 1, 'z': 3}}
    assert body == {'spec': {'x': 1}}


@pytest.mark.guarantee('NEW-051', 'NEW-052')
def test_functions_are_a_mutable_list():
    patch = patches.Patch()
    patch.fns.append(print)
    patch.fns.insert(0, len)
    patch.fns.remove(print)

    assert patch.fns == [len]
    with pytest.raises(AttributeError):
        patch.fns = []


@pytest.mark.guarantee('NEW-068')
@pytest.mark.parametrize(
    'patch, truth, length',
    [
        pytest.param(patches.Patch(), False, 0, id='empty'),
        pytest.param(patches.Patch({'a': 1, 'b': 2}), True, 2, id='mapping'),
        pytest.param(patches.Patch(fns=[print]), True, 0, id='functions'),
        pytest.param(patches.Patch({'a': 1}, fns=[print]), True, 1, id='both'),
    ],
)
def test_patches_are_true_if_there_is_anything(patch, truth, length):
    assert bool(patch) is truth
    assert len(patch) == length


@pytest.mark.guarantee('NEW-069')
def test_everything_is_cleared():
    patch = patches.Patch({'a': 1}, fns=[print])

    patch.clear()

    assert not patch
    assert (dict(patch), patch.fns) == ({}, [])


@pytest.mark.guarantee('NEW-070')
def test_patches_are_made_of_patches():
    src = patches.Patch({'spec': {'x': 1}}, body={'spec': {'x': 0}}, fns=[print])

    patch = patches.Patch(src, fns=[len])
    patch.spec['y'] = 2

    assert patch == {'spec': {'x': 1, 'y': 2}}
    assert patch.fns == [print, len]
    assert (dict(src), src.fns) == ({'spec': {'x': 1}}, [print])
    with pytest.raises(TypeError):
        patches.Patch(src={})


@pytest.mark.guarantee('NEW-070', 'NEW-071')
def test_reference_body_is_of_the_patch_or_of_the_call(raw):
    patch = patches.Patch({'spec': {'x': {'y': 2}}}, body=objects.Body(raw))
    operation = {'path': '/spec/x/y', 'value': 2}

    assert patch.as_json_patch() == [{'op': 'replace', **operation}]
    assert patches.Patch(patch).as_json_patch() == [{'op': 'replace', **operation}]
    assert patch.as_json_patch({'spec': {'x': {}}}) == [{'op': 'add', **operation}]
    assert patch.as_json_patch({}) == [{'op': 'add', 'path': '/spec', 'value': {'x': {'y': 2}}}]
    assert patches.Patch(patch, body={}).as_json_patch() == patch.as_json_patch({})


@pytest.mark.guarantee('NEW-072')
@pytest.mark.parametrize(
    'patch', [patches.Patch({'a': 1}), patches.Patch(fns=[print])], ids=['mapping', 'functions']
)
def test_json_patch_needs_a_body_if_there_is_anything(patch):
    with pytest.raises(ValueError, match='relative to a body'):
        patch.as_json_patch()

    patch.clear()
    assert patch.as_json_patch() == []


@pytest.mark.guarantee('KWA-036', 'NEW-073')
@pytest.mark.parametrize(
    'merge, expected',
    [
        pytest.param({'spec': {'z': 3}}, [('add', '/spec/z', 3)], id='added'),
        pytest.param({'spec': {'x': {'y': 2}}}, [('replace', '/spec/x/y', 2)], id='changed'),
        pytest.param({'spec': {'x': None}}, [('remove', '/spec/x')], id='removed'),
        pytest.param({'spec': None}, [('remove', '/spec')], id='removed-stanza'),
        pytest.param({'spec': {'items': [1]}}, [('replace', '/spec/items', [1])], id='list'),
        pytest.param(
            {'spec': {'x': 'text'}}, [('replace', '/spec/x', 'text')], id='mapping-to-value'
        ),
        pytest.param(
            {'metadata': {'name': {'a': 1}}},
            [('replace', '/metadata/name', {'a': 1})],
            id='value-to-mapping',
        ),
        pytest.param(
            {'status': {'a': {'b': 1}}}, [('add', '/status', {'a': {'b': 1}})], id='new-stanza'
        ),
        pytest.param(
            {'status': {'a': 1, 'b': None}},
            [('add', '/status', {'a': 1})],
            id='new-stanza-with-removals',
        ),
        pytest.param({'status': {}}, [('add', '/status', {})], id='new-empty-stanza'),
        pytest.param({'spec': {'x': {'y': 1}}}, [], id='same-value'),
        pytest.param({'spec': {'items': (1, 2)}}, [], id='same-list'),
        pytest.param(
            {'spec': {'x': {'y': True}}}, [('replace', '/spec/x/y', True)], id='true-is-not-1'
        ),
        pytest.param({'spec': {}}, [], id='same-stanza'),
        pytest.param({'spec': {'z': None}}, [], id='absent-key'),
        pytest.param({'status': None}, [], id='absent-stanza'),
        pytest.param({'status': {'a': {'b': None}}}, [], id='absent-parent'),
    ],
)
def test_json_patch_has_only_what_differs(raw, merge, expected):
    before = copy.deepcopy(raw)

    operations = patches.Patch(merge, body=raw).as_json_patch()

    assert operations == [
        dict(zip(('op', 'path', 'value'), item, strict=False)) for item in expected
    ]
    assert raw == before


@pytest.mark.guarantee('NEW-073')
def test_absent_key_of_an_empty_parent_is_not_removed():
    patch = patches.Patch({'metadata': {'annotations': {'a': None}}})

    assert patch.as_json_patch({'metadata': {'annotations': {}}}) == []


@pytest.mark.guarantee('NEW-074')
def test_keys_are_escaped():
    patch = patches.Patch(
        {'metadata': {'annotations': {'kopf.dev/a~b': 'x', 'a/b': None, '~1': 'y'}}}
    )

    assert patch.as_json_patch({'metadata': {'annotations': {'a/b': '1', '~1': '2'}}}) == [
        {'op': 'remove', 'path': '/metadata/annotations/a~1b'},
        {'op': 'replace', 'path': '/metadata/annotations/~01', 'value': 'y'},
        {'op': 'add', 'path': '/metadata/annotations/kopf.dev~1a~0b', 'value': 'x'},
    ]


@pytest.mark.guarantee('NEW-053', 'NEW-055', 'NEW-071')
def test_functions_are_applied_after_the_mapping_and_in_order(raw):
    def collect(body, name):
        assert type(body) is dict
        body['spec']['items'].append(f'{name}:{body["spec"]["x"]["y"]}')
        body['spec']['x']['y'] += 1
        return 'ignored'

    patch = patches.Patch({'spec': {'x': {'y': 5}}}, body=objects.Body(raw))
    patch.fns.append(functools.partial(collect, name='a'))
    patch.fns.append(functools.partial(collect, name='b'))

    assert patch.as_json_patch() == [
        {'op': 'replace', 'path': '/spec/x/y', 'value': 7},
        {'op': 'replace', 'path': '/spec/items', 'value': [1, 2, 'a:5', 'b:6']},
    ]


@pytest.mark.guarantee('NEW-054')
def test_functions_change_only_a_deep_copy(raw):
    def damage(body):
        body['spec']['items'].clear()
        body['spec']['given'].append(1)
        body['metadata']['labels']['l'] = '2'

    before, given = copy.deepcopy(raw), []
    patch = patches.Patch({'spec': {'given': given}}, body=raw, fns=[damage])

    patch.as_json_patch()
    patch.as_json_patch()

    assert (raw, given) == (before, [])


@pytest.mark.guarantee('NEW-073')
def test_functions_that_change_nothing_make_no_operations(raw):
    def change_back(body):
        body['spec']['x'] = {'y': 1}
        body['spec'].pop('absent', None)
        body['metadata']['labels'].update(l='1')

    assert patches.Patch(body=raw, fns=[change_back]).as_json_patch() == []


def test_operations_have_only_plain_values(raw):
    patch = patches.Patch({'status': {'copy': objects.Body(raw).spec, 'pair': (1, 2)}}, body={})

    value = patch.as_json_patch()[0]['value']

    assert value == {'copy': raw['spec'], 'pair': [1, 2]}
    assert (type(value['copy']), type(value['copy']['x'])) == (dict, dict)
    assert value['copy']['x'] is not raw['spec']['x']


@pytest.mark.parametrize(
    'target, merge, expected',
    [
        # The cases of RFC 7386, except for those of documents that are not objects.
        ({'a': 'b'}, {'a': 'c'}, {'a': 'c'}),
        ({'a': 'b'}, {'b': 'c'}, {'a': 'b', 'b': 'c'}),
        ({'a': 'b'}, {'a': None}, {}),
        ({'a': 'b', 'b': 'c'}, {'a': None}, {'b': 'c'}),
        ({'a': ['b']}, {'a': 'c'}, {'a': 'c'}),
        ({'a': 'c'}, {'a': ['b']}, {'a': ['b']}),
        ({'a': {'b': 'c'}}, {'a': {'b': 'd', 'c': None}}, {'a': {'b': 'd'}}),
        ({'a': [{'b': 'c'}]}, {'a': [1]}, {'a': [1]}),
        ({'e': None}, {'a': 1}, {'e': None, 'a': 1}),
        ({'a': 'foo'}, {'a': {'b': None}}, {'a': {}}),
        # Not as in the RFC: nothing is created only to delete something in it.
        ({}, {'a': {'bb': {'ccc': None}}}, {}),
    ],
)
def test_mappings_are_merged(target, merge, expected):
    before = copy.deepcopy(target)

    assert patches.merge(target, merge) == expected
    assert target == before


@hypothesis.settings(deadline=None)
@hypothesis.given(OBJECTS, MERGES)
def test_json_patch_does_what_the_merge_does(body, merge):
    operations = patches.Patch(merge).as_json_patch(body)

    assert dicts.is_same(api.apply_json_patch(body, operations), patches.merge(body, merge))
    assert patches.Patch(merge).as_json_patch(patches.merge(body, merge)) == []


@hypothesis.settings(deadline=None)
@hypothesis.given(OBJECTS, MERGES)
def test_mappings_are_merged_as_in_the_api(body, merge):
    theirs = api.merge(body, merge)

    assert dicts.is_same(without_empty(patches.merge(body, merge)), without_empty(theirs))


@hypothesis.settings(deadline=None)
@hypothesis.given(OBJECTS, OBJECTS)
def test_json_patch_makes_one_body_of_another(before, after):
    operations = patches.build_json_patch(before, after)

    assert dicts.is_same(api.apply_json_patch(before, operations), after)
    assert patches.build_json_patch(after, copy.deepcopy(after)) == []
