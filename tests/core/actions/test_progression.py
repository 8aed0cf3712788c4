import datetime
import json

import pytest

from kopf._cogs.configs import progress
from kopf._cogs.structs import objects, patches
from kopf._core.actions import failures, outcomes, progression

T0 = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
PREFIX = 'kopf.zalando.org'


def after(seconds):
    return T0 + datetime.timedelta(seconds=seconds)


def build_body(**records):
    annotations = {
        f'{PREFIX}/{key.replace("__", ".")}': json.dumps(record) for key, record in records.items()
    }
    return objects.Body({'metadata': {'name': 'x', 'annotations': annotations}})


def read_patch(patch):
    annotations = patch.get('metadata', {}).get('annotations', {})
    return {
        key.removeprefix(f'{PREFIX}/'): json.loads(value) if value is not None else None
        for key, value in annotations.items()
    }


@pytest.fixture
def storage():
    return progress.AnnotationsProgressStorage()


def stamp(seconds):
    return after(seconds).isoformat(timespec='microseconds')


RETRYING = {
    'started': stamp(0),
    'delayed': stamp(10),
    'purpose': 'create',
    'retries': 2,
    'success': False,
    'failure': False,
    'message': 'later',
}
SUCCEEDED = {
    'started': stamp(0),
    'stopped': stamp(1),
    'purpose': 'create',
    'retries': 1,
    'success': True,
    'failure': False,
}
FAILED = {**SUCCEEDED, 'success': False, 'failure': True, 'message': 'no way'}


@pytest.mark.guarantee('NEW-116', 'NEW-117')
def test_record_has_the_promised_keys_and_formats():
    state = progression.HandlerState().with_outcome(
        outcomes.Outcome(
            final=False, delay=100, exception=ValueError('later'), began=T0, ended=after(0.5)
        ),
        now=after(2),
    )

    assert state.as_record() == {
        'started': '2026-11-15T12:00:00.000000+00:00',
        'stopped': None,
        'delayed': '2026-11-15T12:01:40.500000+00:00',
        'purpose': None,
        'retries': 1,
        'success': False,
        'failure': False,
        'message': 'later',
        'subrefs': None,
    }


@pytest.mark.guarantee('NEW-116', 'NEW-117', 'ERR-001')
def test_stored_annotation_is_as_compact_as_promised(storage):
    body, patch = build_body(), patches.Patch()
    state = progression.State.read(storage, body, ['fn'], purpose='create').with_outcomes(
        {
            'fn': outcomes.Outcome(
                final=False,
                delay=100,
                exception=failures.TemporaryError('later'),
                began=T0,
                ended=T0,
            ),
        },
        now=T0,
    )

    state.store(storage, body, patch)

    assert patch == {
        'metadata': {
            'annotations': {
                f'{PREFIX}/fn': (
                    '{"started":"2026-11-15T12:00:00.000000+00:00","delayed":"2026-11-15T12:01:40.000000+00:00",'
                    '"purpose":"create","retries":1,"success":false,"failure":false,"message":"later"}'
                )
            }
        }
    }


@pytest.mark.parametrize(
    'record',
    [
        pytest.param(RETRYING, id='retrying'),
        pytest.param(SUCCEEDED, id='succeeded'),
        pytest.param({**SUCCEEDED, 'essence': 'abc'}, id='succeeded-with-essence'),
        pytest.param(FAILED, id='failed'),
        pytest.param({**RETRYING, 'message': 'None', 'subrefs': ['fn/a', 'fn/b']}, id='parent'),
    ],
)
def test_records_survive_reading_and_writing(record):
    written = progression.HandlerState.from_record(record).as_record()

    assert {key: value for key, value in written.items() if value is not None} == record


@pytest.mark.parametrize(
    'text, expected',
    [
        pytest.param('2026-11-15T12:00:00.000000+00:00', T0, id='usual'),
        pytest.param('2026-11-15T12:00:00.000000', T0, id='naive-is-utc'),
        pytest.param('2026-11-15T12:00:00', T0, id='naive-with-seconds'),
        pytest.param('2026-11-15T12:00:00Z', T0, id='zulu'),
        pytest.param('2026-11-15T13:30:00+01:30', T0, id='other-offset'),
        pytest.param('yesterday', None, id='garbage'),
        pytest.param('0001-01-01T00:00:00+14:00', None, id='out-of-range'),
        pytest.param('', None, id='empty'),
        pytest.param(None, None, id='null'),
        pytest.param(12345, None, id='number'),
        pytest.param({}, None, id='dict'),
    ],
)
def test_moments_are_read_in_all_forms(text, expected):
    state = progression.HandlerState.from_record(
        {'started': text, 'delayed': text, 'stopped': text}
    )

    assert (state.started, state.delayed, state.stopped) == (expected, expected, expected)


@pytest.mark.parametrize(
    'record',
    [
        pytest.param({}, id='empty'),
        pytest.param(
            {
                'retries': 'many',
                'success': 'yes',
                'failure': 1,
                'message': 5,
                'subrefs': 'fn/a',
                'purpose': [],
            },
            id='wrong-types',
        ),
        pytest.param({'retries': -1, 'subrefs': [None, 5]}, id='wrong-values'),
        pytest.param({'retries': True}, id='boolean-count'),
    ],
)
def test_damaged_records_are_as_absent(record):
    assert progression.HandlerState.from_record(record) == progression.HandlerState()


@pytest.mark.parametrize(
    'record, now, finished, sleeping, due',
    [
        pytest.param({}, T0, False, False, True, id='blank'),
        pytest.param(RETRYING, after(9.9), False, True, False, id='too-early'),
        pytest.param(RETRYING, after(10), False, False, True, id='in-time'),
        pytest.param({**RETRYING, 'delayed': None}, after(0), False, False, True, id='no-delay'),
        pytest.param(SUCCEEDED, after(100), True, False, False, id='succeeded'),
        pytest.param(FAILED, after(100), True, False, False, id='failed'),
        pytest.param(
            {**SUCCEEDED, 'delayed': stamp(10)},
            after(0),
            True,
            False,
            False,
            id='finished-and-delayed',
        ),
    ],
)
def test_state_tells_if_the_handler_is_due(record, now, finished, sleeping, due):
    state = progression.HandlerState.from_record(record)

    assert (state.finished, state.sleeping(now), state.due(now)) == (finished, sleeping, due)


@pytest.mark.guarantee('ERR-001', 'ERR-002')
@pytest.mark.parametrize(
    'outcome, expected',
    [
        pytest.param(
            outcomes.Outcome(final=True), {'success': True, 'stopped': after(5)}, id='success'
        ),
        pytest.param(
            outcomes.Outcome(final=True, result=123),
            {'success': True, 'stopped': after(5)},
            id='result',
        ),
        pytest.param(
            outcomes.Outcome(final=True, exception=failures.PermanentError('no')),
            {'failure': True, 'stopped': after(5), 'message': 'no'},
            id='failure',
        ),
        pytest.param(
            outcomes.Outcome(final=False, delay=7, exception=ValueError('boo')),
            {'delayed': after(12), 'message': 'boo'},
            id='retry',
        ),
        pytest.param(
            outcomes.Outcome(final=False, delay=7, exception=ValueError()),
            {'delayed': after(12), 'message': 'ValueError'},
            id='retry-with-no-text',
        ),
        pytest.param(
            outcomes.Outcome(final=False, delay=0, exception=ValueError('boo')),
            {'message': 'boo'},
            id='zero',
        ),
        pytest.param(
            outcomes.Outcome(final=False, exception=ValueError('boo')),
            {'message': 'boo'},
            id='at-once',
        ),
        pytest.param(
            outcomes.Outcome(final=False, delay=float('inf'), exception=ValueError('boo')),
            {'message': 'boo', 'delayed': datetime.datetime.max.replace(tzinfo=datetime.UTC)},
            id='never',
        ),
    ],
)
def test_first_attempt_is_recorded(outcome, expected):
    state = progression.HandlerState().with_outcome(outcome, now=after(5))

    assert state == progression.HandlerState(started=after(5), retries=1, **expected)


@pytest.mark.parametrize(
    'length, expected',
    [
        pytest.param(2048, 'x' * 2048, id='fits'),
        pytest.param(2049, 'x' * 2047 + '…', id='too-long'),
        pytest.param(1_000_000, 'x' * 2047 + '…', id='huge'),
    ],
)
def test_long_errors_are_cut_for_the_object_to_be_accepted_by_the_cluster(length, expected):
    outcome = outcomes.Outcome(final=False, exception=ValueError('x' * length))

    state = progression.HandlerState().with_outcome(outcome, now=T0)

    assert state.message == expected


@pytest.mark.guarantee('ERR-024', 'KWA-014')
def test_next_attempts_are_added_to_the_first_one():
    state = progression.HandlerState.from_record(RETRYING)

    state = state.with_outcome(
        outcomes.Outcome(final=True, began=after(11), ended=after(12)), now=after(15)
    )

    assert (state.started, state.stopped, state.delayed) == (T0, after(12), None)
    assert (state.retries, state.success, state.message) == (3, True, None)


def test_the_delay_is_counted_from_the_end_of_the_attempt():
    outcome = outcomes.Outcome(final=False, delay=10, began=after(0), ended=after(3))

    state = progression.HandlerState().with_outcome(outcome, now=after(60))

    assert (state.started, state.delayed) == (after(0), after(13))


@pytest.mark.parametrize(
    'record',
    [
        pytest.param({**RETRYING, 'retries': 0, 'delayed': None}, id='never-tried'),
        pytest.param({**RETRYING, 'started': 'garbage'}, id='unknown-start'),
    ],
)
def test_handler_starts_anew_if_it_is_not_known_when_it_started(record):
    outcome = outcomes.Outcome(final=False, began=after(50), ended=after(51))

    state = progression.HandlerState.from_record(record).with_outcome(outcome, now=after(60))

    assert state.started == after(50)


def test_essence_is_remembered_only_by_finished_handlers(storage):
    body, patch = build_body(), patches.Patch()
    state = progression.State.read(storage, body, ['a', 'b', 'c'], purpose='create').with_outcomes(
        {
            'a': outcomes.Outcome(final=True),
            'b': outcomes.Outcome(final=True, exception=failures.PermanentError('no')),
            'c': outcomes.Outcome(final=False),
        },
        now=T0,
        essence='digest',
    )

    state.store(storage, body, patch)

    assert {key: record.get('essence') for key, record in read_patch(patch).items()} == {
        'a': 'digest',
        'b': 'digest',
        'c': None,
    }


@pytest.mark.guarantee('ERR-024')
def test_progress_is_read_from_the_body(storage):
    body = build_body(a=RETRYING, b=SUCCEEDED)

    state = progression.State.read(storage, body, ['a', 'b', 'c'], purpose='create')

    assert list(state) == ['a', 'b', 'c']
    assert len(state) == 3
    assert state['a'].retries == 2
    assert state['b'].success
    assert state['c'] == progression.HandlerState()


@pytest.mark.guarantee('IDM-010')
def test_progress_of_subhandlers_is_read_with_their_parents(storage):
    body = build_body(
        p={**RETRYING, 'message': 'None', 'subrefs': ['p/a', 'p/b']},
        p__a={**RETRYING, 'subrefs': ['p/a/x', 'p']},
        p__a__x=SUCCEEDED,
        unrelated=SUCCEEDED,
    )

    state = progression.State.read(storage, body, ['p'], purpose='create')

    assert set(state) == {'p', 'p/a', 'p/b', 'p/a/x'}
    assert state['p/a/x'].success
    assert state.subrefs_of('p') == {'p/a', 'p/b', 'p/a/x', 'p'}
    assert state.subrefs_of('p/b') == set()


@pytest.mark.parametrize(
    'purpose, expected',
    [
        pytest.param('create', {'a', 'b', 'b/x'}, id='other-purpose'),
        pytest.param('update', set(), id='same-purpose'),
        pytest.param(None, set(), id='any-purpose'),
    ],
)
def test_records_of_other_purposes_are_left_out(storage, purpose, expected):
    update = {**SUCCEEDED, 'purpose': 'update'}
    body = build_body(
        a=update, b={**update, 'subrefs': ['b/x']}, b__x=update, c={**SUCCEEDED, 'purpose': None}
    )

    state = progression.State.read(storage, body, ['a', 'b', 'c', 'd'], purpose=purpose)

    assert state.foreign == expected
    assert {id for id in state if state[id].finished} == {'a', 'b', 'b/x', 'c'} - expected


def test_foreign_records_are_replaced_by_the_new_ones(storage):
    body, patch = build_body(a={**FAILED, 'purpose': 'update', 'retries': 5}), patches.Patch()
    state = progression.State.read(storage, body, ['a'], purpose='create')

    state = state.with_outcomes(
        {'a': outcomes.Outcome(final=False, delay=1, began=after(50))}, now=after(50)
    )
    state.store(storage, body, patch)

    assert read_patch(patch)['a'] == {
        'started': '2026-11-15T12:00:50.000000+00:00',
        'delayed': '2026-11-15T12:00:51.000000+00:00',
        'purpose': 'create',
        'retries': 1,
        'success': False,
        'failure': False,
    }


def test_only_changed_records_are_stored(storage):
    body, patch = build_body(a=RETRYING, b=SUCCEEDED), patches.Patch()
    state = progression.State.read(storage, body, ['a', 'b', 'c'], purpose='create')

    changed = state.with_outcomes({'a': outcomes.Outcome(final=True)}, now=after(20))
    changed.store(storage, body, patch)

    assert set(read_patch(patch)) == {'a'}
    assert state['a'].retries == 2  # the original one is as it was


def test_nothing_is_stored_when_nothing_is_changed(storage):
    body, patch = build_body(a=RETRYING), patches.Patch()

    progression.State.read(storage, body, ['a', 'b'], purpose='create').store(storage, body, patch)

    assert not patch


@pytest.mark.guarantee('ERR-024', 'IDM-010')
def test_outcomes_of_handlers_unknown_before_continue_their_stored_progress(storage):
    body = build_body(p__a=RETRYING)

    state = progression.State.read(storage, body, ['p'], purpose='create').with_outcomes(
        {
            'p/a': outcomes.Outcome(final=True),
            'p': outcomes.Outcome(final=False, subrefs=frozenset({'p/a'})),
        },
        now=after(20),
    )

    assert state['p/a'].retries == 3
    assert state['p/a'].started == T0
    assert state['p'].subrefs == {'p/a'}


def test_parent_remembers_the_subhandlers_that_it_had_before(storage):
    body = build_body(p={**RETRYING, 'subrefs': ['p/a']})

    state = progression.State.read(storage, body, ['p'], purpose='create').with_outcomes(
        {'p': outcomes.Outcome(final=False, subrefs=frozenset({'p/b'}))}, now=after(20)
    )

    assert state.subrefs_of('p') == {'p/a', 'p/b'}


@pytest.mark.parametrize('purpose', ['create', 'update'])
def test_parent_that_begins_anew_still_refers_to_the_subhandlers_that_it_had_before(
    storage, purpose
):
    record = {**SUCCEEDED, 'purpose': 'create'}
    body, patch = build_body(p={**record, 'subrefs': ['p/a']}, p__a=record), patches.Patch()
    state = progression.State.read(storage, body, ['p'], purpose=purpose).forgetting(['p', 'p/a'])

    state = state.with_outcomes(
        {'p': outcomes.Outcome(final=False, subrefs=frozenset({'p/b'}))}, now=after(20)
    )
    state.store(storage, body, patch)

    assert read_patch(patch)['p']['subrefs'] == ['p/a', 'p/b']


def test_subhandlers_finished_before_are_known_though_nobody_refers_to_them(storage):
    body = build_body(p=RETRYING, p__a={**SUCCEEDED, 'essence': 'abc'})
    state = progression.State.read(storage, body, ['p'], purpose='create')

    state = state.with_outcomes(
        {'p': outcomes.Outcome(final=True, subrefs=frozenset({'p/a'}))}, now=after(20)
    )

    assert state['p/a'].essence == 'abc'


@pytest.mark.guarantee('ERR-004', 'ERR-005')
@pytest.mark.parametrize(
    'ids, now, delay',
    [
        pytest.param([], T0, None, id='nothing'),
        pytest.param(['ok', 'bad'], T0, None, id='all-finished'),
        pytest.param(['ok', 'soon', 'later'], T0, 10, id='earliest'),
        pytest.param(['later'], after(15), 45, id='remaining'),
        pytest.param(['soon', 'later'], after(11), 0, id='overdue'),
        pytest.param(['later', 'new'], T0, 0, id='never-tried'),
        pytest.param(['later', 'unknown'], T0, 0, id='unknown'),
    ],
)
def test_the_earliest_unfinished_handler_is_waited_for(storage, ids, now, delay):
    body = build_body(
        ok=SUCCEEDED, bad=FAILED, soon=RETRYING, later={**RETRYING, 'delayed': stamp(60)}
    )
    state = progression.State.read(
        storage, body, ['ok', 'bad', 'soon', 'later', 'new'], purpose='create'
    )

    assert state.delay(ids, now) == delay


def test_state_in_memory_only_needs_no_storage():
    state = progression.State()

    updated = state.with_outcomes({'a': outcomes.Outcome(final=False, delay=5)}, now=T0)

    assert state.is_due('a', T0)
    assert not updated.is_due('a', T0)
    assert updated.is_due('a', after(5))
    assert 'a' in repr(updated)
