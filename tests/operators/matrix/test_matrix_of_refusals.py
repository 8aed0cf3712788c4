"""
The matrix of refusals: what goes on after the server has refused a patch.
"""

import itertools

import matrix_storages
import pytest
from clusters import PLURAL
from matrix_expectations import select_cells
from matrix_handlers import HANDLERS
from matrix_patches import read_place
from matrix_worlds import Cell, describe

PATCHES = ['spec', 'labels', 'status', 'fns', 'result']
ABSENT = ('resume', 'daemon', 'timer')
"""Not called for the changes of others: there is nothing to go on with."""

PENDING = 'fns'
"""Refused functions hold the handlers until they fit the object (NEW-065): shown elsewhere."""

REQUESTS = 5
"""How many requests an attempt may take: the first one, and some more after short delays."""

REFUSED = select_cells(
    Cell(patch, 'refused-422', handling)
    for handling, patch in itertools.product(HANDLERS, PATCHES)
    if handling not in ABSENT and patch != PENDING
)
CONFLICTING = select_cells(
    Cell(patch, 'as-sent', handling, has_status=has_status)
    for handling, patch, has_status in itertools.product(
        ['both', 'timer', 'subs'], ['spec', 'status', 'fns'], [False, True]
    )
)


@pytest.mark.guarantee('FND-002')
@pytest.mark.parametrize('cell', REFUSED, ids=str)
async def test_changes_of_others_after_a_refusal_are_handled_as_usual(make_world, cell):
    world = await make_world(cell)
    await world.live()
    before = (await world.cluster.get())['spec']['x']
    world.begin()
    await world.cluster.patch({'spec': {'x': 7}})
    count = await world.settle()
    body = await world.cluster.get()

    updates = 1 if cell.handling.is_updating else 0
    watched = 1 if cell.handling.has_watch else 0
    called = [call for call in count.calls if call.name != 'fn/child']
    assert [call.reason for call in called] == ['update'] * (updates + watched), describe(count)
    assert [_find_changes(call, 'x') for call in called] == [(before, 7)] * len(called), describe(
        count
    )
    assert matrix_storages.fetch_handled(world.settings, body) == {'spec': {'x': 7}}
    assert len(count.errors) == updates, describe(count)
    assert len(count.writes) <= 2, describe(count)


def _find_changes(call, key):
    """Return what the handler has seen as the old and the new values of the field."""
    return tuple(view.get('spec', view)[key] for view in (call.old, call.new))


@pytest.mark.guarantee('FND-002', 'FND-005')
@pytest.mark.parametrize('cell', CONFLICTING, ids=str)
async def test_objects_that_always_conflict_are_handled_more_and_more_rarely(
    make_world, cell, settings
):
    world = await make_world(cell)
    await world.start()
    fault = world.cluster.sandbox.faults.inject(
        code=409, verb='patch', resource=PLURAL, user_agent='kopf/*'
    )
    world.begin()
    await world.cluster.create()
    counts = []
    for _ in range(3):
        count = await world.pass_time(300)
        counts.append(len(count.writes))
        world.begin()
    fault.lift()
    await world.pass_time(600)
    await world.settle()
    body = await world.cluster.get()

    early, *_, late = counts
    attempts = len([delay for delay in settings.queueing.error_delays if delay < 150])
    assert early <= REQUESTS * attempts
    assert late <= REQUESTS * 3
    stored = cell.server.build_stored(body['metadata']['uid'])
    assert stored.items() <= read_place(body, cell.patch.place, cell.handling.patching).items()
