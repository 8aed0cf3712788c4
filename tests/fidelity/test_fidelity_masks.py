"""
Masks of the fidelity tests: they hide what cannot be the same, and nothing else.
"""

import fidelity_masks
import fidelity_talks
import pytest

UID1, UID2 = '11111111-2222-3333-4444-555555555555', '66666666-7777-8888-9999-000000000000'


@pytest.fixture
def masker():
    return fidelity_masks.Masker()


@pytest.mark.parametrize(
    'value, masked',
    [
        pytest.param({'a': [1, True, None, 'x']}, {'a': [1, True, None, 'x']}, id='anything'),
        pytest.param(
            f'of {UID1} and {UID2} and {UID1}', 'of <uid 1> and <uid 2> and <uid 1>', id='uids'
        ),
        pytest.param('2020-01-01T00:00:00Z', '<time>', id='time'),
        pytest.param('2020-01-01T00:00:00.123456Z', '<time with 6 digits>', id='micro-time'),
        pytest.param(
            {'metadata': {'resourceVersion': '5'}},
            {'metadata': {'resourceVersion': '<version>'}},
            id='list',
        ),
        pytest.param(
            {'metadata': {'resourceVersion': ''}},
            {'metadata': {'resourceVersion': ''}},
            id='no-version',
        ),
        pytest.param({'continue': 'abc'}, {'continue': '<token>'}, id='token'),
        pytest.param({'continue': ''}, {'continue': ''}, id='no-token'),
        pytest.param(
            {'serverAddress': '127.0.0.1:5'}, {'serverAddress': '<serverAddress>'}, id='address'
        ),
        pytest.param({'cells': ['one', '5s', 5]}, {'cells': ['one', '<age>', 5]}, id='age'),
        pytest.param(
            'too old resource version: 1 (50)',
            'too old resource version: <version> (<version>)',
            id='too-old',
        ),
        pytest.param(
            'patch: Invalid value: "{"a":1}": no',
            'patch: Invalid value: "<object>": no',
            id='object',
        ),
    ],
)
def test_values_are_masked(masker, value, masked):
    assert masker.mask(value) == masked


def test_versions_are_numbered_by_objects(masker):
    bodies = [
        {'metadata': {'uid': uid, 'resourceVersion': version}}
        for uid, version in ((UID1, '7'), (UID2, '8'), (UID1, '9'), (UID1, '7'))
    ]

    masked = [masker.mask(body)['metadata'] for body in bodies]

    assert [(meta['uid'], meta['resourceVersion']) for meta in masked] == [
        ('<uid 1>', '<version 1>'),
        ('<uid 2>', '<version 1>'),
        ('<uid 1>', '<version 2>'),
        ('<uid 1>', '<version 1>'),
    ]


def test_generated_names_are_masked_also_in_texts_and_in_later_answers():
    answers = [
        fidelity_talks.Exchange(
            '1', 422, {}, {'message': 'ConfigMap "some-x7x7x" is invalid'}, prefix='some-'
        ),
        fidelity_talks.Exchange('2', 404, {}, {'message': 'configmaps "some-x7x7x" not found'}),
        fidelity_talks.Exchange('3', 404, {}, {'message': 'configmaps "some-other" not found'}),
    ]

    masked = fidelity_masks.mask_exchanges(answers)

    assert [item.content['body']['message'] for item in masked] == [
        'ConfigMap "some-<generated 1>" is invalid',
        'configmaps "some-<generated 1>" not found',
        'configmaps "some-other" not found',
    ]


@pytest.mark.parametrize(
    'group, is_sorted',
    [pytest.param('x.kopf.dev', True, id='custom'), pytest.param('apps', False, id='built-in')],
)
def test_order_of_errors_is_ignored_only_in_custom_resources(group, is_sorted):
    def build(*fields):
        causes = [{'field': field, 'message': 'bad'} for field in fields]
        return {
            'message': f'it is invalid: [{", ".join(f"{field}: bad" for field in fields)}]',
            'details': {'group': group, 'causes': causes},
        }

    one, two = (fidelity_masks.Masker().mask(build(*fields)) for fields in ('ab', 'ba'))

    assert (one == two) is is_sorted
