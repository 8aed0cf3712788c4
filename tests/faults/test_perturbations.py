"""
Operators of all kinds come to the same end, whatever happens: a few seeds of what `make chaos` tries by thousands.

The three perturbations of controllers are those of Sieve (OSDI 2022): a crash in an intermediate state, a stale view
after a restart, and states that are never observed.
"""
import dataclasses

import chaos_table
import pytest
from chaotic_operators import CASES

from kopf.testing import chaos

pytestmark = pytest.mark.slow

CELLS = [(case, perturbation) for case in CASES for perturbation in chaos.Perturbation
         if chaos_table.is_fair(case, perturbation)]


@pytest.mark.parametrize('case, perturbation', [
    pytest.param(case, perturbation, id=f'{case.name}-{perturbation.value}') for case, perturbation in CELLS])
def test_operator_comes_to_the_same_end(case, perturbation):
    *_, diverged = chaos_table.execute(chaos_table.Task(case.name, perturbation, range(3, 4)))

    assert diverged == []


def test_operator_is_killed_at_every_write():
    seeds = range(2 * chaos_table.count_writes('sub-handlers'))

    _, tried, restarts, diverged = chaos_table.execute(
        chaos_table.Task('sub-handlers', chaos.Perturbation.CRASHES, seeds))

    assert tried == restarts == len(seeds) > 10
    assert diverged == []


def test_another_end_is_reported_with_its_story(monkeypatch):
    trial, peace = chaos_table.prepare('sub-handlers')
    monkeypatch.setattr(chaos_table, 'prepare', lambda name: (trial, dataclasses.replace(peace, observed={})))

    *_, diverged = chaos_table.execute(chaos_table.Task('sub-handlers', chaos.Perturbation.GAPS, range(1)))

    assert "observed is {'b': 5" in diverged[0]
    assert "To repeat: perturbation='gaps', seeds=[0]" in diverged[0]


def test_crashes_are_planned_for_every_write():
    tasks = list(chaos_table.plan_tasks({'changes': 20, 'indices': 3}, seeds=10))

    planned = {(task.case, task.perturbation): max(task.seeds) + 1 for task in tasks}
    assert planned['changes', chaos.Perturbation.CRASHES] == 40
    assert planned['indices', chaos.Perturbation.CRASHES] == 10
    assert planned['changes', chaos.Perturbation.ALL] == 10
    assert ('changes', chaos.Perturbation.TRAVELS) not in planned
    assert ('indices', chaos.Perturbation.TRAVELS) in planned


def test_table_shows_what_is_tried_and_what_has_converged():
    cells = {('one', chaos.Perturbation.CRASHES): chaos_table.Cell(5, 1), ('two', chaos.Perturbation.ALL):
             chaos_table.Cell(7, 0)}

    assert chaos_table.format_table(cells) == [
        'scenario  crashes  staleness  travels  gaps  faults  all',
        'one       4 of 5',
        'two                                                  7 of 7']
