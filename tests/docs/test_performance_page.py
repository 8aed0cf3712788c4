"""
The page on performance: it is made of the kept results of the benchmarks, and tells which targets
are met.
"""

import importlib
import sys

import doc_blocks
import pytest

ARENA = doc_blocks.DOCS.parent / 'benchmarks' / 'arena'
PERFORMANCE = doc_blocks.DOCS / 'performance'


@pytest.fixture(scope='module')
def arena():
    """The modules of the benchmarks by their names: they are no package, and are not installed."""
    names = ['charts', 'results', 'targets', 'tables', 'pages']
    sys.path.insert(0, str(ARENA))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ARENA))
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture
def measurement(arena):
    measurement = arena['results'].Measurement('Life cycle', 5_000)
    for cpu in (9.0, 10.0, 14.0):
        measurement.add('kopf', {'created, CPU s': cpu})
    for cpu in (40.0, 50.0, 50.0):
        measurement.add('reference', {'created, CPU s': cpu})
    return measurement


def test_page_is_made_of_the_kept_results(arena):
    kept = arena['results'].read_results(PERFORMANCE / 'results.json')
    page = (PERFORMANCE / 'index.md').read_text()

    assert arena['pages'].fill_page(page, kept) == page


def test_pictures_are_made_of_the_kept_results(arena):
    kept = arena['results'].read_results(PERFORMANCE / 'results.json')
    pictures = {path.name: path.read_text() for path in PERFORMANCE.glob('*.svg')}

    assert arena['pages'].draw_pictures(kept) == pictures


def test_ratios_are_of_medians_and_spread_over_rounds(measurement):
    ratio, spread = measurement.compute_ratio('kopf', 'reference', 'created, CPU s')

    assert ratio == pytest.approx(10 / 50)
    assert spread == pytest.approx(14 / 50 - 10 / 50)


@pytest.mark.parametrize(
    'subject, figure',
    [
        pytest.param('go', 'created, CPU s', id='subject'),
        pytest.param('kopf', 'deleted, CPU s', id='figure'),
    ],
)
def test_there_are_no_ratios_of_what_was_not_measured(measurement, subject, figure):
    assert measurement.compute_ratio(subject, 'reference', figure) is None


@pytest.mark.parametrize(
    'limit, total, expected',
    [
        pytest.param(0.2, None, 'met', id='as-much'),
        pytest.param(0.19, None, 'missed', id='more'),
        pytest.param(0.2, 5_000, 'met', id='as-many-objects'),
        pytest.param(0.2, 50_000, 'not measured', id='other-number-of-objects'),
    ],
)
def test_targets_are_the_highest_ratios(arena, measurement, limit, total, expected):
    targets = arena['targets']
    target = targets.Target(
        'CPU', 'lifecycle', 'created, CPU s', limit, targets.Kind.OF_REFERENCE, total=total
    )

    assert targets.Verdict(target, target.measure(measurement)).text == expected


def test_those_who_did_not_end_are_told_in_tables(arena, measurement):
    measurement.failures['go'] = 'It takes longer than 600 s.'

    text = arena['tables'].format_text(arena['tables'].build_figures(measurement))

    assert [line.split() for line in text.splitlines()] == [
        ['Kopf', 'Kopf', '1.45.2', 'in', 'Go'],
        ['created,', 'CPU', 's', '10.0', '(0.20', '±0.08)', '50.0', '–'],
        ['did', 'not', 'end'],
    ]


def test_new_results_are_kept_with_those_of_other_scenarios(arena, measurement, tmp_path):
    arena['pages'].publish(tmp_path, {'lifecycle': measurement})
    arena['pages'].publish(tmp_path, {'idle': measurement}, order=['idle', 'lifecycle'])

    kept = arena['results'].read_results(tmp_path / 'results.json')
    assert list(kept) == ['idle', 'lifecycle']
    assert kept['lifecycle'] == measurement


def test_only_what_is_between_marks_of_measured_scenarios_is_replaced(arena, measurement):
    text = 'Text.\n<!-- lifecycle -->\nold\n<!-- end -->\n<!-- growth -->\nkept\n<!-- end -->\n'

    filled = arena['pages'].fill_page(text, {'lifecycle': measurement})

    assert filled.startswith('Text.\n<!-- lifecycle -->\nLife cycle.\n')
    assert filled.endswith('<!-- end -->\n<!-- growth -->\nkept\n<!-- end -->\n')
    assert 'old' not in filled
