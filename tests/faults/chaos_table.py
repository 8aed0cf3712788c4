"""
Disturb the operators of all kinds in all ways on the sandbox, and print what has become of them, as
a table.

    python tests/faults/chaos_table.py --seeds 18 --jobs 4
    python tests/faults/chaos_table.py --seeds 100 --case defaults --perturbation meddling

Each cell tells how many runs out of how many have come to the same end as with nothing wrong. For
crashes, the operator is killed instead of and after its every write, however many seeds are asked
for. Any other end makes it fail, and so does a scenario that fails with nothing wrong: then none of
its runs are counted as converged.
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
import contested_operators
import levelled_operators

from kopf._kits.chaos import checks, plans
from kopf.testing import chaos

CASES = [*chaotic_operators.CASES, *contested_operators.CASES, *levelled_operators.CASES]

CHUNK = 10  # seeds in one task of a process
# A third of each run is spent on waiting for the network of its own process.
JOBS = 2 * (os.cpu_count() or 1)


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
    return next(case for case in CASES if case.name == name)


def is_fair(case, perturbation):
    """
    Return whether the case can come to the same end.

    What was done for a change that had been handled, or for an object that did not exist, cannot be
    taken back. What was recorded of past changes goes away with the object when it is re-created.
    """
    if perturbation is chaos.Perturbation.TRAVELS:
        return case.is_levelled
    if perturbation is chaos.Perturbation.RECREATIONS:
        return case.is_levelled or case.is_recreatable
    return True


@functools.cache
def prepare(name):
    """
    Run the scenario with nothing wrong, once in a process; return also the error, if it fails even
    so.
    """
    case = find_case(name)
    trial = checks.Trial(case.declare, case.scenario, case.options)
    try:
        return trial, trial.run_in_peace(), None
    except Exception as error:
        return trial, None, error


def count_writes(name):
    _, peace, _ = prepare(name)
    return 0 if peace is None else peace.writes


def plan_tasks(writes, seeds, perturbations=tuple(chaos.Perturbation)):
    """List the tasks: for crashes, there are not less seeds than for all writes."""
    for name, count in writes.items():
        for perturbation in perturbations:
            if is_fair(find_case(name), perturbation):
                total = (
                    max(seeds, 2 * count) if perturbation is chaos.Perturbation.CRASHES else seeds
                )
                for first in range(0, total, CHUNK):
                    yield Task(name, perturbation, range(first, min(first + CHUNK, total)))


def execute(task):
    """
    Try the seeds; return how many, how often the operators were restarted, and all other ends than
    expected.
    """
    trial, peace, error = prepare(task.case)
    if error is not None:
        text = f'It fails with nothing wrong, so the seed is not tried: {error!r}'
        return task, len(task.seeds), 0, [text for _ in task.seeds]
    scale, restarts, diverged = trial.measure(peace), 0, []
    for seed in task.seeds:
        outcome, differences = trial.compare(
            peace, plans.build_plan(seed, task.perturbation, scale)
        )
        restarts += outcome.starts - 1
        if differences:
            diverged.append(str(checks.Divergence(task.perturbation, outcome, differences)))
    return task, len(task.seeds), restarts, diverged


def format_table(cells):
    names = list(dict.fromkeys(case for case, _ in cells))
    header = ['scenario', *(perturbation.value for perturbation in chaos.Perturbation)]
    lines = [
        header,
        *(
            [
                name,
                *(str(cells.get((name, perturbation), '')) for perturbation in chaos.Perturbation),
            ]
            for name in names
        ),
    ]
    widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
    return [
        ''.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument(
        '--seeds', type=int, default=18, help='of each scenario in each perturbation'
    )
    parser.add_argument(
        '--case', action='append', choices=[case.name for case in CASES], help='only this scenario'
    )
    parser.add_argument(
        '--perturbation', action='append', type=chaos.Perturbation, help='only this one'
    )
    parser.add_argument('--jobs', type=int, default=JOBS, help='processes at once')
    options = parser.parse_args()
    since, restarts = time.monotonic(), 0
    cells, failures = {}, []
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, multiprocessing.get_context('spawn')
    ) as pool:
        names = options.case or [case.name for case in CASES]
        writes = dict(zip(names, pool.map(count_writes, names), strict=True))
        tasks = list(
            plan_tasks(writes, options.seeds, options.perturbation or tuple(chaos.Perturbation))
        )
        for task, tried, crashes, diverged in pool.map(execute, tasks):
            cell = cells.setdefault((task.case, task.perturbation), Cell())
            cell.tried, cell.diverged = cell.tried + tried, cell.diverged + len(diverged)
            restarts += crashes
            failures += [f'{task.case}: {text}' for text in dict.fromkeys(diverged)]
    total = sum(cell.tried for cell in cells.values())
    print(*failures, *format_table(cells), sep='\n')  # noqa: T201
    converged = total - sum(cell.diverged for cell in cells.values())
    seconds = time.monotonic() - since
    print(  # noqa: T201
        f'{converged} of {total} runs have converged, with {restarts} restarts, in {seconds:.0f} s.'
    )
    sys.exit(1 if failures else 0)


if __name__ == '__main__':
    main()
