"""
Verdicts: whether anything grows with the number of events. Decisions only.

Only the moments of rest are considered: at other times, something is always in progress. The first
third of the run is for the warm-up. The growth is measured by the median slope between all pairs of
moments (Theil-Sen): a few outliers do not affect it. A slope above the limit is a failure even if
the run is too short to be sure of it, as the moments themselves vary as much (``NOISE``); then the
verdict says how many events are needed.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence

SCALE = 100_000  # events: all slopes are per this number of them
LIMITS = {
    'memory': 1.0,
    'heap': 1.0,
    'blocks': 5000,
    'tasks': 5,
    'threads': 2,
    'sockets': 2,
    'descriptors': 2,
}
NOISE = {
    'memory': 1.0,
    'heap': 0.3,
    'blocks': 2000,
    'tasks': 3,
    'threads': 1,
    'sockets': 1,
    'descriptors': 1,
}
SHORTEST = 5  # moments of rest needed for a verdict
WARMING = 1 / 3  # of the time
IDLE = 32  # reports, one per second, with no work: all unused connections are closed by then
QUIET = 3  # the last of them with the same number of tasks: everything is finished


@dataclasses.dataclass(frozen=True)
class Sample:
    """The resources of the operator at a moment."""

    seconds: float
    events: int
    # MB of RSS, as seen from outside: it stays after each burst larger than all before.
    memory: float
    heap: float  # MB in use, except small objects of Python
    blocks: int  # the number of small objects
    # Without the daemons in threads, as their number is random; the same for threads.
    tasks: int
    threads: int
    sockets: int
    descriptors: int
    is_rest: bool = False


def is_quiet(reports: Sequence[Mapping[str, float]]) -> bool:
    """Return whether nothing is in progress, according to the operator's own reports."""
    recent = reports[-IDLE:]
    return (
        len(recent) == IDLE
        and len({(report['events'], report['calls']) for report in recent}) == 1
        and len({report['tasks'] for report in recent[-QUIET:]}) == 1
    )


def select_counted(samples: Sequence[Sample]) -> list[Sample]:
    """Select the moments of rest after the warm-up."""
    since = samples[-1].seconds * WARMING if samples else 0.0
    return [sample for sample in samples if sample.is_rest and sample.seconds >= since]


def measure_slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return how fast the values grow: the median slope of all pairs."""
    slopes = [
        (y2 - y1) / (x2 - x1)
        for (x1, y1), (x2, y2) in itertools.combinations(zip(xs, ys, strict=True), 2)
        if x2 != x1
    ]
    return statistics.median(slopes) if slopes else 0.0


def measure_slopes(samples: Sequence[Sample]) -> dict[str, float]:
    """Return how fast each of the figures grows."""
    counted = select_counted(samples)
    events = [sample.events / SCALE for sample in counted]
    return {
        name: measure_slope(events, [getattr(sample, name) for sample in counted])
        for name in LIMITS
    }


def measure_span(counted: Sequence[Sample]) -> float:
    """Return the number of events, in the scale of the slopes."""
    return (counted[-1].events - counted[0].events) / SCALE if counted else 0.0


def judge(samples: Sequence[Sample]) -> list[str]:
    """Return what grows, one line per figure; none if all is well."""
    counted = select_counted(samples)
    if len(counted) < SHORTEST:
        return [
            f'there were only {len(counted)} moments of rest after the warming up: it was too short to tell'
        ]
    return [
        f'{name}: grows by {slope:.2f} per {SCALE:,} events, while {LIMITS[name]:g} is permitted'
        + describe_doubt(name, slope, measure_span(counted))
        for name, slope in measure_slopes(samples).items()
        if slope > LIMITS[name]
    ]


def describe_doubt(name: str, slope: float, span: float) -> str:
    """Describe whether the run is too short to be sure of the slope, and how long it should be."""
    enough = NOISE[name] / LIMITS[name] * SCALE
    is_sure = slope * span > NOISE[name]
    return (
        ''
        if is_sure
        else f'; in {span * SCALE:,.0f} events, it can be by chance: repeat it with {enough:,.0f}'
    )


def describe(samples: Sequence[Sample]) -> list[str]:
    """Describe each figure in a line: its first and last values, the slope and its uncertainty."""
    counted, slopes = select_counted(samples), measure_slopes(samples)
    span = measure_span(counted)
    return (
        [
            f'{name:12} {getattr(counted[0], name):10.1f} → {getattr(counted[-1], name):10.1f}   '
            f'{slopes[name]:+10.2f} ±{NOISE[name] / span:.2f} per {SCALE:,} events'
            for name in LIMITS
        ]
        if span
        else []
    )
