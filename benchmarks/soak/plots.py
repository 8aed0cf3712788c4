"""
Plots: one line per figure over time, as SVG, without libraries.
"""

WIDTH, HEIGHT, MARGIN = 760, 120, 40
COLOURS = ('#c0392b', '#2980b9', '#27ae60', '#8e44ad', '#d68910')


def draw(rows, names):
    """Draw each of the named figures in its own scale, from zero to its maximum."""
    total = (HEIGHT + MARGIN) * len(names) + MARGIN
    parts = [
        draw_line(rows, name, number * (HEIGHT + MARGIN) + MARGIN, COLOURS[number % len(COLOURS)])
        for number, name in enumerate(names)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 2 * MARGIN}" height="{total}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        + '\n'.join(parts)
        + '\n</svg>\n'
    )


def draw_line(rows, name, top, colour):
    longest = max(row['seconds'] for row in rows) or 1
    highest = max(row[name] for row in rows) or 1
    points = ' '.join(
        f'{MARGIN + row["seconds"] / longest * WIDTH:.1f},{top + HEIGHT * (1 - row[name] / highest):.1f}'
        for row in rows
    )
    unit = ' MB' if name == 'memory' else ''
    return '\n'.join(
        [
            f'<text x="{MARGIN}" y="{top - 8}">{name}: {rows[0][name]:g} → {rows[-1][name]:g}{unit}, '
            f'at most {highest:g}{unit}</text>',
            f'<rect x="{MARGIN}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            f'<text x="{MARGIN + WIDTH}" y="{top + HEIGHT + 14}" text-anchor="end">{longest:.0f} s</text>',
        ]
    )
