"""What it takes to run with nothing to do, to only watch objects, and to load the framework at all."""

import statistics
import subprocess
import time
from collections.abc import Sequence

import processes
import servers
import subjects
import trials

REST = 10.0  # seconds to look at those that do nothing
LOADS = 7  # how many times to load


def prepare_events(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    """Let there be so many objects, with nothing on them; those that are there are kept."""
    cluster.create(size, first=cluster.count())


def measure_events(trial: trials.Trial) -> None:
    """All objects exist, and are only watched; then each of them is changed once."""
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
    """Objects are only watched, more and more of them: what each takes over a process with none."""
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
    """An operator with handlers of changes, and no objects for them."""
    with trial.running('lifecycle') as operator:
        operator.settle()
        before = operator.cpu
        time.sleep(REST)
        trial.figures |= {
            'RSS MB': operator.memory,
            'CPU, % of a core': (operator.cpu - before) / REST * 100,
        }


def measure_loading(trial: trials.Trial) -> None:
    """What it takes to load the framework, and to show the help of its command."""
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
    """Tell the peak memory of a process which only does this. It is asked itself: others know it together with ours."""
    code = (
        f'{code}\nprint(*[line for line in open("/proc/self/status") if line.startswith("VmHWM")])'
    )
    said = subprocess.run(
        [python, '-c', code], stdout=subprocess.PIPE, text=True, cwd='/', check=True
    ).stdout
    return int(said.split()[1]) / 1024
