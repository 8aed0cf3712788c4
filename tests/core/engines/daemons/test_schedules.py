"""
Schedules of timers: when they are called, as numbers.
"""

import math

import hypothesis
import hypothesis.strategies as st
import pytest

from kopf._core.engines.daemons import schedules
from kopf._core.intents import handlers


def make_timer(**options):
    return handlers.TimerHandler(id='fn', fn=lambda **_: None, **options)


def make_call(*, began, ended, changed=0.0, is_changed=False):
    return schedules.Call(began=began, ended=ended, changed=changed, is_changed=is_changed)


@pytest.mark.guarantee('TMR-003', 'TMR-008', 'TMR-011', 'TMR-012', 'NEW-260')
@pytest.mark.parametrize(
    'options, delay, changed, expected',
    [
        pytest.param({}, None, 50.0, 100.0, id='at-once'),
        pytest.param({'interval': 10}, None, 50.0, 100.0, id='interval-is-not-for-the-first'),
        pytest.param({}, 30.0, 50.0, 130.0, id='delayed'),
        pytest.param({}, -30.0, 50.0, 100.0, id='negative-delay'),
        pytest.param({'idle': 60}, None, 50.0, 110.0, id='the-rest-of-idle-time'),
        pytest.param({'idle': 60}, None, 100.0, 160.0, id='changed-just-now'),
        pytest.param({'idle': 60}, None, 10.0, 100.0, id='idle-for-long'),
        pytest.param({'idle': 60}, 5.0, 50.0, 110.0, id='delay-within-idle-time'),
        pytest.param({'idle': 60}, 30.0, 50.0, 130.0, id='idle-time-within-delay'),
        pytest.param({'idle': 600, 'interval': 10}, 60.0, 100.0, 700.0, id='all-together'),
    ],
)
def test_first_call(options, delay, changed, expected):
    due = schedules.choose_first(make_timer(**options), now=100.0, delay=delay, changed=changed)

    assert due == expected


@pytest.mark.guarantee('TMR-004', 'TMR-005', 'TMR-006', 'NEW-258')
@pytest.mark.parametrize(
    'options, ended, expected',
    [
        pytest.param({'interval': 1.0}, 100.3, 101.3, id='pause-from-the-end'),
        pytest.param({'interval': 1.0}, 105.0, 106.0, id='pause-from-the-late-end'),
        pytest.param({'interval': 0}, 100.3, 100.3, id='no-pause'),
        pytest.param({'interval': 1.0, 'sharp': False}, 100.3, 101.3, id='explicitly-not-sharp'),
        pytest.param({'interval': 1.0, 'sharp': True}, 100.3, 101.0, id='sharp'),
        pytest.param({'interval': 1.0, 'sharp': True}, 100.0, 101.0, id='sharp-instant'),
        pytest.param(
            {'interval': 1.0, 'sharp': True}, 101.0, 101.0, id='sharp-as-long-as-the-interval'
        ),
        pytest.param({'interval': 1.0, 'sharp': True}, 103.2, 104.0, id='sharp-overrun'),
        pytest.param({'interval': 0, 'sharp': True}, 103.2, 103.2, id='sharp-no-pause'),
        pytest.param({}, 100.3, None, id='once'),
        pytest.param({'sharp': True}, 100.3, None, id='once-sharp'),
    ],
)
def test_next_call_of_an_unchanged_object(options, ended, expected):
    due = schedules.choose_next(make_timer(**options), make_call(began=100.0, ended=ended))

    assert due == expected


@pytest.mark.guarantee('TMR-008', 'TMR-009', 'TMR-010', 'NEW-258')
@pytest.mark.parametrize(
    'options, changed, expected',
    [
        pytest.param({'interval': 10}, 105.0, 115.0, id='changes-do-not-matter'),
        pytest.param({'interval': 10, 'idle': 30}, 50.0, 115.0, id='unchanged'),
        pytest.param({'interval': 10, 'idle': 30}, 102.0, 132.0, id='changed-in-the-call'),
        pytest.param({'interval': 40, 'idle': 30}, 102.0, 145.0, id='idle-by-the-next-interval'),
        pytest.param(
            {'interval': 10, 'idle': 30, 'sharp': True}, 50.0, 110.0, id='sharp-unchanged'
        ),
        pytest.param({'interval': 10, 'idle': 30, 'sharp': True}, 102.0, 132.0, id='sharp-changed'),
        pytest.param({'idle': 30}, 50.0, None, id='once-per-idle-time'),
        pytest.param({'idle': 30}, 102.0, 132.0, id='another-idle-time'),
    ],
)
def test_next_call_of_an_object_that_could_have_changed(options, changed, expected):
    call = make_call(began=100.0, ended=105.0, changed=changed, is_changed=changed >= 100.0)

    assert schedules.choose_next(make_timer(**options), call) == expected


moments = st.floats(min_value=0, max_value=1e6)
durations = st.floats(min_value=0, max_value=1e5)
intervals = st.floats(min_value=0.01, max_value=1e4)


@pytest.mark.guarantee('TMR-005', 'TMR-006', 'NEW-258')
@hypothesis.given(began=moments, duration=durations, interval=intervals)
def test_sharp_timers_keep_their_grid_and_catch_nothing_up(began, duration, interval):
    timer = make_timer(interval=interval, sharp=True)

    due = schedules.choose_next(timer, make_call(began=began, ended=began + duration))

    steps = (due - began) / interval
    assert steps == pytest.approx(round(steps), abs=1e-3)
    assert round(steps) >= 1
    assert due >= began + duration - interval * 1e-3
    assert due <= began + max(duration, 0) + interval * 1.001


@pytest.mark.guarantee('TMR-004', 'TMR-008', 'TMR-010')
@hypothesis.given(
    began=moments,
    duration=durations,
    interval=intervals,
    idle=st.none() | durations,
    ago=durations,
    is_sharp=st.booleans(),
)
def test_no_call_is_earlier_than_its_interval_or_idle_time(
    began, duration, interval, idle, ago, is_sharp
):
    timer = make_timer(interval=interval, idle=idle, sharp=is_sharp)
    changed = began + duration - ago

    due = schedules.choose_next(
        timer,
        make_call(
            began=began, ended=began + duration, changed=changed, is_changed=changed >= began
        ),
    )

    assert due >= began + interval * 0.999
    assert due >= (-math.inf if idle is None else changed + idle)
    assert is_sharp or due >= began + duration + interval
