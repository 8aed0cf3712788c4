"""The performance targets, and whether they are met."""

import dataclasses
import enum
from collections.abc import Iterator

import results


class Kind(enum.Enum):
    VALUE = 'by itself'
    OF_REFERENCE = 'to the reference'
    OF_GO = 'to Go'


@dataclasses.dataclass(frozen=True)
class Target:
    """The highest acceptable value or ratio."""

    text: str
    scenario: str
    figure: str  # with ``{total}`` for the number of objects
    limit: float
    kind: Kind = Kind.VALUE
    total: int | None = None  # only for this number of objects

    def measure(self, measurement: results.Measurement) -> float | None:
        """Return our value or ratio; ``None`` if it was not measured, or with other totals."""
        if self.total is not None and self.total != measurement.total:
            return None
        figure = self.figure.format(total=f'{measurement.total:,}')
        if self.kind is Kind.VALUE:
            return measurement.compute_value(results.OURS, figure)
        base = results.REFERENCE if self.kind is Kind.OF_REFERENCE else results.GO
        found = measurement.compute_ratio(results.OURS, base, figure)
        return None if found is None else found[0]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A target with the measured value."""

    target: Target
    value: float | None

    @property
    def text(self) -> str:
        if self.value is None:
            return 'not measured'
        return 'met' if self.value <= self.target.limit else 'missed'


TARGETS = [
    *(
        Target(
            f'CPU while objects are {stage}, as a part of the reference',
            'lifecycle',
            f'{stage}, CPU s',
            0.40,
            Kind.OF_REFERENCE,
        )
        for stage in ('created', 'updated', 'deleted')
    ),
    *(
        Target(
            f'CPU while objects are {stage}, times that of Go',
            'lifecycle',
            f'{stage}, CPU s',
            1.2,
            Kind.OF_GO,
        )
        for stage in ('created', 'updated', 'deleted')
    ),
    Target(
        'peak memory with 5,000 objects, as a part of the reference',
        'lifecycle',
        'peak RSS MB',
        0.5,
        Kind.OF_REFERENCE,
        total=5_000,
    ),
    Target(
        'memory per object when 50,000 are only watched, kB',
        'memory',
        '{total} objects, RSS kB per object',
        2.5,
        total=50_000,
    ),
    Target('memory of an idle operator, MB', 'idle', 'RSS MB', 40),
    Target('`import kopf`, s', 'loading', 'import, s', 0.15),
    Target('`kopf --help`, s', 'loading', 'help, s', 0.25),
    Target(
        'CPU of a restart, as a part of the reference', 'restart', 'CPU s', 0.35, Kind.OF_REFERENCE
    ),
    Target('objects written at a restart', 'restart', 'objects written', 0),
    Target('latency when idle, p50, ms', 'latency', 'idle, ms, p50', 5),
    Target(
        'latency at 200 changes per second, p95, as a part of the reference',
        'latency',
        'loaded, ms, p95',
        0.5,
        Kind.OF_REFERENCE,
    ),
    Target(
        'memory with 10,000 reconciled parents and 30,000 children, MB',
        'reconciling',
        'RSS MB',
        110,
        total=10_000,
    ),
    Target(
        'CPU of a change of a child with the call for its parent, times that of Go',
        'reconciling',
        'loaded, CPU ms per change',
        2.0,
        Kind.OF_GO,
    ),
    Target(
        'cost of a change among 50,000 objects, times that among 1,000',
        'growth',
        'times as much',
        1.15,
        total=50_000,
    ),
]


def judge(measured: results.Results) -> Iterator[Verdict]:
    """Compare the results with all targets."""
    for target in TARGETS:
        measurement = measured.get(target.scenario)
        yield Verdict(target, None if measurement is None else target.measure(measurement))
