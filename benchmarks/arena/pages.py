"""
The results as a table and a picture for the documentation: ``python benchmarks/arena/pages.py RESULTS.json``.

The results are those of ``run.py --json``. The picture goes to the documentation, and the table is printed.
"""
import html
import json
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

PICTURE = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'pictures' / 'ratios.svg'
BASE, OURS = 'reference', 'kopf'
TITLES = {'kopf': 'Kopf', 'plain': 'without the extra `speed`', 'reference': 'Kopf 1.45.2', 'go': 'in Go'}
ROW, LABELS, BARS = 22, 330, 400  # pixels


def list_rows(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Go over all figures: the medians of all who have them."""
    for scenario, contestants in results.items():
        for figure in contestants[BASE]:
            values = {name: statistics.median(figures[figure]) for name, figures in contestants.items()
                      if figure in figures}
            yield f'{scenario}: {figure}', values


def build_table(results: dict[str, Any]) -> str:
    names = [name for name in TITLES if any(name in contestants for contestants in results.values())]
    lines = ['| | ' + ' | '.join(TITLES[name] for name in names) + ' |', '|---|' + '---|' * len(names)]
    for title, values in list_rows(results):
        cells = [describe(values.get(name), values[BASE]) for name in names]
        lines.append(f'| {title} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'


def describe(value: float | None, base: float) -> str:
    if value is None:
        return ''
    ratio = f' ({value / base:.2f})' if base else ''
    return f'{value:.2f}{ratio}'


def build_picture(results: dict[str, Any]) -> str:
    """Draw our figures as parts of those of the reference, which are the whole width."""
    rows = [(title, values[OURS] / values[BASE]) for title, values in list_rows(results)
            if values[BASE] and OURS in values]
    height, width = ROW * (len(rows) + 1), LABELS + BARS + 50
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
             f'font-size="12" fill="currentColor">',
             f'<text x="{LABELS + BARS}" y="14" text-anchor="end">Kopf 1.45.2 = 1</text>']
    for number, (title, ratio) in enumerate(rows, start=1):
        top, length = number * ROW, min(ratio, 1.1) * BARS
        parts += [
            f'<text x="{LABELS - 8}" y="{top + 14}" text-anchor="end">{html.escape(title)}</text>',
            f'<rect x="{LABELS}" y="{top + 3}" width="{BARS}" height="{ROW - 7}" opacity="0.12"/>',
            f'<rect x="{LABELS}" y="{top + 3}" width="{length:.0f}" height="{ROW - 7}" fill="#2a7ae2"/>',
            f'<text x="{LABELS + max(length, 0) + 5:.0f}" y="{top + 14}">{ratio:.2f}</text>']
    return '\n'.join([*parts, '</svg>', ''])


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    PICTURE.write_text(build_picture(results))
    print(build_table(results))


if __name__ == '__main__':
    main()
