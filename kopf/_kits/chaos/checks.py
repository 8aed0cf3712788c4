"""
Checks: whether an operator converges to the same state despite faults and crashes.
"""

import contextlib
import dataclasses
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypedDict, Unpack

from kopf._kits import libraries
from kopf._kits.chaos import plans, server_behaviours, states, timelines, watchdogs, worlds
from kopf._sandbox import options as options_

SEEDS = 20
"""The default number of seeds; for crashes, all writes of the scenario are tried instead."""


REST = 1800.0
"""The default seconds of rest at the end of a run: longer than any slowdown of the operator."""


class ConvergenceError(AssertionError):
    """The operator has converged to another state than in the run with no faults."""


class Options(TypedDict, total=False):
    """The options of the runs."""

    apply: Sequence[options_.Source]  # initial manifests, as for `Sandbox`
    observe: Callable[[Any], object]  # gets the sandbox at the end; its results are compared
    ignore: Collection[str]  # fields not to compare: status.since, Pod.spec.nodeName
    calm: float  # seconds with no changes after which the run is over
    patience: float  # seconds to wait for the end at most
    operator: dict[str, Any]  # options of the operator: settings, namespaces, …
    # Functions of bodies: how the server can modify the written objects.
    server: Sequence[server_behaviours.Behaviour]
    # Gets every stored state of every object; raises if the state is wrong.
    always: Callable[[dict[str, Any]], object]
    rest: float  # seconds at the end in which nothing may be written, and no handlers may be called
    # Whether to retry requests that the operator could not review while down; by default, yes.
    insist: bool
    # The limit of calls of a handler per object, for each foreign change and each start.
    calls: int


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one run, and the record of it."""

    plan: plans.Plan
    state: states.State
    observed: object
    error: Exception | None  # of the scenario or of the operator
    timeline: timelines.Timeline = dataclasses.field(repr=False)
    writes: int = 0
    changes: int = 0
    starts: int = 1
    seconds: float = 0.0  # real time


@dataclasses.dataclass(frozen=True)
class Divergence:
    """A run that has ended in another state than the run with no faults."""

    perturbation: plans.Perturbation
    outcome: Outcome
    differences: list[str]

    @property
    def seed(self) -> int:
        return self.outcome.plan.seed

    def __str__(self) -> str:
        return '\n'.join(
            [
                f'The end is different with the seed {self.seed} of {self.perturbation.value!r}: '
                f'{self.outcome.plan}.',
                *(f'  {line}' for line in self.differences),
                'What happened, by the virtual seconds since the beginning:',
                *(f'  {line}' for line in self.outcome.timeline.format()),
                f'To repeat: perturbation={self.perturbation.value!r}, seeds=[{self.seed}]',
            ]
        )


@dataclasses.dataclass(frozen=True)
class Report:
    """The results of all tried seeds."""

    perturbation: plans.Perturbation
    peace: Outcome  # the run with no faults
    seeds: list[int] = dataclasses.field(default_factory=list)
    divergences: list[Divergence] = dataclasses.field(default_factory=list)
    crashes: int = 0  # the number of restarts of the operator
    seconds: float = 0.0  # real time of all runs

    @property
    def converged(self) -> bool:
        return not self.divergences


def check_convergence(
    handlers: worlds.Handlers,
    scenario: Callable[[Any], Any],
    *,
    seeds: Iterable[int] | None = None,
    perturbation: plans.Perturbation | str = plans.Perturbation.ALL,
    **options: Unpack[Options],
) -> Report:
    """
    Check that the operator brings the cluster to the same state despite faults and crashes.

    The scenario is run without faults, and then once per seed, with the faults and crashes that
    follow from the seed. Then the faults are lifted, the operator gets the time to finish, and the
    objects are compared with the first run. Raises `ConvergenceError` for the first seed with
    another end state, with the timeline of that run.
    """
    report = try_seeds(
        handlers, scenario, seeds=seeds, perturbation=perturbation, limit=1, **options
    )
    for divergence in report.divergences:
        raise ConvergenceError(str(divergence))
    return report


def try_seeds(
    handlers: worlds.Handlers,
    scenario: Callable[[Any], Any],
    *,
    seeds: Iterable[int] | None = None,
    perturbation: plans.Perturbation | str = plans.Perturbation.ALL,
    limit: int | None = None,
    **options: Unpack[Options],
) -> Report:
    """Do the same as `check_convergence`, but report divergences, up to ``limit`` of them."""
    chosen = plans.Perturbation(perturbation)
    since = time.monotonic()
    trial = Trial(handlers, scenario, options)
    peace = trial.run_in_peace()
    scale = trial.measure(peace)
    tried: list[int] = []
    divergences: list[Divergence] = []
    crashes = 0

    for seed in _choose_seeds(seeds, chosen, scale):
        outcome, differences = trial.compare(peace, plans.build_plan(seed, chosen, scale))
        tried.append(seed)
        crashes += outcome.starts - 1
        if differences:
            divergences.append(Divergence(chosen, outcome, differences))
        if limit is not None and len(divergences) >= limit:
            break

    return Report(chosen, peace, tried, divergences, crashes, time.monotonic() - since)


def compare_outcomes(expected: Outcome, actual: Outcome) -> list[str]:
    """Return the differences between two outcomes, one per line."""
    lines = [] if actual.error is None else [f'it has failed: {actual.error!r}']
    lines += states.compare_states(expected.state, actual.state)
    if expected.observed != actual.observed:
        lines.append(f'observed is {actual.observed!r}, not {expected.observed!r}')
    return lines


def _choose_seeds(
    seeds: Iterable[int] | None, perturbation: plans.Perturbation, scale: plans.Scale
) -> Iterator[int]:
    if seeds is not None:
        return iter(seeds)
    return iter(
        range(plans.count_crashes(scale) if perturbation is plans.Perturbation.CRASHES else SEEDS)
    )


class Trial:
    """A scenario for some handlers, which is run repeatedly, each time in a new cluster."""

    def __init__(
        self, handlers: worlds.Handlers, scenario: Callable[[Any], Any], options: Options
    ) -> None:
        wrong = options.keys() - Options.__annotations__.keys()
        if wrong:
            raise TypeError(f'There are no such options: {", ".join(sorted(wrong))}.')
        self._handlers = handlers
        self._scenario = scenario
        self._options = options
        self._blindness = states.Blindness(tuple(options.get('ignore', ())))
        self._behaviours = server_behaviours.name_behaviours(options.get('server', ()))
        self._references: dict[tuple[str, ...], Outcome] = {}

    def measure(self, peace: Outcome) -> plans.Scale:
        """Return the numbers of writes and changes that faults can be planned for."""
        return plans.Scale(peace.writes, peace.changes, server=tuple(self._behaviours))

    def compare(self, peace: Outcome, plan: plans.Plan) -> tuple[Outcome, list[str]]:
        """
        Run the scenario as planned; return the outcome and its differences from the expected one.

        If the server modifies the written objects, the expected outcome is that of the same server
        with no other faults.
        """
        expected = peace if not plan.server else self._refer(plan)
        if expected.error is not None or expected.plan == plan:
            return expected, compare_outcomes(expected, expected)

        outcome = self.run(plan)
        return outcome, compare_outcomes(expected, outcome)

    def _refer(self, plan: plans.Plan) -> Outcome:
        if plan.server not in self._references:
            self._references[plan.server] = self.run(plans.Plan(seed=plan.seed, server=plan.server))
        return self._references[plan.server]

    def run_in_peace(self) -> Outcome:
        """
        Run the scenario twice with no faults.

        Raises the error of the run, or `ConvergenceError` if the two runs end differently.
        """
        outcome = self.run(plans.PEACE)
        repeated = self.run(plans.PEACE)
        for failed in (outcome, repeated):
            if failed.error is not None:
                failed.error.add_note(
                    '\n'.join(['What happened, with nothing wrong:', *failed.timeline.format()])
                )
                raise failed.error

        differences = compare_outcomes(outcome, repeated)
        if differences:
            raise ConvergenceError(
                '\n'.join(
                    [
                        'The end is different even if nothing goes wrong. Use ignore=[...] for '
                        'what is never the same.',
                        *differences,
                    ]
                )
            )
        return outcome

    def run(self, plan: plans.Plan) -> Outcome:
        """Run the scenario once in a new cluster."""
        since = time.monotonic()
        scripts = set(sys.modules)
        world = worlds.World(
            plan,
            self._handlers,
            self._options.get('operator', {}),
            server=self._options.get('server', ()),
            bounds=watchdogs.Bounds(calls=self._options.get('calls')),
            insist=self._options.get('insist', True),
            apply=self._options.get('apply', ()),
        )

        with (
            timelines.recorded(world.timeline),
            _restored_randomness(),
            world,
            libraries.pointed_at(world.kubeconfig),
        ):
            random.seed(plan.seed)
            error = self._live(world, plan)
            state = states.build_state(world.collect(), self._blindness)
            observed, mistake = self._observe(world)
            error = error or mistake
            world.timeline.note('end', 'the run is over')
            error = error or _end(world)

        worlds.forget_scripts(scripts)
        meddler = world.meddler
        return Outcome(
            plan,
            state,
            observed,
            error,
            world.timeline,
            meddler.writes,
            meddler.changes,
            world.starts,
            time.monotonic() - since,
        )

    def _live(self, world: worlds.World, plan: plans.Plan) -> Exception | None:
        """Run the scenario, and wait for the end of its consequences; return the error, if any."""
        calm = self._options.get('calm', 300.0)
        patience = self._options.get('patience', 3600.0)
        rest = self._options.get('rest', REST if plan.must_rest else 0.0)

        try:
            world.begin()
            if 'always' in self._options:
                world.check_always(self._options['always'])
            world.run_scenario(self._scenario)
            world.calm_down(calm, patience)
            world.lift()
            world.calm_down(calm, patience)
            if rest:
                world.rest(rest)
        except Exception as error:
            world.timeline.note('end', f'the run has failed: {error!r}')
            return error

        return None

    def _observe(self, world: worlds.World) -> tuple[object, Exception | None]:
        """Return what the author wants to compare, or the error of the author's own checks."""
        observe = self._options.get('observe')
        try:
            return observe(world) if observe is not None else None, None
        except Exception as error:
            return None, error


def _end(world: worlds.World) -> Exception | None:
    try:
        world.end()
    except Exception as error:
        return error
    return None


@contextlib.contextmanager
def _restored_randomness() -> Iterator[None]:
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)
