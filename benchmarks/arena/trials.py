"""One trial of one subject in one scenario: the input of measuring functions, and their figures."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import servers
import subjects

Figures = dict[str, float]


@dataclasses.dataclass
class Trial:
    """A trial. Its figures are shared by all steps of the same round."""

    cluster: servers.Cluster
    subject: subjects.Subject
    size: int  # the number of objects
    sizes: Sequence[int]  # in all steps
    number: int = 0  # of the round
    figures: Figures = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, operator: str, *, total: int | None = None) -> Iterator[subjects.Running]:
        """Run an operator that reports when this number of objects is handled, by default all."""
        with subjects.running(
            self.subject, operator, self.cluster, total or self.size or 1
        ) as running:
            yield running


def compute_percentile(values: list[float], percent: int) -> float:
    """Return the value that is not less than this percentage of all values."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]
