"""
Level-triggered operators: whatever happens, the end is the same as after one call for each object.
"""

import collections
import re

import chaos_table
import levelled_operators
import pytest
from levelled_operators import CASES, build_website, list_owned

from kopf._kits.chaos import checks, plans
from kopf.testing import chaos

CELLS = [
    pytest.param(case.name, perturbation, id=f'{case.name}-{perturbation.value}')
    for case in CASES
    for perturbation in chaos.Perturbation
    if chaos_table.is_fair(case, perturbation)
]
LATE = plans.Plan(lateness=10.0)


@pytest.mark.slow
@pytest.mark.guarantee('RCL-001', 'RCL-002')
@pytest.mark.parametrize('name, perturbation', CELLS)
def test_any_interleaving_ends_as_one_call(name, perturbation):
    task = chaos_table.Task(name, perturbation, range(2))

    _, tried, _, diverged = chaos_table.execute(task)

    assert tried == 2
    assert diverged == []


@pytest.mark.slow
@pytest.mark.guarantee('RCL-001', 'RCL-002')
@pytest.mark.parametrize('name', [case.name for case in CASES])
def test_late_events_lose_no_triggers(name):
    trial, peace, error = chaos_table.prepare(name)
    assert error is None

    _, differences = trial.compare(peace, LATE)

    assert differences == []


NAMES = [f'site{number}' for number in range(20)]


def edit_under_load(sandbox):
    """Edit all websites again and again, faster than their events come."""
    for name in NAMES:
        sandbox.create(build_website(name))
    for round in range(15):
        for name in NAMES:
            sandbox.patch('websites', name, {'spec': {'replicas': round, 'pages': {'a': name}}})
        sandbox.sleep(1.5)
    for name in NAMES[::2]:
        sandbox.patch('deployments', name, {'spec': {'replicas': 99}})
    sandbox.sleep(0.1)
    sandbox.delete('services', NAMES[0])


def observe_load(sandbox):
    levelled_operators.check_rest(sandbox)
    for body in sandbox.list('websites'):
        for plural in ('deployments', 'services', 'configmaps'):
            assert len(list_owned(sandbox, plural, body['metadata']['uid'])) == 1
    return {
        body['metadata']['name']: body['spec']['replicas'] for body in sandbox.list('deployments')
    }


@pytest.mark.slow
@pytest.mark.guarantee('RCL-001', 'RCL-002')
def test_late_events_under_load_make_no_duplicates_and_lose_no_triggers():
    options = {**CASES[0].options, 'observe': observe_load}
    trial = checks.Trial(levelled_operators.declare_websites, edit_under_load, options)

    outcome = trial.run(LATE)

    assert outcome.error is None
    assert outcome.observed == dict.fromkeys(NAMES, 14)
    made = count_made(outcome.timeline)
    assert {made[f'deployments default/{name}'] for name in NAMES} == {1}
    assert {made[f'services default/{name}'] for name in NAMES[1:]} == {1}
    assert made[f'services default/{NAMES[0]}'] == 2  # once again after it was deleted
    # It has converged in time, and not only when the events were no longer late.
    kinds = [moment.kind for moment in outcome.timeline]
    assert 'object' not in kinds[kinds.index('peace') :]


def count_made(timeline):
    """Count how many times each object was created."""
    found = (re.match(r'ADDED (\S+ \S+) ', moment.text) for moment in timeline)
    return collections.Counter(match[1] for match in found if match)


@pytest.mark.guarantee('RCL-001')
def test_late_events_are_late():
    """The deletion of a child is noticed by its parent 10 seconds later, and not before."""

    def scenario(sandbox):
        sandbox.create(build_website('one'))
        sandbox.sleep(60)
        sandbox.delete('services', 'one')

    def declare(registry):
        levelled_operators.declare_websites(registry, settle=None)

    options = {**CASES[0].options, 'observe': lambda sandbox: None}
    outcome = checks.Trial(declare, scenario, options).run(LATE)

    moments = [m for m in outcome.timeline if 'services default/one' in m.text]
    deleted, added = (
        [moment.time for moment in moments if moment.text.startswith(what)][-1]
        for what in ('DELETED', 'ADDED')
    )
    assert added - deleted == pytest.approx(10.0)


def make_late_deletion(monkeypatch):
    """Let only the parents' events be late: their children are seen deleted long before them."""
    monkeypatch.setattr(plans, 'choose_harm', lambda *_: None)
    monkeypatch.setattr(
        plans,
        'choose_line_harm',
        lambda plan, what, nth, line: plans.LineHarm(30.0) if what == 'websites' else None,
    )

    def scenario(sandbox):
        sandbox.create(build_website('one'))
        sandbox.sleep(60)
        sandbox.delete('websites', 'one')

    return scenario, {**CASES[0].options, 'observe': lambda sandbox: None}


@pytest.mark.guarantee('RCL-001')
def test_children_of_absent_parents_are_not_made_in_circles(monkeypatch):
    scenario, options = make_late_deletion(monkeypatch)
    trial = checks.Trial(levelled_operators.declare_websites, scenario, options)

    outcome = trial.run(plans.Plan(intensity=1.0))

    assert outcome.error is None
    assert count_made(outcome.timeline)['services default/one'] < 40


@pytest.mark.guarantee('RCL-001')
def test_operators_that_make_children_in_circles_are_stopped(monkeypatch):
    scenario, options = make_late_deletion(monkeypatch)

    def declare(registry):
        levelled_operators.declare_websites(registry, settle=None)

    outcome = checks.Trial(declare, scenario, options).run(plans.Plan(intensity=1.0))

    assert isinstance(outcome.error, chaos.RestlessOperatorError)
    assert 'for default/one is done more than 1000 times within a minute' in str(outcome.error)
