"""
The matrix of storages: patches and servers with every place for the operator's records.
"""

import itertools

import pytest
from matrix_checks import check_cell
from matrix_expectations import select_cells
from matrix_storages import STORAGES
from matrix_worlds import Cell

PATCHES = ['spec', 'status', 'fns', 'result']
SERVERS = [
    'as-sent',
    'defaulted',
    'pruned',
    'mutated',
    'refused-422',
    'refused-409',
    'touched',
    're-created',
]
HANDLERS = ['both']
QUICK = ['as-sent', 'defaulted', 'refused-422']
USUAL = ('default', False)  # it is in the matrix of handlers
PLACES = [place for place in itertools.product(STORAGES, [False, True]) if place != USUAL]

CELLS = select_cells(
    Cell(patch, server, handling, storage, has_status)
    for handling, (storage, has_status), server, patch in itertools.product(
        HANDLERS, PLACES, SERVERS, PATCHES
    )
)


@pytest.mark.guarantee('FND-001', 'FND-002', 'FND-003', 'FND-006', 'FND-014')
@pytest.mark.parametrize(
    'cell',
    [
        pytest.param(
            cell, id=str(cell), marks=[] if cell.server_name in QUICK else pytest.mark.slow
        )
        for cell in CELLS
    ],
)
async def test_handlers_are_called_once_for_each_cause_with_any_storages(make_world, cell):
    world = await make_world(cell)
    problems = await check_cell(world)

    assert not problems, '\n'.join(problems)
