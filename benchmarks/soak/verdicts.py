"""
Verdicts: does anything grow with the number of events?

Only the moments of rest are looked at: in the busy ones, there is always something in progress. The first third of
the time is for warming up. What grows, is told by the median slope between all pairs of moments (Theil-Sen): a few odd
moments do not change it. A slope above the limit is a failure even if the run is too short to be sure of it, as
the moments differ as much by themselves (``NOISE``); then it is told, with how many events would do. Decisions only.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence

SCALE = 100_000  # events: all slopes are per so many of them
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
SHORTEST = 5  # moments of rest, without which nothing can be told
WARMING = 1 / 3  # of the time
IDLE = 32  # reports of every second with nothing done: all unused connections are closed
QUIET = 3  # of them with the same tasks: everything is finished


@dataclasses.dataclass(frozen=True)
class Sample:
    """What the operator has at a moment."""

    seconds: float
    events: int
    memory: float  # MB of RSS, as everybody sees it: it stays after each burst that was larger than all before
    heap: float  # MB in use, but small objects of the interpreter
    blocks: int  # how many small objects there are
    tasks: int  # besides those of the daemons in threads, as these are of a random number; the same for threads
    threads: int
    sockets: int
    descriptors: int
    is_rest: bool = False


def is_quiet(reports: Sequence[Mapping[str, float]]) -> bool:
    """Tell by what the operator has told of itself if nothing is in progress any more."""
    recent = reports[-IDLE:]
    return (
        len(recent) == IDLE
        and len({(report['events'], report['calls']) for report in recent}) == 1
        and len({report['tasks'] for report in recent[-QUIET:]}) == 1
    )


def select_counted(samples: Sequence[Sample]) -> list[Sample]:
    """Select the moments of rest after the warming up."""
    since = samples[-1].seconds * WARMING if samples else 0.0
    return [sample for sample in samples if sample.is_rest and sample.seconds >= since]


def measure_slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Tell how fast the values grow: in the middle of all pairs."""
    slopes = [
        (y2 - y1) / (x2 - x1)
        for (x1, y1), (x2, y2) in itertools.combinations(zip(xs, ys, strict=True), 2)
        if x2 != x1
    ]
    return statistics.median(slopes) if slopes else 0.0


def measure_slopes(samples: Sequence[Sample]) -> dict[str, float]:
    """Tell how fast each of the figures grows."""
    counted = select_counted(samples)
    events = [sample.events / SCALE for sample in counted]
    return {
        name: measure_slope(events, [getattr(sample, name) for sample in counted])
        for name in LIMITS
    }


def measure_span(counted: Sequence[Sample]) -> float:
    """Tell how many events there were, in the scale of the slopes."""
    return (counted[-1].events - counted[0].events) / SCALE if counted else 0.0


def judge(samples: Sequence[Sample]) -> list[str]:
    """Tell what grows, in lines: none if all is well."""
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
    """Tell if the run is too short to be sure of such a slope, and how long it should be."""
    enough = NOISE[name] / LIMITS[name] * SCALE
    is_sure = slope * span > NOISE[name]
    return (
        ''
        if is_sure
        else f'; in {span * SCALE:,.0f} events, it can be by chance: repeat it with {enough:,.0f}'
    )


def describe(samples: Sequence[Sample]) -> list[str]:
    """Describe each of the figures in a line: the first and the last of those counted; the slope, how sure it is."""
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
