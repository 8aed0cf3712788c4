"""
Stores: what is read after events, lists and our own writes, in any order of their arrival.
"""

import asyncio
import gc
import json
import tracemalloc

import pytest
from stored_objects import CHILDREN, PARENTS, SECRETS, build_body

from kopf._core.engines.reconciling import entries, stores
from kopf._core.intents import mappings

Effect = entries.Effect


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(clock):
    store = stores.Store(CHILDREN, timeout=5, clock=clock)
    store.serve(None)
    return store


def get_version(store, name='x', namespace='ns'):
    body = store.get(namespace, name)
    return None if body is None else body['metadata']['resourceVersion']


def describe(change):
    versions = [None if one is None else one.version for one in (change.old, change.new)]
    return (*versions, change.effect)


def test_objects_are_found_by_names_and_uids_and_owners(store):
    one = build_body('a', 'uid1', '1', owner='parent1')
    two = build_body('b', 'uid2', '2', owner='parent1', namespace='other')
    three = build_body('c', 'uid3', '3', owner='parent2')
    for body in (three, two, one):
        store.put('ADDED', body)

    assert (len(store), store.size > 0) == (3, True)
    assert store.get('ns', 'a') == store.find('uid1') == one
    assert store.get('other', 'a') is store.get(None, 'a') is store.find('uid4') is None
    assert store.list_owned('parent1') == [one, two]
    assert store.list_owned('parent3') == []
    assert store.list_named([mappings.ObjectKey('ns', 'c'), mappings.ObjectKey('ns', '?')]) == [
        three
    ]
    assert list(store.iter('ns')) == [three, one]
    assert list(store.iter()) == [three, two, one]


def test_every_reading_returns_a_new_object(store):
    store.put('ADDED', build_body('x', 'uid', '1', spec={'list': [1]}))

    store.get('ns', 'x')['spec']['list'].append(2)

    assert store.get('ns', 'x')['spec'] == {'list': [1]}


def test_objects_do_not_change_with_the_given_ones(store):
    body = build_body('x', 'uid', '1', spec={'list': [1]})
    store.put('ADDED', body)

    body['spec']['list'].append(2)

    assert store.get('ns', 'x')['spec'] == {'list': [1]}


def test_changes_have_the_old_and_the_new_states(store):
    created = store.put('ADDED', build_body('x', 'uid', '1', owner='a'))
    changed = store.put('MODIFIED', build_body('x', 'uid', '2', owner='b'))
    deleted = store.put('DELETED', build_body('x', 'uid', '3'))

    assert describe(created) == (None, '1', Effect.CHANGED)
    assert describe(changed) == ('1', '2', Effect.CHANGED)
    assert describe(deleted) == ('2', None, Effect.CHANGED)
    assert changed.old.owners == (mappings.Owner('a', 'controller'),)
    assert changed.new.owners == (mappings.Owner('b', 'controller'),)
    assert (len(store), store.size, store.list_owned('a'), store.list_owned('b')) == (0, 0, [], [])


def test_repeated_states_are_no_news(store):
    store.put(None, build_body('x', 'uid', '1'))

    change = store.put(None, build_body('x', 'uid', '1'))

    assert change.old is change.new
    assert (change.is_news, change.is_echo) == (False, False)


@pytest.mark.parametrize(
    'type, body',
    [
        pytest.param('BOOKMARK', {'metadata': {'resourceVersion': '5'}}, id='bookmark'),
        pytest.param('ADDED', {}, id='empty'),
        pytest.param('ADDED', {'metadata': None}, id='null'),
        pytest.param('ADDED', {'metadata': {'name': 'x'}}, id='no-uid'),
        pytest.param('ADDED', {'metadata': {'uid': 'x'}}, id='no-name'),
        pytest.param('DELETED', build_body('x', 'uid', '1'), id='unknown'),
    ],
)
def test_events_without_known_objects_change_nothing(store, type, body):
    change = store.put(type, body)

    assert (change.old, change.new, change.is_news, len(store)) == (None, None, False, 0)


def test_only_the_metadata_are_kept_of_too_deep_objects(store):
    spec = {}
    for _ in range(100_000):
        spec = {'x': spec}

    store.put('ADDED', build_body('x', 'uid', '1', kind='Service', spec=spec))

    assert store.get('ns', 'x') == build_body('x', 'uid', '1', kind='Service')


def test_recreated_object_replaces_its_namesake(store):
    store.put('ADDED', build_body('x', 'uid1', '1', owner='a'))

    change = store.put('ADDED', build_body('x', 'uid2', '3', owner='a'))
    late = store.put('DELETED', build_body('x', 'uid1', '2'))

    assert (change.old.uid, change.new.uid) == ('uid1', 'uid2')
    assert describe(late) == (None, None, Effect.NOTHING)
    assert store.find('uid1') is None
    assert [body['metadata']['uid'] for body in store.list_owned('a')] == ['uid2']


# Our own writes.


def test_own_write_is_read_at_once_and_its_echo_is_no_news(store):
    store.put('ADDED', build_body('x', 'uid', '1'))

    written = store.note_written(build_body('x', 'uid', '5', owner='a'))
    before_echo = store.list_owned('a')
    echo = store.put('MODIFIED', build_body('x', 'uid', '5', owner='a'))

    assert describe(written) == ('1', '5', Effect.CHANGED)
    assert [body['metadata']['resourceVersion'] for body in before_echo] == ['5']
    assert describe(echo) == ('5', '5', Effect.ECHO)
    assert (echo.is_echo, echo.is_news) == (True, False)


def test_older_states_do_not_hide_own_writes(store):
    store.note_written(build_body('x', 'uid', '10'))

    listed = store.put(None, build_body('x', 'uid', '9'))
    modified = store.put('MODIFIED', build_body('x', 'uid', '8'))

    assert get_version(store) == '10'
    assert describe(listed) == describe(modified) == ('10', '10', Effect.INCLUDED)
    assert modified.is_news  # by others: we wrote without having seen it


def test_newer_states_replace_own_writes(store):
    store.note_written(build_body('x', 'uid', '9'))

    change = store.put('MODIFIED', build_body('x', 'uid', '10'))

    assert describe(change) == ('9', '10', Effect.CHANGED)
    assert describe(store.put('MODIFIED', build_body('x', 'uid', '11')))[2] is Effect.CHANGED


def test_echoes_of_several_own_writes_are_no_news(store):
    store.note_written(build_body('x', 'uid', '1'))
    store.note_written(build_body('x', 'uid', '3'))

    effects = [
        store.put('MODIFIED', build_body('x', 'uid', str(version))).effect
        for version in (1, 2, 3, 4)
    ]

    assert effects == [Effect.ECHO, Effect.INCLUDED, Effect.ECHO, Effect.CHANGED]
    assert get_version(store) == '4'


def test_changes_by_others_can_be_missed_before_a_listed_echo(store):
    store.note_written(build_body('x', 'uid', '3'))

    change = store.put(None, build_body('x', 'uid', '3'))

    assert describe(change) == ('3', '3', Effect.CHANGED)


def test_echo_after_a_gap_is_news(store):
    for name in ('x', 'y'):
        store.note_written(build_body(name, f'uid-{name}', '3', namespace=name))

    store.note_gap('x')
    changes = [
        store.put('MODIFIED', build_body(name, f'uid-{name}', '3', namespace=name))
        for name in ('x', 'y')
    ]

    assert [describe(change) for change in changes] == [
        ('3', '3', Effect.CHANGED),
        ('3', '3', Effect.ECHO),
    ]


def test_objects_of_a_list_come_in_any_order_of_versions(store, clock):
    store.put('ADDED', build_body('x', 'uid', '1'))
    store.put('MODIFIED', build_body('y', 'uid2', '9'))  # in a list that has not ended yet

    store.note_written(build_body('x', 'uid', '5'))
    store.expire()

    assert get_version(store) == '5'


@pytest.mark.parametrize('version', ['4', '5'])
def test_answers_later_than_their_events_change_nothing(store, version):
    store.put('MODIFIED', build_body('x', 'uid', '5'))

    change = store.note_written(build_body('x', 'uid', version))

    assert describe(change) == ('5', '5', Effect.NOTHING)
    assert describe(store.put('MODIFIED', build_body('x', 'uid', '6'))) == (
        '5',
        '6',
        Effect.CHANGED,
    )


def test_answers_later_than_deletions_do_not_revive_objects(store):
    store.put('ADDED', build_body('x', 'uid', '5'))
    store.put('DELETED', build_body('x', 'uid', '7'))

    store.note_written(build_body('x', 'uid', '6'))

    assert store.get('ns', 'x') is None


def test_deleted_objects_are_remembered_in_a_limited_number(store, monkeypatch):
    monkeypatch.setattr(stores, 'GONE_LIMIT', 2)
    for number in range(3):
        body = build_body('x', f'uid{number}', str(number))
        store.put('ADDED', body)
        store.put('DELETED', body)

    for number in range(3):
        store.note_written(build_body(f'y{number}', f'uid{number}', '1'))

    assert [body['metadata']['uid'] for body in store.iter()] == ['uid0']


def test_answers_in_the_wrong_order_keep_the_last_write(store):
    store.note_written(build_body('x', 'uid', '6'))
    store.note_written(build_body('x', 'uid', '5'))

    assert get_version(store) == '6'


@pytest.mark.parametrize('version, is_left', [('8', True), ('9', False), ('10', False)])
def test_only_deletions_of_the_same_or_a_newer_version_remove_written_objects(
    store, version, is_left
):
    store.note_written(build_body('x', 'uid', '9'))

    store.put('DELETED', build_body('x', 'uid', version))

    assert (get_version(store) is not None) is is_left


def test_deletion_of_a_namesake_does_not_remove_a_created_object(store):
    store.put('ADDED', build_body('x', 'uid1', '1'))
    store.note_written(build_body('x', 'uid2', '9'))

    store.put('MODIFIED', build_body('x', 'uid1', '2'))
    store.put('DELETED', build_body('x', 'uid1', '3'))
    store.put('ADDED', build_body('x', 'uid2', '9'))

    assert store.get('ns', 'x')['metadata']['uid'] == 'uid2'
    assert (len(store), store.find('uid1')) == (1, None)


@pytest.mark.parametrize(
    'listed, expected',
    [
        pytest.param('8', '9', id='older'),
        pytest.param(None, '9', id='unknown'),
        pytest.param('9', None, id='same'),
        pytest.param('10', None, id='newer'),
    ],
)
@pytest.mark.parametrize('is_known', [True, False], ids=['changed', 'created'])
def test_only_lists_that_are_not_older_remove_written_objects(store, is_known, listed, expected):
    if is_known:
        store.put('ADDED', build_body('x', 'uid', '7'))
    store.note_written(build_body('x', 'uid', '9'))

    if is_known:
        store.put('DELETED', build_body('x', 'uid', None))  # deduced from the list
    changes = store.note_listed(None, listed)

    assert get_version(store) == expected
    assert [describe(change) for change in changes] == (
        [] if expected else [('9', None, Effect.CHANGED)]
    )


def test_lists_of_one_namespace_say_nothing_of_others(clock):
    store = stores.Store(CHILDREN, clock=clock)
    for namespace in ('ns', 'other'):
        store.serve(namespace)
        store.note_written(build_body('x', 'uid-' + namespace, '9', namespace=namespace))

    store.note_listed('ns', '10')

    assert store.get('ns', 'x') is None
    assert store.get('other', 'x') is not None


def test_writes_beyond_the_served_namespaces_are_not_kept(clock):
    store = stores.Store(CHILDREN, clock=clock)
    store.serve('ns')

    change = store.note_written(build_body('x', 'uid', '9', namespace='other'))

    assert describe(change) == (None, None, Effect.NOTHING)
    assert len(store) == 0


def test_own_deletion_is_seen_at_once_and_older_states_do_not_undo_it(store):
    store.put('ADDED', build_body('x', 'uid', '1', owner='a'))

    change = store.note_deleted('ns', 'x', 'uid')
    late = store.put('MODIFIED', build_body('x', 'uid', '2', owner='a'))
    gone = store.list_owned('a')
    echo = store.put('DELETED', build_body('x', 'uid', '3'))

    assert describe(change) == ('1', None, Effect.CHANGED)
    assert describe(late) == (None, None, Effect.ECHO)
    assert gone == []
    assert not echo.is_news


def test_own_deletion_does_not_hide_a_namesake(store):
    store.put('ADDED', build_body('x', 'uid1', '1'))
    store.note_deleted('ns', 'x')

    store.put('ADDED', build_body('x', 'uid2', '3'))
    store.put('DELETED', build_body('x', 'uid1', '2'))

    assert store.get('ns', 'x')['metadata']['uid'] == 'uid2'


@pytest.mark.parametrize('uid, name', [('other', 'x'), (None, 'y')])
def test_deletions_of_unknown_objects_are_ignored(store, uid, name):
    store.put('ADDED', build_body('x', 'uid', '1'))

    assert describe(store.note_deleted('ns', name, uid)) == (None, None, Effect.NOTHING)
    assert get_version(store) == '1'


def test_object_deleted_and_created_by_us_is_seen_through_all_echoes(store):
    store.put('ADDED', build_body('x', 'uid1', '1'))
    store.note_deleted('ns', 'x', 'uid1')
    store.note_written(build_body('x', 'uid2', '5'))

    for type, uid, version in [('MODIFIED', 'uid1', '2'), ('DELETED', 'uid1', '3')]:
        store.put(type, build_body('x', uid, version))
        assert store.get('ns', 'x')['metadata']['uid'] == 'uid2'
    echo = store.put('ADDED', build_body('x', 'uid2', '5'))

    assert echo.is_echo


# Time.


@pytest.mark.parametrize(
    'seconds, expected', [pytest.param(4.9, 'b', id='early'), pytest.param(5, 'a', id='late')]
)
def test_opaque_versions_are_trusted_for_a_limited_time(store, clock, seconds, expected):
    store.note_written(build_body('x', 'uid', 'b'))

    clock.now += seconds
    store.put('MODIFIED', build_body('x', 'uid', 'a'))

    assert get_version(store) == expected


def test_contradicted_writes_of_opaque_versions_expire(store, clock):
    store.put('ADDED', build_body('x', 'uid', 'a'))
    store.note_written(build_body('x', 'uid', 'b'))
    store.put('MODIFIED', build_body('x', 'uid', 'c'))

    early = store.expire()
    clock.now += 5
    late = store.expire()

    assert early == []
    assert [describe(change) for change in late] == [('b', 'c', Effect.CHANGED)]
    assert get_version(store) == 'c'
    assert store.expire() == []


def test_writes_do_not_expire_while_the_stream_is_silent(store, clock):
    store.put('ADDED', build_body('x', 'uid', 'a'))
    store.note_written(build_body('x', 'uid', 'b'))
    store.note_written(build_body('y', 'uid2', '5'))

    clock.now += 10_000

    assert store.expire() == []
    assert (get_version(store), get_version(store, 'y')) == ('b', '5')


def test_opaque_echo_and_opaque_deletion_are_recognised(store):
    store.note_written(build_body('x', 'uid', 'b'))
    store.note_written(build_body('y', 'uid2', 'c'))

    echo = store.put('MODIFIED', build_body('x', 'uid', 'b'))
    deletion = store.put('DELETED', build_body('y', 'uid2', 'd'))

    assert echo.is_echo
    assert describe(deletion) == ('c', None, Effect.CHANGED)


def test_deletion_that_has_not_happened_expires(store, clock):
    store.put('ADDED', build_body('x', 'uid', '1'))
    store.note_deleted('ns', 'x')
    store.put('MODIFIED', build_body('x', 'uid', '2'))

    clock.now += 5
    changes = store.expire()

    assert [describe(change) for change in changes] == [(None, '2', Effect.CHANGED)]


def test_lower_versions_are_believed_at_last(store, clock):
    store.note_written(build_body('x', 'uid', '100'))

    clock.now += 599
    store.put('MODIFIED', build_body('x', 'uid', '50'))
    before = get_version(store)
    clock.now += 1
    store.put('MODIFIED', build_body('x', 'uid', '51'))

    assert (before, get_version(store)) == ('100', '51')


def test_created_object_that_the_stream_does_not_select_expires_when_it_is_passed(store, clock):
    store.note_written(build_body('x', 'uid', '5'))

    store.put('ADDED', build_body('y', 'uid2', '4'))
    clock.now += 5
    early = store.expire()
    store.put('MODIFIED', build_body('y', 'uid2', '6'))
    late = store.expire()

    assert early == []
    assert [describe(change) for change in late] == [('5', None, Effect.CHANGED)]


# Streams.


async def wait_briefly(store):
    waiting = asyncio.ensure_future(store.wait_until_synced())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    is_over = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return is_over


async def test_store_is_synced_when_all_served_namespaces_are_listed():
    store = stores.Store(CHILDREN)
    unserved = store.is_synced, await wait_briefly(store)

    store.serve('a')
    store.serve('b')
    store.note_listed('a')
    partial = store.is_synced, await wait_briefly(store)
    listed = store.is_listed('a'), store.is_listed('b')
    store.note_listed('b')
    full = store.is_synced, await wait_briefly(store)
    store.serve('a')  # e.g. after a pause

    assert unserved == full == (True, True)
    assert partial == (False, False)
    assert listed == (True, False)
    assert store.is_synced


def test_unlisted_namespace_that_is_dropped_is_not_waited_for():
    store = stores.Store(CHILDREN)
    store.serve('a')

    store.drop('a')

    assert store.is_synced


def test_dropped_namespace_leaves_nothing(clock):
    store = stores.Store(CHILDREN, clock=clock)
    for namespace in ('a', 'b'):
        store.serve(namespace)
        store.put('ADDED', build_body('x', f'uid-{namespace}', '1', namespace=namespace, owner='p'))
    store.note_written(build_body('y', 'uid-y', '2', namespace='a'))

    changes = store.drop('a')

    assert {(change.old.name, change.new) for change in changes} == {('x', None), ('y', None)}
    assert [body['metadata']['namespace'] for body in store.list_owned('p')] == ['b']
    assert list(store.iter('a')) == []
    store.drop(None)
    assert (len(store), store.size, store.is_synced, store.is_served('b')) == (0, 0, True, False)


# All resources.


def test_stores_are_only_of_added_resources(clock):
    all_stores = stores.Stores(clock=clock)
    store = all_stores.add(CHILDREN)

    assert all_stores.add(CHILDREN) is all_stores.get(CHILDREN) is store
    assert all_stores.get(PARENTS) is None
    assert [*all_stores] == [store]
    assert (CHILDREN in all_stores, PARENTS in all_stores, len(all_stores)) == (True, False, 1)


def test_all_stores_expire_at_once(clock):
    all_stores = stores.Stores(timeout=1, clock=clock)
    for resource in (CHILDREN, SECRETS):
        store = all_stores.add(resource)
        store.serve(None)
        store.note_written(build_body('x', 'uid', 'a'))
        store.put('MODIFIED', build_body('x', 'uid', 'b'))

    clock.now += 1
    expired = all_stores.expire()

    assert [(resource, change.new.version) for resource, change in expired] == [
        (CHILDREN, 'b'),
        (SECRETS, 'b'),
    ]


def test_values_are_not_shown(clock):
    all_stores = stores.Stores(clock=clock)
    store = all_stores.add(SECRETS)
    change = store.put('ADDED', build_body('x', 'uid', '1', kind='Secret', data={'k': 'cGFzcw=='}))

    texts = [repr(all_stores), repr(store), repr(change), repr(change.new)]

    assert 'ns/x' in texts[2]
    assert not any('cGFz' in text for text in texts)


def test_many_objects_take_little_memory():
    store = stores.Store(CHILDREN)
    total = 5_000
    tracemalloc.start()
    try:
        for number in range(total):
            spec = {'items': [{'name': f'item-{number}-{n}', 'note': 'y' * 90} for n in range(10)]}
            store.put(None, build_body(f'x{number}', f'uid{number}', str(number), spec=spec))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(store) == total
    assert taken / total < 1_000


def test_equal_texts_are_kept_once(store):
    def put(type, name, version):
        body = build_body(name, f'uid-{name}', version, owner='p')
        store.put(type, json.loads(json.dumps(body)))  # none of the texts is shared
        return store.get_entry('ns', name)

    former = [put('ADDED', name, '1') for name in ('a1', 'b1')]
    latter = [put('MODIFIED', name, '2') for name in ('a1', 'b1')]

    for old, new in zip(former, latter, strict=True):
        assert new.uid is old.uid
        assert new.name is old.name
    assert latter[0].namespace is latter[1].namespace
    assert latter[0].owners is latter[1].owners
