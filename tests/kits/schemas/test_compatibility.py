"""
Which changes of definitions break existing objects and clients.
"""

import copy

import pytest

from kopf._kits.schemas import compatibility

INT, STR = {'type': 'integer'}, {'type': 'string'}
OPEN = {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True}
FIELDS = {'type': 'object', 'properties': {'a': INT, 'b': STR}}
ANY = {'x-kubernetes-preserve-unknown-fields': True}
INT_OR_STRING = {'x-kubernetes-int-or-string': True}


def wrap(schema):
    return {'type': 'object', 'properties': {'spec': schema}}


@pytest.mark.guarantee('TYP-013')
@pytest.mark.parametrize(
    'old, new, path, problem',
    [
        pytest.param(INT, STR, '.spec', 'the type integer is now string', id='type'),
        pytest.param(ANY, STR, '.spec', 'the type any is now string', id='typed'),
        pytest.param(INT_OR_STRING, INT, '.spec', 'the type int is now integer', id='no-strings'),
        pytest.param(
            FIELDS, {**FIELDS, 'properties': {'a': INT}}, '.spec.b', 'is removed', id='field'
        ),
        pytest.param(FIELDS, {**FIELDS, 'required': ['a']}, '.spec.a', 'no default', id='required'),
        pytest.param(
            {**STR, 'enum': ['a', 'b']}, {**STR, 'enum': ['a']}, '.spec', "'b' are not", id='enum'
        ),
        pytest.param(STR, {**STR, 'enum': ['a']}, '.spec', "only 'a'", id='new-enum'),
        pytest.param(INT, {**INT, 'minimum': 1}, '.spec', 'minimum is 1', id='minimum'),
        pytest.param(
            {**INT, 'maximum': 9}, {**INT, 'maximum': 5}, '.spec', '9 is now 5', id='maximum'
        ),
        pytest.param(
            {**INT, 'minimum': 1},
            {**INT, 'minimum': 1, 'exclusiveMinimum': True},
            '.spec',
            'minimum 1 is now exclusive',
            id='exclusive',
        ),
        pytest.param(STR, {**STR, 'maxLength': 5}, '.spec', 'maxLength is 5', id='length'),
        pytest.param(STR, {**STR, 'pattern': 'a'}, '.spec', 'pattern is added', id='pattern'),
        pytest.param(
            {**STR, 'pattern': 'a'}, {**STR, 'pattern': 'b'}, '.spec', 'is changed', id='another'
        ),
        pytest.param(STR, {**STR, 'format': 'date'}, '.spec', 'format is added', id='format'),
        pytest.param({**INT, 'nullable': True}, INT, '.spec', 'null is not', id='nullable'),
        pytest.param(OPEN, FIELDS, '.spec', 'unknown fields are removed', id='unknown'),
        pytest.param(
            {'type': 'array', 'items': INT},
            {'type': 'array', 'items': STR},
            '.spec[]',
            'the type',
            id='items',
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': INT},
            {'type': 'object', 'additionalProperties': STR},
            '.spec{}',
            'the type',
            id='values',
        ),
        pytest.param(
            {'type': 'array', 'items': STR},
            {'type': 'array', 'items': STR, 'x-kubernetes-list-type': 'set'},
            '.spec',
            'the list is a set',
            id='list-type',
        ),
        pytest.param(
            INT,
            {**INT, 'x-kubernetes-validations': [{'rule': 'self > 1'}]},
            '.spec',
            'the rule is added: self > 1',
            id='rule',
        ),
    ],
)
def test_narrowing_is_incompatible_and_widening_is_not(old, new, path, problem):
    found = list(compatibility.compare_schemas(wrap(old), wrap(new)))
    reversed_ = list(compatibility.compare_schemas(wrap(new), wrap(old)))

    assert [item[0] for item in found] == [path]
    assert problem in found[0][1]
    is_symmetric = 'type integer' in found[0][1] or problem in ('the type', 'is changed')
    assert is_symmetric or reversed_ == []


@pytest.mark.guarantee('TYP-013')
@pytest.mark.parametrize(
    'old, new',
    [
        pytest.param(FIELDS, {**FIELDS, 'properties': {**FIELDS['properties'], 'c': INT}}, id='add'),
        pytest.param(INT, {'type': 'number'}, id='number'),
        pytest.param(INT, INT_OR_STRING, id='int-or-string'),
        pytest.param(INT, {**INT, 'default': 1, 'description': 'x'}, id='default'),
        pytest.param(
            FIELDS,
            {'type': 'object', 'properties': {'a': {**INT, 'default': 1}, 'b': STR}, 'required': ['a']},
            id='required-with-default',
        ),
        pytest.param(FIELDS, {**OPEN, 'properties': {'a': INT}}, id='removed-but-kept'),
    ],
)  # fmt: skip
def test_other_changes_are_compatible(old, new):
    assert list(compatibility.compare_schemas(wrap(old), wrap(new))) == []


CRD = {
    'metadata': {'name': 'things.kopf.dev'},
    'spec': {
        'group': 'kopf.dev',
        'scope': 'Namespaced',
        'names': {'kind': 'Thing', 'plural': 'things'},
        'versions': [
            {
                'name': 'v1',
                'served': True,
                'storage': True,
                'subresources': {'status': {}},
                'selectableFields': [{'jsonPath': '.spec.a'}],
                'schema': {'openAPIV3Schema': wrap(FIELDS)},
            }
        ],
    },
}


def change(path, value):
    crd = copy.deepcopy(CRD)
    target = crd['spec'] if path[0] in crd['spec'] else crd['spec']['versions'][0]
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return crd


@pytest.mark.guarantee('TYP-013')
@pytest.mark.parametrize(
    'path, value, version, problem',
    [
        pytest.param(['scope'], 'Cluster', '', 'Namespaced is now Cluster', id='scope'),
        pytest.param(['names', 'kind'], 'Other', '', 'Thing is now Other', id='kind'),
        pytest.param(['versions'], [], 'v1', 'the version is removed', id='version'),
        pytest.param(['served'], False, 'v1', 'the version is not served', id='served'),
        pytest.param(['subresources'], {}, 'v1', "'status' is removed", id='status'),
        pytest.param(['selectableFields'], [], 'v1', 'not selectable', id='selectable'),
        pytest.param(
            ['schema', 'openAPIV3Schema'], wrap(INT), 'v1', 'the type object', id='schema'
        ),
    ],
)
def test_incompatible_changes_of_definitions_are_found(path, value, version, problem):
    found = compatibility.compare_crds(CRD, change(path, value))

    assert [item.version for item in found] == [version]
    assert problem in found[0].problem
    assert compatibility.compare_crds(CRD, CRD) == []
