"""The results: the measurements of each scenario, and their comparison. They are stored as JSON."""

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

OURS, REFERENCE, GO = 'kopf', 'reference', 'go'


@dataclasses.dataclass
class Measurement:
    """All figures of one scenario. They are filled by the runner of the scenario."""

    title: str = ''
    total: int = 0  # the number of objects
    server: str = ''
    machine: str = ''
    date: str = ''
    seconds: float = 0.0  # the duration
    load: float = 0.0  # the load average of the machine before the start
    figures: dict[str, dict[str, list[float]]] = dataclasses.field(default_factory=dict)
    """By subject and by name; one value per round."""
    failures: dict[str, str] = dataclasses.field(default_factory=dict)
    """The reasons of the subjects that did not finish."""

    def add(self, subject: str, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self.figures.setdefault(subject, {}).setdefault(name, []).append(value)

    def list_names(self) -> list[str]:
        """Return the names of all figures, in the order of appearance."""
        return list(dict.fromkeys(name for figures in self.figures.values() for name in figures))

    def get(self, subject: str, name: str) -> list[float]:
        return self.figures.get(subject, {}).get(name, [])

    def compute_value(self, subject: str, name: str) -> float | None:
        values = self.get(subject, name)
        return statistics.median(values) if values else None

    def compute_ratio(self, subject: str, base: str, name: str) -> tuple[float, float] | None:
        """Return the ratio of the medians, and the largest deviation of the ratios of rounds."""
        value, other = self.compute_value(subject, name), self.compute_value(base, name)
        if value is None or not other:
            return None
        pairs = zip(self.get(subject, name), self.get(base, name), strict=False)
        ratio = value / other
        return ratio, max(abs(one / another - ratio) for one, another in pairs if another)


Results = dict[str, Measurement]  # by scenario


def read_results(path: pathlib.Path) -> Results:
    """Read the stored results; none if there is no such file."""
    if not path.exists():
        return {}
    raw: dict[str, Any] = json.loads(path.read_text())
    return {name: Measurement(**fields) for name, fields in raw.items()}


def write_results(path: pathlib.Path, results: Results) -> None:
    raw = {name: dataclasses.asdict(measurement) for name, measurement in results.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(raw, indent=1) + '\n')
