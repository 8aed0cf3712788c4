"""
Compare all frameworks on the same API server.

    python benchmarks/arena/run.py --reference PYTHON --go PROGRAM

The subjects take turns in each scenario, several times; each is a separate process. The medians are
printed, with the ratios to the reference in parentheses. ``PYTHON`` is the interpreter of a virtual
environment with the reference, which is only run, as ``PYTHON -m kopf run``. The server is a real
control plane, unless ``--sandbox`` is given; each scenario has a fresh one. The results are stored
in ``docs/performance``, together with those of the scenarios not run this time, and the page is
regenerated. With ``--quick``, the results are stored in ``build/bench``. Figures from a busy
machine are not reliable: the load is printed.
"""

import argparse
import contextlib
import datetime
import os
import pathlib
import platform
import re
import signal
import sys
import time

import pages
import processes
import results
import scenarios
import servers
import subjects
import tables
import targets
import trials


class Runner:
    """Runs scenarios with the same subjects on servers of the same kind."""

    def __init__(
        self, contestants: list[subjects.Subject], *, is_sandbox: bool, is_quick: bool
    ) -> None:
        self._contestants, self._is_quick = contestants, is_quick
        self._serve = servers.serve_sandbox if is_sandbox else servers.serve_controlplane
        self._server = 'the sandbox' if is_sandbox else 'kube-apiserver'

    def run(self, name: str, *, total: int | None, rounds: int | None) -> results.Measurement:
        """Let the subjects take turns, so that disturbances of the machine affect all of them."""
        scenario = scenarios.SCENARIOS[name]
        total = total or (scenario.quick if self._is_quick else scenario.total)
        since = time.monotonic()
        measurement = results.Measurement(
            scenario.title.format(total=f'{total:,}'),
            total,
            self._server,
            machine=describe_machine(),
            date=datetime.date.today().isoformat(),
            load=os.getloadavg()[0],
        )
        contestants = [subject for subject in self._contestants if subject.name in scenario.names]
        with self._serve() as cluster:
            self._measure(
                scenario,
                cluster,
                contestants,
                measurement,
                rounds=rounds or (1 if self._is_quick else scenario.rounds),
            )
        measurement.seconds = time.monotonic() - since
        return measurement

    def _measure(
        self,
        scenario: scenarios.Scenario,
        cluster: servers.Cluster,
        contestants: list[subjects.Subject],
        measurement: results.Measurement,
        *,
        rounds: int,
    ) -> None:
        sizes = scenario.sizes(measurement.total)
        figures: dict[tuple[int, str], trials.Figures] = {}
        for size in sizes:
            scenario.prepare(cluster, contestants, size)
            for number in range(rounds):
                for subject in [one for one in contestants if one.name not in measurement.failures]:
                    own = figures.setdefault((number, subject.name), {})
                    trial = trials.Trial(cluster, subject, size, sizes, number, own)
                    if (failure := attempt(scenario, trial)) is not None:
                        measurement.failures[subject.name] = failure
        for (_, name), own in figures.items():
            measurement.add(name, own)


def attempt(scenario: scenarios.Scenario, trial: trials.Trial) -> str | None:
    """Run one trial; return the reason if it does not finish. Its earlier figures are kept."""
    failure = None
    try:
        scenario.measure(trial)
    except processes.NotEndedError as error:
        print(f'{trial.subject.name}: {error}', file=sys.stderr)
        failure = str(error).partition('\n')[0]
    trial.cluster.compact()
    return failure


def describe_machine() -> str:
    found = re.search(r'^model name\s*: (.+)$', pathlib.Path('/proc/cpuinfo').read_text(), re.M)
    return f'{os.cpu_count()} cores ({found[1] if found else platform.machine()}), Python {platform.python_version()}'


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--only', nargs='*', default=[], help=f'some of: {", ".join(scenarios.SCENARIOS)}'
    )
    parser.add_argument('--total', type=int, help='how many objects, if not as many as usual')
    parser.add_argument(
        '--rounds', type=int, help='how many times to repeat each scenario, if not as usual'
    )
    parser.add_argument(
        '--quick', action='store_true', help='with few objects, once: to see that all works'
    )
    parser.add_argument(
        '--sandbox', action='store_true', help='use the sandbox instead of a real control plane'
    )
    parser.add_argument(
        '--python', default=sys.executable, help='the interpreter with this package'
    )
    parser.add_argument(
        '--plain', help='the interpreter with this package without its extra for speed'
    )
    parser.add_argument('--reference', help='the interpreter with the reference')
    parser.add_argument('--go', type=pathlib.Path, help='the operator of benchmarks/go, built')
    parser.add_argument(
        '--output', type=pathlib.Path, help='the directory for the results, if not the usual one'
    )
    args = parser.parse_args()
    args.only = [name for names in args.only for name in names.split(',') if name] or list(
        scenarios.SCENARIOS
    )
    if unknown := set(args.only) - set(scenarios.SCENARIOS):
        parser.error(f'there are no such scenarios: {", ".join(sorted(unknown))}')
    return args


def list_subjects(args: argparse.Namespace) -> list[subjects.Subject]:
    pythons = {'kopf': args.python, 'plain': args.plain, 'reference': args.reference}
    found = [
        subjects.Subject(name, python=pathlib.Path(python).absolute())
        for name, python in pythons.items()
        if python
    ]
    return [*found, subjects.Subject('go', program=args.go.absolute())] if args.go else found


def main() -> None:
    args = parse_args()
    output = args.output or (servers.ROOT / 'build' / 'bench' if args.quick else pages.PAGES)
    runner = Runner(list_subjects(args), is_sandbox=args.sandbox, is_quick=args.quick)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the processes are stopped
    with contextlib.suppress(KeyboardInterrupt):
        for name in args.only:
            measurement = runner.run(name, total=args.total, rounds=args.rounds)
            pages.publish(output, {name: measurement}, order=list(scenarios.SCENARIOS))
            print(
                f'== {measurement.title}; {measurement.seconds:.0f} s, at the load average of {measurement.load:.1f}'
            )
            print(tables.format_text(tables.build_figures(measurement)), flush=True)
    print(
        tables.format_text(
            tables.build_targets(targets.judge(results.read_results(output / pages.RESULTS)))
        )
    )


if __name__ == '__main__':
    main()
