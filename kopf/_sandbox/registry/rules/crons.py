"""
Crons: the syntax of cron jobs' schedules, with the API's error messages.
"""

import re
import zoneinfo
from collections.abc import Mapping
from typing import Final, NamedTuple

_MONTHS: Final = {
    name: index
    for index, name in enumerate(
        ('jan', 'feb', 'mar', 'apr', 'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'), 1
    )
}
_DAYS: Final = {
    name: index for index, name in enumerate(('sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'))
}
_DESCRIPTORS: Final = frozenset(
    ('@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly')
)
_duration_regex = re.compile(r'[+-]?(\d+\.?\d*(ns|us|µs|ms|s|m|h))+|0')
_zone_regex = re.compile(r'[A-Za-z0-9._+-]{1,14}')


class ScheduleError(ValueError):
    """The schedule is malformed; the message is that of the API."""


class _Bounds(NamedTuple):
    low: int
    high: int
    names: Mapping[str, int] = {}


_FIELDS: Final = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, _MONTHS),
    _Bounds(0, 6, _DAYS),
)


def check_schedule(schedule: str) -> None:
    """Raise `ScheduleError` if the schedule is malformed."""
    if schedule.startswith(('TZ=', 'CRON_TZ=')):
        schedule = schedule.partition(' ')[2].strip()
    if schedule.startswith('@'):
        _check_descriptor(schedule)
        return

    fields = schedule.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(
            f'expected exactly {len(_FIELDS)} fields, found {len(fields)}: [{" ".join(fields)}]'
        )

    for field, bounds in zip(fields, _FIELDS, strict=True):
        for part in field.split(','):
            if part:
                _check_range(part, bounds)


def is_time_zone(name: str) -> bool:
    """Return whether the time zone exists."""
    if not all(_zone_regex.fullmatch(part) and part not in ('.', '..') for part in name.split('/')):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False

    return True


def _check_descriptor(text: str) -> None:
    if text.startswith('@every '):
        duration = text.removeprefix('@every ')
        if not _duration_regex.fullmatch(duration):
            raise ScheduleError(
                f'failed to parse duration {text}: time: invalid duration "{duration}"'
            )
    elif text not in _DESCRIPTORS:
        raise ScheduleError(f'unrecognized descriptor: {text}')


def parse_field(index: int, field: str) -> frozenset[int]:
    """Return the values of a field of a schedule, by its position."""
    return frozenset(
        value for part in field.split(',') if part for value in _check_range(part, _FIELDS[index])
    )


def _check_range(text: str, bounds: _Bounds) -> range:
    """Return the values of a part of a field; raise `ScheduleError` if it is malformed."""
    span, *steps = text.split('/')
    low, *highs = span.split('-')
    if low in ('*', '?'):
        start = bounds.low
        end = bounds.high
    elif len(highs) > 1:
        raise ScheduleError(f'too many hyphens: {text}')
    else:
        start = _parse(low, bounds.names)
        end = _parse(highs[0], bounds.names) if highs else start

    if len(steps) > 1:
        raise ScheduleError(f'too many slashes: {text}')

    step = _parse(steps[0], {}) if steps else 1
    end = bounds.high if steps and not highs else end
    if start < bounds.low:
        raise ScheduleError(f'beginning of range ({start}) below minimum ({bounds.low}): {text}')
    if end > bounds.high:
        raise ScheduleError(f'end of range ({end}) above maximum ({bounds.high}): {text}')
    if start > end:
        raise ScheduleError(f'beginning of range ({start}) beyond end of range ({end}): {text}')
    if step == 0:
        raise ScheduleError(f'step of range should be a positive number: {text}')
    return range(start, end + 1, step)


def _parse(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ScheduleError(
            f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
        )
    return int(text)
