"""
Which connections make room for new ones: a table of decisions.
"""

import pytest

from kopf._cogs.aiokits import occupancy

STAGES = {'o': occupancy.Stage.OPENING, 'b': occupancy.Stage.BUSY, 'i': occupancy.Stage.IDLE}


def build(names, limit=100):
    """Build the occupancy of members, each named by its stage: the first letter."""
    built = occupancy.Occupancy(limit)
    for name in names:
        built.enter(name)
        built.move(name, STAGES[name[0]])
    return built


@pytest.mark.guarantee('FND-051', 'FND-052')
@pytest.mark.parametrize(
    'members, leaver',
    [
        pytest.param([], None, id='nobody'),
        pytest.param(['o1', 'o2'], 'o1', id='oldest-opening'),
        pytest.param(['b1', 'b2'], None, id='all-busy'),
        pytest.param(['i1', 'i2'], 'i1', id='oldest-idle'),
        pytest.param(['b1', 'o1'], 'o1', id='busy-stay'),
        pytest.param(['i1', 'i2', 'o1', 'o2'], 'o1', id='idle-stay-while-half-are-opening'),
        pytest.param(['i1', 'i2', 'o1'], 'i1', id='idle-leave-a-half-for-opening'),
        pytest.param(['b1', 'b2', 'o1'], 'o1', id='opening-leave-if-the-others-are-busy'),
        pytest.param(['b1', 'i1', 'b2'], 'i1', id='idle-leave-if-the-others-are-busy'),
    ],
)
def test_leaver_is_chosen_by_stage_and_age(members, leaver):
    assert build(members).choose_leaver() == leaver


def test_those_who_stay_in_their_stage_keep_their_places():
    built = build(['o1', 'o2'])

    built.move('o1', occupancy.Stage.OPENING)

    assert built.choose_leaver() == 'o1'


def test_those_who_change_their_stage_are_the_newest_there():
    built = build(['i1', 'i2'])

    built.move('i1', occupancy.Stage.BUSY)
    built.move('i1', occupancy.Stage.IDLE)

    assert built.choose_leaver() == 'i2'


def test_those_who_have_left_do_not_come_back_by_moving():
    built = build(['o1'])

    built.leave('o1')
    built.leave('o1')
    built.move('o1', occupancy.Stage.BUSY)

    assert (len(built), 'o1' in built, list(built)) == (0, False, [])


@pytest.mark.parametrize('count, is_full', [(2, False), (3, True), (4, True)])
def test_it_is_full_at_its_limit(count, is_full):
    assert build([f'b{number}' for number in range(count)], limit=3).is_full is is_full


@pytest.mark.guarantee('FND-052')
@pytest.mark.parametrize(
    'wanted, files, limit',
    [
        pytest.param(500, None, 500, id='unlimited'),
        pytest.param(500, 20_000, 500, id='many'),
        pytest.param(500, 1024, 500, id='usual'),
        pytest.param(500, 256, 128, id='few'),
        pytest.param(500, 1, 1, id='almost-none'),
    ],
)
def test_limit_depends_on_the_files_that_can_be_open(wanted, files, limit):
    assert occupancy.choose_limit(wanted, files) == limit
