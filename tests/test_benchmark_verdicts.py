"""
The benchmarks that are tests, too: what they count as late, lost or growing.
"""

import importlib.util
import math
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1] / 'benchmarks'


def load_module(path):
    spec = importlib.util.spec_from_file_location(f'benchmark_{path.stem}', path)
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures = load_module(BENCHMARKS / 'load' / 'figures.py')
verdicts = load_module(BENCHMARKS / 'soak' / 'verdicts.py')

LIFE = figures.Life(10.0, 100.0)


# Load.


@pytest.mark.parametrize(
    'values, percent, expected',
    [
        pytest.param([3, 1, 2], 50, 2, id='middle'),
        pytest.param(range(1, 101), 99, 99, id='p99-of-100'),
        pytest.param(range(1, 11), 99, 10, id='p99-of-few'),
        pytest.param([7], 50, 7, id='single'),
        pytest.param([], 99, math.nan, id='none'),
    ],
)
def test_percentiles_are_values_that_were_measured(values, percent, expected):
    assert figures.select_percentile(list(values), percent) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    'calls, lives, expected',
    [
        pytest.param([(1, 20.5)], [LIFE], [0.5], id='handled'),
        pytest.param([(0, 20.1), (1, 21), (1, 25)], [LIFE], [1], id='first-call-with-it'),
        pytest.param([(2, 22)], [LIFE], [2], id='handled-with-the-next-edit'),
        pytest.param([], [LIFE], [80], id='never-handled'),
        pytest.param([(1, 101)], [LIFE, figures.Life(100.5, 110)], [80], id='late-till-the-end'),
        pytest.param(
            [(1, 101)], [figures.Life(10, 20.5), figures.Life(100, 110)], [], id='interrupted-soon'
        ),
        pytest.param([(1, 31)], [figures.Life(30, 110)], [], id='edited-before-the-start'),
    ],
)
def test_edits_are_measured_by_the_calls_that_have_seen_them(calls, lives, expected):
    edits = [figures.Edit('obj', 1, accepted=20.0)]
    seen = [figures.Call('update', 'obj', mark, moment) for mark, moment in calls]

    assert figures.measure_latencies(edits, seen, lives) == expected


def build_report(**fields):
    calls = [figures.Call('create', f'obj{number}', 1, 0.0) for number in range(1000)]
    return figures.Report(
        **{
            'name': 'test',
            'edited': [0.1] * 100,
            'created': [0.2] * 100,
            'calls': calls,
            'requests': {'list': 5, 'patch': 2000},
            'lost': [],
            **fields,
        }
    )


@pytest.mark.parametrize(
    'fields, expected',
    [
        pytest.param({}, [], id='good'),
        pytest.param({'edited': [0.1] * 99 + [5.0]}, [], id='one-of-hundred-is-late'),
        pytest.param(
            {'edited': [0.1] * 98 + [5.0] * 2}, ['edits are handled in 5.00 s'], id='late-edits'
        ),
        pytest.param(
            {'created': [1.0] * 100}, ['creations are handled in 1.00 s'], id='late-creations'
        ),
        pytest.param({'created': []}, ['creations are handled in nan s'], id='nothing-measured'),
        pytest.param({'lost': ['something']}, ['something'], id='lost'),
        pytest.param({'requests': {'patch': 2020}}, [], id='a-few-more-writes'),
        pytest.param(
            {'requests': {'patch': 2100}},
            ['2100 writes were made instead of 2000'],
            id='many-writes',
        ),
    ],
)
def test_what_is_wrong_with_a_round_is_told(fields, expected):
    problems = figures.judge(build_report(**fields))

    assert len(problems) == len(expected)
    assert all(text in problem for text, problem in zip(expected, problems, strict=True))


@pytest.mark.parametrize('kills, expected', [(0, 1), (1, 0)])
def test_calls_are_repeated_only_after_kills(kills, expected):
    calls = [figures.Call('update', 'obj', 1, 0.0)] * 2

    problems = figures.judge(build_report(calls=calls, requests={'patch': 2}, kills=kills))

    assert len(problems) == expected


# Soak.


def build_samples(growth=None, *, minutes=20, events=100_000):
    """Moments of rest, among busy ones; ``growth`` is how much is leaked in all, by figures."""
    for number in range(minutes):
        part = number / minutes
        base = {
            'memory': 60.0,
            'heap': 10.0,
            'blocks': 280_000,
            'tasks': 126,
            'threads': 2,
            'sockets': 60,
            'descriptors': 70,
        }
        grown = {name: value + (growth or {}).get(name, 0) * part for name, value in base.items()}
        noisy = grown | {
            'tasks': grown['tasks'] + number % 2,
            'sockets': grown['sockets'] + number % 3,
        }
        yield verdicts.Sample(seconds=number * 60, events=int(events * part), is_rest=True, **noisy)
        yield verdicts.Sample(
            seconds=number * 60 + 30, events=int(events * part), **(noisy | {'tasks': 10 * number})
        )


@pytest.mark.parametrize(
    'growth, expected',
    [
        pytest.param({}, [], id='nothing'),
        pytest.param({'tasks': 100}, ['tasks'], id='task-per-1000-events'),
        pytest.param({'threads': 20}, ['threads'], id='thread-per-5000-events'),
        pytest.param({'sockets': 20}, ['sockets'], id='socket-per-5000-events'),
        pytest.param({'descriptors': 20}, ['descriptors'], id='descriptor-per-5000-events'),
        pytest.param({'memory': 10}, ['memory'], id='100-bytes-per-event'),
        pytest.param({'memory': 0.9, 'heap': 0.9}, [], id='9-bytes-per-event'),
        pytest.param({'memory': 1.1}, ['memory'], id='11-bytes-per-event'),
        pytest.param({'heap': 1.1}, ['heap'], id='11-bytes-per-event-in-use'),
        pytest.param({'blocks': 100_000}, ['blocks'], id='object-per-event'),
        pytest.param({'tasks': -100, 'memory': -10}, [], id='shrinking'),
    ],
)
def test_what_grows_is_told(growth, expected):
    problems = verdicts.judge(list(build_samples(growth)))

    assert [problem.split(':')[0] for problem in problems] == expected


@pytest.mark.parametrize(
    'growth, events, is_sure',
    [
        pytest.param(0.75, 50_000, False, id='less-than-the-moments-of-rest-differ'),
        pytest.param(15, 1_000_000, True, id='the-same-slope-for-longer'),
        pytest.param(10, 100_000, True, id='steep'),
    ],
)
def test_growth_that_can_be_by_chance_is_told_with_what_would_be_long_enough(
    growth, events, is_sure
):
    [problem] = verdicts.judge(list(build_samples({'memory': growth}, events=events)))

    assert ('by chance: repeat it with 100,000' not in problem) == is_sure


def test_single_step_in_a_long_run_is_no_slope():
    samples = list(build_samples(events=500_000))
    stepped = [
        verdicts.dataclasses.replace(sample, memory=sample.memory + 2 * (sample.seconds > 700))
        for sample in samples
    ]

    assert verdicts.judge(stepped) == []


def build_reports(*, worked=0, restless=0):
    """
    Reports of a minute, with something done or with tasks that come and go so many seconds ago;
    never if 0.
    """
    return [
        {
            'events': int(second > 60 - worked),
            'calls': 3,
            'tasks': 126 + int(second > 60 - restless) * (second % 2),
        }
        for second in range(1, 61)
    ]


@pytest.mark.parametrize(
    'reports, expected',
    [
        pytest.param(build_reports(), True, id='nothing-done'),
        pytest.param(build_reports()[:31], False, id='not-for-long'),
        pytest.param(build_reports(worked=20), False, id='done-recently'),
        pytest.param(build_reports(worked=40), True, id='done-long-ago'),
        pytest.param(build_reports(restless=10), False, id='tasks-come-and-go'),
        pytest.param(build_reports(restless=20)[:42], False, id='tasks-have-just-changed'),
        pytest.param([], False, id='nothing-told'),
    ],
)
def test_operator_is_quiet_when_nothing_is_done_and_unused_connections_are_closed(
    reports, expected
):
    assert verdicts.is_quiet(reports) is expected


def test_growth_in_the_first_third_does_not_count():
    samples = [*build_samples({'tasks': 500}, minutes=7), *build_samples()]
    moved = [
        verdicts.dataclasses.replace(sample, seconds=number * 30)
        for number, sample in enumerate(samples)
    ]

    assert verdicts.judge(moved) == []


def test_odd_moment_does_not_matter():
    samples = list(build_samples())
    samples[-2] = verdicts.dataclasses.replace(samples[-2], tasks=1000, memory=200.0)

    assert verdicts.judge(samples) == []


def test_short_run_tells_nothing():
    [problem] = verdicts.judge(list(build_samples(minutes=5)))

    assert 'too short' in problem
