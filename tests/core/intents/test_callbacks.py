"""
Filters that are functions, and their combinations.
"""

import pytest

import kopf

YES = lambda *_, **__: True  # noqa: E731
NO = lambda *_, **__: False  # noqa: E731


@pytest.mark.guarantee('FLT-030', 'FLT-031', 'FLT-032', 'FLT-033')
@pytest.mark.parametrize(
    'combined, expected',
    [
        pytest.param(kopf.not_(YES), False, id='not-yes'),
        pytest.param(kopf.not_(NO), True, id='not-no'),
        pytest.param(kopf.not_(lambda **_: []), True, id='not-falsy'),
        pytest.param(kopf.all_([YES, YES]), True, id='all-yes'),
        pytest.param(kopf.all_([YES, NO]), False, id='all-mixed'),
        pytest.param(kopf.all_([NO, NO]), False, id='all-no'),
        pytest.param(kopf.all_([]), True, id='all-empty'),
        pytest.param(kopf.any_([YES, YES]), True, id='any-yes'),
        pytest.param(kopf.any_([NO, YES]), True, id='any-mixed'),
        pytest.param(kopf.any_([NO, NO]), False, id='any-no'),
        pytest.param(kopf.any_([]), False, id='any-empty'),
        pytest.param(kopf.none_([YES, YES]), False, id='none-yes'),
        pytest.param(kopf.none_([YES, NO]), False, id='none-mixed'),
        pytest.param(kopf.none_([NO, NO]), True, id='none-no'),
        pytest.param(kopf.none_([]), True, id='none-empty'),
    ],
)
def test_functions_are_combined(combined, expected):
    assert combined(spec={}) is expected


@pytest.mark.guarantee('FLT-034')
def test_combinations_can_be_nested():
    fn = kopf.all_([kopf.any_([NO, kopf.not_(NO)]), kopf.none_([kopf.all_([YES, NO]), NO])])

    assert fn(spec={}) is True


@pytest.mark.guarantee('FLT-034')
@pytest.mark.parametrize(
    'combine',
    [
        pytest.param(kopf.not_, id='not'),
        pytest.param(lambda fn: kopf.all_([fn]), id='all'),
        pytest.param(lambda fn: kopf.any_([fn]), id='any'),
        pytest.param(lambda fn: kopf.none_([fn]), id='none'),
    ],
)
@pytest.mark.parametrize(
    'args', [pytest.param((), id='when'), pytest.param(('value',), id='value')]
)
def test_combined_functions_get_the_same_arguments(combine, args):
    calls = []

    combine(lambda *args, **kwargs: calls.append((args, kwargs)))(
        *args, spec={'field': 1}, name='name'
    )

    assert calls == [(args, {'spec': {'field': 1}, 'name': 'name'})]


def test_functions_can_come_from_generators():
    fn = kopf.all_(fn for fn in [YES, NO])

    assert [fn(), fn()] == [False, False]


def test_unneeded_functions_are_not_called():
    def fail(**_):
        raise AssertionError

    assert kopf.any_([YES, fail])() is True
    assert kopf.all_([NO, fail])() is False
    assert kopf.none_([YES, fail])() is False


@pytest.mark.parametrize(
    'marker, expected', [(kopf.PRESENT, 'kopf.PRESENT'), (kopf.ABSENT, 'kopf.ABSENT')]
)
def test_markers_are_shown_as_they_are_written(marker, expected):
    assert repr(marker) == expected
