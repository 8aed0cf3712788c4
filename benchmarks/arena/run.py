"""
All frameworks on the same API server: ``python benchmarks/arena/run.py --reference PYTHON --go PROGRAM``.

Those compared take turns in each scenario, several times; each is a process of its own. Printed are the medians, with
the ratios to the reference in the parentheses. ``PYTHON`` is the interpreter of a virtual environment with
the reference: it is run as ``PYTHON -m kopf run``, and known only by that. The server is a real control plane, unless
``--sandbox`` is given. Figures of machines that are busy with something else are worth little: the load is printed.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import sys

import scenarios
import servers
import subjects

Results = dict[str, dict[str, list[float]]]  # by subjects, by figures, of all rounds


def measure(name: str, cluster: servers.Cluster, contestants: list[subjects.Subject], *, rounds: int,
            total: int | None) -> Results:
    """Let everybody take turns, so that what disturbs the machine disturbs them all."""
    scenario, usual = scenarios.SCENARIOS[name]
    results: Results = {}
    for _ in range(rounds):
        for subject in contestants:
            figures = scenario(cluster, subject, total or usual)
            for figure, value in (figures or {}).items():
                results.setdefault(subject.name, {}).setdefault(figure, []).append(value)
    return results


def report(name: str, results: Results) -> None:
    print(f'== {name}, at the load average of {os.getloadavg()[0]:.1f}')
    print(f'{"":28}', *(f'{subject:>24}' for subject in results))
    for figure in next(iter(results.values())):
        base = statistics.median(results.get('reference', {}).get(figure, [0.0]))
        print(f'{figure:28}', *(f'{describe(figures.get(figure), base):>24}' for figures in results.values()))


def describe(values: list[float] | None, base: float) -> str:
    if not values:
        return '-'
    ratio = f' ({statistics.median(values) / base:.2f})' if base else ''
    spread = f' ±{(max(values) - min(values)) / 2:.2f}' if len(values) > 1 else ''
    return f'{statistics.median(values):.2f}{spread}{ratio}'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', nargs='*', choices=scenarios.SCENARIOS, default=list(scenarios.SCENARIOS))
    parser.add_argument('--total', type=int, help='how many objects, if not as many as usual')
    parser.add_argument('--rounds', type=int, default=3, help='how many times to repeat each scenario')
    parser.add_argument('--sandbox', action='store_true', help='use the sandbox instead of a real control plane')
    parser.add_argument('--python', default=sys.executable, help='the interpreter with this package')
    parser.add_argument('--plain', help='the interpreter with this package without its extra for speed')
    parser.add_argument('--reference', help='the interpreter with the reference')
    parser.add_argument('--go', type=pathlib.Path, help='the operator of benchmarks/go, built')
    parser.add_argument('--json', type=pathlib.Path, help='where to write the results')
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    pythons = {'kopf': args.python, 'plain': args.plain, 'reference': args.reference}
    contestants = [subjects.Subject(name, python=pathlib.Path(python).absolute())
                   for name, python in pythons.items() if python]
    if args.go:
        contestants.append(subjects.Subject('go', program=args.go.absolute()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    everything: dict[str, Results] = {}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(servers.serve_sandbox() if args.sandbox else servers.serve_controlplane())
        for name in args.only:
            everything[name] = measure(name, cluster, contestants, rounds=args.rounds, total=args.total)
            report(name, everything[name])
    if args.json:
        args.json.write_text(json.dumps(everything, indent=2))


if __name__ == '__main__':
    main()
