"""
Cycles: what has happened to an object, and what is handled when.
"""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._cogs.structs import dicts, ids
from kopf._core.actions import progression
from kopf._core.intents import reasons
from kopf._core.reactor import cycles

Reason = reasons.Reason

OLD, NEW = (cycles.seal({'spec': {'x': x}}) for x in (1, 2))

JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ESSENCES = st.dictionaries(st.text(), JSONS, max_size=4)


def state(essence=None, *, success=True, failure=False, subrefs=()):
    digest = None if essence is None else essence.digest
    return progression.HandlerState(
        success=success,
        failure=failure,
        essence=digest,
        subrefs=frozenset(map(ids.HandlerId, subrefs)),
        retries=1,
    )


UNFINISHED = state(success=False)
BLANK = progression.HandlerState()


# Snapshots.


@given(ESSENCES)
def test_snapshot_is_read_as_it_was_stored(essence):
    sealed = cycles.seal(essence)

    assert cycles.unseal(sealed.text) == sealed
    assert sealed.value == essence


def test_snapshot_does_not_depend_on_the_order_of_keys():
    one = cycles.seal({'spec': {'a': 1, 'b': {'c': 2, 'd': 3}}, 'metadata': {}})
    two = cycles.seal({'metadata': {}, 'spec': {'b': {'d': 3, 'c': 2}, 'a': 1}})

    assert one == two


def test_snapshot_is_read_whatever_the_notation():
    sealed = cycles.seal({'spec': {'имя': '☃'}})

    assert cycles.unseal('{ "spec" : {"имя": "☃"} }\n') == sealed


@pytest.mark.parametrize(
    'one, two',
    [
        pytest.param({'a': 1}, {'a': 2}, id='values'),
        pytest.param({'a': 1}, {'b': 1}, id='keys'),
        pytest.param({'a': [1, 2]}, {'a': [2, 1]}, id='order-of-items'),
        pytest.param({'a': 1}, {'a': '1'}, id='types'),
        pytest.param({'a': True}, {'a': 1}, id='booleans'),
        pytest.param({'a': None}, {}, id='nulls'),
        pytest.param({'a': 'é'}, {'a': 'e\u0301'}, id='unicode-forms'),
    ],
)
def test_snapshots_of_different_essences_differ(one, two):
    assert cycles.seal(one) != cycles.seal(two)
    assert cycles.seal(one).digest != cycles.seal(two).digest


def test_snapshot_does_not_change_with_the_object():
    essence = {'spec': {'x': 1}}
    sealed = cycles.seal(essence)

    essence['spec']['x'] = 2

    assert sealed.value == {'spec': {'x': 1}}


def test_snapshot_is_plain_ascii_of_one_line():
    text = cycles.seal({'spec': {'x': 'ы\n'}}).text

    assert text.isascii()
    assert '\n' not in text
    assert json.loads(text) == {'spec': {'x': 'ы\n'}}


@pytest.mark.parametrize(
    'garbage',
    [
        None,
        '',
        ' ',
        '{',
        'null',
        '[]',
        '5',
        '"text"',
        '{"a": NaN}',
        'an error of the handler',
        5,
        True,
        {},
        ['a'],
    ],
    ids=repr,
)
def test_garbage_is_not_a_snapshot(garbage):
    assert cycles.unseal(garbage) is None


# Conclusions.

Conclusion = cycles.Conclusion


@pytest.mark.parametrize(
    'states, base, expected',
    [
        pytest.param({}, None, Conclusion(handled=NEW), id='no-handlers'),
        pytest.param(
            {'a': state(NEW), 'b': state(NEW)}, None, Conclusion(handled=NEW), id='all-finished'
        ),
        pytest.param(
            {'a': state(NEW, success=False, failure=True)},
            None,
            Conclusion(handled=NEW),
            id='all-failed',
        ),
        pytest.param(
            {'a': state(None)}, None, Conclusion(handled=NEW), id='finished-with-the-unknown'
        ),
        pytest.param({'a': BLANK, 'b': BLANK}, None, Conclusion(), id='nothing-begun'),
        pytest.param(
            {'a': state(NEW), 'b': BLANK}, None, Conclusion(base=NEW), id='first-finished'
        ),
        pytest.param(
            {'a': state(OLD), 'b': UNFINISHED},
            OLD,
            Conclusion(base=OLD),
            id='first-finished-before-the-change',
        ),
        pytest.param(
            {'a': state(OLD), 'b': UNFINISHED}, None, Conclusion(base=NEW), id='base-is-lost'
        ),
        pytest.param(
            {'a': state(OLD), 'b': state(NEW)},
            OLD,
            Conclusion(handled=OLD, base=NEW, kept=frozenset({'b'})),
            id='changed-in-mid-cycle',
        ),
        pytest.param(
            {'a': state(OLD), 'b': state(NEW), 'c': state(None)},
            OLD,
            Conclusion(handled=OLD, base=NEW, kept=frozenset({'b'})),
            id='changed-in-mid-cycle-of-other-versions',
        ),
        pytest.param(
            {'a': state(OLD), 'b': state(NEW)},
            None,
            Conclusion(handled=NEW),
            id='changed-but-base-is-lost',
        ),
        pytest.param(
            {'a': state(NEW), 'b': state(NEW)},
            OLD,
            Conclusion(handled=NEW),
            id='all-have-seen-the-newest',
        ),
        pytest.param(
            {'a': state(NEW, subrefs=['a/b']), 'a/b': state(OLD), 'c': state(NEW)},
            OLD,
            Conclusion(handled=OLD, base=NEW, kept=frozenset({'c'})),
            id='sub-handlers',
        ),
        pytest.param(
            {'a': state(OLD)}, OLD, Conclusion(handled=OLD), id='nobody-has-seen-the-newest'
        ),
    ],
)
def test_conclusion_for_all_handlers(states, base, expected):
    selected = [id for id in states if '/' not in id]

    assert cycles.conclude(states, selected, NEW, base) == expected


@pytest.mark.guarantee('FND-013')
@pytest.mark.parametrize(
    'reason, states, base, expected',
    [
        pytest.param(Reason.UPDATE, {'a': UNFINISHED}, None, NEW, id='tried'),
        pytest.param(
            Reason.UPDATE, {'a': UNFINISHED, 'b': BLANK}, None, NEW, id='one-of-them-tried'
        ),
        pytest.param(
            Reason.UPDATE, {'a': UNFINISHED}, OLD, NEW, id='tried-again-with-another-change'
        ),
        pytest.param(
            Reason.UPDATE,
            {'a': UNFINISHED, 'b': state(OLD)},
            OLD,
            OLD,
            id='finished-by-others-before',
        ),
        pytest.param(Reason.UPDATE, {'a': BLANK}, None, None, id='never-tried'),
        pytest.param(
            Reason.CREATE, {'a': UNFINISHED}, None, None, id='creations-cannot-be-taken-back'
        ),
        pytest.param(Reason.RESUME, {'a': UNFINISHED}, None, None, id='resuming-changes-nothing'),
    ],
)
def test_updates_that_were_tried_are_remembered_until_they_are_handled(
    reason, states, base, expected
):
    conclusion = cycles.conclude(states, ['a'], NEW, base, reason=reason)

    assert conclusion == Conclusion(base=expected)


def test_handlers_that_are_not_selected_are_not_waited_for():
    conclusion = cycles.conclude({'a': state(NEW), 'b': UNFINISHED}, ['a'], NEW)

    assert conclusion == Conclusion(handled=NEW)


def test_handlers_that_are_selected_but_unknown_are_waited_for():
    conclusion = cycles.conclude({'a': state(NEW)}, ['a', 'b'], NEW)

    assert conclusion == Conclusion(base=NEW)


@pytest.mark.parametrize(
    'reason, base, expected',
    [
        pytest.param(Reason.NOOP, OLD, True, id='seen'),
        pytest.param(Reason.RESUME, OLD, True, id='seen-before-the-start'),
        pytest.param(Reason.NOOP, None, False, id='not-seen'),
        pytest.param(Reason.NOOP, NEW, False, id='still-there'),
        pytest.param(Reason.UPDATE, OLD, False, id='replaced-by-another-change'),
        pytest.param(Reason.CREATE, OLD, False, id='created'),
        pytest.param(Reason.DELETE, OLD, False, id='deleted'),
    ],
)
def test_change_is_taken_back_if_somebody_has_seen_it_and_it_is_not_there(reason, base, expected):
    assert cycles.is_taken_back(reason, NEW, base) is expected


@pytest.mark.parametrize(
    'states, expected',
    [
        pytest.param({}, set(), id='none'),
        pytest.param({'a': state(NEW)}, set(), id='newest'),
        pytest.param({'a': state(OLD)}, {'a'}, id='older'),
        pytest.param({'a': state(OLD, success=False, failure=True)}, {'a'}, id='older-failed'),
        pytest.param({'a': state(OLD, success=False)}, set(), id='unfinished'),
        pytest.param({'a': state(None)}, set(), id='unknown'),
        pytest.param(
            {'a': state(NEW, subrefs=['a/b']), 'a/b': state(OLD)}, {'a', 'a/b'}, id='older-child'
        ),
        pytest.param(
            {'a': state(OLD, subrefs=['a/b']), 'a/b': state(NEW)}, {'a'}, id='older-parent'
        ),
        pytest.param(
            {
                'a': state(NEW, subrefs=['a/b']),
                'a/b': state(NEW, subrefs=['a/b/c']),
                'a/b/c': state(OLD),
            },
            {'a', 'a/b', 'a/b/c'},
            id='older-grandchild',
        ),
        pytest.param(
            {'a': state(NEW, subrefs=['a']), 'b': state(NEW, subrefs=['absent'])},
            set(),
            id='odd-references',
        ),
    ],
)
def test_handlers_finished_with_another_essence_are_found(states, expected):
    assert cycles.find_outdated(states, NEW) == expected


# Echoes.


@pytest.mark.parametrize(
    'version, awaited, expected',
    [
        pytest.param('100', '100', True, id='same'),
        pytest.param('101', '100', True, id='newer'),
        pytest.param('99', '100', False, id='older'),
        pytest.param('1000', '999', True, id='newer-and-longer'),
        pytest.param('999', '1000', False, id='older-and-shorter'),
        pytest.param(None, '100', False, id='absent'),
        pytest.param('', '100', False, id='empty'),
        pytest.param('abc', 'abc', True, id='same-text'),
        pytest.param('abd', 'abc', False, id='other-text'),
        pytest.param('101', 'abc', False, id='awaited-text'),
        pytest.param('abc', '100', False, id='unexpected-text'),
        pytest.param('1.5', '1', False, id='not-an-integer'),
        pytest.param('-5', '1', False, id='negative'),
    ],
)
def test_echo_is_recognised_by_its_version(version, awaited, expected):
    assert cycles.is_echo(version, awaited) is expected


@pytest.mark.parametrize(
    'change, expected',
    [
        pytest.param({}, True, id='nothing'),
        pytest.param(
            {'metadata.resourceVersion': '2', 'metadata.managedFields': [{}]}, True, id='versions'
        ),
        pytest.param({'metadata.annotations.ours': 'new'}, True, id='our-annotation'),
        pytest.param({'metadata.annotations.theirs': 'new'}, False, id='other-annotation'),
        pytest.param({'metadata.labels.a': 'new'}, False, id='label'),
        pytest.param({'metadata.finalizers': ['f', 'g']}, False, id='finalizer'),
        pytest.param({'metadata.deletionTimestamp': '2020-01-01T00:00:00Z'}, False, id='deletion'),
        pytest.param({'spec.x': 2}, False, id='spec'),
        pytest.param({'spec.x': True}, False, id='true-is-not-one'),
        pytest.param({'status.x': 1}, False, id='status'),
        pytest.param({'data': {'x': 1}}, False, id='another-stanza'),
    ],
)
def test_our_annotations_are_told_from_all_other_changes(change, expected):
    before = {
        'kind': 'X',
        'spec': {'x': 1},
        'metadata': {
            'name': 'x',
            'resourceVersion': '1',
            'labels': {'a': 'b'},
            'annotations': {'theirs': 'y'},
            'finalizers': ['f'],
        },
    }
    after = copy.deepcopy(before)
    for path, value in change.items():
        dicts.ensure(after, tuple(path.split('.')), value)

    assert cycles.is_only_annotated(before, after, {'ours'}) is expected
