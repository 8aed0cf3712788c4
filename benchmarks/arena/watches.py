"""Measurements of idle operators, of operators that only watch objects, and of loading."""

import statistics
import subprocess
import time
from collections.abc import Sequence

import processes
import servers
import subjects
import trials

REST = 10.0  # seconds to measure idle operators
LOADS = 7  # the number of loadings


def prepare_events(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    """Create objects up to this number, with nothing on them; existing objects are kept."""
    cluster.create(size, first=cluster.count())


def measure_events(trial: trials.Trial) -> None:
    """Measure an operator that only watches existing objects; then each object is changed once."""
    cluster, total, figures = trial.cluster, trial.size, trial.figures
    with trial.running('events') as operator:
        operator.wait_for('seen', total)
        operator.settle()
        listed = operator.cpu
        figures['listed, CPU s'] = listed
        cluster.update(total, int(time.time()))
        operator.wait_for('seen', 2 * total)
        operator.settle()
        figures |= {
            'watched, CPU s': operator.cpu - listed,
            'RSS MB': operator.memory,
            'peak RSS MB': operator.peak,
        }


def measure_memory(trial: trials.Trial) -> None:
    """Measure the memory per object with more and more objects that are only watched."""
    with trial.running('events') as operator:
        if trial.size:
            operator.wait_for('seen', trial.size)
        operator.settle(window=2)
        memory = operator.memory
    trial.figures[f'{trial.size:,} objects, RSS MB'] = memory
    if trial.size:
        added = memory - trial.figures['0 objects, RSS MB']
        trial.figures[f'{trial.size:,} objects, RSS kB per object'] = added * 1024 / trial.size


def measure_idle(trial: trials.Trial) -> None:
    """Measure an operator with handlers of changes and no objects."""
    with trial.running('lifecycle') as operator:
        operator.settle()
        before = operator.cpu
        time.sleep(REST)
        trial.figures |= {
            'RSS MB': operator.memory,
            'CPU, % of a core': (operator.cpu - before) / REST * 100,
        }


def measure_loading(trial: trials.Trial) -> None:
    """Measure the import of the framework, and the help of its command."""
    python = str(trial.subject.python)
    commands = {
        'nothing': ['-c', ''],
        'import': ['-c', 'import kopf'],
        'help': ['-m', 'kopf', '--help'],
    }
    for name, args in commands.items():
        runs = [processes.run_child([python, *args]) for _ in range(LOADS)]
        seconds, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
        trial.figures |= {f'{name}, s': seconds, f'{name}, CPU s': cpu}
    trial.figures |= {
        'nothing, RSS MB': read_memory(python, ''),
        'import, RSS MB': read_memory(python, 'import kopf'),
    }


def read_memory(python: str, code: str) -> float:
    """
    Return the peak memory of a process that only executes this code.

    The process reports it itself: for the system, the peak of a child includes our own memory.
    """
    code = (
        f'{code}\nprint(*[line for line in open("/proc/self/status") if line.startswith("VmHWM")])'
    )
    said = subprocess.run(
        [python, '-c', code], stdout=subprocess.PIPE, text=True, cwd='/', check=True
    ).stdout
    return int(said.split()[1]) / 1024
