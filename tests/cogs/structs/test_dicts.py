"""
Nested mappings: their paths, and the views of them.
"""

import copy
import pickle
from collections.abc import Mapping, MutableMapping

import pytest

from kopf._cogs.structs import dicts


@pytest.mark.parametrize(
    'spec, path',
    [
        pytest.param(None, (), id='none'),
        pytest.param('', (), id='empty'),
        pytest.param('spec', ('spec',), id='one-key'),
        pytest.param('spec.a.b', ('spec', 'a', 'b'), id='dotted'),
        pytest.param(('spec', 'a.b'), ('spec', 'a.b'), id='tuple'),
        pytest.param(['spec', 'a.b'], ('spec', 'a.b'), id='list'),
    ],
)
def test_fields_have_several_notations(spec, path):
    assert dicts.parse_field(spec) == path


@pytest.mark.parametrize('spec', [123, {'spec': 'x'}, ('spec', 1), object()])
def test_other_notations_are_refused(spec):
    with pytest.raises(ValueError, match='A field is a dotted string'):
        dicts.parse_field(spec)


@pytest.mark.parametrize(
    'd, path, expected',
    [
        pytest.param({'a': {'b': 1}}, ('a', 'b'), 1, id='present'),
        pytest.param({'a': {'b': 0}}, ('a', 'b'), 0, id='falsy'),
        pytest.param({'a': {'b': 1}}, (), {'a': {'b': 1}}, id='everything'),
        pytest.param({'a': {}}, ('a', 'b'), 'default', id='absent'),
        pytest.param({}, ('a', 'b'), 'default', id='absent-parent'),
        pytest.param({'a': {'b': None}}, ('a', 'b'), 'default', id='none'),
        pytest.param({'a': None}, ('a', 'b'), 'default', id='none-parent'),
        pytest.param({'a': 'text'}, ('a', 'b'), 'default', id='text-parent'),
        pytest.param({'a': [1]}, ('a', '0'), 'default', id='list-parent'),
        pytest.param(None, ('a',), 'default', id='nothing'),
        pytest.param(None, (), 'default', id='nothing-at-all'),
    ],
)
def test_values_are_found_by_their_paths(d, path, expected):
    assert dicts.resolve(d, path, 'default') == expected
    assert dicts.has(d, path) is (expected != 'default')


@pytest.mark.parametrize(
    'd, path, expected',
    [
        pytest.param({}, ('a', 'b'), {'a': {'b': 1}}, id='new'),
        pytest.param({'a': {'c': 2}}, ('a', 'b'), {'a': {'c': 2, 'b': 1}}, id='beside'),
        pytest.param({'a': None}, ('a', 'b'), {'a': {'b': 1}}, id='none-parent'),
        pytest.param({'a': 'text'}, ('a', 'b'), {'a': {'b': 1}}, id='text-parent'),
        pytest.param({'a': {'b': {'c': 2}}}, ('a', 'b'), {'a': {'b': 1}}, id='replaced'),
        pytest.param(
            {'a': dicts.MappingView({'c': 2})},
            ('a', 'b'),
            {'a': {'c': 2, 'b': 1}},
            id='read-only-parent',
        ),
    ],
)
def test_values_are_put_with_their_parents(d, path, expected):
    dicts.ensure(d, path, 1)

    assert d == expected


REMOVALS = pytest.mark.parametrize(
    'd, path, expected',
    [
        pytest.param({'a': {'b': 1, 'c': 2}}, ('a', 'b'), {'a': {'c': 2}}, id='present'),
        pytest.param({'a': {'b': {'c': 1}}}, ('a', 'b', 'c'), {}, id='with-parents'),
        pytest.param({'a': {'b': {'c': 1}}, 'x': 1}, ('a', 'b'), {'x': 1}, id='with-children'),
        pytest.param({'a': {'b': None}}, ('a', 'b'), {}, id='none'),
        pytest.param({'a': {'c': 1}}, ('a', 'b'), {'a': {'c': 1}}, id='absent'),
        pytest.param({'a': 'text'}, ('a', 'b'), {'a': 'text'}, id='text-parent'),
        pytest.param({}, ('a', 'b'), {}, id='absent-parent'),
        pytest.param({'a': 1}, (), {'a': 1}, id='no-path'),
    ],
)


@REMOVALS
def test_values_are_removed_with_emptied_parents(d, path, expected):
    dicts.remove(d, path)

    assert d == expected


@REMOVALS
def test_values_are_cut_with_no_changes_in_place(d, path, expected):
    before = copy.deepcopy(d)

    assert dicts.cut(d, path) == expected
    assert d == before


def test_parents_that_were_empty_before_are_cut_but_not_removed():
    d = {'a': {'b': {}}, 'x': {}}

    dicts.remove(d, ('a', 'b', 'c'))

    assert d == {'a': {'b': {}}, 'x': {}}
    assert dicts.cut(d, ('a', 'b', 'c')) == {'x': {}}


def test_cuts_share_what_is_not_on_the_way():
    d = {'a': {'b': 1, 'c': {}}, 'x': {}}

    assert dicts.cut(d, ('a', 'b'))['a']['c'] is d['a']['c']
    assert dicts.cut(d, ('a', 'b'))['x'] is d['x']
    assert dicts.cut(d, ('a', 'z')) is d


def test_plain_copies_share_nothing():
    original = {
        'view': dicts.MappingView({'a': [1]}),
        'tuple': ({'b': 2},),
        'list': [[]],
        'text': 'x',
    }

    copied = dicts.plain(original)

    assert copied == {'view': {'a': [1]}, 'tuple': [{'b': 2}], 'list': [[]], 'text': 'x'}
    assert type(copied['view']) is dict
    copied['list'][0].append(1)
    copied['tuple'][0]['b'] = 3
    assert original['list'] == [[]]
    assert original['tuple'] == ({'b': 2},)


@pytest.mark.parametrize(
    'a, b, expected',
    [
        pytest.param({'a': [1, {'b': 2}]}, {'a': [1, {'b': 2}]}, True, id='equal'),
        pytest.param({'a': 1, 'b': 2}, {'b': 2, 'a': 1}, True, id='reordered'),
        pytest.param((1, 2), [1, 2], True, id='tuple-is-list'),
        pytest.param(1, 1.0, True, id='numbers'),
        pytest.param(dicts.MappingView({'a': 1}), {'a': 1}, True, id='view-is-dict'),
        pytest.param(1, True, False, id='true-is-not-1'),
        pytest.param({'a': [0]}, {'a': [False]}, False, id='false-is-not-0'),
        pytest.param({'a': None}, {}, False, id='none-is-not-absence'),
        pytest.param([1], [1, 2], False, id='longer'),
        pytest.param({}, [], False, id='other-type'),
        pytest.param('1', 1, False, id='text-is-not-number'),
    ],
)
def test_sameness_is_of_json(a, b, expected):
    assert dicts.is_same(a, b) is expected
    assert dicts.is_same(b, a) is expected


def test_views_are_live():
    origin = {}
    view = dicts.MappingView(origin, ('a', 'b'))
    assert (dict(view), len(view), list(view), 'x' in view) == ({}, 0, [], False)

    origin['a'] = {'b': {'x': 1}}

    assert (dict(view), len(view), list(view), 'x' in view, view['x']) == (
        {'x': 1},
        1,
        ['x'],
        True,
        1,
    )


@pytest.mark.parametrize('origin', [{}, {'a': None}, {'a': 'text'}, {'a': []}])
def test_views_of_no_mapping_are_empty(origin):
    view = dicts.MappingView(origin, ('a',))

    assert view == {}
    assert view.get('x', 'default') == 'default'
    with pytest.raises(KeyError):
        view['x']


def test_views_are_read_only_mappings():
    view = dicts.MappingView({'x': 1})

    assert isinstance(view, Mapping)
    assert not isinstance(view, MutableMapping)
    with pytest.raises(TypeError):
        view['x'] = 2
    with pytest.raises(TypeError):
        del view['x']


def test_views_do_not_copy():
    origin = {'a': {'b': {'x': []}}}
    view = dicts.MappingView(dicts.MappingView(origin, ('a',)), ('b',))

    assert view['x'] is origin['a']['b']['x']


def test_views_are_compared_and_shown_as_dicts():
    view = dicts.MappingView({'a': {'x': 1}}, ('a',))

    assert view == {'x': 1}
    assert view == dicts.MappingView({'x': 1})
    assert view != {'x': 2}
    assert repr(view) == "{'x': 1}"


def test_copies_of_views_are_dicts():
    origin = {'a': {'x': [1]}}
    view = dicts.MappingView(origin, ('a',))

    shallow, deep = copy.copy(view), copy.deepcopy(view)

    assert (type(shallow), type(deep)) == (dict, dict)
    assert shallow['x'] is origin['a']['x']
    deep['x'].append(2)
    assert origin == {'a': {'x': [1]}}


def test_views_are_picklable():
    view = dicts.MappingView({'a': {'x': [1]}}, ('a',))

    assert pickle.loads(pickle.dumps(view)) == {'x': [1]}
