"""All scenarios: what is measured in each, for which subjects, with how many objects and rounds."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import background
import changes
import children
import servers
import subjects
import trials
import watches

PYTHONS = frozenset({'kopf', 'plain', 'reference'})
EVERYBODY = PYTHONS | {'go'}
OURS = frozenset({'kopf'})
LEVEL_TRIGGERED = EVERYBODY - {'reference'}


def take_all(total: int) -> list[int]:
    return [total]


def take_none(total: int) -> list[int]:
    return [0]


def take_ends(total: int) -> list[int]:
    return [max(total // 50, 1), total]


def take_steps(total: int) -> list[int]:
    return [0, max(total // 50, 1), max(total // 5, 1), total]


def prepare_nothing(
    cluster: servers.Cluster, contestants: Sequence[subjects.Subject], size: int
) -> None:
    """Prepare nothing: the subjects do everything themselves."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One way to load an operator."""

    title: str  # with ``{total}`` for the number of objects
    measure: Callable[[trials.Trial], None]
    total: int  # the maximum number of objects
    quick: int  # the same for a check that everything works, without meaningful figures
    prepare: Callable[[servers.Cluster, Sequence[subjects.Subject], int], None] = prepare_nothing
    sizes: Callable[[int], list[int]] = take_all  # one step for each of them
    rounds: int = 3  # at most
    names: frozenset[str] = EVERYBODY  # the measured subjects


SCENARIOS: Mapping[str, Scenario] = {
    'loading': Scenario(
        'Loading: the framework is imported, its command shows the help',
        watches.measure_loading,
        1,
        1,
        sizes=take_none,
        names=PYTHONS,
    ),
    'idle': Scenario(
        'Idleness: an operator without objects',
        watches.measure_idle,
        1,
        1,
        sizes=take_none,
        rounds=2,
    ),
    'lifecycle': Scenario(
        'Life cycle: {total} objects of 1 kB are created, updated, deleted, each handled',
        changes.measure_lifecycle,
        5_000,
        200,
    ),
    'events': Scenario(
        'Watching: {total} objects are listed, then each is changed; there is one handler of events',
        watches.measure_events,
        10_000,
        500,
        prepare=watches.prepare_events,
        rounds=2,
    ),
    'latency': Scenario(
        'Latency: from the moment of a change to the call of its handler; {total} objects',
        changes.measure_latency,
        1_000,
        50,
        rounds=2,
    ),
    'restart': Scenario(
        'Restart: {total} objects are handled already',
        changes.measure_restart,
        10_000,
        200,
        prepare=changes.prepare_restart,
    ),
    'timers': Scenario(
        'Timers: {total} objects with a timer each, called every 5 s',
        background.measure_timers,
        2_000,
        200,
        prepare=background.prepare_timers,
        rounds=2,
        names=PYTHONS,
    ),
    'indices': Scenario(
        'Indices: {total} objects are indexed, and looked up',
        background.measure_indices,
        2_000,
        500,
        prepare=background.prepare_indices,
        rounds=2,
        names=PYTHONS,
    ),
    'reconciling': Scenario(
        'Reconciliation: {total} parents with 3 children of 1.5 kB each; children are changed',
        children.measure_reconciling,
        10_000,
        100,
        prepare=children.prepare_children,
        rounds=2,
        names=LEVEL_TRIGGERED,
    ),
    'memory': Scenario(
        'Memory: up to {total} objects, only watched',
        watches.measure_memory,
        50_000,
        1_000,
        prepare=watches.prepare_events,
        sizes=take_steps,
        rounds=1,
    ),
    'growth': Scenario(
        'Growth: the cost of a change among {total} objects, and among a 50th of them',
        changes.measure_growth,
        50_000,
        1_000,
        prepare=changes.prepare_growth,
        sizes=take_ends,
        rounds=2,
        names=OURS,
    ),
}
