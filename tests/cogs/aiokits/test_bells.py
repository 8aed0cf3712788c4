"""Bells wake up those who wait, and only them."""

import asyncio

import pytest

from kopf._cogs.aiokits import bells


async def test_all_waiting_tasks_are_woken_up():
    bell = bells.Bell()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(bell.wait()) for _ in range(3)]
        await asyncio.sleep(0)

        bell.ring()
        bell.ring()

    assert all(task.done() for task in tasks)


async def test_ring_is_not_remembered():
    bell = bells.Bell()
    bell.ring()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)

    assert not waiting.done()

    bell.ring()
    await waiting


async def test_cancelled_wait_affects_no_other():
    bell = bells.Bell()
    cancelled, waiting = asyncio.create_task(bell.wait()), asyncio.create_task(bell.wait())
    await asyncio.sleep(0)

    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    bell.ring()

    await waiting
