"""
The matrix of handlers: every patch of every handler on every server, in the default storages.
"""

import itertools

import pytest
from matrix_checks import check_cell
from matrix_expectations import FULLY_SHOWN, select_cells
from matrix_handlers import HANDLERS
from matrix_patches import PATCHES
from matrix_servers import SERVERS
from matrix_worlds import Cell

CELLS = select_cells(
    Cell(patch, server, handling)
    for handling, server, patch in itertools.product(HANDLERS, SERVERS, PATCHES)
)


@pytest.mark.guarantee('FND-001', 'FND-002', 'FND-003', 'FND-006')
@pytest.mark.parametrize(
    'cell',
    [
        pytest.param(
            cell, id=str(cell), marks=[] if cell.handling_name in FULLY_SHOWN else pytest.mark.slow
        )
        for cell in CELLS
    ],
)
async def test_handlers_are_called_once_for_each_cause(make_world, cell):
    world = await make_world(cell)
    problems = await check_cell(world)

    assert not problems, '\n'.join(problems)
