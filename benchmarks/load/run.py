"""
Load: an operator starts with many existing objects, and is restarted in the middle of its work.

    python benchmarks/load/run.py --objects 20000

Meanwhile, objects are edited and created all the time. The benchmark fails if these edits are not
handled within a second at p99, if anything is lost or done twice without a reason, or if the
operator makes more writes than needed. The server is a real control plane, unless ``--sandbox`` is
given.
"""

import argparse
import collections
import contextlib
import itertools
import os
import pathlib
import signal
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / 'arena'))

import figures
import ledgers
import servers
import storms

import kopf.testing


@contextlib.contextmanager
def serve_sandbox():
    """Serve a sandbox in this process, so that its requests can be counted."""
    with kopf.testing.Sandbox() as sandbox:
        cluster = servers.Cluster(pathlib.Path(sandbox.kubeconfig))
        cluster.prepare()
        yield (
            cluster,
            lambda: collections.Counter(
                classify(asked)
                for asked in sandbox.requests
                if asked.user_agent.startswith('kopf/')
            ),
        )


def classify(asked):
    """Return the verb of a request."""
    if asked.method != 'GET':
        return asked.method.lower()
    return 'watch' if 'watch=' in asked.query else 'list'


@contextlib.contextmanager
def serve_controlplane():
    with servers.serve_controlplane() as cluster:
        yield cluster, ledgers.Audit(cluster.kubeconfig.parent).count


def parse_args():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--objects', type=int, default=20_000)
    parser.add_argument('--rate', type=float, default=20, help='edits and creations per second')
    parser.add_argument(
        '--only',
        nargs='*',
        choices=storms.ROUNDS,
        default=list(storms.ROUNDS),
        help='the rounds to play, in the usual order: they continue each other',
    )
    parser.add_argument(
        '--sandbox', action='store_true', help='use the sandbox instead of a real control plane'
    )
    parser.add_argument(
        '--python', default=sys.executable, help='the interpreter with this package'
    )
    args = parser.parse_args()
    if not args.only or not args.only[0].startswith('created'):
        parser.error(
            'the rounds continue each other: begin with one of those that create the objects'
        )
    return args


def main():
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    rows, problems = [list(figures.COLUMNS)], []
    with serve_sandbox() if args.sandbox else serve_controlplane() as (cluster, count):
        stage = storms.Stage(
            cluster,
            count,
            args.objects,
            args.rate,
            args.python,
            itertools.count(args.objects + 1000),
        )
        names = storms.prepare_probes(stage)
        for name in args.only:
            report = storms.play(stage, storms.ROUNDS[name], names)
            rows.append(figures.describe(report))
            print('  '.join(rows[-1]), flush=True)
            problems += [f'{name}: {problem}' for problem in figures.judge(report)]
    print(
        f'\n{args.objects} objects; the load average is {os.getloadavg()[0]:.1f} in the end. Latencies are in s.'
    )
    print(figures.draw_table(rows))
    print(*problems or ['All is well.'], sep='\n')
    sys.exit(1 if problems else 0)


if __name__ == '__main__':
    main()
