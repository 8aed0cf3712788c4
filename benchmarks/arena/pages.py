"""
The page on performance in the documentation: ``python benchmarks/arena/pages.py`` regenerates it.

The results are merged into ``results.json``; the pictures are drawn from all of them; the tables
are put into the page, between its marks. The rest of the page is written by hand.
"""

import pathlib
import re
from collections.abc import Iterable

import charts
import results
import tables
import targets

PAGES = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'performance'
RESULTS, PAGE = 'results.json', 'index.md'
MARKED = re.compile(r'(<!-- (?P<name>[a-z]+) -->\n).*?(<!-- end -->)', re.DOTALL)
COLOURS = {'kopf': '#2a7ae2', 'plain': '#8fbcf5', 'reference': '#9a9a9a', 'go': '#2aa198'}
SERIES = {
    name: charts.Series(title.replace('`', ''), COLOURS[name])
    for name, title in tables.TITLES.items()
}

OVERVIEW = {
    results.OURS: charts.Series('kopf, this package', COLOURS[results.OURS]),
    results.REFERENCE: charts.Series('Kopf 1.45.2', COLOURS[results.REFERENCE]),
    results.GO: charts.Series('the same operator in Go', COLOURS[results.GO]),
}

RATIOS = {
    'created, CPU': ('lifecycle', 'created, CPU s'),
    'updated, CPU': ('lifecycle', 'updated, CPU s'),
    'deleted, CPU': ('lifecycle', 'deleted, CPU s'),
    'all of them, peak memory': ('lifecycle', 'peak RSS MB'),
    'only watched: listed, CPU': ('events', 'listed, CPU s'),
    'only watched: changed, CPU': ('events', 'watched, CPU s'),
    'only watched, memory': ('events', 'RSS MB'),
    'restarted, CPU': ('restart', 'CPU s'),
    'latency when idle, p50': ('latency', 'idle, ms, p50'),
    'latency at 200 changes per second, p95': ('latency', 'loaded, ms, p95'),
    'timers, CPU': ('timers', 'CPU ms per call'),
    'timers, memory': ('timers', 'RSS MB'),
    'indices, CPU': ('indices', 'all indexed, CPU s'),
    'idle, memory': ('idle', 'RSS MB'),
    'import kopf, time': ('loading', 'import, s'),
    'kopf --help, time': ('loading', 'help, s'),
}


def publish(directory: pathlib.Path, fresh: results.Results, *, order: Iterable[str] = ()) -> None:
    """Keep these results with those of other scenarios, in this order; regenerate the page."""
    kept = results.read_results(directory / RESULTS) | fresh
    kept = {name: kept[name] for name in dict.fromkeys([*order, *kept]) if name in kept}
    results.write_results(directory / RESULTS, kept)
    for name, picture in draw_pictures(kept).items():
        (directory / name).write_text(picture)
    page = directory / PAGE
    if page.exists():
        page.write_text(fill_page(page.read_text(), kept))


def fill_page(text: str, measured: results.Results) -> str:
    """Put the tables of results between the marks; marks of unmeasured scenarios are kept."""

    def fill(match: re.Match[str]) -> str:
        content = build_content(match['name'], measured)
        return match[0] if content is None else f'{match[1]}{content}{match[3]}'

    return MARKED.sub(fill, text)


def build_content(name: str, measured: results.Results) -> str | None:
    if name == 'targets':
        return tables.format_markdown(tables.build_targets(targets.judge(measured)))
    if name not in measured:
        return None
    one = measured[name]
    remark = f'On {one.server}, {one.date}; {one.machine}; the load average before it was {one.load:.1f}.'
    return f'{one.title}.\n{remark}\n\n{tables.format_markdown(tables.build_figures(one))}'


def draw_pictures(measured: results.Results) -> dict[str, str]:
    """Return the pictures of the measured scenarios by file name."""
    pictures = {'ratios.svg': draw_ratios(measured)}
    if 'lifecycle' in measured:
        stages = {f'{stage}, CPU s': stage for stage in ('created', 'updated', 'deleted')}
        pictures['overview.svg'] = draw_overview(measured['lifecycle'])
        pictures['lifecycle.svg'] = draw_groups(
            'Seconds of CPU by stages', measured['lifecycle'], stages, unit=' s'
        )
    if 'latency' in measured:
        percentiles = {
            f'{state}, ms, {percentile}': f'{state}, {percentile}'
            for state in ('idle', 'loaded')
            for percentile in ('p50', 'p95')
        }
        pictures['latency.svg'] = draw_groups(
            'Latency in ms', measured['latency'], percentiles, unit=' ms'
        )
    if 'memory' in measured:
        pictures['memory.svg'] = draw_memory(measured['memory'])
    return pictures


def draw_ratios(measured: results.Results) -> str:
    """Draw our figures as fractions of the reference's ones, with the targets."""
    limits = {
        (target.scenario, target.figure): target.limit
        for target in targets.TARGETS
        if target.kind is targets.Kind.OF_REFERENCE
    }
    groups = []
    for title, (scenario, figure) in RATIOS.items():
        if scenario not in measured:
            continue
        found = measured[scenario].compute_ratio(results.OURS, results.REFERENCE, figure)
        if found is not None:
            groups.append(
                charts.Group(title, {results.OURS: found[0]}, target=limits.get((scenario, figure)))
            )
    series = {
        results.OURS: charts.Series(
            'Kopf, as a part of Kopf 1.45.2; across: the targets', COLOURS[results.OURS]
        )
    }
    return charts.draw_bars('Figures as parts of those of Kopf 1.45.2', groups, series)


def draw_overview(measurement: results.Measurement) -> str:
    """Draw CPU time and memory as fractions of the largest ones: the picture of the README."""
    groups = [
        build_overview(measurement, title, figure, unit)
        for title, figure, unit in (
            ('CPU time', 'in all, CPU s', 's'),
            ('peak memory', 'peak RSS MB', 'MB'),
        )
    ]
    drawn = {name: one for name, one in OVERVIEW.items() if name in measurement.figures}
    title = 'CPU time and peak memory while objects are created, updated and deleted'
    paper = charts.Paper('#ffffff', ink='#1a1a1a')
    return charts.draw_bars(title, groups, drawn, left=100, paper=paper)


def build_overview(
    measurement: results.Measurement, title: str, figure: str, unit: str
) -> charts.Group:
    found = {name: measurement.compute_value(name, figure) for name in OVERVIEW}
    values = {name: value for name, value in found.items() if value is not None}
    largest = max(values.values(), default=0) or 1
    return charts.Group(
        title,
        {name: value / largest for name, value in values.items()},
        labels={name: f'{charts.format_number(value)} {unit}' for name, value in values.items()},
    )


def draw_groups(
    title: str, measurement: results.Measurement, figures: dict[str, str], *, unit: str
) -> str:
    names = [name for name in SERIES if name in measurement.figures]
    groups = [
        charts.Group(
            label,
            {
                name: value
                for name in names
                if (value := measurement.compute_value(name, figure)) is not None
            },
        )
        for figure, label in figures.items()
    ]
    return charts.draw_bars(title, groups, {name: SERIES[name] for name in names}, unit=unit)


def draw_memory(measurement: results.Measurement) -> str:
    points: dict[str, dict[float, float]] = {}
    for figure in measurement.list_names():
        if match := re.fullmatch(r'([\d,]+) objects, RSS MB', figure):
            for name in measurement.figures:
                value = measurement.compute_value(name, figure)
                if value is not None:
                    points.setdefault(name, {})[float(match[1].replace(',', ''))] = value
    return charts.draw_lines(
        'Resident memory in MB by the number of only-watched objects',
        points,
        {name: SERIES[name] for name in SERIES if name in points},
        unit='objects',
    )


if __name__ == '__main__':
    publish(PAGES, {})
