"""
The costs of listing and watching many objects.

    python benchmarks/streams/run.py --reference PYTHON

The sandbox is a separate process on one core, over TLS on loopback; the clients run on another
core, one after another, each in its own process: our client code alone, our whole operator, and the
reference. ``PYTHON`` is the interpreter of a virtual environment with the reference, which is only
run, as ``PYTHON -m kopf run``. Without it, only this package is measured; with it, the ratios to it
are in parentheses.
"""

import argparse
import json
import pathlib
import signal
import sys
import tempfile
import time
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / 'arena'))

import processes  # noqa: E402
import servers  # noqa: E402
import subjects  # noqa: E402
import tables  # noqa: E402

REST = 10.0  # seconds to finish the remaining work


def make_object(number: int) -> dict[str, Any]:
    """Make an object of 2 kB as stored, without ``managedFields``."""
    return {
        'apiVersion': 'bench.dev/v1',
        'kind': 'Load',
        'metadata': {
            'name': f'load-{number}',
            'labels': {'app': 'bench', 'shard': str(number % 10)},
            'annotations': {'note': 'x' * 200},
        },
        'spec': {
            'replicas': 1,
            'items': [{'name': f'item-{n}', 'size': n, 'note': 'y' * 20} for n in range(25)],
        },
    }


def measure(cluster: servers.Cluster, command: list[str], total: int) -> dict[str, float]:
    """Let a client see all objects, then see each of them changed once."""
    cluster.update(total, 1)
    environ = {'KUBECONFIG': str(cluster.kubeconfig), 'BENCH_TOTAL': str(total)}
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        client = subjects.Running(
            command, directory=pathlib.Path(directory), environ=environ, core=1
        )
        try:
            client.wait_for('generation', 1)
            listed = {
                'listed, s': time.perf_counter() - started,
                'listed, CPU s': client.cpu,
                'listed, peak RSS MB': client.peak,
            }
            time.sleep(REST)
            settled = client.cpu
            cluster.update(total, 2)
            client.wait_for('generation', 2)
            time.sleep(REST)
            return {
                **listed,
                'watched, CPU s': client.cpu - settled,
                'in all, CPU s': client.cpu,
                'in all, peak RSS MB': client.peak,
            }
        finally:
            client.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--total', type=int, default=10_000, help='how many objects')
    parser.add_argument('--reference', help='the interpreter with the reference installed')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    args = parser.parse_args()
    operator = ['-m', 'kopf', 'run', '--quiet', '--namespace', 'default', str(HERE / 'handlers.py')]
    commands = {
        'client': [sys.executable, str(HERE / 'counting.py')],
        'operator': [sys.executable, *operator],
    }
    if args.reference:
        commands['reference'] = [args.reference, *operator]
    processes.pin(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    with servers.serve_sandbox(core=0) as cluster:
        cluster.create(args.total, make=make_object)
        results = {
            name: measure(cluster, command, args.total) for name, command in commands.items()
        }
    print(tables.compare(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=2))


if __name__ == '__main__':
    main()
