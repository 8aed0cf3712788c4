"""
Charts as SVG: grouped bars, and lines. They do not depend on the origin of the data.

Texts have the colour of the surrounding page, so that they fit both its light and its dark mode. A
picture that is not embedded into a page cannot use its colours, and has its own background.
"""

import dataclasses
import html
from collections.abc import Iterable, Mapping, Sequence

ROW, GAP, LABELS, WIDTH, VALUES = 16, 10, 290, 400, 70  # pixels
LINES_HEIGHT, MARGIN = 260, 50


@dataclasses.dataclass(frozen=True)
class Series:
    """The title and the colour of the values of one subject."""

    title: str
    colour: str


@dataclasses.dataclass(frozen=True)
class Paper:
    """The background of a picture that is not embedded: its colours, and the width of its edges."""

    colour: str
    ink: str
    edge: int = 16


@dataclasses.dataclass(frozen=True)
class Group:
    """
    Bars of one figure: the values by series; and the target, if there is one.

    The labels, if any, are written at the bars instead of the values.
    """

    title: str
    values: Mapping[str, float]
    target: float | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


def draw_bars(
    title: str,
    groups: Sequence[Group],
    series: Mapping[str, Series],
    *,
    unit: str = '',
    left: int = LABELS,
    paper: Paper | None = None,
) -> str:
    """Draw horizontal bars on one scale, right of their titles; targets are lines across them."""
    numbers = [value for group in groups for value in (*group.values.values(), group.target or 0)]
    scale = WIDTH / (max(numbers, default=0) or 1)
    top, parts = 30, draw_legend(series)
    for group in groups:
        height = ROW * len(group.values)
        parts.append(write(left - 8, top + height / 2 + 4, group.title, anchor='end'))
        for number, (key, value) in enumerate(group.values.items()):
            y = top + ROW * number
            parts.append(
                f'<rect x="{left}" y="{y + 1}" width="{value * scale:.1f}" height="{ROW - 3}" '
                f'fill="{series[key].colour}"/>'
            )
            label = group.labels.get(key, f'{format_number(value)}{unit}')
            parts.append(write(left + value * scale + 5, y + 12, label))
        if group.target is not None:
            x = left + group.target * scale
            parts.append(
                f'<path d="M{x:.1f},{top - 3} V{top + height + 3}" stroke="#d9480f" stroke-width="2"/>'
            )
        top += height + GAP
    return wrap(title, left + WIDTH + VALUES, top, parts, paper)


def draw_lines(
    title: str,
    points: Mapping[str, Mapping[float, float]],
    series: Mapping[str, Series],
    *,
    unit: str,
) -> str:
    """Draw lines through points, both scales from zero, with values at the last points."""
    widest = max((x for line in points.values() for x in line), default=0) or 1
    highest = max((y for line in points.values() for y in line.values()), default=0) or 1
    right, bottom = MARGIN + WIDTH, 30 + LINES_HEIGHT
    parts = draw_legend(series)
    parts.append(f'<path d="M{MARGIN},30 V{bottom} H{right}" stroke="currentColor" fill="none"/>')
    parts += [
        write(MARGIN - 6, 38, f'{highest:.0f}', anchor='end'),
        write(MARGIN - 6, bottom, '0', anchor='end'),
        write(right, bottom + 18, f'{widest:,.0f} {unit}', anchor='end'),
    ]
    for key, line in points.items():
        places = [
            (MARGIN + x / widest * WIDTH, bottom - y / highest * LINES_HEIGHT)
            for x, y in sorted(line.items())
        ]
        path = ' '.join(
            f'{"L" if number else "M"}{x:.1f},{y:.1f}' for number, (x, y) in enumerate(places)
        )
        parts.append(
            f'<path d="{path}" stroke="{series[key].colour}" stroke-width="2" fill="none"/>'
        )
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{series[key].colour}"/>'
            for x, y in places
        ]
        parts.append(write(places[-1][0] + 8, places[-1][1] + 4, f'{line[max(line)]:.0f}'))
    return wrap(title, right + VALUES, bottom + 26, parts)


def draw_legend(series: Mapping[str, Series]) -> list[str]:
    parts, x = [], 0
    for one in series.values():
        parts += [
            f'<rect x="{x}" y="4" width="12" height="12" fill="{one.colour}"/>',
            write(x + 17, 14, one.title),
        ]
        x += 45 + 7 * len(one.title)
    return parts


def write(x: float, y: float, text: str, *, anchor: str = 'start') -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def format_number(value: float) -> str:
    return f'{value:,.0f}' if value >= 100 else f'{value:.3g}'


def wrap(
    title: str, width: float, height: float, parts: Iterable[str], paper: Paper | None = None
) -> str:
    edge = paper.edge if paper is not None else 0
    ink = paper.ink if paper is not None else 'currentColor'
    box = (
        f'{-edge} {-edge} {width + 2 * edge} {height + 2 * edge}'
        if edge
        else f'0 0 {width} {height}'
    )
    size = f'width="{width + 2 * edge}"' if edge else f'width="100%" style="max-width: {width}px"'
    return '\n'.join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" {size} role="img" '
            f'font-family="system-ui, sans-serif" font-size="12" fill="{ink}">',
            f'<title>{html.escape(title)}</title>',
            *draw_paper(paper, width, height),
            *parts,
            '</svg>',
            '',
        ]
    )


def draw_paper(paper: Paper | None, width: float, height: float) -> list[str]:
    if paper is None:
        return []
    edge = paper.edge
    return [
        f'<rect x="{-edge}" y="{-edge}" width="{width + 2 * edge}" height="{height + 2 * edge}" '
        f'rx="8" fill="{paper.colour}"/>'
    ]
