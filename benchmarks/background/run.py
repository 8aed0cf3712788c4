"""
What daemons, timers and indices cost: ``python benchmarks/background/run.py [--reference PYTHON] [--only NAME...]``.

One sandbox in a process of its own, on one core; the operators run on another core, one after another, each in
a process of its own, with the same file ``handlers.py``. ``PYTHON`` is the interpreter of a virtual environment with
the reference installed: it is run as ``PYTHON -m kopf run``, and known only by that. Without it, only we are measured.
"""
import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import timeit
from collections.abc import Iterator
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
FINALIZER = 'kopf.zalando.org/KopfFinalizerMarker'  # as if the objects were met before: it is not what is measured
REST = 30.0  # seconds to look at an operator that does nothing

spec = importlib.util.spec_from_file_location('streams', HERE.parent / 'streams' / 'run.py')
assert spec is not None and spec.loader is not None
streams = importlib.util.module_from_spec(spec)
spec.loader.exec_module(streams)


def make_object(number: int) -> dict[str, Any]:
    return {'apiVersion': 'bench.dev/v1', 'kind': 'Load', 'spec': {'replicas': 1},
            'metadata': {'name': f'load-{number}', 'labels': {'shard': str(number % 10)}, 'finalizers': [FINALIZER]}}


async def fill(cluster: Any) -> None:
    await cluster.send('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', [streams.CRD])
    await cluster.send('POST', streams.COLLECTION, [make_object(number) for number in range(cluster.total)])


class Operator:
    """An operator that is being measured, and what it says of itself."""

    def __init__(self, python: str, cluster: Any, kind: str, directory: pathlib.Path) -> None:
        self.progress = directory / 'progress'
        self.progress.touch()
        self.since = time.perf_counter()
        command = [python, '-m', 'kopf', 'run', '--quiet', '--namespace', 'default', str(HERE / 'handlers.py')]
        self.process = streams.Measured(
            command, core=1, cwd=directory, KUBECONFIG=str(cluster.kubeconfig), BENCH_KIND=kind,
            BENCH_PROGRESS=str(self.progress), BENCH_TOTAL=str(cluster.total))

    @property
    def said(self) -> dict[str, float]:
        """The last of each figure."""
        figures: dict[str, float] = {}
        for line in self.progress.read_text().splitlines():
            figures.update(json.loads(line))
        return figures

    def wait_for(self, **figures: float) -> float:
        """Wait until it says so; return the seconds since its start."""
        streams.wait_until(lambda: all(self.said.get(name, 0) >= value for name, value in figures.items()),
                           self.process, timeout=1200)
        return time.perf_counter() - self.since

    def read(self, name: str, source: str = 'status') -> float:
        text = pathlib.Path(f'/proc/{self.process.process.pid}/{source}').read_text()
        match = re.search(rf'^{name}:\s+(\d+)', text, re.M)
        return int(match[1]) if match else float('nan')

    @property
    def memory(self) -> float:
        """Megabytes of the resident memory now."""
        return self.read('VmRSS') / 1024

    def rest(self) -> dict[str, float]:
        """Let it settle, and measure how much of a core it takes when there is nothing to do."""
        settle(self.process)
        before = self.process.cpu
        time.sleep(REST)
        return {'RSS MB': self.memory, 'CPU at rest, %': (self.process.cpu - before) / REST * 100}

    def stop(self) -> float:
        since = time.perf_counter()
        self.process.stop()
        return time.perf_counter() - since


def settle(process: Any) -> None:
    while True:
        before = process.cpu
        time.sleep(3)
        if process.cpu - before < 0.5:
            return


@contextlib.contextmanager
def operating(python: str, cluster: Any, kind: str) -> Iterator[Operator]:
    with tempfile.TemporaryDirectory() as directory:
        operator = Operator(python, cluster, kind, pathlib.Path(directory))
        try:
            yield operator
        finally:
            operator.stop()


def measure_rest(python: str, cluster: Any) -> dict[str, float]:
    """Timers that wait for their time, next to the same objects with no timers."""
    results: dict[str, float] = {}
    for kind in ['nothing', 'rest']:
        with operating(python, cluster, kind) as operator:
            operator.wait_for(met=cluster.total)
            results |= {f'{name} ({kind})': value for name, value in operator.rest().items()}
    added = results['RSS MB (rest)'] - results['RSS MB (nothing)']
    return {**results, 'kB per object with a timer': added * 1024 / cluster.total}


def measure_ticks(python: str, cluster: Any) -> dict[str, float]:
    """Timers that are called every minute."""
    with operating(python, cluster, 'timers') as operator:
        operator.wait_for(met=cluster.total)
        operator.wait_for(ticks=cluster.total)
        before, since = operator.process.cpu, time.perf_counter()
        operator.wait_for(ticks=2 * cluster.total)
        cpu = (operator.process.cpu - before) / (time.perf_counter() - since)
        said = operator.said
        return {'RSS MB': operator.memory, 'CPU, %': cpu * 100,
                'late by, ms, p50': said['p50'] * 1000, 'late by, ms, p99': said['p99'] * 1000}


def measure_daemons(python: str, cluster: Any) -> dict[str, float]:
    """Sync daemons, and a sync handler of changes beside them."""
    with operating(python, cluster, 'daemons') as operator:
        started = operator.wait_for(met=cluster.total)
        settle(operator.process)
        asyncio.run(cluster.send(
            'PATCH', f'{streams.COLLECTION}/load-0', [{'spec': {'replicas': 2, 'sent': time.time()}}],
            kind='application/merge-patch+json'))
        operator.wait_for(handled=0.000001)
        results = {'all started, s': started, 'a change handled, s': operator.said['handled'],
                   'threads': operator.read('Threads'), **operator.rest()}
        return {**results, 'all stopped, s': operator.stop()}


def measure_index(python: str, cluster: Any, kind: str = 'index') -> dict[str, float]:
    """An index of all objects."""
    with operating(python, cluster, kind) as operator:
        indexed = operator.wait_for(indexed=cluster.total)
        results = {'all indexed, s': indexed, 'all indexed, CPU s': operator.process.cpu}
        return {**results, 'all handled, s': operator.wait_for(met=cluster.total), **operator.rest()}


def measure_limited(python: str, cluster: Any) -> dict[str, float]:
    """The same with one worker for all of them."""
    return measure_index(python, cluster, 'limited')


def measure_lookups() -> dict[str, float]:
    """The operations on an index by itself, whatever its size."""
    from kopf._core.engines import indices

    results: dict[str, float] = {}
    for total in [1_000, 50_000]:
        index = indices.LiveIndex()
        for number in range(total):
            index.replace(number, {('shard', number): number, None: number})
        actions = {'a lookup': lambda index=index: index[('shard', 500)],
                   'an update': lambda index=index: index.replace(500, {('shard', 500): 1, None: 1}),
                   'a removal and an addition': lambda index=index: (
                       index.discard(500), index.replace(500, {('shard', 500): 1, None: 1}))}
        for name, action in actions.items():
            seconds = min(timeit.repeat(action, number=10_000, repeat=5)) / 10_000
            results[f'{name}, us, of {total}'] = seconds * 1e6
    return results


BENCHMARKS = {'rest': (measure_rest, 50_000), 'ticks': (measure_ticks, 10_000), 'daemons': (measure_daemons, 1_000),
              'index': (measure_index, 50_000), 'limited': (measure_limited, 100_000)}


def measure(name: str, pythons: dict[str, str], total: int | None) -> dict[str, dict[str, float]]:
    function, default = BENCHMARKS[name]
    results = {}
    with streams.serving(total or default) as cluster:
        asyncio.run(fill(cluster))
        for whose, python in pythons.items():
            if whose == 'operator' or name != 'limited':
                results[whose] = function(python, cluster)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--total', type=int, help='how many objects, if not as many as usual')
    parser.add_argument('--only', nargs='*', choices=[*BENCHMARKS, 'lookups'], default=[*BENCHMARKS, 'lookups'])
    parser.add_argument('--reference', help='the interpreter with the reference installed')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    args = parser.parse_args()
    pythons = {'operator': sys.executable, **({'reference': args.reference} if args.reference else {})}
    streams.pin(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    everything: dict[str, Any] = {'load average': os.getloadavg()[0]}
    for name in args.only:
        results = {'operator': measure_lookups()} if name == 'lookups' else measure(name, pythons, args.total)
        everything[name] = results
        print(f'== {name}, at the load average of {os.getloadavg()[0]:.1f}')
        streams.report(results)
    if args.json:
        args.json.write_text(json.dumps(everything, indent=2))


if __name__ == '__main__':
    main()
