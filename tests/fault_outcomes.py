"""
What became of operations in faults: the tests collect it, and it is printed as a table when they
end.
"""

import dataclasses

import pytest


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """
    The table: by the fault, then by the operation. Several words of one cell are of several tests.
    """

    rows: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)

    def record(self, fault: str, operation: str, outcome: str) -> None:
        words = self.rows.setdefault(fault, {}).setdefault(operation, [])
        if outcome not in words:
            words.append(outcome)

    def format(self) -> list[str]:
        """
        Write it down in lines: a line for each fault, and the first one with the names of the
        operations.
        """
        operations = list(
            dict.fromkeys(operation for row in self.rows.values() for operation in row)
        )
        lines = [['', *operations]]
        lines += [
            [fault, *(', '.join(row.get(operation, ())) for operation in operations)]
            for fault, row in self.rows.items()
        ]
        widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
        return [
            ''.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]


OUTCOMES = pytest.StashKey[Outcomes]()


@pytest.fixture(scope='session')
def outcomes(pytestconfig: pytest.Config) -> Outcomes:
    """The table of outcomes: ``outcomes.record(fault, operation, 'retried')``."""
    return pytestconfig.stash.setdefault(OUTCOMES, Outcomes())


def write_outcomes(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, if there is something in it."""
    table = config.stash.get(OUTCOMES, Outcomes())
    if table.rows:
        terminalreporter.section('what became of operations in faults')
        for line in table.format():
            terminalreporter.write_line(line)
