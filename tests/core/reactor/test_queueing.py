"""
Queueing: the events of each object are handled in order, by one worker at a time, with nothing
lost.
"""

import asyncio
import random

import pytest
from recorders import Verdict, build_event, settle

from kopf._core.reactor import queueing
from kopf._core.reactor import slots as slots_

# Order.


@pytest.mark.guarantee('NEW-100')
async def test_events_that_come_meanwhile_are_handled_next_and_together(queue, recorder):
    recorder.gates['uid1'] = [5, 0]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.put(build_event(2))
    queue.put(build_event(3))
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [2, 3], 3, 5)]


async def test_events_that_come_at_once_are_one_batch_with_the_latest_body(queue, recorder):
    for number in range(1, 5):
        queue.put(build_event(number))
    await recorder.wait_for_calls(1)

    assert recorder.calls == [('uid1', [1, 2, 3, 4], 4, 0)]


@pytest.mark.guarantee('CFG-034')
async def test_objects_do_not_wait_for_each_other(queue, recorder):
    recorder.gates['slow'] = asyncio.Event()
    queue.put(build_event(1, 'slow'))
    queue.put(build_event(2, 'fast'))
    await recorder.wait_until(
        lambda recorder: recorder.running == ['slow'] and len(recorder.calls) == 2
    )
    queue.put(build_event(3, 'fast'))
    await recorder.wait_until(
        lambda recorder: recorder.running == ['slow'] and len(recorder.calls) == 3
    )

    assert recorder.batches == [('slow', [1]), ('fast', [2]), ('fast', [3])]


@pytest.mark.guarantee('NEW-103')
async def test_object_with_nothing_to_do_costs_nothing_and_is_handled_on_demand(queue, recorder):
    before = len(asyncio.all_tasks())
    queue.put(build_event(1))
    await recorder.wait_for_calls(1)
    await settle()
    assert len(queue) == 0
    assert len(asyncio.all_tasks()) == before

    await asyncio.sleep(1000)
    queue.put(build_event(2))
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [2], 2, 1000)]


# Wake-ups.


async def test_object_is_handled_again_in_its_time_with_no_events(queue, recorder):
    recorder.verdicts['uid1'] = [Verdict(delay=10)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(2)
    await asyncio.sleep(100)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [], 1, 10)]
    assert len(queue) == 0


async def test_object_that_waits_for_its_time_has_no_worker(queue, recorder):
    before = len(asyncio.all_tasks())
    recorder.verdicts['uid1'] = [Verdict(delay=10)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(1)
    await settle()

    assert len(queue) == 1
    assert len(asyncio.all_tasks()) == before


@pytest.mark.guarantee('NEW-100')
async def test_object_is_handled_sooner_if_an_event_comes(queue, recorder):
    recorder.verdicts['uid1'] = [Verdict(delay=10)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(1)
    await asyncio.sleep(4)
    queue.put(build_event(2))
    await recorder.wait_for_calls(2)
    await asyncio.sleep(100)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [2], 2, 4)]


async def test_delay_is_of_no_importance_if_there_is_something_to_handle(queue, recorder):
    recorder.gates['uid1'] = [5, 0]
    recorder.verdicts['uid1'] = [Verdict(delay=100)]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.put(build_event(2))
    await recorder.wait_for_calls(2)
    await asyncio.sleep(1000)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [2], 2, 5)]


@pytest.mark.parametrize('delay', [0, -1], ids=['zero', 'negative'])
async def test_delay_in_the_past_is_over_at_once(queue, recorder, delay):
    recorder.verdicts['uid1'] = [Verdict(delay=delay)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [], 1, 0)]


# Postponing.


@pytest.mark.guarantee('CFG-045')
async def test_postponed_events_are_given_again_in_order_before_the_new_ones(queue, recorder):
    recorder.verdicts['uid1'] = [Verdict(10, is_postponed=True), Verdict(6, is_postponed=True)]
    queue.put(build_event(1))
    queue.put(build_event(2))
    await recorder.wait_for_calls(1)
    await asyncio.sleep(4)
    queue.put(build_event(3))
    queue.put(build_event(1, 'other'))
    await recorder.wait_for_calls(4)

    assert recorder.calls == [
        ('uid1', [1, 2], 2, 0),
        ('uid1', [1, 2, 3], 3, 4),
        ('other', [1], 1, 4),
        ('uid1', [1, 2, 3], 3, 10),
    ]


async def test_events_that_come_while_the_others_are_postponed_do_not_overtake_them(
    queue, recorder
):
    recorder.gates['uid1'] = [5, 0]
    recorder.verdicts['uid1'] = [Verdict(10, is_postponed=True)]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.put(build_event(2))
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [1, 2], 2, 15)]


async def test_events_postponed_for_no_time_are_given_again_at_once(queue, recorder):
    recorder.verdicts['uid1'] = [Verdict(is_postponed=True)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [1], 1, 0)]


# Nudges.


async def test_nudged_object_is_handled_with_no_events(queue, recorder):
    queue.nudge(build_event(1)['object'])
    await recorder.wait_for_calls(1)
    await settle()

    assert recorder.calls == [('uid1', [], 1, 0)]
    assert len(queue) == 0


async def test_nudged_object_does_not_wait_for_its_time(queue, recorder):
    recorder.verdicts['uid1'] = [Verdict(delay=100)]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.nudge(build_event(1)['object'])
    await asyncio.sleep(1000)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [], 1, 1)]


async def test_object_nudged_while_it_is_handled_is_handled_once_more_with_its_newest_body(
    queue, recorder
):
    recorder.gates['uid1'] = [5, 5]
    queue.put(build_event(2))
    await asyncio.sleep(1)
    queue.nudge(build_event(1)['object'])
    queue.nudge(build_event(1)['object'])
    await asyncio.sleep(1000)

    assert recorder.calls == [('uid1', [2], 2, 0), ('uid1', [], 2, 5)]


async def test_nudged_object_does_not_exceed_the_limit(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates |= {'uid1': [5, 5], 'uid2': [5]}
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.nudge(build_event(1, 'uid2')['object'])
    queue.nudge(build_event(1)['object'])
    await recorder.wait_for_calls(3)

    assert recorder.batches == [('uid1', [1]), ('uid2', []), ('uid1', [])]
    assert recorder.most_at_once == 1


async def test_nudges_of_a_closed_queue_have_no_effect(queue, recorder):
    await queue.close(timeout=0)

    queue.nudge(build_event(1)['object'])
    await settle()

    assert recorder.calls == []


# Failures.


@pytest.mark.parametrize(
    'error',
    [
        pytest.param(RuntimeError('boo!'), id='error'),
        pytest.param(asyncio.CancelledError(), id='cancelled-from-the-inside'),
    ],
)
async def test_failed_handling_is_repeated_with_the_same_events(queue, recorder, caplog, error):
    recorder.gates['uid1'] = [error, 0]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    assert len(recorder.calls) == 1
    await recorder.wait_for_calls(2)
    await settle()

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [1], 1, queueing.FAILURE_DELAY)]
    assert len(queue) == 0
    assert 'things uid1 has failed' in caplog.text


@pytest.mark.parametrize(
    'error',
    [
        pytest.param(RuntimeError('boo!'), id='error'),
        pytest.param(asyncio.CancelledError(), id='cancelled-from-the-inside'),
    ],
)
async def test_object_is_not_deaf_after_a_failed_handling(queue, recorder, error):
    recorder.gates['uid1'] = [error, 0]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.put(build_event(2))
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [1, 2], 2, 1)]


async def test_failed_handling_frees_its_slot(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates['uid1'] = [RuntimeError('boo!')]
    queue.put(build_event(1, 'uid1'))
    queue.put(build_event(1, 'uid2'))
    await recorder.wait_until(lambda recorder: ('uid2', [1]) in recorder.batches)


# All at once.


@pytest.mark.parametrize('limit', [None, 1, 3])
@pytest.mark.parametrize('seed', range(10))
async def test_every_event_is_handled_once_and_in_order_whatever_happens(seed, limit, virtual_time):
    chance = random.Random(seed)
    running, wrong, handled, due, latest = set(), [], {}, {}, {}
    clock = asyncio.get_running_loop().time

    async def handle(batch):
        uid = batch.body['metadata']['uid']
        is_due = batch.events or clock() > due[uid] - 1e-6  # sums of times are rounded
        if not is_due or uid in running or len(running) == limit:
            wrong.append((uid, batch, list(running)))
        running.add(uid)
        await asyncio.sleep(chance.choice([0, 0, 1, 5]))
        running.discard(uid)
        return conclude(uid, batch)

    def conclude(uid, batch):
        fate = chance.randrange(8)
        due[uid] = clock() + (queueing.FAILURE_DELAY if fate < 2 else chance.choice([0, 3, 30]))
        if fate < 2:
            raise RuntimeError('boo!') if fate else asyncio.CancelledError
        if fate == 2:
            return Verdict(due[uid] - clock(), is_postponed=True)
        handled.setdefault(uid, []).extend(batch.events)
        latest[uid] = batch.body
        return Verdict(None if fate < 7 else due[uid] - clock())

    slots = slots_.Slots(lambda: limit)
    queue = queueing.Queue(queueing.Handling(handle), slots)
    sent = {}
    for number in range(200):
        event = build_event(number, f'uid{chance.randrange(5)}')
        sent.setdefault(event['object']['metadata']['uid'], []).append(event)
        queue.put(event)
        await asyncio.sleep(chance.choice([0, 0, 0, 0.5, 3, 15]))
        chance.choice([lambda: None] * 8 + [slots.shut, slots.open])()
    slots.open()
    await wait_until_empty(queue)
    await queue.close(timeout=0)

    assert not wrong
    assert handled == sent
    assert latest == {uid: events[-1]['object'] for uid, events in sent.items()}


async def wait_until_empty(queue):
    for _ in range(1000):
        if not len(queue):
            break
        await asyncio.sleep(10)
    assert len(queue) == 0
