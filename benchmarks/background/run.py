"""
The costs of daemons, timers and indices.

    python benchmarks/background/run.py [--reference PYTHON] [--only NAME...]

The sandbox is a separate process on one core; the operators run on another core, one after another,
each in its own process, with the same file ``handlers.py``. ``PYTHON`` is the interpreter of a
virtual environment with the reference, which is only run, as ``PYTHON -m kopf run``. Without it,
only this package is measured.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'arena'))

import processes  # noqa: E402
import servers  # noqa: E402
import subjects  # noqa: E402
import tables  # noqa: E402

REST = 30.0  # seconds to measure an idle operator
PATIENCE = 1200.0  # seconds


def make_object(number: int) -> dict[str, Any]:
    """Make a small object with the finalizer, so that adding it is not measured."""
    return {
        'apiVersion': 'bench.dev/v1',
        'kind': 'Load',
        'spec': {'replicas': 1},
        'metadata': {
            'name': f'load-{number}',
            'labels': {'shard': str(number % 10)},
            'finalizers': [servers.FINALIZER],
        },
    }


class Operator(subjects.Running):
    """An operator that is being measured, with the time of its start."""

    def __init__(
        self, python: str, cluster: servers.Cluster, kind: str, total: int, directory: pathlib.Path
    ) -> None:
        self.since = time.perf_counter()
        command = [
            python,
            '-m',
            'kopf',
            'run',
            '--quiet',
            '--namespace',
            'default',
            str(HERE / 'handlers.py'),
        ]
        environ = {
            'KUBECONFIG': str(cluster.kubeconfig),
            'BENCH_KIND': kind,
            'BENCH_TOTAL': str(total),
        }
        super().__init__(command, directory=directory, environ=environ, core=1)

    def reach(self, name: str, value: float) -> float:
        """Wait until the operator reports this value; return the seconds since its start."""
        self.wait_for(name, value, timeout=PATIENCE)
        return time.perf_counter() - self.since

    def rest(self) -> dict[str, float]:
        """Wait until the operator is idle, and measure its memory and CPU."""
        self.settle(window=3, share=0.15)
        before = self.cpu
        time.sleep(REST)
        return {'RSS MB': self.memory, 'CPU at rest, %': (self.cpu - before) / REST * 100}


class Stage:
    """A sandbox with some objects, and an interpreter to run operators on it."""

    def __init__(self, python: str, cluster: servers.Cluster, total: int) -> None:
        self.python, self.cluster, self.total = python, cluster, total

    @contextlib.contextmanager
    def operating(self, kind: str) -> Iterator[Operator]:
        with tempfile.TemporaryDirectory() as directory:
            operator = Operator(
                self.python, self.cluster, kind, self.total, pathlib.Path(directory)
            )
            try:
                yield operator
            finally:
                operator.stop()


def measure_rest(stage: Stage) -> dict[str, float]:
    """Measure timers that wait for their time, and the same objects without timers."""
    results: dict[str, float] = {}
    for kind in ['nothing', 'rest']:
        with stage.operating(kind) as operator:
            operator.reach('met', stage.total)
            results |= {f'{name} ({kind})': value for name, value in operator.rest().items()}
    added = results['RSS MB (rest)'] - results['RSS MB (nothing)']
    return {**results, 'kB per object with a timer': added * 1024 / stage.total}


def measure_ticks(stage: Stage) -> dict[str, float]:
    """Measure timers that are called every minute."""
    with stage.operating('timers') as operator:
        operator.reach('met', stage.total)
        operator.reach('ticks', stage.total)
        before, since = operator.cpu, time.perf_counter()
        operator.reach('ticks', 2 * stage.total)
        cpu = (operator.cpu - before) / (time.perf_counter() - since)
        said = operator.said
        return {
            'RSS MB': operator.memory,
            'CPU, %': cpu * 100,
            'late by, ms, p50': said['p50'] * 1000,
            'late by, ms, p99': said['p99'] * 1000,
        }


def measure_daemons(stage: Stage) -> dict[str, float]:
    """Measure sync daemons, with a sync handler of changes beside them."""
    with stage.operating('daemons') as operator:
        started = operator.reach('met', stage.total)
        operator.settle(window=3, share=0.15)
        stage.cluster.change(0, replicas=2, sent=time.time())
        operator.reach('handled', 0.000001)
        results = {
            'all started, s': started,
            'a change handled, s': operator.said['handled'],
            'threads': operator.read('Threads'),
            **operator.rest(),
        }
        since = time.perf_counter()
        operator.stop()
        return {**results, 'all stopped, s': time.perf_counter() - since}


def measure_index(stage: Stage, kind: str = 'index') -> dict[str, float]:
    """Measure an index of all objects."""
    with stage.operating(kind) as operator:
        indexed = operator.reach('indexed', stage.total)
        results = {'all indexed, s': indexed, 'all indexed, CPU s': operator.cpu}
        return {**results, 'all handled, s': operator.reach('met', stage.total), **operator.rest()}


def measure_limited(stage: Stage) -> dict[str, float]:
    """Measure the same index with one worker for all objects."""
    return measure_index(stage, 'limited')


def measure_lookups() -> dict[str, float]:
    """Measure the operations on an index itself, for different sizes."""
    from kopf._core.engines.indexing import indices

    results: dict[str, float] = {}
    for total in [1_000, 50_000]:
        index = indices.LiveIndex()
        for number in range(total):
            index.replace(number, {('shard', number): number, None: number})
        actions = {
            'a lookup': lambda index=index: index[('shard', 500)],
            'an update': lambda index=index: index.replace(500, {('shard', 500): 1, None: 1}),
            'a removal and an addition': lambda index=index: (
                index.discard(500),
                index.replace(500, {('shard', 500): 1, None: 1}),
            ),
        }
        for name, action in actions.items():
            seconds = min(timeit.repeat(action, number=10_000, repeat=5)) / 10_000
            results[f'{name}, us, of {total}'] = seconds * 1e6
    return results


BENCHMARKS = {
    'rest': (measure_rest, 50_000),
    'ticks': (measure_ticks, 10_000),
    'daemons': (measure_daemons, 1_000),
    'index': (measure_index, 50_000),
    'limited': (measure_limited, 100_000),
}


def measure(name: str, pythons: dict[str, str], total: int | None) -> dict[str, dict[str, float]]:
    function, default = BENCHMARKS[name]
    with servers.serve_sandbox(core=0) as cluster:
        cluster.create(total or default, make=make_object)
        return {
            whose: function(Stage(python, cluster, total or default))
            for whose, python in pythons.items()
            if whose == 'operator' or name != 'limited'
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--total', type=int, help='how many objects, if not as many as usual')
    parser.add_argument(
        '--only', nargs='*', choices=[*BENCHMARKS, 'lookups'], default=[*BENCHMARKS, 'lookups']
    )
    parser.add_argument('--reference', help='the interpreter with the reference installed')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    args = parser.parse_args()
    pythons = {
        'operator': sys.executable,
        **({'reference': args.reference} if args.reference else {}),
    }
    processes.pin(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    everything: dict[str, Any] = {'load average': os.getloadavg()[0]}
    for name in args.only:
        results = (
            {'operator': measure_lookups()}
            if name == 'lookups'
            else measure(name, pythons, args.total)
        )
        everything[name] = results
        print(f'== {name}, at the load average of {os.getloadavg()[0]:.1f}')
        print(tables.compare(results))
    if args.json:
        args.json.write_text(json.dumps(everything, indent=2))


if __name__ == '__main__':
    main()
