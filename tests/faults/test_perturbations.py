"""
Operators of all kinds come to the same end, whatever happens: a few seeds of what `make chaos`
tries by thousands.

The three perturbations of controllers are those of Sieve (OSDI 2022): a crash in an intermediate
state, a stale view after a restart, and states that are never observed.
"""

import dataclasses

import chaos_table
import contested_operators
import pytest
from chaos_table import CASES

from kopf._kits.chaos import checks, plans, server_behaviours
from kopf.testing import chaos

pytestmark = pytest.mark.slow

CELLS = [
    (case, perturbation)
    for case in CASES
    for perturbation in chaos.Perturbation
    if chaos_table.is_fair(case, perturbation)
]


@pytest.mark.parametrize(
    'case, perturbation',
    [
        pytest.param(case, perturbation, id=f'{case.name}-{perturbation.value}')
        for case, perturbation in CELLS
    ],
)
def test_operator_comes_to_the_same_end(case, perturbation):
    *_, diverged = chaos_table.execute(chaos_table.Task(case.name, perturbation, range(3, 4)))

    assert diverged == []


def test_operator_is_killed_at_every_write():
    seeds = range(2 * chaos_table.count_writes('sub-handlers'))

    _, tried, restarts, diverged = chaos_table.execute(
        chaos_table.Task('sub-handlers', chaos.Perturbation.CRASHES, seeds)
    )

    assert tried == restarts == len(seeds) > 10
    assert diverged == []


def test_another_end_is_reported_with_its_story(monkeypatch):
    trial, peace, _ = chaos_table.prepare('sub-handlers')
    monkeypatch.setattr(
        chaos_table, 'prepare', lambda name: (trial, dataclasses.replace(peace, observed={}), None)
    )

    *_, diverged = chaos_table.execute(
        chaos_table.Task('sub-handlers', chaos.Perturbation.GAPS, range(1))
    )

    assert "observed is {'b': 5" in diverged[0]
    assert "To repeat: perturbation='gaps', seeds=[0]" in diverged[0]


def list_servers():
    """
    Every contested operator, with nothing done by the server, and with everything that it can do,
    one by one.
    """
    for case in contested_operators.CASES:
        for name in ['', *server_behaviours.name_behaviours(case.extra.get('server', ()))]:
            yield pytest.param(case, (name,) if name else (), id=f'{case.name}-{name or "nothing"}')


@pytest.mark.guarantee('FND-001', 'FND-002', 'FND-004', 'FND-006', 'FND-008')
@pytest.mark.parametrize('case, server', [*list_servers()])
def test_handlers_are_not_called_more_often_whatever_the_server_does(case, server):
    trial = checks.Trial(case.declare, case.scenario, {**case.options, 'calls': case.attempts})

    outcome = trial.run(plans.Plan(server=server))

    assert outcome.error is None


def test_scenario_that_fails_with_nothing_wrong_is_reported_for_all_its_seeds(monkeypatch):
    monkeypatch.setattr(
        chaos_table, 'prepare', lambda name: (None, None, ValueError('It cannot work.'))
    )

    _, tried, restarts, diverged = chaos_table.execute(
        chaos_table.Task('sub-handlers', chaos.Perturbation.GAPS, range(3))
    )

    assert (tried, restarts, len(diverged)) == (3, 0, 3)
    assert 'It fails with nothing wrong' in diverged[0]
    assert 'It cannot work.' in diverged[0]


def test_crashes_are_planned_for_every_write():
    tasks = list(chaos_table.plan_tasks({'changes': 20, 'indices': 3}, seeds=10))

    planned = {(task.case, task.perturbation): max(task.seeds) + 1 for task in tasks}
    assert planned['changes', chaos.Perturbation.CRASHES] == 40
    assert planned['indices', chaos.Perturbation.CRASHES] == 10
    assert planned['changes', chaos.Perturbation.ALL] == 10
    assert ('changes', chaos.Perturbation.TRAVELS) not in planned
    assert ('indices', chaos.Perturbation.TRAVELS) in planned
    assert ('changes', chaos.Perturbation.RECREATIONS) not in planned
    assert ('indices', chaos.Perturbation.RECREATIONS) in planned


def test_table_shows_what_is_tried_and_what_has_converged():
    cells = {
        ('one', chaos.Perturbation.CRASHES): chaos_table.Cell(5, 1),
        ('two', chaos.Perturbation.ALL): chaos_table.Cell(7, 0),
    }

    assert chaos_table.format_table(cells) == [
        'scenario  crashes  staleness  travels  gaps  faults  all     meddling  recreations',
        'one       4 of 5',
        'two                                                  7 of 7',
    ]
