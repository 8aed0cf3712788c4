"""What is measured: each function takes one subject through one scenario, and returns its figures."""
import statistics
import subprocess
import time
from collections.abc import Callable

import servers
import subjects

Figures = dict[str, float]
Scenario = Callable[[servers.Cluster, subjects.Subject, int], Figures | None]


def measure_lifecycle(cluster: servers.Cluster, subject: subjects.Subject, total: int) -> Figures | None:
    """All objects are created, then updated, then deleted; each stage is waited for until all is quiet."""
    command = subject.build_command('lifecycle')
    if command is None:
        return None
    figures: Figures = {}
    cluster.clear()
    with subjects.running(command, kubeconfig=cluster.kubeconfig, total=total) as operator:
        operator.settle()
        figures |= {'start, CPU s': operator.cpu, 'idle, RSS MB': operator.memory}
        stages = {'created': lambda: cluster.create(total), 'updated': lambda: cluster.update(total, 2),
                  'deleted': lambda: cluster.delete(total)}
        for stage, act in stages.items():
            before = operator.cpu
            act()
            operator.wait_for(stage, total)
            operator.settle()
            figures[f'{stage}, CPU ms per object'] = (operator.cpu - before) * 1000 / total
        figures['peak RSS MB'] = operator.peak
        if cluster.count():
            raise SystemExit(f'{subject.name} has left {cluster.count()} objects.')
    return figures


def measure_events(cluster: servers.Cluster, subject: subjects.Subject, total: int) -> Figures | None:
    """All objects exist, and are only watched; then each of them is changed once."""
    command = subject.build_command('events')
    if command is None:
        return None
    prepare(cluster, total)
    with subjects.running(command, kubeconfig=cluster.kubeconfig, total=total) as operator:
        operator.wait_for('seen', total)
        operator.settle()
        listed = operator.cpu
        cluster.update(total, int(time.time()))
        operator.wait_for('seen', 2 * total)
        operator.settle()
        return {'listed, CPU s': listed, 'watched, CPU ms per object': (operator.cpu - listed) * 1000 / total,
                'RSS MB': operator.memory, 'peak RSS MB': operator.peak}


def measure_restart(cluster: servers.Cluster, subject: subjects.Subject, total: int) -> Figures | None:
    """An operator is started with all objects handled already: there is nothing to do, and nothing to write."""
    command = subject.build_command('lifecycle')
    if command is None:
        return None
    cluster.clear()
    with subjects.running(command, kubeconfig=cluster.kubeconfig, total=total) as operator:
        cluster.create(total)
        operator.wait_for('created', total)
        operator.settle()
    before = cluster.list_versions()
    with subjects.running(command, kubeconfig=cluster.kubeconfig, total=total) as operator:
        operator.settle(window=3)
        figures = {'CPU s': operator.cpu, 'RSS MB': operator.memory, 'peak RSS MB': operator.peak}
    return {**figures, 'objects written': float(sum(
        version != before.get(name) for name, version in cluster.list_versions().items()))}


def measure_children(cluster: servers.Cluster, subject: subjects.Subject, total: int) -> Figures | None:
    """What it takes to load the framework, and to show the help of its command."""
    if subject.python is None:
        return None
    commands = {'import': ['-c', 'import kopf'], 'help': ['-m', 'kopf', '--help'], 'nothing': ['-c', '']}
    figures: Figures = {}
    for name, args in commands.items():
        figures[f'{name}, s'] = statistics.median(run_child([str(subject.python), *args]) for _ in range(7))
    return figures


def run_child(command: list[str]) -> float:
    since = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd='/', check=True)
    return time.perf_counter() - since


def prepare(cluster: servers.Cluster, total: int) -> None:
    """Let there be so many objects, with nothing on them."""
    cluster.clear()
    cluster.create(total)


SCENARIOS: dict[str, tuple[Scenario, int]] = {
    'lifecycle': (measure_lifecycle, 5_000),
    'events': (measure_events, 10_000),
    'restart': (measure_restart, 10_000),
    'loading': (measure_children, 1),
}
"""With the usual number of objects in each."""
