"""
Figures: the latencies of edits, the losses, and whether they are acceptable.

Decisions only. All moments are of the monotonic clock, which is common for all processes of a
machine.
"""

import bisect
import collections
import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

LIMIT = 1.0  # seconds: the limit of the latency of edits, at p99
WASTE = 0.01  # of the needed writes: the permitted extra writes, as edits come in between
# The finalizer and the record; the record; the finalizer.
WRITES = {
    'create': 2,
    'update': 1,
    'delete': 1,
}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a handler."""

    what: str
    name: str
    mark: int  # the number of the edit that the handler has seen
    moment: float


@dataclasses.dataclass(frozen=True)
class Edit:
    """A change of an object made by a user. The marks of an object grow."""

    name: str
    mark: int
    accepted: float
    is_creation: bool = False
    took: float = 0.0  # seconds of the request itself


@dataclasses.dataclass(frozen=True)
class Life:
    """The measured time of one process of the operator: from its first object to its stopping."""

    since: float
    until: float


def select_percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that is not exceeded by this percentage of the values."""
    return (
        sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else math.nan
    )


def measure_latencies(
    edits: Iterable[Edit], calls: Iterable[Call], lives: Sequence[Life]
) -> list[float]:
    """
    Measure the time from each edit to the first call with this or a newer edit of the object.

    If an edit is handled by another process than the one that lived at the time of the edit, it
    counts only if the first process was late before its end. Edits made outside of all lives do not
    count: they are found in the initial listing among all other objects.
    """
    handled: dict[str, list[tuple[int, float]]] = collections.defaultdict(list)
    for call in sorted(calls, key=lambda call: call.moment):
        if not handled[call.name] or handled[call.name][-1][0] < call.mark:
            handled[call.name].append((call.mark, call.moment))
    latencies: list[float] = []
    for edit in edits:
        life = next((life for life in lives if life.since <= edit.accepted < life.until), None)
        if life is None:
            continue
        position = bisect.bisect_left(handled[edit.name], (edit.mark, -math.inf))
        moment = handled[edit.name][position][1] if position < len(handled[edit.name]) else math.inf
        if moment <= life.until:
            latencies.append(max(0.0, moment - edit.accepted))
        elif life.until - edit.accepted >= LIMIT:
            latencies.append(life.until - edit.accepted)
    return latencies


def count_repeated(calls: Iterable[Call]) -> int:
    """Count the calls with edits that were already handled by the same function."""
    return sum(
        count - 1
        for count in collections.Counter(
            (call.what, call.name, call.mark) for call in calls
        ).values()
    )


def count_needed_writes(calls: Iterable[Call]) -> int:
    """Count the writes needed for everything that was handled, if nothing goes wrong."""
    return sum(WRITES[what] for what, _, _ in {(call.what, call.name, call.mark) for call in calls})


@dataclasses.dataclass
class Report:
    """The results of one round."""

    name: str
    edited: Sequence[float]  # latencies of edits of the objects handled before
    created: Sequence[float]  # latencies of new objects
    calls: Sequence[Call]
    requests: Mapping[str, int]  # of the operator to the API server, by verb
    lost: Collection[str]  # in words
    answers: Sequence[float] = ()  # seconds of the users' requests
    # Latencies of all edits as another client sees them: the lateness of the server.
    sightings: Sequence[float] = ()
    seconds: float = math.nan
    cpu: float = math.nan  # seconds
    peak: float = math.nan  # MB
    kills: int = 0

    @property
    def writes(self) -> int:
        return sum(
            count
            for verb, count in self.requests.items()
            if verb in ('create', 'patch', 'update', 'delete')
        )

    @property
    def extra(self) -> int:
        """Writes beyond the needed ones and those of the repeated calls."""
        repeated = sum(WRITES[call.what] for call in self.calls) - count_needed_writes(self.calls)
        return self.writes - count_needed_writes(self.calls) - repeated


def judge(report: Report) -> list[str]:
    """Return the problems, one per line; none if all is well."""
    problems = list(report.lost)
    for what, latencies in {'edits': report.edited, 'creations': report.created}.items():
        late = select_percentile(latencies, 99)
        if not late < LIMIT:  # even if there are none
            seen = select_percentile(report.sightings, 99)
            problems.append(
                f'{what} are handled in {late:.2f} s at p99, of {len(latencies)}; '
                f'the server itself tells of them in {seen:.2f} s'
            )
    repeated = collections.Counter((call.what, call.name, call.mark) for call in report.calls)
    excessive = [name for (_, name, _), count in repeated.items() if count > 1 + report.kills]
    if excessive:
        problems.append(
            f'{len(excessive)} objects were handled again and again, e.g. {excessive[0]}'
        )
    needed = count_needed_writes(report.calls)
    if report.extra > max(10, needed * WASTE):
        problems.append(f'{report.writes} writes were made instead of {needed}')
    return problems


COLUMNS = (
    'round',
    'edits',
    'p50',
    'p95',
    'p99',
    'max',
    'new',
    'p50',
    'p95',
    'p99',
    'max',
    'API p99',
    'watch p99',
    'time s',
    'CPU s',
    'RSS MB',
    'requests',
    'writes/obj',
    'extra',
    'repeated',
    'lost',
)


def describe(report: Report) -> list[str]:
    """Build the row of the table; the latencies are in seconds."""
    cells = [report.name]
    for latencies in (report.edited, report.created):
        cells += [
            str(len(latencies)),
            *(f'{select_percentile(latencies, percent):.2f}' for percent in (50, 95, 99)),
            f'{max(latencies, default=math.nan):.2f}',
        ]
    handled = len({call.name for call in report.calls}) or 1
    cells += [
        f'{select_percentile(values, 99):.2f}' for values in (report.answers, report.sightings)
    ]
    cells += [f'{report.seconds:.0f}', f'{report.cpu:.1f}']
    cells += [
        f'{report.peak:.0f}',
        str(sum(report.requests.values())),
        f'{report.writes / handled:.2f}',
    ]
    return [*cells, str(report.extra), str(count_repeated(report.calls)), str(len(report.lost))]


def draw_table(rows: Sequence[Sequence[str]]) -> str:
    """Align the columns, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return '\n'.join(
        '  '.join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )
