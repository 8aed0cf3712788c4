"""
Inventory: memories of objects, one for each, as long as the objects exist.
"""

import copy

import pytest

import kopf
from kopf._cogs.structs import objects
from kopf._core.reactor import inventory


def build_body(uid='uid1', **metadata):
    return {
        'apiVersion': 'kopf.dev/v1',
        'kind': 'KopfExample',
        'metadata': {'name': 'obj', 'uid': uid, **metadata},
    }


@pytest.mark.parametrize(
    'body, expected',
    [
        pytest.param(build_body('uid1'), 'uid1', id='uid'),
        pytest.param(build_body('uid1', resourceVersion='5'), 'uid1', id='any-version'),
        pytest.param(
            build_body(None, namespace='ns'), 'kopf.dev/v1/KopfExample/ns/obj', id='no-uid'
        ),
        pytest.param(build_body(''), 'kopf.dev/v1/KopfExample//obj', id='no-namespace'),
        pytest.param({'metadata': None}, '///', id='null-metadata'),
        pytest.param({}, '///', id='nothing'),
    ],
)
def test_object_is_identified(body, expected):
    assert inventory.identify(body) == expected
    assert inventory.identify(objects.Body(body)) == expected


def test_same_object_has_the_same_memory():
    memories = inventory.Memories()

    one = memories.recall(build_body('uid1', resourceVersion='1'), memo=kopf.Memo())
    two = memories.recall(build_body('uid1', resourceVersion='2'), memo=kopf.Memo())

    assert one is two
    assert list(memories) == [one]


def test_object_created_anew_under_the_same_name_has_another_memory():
    memories = inventory.Memories()

    one = memories.recall(build_body('uid1'), memo=kopf.Memo())
    two = memories.recall(build_body('uid2'), memo=kopf.Memo())

    assert one is not two
    assert len(memories) == 2


@pytest.mark.guarantee('EMB-006', 'STA-009')
def test_memo_of_the_operator_is_shallow_copied_for_each_object():
    memories = inventory.Memories()
    memo = kopf.Memo(shared=[], own='of the operator')

    one = memories.recall(build_body('uid1'), memo=memo).memo
    two = memories.recall(build_body('uid2'), memo=memo).memo
    one.own = 'of one'

    assert isinstance(one, kopf.Memo)
    assert (memo.own, two.own) == ('of the operator', 'of the operator')
    assert one.shared is two.shared is memo.shared


@pytest.mark.guarantee('EMB-006')
def test_memo_can_be_of_any_class_that_can_be_copied():
    class MyMemo:
        def __copy__(self):
            copied.append(self)
            return MyMemo()

    copied, memo = [], MyMemo()
    memory = inventory.Memories().recall(build_body(), memo=memo)

    assert copied == [memo]
    assert isinstance(memory.memo, MyMemo)
    assert memory.memo is not memo


def test_memory_knows_if_the_object_existed_before_the_operator():
    memories = inventory.Memories()
    old = memories.recall(build_body('old'), memo=None, is_initial=True)
    new = memories.recall(build_body('new'), memo=None)

    assert (old.cycle.is_initial, new.cycle.is_initial) == (True, False)
    assert memories.recall(build_body('old'), memo=None).cycle.is_initial
    assert not memories.recall(build_body('new'), memo=None, is_initial=True).cycle.is_initial


def test_forgotten_object_is_remembered_anew():
    memories = inventory.Memories()
    before = memories.recall(build_body(), memo=kopf.Memo())

    memories.forget(build_body())
    assert len(memories) == 0
    after = memories.recall(build_body(), memo=kopf.Memo())

    assert after is not before


def test_unknown_objects_can_be_forgotten():
    memories = inventory.Memories()
    memories.recall(build_body('uid1'), memo=None)

    memories.forget(build_body('uid2'))
    memories.forget_key(inventory.Key('uid3'))

    assert len(memories) == 1


def test_object_is_forgotten_by_its_key():
    memories = inventory.Memories()
    memories.recall(build_body('uid1'), memo=None)

    memories.forget_key(inventory.identify(build_body('uid1')))

    assert len(memories) == 0


def test_failed_copying_of_the_memo_leaves_no_memory():
    class Uncopiable:
        def __copy__(self):
            raise copy.Error

    memories = inventory.Memories()

    with pytest.raises(copy.Error):
        memories.recall(build_body(), memo=Uncopiable())

    assert len(memories) == 0


# What our own changes have made of the objects.


def expecting(version, *, is_known=True):
    memory = inventory.Memory(None)
    memory.expect(version, 100.0, build_body(resourceVersion=version) if is_known else None)
    return memory


def choose(memory, version, **kwargs):
    kwargs = {'now': 50.0, 'is_new': True, **kwargs}
    return memory.choose_newest(build_body(resourceVersion=version), **kwargs)['metadata'][
        'resourceVersion'
    ]


@pytest.mark.guarantee('NEW-089', 'NEW-091', 'NEW-092')
@pytest.mark.parametrize(
    'version, awaited, kwargs, expected',
    [
        pytest.param('5', '5', {}, '5', id='own-change-has-come'),
        pytest.param('6', '5', {}, '6', id='newer-state-has-come'),
        pytest.param('4', '5', {}, '5', id='older-state-has-come'),
        pytest.param('4', '5', {'now': 150.0}, '5', id='older-state-is-late'),
        pytest.param('4', '5', {'now': 1000.0}, '4', id='cluster-is-restored'),
        pytest.param('4', '5', {'is_new': False}, '5', id='nothing-has-come'),
        pytest.param(
            '4', '5', {'is_new': False, 'now': 9999.0}, '5', id='nothing-has-come-for-long'
        ),
        pytest.param(
            'abc', 'def', {'is_new': False}, 'def', id='nothing-has-come-of-unclear-versions'
        ),
        pytest.param('abc', 'def', {}, 'abc', id='unclear-what-is-newer'),
        pytest.param(None, '5', {}, None, id='no-version'),
    ],
)
def test_newest_state_is_chosen(version, awaited, kwargs, expected):
    assert choose(expecting(awaited), version, **kwargs) == expected


def test_state_that_came_when_it_was_unclear_what_is_newer_is_kept():
    memory = expecting('def')
    choose(memory, 'abc')

    assert choose(memory, 'abc', is_new=False) == 'abc'


def test_state_that_came_too_late_is_believed_when_our_own_change_is_given_up():
    memory = expecting('5')
    chosen = [
        choose(memory, '4', now=150.0),
        choose(memory, '4', is_new=False, now=200.0),
        choose(memory, '4', is_new=False, now=701.0),
    ]

    assert chosen == ['5', '5', '4']
    assert memory.awaited is None


@pytest.mark.parametrize(
    'version, now, expected',
    [
        pytest.param('4', 50.0, None, id='own-change-is-still-expected'),
        pytest.param('4', 150.0, 550.0, id='own-change-is-late'),
        pytest.param('4', 699.0, 1.0, id='own-change-is-very-late'),
        pytest.param('5', 150.0, None, id='own-change-has-come'),
        pytest.param('6', 150.0, None, id='newer-state-has-come'),
    ],
)
def test_objects_that_are_not_believed_are_looked_at_again_later(version, now, expected):
    memory, body = expecting('5'), build_body(resourceVersion=version)
    known = memory.choose_newest(body, is_new=True, now=now)

    assert memory.measure_mistrust(body, known, now=now) == expected


def test_nothing_is_kept_of_our_own_changes_when_they_have_come():
    memory = expecting('5')
    choose(memory, '5')

    assert memory.awaited is None


def test_nothing_is_chosen_from_if_the_result_of_our_own_change_is_unknown():
    assert choose(expecting('5', is_known=False), '4') == '4'


@pytest.mark.parametrize(
    'first, second, expected',
    [
        pytest.param('5', '6', '6', id='newer-later'),
        pytest.param('6', '5', '6', id='older-later'),
    ],
)
def test_newest_of_our_own_changes_is_expected(first, second, expected):
    memory = expecting(first)
    memory.expect(second, 100.0, build_body(resourceVersion=second))

    assert choose(memory, '4') == expected
