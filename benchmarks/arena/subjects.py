"""Those who are compared: how to run each of them, and what it says of itself."""
import contextlib
import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Iterator, Mapping

import processes

OPERATORS = pathlib.Path(__file__).resolve().parent / 'operators'


@dataclasses.dataclass(frozen=True)
class Subject:
    """A framework: with an interpreter that has it installed, or a program that needs none."""
    name: str
    python: pathlib.Path | None = None
    program: pathlib.Path | None = None

    def build_command(self, operator: str) -> list[str] | None:
        """Tell how to run such an operator; ``None`` if there is no such one."""
        if self.program is not None:
            return [str(self.program)] if operator == 'lifecycle' else None
        return [str(self.python), '-m', 'kopf', 'run', '--namespace', 'default', str(OPERATORS / f'{operator}.py')]


class Running(processes.Measured):
    """An operator that is being measured."""

    def __init__(self, command: list[str], *, directory: pathlib.Path, environ: Mapping[str, str]) -> None:
        self.progress = directory / 'progress'
        self.progress.touch()
        super().__init__(command, directory=directory, environ={**environ, 'BENCH_PROGRESS': str(self.progress)})

    @property
    def said(self) -> dict[str, float]:
        """The last of each figure."""
        figures: dict[str, float] = {}
        for line in self.progress.read_text().splitlines():
            figures |= json.loads(line)
        return figures

    def wait_for(self, name: str, value: float) -> None:
        self.wait_until(lambda: self.said.get(name, 0) >= value)


@contextlib.contextmanager
def running(command: list[str], *, kubeconfig: pathlib.Path, total: int) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as directory:
        environ = {'KUBECONFIG': str(kubeconfig), 'BENCH_TOTAL': str(total)}
        operator = Running(command, directory=pathlib.Path(directory), environ=environ)
        try:
            operator.wait_for('ready', 1)
            yield operator
        finally:
            operator.stop()
