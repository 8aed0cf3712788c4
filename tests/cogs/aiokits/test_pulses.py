"""
The pulse of the event loop: how late it is, and where it is stuck.
"""

import asyncio
import logging
import threading

import pytest

from kopf._cogs.aiokits import pulses


class Clock:
    """The real time, as the test wants it to be."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def pulse(clock):
    """A pulse that is felt only by the test, with the limit of 5 seconds."""
    pulse = pulses.Pulse(asyncio.get_running_loop(), clock=clock)
    pulse.get_limits.append(lambda: 5.0)
    return pulse


async def let_loop_turn():
    for _ in range(3):
        await asyncio.sleep(0)


async def test_lag_is_the_time_from_the_question_to_the_answer(pulse, clock):
    pulse.feel()
    clock.now += 0.2
    await let_loop_turn()

    assert pulse.lag == pytest.approx(0.2)
    assert len(pulse.lags) == 1
    assert pulse.blockages == 0


async def test_loop_has_only_one_question_at_a_time(pulse, clock):
    for _ in range(5):
        pulse.feel()
        clock.now += 0.1
    await let_loop_turn()

    assert len(pulse.lags) == 1
    assert pulse.lag == pytest.approx(0.5)


async def test_blockage_is_reported_once_with_its_place_and_duration(pulse, clock, caplog):
    pulse.feel()
    for _ in range(20):  # seconds with no turns of the loop
        clock.now += 1
        pulse.feel()
    reported = [record.getMessage() for record in caplog.records]
    await let_loop_turn()

    assert len(reported) == 1
    assert 'blocked for 5.0 s' in reported[0]
    assert 'test_blockage_is_reported_once_with_its_place_and_duration' in reported[0]
    assert caplog.records[-1].getMessage() == 'The event loop was blocked for 20.0 s, and goes on.'
    assert pulse.blockages == 1


async def test_every_next_blockage_is_reported_anew(pulse, clock):
    for _ in range(3):
        pulse.feel()
        clock.now += 6
        pulse.feel()
        await let_loop_turn()

    assert pulse.blockages == 3


@pytest.mark.parametrize(
    'limits',
    [
        pytest.param([None], id='unlimited'),
        pytest.param([10.0], id='higher'),
        pytest.param([], id='nobody'),
    ],
)
async def test_shorter_blockages_are_not_reported(pulse, clock, caplog, limits):
    pulse.get_limits[:] = [lambda limit=limit: limit for limit in limits]

    pulse.feel()
    clock.now += 9
    pulse.feel()
    await let_loop_turn()

    assert pulse.blockages == 0
    assert caplog.records == []


async def test_lowest_limit_is_in_force(pulse):
    pulse.get_limits.extend([lambda: None, lambda: 0.5, lambda: 3.0])

    assert pulse.limit == 0.5
    assert pulse.period == 0.25


async def test_closed_loop_is_not_a_problem(clock):
    loop = asyncio.new_event_loop()
    loop.close()
    pulse = pulses.Pulse(loop, clock=clock)

    pulse.feel()

    assert pulse.blockages == 0


async def test_blocked_loop_is_noticed_from_the_thread(caplog):
    noticed = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: noticed.set()
    pulses.logger.addHandler(handler)
    try:
        with pulses.feeling_pulse(lambda: 0.05) as pulse:
            is_noticed = noticed.wait(60)  # blocks the loop, until it is said so
            while not len(pulse.lags):
                await asyncio.sleep(0)
    finally:
        pulses.logger.removeHandler(handler)

    assert is_noticed
    assert 'noticed.wait(60)' in caplog.records[0].getMessage()
    assert pulse.lag >= 0.05


async def test_one_thread_is_for_all_who_are_in_the_same_loop():
    before = set(threading.enumerate())

    with pulses.feeling_pulse(lambda: 5.0) as one:
        with pulses.feeling_pulse(lambda: 5.0) as two:
            during = set(threading.enumerate()) - before
        still = set(threading.enumerate()) - before

    assert one is two
    assert len(during) == 1
    assert still == during
    assert set(threading.enumerate()) <= before
