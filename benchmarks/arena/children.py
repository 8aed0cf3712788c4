"""The costs of parents with children: the start, and the changes of children."""

import random
import time
from collections.abc import Sequence
from typing import Any

import changes
import processes
import servers
import subjects
import trials

EACH = 3  # the number of children of each parent
IDLE_CHANGES, IDLE_RATE = 100, 5.0  # the number of changes, and changes per second
LOAD_CHANGES, LOAD_RATE = 4_000, 200.0
WORDS = ('alpha', 'billing', 'cache', 'delta', 'events', 'frontend', 'gamma', 'history')


def make_child(number: int, owner: str, uid: str) -> dict[str, Any]:
    """Make a child of 1.5 kB as stored, without ``managedFields``; all of them differ."""
    chance = random.Random(number)
    reference = {
        'apiVersion': 'bench.dev/v1',
        'kind': 'Load',
        'name': owner,
        'uid': uid,
        'controller': True,
        'blockOwnerDeletion': True,
    }
    lines = [
        f'{chance.choice(WORDS)}.{chance.choice(WORDS)}={chance.randrange(10**9)}'
        for _ in range(40)
    ]
    return {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {
            'name': build_name(number),
            'labels': {'app': 'bench', 'part': str(number % EACH)},
            'ownerReferences': [reference],
        },
        'data': {'settings': '\n'.join(lines)},
    }


def build_name(number: int) -> str:
    return f'child-{number}'


def prepare_children(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    cluster.create(size)
    uids = cluster.list_uids()

    def make(number: int) -> dict[str, Any]:
        owner = f'load-{number // EACH}'
        return make_child(number, owner, uids[owner])

    cluster.create(EACH * size, make=make, path=cluster.get_path('configmaps'))


def measure_reconciling(trial: trials.Trial) -> None:
    """
    Measure the start, when each parent is called once, and then the changes of single children:
    each calls its parent, which reads all of its children.
    """
    figures, size = trial.figures, trial.size
    idle, loaded = (
        random.Random(trial.number).sample(range(EACH * size), min(total, EACH * size))
        for total in (IDLE_CHANGES, LOAD_CHANGES)
    )
    with trial.running('reconciling') as operator:
        operator.wait_for('called', size)
        operator.settle(window=3)
        figures |= {
            'start, CPU s': operator.cpu,
            'RSS MB': operator.memory,
            'peak RSS MB': operator.peak,
        }
        requests_when_idle = change(trial, operator, 'idle', idle, rate=IDLE_RATE, connections=1)
        requests = change(trial, operator, 'loaded', loaded, rate=LOAD_RATE)
        figures['after the changes, RSS MB'] = operator.memory
        said = operator.finish()
    samples = said['samples']
    if len(samples) != len(idle) + len(loaded):
        raise processes.NotEndedError(f'{len(samples)} changes are seen.')
    figures |= describe('idle', samples[: len(idle)], requests_when_idle)
    figures |= describe('loaded', samples[len(idle) :], requests)
    figures['calls per change'] = (said['calls'] - size) / len(samples)


def change(
    trial: trials.Trial,
    operator: subjects.Running,
    name: str,
    numbers: Sequence[int],
    *,
    rate: float,
    connections: int = servers.CONNECTIONS,
) -> list[float]:
    """Change these children at this rate; return the seconds of each request."""
    before, since = operator.cpu, time.monotonic()
    requests = trial.cluster.pace(
        numbers, rate=rate, connections=connections, build_path=build_path, build_body=build_body
    )
    seconds = time.monotonic() - since
    operator.settle()
    trial.figures |= {
        f'{name}, CPU ms per change': (operator.cpu - before) * 1000 / len(numbers),
        f'{name}, sent per second': len(numbers) / seconds,
    }
    return requests


def build_path(cluster: servers.Cluster, number: int) -> str:
    return f'{cluster.get_path("configmaps")}/{build_name(number)}'


def build_body(due: float) -> dict[str, Any]:
    return {'data': {'sent': repr(due)}}


def describe(name: str, samples: list[float], requests: list[float]) -> trials.Figures:
    return {
        **changes.describe_latency(name, samples, requests),
        f'{name}, ms, p99': trials.compute_percentile(samples, 99) * 1000,
    }
