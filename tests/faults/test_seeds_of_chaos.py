"""
Single seeds and scenarios of chaos, each of which needs something special to come to the same end.
"""

import chaos_table
import pytest
from chaos_table import find_case

from kopf._kits.chaos import plans
from kopf.testing import chaos


@pytest.mark.parametrize(
    'perturbation, seed',
    [
        pytest.param('staleness', 13, id='finished-with-another-state'),
        pytest.param('travels', 4, id='begun-for-another-reason'),
        pytest.param('faults', 28, id='own-records-seen-too-late'),
    ],
)
def test_records_of_subhandlers_are_not_left_behind(perturbation, seed):
    case = find_case('sub-handlers')

    chaos.check_convergence(
        case.declare, case.scenario, perturbation=perturbation, seeds=[seed], apply=case.manifests
    )


def test_edit_taken_back_while_killed_is_noticed_by_resuming():
    """
    Killed after the status is written, but before it is recorded what was handled; nothing differs
    afterwards.
    """
    case = find_case('admission')

    report = chaos.check_convergence(
        case.declare, case.scenario, perturbation='all', seeds=[16], apply=case.manifests
    )

    assert report.crashes == 3


def test_operators_that_are_down_in_the_end_are_started_when_everything_is_well():
    """Killed in the last moment, and for longer than anybody waits."""
    case = find_case('admission')

    chaos.check_convergence(
        case.declare, case.scenario, perturbation='all', seeds=[11], apply=case.manifests
    )


@pytest.mark.guarantee('FND-018')
def test_changes_behind_a_belated_patch_that_changes_nothing_are_handled():
    """
    With event handlers, the object is looked at again when the patch comes back, which it never
    does.
    """
    task = chaos_table.Task('status in the object', chaos.Perturbation.MEDDLING, [10])
    *_, diverged = chaos_table.execute(task)

    assert not diverged


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize(
    'name, seed',
    [
        *(
            pytest.param('daemons, timers', seed, id=f'last-words-of-daemons-{seed}')
            for seed in (0, 2, 5, 7)
        ),
        *(
            pytest.param('functions', seed, id=f'creation-never-handled-{seed}')
            for seed in (5, 8, 11, 13, 16)
        ),
        *(
            pytest.param('functions', seed, id=f'status-of-another-object-{seed}')
            for seed in (14, 18)
        ),
    ],
)
def test_what_is_meant_for_an_object_is_not_written_to_its_namesake(name, seed):
    *_, diverged = chaos_table.execute(
        chaos_table.Task(name, chaos.Perturbation.RECREATIONS, [seed])
    )

    assert diverged == []


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize('delay', [0.0, 0.013, 0.513, 1.513])
@pytest.mark.parametrize('change', [1, 3, 5])
def test_creation_of_namesakes_is_handled_whenever_they_come(change, delay):
    """
    The same as some of these seeds, with what they come to: the numbers of writes can be different
    one day.
    """
    trial, peace, error = chaos_table.prepare('functions')
    assert error is None

    _, differences = trial.compare(
        peace, plans.Plan(recreations=(plans.Recreation(change, delay),))
    )

    assert differences == []


@pytest.mark.guarantee('FND-001', 'FND-002', 'FND-004', 'FND-006', 'FND-008')
@pytest.mark.parametrize('name', ['defaults', 'refusals', 'in place', 'namesakes', 'versions'])
def test_scenarios_that_have_failed_with_nothing_wrong(name):
    """
    Circles with no delay, writes on other objects, and handlers of two versions at once for one
    object.
    """
    _, _, error = chaos_table.prepare(name)

    assert error is None
