"""
Merge patches and JSON patches: the results, and the errors as the API words them.
"""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._sandbox.apply import patches
from kopf._sandbox.meta import errors

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.text('ab', max_size=2)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text('abc', min_size=1, max_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text('abc', min_size=1, max_size=1), VALUES, max_size=3)
PATCHES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=2),
    lambda inner: st.dictionaries(st.text('abc', min_size=1, max_size=1), inner, max_size=3),
    max_leaves=8,
).map(lambda patch: {'a': patch})
REJECTED = 'the server rejected our request due to an error in our request'


@pytest.mark.parametrize(
    'target, patch, expected',
    [
        pytest.param({'a': 1}, {}, {'a': 1}, id='empty-patch'),
        pytest.param({'a': 1}, {'a': 2, 'b': 3}, {'a': 2, 'b': 3}, id='set-scalars'),
        pytest.param({'a': 1, 'b': 2}, {'a': None}, {'b': 2}, id='null-removes'),
        pytest.param({}, {'a': None}, {}, id='null-of-absent'),
        pytest.param(
            {'a': {'b': 1, 'c': 2}},
            {'a': {'b': None, 'd': 3}},
            {'a': {'c': 2, 'd': 3}},
            id='nested',
        ),
        pytest.param({'a': [1, 2]}, {'a': [3]}, {'a': [3]}, id='lists-are-replaced'),
        pytest.param({'a': 1}, {'a': {'b': 2, 'c': None}}, {'a': {'b': 2}}, id='scalar-to-object'),
        pytest.param({'a': {'b': 1}}, {'a': 2}, {'a': 2}, id='object-to-scalar'),
        pytest.param(
            {},
            {'a': [{'b': None, 'c': 1}, None]},
            {'a': [{'c': 1}, None]},
            id='nulls-in-new-lists-are-pruned',
        ),
        pytest.param(
            {'a': {}},
            {'a': [{'b': None}]},
            {'a': [{'b': None}]},
            id='nulls-in-lists-over-objects-are-not',
        ),
    ],
)
def test_merge_patch_is_merged(target, patch, expected):
    before = copy.deepcopy((target, patch))

    result = patches.merge(target, patch)

    assert result == expected
    assert (target, patch) == before


def test_merge_patch_shares_untouched_parts():
    target = {'spec': {'a': 1}, 'status': {'b': 2}}

    result = patches.merge(target, {'status': {'b': 3}})

    assert result['spec'] is target['spec']
    assert target['status'] == {'b': 2}


@pytest.mark.parametrize(
    'patch, message',
    [
        pytest.param(None, 'Invalid JSON Patch', id='null'),
        pytest.param(
            [],
            'error decoding patch: json: cannot unmarshal array '
            'into Go value of type map[string]interface {}',
            id='list',
        ),
        pytest.param(
            'x',
            'error decoding patch: json: cannot unmarshal string '
            'into Go value of type map[string]interface {}',
            id='string',
        ),
    ],
)
def test_merge_patch_must_be_an_object(patch, message):
    with pytest.raises(errors.ApiError) as caught:
        patches.merge({}, patch)

    assert (caught.value.code, caught.value.reason, caught.value.message) == (
        400,
        'BadRequest',
        message,
    )


def diff(old, new):
    """Compute the merge patch from one object to another; these have no nulls inside."""
    changes = {key: None for key in old if key not in new}
    for key, value in new.items():
        both = isinstance(old.get(key), dict) and isinstance(value, dict)
        if key not in old or old[key] != value or type(old[key]) is not type(value):
            changes[key] = diff(old[key], value) if both else value
    return changes


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return (
        [without_nulls(item) for item in value if item is not None]
        if isinstance(value, list)
        else value
    )


@settings(deadline=None)
@given(OBJECTS.map(without_nulls), OBJECTS.map(without_nulls))
def test_merge_patch_of_a_diff_restores_the_other_object(old, new):
    assert patches.merge(old, diff(old, new)) == new


@settings(deadline=None)
@given(OBJECTS, PATCHES)
def test_merge_patch_is_idempotent_and_pure(target, patch):
    before = copy.deepcopy((target, patch))

    once = patches.merge(target, patch)

    assert patches.merge(once, patch) == once
    assert (target, patch) == before


DOCUMENT = {'a': {'b': [1, 2, 3], 'c~/': 4}, 'd': None}


@pytest.mark.parametrize(
    'operation, expected',
    [
        pytest.param({'op': 'add', 'path': '/e', 'value': 5}, {**DOCUMENT, 'e': 5}, id='add'),
        pytest.param({'op': 'add', 'path': '/e'}, {**DOCUMENT, 'e': None}, id='add-nothing'),
        pytest.param(
            {'op': 'add', 'path': '/a/b/0', 'value': 0},
            {'a': {'b': [0, 1, 2, 3], 'c~/': 4}, 'd': None},
            id='insert-first',
        ),
        pytest.param(
            {'op': 'add', 'path': '/a/b/3', 'value': 4},
            {'a': {'b': [1, 2, 3, 4], 'c~/': 4}, 'd': None},
            id='insert-last',
        ),
        pytest.param(
            {'op': 'add', 'path': '/a/b/-', 'value': 4},
            {'a': {'b': [1, 2, 3, 4], 'c~/': 4}, 'd': None},
            id='append',
        ),
        pytest.param(
            {'op': 'add', 'path': '/a/b/-1', 'value': 4},
            {'a': {'b': [1, 2, 3, 4], 'c~/': 4}, 'd': None},
            id='insert-from-the-end',
        ),
        pytest.param(
            {'op': 'remove', 'path': '/a/c~0~1'},
            {'a': {'b': [1, 2, 3]}, 'd': None},
            id='remove-escaped',
        ),
        pytest.param(
            {'op': 'remove', 'path': '/a/b/-1'},
            {'a': {'b': [1, 2], 'c~/': 4}, 'd': None},
            id='remove-from-the-end',
        ),
        pytest.param(
            {'op': 'replace', 'path': '/a', 'value': 1}, {'a': 1, 'd': None}, id='replace'
        ),
        pytest.param(
            {'op': 'replace', 'path': '/x', 'value': 1},
            {**DOCUMENT, 'x': 1},
            id='replace-of-absent',
        ),
        pytest.param({'op': 'replace', 'path': '', 'value': {'x': 1}}, {'x': 1}, id='replace-all'),
        pytest.param(
            {'op': 'move', 'from': '/a/b', 'path': '/b'},
            {'a': {'c~/': 4}, 'd': None, 'b': [1, 2, 3]},
            id='move',
        ),
        pytest.param(
            {'op': 'copy', 'from': '/a/b/0', 'path': '/d'}, {**DOCUMENT, 'd': 1}, id='copy'
        ),
        pytest.param(
            {'op': 'copy', 'from': '/x', 'path': '/e'}, {**DOCUMENT, 'e': None}, id='copy-of-absent'
        ),
        pytest.param({'op': 'test', 'path': '/a/b', 'value': [1, 2, 3]}, DOCUMENT, id='test'),
        pytest.param(
            {'op': 'test', 'path': '/x', 'value': None}, DOCUMENT, id='test-absent-for-null'
        ),
        pytest.param({'op': 'test', 'path': '/x'}, DOCUMENT, id='test-absent-for-nothing'),
        pytest.param({'op': 'test', 'path': '', 'value': DOCUMENT}, DOCUMENT, id='test-all'),
    ],
)
def test_json_patch_is_applied(operation, expected):
    before = copy.deepcopy(DOCUMENT)

    result = patches.apply_json_patch(DOCUMENT, [operation])

    assert result == expected
    assert before == DOCUMENT


@pytest.mark.parametrize(
    'operation',
    [
        pytest.param(None, id='null'),
        pytest.param({}, id='no-op'),
        pytest.param({'op': 'zzz', 'path': '/a'}, id='unknown-op'),
        pytest.param({'op': 'add', 'value': 1}, id='no-path'),
        pytest.param({'op': 'move', 'path': '/a'}, id='no-from'),
        pytest.param({'op': 'add', 'path': '', 'value': {}}, id='add-all'),
        pytest.param({'op': 'add', 'path': 'a', 'value': 1}, id='no-slash'),
        pytest.param({'op': 'add', 'path': '/x/y', 'value': 1}, id='absent-parent'),
        pytest.param({'op': 'add', 'path': '/d/y', 'value': 1}, id='null-parent'),
        pytest.param({'op': 'add', 'path': '/a/b/0/x', 'value': 1}, id='scalar-parent'),
        pytest.param({'op': 'add', 'path': '/a/b/5', 'value': 1}, id='index-too-high'),
        pytest.param({'op': 'add', 'path': '/a/b/x', 'value': 1}, id='index-not-a-number'),
        pytest.param({'op': 'remove', 'path': '/x'}, id='remove-absent'),
        pytest.param({'op': 'remove', 'path': '/a/b/3'}, id='remove-absent-item'),
        pytest.param({'op': 'replace', 'path': '/a/b/3', 'value': 1}, id='replace-absent-item'),
        pytest.param({'op': 'replace', 'path': '', 'value': 1}, id='replace-all-by-scalar'),
        pytest.param({'op': 'test', 'path': '/a/b/0', 'value': True}, id='test-other-type'),
        pytest.param({'op': 'test', 'path': '/a/b', 'value': [1, 2]}, id='test-other-list'),
        pytest.param({'op': 'test', 'path': '/a', 'value': {}}, id='test-other-object'),
        pytest.param({'op': 'test', 'path': '/a'}, id='test-for-nothing'),
    ],
)
def test_inapplicable_json_patch_is_rejected_without_explanations(operation):
    with pytest.raises(errors.ApiError) as caught:
        patches.apply_json_patch(DOCUMENT, [operation])

    assert caught.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'message': REJECTED,
        'reason': 'Invalid',
        'details': {},
        'code': 422,
    }


@pytest.mark.parametrize(
    'operations, problem',
    [
        pytest.param({}, 'object into Go value of type []handlers.jsonPatchOp', id='object'),
        pytest.param(
            [1], 'number into Go value of type handlers.jsonPatchOp', id='scalar-operation'
        ),
        pytest.param(
            [{'op': 5}], 'number into Go struct field jsonPatchOp.op of type string', id='op'
        ),
        pytest.param(
            [{'path': []}], 'array into Go struct field jsonPatchOp.path of type string', id='path'
        ),
        pytest.param(
            [{'from': True}], 'bool into Go struct field jsonPatchOp.from of type string', id='from'
        ),
    ],
)
def test_malformed_json_patch_is_a_bad_request(operations, problem):
    with pytest.raises(errors.ApiError) as caught:
        patches.apply_json_patch({}, operations)

    assert caught.value.code == 400
    assert caught.value.message == f'error decoding patch: json: cannot unmarshal {problem}'


def test_null_json_patch_changes_nothing():
    assert patches.apply_json_patch({'a': 1}, None) == {'a': 1}


def test_json_patch_of_too_many_operations_is_too_large():
    operations = [{'op': 'add', 'path': '/a', 'value': 1}] * 10_001

    with pytest.raises(errors.ApiError) as caught:
        patches.apply_json_patch({}, operations)

    assert caught.value.code == 413
    assert caught.value.message == (
        'Request entity too large: The allowed maximum operations in a JSON patch '
        'is 10000, got 10001'
    )


def test_json_patch_modifies_copies_separately():
    operations = [
        {'op': 'add', 'path': '/b', 'value': {}},
        {'op': 'copy', 'from': '/b', 'path': '/c'},
        {'op': 'add', 'path': '/c/x', 'value': 1},
    ]

    result = patches.apply_json_patch({}, operations)

    assert result == {'b': {}, 'c': {'x': 1}}
    assert operations[0]['value'] == {}
