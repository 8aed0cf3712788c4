"""
Clocks: the time of day that goes with the event loop.
"""

import asyncio
import datetime

import pytest

from kopf._cogs.aiokits import clocks

NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)


def after(seconds):
    return NOON + datetime.timedelta(seconds=seconds)


async def test_time_is_told_in_utc():
    before = datetime.datetime.now(datetime.UTC)

    told = clocks.Clock()()

    assert told.utcoffset() == datetime.timedelta(0)
    assert before <= told <= datetime.datetime.now(datetime.UTC)


@pytest.mark.guarantee('NEW-240')
async def test_time_goes_with_the_loop_when_its_time_is_simulated(virtual_time):
    clock = clocks.Clock()
    before = clock()

    await asyncio.sleep(3600)

    assert 3600 <= (clock() - before).total_seconds() < 3660


async def test_clocks_of_one_loop_agree_whenever_they_are_made(virtual_time):
    one = clocks.Clock()
    await asyncio.sleep(3600)
    two = clocks.Clock()

    assert abs(two() - one()) < datetime.timedelta(seconds=60)


def test_clocks_of_different_loops_are_independent():
    async def wait_and_tell():
        clock = clocks.Clock()
        before = clock()
        await asyncio.sleep(0)
        return clock() - before

    assert asyncio.run(wait_and_tell()) < datetime.timedelta(seconds=60)
    assert asyncio.run(wait_and_tell()) < datetime.timedelta(seconds=60)


def test_clocks_need_a_running_loop():
    with pytest.raises(RuntimeError):
        clocks.Clock()


@pytest.mark.parametrize(
    'readings, expected',
    [
        pytest.param([(0, 0), (10, 10), (20, 20)], [0, 10, 20], id='together'),
        pytest.param([(0, 0), (3600, 1), (3601, 2)], [0, 3600, 3601], id='the-loop-jumps'),
        pytest.param([(0, 0), (1, 3600), (2, 3601)], [0, 3600, 3601], id='the-wall-is-set-forward'),
        pytest.param([(0, 0), (1, -3600), (2, -3599)], [0, 1, 2], id='the-wall-is-set-back'),
        pytest.param(
            [(0, 0), (1, 3600), (2, 2), (3, 3)],
            [0, 3600, 3601, 3602],
            id='the-wall-is-set-forward-and-back',
        ),
    ],
)
def test_time_never_goes_back(readings, expected):
    anchor = clocks._Anchor(100, NOON)

    told = [anchor.tell(100 + loop, after(wall)) for loop, wall in readings]

    assert told == [after(seconds) for seconds in expected]


def test_virtual_time_does_not_follow_the_wall():
    anchor = clocks._Anchor(100, NOON, is_virtual=True)

    told = [anchor.tell(100 + loop, after(wall)) for loop, wall in [(0, 5), (30, 10), (31, 9999)]]

    assert told == [after(seconds) for seconds in [0, 30, 31]]
