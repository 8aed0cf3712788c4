"""
Indexes: the completion indexes of jobs, as they are written in statuses: ``1,3-5``. All pure.
"""

from collections.abc import Iterable


def parse_indexes(text: str | None) -> set[int]:
    """Parse a list of indexes and ranges; wrong parts are ignored."""
    found: set[int] = set()
    for part in (text or '').split(','):
        first, _, last = part.partition('-')
        if first.isdigit() and (last or first).isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Format indexes: runs of three and more as ranges."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])

    return ','.join(_format_run(first, last) for first, last in runs)


def _format_run(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f'{first},{last}' if last == first + 1 else f'{first}-{last}'
