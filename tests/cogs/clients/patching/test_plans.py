"""
Plans: the record of what is done goes last, in as few requests as possible.
"""

import pytest

from kopf._cogs.clients.patching import merge_patches, plans
from kopf._cogs.clients.patching.plans import Kind

JOINED = [
    pytest.param({}, {}, {}, {}, id='nothing'),
    pytest.param({'a': {'b': 1}}, {'a': {'c': 2}}, {}, {'a': {'b': 1, 'c': 2}}, id='together'),
    pytest.param({'a': {'b': 1}}, {'a': {'b': 2}}, {}, {'a': {'b': 2}}, id='contradiction'),
    pytest.param({'a': {'b': 1}}, {'a': {'b': None}}, {}, {'a': {'b': None}}, id='removal'),
    pytest.param({'a': {'b': 1}}, {'a': 'text'}, {}, {'a': 'text'}, id='other-kind'),
    pytest.param({'a': None}, {'a': {'b': 2}}, {}, {'a': {'b': 2}}, id='removal-of-ours'),
    pytest.param({'a': {'b': 1}}, {'a': None}, {}, {'a': {'b': 1}}, id='removal-of-all-in-absent'),
    pytest.param(
        {'a': {'b': 1}},
        {'a': None},
        {'a': {'b': 0, 'c': 2}},
        {'a': {'b': 1, 'c': None}},
        id='removal-of-all-but-ours',
    ),
    pytest.param(
        {'x': {'a': {'b': 1}}},
        {'x': {'a': None}},
        {'x': {'a': {'c': 2}}},
        {'x': {'a': {'b': 1, 'c': None}}},
        id='nested-removal-of-all-but-ours',
    ),
]


@pytest.mark.parametrize('own, users, body, expected', JOINED)
def test_two_patches_are_joined(own, users, body, expected):
    assert merge_patches.join(own, users, body) == expected


@pytest.mark.parametrize('own, users, body, expected', JOINED)
def test_two_patches_are_made_independent(own, users, body, expected):
    ours, theirs = merge_patches.separate(own, users, body)

    assert merge_patches.join(ours, theirs, {}) == merge_patches.join(theirs, ours, {}) == expected


def test_given_patches_are_not_changed():
    own, users = {'a': {'b': 1}}, {'a': {'c': 2}}

    merge_patches.join(own, users, {})
    merge_patches.separate(own, users, {})

    assert (own, users) == ({'a': {'b': 1}}, {'a': {'c': 2}})


@pytest.mark.parametrize(
    'own, expected',
    [
        pytest.param({}, False, id='nothing'),
        pytest.param({'a': {'b': None}}, False, id='removals'),
        pytest.param({'a': {'b': None, 'c': 1}}, True, id='values'),
        pytest.param({'a': ''}, True, id='empty-values'),
    ],
)
def test_records_are_told_from_removals(own, expected):
    assert merge_patches.has_records(own) is expected


def show(request):
    """
    Tell where a request goes, and what it has: changes of users, of functions, and our own records.
    """
    parts = [('U', request.users), ('F', request.kind.is_amending), ('O', request.own)]
    place = 'status' if request.kind.is_status else 'body'
    return f'{place} {"".join(letter for letter, part in parts if part)}'


USERS = {'spec': {'x': 1}}, {'status': {'x': 1}}
OWN = {'metadata': {'annotations': {'own': 1}}}, {'status': {'own': 1}}
CLEANED = {'status': {'own': None}}
VERSIONED = {'metadata': {'resourceVersion': '1'}, 'spec': {'x': 1}}


@pytest.mark.guarantee('NEW-060', 'NEW-063', 'FND-014')
@pytest.mark.parametrize(
    'users, own, expected',
    [
        pytest.param({}, {}, [], id='nothing'),
        pytest.param({'spec': {}, 'status': {}}, {}, [], id='empty-sections'),
        pytest.param(USERS[0], OWN[0], ['body UO'], id='object'),
        pytest.param(USERS[1], OWN[0], ['status U', 'body O'], id='status'),
        pytest.param({}, OWN[0] | OWN[1], ['status O', 'body O'], id='records-everywhere'),
        pytest.param(USERS[0] | USERS[1], OWN[0], ['status U', 'body UO'], id='all'),
        pytest.param(
            USERS[0] | USERS[1], OWN[0] | CLEANED, ['status UO', 'body UO'], id='removals'
        ),
        pytest.param(USERS[0], OWN[1], ['body U', 'status O'], id='records-in-status'),
        pytest.param(
            USERS[0] | USERS[1], OWN[1], ['body U', 'status UO'], id='all-with-records-in-status'
        ),
        pytest.param(
            USERS[1], OWN[0] | OWN[1], ['status UO', 'body O'], id='status-with-records-everywhere'
        ),
        pytest.param(
            USERS[0], OWN[0] | OWN[1], ['body UO', 'status O'], id='object-with-records-everywhere'
        ),
        pytest.param(
            USERS[0] | USERS[1],
            OWN[0] | OWN[1],
            ['status U', 'body UO', 'status O'],
            id='all-with-records-everywhere',
        ),
        pytest.param(
            VERSIONED | USERS[1], OWN[0], ['body U', 'status U', 'body O'], id='for-one-version'
        ),
    ],
)
def test_records_are_merged_last(users, own, expected):
    assert [show(request) for request in plans.plan(users, own, has_status=True)] == expected


@pytest.mark.guarantee('NEW-060', 'NEW-062', 'NEW-063', 'FND-014')
@pytest.mark.parametrize(
    'users, touched, own, expected',
    [
        pytest.param({}, 'body', OWN[0], ['body FO'], id='object'),
        pytest.param({}, 'status', OWN[0], ['status F', 'body O'], id='status'),
        pytest.param({}, 'status', OWN[1], ['status FO'], id='status-with-records-there'),
        pytest.param(
            {}, 'body', OWN[1], ['body F', 'status O'], id='object-with-records-in-status'
        ),
        pytest.param({}, 'body status', OWN[0], ['status F', 'body FO'], id='all'),
        pytest.param(
            {}, 'body status', OWN[1], ['body F', 'status FO'], id='all-with-records-in-status'
        ),
        pytest.param(USERS[0], 'body', OWN[0], ['body U', 'body FO'], id='object-after-merge'),
        pytest.param(USERS[0], 'status', OWN[0], ['status F', 'body UO'], id='status-before-merge'),
        pytest.param(
            USERS[1], 'status', OWN[0], ['status U', 'status F', 'body O'], id='status-after-merge'
        ),
        pytest.param(
            USERS[0] | USERS[1],
            'body status',
            OWN[0],
            ['status U', 'body U', 'status F', 'body FO'],
            id='everything',
        ),
        pytest.param(
            USERS[0] | USERS[1],
            'body',
            OWN[0] | OWN[1],
            ['status U', 'body U', 'body FO', 'status O'],
            id='everything-with-records-everywhere',
        ),
        pytest.param(
            USERS[0],
            'status',
            OWN[0] | OWN[1],
            ['status F', 'body UO', 'status O'],
            id='functions-of-status-with-records-everywhere',
        ),
        pytest.param(
            {},
            'body status',
            OWN[0] | OWN[1],
            ['status F', 'body FO', 'status O'],
            id='functions-everywhere-with-records-everywhere',
        ),
    ],
)
def test_records_go_after_what_functions_make(users, touched, own, expected):
    kinds = {Kind[f'AMEND_{name.upper()}'] for name in touched.split()}

    assert [show(request) for request in plans.plan(users, own, kinds, has_status=True)] == expected


@pytest.mark.guarantee('NEW-061')
@pytest.mark.parametrize(
    'touched, expected',
    [
        pytest.param(set(), ['body UO'], id='merged'),
        pytest.param({Kind.AMEND_BODY}, ['body U', 'body FO'], id='functions'),
    ],
)
def test_there_is_one_place_if_the_status_is_a_part_of_the_object(touched, expected):
    users, own = USERS[0] | USERS[1], OWN[0] | OWN[1]

    assert [
        show(request) for request in plans.plan(users, own, touched, has_status=False)
    ] == expected
