"""
Queueing: backlogs of busy objects keep every event only if it is wanted; otherwise, they do not
grow.
"""

import asyncio
import functools
import itertools

import pytest
from recorders import Verdict, build_event, settle

from kopf._core.reactor import backlogs, queueing
from kopf._core.reactor import slots as slots_

TYPES = [None, 'ADDED', 'MODIFIED', 'DELETED']


@pytest.fixture
def wishes():
    """Is every event wanted? It can be changed at any moment."""
    return {'is_wanted': False}


@pytest.fixture
async def queue(recorder, wishes):
    slots = slots_.Slots(lambda: None)
    handling = queueing.Handling(recorder.handle, is_every_event_wanted=lambda: wishes['is_wanted'])
    queue = queueing.Queue(handling, slots, name='things')
    yield queue
    await queue.close(timeout=0)


def build_backlog(*types):
    return [build_event(number, type=type) for number, type in enumerate(types, start=1)]


@pytest.mark.guarantee('FND-011')
@pytest.mark.parametrize(
    'types, expected',
    [
        pytest.param([None], [1], id='initial'),
        pytest.param(['ADDED'], [1], id='added'),
        pytest.param(['DELETED'], [1], id='deleted'),
        pytest.param(['ADDED', 'MODIFIED'], [2], id='added-modified'),
        pytest.param(['MODIFIED', 'MODIFIED', 'MODIFIED'], [3], id='modified'),
        pytest.param([None, 'MODIFIED'], [1, 2], id='initial-modified'),
        pytest.param(
            [None, 'MODIFIED', 'MODIFIED', 'MODIFIED'], [1, 4], id='initial-modified-again'
        ),
        pytest.param([None, None], [2], id='initial-listed-again'),
        pytest.param([None, 'MODIFIED', None], [3], id='initial-modified-listed-again'),
        pytest.param(['ADDED', None], [1, 2], id='added-listed-later'),
        pytest.param(['ADDED', None, 'MODIFIED'], [3], id='added-listed-modified'),
        pytest.param(['MODIFIED', 'MODIFIED', 'DELETED'], [3], id='modified-deleted'),
        pytest.param([None, 'MODIFIED', 'DELETED'], [1, 3], id='initial-deleted'),
        pytest.param(['MODIFIED', 'DELETED', 'ADDED'], [2, 3], id='deleted-restored'),
        pytest.param(
            ['MODIFIED', 'DELETED', 'ADDED', 'MODIFIED'], [2, 4], id='deleted-restored-modified'
        ),
        pytest.param(['DELETED', 'ADDED', 'DELETED'], [1, 3], id='deleted-restored-deleted'),
        pytest.param(['DELETED', 'ADDED', 'DELETED', 'ADDED'], [3, 4], id='deleted-twice-restored'),
        pytest.param([None, 'DELETED', 'ADDED'], [1, 2, 3], id='initial-deleted-restored'),
        pytest.param(
            [None, 'DELETED', 'ADDED', 'DELETED', 'ADDED', 'MODIFIED'], [1, 4, 6], id='initial-all'
        ),
        pytest.param(['DELETED', None], [1, 2], id='deleted-listed-again'),
    ],
)
def test_backlog_is_folded(types, expected):
    events = build_backlog(*types)

    backlog = functools.reduce(backlogs.fold, events, [])

    assert [int(event['object']['metadata']['resourceVersion']) for event in backlog] == expected


@pytest.mark.guarantee('FND-011')
@pytest.mark.parametrize('length', range(1, 7))
def test_folded_backlog_is_short_and_tells_the_same(length):
    for types in itertools.product(TYPES, repeat=length):
        events = build_backlog(*types)

        backlog = functools.reduce(backlogs.fold, events, [])

        assert len(backlog) <= 3
        assert backlog[-1] is events[-1]
        assert (backlog[0]['type'] is None) == (events[0]['type'] is None)
        assert any(event['type'] == 'DELETED' for event in backlog) == ('DELETED' in types)
        assert all(any(event is original for original in events) for event in backlog)


@pytest.mark.guarantee('FND-011')
@pytest.mark.parametrize(
    'is_wanted, expected',
    [
        pytest.param(False, [100], id='only-latest'),
        pytest.param(True, list(range(2, 101)), id='every'),
    ],
)
async def test_events_of_a_busy_object_are_kept_only_if_they_are_wanted(
    queue, recorder, wishes, is_wanted, expected
):
    wishes['is_wanted'] = is_wanted
    recorder.gates['uid1'] = [5, 0]
    for number in range(1, 101):
        queue.put(build_event(number))
        await settle()
    await recorder.wait_for_calls(2)

    assert recorder.calls == [('uid1', [1], 1, 0), ('uid1', expected, 100, 5)]


@pytest.mark.guarantee('FND-011')
async def test_wishes_can_change_while_the_object_is_busy(queue, recorder, wishes):
    recorder.gates['uid1'] = [5, 0]
    for number in range(1, 11):
        wishes['is_wanted'] = number > 5
        queue.put(build_event(number))
        await settle()
    await recorder.wait_for_calls(2)

    assert recorder.batches == [('uid1', [1]), ('uid1', [5, 6, 7, 8, 9, 10])]


@pytest.mark.guarantee('FND-011')
async def test_postponed_events_do_not_pile_up(queue, recorder):
    recorder.verdicts['uid1'] = [Verdict(delay=10, is_postponed=True)] * 20
    queue.put(build_event(1, type=None))
    for number in range(2, 22):
        await recorder.wait_for_calls(number - 1)
        queue.put(build_event(number))
    await recorder.wait_for_calls(21)

    assert recorder.batches[-1] == ('uid1', [1, 21])
    assert max(len(numbers) for _, numbers in recorder.batches) == 2


@pytest.mark.guarantee('FND-011')
async def test_events_of_failed_handling_are_handled_again_with_the_latest(queue, recorder):
    recorder.gates['uid1'] = [5, RuntimeError('oops'), 0]
    queue.put(build_event(1, type=None))
    await asyncio.sleep(1)
    queue.put(build_event(2, type='DELETED'))
    queue.put(build_event(3, type='ADDED'))
    await asyncio.sleep(5)
    queue.put(build_event(4))
    await recorder.wait_for_calls(3)

    assert recorder.batches == [('uid1', [1]), ('uid1', [2, 3]), ('uid1', [2, 4])]
