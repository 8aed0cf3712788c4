"""
Expectations of the matrix: what is right for each cell, decided by its tables only.

The numbers of calls are exact, except where independent changes can come together or apart.
The numbers of requests are upper limits: an operator is free to spare some.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from matrix_servers import Meddling
from matrix_worlds import Cell

NOT_FOR_MAPS = 'labels and annotations are maps of texts: the schema has nothing to say on them'
AS_LABELS = 'annotations are treated as labels; shown for the handlers `both` and `pair`'
AS_SPEC = (
    'the same code of the server as for a negative number; shown for the handlers `both` and `pair`'
)
AS_PRUNED = 'the same as pruned or defaulted; shown for the handlers `both` and `pair`'

FULLY_SHOWN = ('both', 'pair')


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a cell must come to."""

    # The right numbers by the names of handlers, in the whole life.
    calls: Mapping[str, Collection[int]]
    main_writes: int  # the most of them
    status_writes: int
    errors: int  # exactly
    restarted_calls: Mapping[str, int]
    restarted_writes: int  # the most of them
    restarted_errors: int = 0


def find_exclusion(cell: Cell) -> str | None:
    """Return why the cell makes no sense, or tells nothing new; ``None`` if it is in the matrix."""
    is_fully_shown = cell.handling_name in FULLY_SHOWN
    if cell.server.only_schematic and not cell.patch.is_schematic:
        return NOT_FOR_MAPS
    if cell.patch_name == 'annotations' and not is_fully_shown:
        return AS_LABELS
    if cell.server_name == 'refused-type' and not is_fully_shown:
        return AS_SPEC
    if cell.server_name == 'pruned-inside' and not is_fully_shown:
        return AS_PRUNED
    return None


def select_cells(cells: Iterator[Cell]) -> list[Cell]:
    """Leave out the excluded cells."""
    return [cell for cell in cells if find_exclusion(cell) is None]


def build_expectation(cell: Cell) -> Expectation:
    """Decide what is right for the cell."""
    turns = count_turns(cell)
    watched = count_watched(cell)
    calls: dict[str, Collection[int]] = {name: {turns} for name in cell.handling.names}
    if cell.handling.has_watch:
        calls['watch'] = watched

    most = max(watched)
    restarted_calls = count_restarted_calls(cell)
    return Expectation(
        calls=calls,
        main_writes=count_main_writes(cell, turns, most),
        status_writes=count_status_writes(cell, turns, most),
        errors=turns if cell.server.is_refused else 0,
        restarted_calls=restarted_calls,
        restarted_writes=count_restarted_writes(cell, restarted_calls),
        restarted_errors=1 if restarted_calls and cell.server.is_refused else 0,
    )


def is_essence_changed(cell: Cell) -> bool:
    """Return whether the patch changes anything of what the handlers for updates look at."""
    return cell.patch.is_essential and bool(cell.server.build_stored('uid'))


def count_turns(cell: Cell) -> int:
    """Count how many times the function is called: once for each cause."""
    meddling = cell.server.meddling
    if meddling is Meddling.EDIT and cell.handling.is_updating:
        return 2  # for its own cause, and for the change of others
    if meddling is Meddling.RECREATE and cell.handling.is_created:
        return 2  # once for each object
    return 1


def count_watched(cell: Cell) -> Collection[int]:
    """Count the updates that `watch` sees: one for each change; close ones can be one."""
    changes = int(is_essence_changed(cell))
    meddling = cell.server.meddling
    if not cell.handling.has_watch or meddling is Meddling.DELETE:
        return {0}
    if meddling is Meddling.RECREATE:
        return {changes if cell.handling.is_created else 0}
    if meddling is Meddling.EDIT and cell.handling.has_finalizer:
        return {1, 1 + changes}  # they live beside the object: their changes come on their own
    if meddling is Meddling.EDIT:
        return {1}
    return {changes}


def count_main_writes(cell: Cell, turns: int, watched: int) -> int:
    """
    Count the requests to the object itself.

    These are the patch and the record for each turn, and a record for each update of `watch`.
    With daemons and timers, the record is for the creation; their finalizer comes and goes.
    """
    finalizers = 2 * turns if cell.handling.has_finalizer else 0
    guards = count_guarded(cell)
    # Of what is of no interest to anybody.
    records = int(cell.server.meddling in (Meddling.EDIT, Meddling.RECREATE))
    return 2 * turns + finalizers + watched + guards + records + cell.server.conflicts


def count_restarted_calls(cell: Cell) -> Mapping[str, int]:
    """Count the calls after a restart, which changes nothing in the essence."""
    if not cell.handling.is_restarted or cell.server.meddling is Meddling.DELETE:
        return {}
    calls = dict.fromkeys(cell.handling.names, 1)
    is_first = cell.server.meddling is Meddling.RECREATE and not cell.handling.is_created
    if is_first and is_essence_changed(cell):
        calls['watch'] = 1  # the object of this name has never been patched before
    return calls


def count_restarted_writes(cell: Cell, calls: Mapping[str, int]) -> int:
    """Count the requests after a restart: the same patch can be sent once more."""
    if not calls:
        return 0
    finalizers = 2 if cell.handling.has_finalizer else 0
    return 1 + finalizers + 2 * calls.get('watch', 0)


def count_status_writes(cell: Cell, turns: int, watched: int) -> int:
    """Count the requests to the subresource."""
    if not cell.has_status:
        return 0
    recorded = turns + watched if cell.storage.is_status else 0
    patched = turns if cell.patch.is_status else 0
    if not recorded + patched:
        return 0
    return recorded + patched + count_guarded(cell) + cell.server.conflicts


def count_guarded(cell: Cell) -> int:
    """Count the requests that are refused since the object has changed after it was seen."""
    if cell.server.meddling in (Meddling.TOUCH, Meddling.EDIT):
        return 1
    # Our own record is such a change.
    return int(cell.patch.is_function and cell.handling.has_finalizer)
