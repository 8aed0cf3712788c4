import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._sandbox.schema import jsonpaths

OBJ = {
    'metadata': {'annotations': {'a.b/c': 'ann'}},
    'spec': {
        's': 'text',
        'i': 5,
        'nul': None,
        'l': ['p', 'q', 3],
        'one': {'k': 'v'},
        'deep': {'zzz': 'deepval'},
        'objs': [{'x': 1, 'y': 'one'}, {'x': 2, 'y': 'two'}, {'y': 'none'}],
    },
    'status': {
        'conditions': [
            {'type': 'Other', 'status': 'x'},
            {'type': 'Ready', 'status': 'True', 'ok': True},
        ]
    },
}


@pytest.mark.parametrize(
    'path, expected',
    [
        pytest.param('.spec.s', ['text'], id='field'),
        pytest.param('$.spec.s', ['text'], id='field-of-root'),
        pytest.param('.spec.nul', [None], id='null'),
        pytest.param('.spec.nul.x', [], id='below-null'),
        pytest.param('.spec.s.x', [], id='below-string'),
        pytest.param('.spec.nope.x', [], id='missing'),
        pytest.param('.', [], id='dot-alone'),
        pytest.param(r'.metadata.annotations.a\.b/c', ['ann'], id='escaped-dot'),
        pytest.param(r".metadata.annotations['a\.b/c']", ['ann'], id='escaped-dot-in-brackets'),
        pytest.param(".metadata.annotations['a.b/c']", [], id='unescaped-dot-in-brackets'),
        pytest.param(".spec['one'].k", ['v'], id='key-in-brackets'),
        pytest.param('.spec.l[0]', ['p'], id='item'),
        pytest.param('.spec.l[-1]', [3], id='last-item'),
        pytest.param('.spec.l[-2]', ['q'], id='item-from-the-end'),
        pytest.param('.spec.l[9]', [], id='item-out-of-bounds'),
        pytest.param('.spec.l[1:]', ['q', 3], id='tail'),
        pytest.param('.spec.l[:2]', ['p', 'q'], id='head'),
        pytest.param('.spec.l[0:3:2]', ['p', 3], id='every-second'),
        pytest.param('.spec.l[2:1]', [], id='backwards'),
        pytest.param('.spec.l[1:1]', [], id='nothing'),
        pytest.param('.spec.l[::0]', [], id='step-of-zero'),
        pytest.param('.spec.l[*]', ['p', 'q', 3], id='all-items'),
        pytest.param('.spec.l[0,2]', ['p', 3], id='union'),
        pytest.param('.spec.one[0]', [], id='item-of-object'),
        pytest.param('.spec.one.*', ['v'], id='all-fields'),
        pytest.param('..zzz', ['deepval'], id='anywhere'),
        pytest.param('.spec.objs[*].y', ['one', 'two', 'none'], id='fields-of-items'),
        pytest.param('.status.conditions[?(@.type=="Ready")].status', ['True'], id='filter'),
        pytest.param(
            ".status.conditions[?(@.type=='Ready')].status", ['True'], id='filter-single-quoted'
        ),
        pytest.param(
            '.status.conditions[?(@.type == "Ready")].status', ['True'], id='filter-spaced'
        ),
        pytest.param(
            '.status.conditions[?(@.type="Ready")].status', [], id='filter-with-wrong-operator'
        ),
        pytest.param('.status.conditions[?(@.ok==true)].status', ['True'], id='filter-by-flag'),
        pytest.param('.spec.objs[?(@.x)].y', ['one', 'two'], id='filter-by-existence'),
        pytest.param('.spec.objs[?(@.x>1)].y', ['two'], id='filter-greater'),
        pytest.param('.spec.objs[?(@.x<=1)].y', ['one'], id='filter-less-or-equal'),
        pytest.param('.spec.objs[?(@.x!=1)].y', ['two'], id='filter-unequal'),
        pytest.param('.spec.objs[?(@.x=="1")].y', [], id='filter-by-another-type'),
        pytest.param('.spec.objs[?(@.x==1.0)].y', [], id='filter-by-another-type-of-number'),
        pytest.param('.spec.one[?(@.k=="v")]', [], id='filter-of-object'),
        pytest.param('.spec.s "lit"', ['lit'], id='literal'),
    ],
)
def test_values_are_found_as_the_api_finds_them(path, expected):
    assert jsonpaths.compile_path(path).find(OBJ) == expected


@pytest.mark.parametrize(
    'path, problem',
    [
        pytest.param('.spec.l[x]', 'invalid array index x', id='index'),
        pytest.param('.spec.l[0', 'the bracket is not closed', id='bracket'),
        pytest.param('.spec.l[?(@.x', 'the filter is not closed', id='filter'),
        pytest.param('.spec "x', 'the string is not closed', id='string'),
        pytest.param('spec.x', "unrecognized character 's'", id='no-leading-dot'),
        pytest.param('{.spec}', "unrecognized character '{'", id='braces'),
        pytest.param('.spec 1.2.3', 'cannot parse the number 1.2.3', id='number'),
        pytest.param('....x', 'multiple recursive descent', id='descent'),
    ],
)
def test_malformed_paths_are_refused_with_explanations(path, problem):
    with pytest.raises(ValueError) as err:
        jsonpaths.compile_path(path)

    assert str(err.value) == f'Invalid path {path!r}: {problem}.'


def test_first_of_the_values_is_got():
    assert jsonpaths.compile_path('.spec.l[*]').get(OBJ) == 'p'


def test_default_is_got_when_there_is_nothing():
    assert jsonpaths.compile_path('.spec.nope').get(OBJ, 42) == 42


def test_null_is_got_rather_than_the_default():
    assert jsonpaths.compile_path('.spec.nul').get(OBJ, 42) is None


@pytest.mark.parametrize(
    'obj',
    [
        pytest.param({}, id='missing-parent'),
        pytest.param({'spec': {'replicas': 3}}, id='present'),
    ],
)
def test_values_are_set_with_their_parents(obj):
    jsonpaths.compile_path('.spec.replicas').set(obj, 5)

    assert obj == {'spec': {'replicas': 5}}


@pytest.mark.parametrize(
    'path, obj, problem',
    [
        pytest.param('.spec.l[0]', {}, 'only simple dotted paths can be set', id='item'),
        pytest.param('', {}, 'only simple dotted paths can be set', id='empty'),
        pytest.param(
            '.spec.replicas', {'spec': 'text'}, "'spec' is not an object", id='parent-of-wrong-type'
        ),
    ],
)
def test_values_are_not_set_where_they_cannot_be(path, obj, problem):
    before = copy.deepcopy(obj)

    with pytest.raises(ValueError) as err:
        jsonpaths.compile_path(path).set(obj, 5)

    assert str(err.value) == f'Cannot set {path!r}: {problem}.'
    assert obj == before


def test_paths_are_compiled_once():
    assert jsonpaths.compile_path('.spec.x') is jsonpaths.compile_path('.spec.x')


@given(st.text(alphabet='.[]*?()@$"\'\\=<>!:-0123abc ,{}', max_size=20))
def test_any_text_is_either_evaluated_or_refused(text):
    try:
        path = jsonpaths.compile_path(text)
    except ValueError:
        return

    assert isinstance(path.find(OBJ), list)
