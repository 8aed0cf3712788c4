"""
What goes wrong follows from the seed, and is the same for the same seed.
"""
import pytest

from kopf._kits.chaos import plans
from kopf._kits.chaos.plans import Perturbation, Way

SCALE = plans.Scale(writes=5, changes=9)


@pytest.mark.parametrize('perturbation', Perturbation)
def test_same_seed_makes_the_same_plan(perturbation):
    made = [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]

    assert made == [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]
    assert len({str(plan) for plan in made}) > 3


def test_first_seeds_of_crashes_kill_at_every_write():
    made = [plans.build_plan(seed, Perturbation.CRASHES, SCALE) for seed in range(plans.count_crashes(SCALE))]

    points = [(crash.write, crash.is_before) for plan in made for crash in plan.crashes]
    assert points == [(write, is_before) for write in range(1, 6) for is_before in (True, False)]


def test_next_seeds_of_crashes_kill_up_to_twice():
    made = [plans.build_plan(seed, Perturbation.CRASHES, SCALE) for seed in range(10, 60)]

    assert {len(plan.crashes) for plan in made} == {1, 2}
    assert all(plan.crashes == tuple(sorted(plan.crashes, key=lambda crash: crash.write)) for plan in made)


@pytest.mark.parametrize('perturbation, crashes, gaps, faults', [
    pytest.param(Perturbation.CRASHES, True, False, False, id='crashes'),
    pytest.param(Perturbation.STALENESS, True, False, False, id='staleness'),
    pytest.param(Perturbation.TRAVELS, True, False, False, id='travels'),
    pytest.param(Perturbation.GAPS, False, True, False, id='gaps'),
    pytest.param(Perturbation.FAULTS, False, False, True, id='faults'),
    pytest.param(Perturbation.ALL, True, True, True, id='all'),
])
def test_perturbations_are_what_they_are_called(perturbation, crashes, gaps, faults):
    made = [plans.build_plan(seed, perturbation, SCALE) for seed in range(50)]

    assert any(plan.crashes for plan in made) is crashes
    assert any(plan.gaps for plan in made) is gaps
    assert any(plan.intensity for plan in made) is faults


@pytest.mark.parametrize('perturbation, behind, amnesic', [
    pytest.param(Perturbation.CRASHES, False, False, id='crashes'),
    pytest.param(Perturbation.STALENESS, True, False, id='staleness'),
    pytest.param(Perturbation.TRAVELS, True, True, id='travels'),
    pytest.param(Perturbation.ALL, True, False, id='all'),
])
def test_views_are_behind_only_where_it_is_meant(perturbation, behind, amnesic):
    crashes = [crash for seed in range(50) for crash in plans.build_plan(seed, perturbation, SCALE).crashes]

    assert any(crash.behind for crash in crashes) is behind
    assert any(crash.is_amnesic for crash in crashes) is amnesic


def collect_harms(verb, intensity=1.0):
    plan = plans.Plan(seed=1, intensity=intensity)
    return [plans.choose_harm(plan, verb, 'things', nth) for nth in range(300)]


@pytest.mark.parametrize('verb, ways, codes', [
    pytest.param('get', {Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW}, {429, 500, 503, 504}, id='get'),
    pytest.param('patch', {Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW}, {409, 429, 500, 503, 504},
                 id='patch'),
    pytest.param('list', {Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW}, {410, 429, 500, 503, 504},
                 id='list'),
    pytest.param('watch', {Way.REFUSE, Way.CUT, Way.EXPIRE, Way.END, Way.STALL}, {410, 429, 500, 503, 504}, id='watch'),
])
def test_requests_are_harmed_in_all_ways(verb, ways, codes):
    harms = collect_harms(verb)

    assert {harm.way for harm in harms} == ways
    assert {harm.code for harm in harms if harm.way is Way.REFUSE} == codes


@pytest.mark.parametrize('intensity, least, most', [
    pytest.param(0.0, 0, 0, id='never'),
    pytest.param(0.3, 60, 120, id='sometimes'),
    pytest.param(1.0, 300, 300, id='always'),
])
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


@pytest.mark.parametrize('thing, text', [
    pytest.param(plans.PEACE, "nothing goes wrong", id='nothing'),
    pytest.param(plans.Crash(3, is_before=True), "instead of the write 3, down for 0 s", id='crash-before'),
    pytest.param(plans.Crash(3, is_before=False, downtime=5, behind=2, lag=1),
                 "after the write 3, down for 5 s, then 2 changes behind for 1 s", id='crash-after'),
    pytest.param(plans.Gap(2, 20, is_forgotten=True),
                 "after the change 2, nothing is seen for 20 s, the history is forgotten", id='gap'),
    pytest.param(plans.Harm(Way.REFUSE, code=410), "refused with 410", id='refusal'),
    pytest.param(plans.Harm(Way.STALL, seconds=5, lines=2), "stalled for 5 s after 2 lines", id='stalled-stream'),
    pytest.param(plans.LineHarm(3, is_repeated=True), "delayed by 3 s and repeated", id='event'),
])
def test_everything_is_described_in_words(thing, text):
    assert str(thing) == text
