"""
Checks of the matrix: a cell that has come to rest is compared with what is right for it.

Each check returns the problems as texts, so that a failed cell shows all of them at once.
"""

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matrix_storages
from matrix_expectations import Expectation, build_expectation
from matrix_handlers import FIELD, Call, Trigger
from matrix_patches import read_place
from matrix_servers import IDS, Meddling
from matrix_worlds import Cell, Count, World, describe
from settling import NoRestError

from kopf._cogs.structs import diffs

History = Mapping[str, Sequence[Mapping[str, Any]]]


async def check_cell(world: World) -> list[str]:
    """Let the cell live, restart it, and return all problems."""
    expected = build_expectation(world.cell)
    try:
        lived = await world.live()
    except NoRestError as error:
        return [f'no rest: {error}', describe(world.count())]

    problems = check_life(world.cell, expected, lived)
    history = await world.read_history()
    problems += check_states(world, history)
    problems += check_views(world, history, lived.calls)
    problems += await check_end(world, history)

    try:
        restarted = await world.restart()
    except NoRestError as error:
        return [*problems, f'no rest after a restart: {error}', describe(world.count())]
    return [*problems, *check_restart(expected, restarted)]


def check_life(cell: Cell, expected: Expectation, count: Count) -> list[str]:
    """Compare the numbers."""
    problems = []
    called = collections.Counter(call.name for call in count.calls)
    for name in {*expected.calls, *called}:
        right = expected.calls.get(name, {0})
        if called[name] not in right:
            problems.append(f'{called[name]} calls of {name}, not {right}')
    if len(count.main_writes) > expected.main_writes:
        problems.append(f'{len(count.main_writes)} writes, more than {expected.main_writes}')
    if len(count.status_writes) > expected.status_writes:
        problems.append(
            f'{len(count.status_writes)} writes of the status, more than {expected.status_writes}'
        )
    if len(count.errors) != expected.errors:
        problems.append(f'{len(count.errors)} errors in the log, not {expected.errors}')
    if cell.server.meddling is Meddling.DELETE and any(
        asked.code == 200 for asked in _list_late(cell, count)
    ):
        problems.append('something was written after the object has gone')

    return [*problems, describe(count)] if problems else []


def _list_late(cell: Cell, count: Count) -> list[Any]:
    """List the writes after the deletion: all but the record and the finalizer, if it is needed."""
    return count.writes[2:] if cell.handling.has_finalizer else list(count.writes)


def check_restart(expected: Expectation, count: Count) -> list[str]:
    """Compare the numbers after the restart."""
    problems = []
    called = dict(collections.Counter(call.name for call in count.calls))
    if called != dict(expected.restarted_calls):
        problems.append(f'after a restart: calls {called}, not {expected.restarted_calls}')
    if len(count.writes) > expected.restarted_writes:
        problems.append(
            f'after a restart: {len(count.writes)} writes, more than {expected.restarted_writes}'
        )
    if len(count.errors) != expected.restarted_errors:
        problems.append(
            f'after a restart: {len(count.errors)} errors, not {expected.restarted_errors}'
        )

    return [*problems, describe(count)] if problems else []


def check_states(world: World, history: History) -> list[str]:
    """Check that every recorded last-handled state is one that the same object had by then."""
    problems = []
    for uid, bodies in history.items():
        essences = [matrix_storages.build_essence(world.settings, body) for body in bodies]
        for number, body in enumerate(bodies):
            handled = matrix_storages.fetch_handled(world.settings, body)
            if handled is not None and handled not in essences[: number + 1]:
                problems.append(f'last handled is a state that the object never had: {handled}')
        strangers = [other for other in history if other != uid]
        if any(other in json.dumps(body) for other in strangers for body in bodies):
            problems.append('something of another object was written')
    return problems


def check_views(world: World, history: History, calls: Iterable[Call]) -> list[str]:
    """Check that the handlers have seen real states, and their real differences."""
    problems = []
    for call in calls:
        if call.new is None:
            continue  # daemons and timers have no views
        essences = [
            _narrow(world, matrix_storages.build_essence(world.settings, body))
            for body in history[call.uid]
        ]
        if call.new not in essences:
            problems.append(f'new is a state that the object never had: {call.describe()}')
        elif call.old is not None and call.old not in essences[: _find_last(essences, call.new)]:
            problems.append(
                f'old is a state that the object did not have before: {call.describe()}'
            )
        if call.diff != _build_diff(call.old, call.new):
            problems.append(f'diff is not between old and new: {call.diff} in {call.describe()}')
    return [*problems, *_check_first_view(world, calls), *_check_watched_views(world, calls)]


def _check_first_view(world: World, calls: Iterable[Call]) -> list[str]:
    """Check that the first call is for the cause that was made."""
    first = next(iter(calls), None)
    if first is None or first.new is None:
        return []
    is_edit = world.cell.handling.trigger is Trigger.EDIT
    old = {'spec': {'x': 1}} if is_edit else None
    new = {'spec': {'x': 2 if is_edit else 1}}
    right = old and _narrow(world, old), _narrow(world, new)
    return (
        []
        if (first.old, first.new) == right
        else [f'not {right} in the first call: {first.describe()}']
    )


def _check_watched_views(world: World, calls: Iterable[Call]) -> list[str]:
    """Check that `watch` has seen the patches of the function as the server has stored them."""
    if world.cell.server.meddling is Meddling.EDIT:
        return []  # the changes of others can be seen with them or apart
    problems = []
    for call in calls:
        if call.name == 'watch':
            old = {'spec': {'x': 9 if _is_recreated(world, call) else 1}}
            new = _add_stored(world.cell, old, call.uid)
            if (call.old, call.new) != (old, new):
                problems.append(f'not from {old} to {new}: {call.describe()}')
    return problems


def _is_recreated(world: World, call: Call) -> bool:
    """Return whether the call is for the second object of the name."""
    return call.uid != world.calls[0].uid


def _add_stored(cell: Cell, essence: Mapping[str, Any], uid: str) -> Mapping[str, Any]:
    """Build the essence with what the server makes of the patch."""
    stored = cell.server.build_stored(uid)
    if cell.patch.place == 'spec':
        return {**essence, 'spec': {**essence['spec'], **stored}}
    return {**essence, 'metadata': {cell.patch.place: dict(stored)}}


async def check_end(world: World, history: History) -> list[str]:
    """Check that the object has what the server stores, and that nothing is in progress."""
    cell = world.cell
    body = await world.cluster.find()
    if cell.server.meddling is Meddling.DELETE:
        return [] if body is None else ['the object is still there']

    uid = body['metadata']['uid']
    problems = []
    is_patched = cell.handling.is_created or len(history) == 1
    stored = dict(cell.server.build_stored(uid)) if is_patched else {}
    found = read_place(body, cell.patch.place, cell.handling.patching)
    known = {
        key: value
        for key, value in found.items()
        if key in ('y', 'ports', 'cpu', 'size', 'unknown')
    }
    if known != stored:
        problems.append(f'in the end: {known}, not {stored}')
    handled = matrix_storages.fetch_handled(world.settings, body)
    essence = matrix_storages.build_essence(world.settings, body)
    if handled != essence:
        problems.append(f'in the end, last handled is {handled}, not {essence}')
    if progress := matrix_storages.list_progress(world.settings, body, IDS):
        problems.append(f'in the end, there is progress of {progress}')
    return problems


def _narrow(world: World, essence: Mapping[str, Any]) -> Any:
    return essence.get(FIELD) if world.cell.handling_name == 'field' else essence


def _find_last(items: Sequence[Any], item: Any) -> int:
    return max(number for number, other in enumerate(items) if other == item)


def _build_diff(old: Any, new: Any) -> list[Any]:
    return [
        [str(op), list(path), before, after] for op, path, before, after in diffs.diff(old, new)
    ]
