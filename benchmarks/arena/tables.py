"""The results as tables: rows of texts, formatted for terminals or for pages."""

from collections.abc import Iterable, Mapping, Sequence

import results
import targets

TITLES = {'kopf': 'Kopf', 'plain': 'without `speed`', 'reference': 'Kopf 1.45.2', 'go': 'in Go'}

Rows = list[list[str]]  # the first one is the header


def build_figures(measurement: results.Measurement) -> Rows:
    """
    Build one row per figure: medians, and in parentheses the ratios to the reference.

    The ratios are with their spread.
    """
    known = {**measurement.figures, **measurement.failures}
    subjects = sorted(known, key=[*TITLES, *known].index)
    rows = [['', *(TITLES.get(name, name) for name in subjects)]]
    for name in measurement.list_names():
        rows.append([name, *(describe(measurement, subject, name) for subject in subjects)])
    if measurement.failures:
        rows.append(
            ['', *('did not end' if name in measurement.failures else '' for name in subjects)]
        )
    return rows


def describe(measurement: results.Measurement, subject: str, name: str) -> str:
    value = measurement.compute_value(subject, name)
    if value is None:
        return '–'
    ratio = measurement.compute_ratio(subject, results.REFERENCE, name)
    if ratio is None or subject == results.REFERENCE:
        return format_number(value)
    spread = f' ±{ratio[1]:.2f}' if len(measurement.get(subject, name)) > 1 else ''
    return f'{format_number(value)} ({ratio[0]:.2f}{spread})'


def format_number(value: float) -> str:
    """Format a number with about three digits."""
    if value == 0 or abs(value) >= 100:
        return f'{value:,.0f}'
    return f'{value:.1f}' if abs(value) >= 10 else f'{value:.2f}'


def build_targets(verdicts: Iterable[targets.Verdict]) -> Rows:
    rows = [['', 'wanted, at most', 'measured', '']]
    for verdict in verdicts:
        value = '–' if verdict.value is None else format_number(verdict.value)
        rows.append([verdict.target.text, f'{verdict.target.limit:g}', value, verdict.text])
    return rows


def compare(values: Mapping[str, Mapping[str, float]]) -> str:
    """Format single values of figures by subject, for terminals."""
    measurement = results.Measurement()
    for subject, figures in values.items():
        measurement.add(subject, figures)
    return format_text(build_figures(measurement))


def format_text(rows: Rows) -> str:
    """Format the rows for terminals, with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join(format_line(row, widths) for row in rows) + '\n'


def format_line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
    return '  '.join([row[0].ljust(widths[0]), *cells[1:]]).rstrip()


def format_markdown(rows: Rows) -> str:
    lines = ['| ' + ' | '.join(row) + ' |' for row in rows]
    return '\n'.join([lines[0], '|' + '---|' * len(rows[0]), *lines[1:]]) + '\n'
