"""
Comparison of the fidelity tests: every difference is found and named, and only those listed are
allowed.
"""

import fidelity_comparison
import fidelity_masks
import pytest


def compare(ours, theirs):
    sides = (
        [fidelity_masks.Masked(f'GET /{index}', answer) for index, answer in enumerate(side)]
        for side in (ours, theirs)
    )
    return [
        (item.label, item.path, item.sandbox, item.real)
        for item in fidelity_comparison.compare(*sides)
    ]


@pytest.mark.parametrize(
    'ours, theirs, path',
    [
        pytest.param({'a': 1}, {'a': 2}, '.body.a', id='value'),
        pytest.param({'a': 1}, {'a': '1'}, '.body.a', id='type'),
        pytest.param({'a': 1}, {'a': True}, '.body.a', id='boolean'),
        pytest.param({'a': None}, {}, '.body.a', id='null'),
        pytest.param({}, {'a': {'b': 1}}, '.body.a', id='absent'),
        pytest.param({'a': [1, {'b': 2}]}, {'a': [1, {'b': 3}]}, '.body.a[1].b', id='nested'),
        pytest.param({'a': [1]}, {'a': [1, 2]}, '.body.a[1]', id='longer'),
    ],
)
def test_different_fields_are_found(ours, theirs, path):
    found = compare([{'code': 200, 'body': ours}], [{'code': 200, 'body': theirs}])

    assert [(label, place) for label, place, *_ in found] == [('GET /0', path)]


def test_same_answers_do_not_differ():
    answers = [{'code': 200, 'body': {'a': [1, {'b': None}]}}]

    assert compare(answers, answers) == []


def test_answers_of_different_codes_are_one_difference():
    ours, theirs = {'code': 200, 'body': {'a': 1, 'b': 2}}, {'code': 404, 'body': {'message': 'no'}}

    assert compare([ours], [theirs]) == [('GET /0', '.code', "200 {'a': 1, 'b': 2}", '404 no')]


def test_absent_answers_are_different():
    answer = {'code': 200, 'body': None}

    assert compare([answer, answer], [answer]) == [('GET /1', '.code', '200 None', '<absent> None')]


@pytest.mark.parametrize(
    'label, path, fits',
    [
        pytest.param('GET', r'\.body\.a', True, id='both'),
        pytest.param('POST', r'\.body\.a', False, id='other-request'),
        pytest.param('GET', r'\.body', False, id='part-of-path'),
    ],
)
def test_allowances_fit_by_the_request_and_the_whole_path(label, path, fits):
    allowance = fidelity_comparison.Allowance('transcript', label, path, 'reason')

    assert allowance.fits(fidelity_comparison.Difference('1. GET /x', '.body.a', 1, 2)) is fits
