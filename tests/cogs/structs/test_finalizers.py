"""
Finalizers: ours comes and goes, those of others stay as they are.
"""

import functools

import pytest

from kopf._cogs.structs import finalizers, objects, patches

OURS = 'kopf.dev/ours'


@pytest.mark.parametrize(
    'body, expected',
    [
        ({}, False),
        ({'metadata': {}}, False),
        ({'metadata': {'deletionTimestamp': None}}, False),
        ({'metadata': {'deletionTimestamp': '...'}}, True),
    ],
)
def test_deletion_is_seen_by_its_timestamp(body, expected):
    assert finalizers.is_deletion_ongoing(body) is expected
    assert finalizers.is_deletion_ongoing(objects.Body(body)) is expected


@pytest.mark.parametrize(
    'body, expected',
    [
        ({}, False),
        ({'metadata': {}}, False),
        ({'metadata': {'finalizers': None}}, False),
        ({'metadata': {'finalizers': []}}, False),
        ({'metadata': {'finalizers': ['other']}}, False),
        ({'metadata': {'finalizers': ['other', OURS]}}, True),
    ],
)
def test_blocking_is_seen_by_the_own_finalizer(body, expected):
    assert finalizers.is_blocked(body, OURS) is expected
    assert finalizers.is_blocked(objects.Body(body), OURS) is expected


@pytest.mark.guarantee('NEW-083', 'WLD-011')
@pytest.mark.parametrize(
    'before, after',
    [
        pytest.param({}, {'finalizers': [OURS]}, id='absent'),
        pytest.param({'finalizers': None}, {'finalizers': [OURS]}, id='none'),
        pytest.param({'finalizers': []}, {'finalizers': [OURS]}, id='empty'),
        pytest.param(
            {'finalizers': ['b', 'a']}, {'finalizers': ['b', 'a', OURS]}, id='after-others'
        ),
        pytest.param({'finalizers': [OURS, 'a']}, {'finalizers': [OURS, 'a']}, id='there-already'),
    ],
)
def test_finalizer_is_added_after_those_of_others(before, after):
    body = {'metadata': before}

    finalizers.block_deletion(body, finalizer=OURS)

    assert body == {'metadata': after}


@pytest.mark.guarantee('NEW-083', 'NEW-085', 'WLD-011')
@pytest.mark.parametrize(
    'before, after',
    [
        pytest.param({}, {}, id='absent'),
        pytest.param({'finalizers': []}, {'finalizers': []}, id='empty'),
        pytest.param({'finalizers': ['b', 'a']}, {'finalizers': ['b', 'a']}, id='others'),
        pytest.param({'finalizers': [OURS]}, {}, id='only-ours'),
        pytest.param({'finalizers': [OURS, OURS]}, {}, id='only-ours-twice'),
        pytest.param(
            {'finalizers': ['b', OURS, 'a', OURS, 'b']},
            {'finalizers': ['b', 'a', 'b']},
            id='among-others',
        ),
    ],
)
def test_finalizer_is_removed_from_among_those_of_others(before, after):
    body = {'metadata': before}

    finalizers.allow_deletion(body, finalizer=OURS)

    assert body == {'metadata': after}


def test_finalizers_are_for_patches():
    patch = patches.Patch(fns=[functools.partial(finalizers.block_deletion, finalizer=OURS)])

    assert patch.as_json_patch({'metadata': {'finalizers': [OURS]}}) == []
    assert patch.as_json_patch({'metadata': {'finalizers': ['a']}}) == [
        {'op': 'replace', 'path': '/metadata/finalizers', 'value': ['a', OURS]}
    ]


def test_finalizers_can_be_put_on_bodies_with_no_metadata():
    body = {}

    finalizers.block_deletion(body, finalizer=OURS)

    assert body == {'metadata': {'finalizers': [OURS]}}
