"""
The matrix: one operator with one object per cell.
"""

import logging

import matrix_worlds
import pytest


@pytest.fixture
def make_world(sandbox, registry, settings, run_operator, caplog):
    """Make the world of a cell: ``world = await make_world(cell)``."""

    async def make(cell):
        caplog.set_level(logging.INFO)
        settings.posting.enabled = False
        world = matrix_worlds.World(
            sandbox,
            cell,
            settings,
            run=run_operator,
            read_errors=lambda: matrix_worlds.read_errors(caplog.records),
        )
        await world.prepare(registry)
        return world

    return make
