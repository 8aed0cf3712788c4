"""
Queueing: the next objects are held back a bit while too many of those before them wait, with their
bodies in memory.
"""

import asyncio

import pytest

from kopf._core.reactor import slots as slots_


@pytest.fixture
def begun():
    return []


@pytest.fixture
async def slots(virtual_time):
    return slots_.Slots(lambda: 1)


def crowd(slots, begun, number, *, is_yielding=True):
    for index in range(number):
        slots.take(lambda index=index: begun.append(index) or True, is_yielding=is_yielding)


async def test_calm_is_not_waited_for_if_few_wait(slots, begun, virtual_time):
    crowd(slots, begun, 1 + slots_.CALM)

    await slots.wait_until_calm()

    assert virtual_time.elapsed == 0


async def test_calm_comes_when_few_are_left(slots, begun, virtual_time):
    crowd(slots, begun, 1 + slots_.CALM + 3)
    waiting = asyncio.create_task(slots.wait_until_calm())
    for _ in range(2):
        await asyncio.sleep(0.1)
        slots.free()
    await asyncio.sleep(0.1)
    assert not waiting.done()

    slots.free()
    await waiting

    assert len(begun) == 4
    assert virtual_time.elapsed == 0.3


async def test_calm_is_not_waited_for_long(slots, begun, virtual_time):
    crowd(slots, begun, 1000)

    await slots.wait_until_calm()

    assert virtual_time.elapsed == slots_.CALM_TIMEOUT
    assert len(begun) == 1


async def test_calm_is_not_waited_for_if_nobody_is_served(slots, begun, virtual_time):
    slots.shut()
    crowd(slots, begun, 1000)

    await slots.wait_until_calm()

    assert virtual_time.elapsed == 0


async def test_those_in_a_hurry_are_not_held_back_for(slots, begun, virtual_time):
    crowd(slots, begun, 1000, is_yielding=False)

    await slots.wait_until_calm()

    assert virtual_time.elapsed == 0
