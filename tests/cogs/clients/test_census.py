"""
A listing in pages, with the changes that come meanwhile: together they tell of everything, in
order, and once.
"""

import pytest

from kopf._cogs.clients import listing
from kopf._cogs.clients.watching import watch_events
from kopf._cogs.structs import references

RESOURCE = references.Resource(
    'kopf.dev', 'v1', 'kopfexamples', kind='KopfExample', namespaced=True
)


def build_body(name, version='5', uid=None):
    return {
        'metadata': {
            'name': name,
            'namespace': 'ns',
            'uid': uid or f'uid-{name}',
            'resourceVersion': version,
        }
    }


def build_page(*names, is_first=False, is_last=False, version='10'):
    items = [build_body(name) if isinstance(name, str) else name for name in names]
    return listing.Page(items, version, following='' if is_last else 'more', is_first=is_first)


def build_change(type, name, version, uid=None):
    return watch_events.build_change(type, build_body(name, version, uid))


def take_all(findings, known=(), *, is_initial=True):
    """Tell what comes out: ``(type, name, version)``; and the version to continue from."""
    memory = {watch_events.identify(body)[0]: watch_events.identify(body)[1] for body in known}
    census, summary = watch_events.Census(memory, RESOURCE, is_initial=is_initial), []
    for finding in findings:
        for change in census.take(finding):
            metadata = change.event['object']['metadata']
            summary.append(
                (change.event['type'], metadata['name'], metadata.get('resourceVersion'))
            )
            if change.seen is None:
                memory.pop(change.key)
            else:
                memory[change.key] = change.seen
    return summary, census.version


FIRST, LAST = build_page('a', is_first=True), build_page('b', is_last=True)


@pytest.mark.parametrize(
    'meanwhile, expected',
    [
        pytest.param([], [(None, 'b', '5')], id='nothing'),
        pytest.param(
            [build_change('MODIFIED', 'a', '11')],
            [('MODIFIED', 'a', '11'), (None, 'b', '5')],
            id='listed-modified',
        ),
        pytest.param(
            [build_change('DELETED', 'a', '11')],
            [('DELETED', 'a', '11'), (None, 'b', '5')],
            id='listed-deleted',
        ),
        pytest.param(
            [build_change('MODIFIED', 'b', '11')],
            [(None, 'b', '11'), ('MODIFIED', 'b', '11')],
            id='not-listed-modified',
        ),
        pytest.param(
            [build_change('MODIFIED', 'b', '11'), build_change('MODIFIED', 'b', '12')],
            [(None, 'b', '11'), ('MODIFIED', 'b', '11'), ('MODIFIED', 'b', '12')],
            id='not-listed-modified-twice',
        ),
        pytest.param([build_change('DELETED', 'b', '11')], [], id='not-listed-deleted'),
        pytest.param(
            [build_change('DELETED', 'b', '11'), build_change('ADDED', 'b', '12', 'new')],
            [('ADDED', 'b', '12')],
            id='not-listed-recreated',
        ),
        pytest.param(
            [build_change('DELETED', 'a', '11'), build_change('ADDED', 'a', '12', 'new')],
            [('DELETED', 'a', '11'), ('ADDED', 'a', '12'), (None, 'b', '5')],
            id='listed-recreated',
        ),
        pytest.param(
            [build_change('ADDED', 'c', '11')], [('ADDED', 'c', '11'), (None, 'b', '5')], id='added'
        ),
        pytest.param(
            [build_change('ADDED', 'c', '11'), build_change('DELETED', 'c', '12')],
            [('ADDED', 'c', '11'), ('DELETED', 'c', '12'), (None, 'b', '5')],
            id='added-and-deleted',
        ),
    ],
)
def test_changes_between_pages_come_at_once_and_are_not_undone_by_the_next_pages(
    meanwhile, expected
):
    summary, version = take_all([FIRST, *meanwhile, LAST])

    assert summary == [(None, 'a', '5'), *expected]
    assert version == (meanwhile[-1].version if meanwhile else '10')


def test_bookmarks_move_the_version_and_change_nothing():
    assert take_all([FIRST, watch_events.Bookmark('15'), LAST]) == (
        [(None, 'a', '5'), (None, 'b', '5')],
        '15',
    )


@pytest.mark.parametrize(
    'change, expected',
    [
        pytest.param(
            build_change('MODIFIED', 'b', '11', 'new'),
            [('DELETED', 'b', None), (None, 'b', '11'), ('MODIFIED', 'b', '11')],
            id='modified',
        ),
        pytest.param(
            build_change('ADDED', 'b', '11', 'new'),
            [('DELETED', 'b', None), ('ADDED', 'b', '11')],
            id='added',
        ),
        pytest.param(
            build_change('DELETED', 'b', '11', 'new'), [('DELETED', 'b', None)], id='deleted'
        ),
    ],
)
def test_known_object_that_was_replaced_unnoticed_is_told_to_be_deleted(change, expected):
    summary, _ = take_all([FIRST, change, LAST], known=[build_body('b', '3', 'old')])

    assert summary == [(None, 'a', '5'), *expected]


def test_listing_that_starts_over_takes_everything_anew():
    changes = [build_change('MODIFIED', 'b', '11'), build_change('ADDED', 'c', '12')]
    again = [
        build_page('a', build_body('b', '14'), is_first=True, version='20'),
        build_page(is_last=True),
    ]

    summary, version = take_all([FIRST, *changes, *again])

    assert summary[-2:] == [(None, 'b', '14'), ('DELETED', 'c', None)]
    assert version == '20'


def test_known_objects_that_are_neither_listed_nor_changed_are_told_to_be_deleted_in_the_end():
    known = [build_body(name, '3') for name in ('a', 'b', 'gone')]

    summary, _ = take_all([FIRST, LAST], known, is_initial=False)

    assert summary == [('MODIFIED', 'a', '5'), ('MODIFIED', 'b', '5'), ('DELETED', 'gone', None)]
