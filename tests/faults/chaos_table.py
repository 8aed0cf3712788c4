"""
Disturb the operators of all kinds in all ways on the sandbox, and print what has become of them, as a table.

    python tests/faults/chaos_table.py --seeds 60 --jobs 2

Each cell tells how many runs out of how many have come to the same end as with nothing wrong. For crashes, the operator
is killed instead of and after its every write, however many seeds are asked for. Any other end makes it fail.
"""
import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import os
import sys
import time

import chaotic_operators

from kopf.testing import chaos

CHUNK = 25  # seeds in one task of a process


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


def count_seeds(name, perturbation, seeds):
    """Tell how many seeds are needed: for crashes, not less than for all writes."""
    if perturbation is not chaos.Perturbation.CRASHES:
        return seeds
    case = find_case(name)
    peace = chaos.try_seeds(case.declare, case.scenario, seeds=[], **case.options).peace
    return max(seeds, 2 * peace.writes)


def plan_tasks(seeds):
    for case in chaotic_operators.CASES:
        for perturbation in chaos.Perturbation:
            if is_fair(case, perturbation):
                total = count_seeds(case.name, perturbation, seeds)
                for first in range(0, total, CHUNK):
                    yield Task(case.name, perturbation, range(first, min(first + CHUNK, total)))


def execute(task):
    case = find_case(task.case)
    report = chaos.try_seeds(
        case.declare, case.scenario, perturbation=task.perturbation, seeds=task.seeds, **case.options)
    return task, len(report.seeds), report.crashes, [str(divergence) for divergence in report.divergences]


def format_table(cells):
    names = list(dict.fromkeys(case for case, _ in cells))
    header = ['scenario', *(perturbation.value for perturbation in chaos.Perturbation)]
    lines = [header, *([name, *(str(cells.get((name, perturbation), '')) for perturbation in chaos.Perturbation)]
                       for name in names)]
    widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
    return [''.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('--seeds', type=int, default=60, help="of each scenario in each perturbation")
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    options = parser.parse_args()
    since, restarts = time.monotonic(), 0
    cells, failures = {}, []
    tasks = list(plan_tasks(options.seeds))
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context('spawn')) as pool:
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
