"""
Disturb the operators of all kinds in all ways on the sandbox, and print what has become of them, as a table.

    python tests/faults/chaos_table.py --seeds 55 --jobs 4

Each cell tells how many runs out of how many have come to the same end as with nothing wrong. For crashes, the operator
is killed instead of and after its every write, however many seeds are asked for. Any other end makes it fail.
"""
import argparse
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import sys
import time

import chaotic_operators

from kopf._kits.chaos import checks, plans
from kopf.testing import chaos

CHUNK = 10  # seeds in one task of a process
JOBS = 2 * (os.cpu_count() or 1)  # a third of each run is spent on waiting for the network of its own process


@dataclasses.dataclass(frozen=True)
class Task:
    """Some seeds of one cell of the table."""
    case: str
    perturbation: chaos.Perturbation
    seeds: range


@dataclasses.dataclass
class Cell:
    tried: int = 0
    diverged: int = 0

    def __str__(self):
        return '' if not self.tried else f'{self.tried - self.diverged} of {self.tried}'


def find_case(name):
    return next(case for case in chaotic_operators.CASES if case.name == name)


def is_fair(case, perturbation):
    """Nobody can take back what was done for a change that had been handled, or for an object that did not exist."""
    return case.is_levelled or perturbation is not chaos.Perturbation.TRAVELS


@functools.cache
def prepare(name):
    """Run the scenario with nothing wrong, once in a process."""
    case = find_case(name)
    trial = checks.Trial(case.declare, case.scenario, case.options)
    return trial, trial.run_in_peace()


def count_writes(name):
    return prepare(name)[1].writes


def plan_tasks(writes, seeds):
    """List the tasks: for crashes, there are not less seeds than for all writes."""
    for name, count in writes.items():
        for perturbation in chaos.Perturbation:
            if is_fair(find_case(name), perturbation):
                total = max(seeds, 2 * count) if perturbation is chaos.Perturbation.CRASHES else seeds
                for first in range(0, total, CHUNK):
                    yield Task(name, perturbation, range(first, min(first + CHUNK, total)))


def execute(task):
    """Try the seeds; return how many, how often the operators were restarted, and all other ends than expected."""
    trial, peace = prepare(task.case)
    scale, restarts, diverged = plans.Scale(peace.writes, peace.changes), 0, []
    for seed in task.seeds:
        outcome = trial.run(plans.build_plan(seed, task.perturbation, scale))
        restarts += outcome.starts - 1
        differences = checks.compare_outcomes(peace, outcome)
        if differences:
            diverged.append(str(checks.Divergence(task.perturbation, outcome, differences)))
    return task, len(task.seeds), restarts, diverged


def format_table(cells):
    names = list(dict.fromkeys(case for case, _ in cells))
    header = ['scenario', *(perturbation.value for perturbation in chaos.Perturbation)]
    lines = [header, *([name, *(str(cells.get((name, perturbation), '')) for perturbation in chaos.Perturbation)]
                       for name in names)]
    widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
    return [''.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('--seeds', type=int, default=55, help="of each scenario in each perturbation")
    parser.add_argument('--jobs', type=int, default=JOBS, help="processes at once")
    options = parser.parse_args()
    since, restarts = time.monotonic(), 0
    cells, failures = {}, []
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context('spawn')) as pool:
        names = [case.name for case in chaotic_operators.CASES]
        writes = dict(zip(names, pool.map(count_writes, names), strict=True))
        tasks = list(plan_tasks(writes, options.seeds))
        for task, tried, crashes, diverged in pool.map(execute, tasks):
            cell = cells.setdefault((task.case, task.perturbation), Cell())
            cell.tried, cell.diverged = cell.tried + tried, cell.diverged + len(diverged)
            restarts += crashes
            failures += [f'{task.case}: {text}' for text in diverged]
    total = sum(cell.tried for cell in cells.values())
    print(*failures, *format_table(cells), sep='\n')  # noqa: T201
    print(f'{total - len(failures)} of {total} runs have converged, with {restarts} restarts, '  # noqa: T201
          f'in {time.monotonic() - since:.0f} s.')
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    main()
