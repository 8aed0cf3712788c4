"""The compared subjects: how to run each of them, and what it reports."""

import contextlib
import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import processes
import servers

OPERATORS = pathlib.Path(__file__).resolve().parent / 'operators'


@dataclasses.dataclass(frozen=True)
class Subject:
    """
    A framework: with an interpreter that has it installed, or a program that needs none.

    Operators that need other libraries are programs of their names beside that program.
    """

    name: str
    python: pathlib.Path | None = None
    program: pathlib.Path | None = None

    def build_command(self, operator: str, namespace: str) -> list[str]:
        """Return the command to run such an operator."""
        if self.program is not None:
            own = self.program.with_name(operator)
            return [str(own if own.exists() else self.program), operator, namespace]
        return [
            str(self.python),
            '-m',
            'kopf',
            'run',
            '--namespace',
            namespace,
            str(OPERATORS / f'{operator}.py'),
        ]


class Running(processes.Measured):
    """An operator that is being measured."""

    def __init__(
        self,
        command: list[str],
        *,
        directory: pathlib.Path,
        environ: Mapping[str, str],
        core: int | None = None,
    ) -> None:
        self.progress = directory / 'progress'
        self.progress.touch()
        environ = {**environ, 'BENCH_PROGRESS': str(self.progress), 'PYTHONPATH': str(OPERATORS)}
        super().__init__(command, directory=directory, environ=environ, core=core)

    @property
    def said(self) -> dict[str, Any]:
        """The last reported value of each figure."""
        figures: dict[str, Any] = {}
        for line in self.progress.read_text().splitlines():
            figures |= json.loads(line)
        return figures

    def wait_for(self, name: str, value: float, *, timeout: float = processes.PATIENCE) -> None:
        self.wait_until(lambda: self.said.get(name, 0) >= value, timeout=timeout)

    def finish(self) -> dict[str, Any]:
        """Stop the operator, and return its final reports."""
        self.stop()
        return self.said


@contextlib.contextmanager
def running(
    subject: Subject, operator: str, cluster: servers.Cluster, total: int
) -> Iterator[Running]:
    """Run an operator that reports when this number of objects is handled; wait until it starts."""
    with tempfile.TemporaryDirectory() as directory:
        command = subject.build_command(operator, cluster.namespace)
        environ = {'KUBECONFIG': str(cluster.kubeconfig), 'BENCH_TOTAL': str(total)}
        running = Running(command, directory=pathlib.Path(directory), environ=environ)
        try:
            running.wait_for('ready', 1)
            yield running
        finally:
            running.stop()
