"""
Durations as Go writes them: ``1h30m``, ``1.5s``, ``250ms``.
"""

import datetime
import re
from typing import Final

PATTERN: Final = r'^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$'
"""The durations that are accepted; negative ones are not."""

_PART: Final = re.compile(r'([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)')
_MICROSECONDS: Final = {
    'ns': 0.001,
    'us': 1,
    'µs': 1,
    'ms': 1_000,
    's': 1_000_000,
    'm': 60_000_000,
    'h': 3_600_000_000,
}


def parse_duration(text: str) -> datetime.timedelta:
    """Parse a duration that matches the pattern. Raises `ValueError` for all others."""
    if re.search(PATTERN, text) is None:
        raise ValueError(f'A duration is a text such as 1h30m or 5s; got {text!r}.')
    parts = [float(value) * _MICROSECONDS[unit] for value, unit in _PART.findall(text)]
    return datetime.timedelta(microseconds=round(sum(parts)))


def format_duration(value: datetime.timedelta) -> str:
    """Write a duration in the shortest way. Raises `ValueError` for negative ones."""
    rest = value // datetime.timedelta(microseconds=1)
    if rest < 0:
        raise ValueError(f'Durations cannot be negative; got {value}.')
    text = ''
    for unit in ('h', 'm', 's', 'ms', 'us'):
        count, rest = divmod(rest, int(_MICROSECONDS[unit]))
        text += f'{count}{unit}' if count else ''

    return text or '0s'
