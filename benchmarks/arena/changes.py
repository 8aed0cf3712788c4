"""The costs of changes: of all objects at once, one at a time, after restarts, among others."""

import dataclasses
import time
from collections.abc import Callable, Sequence

import processes
import servers
import subjects
import trials

IDLE_CHANGES, IDLE_RATE = 100, 5.0  # the number of changes, and changes per second
LOAD_RATE, LOAD_TIMES = 200.0, 3  # changes per second, and changes of each object


def measure_lifecycle(trial: trials.Trial) -> None:
    """Create, update and delete all objects; after each stage, wait until the operator is idle."""
    cluster, total, figures = trial.cluster, trial.size, trial.figures
    cluster.clear()
    with trial.running('lifecycle') as operator:
        operator.settle()
        figures |= {
            'start, CPU s': operator.cpu,
            'before the first object, RSS MB': operator.memory,
        }
        stages: dict[str, Callable[[], None]] = {
            'created': lambda: cluster.create(total),
            'updated': lambda: cluster.update(total, 2),
            'deleted': lambda: cluster.delete(total),
        }
        for stage, act in stages.items():
            before = operator.cpu
            act()
            operator.wait_for(stage, total)
            operator.settle()
            figures[f'{stage}, CPU s'] = operator.cpu - before
        figures['in all, CPU s'] = operator.cpu
        figures['peak RSS MB'] = operator.peak
        if left := cluster.count():
            raise processes.NotEndedError(f'It has left {left} objects.')


def prepare_restart(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    """Give each subject its own objects in its own namespace."""
    for subject in contestants:
        cluster.create_namespace(subject.name)
        cluster.enter(subject.name).create(size)


def measure_restart(trial: trials.Trial) -> None:
    """
    Measure a start of an operator when all objects are already handled: nothing has to be written.

    The operator itself handles them at its first start, which is not measured.
    """
    trial = dataclasses.replace(trial, cluster=trial.cluster.enter(trial.subject.name))
    if trial.number == 0:
        with trial.running('lifecycle') as operator:
            operator.wait_for('created', trial.size)
            operator.settle()
    before = trial.cluster.list_versions()
    with trial.running('lifecycle') as operator:
        operator.settle(window=3)
        trial.figures |= {
            'CPU s': operator.cpu,
            'RSS MB': operator.memory,
            'peak RSS MB': operator.peak,
        }
    after = trial.cluster.list_versions()
    trial.figures['objects written'] = float(
        sum(version != before.get(name) for name, version in after.items())
    )


def measure_latency(trial: trials.Trial) -> None:
    """Measure the time from sending a change of a handled object to the call of its handler."""
    cluster, size = trial.cluster, trial.size
    cluster.clear()
    load = [*range(size)] * LOAD_TIMES
    for name, numbers, pace in [
        ('idle', range(min(size, IDLE_CHANGES)), {'rate': IDLE_RATE, 'connections': 1}),
        ('loaded', load, {'rate': LOAD_RATE}),
    ]:
        with trial.running('latency', total=len(numbers)) as operator:
            if name == 'idle':
                cluster.create(size)
            operator.settle(window=2)
            before, since = operator.cpu, time.monotonic()
            requests = cluster.pace(numbers, **pace)
            seconds = time.monotonic() - since
            operator.settle()
            trial.figures[f'{name}, CPU ms per change'] = (
                (operator.cpu - before) * 1000 / len(numbers)
            )
            samples = operator.finish()['samples']
        trial.figures |= describe_latency(name, samples, requests)
        trial.figures |= {
            f'{name}, sent per second': len(numbers) / seconds,
            f'{name}, calls per change': len(samples) / len(numbers),
        }


def describe_latency(name: str, samples: list[float], requests: list[float]) -> trials.Figures:
    if not samples:
        raise processes.NotEndedError('No changes were handled.')
    return {
        f'{name}, ms, p50': trials.compute_percentile(samples, 50) * 1000,
        f'{name}, ms, p95': trials.compute_percentile(samples, 95) * 1000,
        f'{name}, of that the request, ms, p50': trials.compute_percentile(requests, 50) * 1000,
    }


def prepare_growth(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    """Create objects up to this number, as if they were handled before."""
    cluster.create(size, make=servers.make_handled_object, first=cluster.count())


def measure_growth(trial: trials.Trial) -> None:
    """Change the same objects twice each, when they are alone, and then among many others."""
    changed, figures = min(trial.sizes), trial.figures
    with trial.running('lifecycle', total=changed) as operator:
        operator.settle(window=3)
        before = operator.cpu
        for times in (1, 2):
            trial.cluster.update(changed, int(time.time()))
            operator.wait_for('updated', times * changed)
            operator.settle()
        figures[f'CPU ms per change, {trial.size:,} objects'] = (
            (operator.cpu - before) * 1000 / (2 * changed)
        )
    if trial.size != changed:
        costs = [figures[f'CPU ms per change, {size:,} objects'] for size in (trial.size, changed)]
        figures['times as much'] = costs[0] / costs[1]
