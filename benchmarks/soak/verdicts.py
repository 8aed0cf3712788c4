"""
Verdicts: does anything grow with the number of events?

Only the moments of rest are looked at: in the busy ones, there is always something in progress. The first third of
the time is for warming up. What grows, is told by the median slope between all pairs of moments (Theil-Sen): a few odd
moments do not change it. In short runs, slopes are steep with no reason: the growth must be also more than the moments
differ by themselves (``NOISE``). Decisions only.
"""
import dataclasses
import itertools
import statistics
from collections.abc import Sequence

SCALE = 100_000  # events: all slopes are per so many of them
LIMITS = {'memory': 1.0, 'heap': 1.0, 'blocks': 5000, 'tasks': 5, 'threads': 2, 'sockets': 2, 'descriptors': 2}
NOISE = {'memory': 3.0, 'heap': 0.3, 'blocks': 2000, 'tasks': 3, 'threads': 1, 'sockets': 1, 'descriptors': 1}
SHORTEST = 5  # moments of rest, without which nothing can be told


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


def select_counted(samples: Sequence[Sample]) -> list[Sample]:
    """Select the moments of rest after the warming up."""
    since = samples[-1].seconds / 3 if samples else 0.0
    return [sample for sample in samples if sample.is_rest and sample.seconds >= since]


def measure_slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Tell how fast the values grow: in the middle of all pairs."""
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in itertools.combinations(zip(xs, ys, strict=True), 2)
              if x2 != x1]
    return statistics.median(slopes) if slopes else 0.0


def measure_slopes(samples: Sequence[Sample]) -> dict[str, float]:
    """Tell how fast each of the figures grows."""
    counted = select_counted(samples)
    events = [sample.events / SCALE for sample in counted]
    return {name: measure_slope(events, [getattr(sample, name) for sample in counted]) for name in LIMITS}


def measure_span(counted: Sequence[Sample]) -> float:
    """Tell how many events there were, in the scale of the slopes."""
    return (counted[-1].events - counted[0].events) / SCALE if counted else 0.0


def judge(samples: Sequence[Sample]) -> list[str]:
    """Tell what grows, in lines: none if all is well."""
    counted = select_counted(samples)
    if len(counted) < SHORTEST:
        return [f'there were only {len(counted)} moments of rest after the warming up: it was too short to tell']
    span = measure_span(counted)
    return [f'{name}: grows by {slope:.2f} per {SCALE:,} events, while {LIMITS[name]:g} is permitted'
            for name, slope in measure_slopes(samples).items() if slope > LIMITS[name] and slope * span > NOISE[name]]


def describe(samples: Sequence[Sample]) -> list[str]:
    """Describe each of the figures in a line: the first and the last of those counted; the slope, how sure it is."""
    counted, slopes = select_counted(samples), measure_slopes(samples)
    span = measure_span(counted)
    return [f'{name:12} {getattr(counted[0], name):10.1f} → {getattr(counted[-1], name):10.1f}   '
            f'{slopes[name]:+10.2f} ±{NOISE[name] / span:.2f} per {SCALE:,} events' for name in LIMITS] if span else []
