"""
When level-triggered functions are due: all transitions of their states.
"""

import dataclasses
import math

import pytest

from kopf._core.engines.reconciling import levels

T = levels.Trigger
NOW = 1000.0
AT_ONCE = levels.Pace()
SETTLING = levels.Pace(settle=10)
CALLED = levels.Level(seen='5')


def build(**fields):
    return dataclasses.replace(CALLED, **fields)


@pytest.mark.guarantee('RCL-001')
def test_any_number_of_triggers_is_one_call():
    level = CALLED
    for trigger in (T.OWNED, T.WATCHED, T.OWNED):
        level = levels.poke(level, {trigger}, AT_ONCE, NOW)

    assert levels.list_due(level, NOW) == {T.OWNED, T.WATCHED}
    assert levels.list_due(levels.begin(level), NOW) == frozenset()


@pytest.mark.guarantee('RCL-001')
def test_triggers_during_a_call_stay_for_the_next_one():
    level = levels.begin(levels.poke(CALLED, {T.SELF}, AT_ONCE, NOW))
    level = levels.poke(level, {T.OWNED}, AT_ONCE, NOW + 1)
    level = levels.end(level, levels.Ended(requeue=100), AT_ONCE, NOW + 2)

    assert levels.list_due(level, NOW + 2) == {T.OWNED}


@pytest.mark.guarantee('RCL-002')
@pytest.mark.parametrize(
    'level, version, is_met, due',
    [
        pytest.param(levels.NEW, '5', True, {T.START}, id='met'),
        pytest.param(levels.NEW, '5', False, {T.SELF}, id='created'),
        pytest.param(CALLED, '6', False, {T.SELF}, id='changed'),
        pytest.param(CALLED, '5', False, set(), id='repeated'),
        pytest.param(CALLED, '5', True, {T.START}, id='met-again'),
        pytest.param(levels.follow(CALLED, '5', '6'), '6', False, set(), id='own-echo'),
        pytest.param(levels.follow(CALLED, '4', '6'), '6', False, {T.SELF}, id='others-before-own'),
        pytest.param(build(is_held=True), '5', True, {T.START}, id='met-while-held'),
    ],
)
def test_versions_are_noticed_once(level, version, is_met, due):
    noticed = levels.notice(level, version, AT_ONCE, NOW, is_met=is_met)
    again = levels.notice(levels.begin(noticed), version, AT_ONCE, NOW, is_met=False)

    assert levels.list_due(noticed, NOW) == due
    assert levels.list_due(again, NOW) == frozenset()


@pytest.mark.guarantee('RCL-003')
@pytest.mark.parametrize('digest, due', [('aa', set()), ('bb', {T.SELF})])
def test_only_other_values_of_the_field_are_noticed(digest, due):
    level = levels.notice(build(digest='aa'), '6', AT_ONCE, NOW, is_met=False, digest=digest)

    assert levels.list_due(level, NOW) == due
    assert level.seen == '6'


@pytest.mark.guarantee('RCL-002', 'RCL-006')
@pytest.mark.parametrize(
    'ended, delay, purpose',
    [
        pytest.param(levels.Ended(), None, None, id='success'),
        pytest.param(levels.Ended(requeue=30), 30, T.REQUEUE, id='requeue'),
        pytest.param(levels.Ended(requeue=0), 0, T.REQUEUE, id='requeue-at-once'),
        pytest.param(levels.Ended(retry=20), 20, T.RETRY, id='retry'),
        pytest.param(levels.Ended(is_final=True), None, None, id='failure'),
        pytest.param(levels.Ended(is_last=True), None, None, id='deletion'),
    ],
)
def test_next_call_follows_from_the_end(ended, delay, purpose):
    level = levels.end(levels.begin(CALLED), ended, AT_ONCE, NOW)

    assert levels.measure_delay(level, NOW) == delay
    if delay is not None:
        assert levels.list_due(level, NOW + delay) == {purpose}
    if delay:
        assert levels.list_due(level, NOW + delay / 2) == frozenset()


@pytest.mark.guarantee('RCL-002')
def test_trigger_forgets_a_requeue():
    level = levels.end(CALLED, levels.Ended(requeue=30), AT_ONCE, NOW)
    level = levels.poke(level, {T.SELF}, AT_ONCE, NOW + 1)
    level = levels.end(levels.begin(level), levels.Ended(), AT_ONCE, NOW + 2)

    assert levels.measure_delay(level, NOW + 2) is None


@pytest.mark.guarantee('RCL-006')
def test_failures_are_counted_until_a_success():
    level = CALLED
    for _ in range(3):
        level = levels.end(levels.begin(level), levels.Ended(retry=1), AT_ONCE, NOW)
    assert level.failures == 3

    level = levels.end(levels.begin(level), levels.Ended(), AT_ONCE, NOW)
    assert level.failures == 0


@pytest.mark.guarantee('RCL-006')
@pytest.mark.parametrize(
    'trigger, due',
    [(trigger, set() if trigger in (T.RESYNC, T.RETRY) else {trigger}) for trigger in T],
)
def test_permanent_failure_waits_for_news(trigger, due):
    pace = levels.Pace(resync=60)
    level = levels.end(CALLED, levels.Ended(is_final=True), pace, NOW)
    assert levels.measure_delay(level, NOW) is None

    level = levels.poke(level, {trigger}, pace, NOW)
    assert levels.list_due(level, NOW) == due


@pytest.mark.guarantee('RCL-006')
def test_news_during_a_permanent_failure_are_not_lost():
    level = levels.poke(levels.begin(CALLED), {T.OWNED}, AT_ONCE, NOW)
    level = levels.end(level, levels.Ended(is_final=True), AT_ONCE, NOW)

    assert not level.is_stuck
    assert levels.list_due(level, NOW) == {T.OWNED}


@pytest.mark.guarantee('RCL-012')
def test_triggers_settle():
    level = levels.poke(CALLED, {T.OWNED}, SETTLING, NOW)
    assert levels.measure_delay(level, NOW) == 10

    level = levels.poke(level, {T.OWNED}, SETTLING, NOW + 5)
    assert levels.list_due(level, NOW + 10) == frozenset()
    assert levels.list_due(level, NOW + 15) == {T.OWNED}


@pytest.mark.guarantee('RCL-012')
def test_settling_ends_even_if_triggers_do_not():
    level = CALLED
    for second in range(100):
        level = levels.poke(level, {T.OWNED}, SETTLING, NOW + second)

    assert levels.measure_delay(level, NOW) == 10 + levels.SETTLINGS


@pytest.mark.guarantee('RCL-012')
def test_start_does_not_settle():
    level = levels.notice(levels.NEW, '5', SETTLING, NOW, is_met=True)

    assert levels.list_due(level, NOW) == {T.START}


@pytest.mark.guarantee('RCL-002')
@pytest.mark.parametrize('phase', [0.0, 0.3, 0.999])
@pytest.mark.parametrize('offset', [0, -1e-9, 1e-9, 0.5, 59])
def test_resyncs_are_in_phase_and_never_twice(phase, offset):
    now = 60 * (100 + phase) + offset
    resync = levels.choose_resync(60, phase, now)

    assert 2 * levels.TICK <= resync - now < 60 + 2 * levels.TICK + 1e-6
    assert math.isclose((resync / 60 - phase) % 1, 0, abs_tol=1e-9) or math.isclose(
        (resync / 60 - phase) % 1, 1, abs_tol=1e-9
    )


def test_phases_differ_and_are_stable():
    phases = {levels.choose_phase(f'uid-{number}') for number in range(1000)}

    assert len(phases) == 1000
    assert 0 <= min(phases) < 0.01
    assert 0.99 < max(phases) < 1
    assert levels.choose_phase('uid') == levels.choose_phase('uid')


@pytest.mark.guarantee('RCL-009')
def test_skipped_level_begins_from_the_start_when_it_matches_again():
    level = levels.skip(levels.end(CALLED, levels.Ended(requeue=30), AT_ONCE, NOW))

    assert levels.measure_delay(level, NOW) is None
    level = levels.notice(level, '6', AT_ONCE, NOW, is_met=False)
    assert levels.list_due(level, NOW) == {T.SELF}


@pytest.mark.guarantee('RCL-004', 'RCL-013')
def test_held_level_is_due_when_it_is_let_go():
    level = levels.hold(levels.poke(CALLED, {T.OWNED}, AT_ONCE, NOW))
    assert levels.list_due(level, NOW) == frozenset()
    assert levels.measure_delay(level, NOW) is None

    level = levels.hold(level, is_held=False)
    assert levels.list_due(level, NOW) == {T.OWNED}


@pytest.mark.guarantee('RCL-002')
@pytest.mark.parametrize('early', [0, 1e-10, levels.TICK / 2])
def test_early_timer_is_on_time(early):
    level = levels.end(CALLED, levels.Ended(requeue=30), AT_ONCE, NOW)

    assert levels.measure_delay(level, NOW + 30 - early) == 0
    assert levels.list_due(level, NOW + 30 - early) == {T.REQUEUE}
