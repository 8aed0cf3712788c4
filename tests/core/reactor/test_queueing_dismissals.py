"""
Queueing: objects with nothing to do are dismissed, with no workers for them; nothing changes for
all others.
"""

import asyncio

import pytest
from recorders import build_event, settle

from kopf._cogs.helpers import meters
from kopf._core.reactor import queueing
from kopf._core.reactor import slots as slots_


class Dismissals:
    """Dismisses the objects it is told to, and remembers what it was asked about."""

    def __init__(self, recorder):
        self.idle = set()  # uids, or numbers of events
        self.asked, self.dismissed = [], []  # (uid, numbers of events, number of the body)
        self._recorder = recorder

    def dismiss(self, batch):
        uid, number = (batch.body['metadata'][key] for key in ('uid', 'resourceVersion'))
        assert uid not in self._recorder.running, (
            'The object is dismissed while it is being handled.'
        )
        self.asked.append(
            (
                uid,
                [int(event['object']['metadata']['resourceVersion']) for event in batch.events],
                int(number),
            )
        )
        is_dismissed = uid in self.idle or int(number) in self.idle
        if is_dismissed:
            self.dismissed.append(self.asked[-1])
        return is_dismissed


@pytest.fixture
def dismissals(recorder):
    return Dismissals(recorder)


@pytest.fixture
def limits():
    """What the queue depends on; it can be changed at any moment."""
    return {'workers': None, 'is_crowded': False}


@pytest.fixture
def slots(limits):
    return slots_.Slots(lambda: limits['workers'], is_crowded=lambda: limits['is_crowded'])


@pytest.fixture
def flow():
    return meters.Flow()


@pytest.fixture
async def queue(recorder, dismissals, slots, flow):
    queue = queueing.Queue(
        queueing.Handling(recorder.handle, dismissals.dismiss), slots, name='things', flow=flow
    )
    yield queue
    await queue.close(timeout=0)


@pytest.fixture
async def list_workers():
    """List the names of all workers that were ever created, be they finished or not."""
    created, loop = [], asyncio.get_running_loop()

    def create(loop, coro, **kwargs):
        created.append(asyncio.Task(coro, loop=loop, **kwargs))
        return created[-1]

    loop.set_task_factory(create)
    yield lambda: [task.get_name() for task in created if task.get_name().startswith('worker of')]
    loop.set_task_factory(None)


@pytest.mark.parametrize('type', [None, 'ADDED', 'MODIFIED', 'DELETED'])
async def test_dismissed_objects_have_neither_handling_nor_workers(
    queue, recorder, dismissals, list_workers, type
):
    dismissals.idle.add('uid1')
    queue.put(build_event(1, type=type))
    await settle()

    assert dismissals.dismissed == [('uid1', [1], 1)]
    assert recorder.calls == []
    assert len(queue) == queue.working == queue.waiting == queue.pending == 0
    assert list_workers() == []


async def test_fresh_changes_are_dismissed_at_once_in_spite_of_everything(
    queue, dismissals, slots, limits
):
    dismissals.idle.add('uid1')
    limits['is_crowded'], limits['workers'] = True, 1
    slots.shut()
    queue.put(build_event(1, 'busy'))
    queue.put(build_event(1))

    assert dismissals.dismissed == [('uid1', [1], 1)]
    assert len(queue) == 1


async def test_others_are_handled_as_before(queue, recorder, dismissals, list_workers):
    dismissals.idle.add('idle')
    queue.put(build_event(1, 'idle'))
    queue.put(build_event(1, 'busy'))
    queue.put(build_event(2, 'idle'))
    queue.put(build_event(2, 'busy'))
    await recorder.wait_for_calls(1)
    await settle()

    assert recorder.batches == [('busy', [1, 2])]
    assert list_workers() == ['worker of things busy']
    assert len(queue) == 0


async def test_object_is_handled_if_it_is_not_dismissed_any_more(queue, recorder, dismissals):
    dismissals.idle.add(1)
    queue.put(build_event(1))
    queue.put(build_event(2))
    await recorder.wait_for_calls(1)

    assert recorder.batches == [('uid1', [2])]


# Those that were there before.


async def test_objects_that_were_there_are_dismissed_only_when_all_may_begin(
    queue, recorder, dismissals, slots
):
    dismissals.idle.add('uid1')
    slots.shut()
    queue.put(build_event(1, type=None))
    await settle()
    assert (dismissals.asked, len(queue), queue.waiting) == ([], 1, 1)

    slots.open()
    await settle()

    assert dismissals.dismissed == [('uid1', [1], 1)]
    assert recorder.calls == []
    assert len(queue) == 0


async def test_objects_that_were_there_are_dismissed_only_when_there_is_no_crowd(
    queue, dismissals, limits
):
    dismissals.idle.add('uid1')
    limits['is_crowded'] = True
    queue.put(build_event(1, type=None))
    await asyncio.sleep(slots_.CROWD_DELAY / 2)
    assert dismissals.asked == []

    await asyncio.sleep(slots_.CROWD_DELAY)

    assert dismissals.dismissed == [('uid1', [1], 1)]


async def test_objects_that_were_there_and_are_not_dismissed_are_handled_once(
    queue, recorder, dismissals
):
    queue.put(build_event(1, type=None))
    await recorder.wait_for_calls(1)
    await settle()

    assert dismissals.asked == [('uid1', [1], 1)]
    assert recorder.batches == [('uid1', [1])]


# What piles up.


@pytest.mark.parametrize('type', [None, 'ADDED'])
async def test_events_that_piled_up_are_dismissed_together_by_the_latest_one(
    queue, recorder, dismissals, slots, type
):
    slots.shut()
    queue.put(build_event(1, type=type))
    dismissals.idle.add(3)
    queue.put(build_event(2))
    queue.put(build_event(3))
    dismissals.asked.clear()
    slots.open()
    await settle()

    assert dismissals.asked == [('uid1', [1, 2, 3], 3)]
    assert recorder.calls == []
    assert len(queue) == 0


async def test_events_that_piled_up_are_handled_together_if_the_latest_one_needs_it(
    queue, recorder, dismissals, slots
):
    dismissals.idle |= {1, 2}
    slots.shut()
    queue.put(build_event(1, type=None))
    queue.put(build_event(2))
    queue.put(build_event(3))
    slots.open()
    await recorder.wait_for_calls(1)
    await settle()

    assert recorder.batches == [('uid1', [1, 2, 3])]


async def test_waiting_for_a_dismissal_is_measured_as_any_other(queue, dismissals, slots, flow):
    dismissals.idle.add('uid1')
    slots.shut()
    queue.put(build_event(1, type=None))
    await asyncio.sleep(5)
    slots.open()
    await settle()

    assert len(flow.waits) == 1
    assert flow.waits.total == pytest.approx(5)


# One at a time.


async def test_events_that_come_while_the_object_is_handled_wait_for_their_turn(
    queue, recorder, dismissals
):
    recorder.gates['uid1'] = [5, 5, 0]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    dismissals.idle.add('uid1')
    dismissals.asked.clear()
    queue.put(build_event(2))
    await asyncio.sleep(1)
    queue.put(build_event(3))
    assert dismissals.asked == []  # in the middle of handling

    await recorder.wait_for_calls(2)
    await settle()
    queue.put(build_event(4))

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', [2, 3], 3, 5)]
    assert dismissals.asked == [('uid1', [4], 4)]


async def test_events_that_come_while_the_object_is_handled_can_be_dismissed_when_it_has_to_wait_again(
    queue, recorder, dismissals, limits
):
    limits['workers'] = 1
    recorder.gates['uid1'] = [5, 0]
    queue.put(build_event(1))
    await asyncio.sleep(1)
    queue.put(build_event(2))
    queue.put(build_event(3))
    queue.put(build_event(1, 'another'))
    dismissals.idle.add('uid1')
    await recorder.wait_until(
        lambda recorder: ('another', [1]) in recorder.batches and not recorder.running
    )
    await settle()

    assert recorder.batches == [('uid1', [1]), ('another', [1])]
    assert dismissals.dismissed == [('uid1', [2, 3], 3)]
    assert len(queue) == 0


async def test_objects_that_wait_for_their_time_are_handled_with_their_next_event(
    queue, recorder, dismissals
):
    recorder.verdicts['uid1'] = [queueing.Verdict(delay=10)]
    queue.put(build_event(1))
    await recorder.wait_for_calls(1)
    await settle()
    dismissals.idle.add('uid1')
    queue.put(build_event(2))
    await recorder.wait_for_calls(2)

    assert recorder.batches == [('uid1', [1]), ('uid1', [2])]


async def test_nudged_objects_are_handled_even_if_they_could_be_dismissed(
    queue, recorder, dismissals
):
    dismissals.idle.add('uid1')
    queue.nudge(build_event(1)['object'])
    await recorder.wait_for_calls(1)

    assert recorder.batches == [('uid1', [])]
    assert dismissals.asked == []


async def test_objects_nudged_while_they_wait_are_handled_even_if_they_could_be_dismissed(
    queue, recorder, dismissals, slots
):
    dismissals.idle.add('uid1')
    slots.shut()
    queue.put(build_event(1, type=None))
    queue.nudge(build_event(1)['object'])
    slots.open()
    await settle()

    assert recorder.batches == [('uid1', [1])]


# All together.


async def test_dismissed_objects_take_no_slots(queue, recorder, dismissals, limits):
    limits['workers'] = 1
    dismissals.idle |= {f'idle{number}' for number in range(5)}
    for number, type in enumerate([None, 'ADDED', 'MODIFIED', 'DELETED', None]):
        queue.put(build_event(1, f'idle{number}', type=type))
    queue.put(build_event(1, 'old', type=None))
    queue.put(build_event(1, 'new'))
    await recorder.wait_for_calls(2)
    await settle()

    assert sorted(uid for uid, *_ in dismissals.dismissed) == sorted(dismissals.idle)
    assert sorted(recorder.batches) == [('new', [1]), ('old', [1])]
    assert (recorder.most_at_once, len(queue)) == (1, 0)


async def test_dismissed_objects_do_not_wait_for_others_to_be_handled(
    queue, recorder, dismissals, limits
):
    limits['workers'] = 2
    recorder.gates['busy'] = asyncio.Event()
    dismissals.idle |= {f'idle{number}' for number in range(100)}
    queue.put(build_event(1, 'busy'))
    for number in range(100):
        queue.put(build_event(1, f'idle{number}', type=None))
    await recorder.wait_until(lambda recorder: recorder.running == ['busy'])
    while len(queue) > 1:
        await asyncio.sleep(0)

    assert recorder.batches == [('busy', [1])]
    assert len(dismissals.dismissed) == 100


async def test_many_dismissals_let_the_others_have_their_turn(queue, dismissals, slots):
    count = 10 * slots_.TURN
    dismissals.idle |= {f'idle{number}' for number in range(count)}
    slots.shut()
    for number in range(count):
        queue.put(build_event(1, f'idle{number}', type=None))
    slots.open()
    portions = [len(dismissals.dismissed)]
    while len(queue):
        await asyncio.sleep(0)
        portions.append(len(dismissals.dismissed) - sum(portions))

    assert max(portions) <= slots_.TURN
    assert sum(portions) == count


async def test_closed_queue_dismisses_nothing(queue, dismissals, slots):
    dismissals.idle.add('uid1')
    slots.shut()
    queue.put(build_event(1, type=None))

    dropped = await queue.close(timeout=1)
    queue.put(build_event(2))
    slots.open()
    await settle()

    assert list(dropped) == ['uid1']
    assert dismissals.asked == []
