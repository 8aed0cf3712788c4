"""
Ownership: the fields of objects, and the differences of objects, by all kinds of lists and maps.
"""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._sandbox.apply import fieldsets, ownership, patches
from kopf._sandbox.meta import schemas

ITEM = {'type': 'object', 'properties': {'name': {'type': 'string'}, 'v': {'type': 'integer'}}}
RAW = {
    'type': 'object',
    'properties': {
        'n': {'type': 'integer'},
        'labels': {'type': 'object', 'additionalProperties': {'type': 'string'}},
        'atomic': {
            'type': 'object',
            'x-kubernetes-map-type': 'atomic',
            'additionalProperties': {'type': 'string'},
        },
        'items': {
            'type': 'array',
            'x-kubernetes-list-type': 'map',
            'x-kubernetes-list-map-keys': ['name'],
            'items': ITEM,
        },
        'set': {'type': 'array', 'x-kubernetes-list-type': 'set', 'items': {'type': 'string'}},
        'list': {'type': 'array', 'items': {'type': 'string'}},
        'free': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
        'nested': {
            'type': 'object',
            'properties': {'a': {'type': 'object', 'properties': {'b': {'type': 'string'}}}},
        },
        'embedded': {
            'type': 'object',
            'x-kubernetes-embedded-resource': True,
            'x-kubernetes-preserve-unknown-fields': True,
        },
    },
}
SCHEMA = schemas.compile_schema(
    {'type': 'object', 'properties': {'spec': RAW, 'metadata': {'type': 'object'}}}
)


@pytest.mark.parametrize(
    'spec, expected',
    [
        pytest.param({'n': 1}, {'f:n': {}}, id='scalar'),
        pytest.param({'n': None}, {'f:n': {}}, id='null'),
        pytest.param({'labels': {'a': '1'}}, {'f:labels': {'f:a': {}}}, id='map'),
        pytest.param({'labels': {}}, {'f:labels': {}}, id='empty-map'),
        pytest.param({'atomic': {'a': '1'}}, {'f:atomic': {}}, id='atomic-map'),
        pytest.param(
            {'items': [{'name': 'x', 'v': 1}]},
            {'f:items': {'k:{"name":"x"}': {'.': {}, 'f:name': {}, 'f:v': {}}}},
            id='list-map',
        ),
        pytest.param(
            {'items': [{'name': 'x', 'v': 1}, {'name': 'x'}]},
            {'f:items': {'k:{"name":"x"}': {}}},
            id='duplicates',
        ),
        pytest.param({'set': ['b', 'a']}, {'f:set': {'v:"a"': {}, 'v:"b"': {}}}, id='set'),
        pytest.param({'list': ['b', 'a']}, {'f:list': {}}, id='list'),
        pytest.param({'list': []}, {'f:list': {}}, id='empty-list'),
        pytest.param(
            {'free': {'x': {'y': [1]}}},
            {'f:free': {'f:x': {'.': {}, 'f:y': {}}}},
            id='unknown-fields',
        ),
        pytest.param(
            {'nested': {'a': {'b': 'c'}}}, {'f:nested': {'f:a': {'f:b': {}}}}, id='structures'
        ),
        pytest.param(
            {
                'embedded': {
                    'kind': 'X',
                    'metadata': {'labels': {'a': 'b'}, 'finalizers': ['f']},
                    'x': {'y': 1},
                }
            },
            {
                'f:embedded': {
                    'f:kind': {},
                    'f:metadata': {'f:finalizers': {'v:"f"': {}}, 'f:labels': {'f:a': {}}},
                    'f:x': {'.': {}, 'f:y': {}},
                }
            },
            id='embedded-object',
        ),
    ],
)
def test_applied_fields_are_extracted(spec, expected):
    fields = ownership.extract({'spec': spec}, ownership.as_object(SCHEMA))

    assert str(fields) == str({'f:spec': expected})


@pytest.mark.parametrize(
    'spec',
    [
        pytest.param({'items': []}, id='list-map'),
        pytest.param({'set': []}, id='set'),
        pytest.param({}, id='nothing'),
    ],
)
def test_empty_lists_of_owned_items_are_not_owned(spec):
    fields = ownership.extract({'spec': {'n': 1, **spec}}, ownership.as_object(SCHEMA))

    assert fields == {'f:spec': {'f:n': {}}}


def test_fields_of_nobody_are_stripped():
    obj = {
        'apiVersion': 'v1',
        'kind': 'X',
        'metadata': {
            'name': 'x',
            'namespace': 'y',
            'uid': 'z',
            'resourceVersion': '1',
            'creationTimestamp': None,
            'generation': 1,
            'generateName': 'x',
            'annotations': {'a': 'b'},
            'ownerReferences': [{'uid': 'u', 'name': 'n'}],
        },
    }

    fields = ownership.strip(ownership.extract(obj, ownership.as_object(None)))

    assert fields == {
        'f:metadata': {
            'f:annotations': {'f:a': {}},
            'f:generateName': {},
            'f:ownerReferences': {'k:{"uid":"u"}': {}},
        }
    }


@pytest.mark.parametrize(
    'old, new, changed, removed',
    [
        pytest.param({}, {}, {}, {}, id='empty'),
        pytest.param({'n': 1}, {'n': 2}, {'f:n': {}}, {}, id='modified'),
        pytest.param({}, {'n': 2}, {'f:n': {}}, {}, id='added'),
        pytest.param({'n': 1}, {}, {}, {'f:n': {}}, id='removed'),
        pytest.param(
            {},
            {'labels': {'b': '1', 'a': '2'}},
            {'f:labels': {'.': {}, 'f:a': {}, 'f:b': {}}},
            {},
            id='map-added',
        ),
        pytest.param(
            {'labels': {'a': '1'}},
            {'labels': {'b': '1'}},
            {'f:labels': {'f:b': {}}},
            {'f:labels': {'f:a': {}}},
            id='map-keys',
        ),
        pytest.param(
            {'labels': {'a': '1'}}, {'labels': {}}, {}, {'f:labels': {'f:a': {}}}, id='map-emptied'
        ),
        pytest.param(
            {'labels': None},
            {'labels': {'a': '1'}},
            {'f:labels': {'f:a': {}}},
            {},
            id='map-instead-of-null',
        ),
        pytest.param(
            {'labels': None}, {'labels': {}}, {'f:labels': {}}, {}, id='empty-map-instead-of-null'
        ),
        pytest.param(
            {'atomic': {'a': '1'}}, {'atomic': {'b': '1'}}, {'f:atomic': {}}, {}, id='atomic-map'
        ),
        pytest.param({'list': ['a']}, {'list': ['b']}, {'f:list': {}}, {}, id='list'),
        pytest.param(
            {'set': ['a', 'b']},
            {'set': ['c', 'b']},
            {'f:set': {'v:"c"': {}}},
            {'f:set': {'v:"a"': {}}},
            id='set',
        ),
        pytest.param({'set': ['a', 'b']}, {'set': ['b', 'a']}, {}, {}, id='set-reordered'),
        pytest.param(
            {'items': [{'name': 'x', 'v': 1}]},
            {'items': [{'name': 'y'}, {'name': 'x', 'v': 2}]},
            {'f:items': {'k:{"name":"x"}': {'f:v': {}}, 'k:{"name":"y"}': {'.': {}, 'f:name': {}}}},
            {},
            id='items',
        ),
        pytest.param(
            {'items': [{'name': 'x', 'v': 1}]},
            {'items': []},
            {},
            {'f:items': {'k:{"name":"x"}': {'.': {}, 'f:name': {}, 'f:v': {}}}},
            id='items-removed',
        ),
        pytest.param(
            {'set': ['a']},
            {'set': ['a', 'a']},
            {'f:set': {'v:"a"': {}}},
            {'f:set': {'v:"a"': {}}},
            id='duplicated',
        ),
        pytest.param(
            {'set': ['a', 'a']},
            {'set': ['a']},
            {'f:set': {'v:"a"': {}}},
            {'f:set': {'v:"a"': {}}},
            id='unduplicated',
        ),
        pytest.param(
            {'set': ['a', 'a']},
            {'set': ['a', 'a', 'a']},
            {'f:set': {'v:"a"': {}}},
            {},
            id='more-duplicates',
        ),
        pytest.param({'items': [5, {}]}, {'items': ['x']}, {}, {}, id='items-without-identity'),
        pytest.param(
            {'free': {'a': 1}},
            {'free': {'a': {'b': {'c': 1}}}},
            {'f:free': {'f:a': {'.': {}, 'f:b': {'.': {}, 'f:c': {}}}}},
            {},
            id='scalar-to-map',
        ),
        pytest.param(
            {'free': {'a': {'b': 1}}},
            {'free': {'a': 1}},
            {'f:free': {'f:a': {}}},
            {'f:free': {'f:a': {'f:b': {}}}},
            id='map-to-scalar',
        ),
    ],
)
def test_differences_are_found(old, new, changed, removed):
    comparison = ownership.compare({'spec': old}, {'spec': new}, SCHEMA)

    assert str(comparison.changed) == str({'f:spec': changed} if changed else {})
    assert comparison.removed == ({'f:spec': removed} if removed else {})


def test_metadata_are_compared_by_their_own_schema():
    old = {
        'metadata': {
            'resourceVersion': '1',
            'finalizers': ['a'],
            'ownerReferences': [{'uid': 'x', 'name': 'a'}],
        }
    }
    new = {
        'metadata': {
            'resourceVersion': '2',
            'finalizers': ['b', 'a'],
            'ownerReferences': [{'uid': 'x', 'name': 'b'}],
        }
    }

    comparison = ownership.compare(old, new, None)

    assert comparison.removed == {}
    assert comparison.changed == {
        'f:metadata': {'f:finalizers': {'v:"b"': {}}, 'f:ownerReferences': {'k:{"uid":"x"}': {}}}
    }


def test_built_in_objects_begin_with_structures():
    schema = schemas.compile_schema(
        {
            'type': 'object',
            'properties': {
                'metadata': {'type': 'object', 'properties': {'managedFields': {'type': 'array'}}},
                'spec': {
                    'type': 'object',
                    'default': {},
                    'required': ['containers', 'port', 'name'],
                    'properties': {
                        'containers': {'type': 'array'},
                        'port': {'type': 'integer'},
                        'name': {'type': 'string'},
                        'strategy': {
                            'type': 'object',
                            'default': {},
                            'properties': {'type': {'type': 'string'}},
                        },
                        'optional': {'type': 'object', 'properties': {'type': {'type': 'string'}}},
                    },
                },
            },
        }
    )
    obj = {
        'spec': {
            'containers': [1],
            'port': 5,
            'name': 'x',
            'strategy': {'type': 'x'},
            'optional': {},
            'unknown': {},
        }
    }

    assert ownership.build_baseline(obj, schema) == {
        'spec': {'containers': None, 'port': 0, 'name': '', 'strategy': {}}
    }


@pytest.mark.parametrize(
    'schema', [pytest.param(SCHEMA, id='schema'), pytest.param(None, id='no-schema')]
)
def test_custom_objects_begin_with_nothing(schema):
    assert ownership.build_baseline({'spec': {'nested': {}}}, schema) == {}


def test_structures_on_the_way_are_added():
    fields = {
        'f:spec': {
            'f:nested': {'f:a': {'f:b': {}}},
            'f:free': {'f:x': {'f:y': {}}},
            'f:items': {'k:{"name":"x"}': {'f:v': {}}},
        }
    }

    assert ownership.ensure_structures(fields, SCHEMA) == {
        'f:spec': {
            '.': {},
            'f:nested': {'.': {}, 'f:a': {'.': {}, 'f:b': {}}},
            'f:free': {'.': {}, 'f:x': {'f:y': {}}},
            'f:items': {'.': {}, 'k:{"name":"x"}': {'f:v': {}}},
        }
    }


SPECS = st.fixed_dictionaries(
    {},
    optional={
        'n': st.none() | st.integers(0, 1) | st.just('x'),
        'labels': st.none() | st.dictionaries(st.sampled_from('ab'), st.sampled_from('xy')),
        'items': st.lists(
            st.fixed_dictionaries(
                {'name': st.sampled_from('xyz')}, optional={'v': st.integers(0, 1)}
            )
        ),
        'set': st.lists(st.sampled_from('ab') | st.none()),
        'list': st.lists(st.sampled_from('ab')),
        'free': st.recursive(
            st.integers(2, 3),
            lambda inner: st.dictionaries(st.sampled_from('pq'), inner, max_size=2),
        ),
    },
)


@settings(deadline=None)
@given(SPECS, SPECS)
def test_comparison_is_symmetric_and_pure(one, two):
    before = copy.deepcopy((one, two))

    there = ownership.compare({'spec': one}, {'spec': two}, SCHEMA)
    back = ownership.compare({'spec': two}, {'spec': one}, SCHEMA)

    assert (one, two) == before
    assert ownership.compare({'spec': one}, {'spec': copy.deepcopy(one)}, SCHEMA) == ({}, {})
    # What is added in one direction is removed in the other one; the rest is modified in both.
    assert fieldsets.difference(there.changed, back.changed) == fieldsets.difference(
        back.removed, back.changed
    )


@settings(deadline=None)
@given(SPECS, SPECS)
def test_shared_parts_are_compared_as_the_others(one, two):
    merged = patches.merge(one, two)

    assert ownership.compare({'spec': one}, {'spec': merged}, SCHEMA) == (
        ownership.compare({'spec': one}, {'spec': copy.deepcopy(merged)}, SCHEMA)
    )
