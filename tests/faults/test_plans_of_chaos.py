"""
What goes wrong follows from the seed, and is the same for the same seed.
"""

import pytest

from kopf._kits.chaos import plans
from kopf._kits.chaos.plans import Perturbation, Way

SCALE = plans.Scale(writes=5, changes=9, server=('default', 'prune', 'refuse'))


@pytest.mark.parametrize('perturbation', Perturbation)
def test_same_seed_makes_the_same_plan(perturbation):
    made = [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]

    assert made == [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]
    assert len({str(plan) for plan in made}) > 3


def test_first_seeds_of_crashes_kill_at_every_write():
    made = [
        plans.build_plan(seed, Perturbation.CRASHES, SCALE)
        for seed in range(plans.count_crashes(SCALE))
    ]

    points = [(crash.write, crash.is_before) for plan in made for crash in plan.crashes]
    assert points == [(write, is_before) for write in range(1, 6) for is_before in (True, False)]


def test_next_seeds_of_crashes_kill_up_to_twice():
    made = [plans.build_plan(seed, Perturbation.CRASHES, SCALE) for seed in range(10, 60)]

    assert {len(plan.crashes) for plan in made} == {1, 2}
    assert all(
        plan.crashes == tuple(sorted(plan.crashes, key=lambda crash: crash.write)) for plan in made
    )


def test_first_seeds_of_meddling_go_over_all_that_the_server_can_do():
    made = [plans.build_plan(seed, Perturbation.MEDDLING, SCALE) for seed in range(3)]

    assert made == [
        plans.Plan(0, server=('default',)),
        plans.Plan(1, server=('prune',)),
        plans.Plan(2, server=('refuse',)),
    ]


def test_next_seeds_of_meddling_combine_it_with_crashes_and_conflicts():
    made = [plans.build_plan(seed, Perturbation.MEDDLING, SCALE) for seed in range(3, 60)]

    assert {len(plan.server) for plan in made} == {1, 2, 3}
    assert {len(plan.crashes) for plan in made} == {0, 1}
    assert {plan.conflicts for plan in made} == {0.0, 0.2, 0.5}
    assert all(
        plan.server == tuple(name for name in SCALE.server if name in plan.server) for plan in made
    )


def test_objects_are_recreated_at_different_changes_and_moments():
    made = [plans.build_plan(seed, Perturbation.RECREATIONS, SCALE) for seed in range(100)]

    recreations = [recreation for plan in made for recreation in plan.recreations]
    assert {recreation.change for recreation in recreations} == set(range(1, 10))
    assert {recreation.delay for recreation in recreations} == set(plans.DELAYS)
    assert {len(plan.crashes) for plan in made} == {0, 1}


@pytest.mark.parametrize('perturbation', Perturbation)
def test_only_what_can_run_in_circles_must_be_at_rest(perturbation):
    made = [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]

    expected = perturbation in (Perturbation.MEDDLING, Perturbation.RECREATIONS)
    assert {plan.must_rest for plan in made} == {expected}


@pytest.mark.parametrize(
    'perturbation, crashes, gaps, faults',
    [
        pytest.param(Perturbation.CRASHES, True, False, False, id='crashes'),
        pytest.param(Perturbation.STALENESS, True, False, False, id='staleness'),
        pytest.param(Perturbation.TRAVELS, True, False, False, id='travels'),
        pytest.param(Perturbation.GAPS, False, True, False, id='gaps'),
        pytest.param(Perturbation.FAULTS, False, False, True, id='faults'),
        pytest.param(Perturbation.ALL, True, True, True, id='all'),
        pytest.param(Perturbation.MEDDLING, True, False, False, id='meddling'),
        pytest.param(Perturbation.RECREATIONS, True, False, False, id='recreations'),
    ],
)
def test_perturbations_are_what_they_are_called(perturbation, crashes, gaps, faults):
    made = [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]

    assert any(plan.crashes for plan in made) is crashes
    assert any(plan.gaps for plan in made) is gaps
    assert any(plan.intensity for plan in made) is faults


@pytest.mark.parametrize(
    'perturbation, behind, amnesic',
    [
        pytest.param(Perturbation.CRASHES, False, False, id='crashes'),
        pytest.param(Perturbation.STALENESS, True, False, id='staleness'),
        pytest.param(Perturbation.TRAVELS, True, True, id='travels'),
        pytest.param(Perturbation.ALL, True, False, id='all'),
    ],
)
def test_views_are_behind_only_where_it_is_meant(perturbation, behind, amnesic):
    crashes = [
        crash for seed in range(50) for crash in plans.build_plan(seed, perturbation, SCALE).crashes
    ]

    assert any(crash.behind for crash in crashes) is behind
    assert any(crash.is_amnesic for crash in crashes) is amnesic


def collect_harms(verb, intensity=1.0):
    plan = plans.Plan(seed=1, intensity=intensity)
    return [plans.choose_harm(plan, verb, 'things', nth) for nth in range(300)]


@pytest.mark.parametrize(
    'verb, ways, codes',
    [
        pytest.param(
            'get',
            {Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW},
            {429, 500, 503, 504},
            id='get',
        ),
        pytest.param(
            'patch',
            {Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW},
            {409, 429, 500, 503, 504},
            id='patch',
        ),
        pytest.param(
            'list',
            {Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW},
            {410, 429, 500, 503, 504},
            id='list',
        ),
        pytest.param(
            'watch',
            {Way.REFUSE, Way.CUT, Way.EXPIRE, Way.END, Way.STALL},
            {410, 429, 500, 503, 504},
            id='watch',
        ),
    ],
)
def test_requests_are_harmed_in_all_ways(verb, ways, codes):
    harms = collect_harms(verb)

    assert {harm.way for harm in harms} == ways
    assert {harm.code for harm in harms if harm.way is Way.REFUSE} == codes


@pytest.mark.parametrize(
    'verb, conflicts, least, most',
    [
        pytest.param('patch', 0.0, 0, 0, id='never'),
        pytest.param('patch', 0.3, 60, 120, id='sometimes'),
        pytest.param('get', 1.0, 0, 0, id='not-a-patch'),
    ],
)
def test_conflicts_are_the_part_of_refused_patches(verb, conflicts, least, most):
    plan = plans.Plan(seed=1, conflicts=conflicts)

    harms = [plans.choose_conflict(plan, verb, 'things', nth) for nth in range(300)]

    refused = [harm for harm in harms if harm is not None]
    assert least <= len(refused) <= most
    assert all(harm == plans.Harm(Way.REFUSE, code=409) for harm in refused)


@pytest.mark.parametrize(
    'intensity, least, most',
    [
        pytest.param(0.0, 0, 0, id='never'),
        pytest.param(0.3, 60, 120, id='sometimes'),
        pytest.param(1.0, 300, 300, id='always'),
    ],
)
def test_intensity_is_the_part_of_harmed_requests(intensity, least, most):
    harms = [harm for harm in collect_harms('get', intensity) if harm is not None]

    assert least <= len(harms) <= most


def test_events_come_late_or_repeatedly():
    plan = plans.Plan(seed=1, intensity=1.0)
    harms = [plans.choose_line_harm(plan, 'things', 1, line) for line in range(100)]

    assert any(harm.delay and harm.is_repeated for harm in harms)
    assert any(harm.delay and not harm.is_repeated for harm in harms)
    assert any(not harm.delay and harm.is_repeated for harm in harms)
    assert not any(not harm.delay and not harm.is_repeated for harm in harms)


@pytest.mark.parametrize(
    'thing, text',
    [
        pytest.param(plans.PEACE, 'nothing goes wrong', id='nothing'),
        pytest.param(
            plans.Crash(3, is_before=True),
            'instead of the write 3, down for 0 s',
            id='crash-before',
        ),
        pytest.param(
            plans.Crash(3, is_before=False, downtime=5, behind=2, lag=1),
            'after the write 3, down for 5 s, then 2 changes behind for 1 s',
            id='crash-after',
        ),
        pytest.param(
            plans.Gap(2, 20, is_forgotten=True),
            'after the change 2, nothing is seen for 20 s, the history is forgotten',
            id='gap',
        ),
        pytest.param(
            plans.Plan(server=('default', 'prune'), conflicts=0.2),
            'the server does default, prune; conflicts in 20% of patches',
            id='meddling',
        ),
        pytest.param(
            plans.Recreation(3), 're-created right after the change 3', id='recreation-at-once'
        ),
        pytest.param(
            plans.Recreation(3, 0.5), 're-created 0.5 s after the change 3', id='recreation'
        ),
        pytest.param(plans.Harm(Way.REFUSE, code=410), 'refused with 410', id='refusal'),
        pytest.param(
            plans.Harm(Way.STALL, seconds=5, lines=2),
            'stalled for 5 s after 2 lines',
            id='stalled-stream',
        ),
        pytest.param(
            plans.LineHarm(3, is_repeated=True), 'delayed by 3 s and repeated', id='event'
        ),
    ],
)
def test_everything_is_described_in_words(thing, text):
    assert str(thing) == text
