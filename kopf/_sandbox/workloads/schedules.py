"""
Schedules: the moments of cron jobs. Pure; the schedules are checked already by the API.
"""

import dataclasses
import datetime
import functools
import re
import zoneinfo
from collections.abc import Iterator

from kopf._sandbox.registry.rules import crons

_DESCRIPTORS = {
    '@yearly': '0 0 1 1 *',
    '@annually': '0 0 1 1 *',
    '@monthly': '0 0 1 * *',
    '@weekly': '0 0 * * 0',
    '@daily': '0 0 * * *',
    '@midnight': '0 0 * * *',
    '@hourly': '0 * * * *',
}
_UNITS = {'ns': 1e-9, 'us': 1e-6, 'µs': 1e-6, 'ms': 1e-3, 's': 1.0, 'm': 60.0, 'h': 3600.0}
_HORIZON = 5 * 366
"""For how many days to look for the next moment: there can be none, as on February 30."""

_duration_regex = re.compile(r'(\d+\.?\d*)(ns|us|µs|ms|s|m|h)')


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The moments by their minutes, hours, days, months, and weekdays."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # from Sunday
    is_any_day: bool  # whether the days, or the weekdays, are not restricted: both must match then

    def includes(self, day: datetime.date) -> bool:
        if day.month not in self.months:
            return False
        matches = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return all(matches) if self.is_any_day else any(matches)


@functools.cache
def parse_schedule(text: str) -> Schedule | float:
    """Parse a schedule; an interval is returned in seconds."""
    if text.startswith('@every '):
        parts = _duration_regex.findall(text)
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        return max(1.0, float(int(seconds)))

    fields = _DESCRIPTORS.get(text, text).split()
    minutes, hours, days, months, weekdays = (
        crons.parse_field(index, field) for index, field in enumerate(fields)
    )
    is_any_day = fields[2][0] in '*?' or fields[4][0] in '*?'

    return Schedule(minutes, hours, days, months, weekdays, is_any_day)


def find_next(text: str, zone: str | None, after: datetime.datetime) -> datetime.datetime | None:
    """Find the first moment after another one; ``None`` if there is none in years."""
    schedule = parse_schedule(text)
    if isinstance(schedule, float):
        return after.replace(microsecond=0) + datetime.timedelta(seconds=schedule)

    local = after.astimezone(find_zone(zone or 'UTC'))
    for day in range(_HORIZON):
        date = local.date() + datetime.timedelta(days=day)
        if schedule.includes(date):
            for moment in _iterate_day(schedule, date, local.tzinfo):
                if moment > after:
                    return moment

    return None


def find_zone(name: str) -> datetime.tzinfo:
    return datetime.UTC if name in ('UTC', 'Etc/UTC') else zoneinfo.ZoneInfo(name)


def _iterate_day(
    schedule: Schedule, date: datetime.date, zone: datetime.tzinfo | None
) -> Iterator[datetime.datetime]:
    """Yield the moments of a day in UTC. Those that the clock skips in spring do not occur."""
    for hour in sorted(schedule.hours):
        for minute in sorted(schedule.minutes):
            local = datetime.datetime.combine(date, datetime.time(hour, minute), zone)
            moment = local.astimezone(datetime.UTC)
            if moment.astimezone(zone).hour == hour:
                yield moment


def list_missed(
    text: str, zone: str | None, since: datetime.datetime, now: datetime.datetime
) -> tuple[datetime.datetime | None, int]:
    """
    Return the latest moment after ``since`` and up to now, and how many there are, at most 101.

    Beyond that, the latest one is found from a later beginning.
    """
    latest = None
    count = 0
    moment = since

    while (found := find_next(text, zone, moment)) is not None and found <= now:
        latest = found
        moment = found
        count = min(count + 1, 101)
        if count > 100 and (now - moment).total_seconds() > 2 * 86400:
            moment = now - datetime.timedelta(days=1)

    return latest, count
