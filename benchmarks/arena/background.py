"""The costs of timers and indices."""

from collections.abc import Sequence

import servers
import subjects
import trials

ROUNDS = 3  # the number of calls of every timer during the measurement
LOOKUPS = 200_000
PATIENCE = 180.0  # seconds


def prepare_timers(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    cluster.create(size, make=servers.make_held_object)


def measure_timers(trial: trials.Trial) -> None:
    """Measure objects with one empty timer each, with an interval of 5 seconds."""
    with trial.running('timers') as operator:
        operator.wait_for('objects', trial.size)
        first = operator.said['calls'] + trial.size  # the first calls happen during the start
        operator.wait_for('calls', first, timeout=PATIENCE)
        before, first = operator.cpu, operator.said['calls']
        operator.wait_for('calls', first + ROUNDS * trial.size, timeout=PATIENCE)
        said = operator.said
        calls = said['calls'] - first
        trial.figures |= {
            'CPU ms per call': (operator.cpu - before) * 1000 / calls,
            'RSS MB': operator.memory,
            'late, ms, p50': said['p50'] * 1000,
            'late, ms, p99': said['p99'] * 1000,
        }


def prepare_indices(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    cluster.create(size)


def measure_indices(trial: trials.Trial) -> None:
    """Measure the indexing of all objects, and then many lookups by a handler."""
    with trial.running('indices') as operator:
        operator.wait_for('seen', trial.size)
        operator.settle()
        trial.figures |= {'all indexed, CPU s': operator.cpu, 'RSS MB': operator.memory}
        trial.cluster.change(0, lookups=LOOKUPS)
        operator.wait_for('lookups', LOOKUPS, timeout=PATIENCE)
        trial.figures['a lookup, CPU us'] = operator.said['taken'] * 1e6 / LOOKUPS
        trial.cluster.change(0, lookups=None)
