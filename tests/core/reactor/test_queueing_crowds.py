"""
Queueing: objects that were there before let the fresh changes go first, and do not crowd.
"""

import pytest
from recorders import build_event, settle

from kopf._core.reactor import queueing
from kopf._core.reactor import slots as slots_


@pytest.fixture
def limits():
    """What the queue depends on; it can be changed at any moment."""
    return {'workers': None, 'is_crowded': False}


@pytest.fixture
async def queue(recorder, limits):
    slots = slots_.Slots(lambda: limits['workers'], is_crowded=lambda: limits['is_crowded'])
    queue = queueing.Queue(queueing.Handling(recorder.handle), slots, name='things')
    yield queue
    await queue.close(timeout=0)


async def test_fresh_changes_go_before_the_objects_that_were_there(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates['busy'] = 1
    queue.put(build_event(1, 'busy'))
    for number in range(3):
        queue.put(build_event(number, f'old{number}', type=None))
    queue.put(build_event(1, 'new', type='ADDED'))
    queue.put(build_event(1, 'edited', type='MODIFIED'))
    await recorder.wait_for_calls(6)

    assert [uid for uid, _ in recorder.batches] == ['busy', 'new', 'edited', 'old0', 'old1', 'old2']


async def test_object_that_was_there_and_is_changed_goes_first_and_once(queue, recorder, limits):
    limits['workers'] = 1
    recorder.gates['busy'] = 1
    queue.put(build_event(1, 'busy'))
    for number in range(3):
        queue.put(build_event(number, f'old{number}', type=None))
    queue.put(build_event(7, 'old2', type='MODIFIED'))
    queue.put(build_event(8, 'old2', type='MODIFIED'))
    await recorder.wait_for_calls(4)
    await settle()

    assert recorder.batches == [('busy', [1]), ('old2', [2, 7, 8]), ('old0', [0]), ('old1', [1])]


async def test_objects_that_were_there_do_not_wait_for_ever(queue, recorder, limits):
    limits['workers'] = 1
    queue.put(build_event(1, 'busy'))
    queue.put(build_event(1, 'old0', type=None))
    queue.put(build_event(1, 'old1', type=None))
    for number in range(10):
        queue.put(build_event(1, f'new{number}'))
    await recorder.wait_for_calls(13)

    uids = [uid for uid, _ in recorder.batches]
    assert [uids.index('old0'), uids.index('old1')] == [slots_.SHARE - 1, 2 * slots_.SHARE - 1]


async def test_fresh_changes_are_handled_at_once_even_in_a_crowd_but_the_others_are_not(
    queue, recorder, limits
):
    limits['is_crowded'] = True
    for number in range(3):
        queue.put(build_event(number, f'old{number}', type=None))
    queue.put(build_event(1, 'new', type='ADDED'))
    queue.put(build_event(7, 'old2', type='MODIFIED'))
    await settle()

    assert recorder.batches == [('new', [1]), ('old2', [2, 7])]


async def test_objects_that_were_there_are_handled_slowly_while_there_is_a_crowd(
    queue, recorder, limits
):
    limits['is_crowded'] = True
    for number in range(3):
        queue.put(build_event(number, f'old{number}', type=None))
    await recorder.wait_for_calls(3)

    moments = [round(when / slots_.CROWD_DELAY) for *_, when in recorder.calls]
    assert moments == [1, 2, 3]


async def test_crowd_is_looked_at_as_soon_as_anything_is_handled(queue, recorder, limits):
    limits['is_crowded'] = True
    queue.put(build_event(1, 'old', type=None))
    recorder.gates['new'] = slots_.CROWD_DELAY / 2
    queue.put(build_event(1, 'new'))
    await settle()
    limits['is_crowded'] = False
    await recorder.wait_for_calls(2)

    assert recorder.calls[1] == ('old', [1], 1, slots_.CROWD_DELAY / 2)


async def test_objects_do_not_begin_at_once_so_that_the_crowd_is_noticed_in_time(recorder):
    slots = slots_.Slots(lambda: None, is_crowded=lambda: len(recorder.running) >= 10)
    queue = queueing.Queue(queueing.Handling(recorder.handle), slots, name='things')
    for number in range(100):
        recorder.gates[f'old{number}'] = slots_.CROWD_DELAY / 2
        queue.put(build_event(1, f'old{number}', type=None))
    await recorder.wait_for_calls(100)
    await queue.close(timeout=0)

    assert recorder.most_at_once <= 10 + 2 * slots_.TURN


async def test_closed_queue_leaves_nothing_to_begin(queue, recorder, limits):
    limits['is_crowded'] = True
    queue.put(build_event(1, 'old', type=None))

    dropped = await queue.close(timeout=1)
    limits['is_crowded'] = False
    await settle()

    assert list(dropped) == ['old']
    assert recorder.calls == []
