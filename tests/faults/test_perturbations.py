"""
Operators of all kinds come to the same end, whatever happens: a few seeds of what `make chaos` tries by thousands.

The three perturbations of controllers are those of Sieve (OSDI 2022): a crash in an intermediate state, a stale view
after a restart, and states that are never observed.
"""
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
    chaos.check_convergence(case.declare, case.scenario, perturbation=perturbation, seeds=[3], **case.options)


def test_operator_is_killed_at_every_write():
    case = chaos_table.find_case('sub-handlers')

    report = chaos.check_convergence(case.declare, case.scenario, perturbation='crashes', **case.options)

    assert report.seeds == list(range(2 * report.peace.writes))
    assert report.crashes == len(report.seeds)


def test_table_shows_what_is_tried_and_what_has_converged():
    cells = {('one', chaos.Perturbation.CRASHES): chaos_table.Cell(5, 1), ('two', chaos.Perturbation.ALL):
             chaos_table.Cell(7, 0)}

    assert chaos_table.format_table(cells) == [
        'scenario  crashes  staleness  travels  gaps  faults  all',
        'one       4 of 5',
        'two                                                  7 of 7']
