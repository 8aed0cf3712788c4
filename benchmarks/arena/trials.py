"""One try of one subject in one scenario: what every measuring function is given, and fills with its figures."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import servers
import subjects

Figures = dict[str, float]


@dataclasses.dataclass
class Trial:
    """A try; the figures are of the same round, so they are there from the previous steps of the scenario."""

    cluster: servers.Cluster
    subject: subjects.Subject
    size: int  # how many objects
    sizes: Sequence[int]  # in all steps
    number: int = 0  # of the round
    figures: Figures = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def running(self, operator: str, *, total: int | None = None) -> Iterator[subjects.Running]:
        """Run an operator that tells when so many objects were handled, by default all of them."""
        with subjects.running(
            self.subject, operator, self.cluster, total or self.size or 1
        ) as running:
            yield running


def compute_percentile(values: list[float], percent: int) -> float:
    """Tell the value which is not less than so many percents of all values."""
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]
