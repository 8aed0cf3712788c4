"""
One state that many have a say in: who is told of its changes, who waits for them, who is
interrupted by them.
"""

import asyncio

import pytest

from kopf._cogs.aiokits import toggles


@pytest.fixture
def toggle():
    return toggles.Toggles()


def test_it_is_on_while_anyone_wants_it(toggle):
    states = [toggle.is_on]
    for key, is_on in [('a', True), ('b', True), ('a', False), ('a', False), ('b', False)]:
        toggle.turn(key, is_on)
        states.append(toggle.is_on)

    assert states == [False, True, True, True, True, False]


async def test_listeners_are_told_only_of_changes_of_the_whole(toggle):
    told = []
    toggle.listen(told.append)
    for key, is_on in [
        ('a', False),
        ('a', True),
        ('b', True),
        ('a', False),
        ('b', False),
        ('a', True),
    ]:
        toggle.turn(key, is_on)

    assert told == [True, False, True]


async def test_tasks_wait_for_either_state(toggle):
    await toggle.wait_until(False)
    waiting = asyncio.create_task(toggle.wait_until(True))
    await asyncio.sleep(0)
    assert not waiting.done()
    toggle.turn('a', True)
    await waiting
    waiting = asyncio.create_task(toggle.wait_until(False))
    await asyncio.sleep(0)
    assert not waiting.done()
    toggle.turn('a', False)
    await waiting


async def wait(toggle, ended):
    try:
        async with asyncio.timeout(None) as limit:
            with toggle.interrupting(limit):
                await asyncio.Event().wait()
    except TimeoutError:
        await asyncio.sleep(1)  # it can be slow, and must not be interrupted again
        ended.append(limit.expired())


async def test_timeouts_expire_when_it_turns_on_however_shortly(toggle, virtual_time):
    ended = []
    task = asyncio.create_task(wait(toggle, ended))
    await asyncio.sleep(1)
    assert ended == []
    for is_on in (True, False, True, False):
        toggle.turn('a', is_on)
    await task

    assert ended == [True]
    toggle.turn('a', True)


async def test_timeouts_do_not_expire_if_it_is_not_turned_on(toggle, virtual_time):
    toggle.turn('a', True)
    ended = []
    task = asyncio.create_task(wait(toggle, ended))
    await asyncio.sleep(1)
    toggle.turn('b', True)
    toggle.turn('a', False)
    toggle.turn('b', False)
    await asyncio.sleep(100)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == []


async def test_blocks_that_are_over_are_not_interrupted(toggle):
    async with asyncio.timeout(None) as limit:
        with toggle.interrupting(limit):
            await asyncio.sleep(0)
    toggle.turn('a', True)
    await asyncio.sleep(0)

    assert not limit.expired()
