"""
Application: what is worth to be sent, what is accepted, and what to leave out of what is not.
"""

import pytest
from things import BLOCK, put

import kopf
from kopf._cogs.clients import errors
from kopf._cogs.clients.patching import application, losses, merge_patches, refusals
from kopf._cogs.structs import objects


@pytest.mark.parametrize(
    'merge, body, expected',
    [
        pytest.param({}, {'a': 1}, {}, id='nothing'),
        pytest.param({'a': 1}, {'a': 1}, {}, id='same'),
        pytest.param({'a': 1}, {'a': 2}, {'a': 1}, id='other'),
        pytest.param({'a': 1}, {}, {'a': 1}, id='absent'),
        pytest.param({'a': True}, {'a': 1}, {'a': True}, id='booleans-are-not-numbers'),
        pytest.param({'a': 0}, {}, {'a': 0}, id='zero'),
        pytest.param({'a': ''}, {}, {'a': ''}, id='empty-text'),
        pytest.param({'a': None}, {'a': 1}, {'a': None}, id='removal'),
        pytest.param({'a': None}, {'a': {}}, {'a': None}, id='removal-of-empty'),
        pytest.param({'a': None}, {}, {}, id='removal-of-absent'),
        pytest.param({'a': None}, {'a': None}, {}, id='removal-of-null'),
        pytest.param({'a': [1, 2]}, {'a': [1, 2]}, {}, id='same-list'),
        pytest.param({'a': (1, 2)}, {'a': [1, 2]}, {}, id='same-list-as-tuple'),
        pytest.param({'a': (1, 2)}, {}, {'a': [1, 2]}, id='tuple'),
        pytest.param({'a': [1, 2]}, {'a': [2, 1]}, {'a': [1, 2]}, id='other-order'),
        pytest.param({'a': []}, {}, {'a': []}, id='empty-list'),
        pytest.param(
            {'a': {'b': 1, 'c': 2}}, {'a': {'b': 1, 'd': 3}}, {'a': {'c': 2}}, id='nested'
        ),
        pytest.param({'a': {'b': 1}}, {'a': {'b': 1, 'd': 3}}, {}, id='nested-same'),
        pytest.param({'a': {'b': None}}, {'a': {'c': 1}}, {}, id='nested-removal-of-absent'),
        pytest.param({'a': {'b': None}}, {}, {}, id='removal-in-absent'),
        pytest.param({'a': {'b': {'c': None}}}, {}, {}, id='removal-deep-in-absent'),
        pytest.param(
            {'a': {'b': None, 'c': 1}}, {}, {'a': {'c': 1}}, id='removal-and-setting-in-absent'
        ),
        pytest.param(
            {'a': {'b': None, 'c': 1}}, {'a': 'text'}, {'a': {'c': 1}}, id='mapping-instead-of-text'
        ),
        pytest.param({'a': {'b': None}}, {'a': 'text'}, {'a': {}}, id='removal-in-text'),
        pytest.param({'a': {}}, {}, {'a': {}}, id='empty-mapping'),
        pytest.param({'a': {}}, {'a': {}}, {}, id='empty-mapping-same'),
        pytest.param({'a': {}}, {'a': {'b': 1}}, {}, id='empty-mapping-changes-nothing'),
        pytest.param({'a': {'b': {}}}, {'a': {}}, {'a': {'b': {}}}, id='nested-empty-mapping'),
        pytest.param({'a': {'b': {}}}, {}, {'a': {'b': {}}}, id='nested-empty-mapping-in-absent'),
        pytest.param({'a': 'text'}, {'a': {'b': 1}}, {'a': 'text'}, id='text-instead-of-mapping'),
    ],
)
def test_only_differences_are_left(merge, body, expected):
    assert merge_patches.prune(merge, body) == expected


def test_differences_are_plain_whatever_they_are_made_of():
    body = objects.Body({'spec': {'x': [{'y': 1}]}})

    merge = merge_patches.prune({'status': {'spec': body.spec, 'list': [body.spec, (1, 2)]}}, {})

    assert merge == {'status': {'spec': {'x': [{'y': 1}]}, 'list': [{'x': [{'y': 1}]}, [1, 2]]}}
    assert type(merge['status']['spec']) is type(merge['status']['list'][0]) is dict


@pytest.mark.guarantee('NEW-075')
@pytest.mark.parametrize(
    'merge, body, expected',
    [
        pytest.param({}, {}, [], id='nothing'),
        pytest.param({'a': 1}, {'a': 1, 'b': 2}, [], id='as-asked'),
        pytest.param({'a': 1}, {}, ['a'], id='dropped'),
        pytest.param({'a': {'b': 1, 'c': 2}}, {'a': {'b': 1, 'c': 3}}, ['a.c'], id='changed'),
        pytest.param({'a': {'b': 1}}, {}, ['a.b'], id='dropped-parent'),
        pytest.param({'a': {'b': 1}}, {'a': 'text'}, ['a.b'], id='changed-parent'),
        pytest.param({'a': None}, {}, [], id='removed'),
        pytest.param({'a': None}, {'a': 1}, ['a'], id='not-removed'),
        pytest.param({'a': [1]}, {'a': [1, 2]}, ['a'], id='changed-list'),
        pytest.param({'a': {}}, {}, [], id='empty-mapping'),
        pytest.param({'a': []}, {}, ['a'], id='emptied-list'),
        pytest.param({'metadata': {'labels': {}}}, {'metadata': {}}, [], id='emptied-labels'),
        pytest.param(
            {'metadata': {'annotations': None}}, {'metadata': {}}, [], id='removed-annotations'
        ),
        pytest.param(
            {'metadata': {'finalizers': []}}, {'metadata': {}}, [], id='emptied-finalizers'
        ),
        pytest.param(
            {'metadata': {'finalizers': []}},
            {'metadata': {'finalizers': ['a']}},
            ['metadata.finalizers'],
            id='kept-finalizers',
        ),
        pytest.param(
            {'metadata': {'finalizers': ['a']}},
            {'metadata': {}},
            ['metadata.finalizers'],
            id='dropped-finalizers',
        ),
        pytest.param({'b': 1, 'a': {'x': 2}}, {}, ['b', 'a.x'], id='several'),
    ],
)
def test_mismatches_are_found(merge, body, expected):
    assert merge_patches.find_mismatches(merge, body) == expected


REJECTED = 'the server rejected our request due to an error in our request'
CAUSES = {
    'causes': [{'reason': 'FieldValueInvalid', 'message': 'Invalid value', 'field': 'spec.size'}]
}


@pytest.mark.parametrize(
    'code, message, details, expected',
    [
        pytest.param(409, 'the object has been modified', {}, True, id='conflict'),
        pytest.param(422, REJECTED, {}, True, id='rejected'),
        pytest.param(
            422,
            'testing value /metadata/resourceVersion failed: test failed',
            {},
            True,
            id='test-failed',
        ),
        pytest.param(
            422, 'Thing "obj" is invalid: spec.size: Invalid value', CAUSES, False, id='invalid'
        ),
        pytest.param(422, REJECTED, CAUSES, False, id='invalid-with-vague-words'),
        pytest.param(422, 'denied by a webhook', {}, False, id='denied'),
        pytest.param(422, '', {}, False, id='no-words'),
        pytest.param(400, REJECTED, {}, False, id='wrong-request'),
    ],
)
def test_refusal_for_an_outdated_version_is_recognised(code, message, details, expected):
    error = errors.build_error(errors.Refusal(code, message=message, details=details))

    assert refusals.is_outdated(error) is expected


@pytest.mark.parametrize(
    'code, expected',
    [
        (400, True),
        (403, True),
        (413, True),
        (422, True),
        (409, False),
        (401, False),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_refusal_for_good_is_recognised(code, expected):
    assert refusals.is_refusal(errors.build_error(errors.Refusal(code))) is expected


def test_lack_of_connection_is_not_a_refusal():
    assert not refusals.is_refusal(errors.APIDisconnectedError('boo!'))


def describe(changes):
    if changes is None:
        return None
    return dict(changes.patch), len(changes.patch.fns), dict(changes.own), changes.holding


@pytest.mark.parametrize(
    'patch, fns, own, is_amended, expected',
    [
        pytest.param({'a': 1}, 1, {'b': 2}, False, ({}, 1, {'b': 2}, BLOCK), id='users'),
        pytest.param({}, 1, {'b': 2}, False, ({}, 1, {}, BLOCK), id='ours'),
        pytest.param({}, 0, {'b': 2}, False, ({}, 0, {}, BLOCK), id='ours-and-the-finalizer'),
        pytest.param({}, 0, {}, False, None, id='nothing-merged'),
        pytest.param({'a': 1}, 1, {'b': 2}, True, ({'a': 1}, 0, {'b': 2}, BLOCK), id='functions'),
        pytest.param({}, 0, {}, True, None, id='only-the-finalizer'),
        pytest.param({'a': 1}, 0, {'b': 2}, True, None, id='only-the-finalizer-after-all'),
    ],
)
def test_refused_part_is_left_out(patch, fns, own, is_amended, expected):
    changes = application.Changes(
        kopf.Patch(patch, fns=[put(1, 'x')] * fns), kopf.Patch(own), BLOCK
    )

    assert describe(losses.lessen(changes, is_amended=is_amended)) == expected


PRECONDITION = 'Precondition failed: UID in precondition: uid1, UID in object meta: uid2'
OF_UID = {'causes': [{'field': 'metadata.uid'}]}


@pytest.mark.parametrize(
    'code, message, details, expected',
    [
        pytest.param(409, PRECONDITION, {}, True, id='precondition'),
        pytest.param(422, 'metadata.uid: Invalid value', OF_UID, True, id='changed-uid'),
        pytest.param(409, 'the object has been modified', {}, False, id='conflict'),
        pytest.param(422, 'spec.size: Invalid value', {'causes': 5}, False, id='strange-causes'),
        pytest.param(403, PRECONDITION, {}, False, id='denied-with-these-words'),
        pytest.param(400, 'denied by a webhook', OF_UID, False, id='denied-for-this-field'),
    ],
)
def test_refusal_for_another_object_of_the_same_name_is_recognised(
    code, message, details, expected
):
    error = errors.build_error(errors.Refusal(code, message=message, details=details))

    assert refusals.is_namesake(error) is expected
