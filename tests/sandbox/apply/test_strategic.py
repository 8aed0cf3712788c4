"""
Strategic merge patches: lists merged by keys, the directives, the order of items, and the errors.
"""

import copy

import pytest

from kopf._sandbox.apply import strategic
from kopf._sandbox.meta import errors, schemas

ENV = {
    'type': 'array',
    'x-kubernetes-patch-strategy': 'merge',
    'x-kubernetes-patch-merge-key': 'name',
    'items': {
        'type': 'object',
        'properties': {'name': {'type': 'string'}, 'value': {'type': 'string'}},
    },
}
SCHEMA = schemas.compile_schema(
    {
        'type': 'object',
        'properties': {
            'containers': {
                'type': 'array',
                'x-kubernetes-patch-strategy': 'merge',
                'x-kubernetes-patch-merge-key': 'name',
                'items': {'type': 'object', 'properties': {'name': {'type': 'string'}, 'env': ENV}},
            },
            'finalizers': {
                'type': 'array',
                'x-kubernetes-patch-strategy': 'merge',
                'items': {'type': 'string'},
            },
            'args': {'type': 'array', 'items': {'type': 'string'}},
            'strategy': {
                'type': 'object',
                'x-kubernetes-patch-strategy': 'retainKeys',
                'properties': {'type': {'type': 'string'}, 'rolling': {'type': 'object'}},
            },
            'fixed': {
                'type': 'object',
                'x-kubernetes-patch-strategy': 'replace',
                'additionalProperties': {'type': 'string'},
            },
            'labels': {'type': 'object', 'additionalProperties': {'type': 'string'}},
        },
    }
)
ABC = [{'name': 'a', 'image': '1'}, {'name': 'b', 'image': '1'}, {'name': 'c', 'image': '1'}]


def name_all(items):
    return ''.join(item['name'] for item in items)


@pytest.mark.parametrize(
    'target, patch, expected',
    [
        pytest.param({'labels': {'a': '1'}}, None, {'labels': {'a': '1'}}, id='null-patch'),
        pytest.param(
            {'labels': {'a': '1'}},
            {'labels': {'b': '2'}},
            {'labels': {'a': '1', 'b': '2'}},
            id='maps-merged',
        ),
        pytest.param(
            {'labels': {'a': '1', 'b': '2'}},
            {'labels': {'a': None}},
            {'labels': {'b': '2'}},
            id='null-key',
        ),
        pytest.param({'labels': {'a': '1'}}, {'labels': None}, {}, id='null-field'),
        pytest.param(
            {'labels': {'a': '1'}},
            {'labels': {'$patch': 'replace', 'b': '2'}},
            {'labels': {'b': '2'}},
            id='replace',
        ),
        pytest.param(
            {'labels': {'a': '1'}}, {'labels': {'$patch': 'delete'}}, {'labels': {}}, id='delete'
        ),
        pytest.param({}, {'labels': {'$patch': 'replace', 'b': '2'}}, {}, id='directive-on-absent'),
        pytest.param(
            {}, {'labels': {'a': None, 'b': '1'}}, {'labels': {'b': '1'}}, id='nulls-in-new'
        ),
        pytest.param(
            {'fixed': {'a': '1'}},
            {'fixed': {'b': '2'}},
            {'fixed': {'b': '2'}},
            id='replaced-by-strategy',
        ),
        pytest.param({'args': ['a']}, {'args': ['b']}, {'args': ['b']}, id='list-without-strategy'),
        pytest.param(
            {'labels': 1}, {'labels': {'a': '1'}}, {'labels': {'a': '1'}}, id='other-type'
        ),
        pytest.param(
            {'finalizers': ['a', 'b']},
            {'finalizers': ['c', 'a']},
            {'finalizers': ['c', 'a', 'b']},
            id='set-merged',
        ),
        pytest.param(
            {'finalizers': ['a', 'b']},
            {'$deleteFromPrimitiveList/finalizers': ['a', 'x']},
            {'finalizers': ['b']},
            id='set-deleted-from',
        ),
        pytest.param(
            {}, {'$deleteFromPrimitiveList/finalizers': ['a']}, {}, id='absent-set-deleted-from'
        ),
        pytest.param(
            {'strategy': {'type': 'R', 'rolling': {}}},
            {'strategy': {'$retainKeys': ['type'], 'type': 'X'}},
            {'strategy': {'type': 'X'}},
            id='retain-keys',
        ),
        pytest.param(
            {'containers': [{'name': 'a', 'image': '1', 'env': [{'name': 'E', 'value': '1'}]}]},
            {'containers': [{'name': 'a', 'env': [{'name': 'F', 'value': '2'}]}]},
            {
                'containers': [
                    {
                        'name': 'a',
                        'image': '1',
                        'env': [{'name': 'F', 'value': '2'}, {'name': 'E', 'value': '1'}],
                    }
                ]
            },
            id='lists-in-lists',
        ),
        pytest.param(
            {'containers': ABC},
            {'containers': [{'name': 'b', '$patch': 'delete'}]},
            {'containers': [ABC[0], ABC[2]]},
            id='item-deleted',
        ),
        pytest.param(
            {'containers': ABC},
            {'containers': [{'$patch': 'replace'}, {'name': 'x'}]},
            {'containers': [{'name': 'x'}]},
            id='items-replaced',
        ),
        pytest.param({'containers': []}, {'containers': []}, {'containers': []}, id='empty-lists'),
        pytest.param(
            {},
            {'containers': [{'name': 'x', '$patch': 'delete'}, {'name': 'y', 'v': None}]},
            {'containers': [{'name': 'y'}]},
            id='new-list',
        ),
    ],
)
def test_strategic_patch_is_merged(target, patch, expected):
    before = copy.deepcopy((target, patch))

    result = strategic.strategic_merge(target, patch, SCHEMA)

    assert result == expected
    assert (target, patch) == before


@pytest.mark.parametrize(
    'patch, order, expected',
    [
        pytest.param('', None, 'abc', id='nothing'),
        pytest.param('b', None, 'abc', id='known'),
        pytest.param('x', None, 'xabc', id='new-goes-first'),
        pytest.param('cx', None, 'abcx', id='new-after-known'),
        pytest.param('ca', None, 'bca', id='reordered'),
        pytest.param('', 'cba', 'cba', id='ordered'),
        pytest.param('', 'ca', 'bca', id='ordered-partially'),
        pytest.param('x', 'axc', 'axbc', id='ordered-with-new'),
    ],
)
def test_order_of_items_follows_the_patch(patch, order, expected):
    body = {'containers': [{'name': name, 'image': '2'} for name in patch]}
    if order is not None:
        body['$setElementOrder/containers'] = [{'name': name} for name in order]

    result = strategic.strategic_merge({'containers': ABC}, body, SCHEMA)

    assert name_all(result['containers']) == expected


@pytest.mark.parametrize(
    'target, order, expected',
    [
        pytest.param({}, {}, {}, id='absent'),
        pytest.param({}, {'containers': [{'name': 'b'}, {'name': 'a', 'v': None}]}, 'ba', id='new'),
        pytest.param({'containers': ABC}, {'containers': None}, 'bac', id='null-patch'),
    ],
)
def test_order_is_applied_to_what_there_is(target, order, expected):
    patch = {'$setElementOrder/containers': [{'name': 'b'}, {'name': 'a'}], **order}

    result = strategic.strategic_merge(target, patch, SCHEMA)

    assert result == {} if not expected else name_all(result['containers']) == expected


@pytest.mark.parametrize(
    'patch, code, message',
    [
        pytest.param(
            [],
            400,
            'json: cannot unmarshal array into Go value of type map[string]interface {}',
            id='list',
        ),
        pytest.param(
            {'containers': [{'image': 'z', 'n': 1, 'l': [None, True]}]},
            500,
            'map: map[image:z l:[<nil> true] n:1] does not contain declared merge key: name',
            id='no-key',
        ),
        pytest.param(
            {'containers': [{'$patch': 'delete'}]},
            500,
            'map: map[$patch:delete] does not contain declared merge key: name',
            id='delete-without-key',
        ),
        pytest.param(
            {'containers': [{'name': 'a', '$patch': 'zzz'}]},
            500,
            'unknown patch type: zzz in map: map[$patch:zzz name:a]',
            id='unknown-item-directive',
        ),
        pytest.param(
            {'containers': [{'$patch': 'merge'}]},
            500,
            'merging lists cannot yet be specified in the patch',
            id='merge-list',
        ),
        pytest.param(
            {'labels': {'$patch': 'merge', 'a': 1}},
            500,
            'unknown patch type: merge in map: map[$patch:merge a:1]',
            id='merge-map',
        ),
        pytest.param(
            {'containers': ['x']},
            500,
            'list element types are not identical: '
            '[[map[image:1 name:a] map[image:1 name:b] map[image:1 name:c]] [x]]',
            id='scalars-in-map-list',
        ),
        pytest.param(
            {'strategy': {'$retainKeys': 'x'}},
            400,
            'invalid patch format of retainKeys',
            id='retain-keys-not-list',
        ),
        pytest.param(
            {'strategy': {'$retainKeys': ['x'], 'type': 'R'}},
            400,
            'invalid patch format of retainKeys',
            id='retain-keys-mismatch',
        ),
        pytest.param(
            {'$setElementOrder/containers': 'x'},
            500,
            'expected a []interface {}, but received a string',
            id='order-not-list',
        ),
        pytest.param(
            {'$setElementOrder/containers': [], 'containers': {}},
            500,
            'expected a []interface {}, but received a map[string]interface {}',
            id='ordered-not-list',
        ),
        pytest.param(
            {'$setElementOrder': []},
            400,
            'invalid patch format of setElementOrder list',
            id='order-of-nothing',
        ),
        pytest.param(
            {'$setElementOrder/containers': [{'name': 'y'}], 'containers': [{'name': 'a'}]},
            500,
            "The order in patch list:\n[map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:y]]\n",
            id='order-mismatch',
        ),
        pytest.param(
            {'$deleteFromPrimitiveList': []},
            400,
            'invalid patch format of primitive list',
            id='delete-of-nothing',
        ),
        pytest.param(
            {'finalizers': [['x']]},
            422,
            'the server rejected our request due to an error in our request',
            id='list-of-lists',
        ),
    ],
)
def test_wrong_strategic_patch_is_refused(patch, code, message):
    target = {'containers': ABC, 'strategy': {'type': 'R'}, 'labels': {'a': 'b'}, 'finalizers': []}

    with pytest.raises(errors.ApiError) as caught:
        strategic.strategic_merge(target, patch, SCHEMA)

    assert (caught.value.code, caught.value.message) == (code, message)


def test_lists_are_replaced_if_nothing_is_known_about_them():
    assert strategic.strategic_merge(
        {'a': [1], 'b': {'c': 1}}, {'a': [2], 'b': {'d': 2}}, None
    ) == {'a': [2], 'b': {'c': 1, 'd': 2}}
