"""
Queueing: the limits of simultaneous workers, and the end of a queue.
"""

import asyncio
import logging

import pytest
from recorders import Verdict, build_event, settle

from kopf._core.reactor import slots as slots_

# Limits.


@pytest.mark.guarantee('NEW-102')
async def test_workers_are_limited_and_the_waiting_ones_are_served_in_turn(queue, recorder, limits):
    limits['workers'] = 2
    for number in range(1, 6):
        recorder.gates[f'uid{number}'] = 10
        queue.put(build_event(number, f'uid{number}'))
    await recorder.wait_for_calls(5)

    assert recorder.most_at_once == 2
    assert [(uid, when) for uid, _, _, when in recorder.calls] == [
        ('uid1', 0),
        ('uid2', 0),
        ('uid3', 10),
        ('uid4', 10),
        ('uid5', 20),
    ]


async def test_there_is_no_limit_by_default(queue, recorder):
    for number in range(100):
        recorder.gates[f'uid{number}'] = 10
        queue.put(build_event(number, f'uid{number}'))
    await recorder.wait_for_calls(100)

    assert recorder.most_at_once == 100


async def test_limit_is_common_for_all_queues(make_queue, recorder, limits):
    limits['workers'] = 1
    one, two = make_queue(), make_queue()
    recorder.gates |= {'uid1': 10, 'uid2': 10}
    one.put(build_event(1, 'uid1'))
    two.put(build_event(2, 'uid2'))
    await recorder.wait_for_calls(2)

    assert recorder.most_at_once == 1


async def test_waiting_object_holds_no_slot(queue, recorder, limits):
    limits['workers'] = 1
    recorder.verdicts['uid1'] = [Verdict(delay=100)]
    queue.put(build_event(1, 'uid1'))
    queue.put(build_event(2, 'uid2'))
    await recorder.wait_for_calls(3)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid2', [2], 2, 0), ('uid1', [], 1, 100)]


async def test_busy_object_does_not_hold_its_slot_if_others_wait(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates['uid1'] = [10, 10]
    queue.put(build_event(1, 'uid1'))
    await asyncio.sleep(1)
    queue.put(build_event(2, 'uid1'))
    queue.put(build_event(3, 'uid2'))
    await recorder.wait_for_calls(3)

    assert recorder.batches == [('uid1', [1]), ('uid2', [3]), ('uid1', [2])]


async def test_events_that_come_while_an_object_waits_for_a_slot_are_handled_together(
    queue, recorder, limits
):
    limits['workers'] = 1
    recorder.gates['uid1'] = 10
    queue.put(build_event(1, 'uid1'))
    queue.put(build_event(2, 'uid2'))
    queue.put(build_event(3, 'uid2'))
    await recorder.wait_for_calls(2)

    assert recorder.batches == [('uid1', [1]), ('uid2', [2, 3])]


async def test_raised_limit_is_effective_for_the_next_ones(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates |= {'uid1': 10, 'uid2': 10, 'uid3': 10}
    queue.put(build_event(1, 'uid1'))
    queue.put(build_event(1, 'uid2'))
    limits['workers'] = 3
    queue.put(build_event(1, 'uid3'))
    await recorder.wait_for_calls(3)

    assert recorder.most_at_once == 3


async def test_nobody_begins_while_it_is_shut(queue, recorder, slots):
    recorder.gates['uid1'] = [5, 0]
    queue.put(build_event(1, 'uid1'))
    await settle()
    slots.shut()
    queue.put(build_event(2, 'uid1'))
    queue.put(build_event(3, 'uid2'))
    await asyncio.sleep(1000)
    assert recorder.calls == [('uid1', [1], 1, 0)]

    slots.open()
    await recorder.wait_for_calls(3)

    assert sorted(recorder.calls[1:]) == [('uid1', [2], 2, 1000), ('uid2', [3], 3, 1000)]


async def test_object_whose_time_comes_while_it_is_shut_is_handled_after_that(
    queue, recorder, slots
):
    recorder.verdicts['uid1'] = [Verdict(delay=10)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(1)
    slots.shut()
    await asyncio.sleep(100)
    slots.open()
    await recorder.wait_for_calls(2)

    assert recorder.calls[1] == ('uid1', [], 1, 100)


# Closing.


async def test_closing_lets_the_workers_finish(queue, recorder, virtual_time, caplog):
    caplog.set_level(logging.WARNING)
    recorder.gates['uid1'] = 5
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.put(build_event(2))

    dropped = await queue.close(timeout=10)

    assert virtual_time.elapsed == 5
    assert recorder.batches == [('uid1', [1])]
    assert list(dropped) == ['uid1']  # with the second event
    assert not caplog.records


@pytest.mark.guarantee('NEW-102')
async def test_closing_interrupts_the_workers_after_the_timeout(
    queue, recorder, virtual_time, caplog
):
    recorder.gates['uid1'] = asyncio.Event()
    queue.put(build_event(1))
    await settle()

    await queue.close(timeout=10)

    assert virtual_time.elapsed == 10
    assert recorder.running == []
    assert '1 workers of things did not finish' in caplog.text


async def test_cancelled_closing_interrupts_the_workers_at_once_and_awaits_them(
    make_queue, virtual_time
):
    async def handle(batch):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)
            ended.append(virtual_time.elapsed)

    ended = []
    queue = make_queue(handle)
    queue.put(build_event(1))
    await settle()
    closing = asyncio.create_task(queue.close(timeout=100))
    await asyncio.sleep(1)

    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing

    assert ended == [4]


async def test_closing_drops_what_is_not_begun(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates['uid1'] = 5
    recorder.verdicts['uid3'] = [Verdict(delay=50)]
    queue.put(build_event(1, 'uid3'))
    await recorder.wait_for_calls(1)
    queue.put(build_event(2, 'uid1'))
    queue.put(build_event(3, 'uid2'))
    await settle()

    dropped = await queue.close(timeout=10)
    queue.put(build_event(4, 'uid4'))
    await asyncio.sleep(1000)

    assert recorder.batches == [('uid3', [1]), ('uid1', [2])]
    assert set(dropped) == {'uid2', 'uid3'}
    assert len(queue) == 0


async def test_closed_queue_leaves_all_slots_to_the_others(make_queue, recorder, limits):
    limits['workers'] = 1
    one, two = make_queue(), make_queue()
    recorder.gates['first'] = recorder.gates['second'] = 10
    one.put(build_event(1, 'first'))
    for number in range(2000):  # more than the limit of recursion
        one.put(build_event(number, f'uid{number}'))
    two.put(build_event(1, 'second'))
    two.put(build_event(1, 'third'))
    await settle()

    await one.close(timeout=0)
    await recorder.wait_for_calls(3)

    assert recorder.batches == [('first', [1]), ('second', [1]), ('third', [1])]
    assert recorder.most_at_once == 1


async def test_idle_queue_is_closed_at_once(queue, virtual_time):
    await queue.close(timeout=10)

    assert virtual_time.elapsed == 0


async def test_worker_that_fails_in_closing_is_reported(queue, recorder, caplog):
    async def fail():
        await asyncio.sleep(1)
        raise RuntimeError('boo!')

    recorder._pass_gate = lambda gate: fail()
    queue.put(build_event(1))
    await settle()

    await queue.close(timeout=10)

    assert 'has failed' in caplog.text


async def test_all_who_wait_begin_in_turns_so_that_the_loop_is_not_blocked():
    slots, begun, turns = slots_.Slots(lambda: None), [], 0
    slots.shut()
    for number in range(1050):
        slots.take(lambda number=number: not begun.append(number))

    slots.open()
    slots.take(lambda: not begun.append('late'))
    while len(begun) < 1051:
        turns += 1
        await asyncio.sleep(0)

    assert begun == [*range(1050), 'late']
    assert turns >= 10
