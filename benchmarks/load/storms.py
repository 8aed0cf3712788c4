"""
Storms: an operator starts when all objects already exist, and users keep editing them.
"""

import dataclasses
import itertools
import math
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable

import figures
import ledgers
import processes
import servers
import users

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 1800.0  # seconds for one storm
# Seconds to measure the edits at least, even if all objects are handled sooner.
SHORTEST = 5.0
EXIT_PATIENCE = 60.0  # seconds


@dataclasses.dataclass(frozen=True)
class Round:
    """A round: the change of all objects before the start, the expected calls, the disturbance."""

    name: str
    prepare: Callable[[servers.Cluster, int], None]
    # The handler to be called for each object; None if the objects are only seen.
    what: str | None
    mark: int = 1
    stopping: signal.Signals | None = None  # in the middle of the work


ROUNDS = {
    round.name: round
    for round in (
        Round('created', lambda cluster, total: cluster.create(total), 'create'),
        Round('looked-at', lambda cluster, total: None, None),
        Round(
            'edited-sigterm',
            lambda cluster, total: cluster.update(total, 2),
            'update',
            2,
            signal.SIGTERM,
        ),
        Round(
            'edited-sigkill',
            lambda cluster, total: cluster.update(total, 3),
            'update',
            3,
            signal.SIGKILL,
        ),
        Round(
            'deleted-sigterm',
            lambda cluster, total: cluster.delete(total),
            'delete',
            3,
            signal.SIGTERM,
        ),
        Round(
            'created-sigkill',
            lambda cluster, total: cluster.create(total),
            'create',
            1,
            signal.SIGKILL,
        ),
    )
}
"""The rounds, in this order: each one continues with the objects of the previous one."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """The environment of the rounds, which are played one after another."""

    cluster: servers.Cluster
    count: ledgers.Count
    total: int
    rate: float  # of the users' actions per second
    python: str
    numbers: 'itertools.count[int]'

    def start(self, ledger: ledgers.Ledger) -> processes.Measured:
        command = [
            self.python,
            '-m',
            'kopf',
            'run',
            '--quiet',
            '--namespace',
            'default',
            str(HERE / 'handlers.py'),
        ]
        environ = {'KUBECONFIG': str(self.cluster.kubeconfig), 'LOAD_LEDGER': str(ledger.path)}
        return processes.Measured(command, directory=ledger.path.parent, environ=environ)


def prepare_probes(stage: Stage) -> list[str]:
    """Create objects, and let an operator handle them."""
    names = users.create_probes(stage.cluster, stage.numbers)
    with tempfile.TemporaryDirectory() as directory:
        ledger = ledgers.Ledger(pathlib.Path(directory) / 'ledger')
        operator = stage.start(ledger)
        try:
            operator.wait_until(lambda: len(ledger.select('create')) >= len(names))
            operator.settle()
        finally:
            operator.stop()
    return names


def play(stage: Stage, round: Round, names: list[str]) -> figures.Report:
    """Play one round, and return its report."""
    round.prepare(stage.cluster, stage.total)
    before = stage.count()
    with tempfile.TemporaryDirectory() as directory:
        ledger = ledgers.Ledger(pathlib.Path(directory) / 'ledger')
        lives = _Lives(stage, round, ledger)
        crowd = users.Users(stage.cluster, names, numbers=stage.numbers, rate=stage.rate)
        crowd.start()
        try:
            lives.live()
            crowd.stop()
            lives.settle()
        finally:
            crowd.stop()
            lives.end()
        calls = ledger.select('create', 'update', 'delete')
    edited = [edit for edit in crowd.edits if not edit.is_creation]
    created = [edit for edit in crowd.edits if edit.is_creation]
    after = stage.count()
    return figures.Report(
        name=round.name,
        edited=figures.measure_latencies(edited, calls, lives.counted),
        created=figures.measure_latencies(created, calls, lives.counted),
        calls=calls,
        requests={verb: count - before.get(verb, 0) for verb, count in after.items()},
        lost=ledgers.find_lost(
            ledgers.list_objects(stage.cluster), calls, lives.expected, crowd.edits
        ),
        answers=[edit.took for edit in crowd.edits],
        sightings=figures.measure_latencies(crowd.edits, crowd.sightings, lives.counted),
        seconds=lives.counted[-1].until - lives.counted[0].since,
        cpu=lives.cpu,
        peak=lives.peak,
        kills=len(lives.counted) - 1,
    )


class _Lives:
    """
    The processes of the operator in one round.

    The storm is over when all objects are handled, or seen.
    """

    def __init__(self, stage: Stage, round: Round, ledger: ledgers.Ledger) -> None:
        self._stage, self._round, self._ledger = stage, round, ledger
        self._operator: processes.Measured | None = None
        self.counted: list[figures.Life] = []
        self.cpu = self.peak = 0.0
        marks = (
            {f'load-{number}': round.mark for number in range(stage.total)} if round.what else {}
        )
        self.expected = {
            name: figures.Call(round.what or '', name, mark, math.nan)
            for name, mark in marks.items()
        }

    def live(self) -> None:
        """Run the operator through the storm, with a restart in the middle if planned."""
        if self._round.stopping is not None:
            self._live_until(self._is_half_done)
            self._stop(self._round.stopping)
        self._live_until(self._is_done, shortest=SHORTEST)

    def settle(self) -> None:
        """Let the operator finish the remaining work."""
        self._operator.settle(window=3)

    def end(self) -> None:
        """Stop the operator if it is still running."""
        if self._operator is not None:
            self._stop(signal.SIGTERM)

    def _live_until(self, is_over: Callable[[], bool], *, shortest: float = 0.0) -> None:
        started = time.monotonic()
        self._operator = self._stage.start(self._ledger)
        self._operator.wait_until(
            lambda: self._find_first_seen(started) is not None, timeout=PATIENCE
        )
        seen = self._find_first_seen(started)
        self._operator.wait_until(
            lambda: is_over() and time.monotonic() > seen + shortest, timeout=PATIENCE, pause=0.05
        )
        self.counted.append(figures.Life(seen, time.monotonic()))

    def _find_first_seen(self, since: float) -> float | None:
        return next(
            (call.moment for call in self._ledger.select('seen') if call.moment > since), None
        )

    def _stop(self, stopping: signal.Signals) -> None:
        operator, self._operator = self._operator, None
        self.cpu, self.peak = self.cpu + operator.cpu, max(self.peak, operator.peak)
        operator.process.send_signal(stopping)
        try:
            code = operator.process.wait(timeout=EXIT_PATIENCE)
        finally:
            operator.process.kill()
        if code not in (0, -stopping):
            raise SystemExit(f'The operator has exited with {code}:\n{operator.tail}')

    def _is_half_done(self) -> bool:
        return self._count_handled() >= self._stage.total / 2

    def _is_done(self) -> bool:
        if self._round.what is None:
            seen = self._ledger.select('seen')
            return bool(seen) and seen[-1].mark >= self._stage.total
        return self._count_handled() >= self._stage.total

    def _count_handled(self) -> int:
        return len(
            {
                call.name
                for call in self._ledger.select(self._round.what or '')
                if call.name in self.expected
            }
        )
