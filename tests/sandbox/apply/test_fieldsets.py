"""
Field sets: their algebra, the order and the wording of their paths, the identities of items.
"""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._sandbox.apply import fieldsets
from kopf._sandbox.meta import schemas

STEPS = st.sampled_from(['f:a', 'f:b', 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:1', 'v:22'])
PATHS = st.lists(STEPS, min_size=1, max_size=3).map(tuple)


def build(paths):
    fields = {}
    for first, *rest in paths:
        node = {}
        for step in reversed(rest):
            node = {step: node}
        fields = fieldsets.union(fields, {first: node})
    return fields


def list_paths(fields):
    return set(fieldsets.iter_paths(fields))


SETS = st.lists(PATHS, max_size=6).map(build)


@settings(deadline=None)
@given(st.lists(PATHS, max_size=6))
def test_set_has_what_it_is_built_of(paths):
    fields = build(paths)

    assert list_paths(fields) == set(paths)
    assert all(fieldsets.has_path(fields, path) for path in paths)
    assert fieldsets.parse(fields) == fields


@settings(deadline=None)
@given(SETS, SETS)
def test_operations_are_those_of_sets_of_paths(one, two):
    before = copy.deepcopy((one, two))

    assert list_paths(fieldsets.union(one, two)) == list_paths(one) | list_paths(two)
    assert list_paths(fieldsets.difference(one, two)) == list_paths(one) - list_paths(two)
    assert list_paths(fieldsets.intersection(one, two)) == list_paths(one) & list_paths(two)
    assert (one, two) == before


@settings(deadline=None)
@given(SETS, SETS, SETS)
def test_laws_of_sets_hold(one, two, three):
    assert fieldsets.union(one, two) == fieldsets.union(two, one)
    assert fieldsets.union(fieldsets.union(one, two), three) == fieldsets.union(
        one, fieldsets.union(two, three)
    )
    assert fieldsets.union(fieldsets.difference(one, two), fieldsets.intersection(one, two)) == one
    assert fieldsets.difference(one, one) == {}
    assert fieldsets.union(one, one) == one


@settings(deadline=None)
@given(SETS, SETS)
def test_steps_are_always_ordered(one, two):
    union = fieldsets.union(one, two)

    assert str(union) == str(fieldsets.parse(union))


@pytest.mark.parametrize(
    'one, two, expected',
    [
        pytest.param(
            {'f:a': {}}, {'f:a': {'f:b': {}}}, {'f:a': {'.': {}, 'f:b': {}}}, id='parent-and-child'
        ),
        pytest.param({'f:b': {}}, {'f:a': {}}, {'f:a': {}, 'f:b': {}}, id='siblings'),
        pytest.param(
            {'f:a': {'.': {}, 'f:b': {}}}, {'f:a': {}}, {'f:a': {'.': {}, 'f:b': {}}}, id='included'
        ),
    ],
)
def test_union_is_in_the_shape_of_the_api(one, two, expected):
    assert str(fieldsets.union(one, two)) == str(expected)


@pytest.mark.parametrize(
    'one, two, expected',
    [
        pytest.param({'f:a': {'.': {}, 'f:b': {}}}, {'f:a': {}}, {'f:a': {'f:b': {}}}, id='parent'),
        pytest.param({'f:a': {'.': {}, 'f:b': {}}}, {'f:a': {'f:b': {}}}, {'f:a': {}}, id='child'),
        pytest.param({'f:a': {'f:b': {}}}, {'f:a': {'f:b': {}}}, {}, id='all'),
    ],
)
def test_difference_is_in_the_shape_of_the_api(one, two, expected):
    assert fieldsets.difference(one, two) == expected


@pytest.mark.parametrize(
    'path, expected',
    [
        pytest.param(('f:x',), {'f:a': {'.': {}, 'f:b': {}}, 'f:c': {}}, id='absent'),
        pytest.param(('f:a',), {'f:c': {}}, id='with-children'),
        pytest.param(('f:a', 'f:b'), {'f:a': {}, 'f:c': {}}, id='child'),
        pytest.param(('f:c', 'f:d'), {'f:a': {'.': {}, 'f:b': {}}, 'f:c': {}}, id='inside-of-leaf'),
    ],
)
def test_field_is_excluded_with_all_inside(path, expected):
    assert fieldsets.exclude({'f:a': {'.': {}, 'f:b': {}}, 'f:c': {}}, path) == expected


def test_exclusion_of_the_only_child_excludes_the_way_to_it():
    assert fieldsets.exclude({'f:a': {'f:b': {}}}, ('f:a', 'f:b')) == {}


def test_paths_go_level_by_level():
    fields = {'f:a': {'f:x': {}}, 'f:b': {'.': {}, 'f:y': {}}, 'f:c': {}}

    paths = [fieldsets.render_path(path) for path in fieldsets.iter_paths(fields)]

    assert paths == ['.b', '.c', '.a.x', '.b.y']


@pytest.mark.parametrize(
    'path, expected',
    [
        pytest.param(('f:spec', 'f:replicas'), '.spec.replicas', id='fields'),
        pytest.param(('f:c', 'k:{"name":"app"}', 'f:image'), '.c[name="app"].image', id='key'),
        pytest.param(('k:{"protocol":"TCP","port":80}',), '[port=80,protocol="TCP"]', id='keys'),
        pytest.param(('f:finalizers', 'v:"a/b"'), '.finalizers[="a/b"]', id='value'),
        pytest.param(('f:x', 'v:true', 'i:5'), '.x[=true][5]', id='index'),
    ],
)
def test_paths_are_worded_as_in_messages(path, expected):
    assert fieldsets.render_path(path) == expected


LIST_MAP = schemas.compile_schema(
    {
        'type': 'array',
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['port', 'protocol'],
        'items': {
            'type': 'object',
            'properties': {
                'port': {'type': 'integer'},
                'protocol': {'type': 'string', 'default': 'TCP'},
            },
        },
    }
)
LIST_KEYED = schemas.compile_schema(
    {
        'type': 'array',
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['name'],
        'items': {'type': 'object'},
    }
)
LIST_SET = schemas.compile_schema({'type': 'array', 'x-kubernetes-list-type': 'set'})


@pytest.mark.parametrize(
    'schema, item, expected',
    [
        pytest.param(
            LIST_MAP,
            {'protocol': 'UDP', 'port': 80, 'x': 1},
            'k:{"port":80,"protocol":"UDP"}',
            id='keys',
        ),
        pytest.param(LIST_MAP, {'port': 80}, 'k:{"port":80,"protocol":"TCP"}', id='default-key'),
        pytest.param(
            LIST_KEYED,
            {'name': 'a<b>&é"'},
            'k:{"name":"a\\u003cb\\u003e\\u0026é\\""}',
            id='escaped',
        ),
        pytest.param(LIST_KEYED, {'name': [1.5, None]}, 'k:{"name":[1.5,null]}', id='strange-key'),
        pytest.param(LIST_SET, 'a', 'v:"a"', id='string'),
        pytest.param(LIST_SET, True, 'v:true', id='boolean'),
        pytest.param(LIST_SET, 5, 'v:5', id='number'),
    ],
)
def test_items_are_identified(schema, item, expected):
    assert fieldsets.build_item_step(item, schema) == expected


@pytest.mark.parametrize(
    'schema, item, complaint',
    [
        pytest.param(
            LIST_KEYED,
            None,
            'associative list with keys may not have a null element',
            id='null-in-map',
        ),
        pytest.param(
            LIST_KEYED,
            'x',
            'associative list with keys may not have non-map elements',
            id='scalar-in-map',
        ),
        pytest.param(
            LIST_KEYED,
            {},
            'associative list with keys has an element that omits all key fields ["name"] '
            "(and doesn't have default values for any key fields)",
            id='no-keys',
        ),
        pytest.param(
            LIST_SET,
            {},
            "associative list without keys has an element that's a map type",
            id='map-in-set',
        ),
        pytest.param(
            LIST_SET, [], 'not supported: associative list with lists as elements', id='list-in-set'
        ),
        pytest.param(
            LIST_SET,
            None,
            "associative list without keys has an element that's an explicit null",
            id='null-in-set',
        ),
    ],
)
def test_items_without_identity_are_complained_about(schema, item, complaint):
    with pytest.raises(ValueError) as caught:
        fieldsets.build_item_step(item, schema)

    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    'raw, expected',
    [
        pytest.param(
            {'f:b': {}, 'f:a': {'f:x': {}, '.': {}}},
            {'f:a': {'.': {}, 'f:x': {}}, 'f:b': {}},
            id='unordered',
        ),
        pytest.param(
            {'v:22': {}, 'v:3': {}, 'v:"a"': {}, 'v:true': {}},
            {'v:3': {}, 'v:22': {}, 'v:"a"': {}, 'v:true': {}},
            id='values',
        ),
        pytest.param(
            {'k:{"p":443}': {}, 'k:{"p":80}': {}}, {'k:{"p":80}': {}, 'k:{"p":443}': {}}, id='keys'
        ),
        pytest.param({'i:10': {}, 'i:9': {}}, {'i:9': {}, 'i:10': {}}, id='indices'),
        pytest.param({'f:a': {'.': {}}}, {'f:a': {}}, id='explicit-leaf'),
        pytest.param({'f:a': {'z:unknown': {}}}, {'f:a': {}}, id='unknown-steps'),
    ],
)
def test_sets_of_users_are_put_in_order(raw, expected):
    assert str(fieldsets.parse(raw)) == str(expected)


@pytest.mark.parametrize(
    'raw',
    [
        pytest.param([], id='list'),
        pytest.param({'f:a': 1}, id='scalar-node'),
        pytest.param({'f': {}}, id='short-step'),
        pytest.param({'fff:x': {}}, id='long-kind'),
        pytest.param({'v:{': {}}, id='bad-value'),
        pytest.param({'k:5': {}}, id='bad-key'),
        pytest.param({'i:x': {}}, id='bad-index'),
    ],
)
def test_what_is_not_a_set_is_refused(raw):
    with pytest.raises(ValueError):
        fieldsets.parse(raw)
