"""
Plans: what goes wrong in one run, and when. Everything follows from the seed; nothing here acts.

The faults of a request depend on the seed, on the request, and on how many times it was made, but
not on the order of requests to different objects: so the same seed has the same effect even if the
order of requests changes.
"""

import dataclasses
import enum
import random

WRITES = frozenset({'create', 'update', 'patch', 'delete', 'deletecollection'})

DOWNTIMES = (0.0, 0.0, 5.0, 60.0, 400.0)
LAGS = (1.0, 10.0, 100.0)
GAPS = (1.0, 20.0, 90.0, 300.0)
DELAYS = (0.0, 0.013, 0.513, 1.513, 4.013)
"""Seconds from a change to the re-creation: not round, unlike the delays of scenarios."""


class Perturbation(enum.StrEnum):
    """The kinds of disturbances of the operator and its cluster."""

    CRASHES = 'crashes'  # it is killed in an intermediate state: at a write
    # It is killed, and does not see the latest changes for a while after the restart.
    STALENESS = 'staleness'
    # The same, but without its own changes either, unlike in real clusters: not in `ALL`.
    TRAVELS = 'travels'
    # It misses some states: its streams break, and the history is gone when it is back.
    GAPS = 'gaps'
    FAULTS = 'faults'  # its requests and streams fail, hang, repeat, come late or not at all
    ALL = 'all'  # any of these together
    # The server modifies or refuses writes; not in `ALL`, as the end state differs.
    MEDDLING = 'meddling'
    # Objects vanish, and new ones take their names; not in `ALL` either.
    RECREATIONS = 'recreations'


class Way(enum.StrEnum):
    """The ways to harm a request."""

    REFUSE = 'refused'  # with a code
    CUT = 'cut'  # disconnected, not executed
    LOSE = 'answer lost'  # executed, but disconnected instead of an answer
    TEAR = 'answer torn'  # executed, but disconnected in the middle of the answer
    STALL = 'stalled'  # silent for a while, then disconnected, not executed
    SLOW = 'slow'  # executed and answered after a while
    EXPIRE = 'expired'  # of streams: ended with the error 410
    END = 'ended'  # of streams: ended properly, before the time


@dataclasses.dataclass(frozen=True)
class Crash:
    """The operator is killed at its write of this number in the run, counted from 1."""

    write: int
    is_before: bool  # instead of the write; otherwise, right after it
    downtime: float = 0.0  # seconds until the restart
    behind: int = 0  # by how many changes its view is behind after the start
    lag: float = 0.0  # for how many seconds
    is_amnesic: bool = False  # whether its own changes are invisible too, not only those of others

    def __str__(self) -> str:
        text = (
            f'{"instead of" if self.is_before else "after"} the write {self.write}, down '
            f'for {self.downtime:g} s'
        )
        return (
            f'{text}, then {self.behind} changes behind for {self.lag:g} s' if self.behind else text
        )


@dataclasses.dataclass(frozen=True)
class Gap:
    """Nothing can be listed or watched, beginning with the change of this number in the run."""

    change: int
    duration: float
    is_forgotten: bool  # whether the history is gone at the end

    def __str__(self) -> str:
        history = ', the history is forgotten' if self.is_forgotten else ''
        return f'after the change {self.change}, nothing is seen for {self.duration:g} s{history}'


@dataclasses.dataclass(frozen=True)
class Recreation:
    """The object of the change of this number in the run is replaced by its namesake."""

    change: int
    delay: float = 0.0  # seconds since the change

    def __str__(self) -> str:
        delay = f'{self.delay:g} s after' if self.delay else 'right after'
        return f're-created {delay} the change {self.change}'


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that goes wrong in one run."""

    seed: int = 0
    crashes: tuple[Crash, ...] = ()
    gaps: tuple[Gap, ...] = ()
    intensity: float = 0.0  # the share of harmed requests and events
    server: tuple[str, ...] = ()  # the names of the behaviours of the server
    conflicts: float = 0.0  # the share of patches refused with 409
    recreations: tuple[Recreation, ...] = ()
    lateness: float = 0.0  # seconds by which all events of all streams are late

    @property
    def must_rest(self) -> bool:
        """Whether only the rest at the end of the run shows that the operator is not in a loop."""
        return bool(self.server or self.conflicts or self.recreations)

    def __str__(self) -> str:
        faults = [f'faults in {self.intensity:.0%} of requests'] if self.intensity else []
        server = [f'the server does {", ".join(self.server)}'] if self.server else []
        conflicts = [f'conflicts in {self.conflicts:.0%} of patches'] if self.conflicts else []
        lateness = [f'all events are {self.lateness:g} s late'] if self.lateness else []
        parts = [
            *(f'killed {crash}' for crash in self.crashes),
            *map(str, self.gaps),
            *faults,
            *server,
            *conflicts,
            *map(str, self.recreations),
            *lateness,
        ]

        return '; '.join(parts) or 'nothing goes wrong'


@dataclasses.dataclass(frozen=True)
class Scale:
    """
    The scale of a run with no faults: the numbers of the operator's writes and of all changes.

    Also, the names of the possible behaviours of the server.
    """

    writes: int
    changes: int
    server: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Harm:
    """The fault of one request; for streams, after this number of lines."""

    way: Way
    code: int = 0
    seconds: float = 0.0
    lines: int = 0

    def __str__(self) -> str:
        details = [
            f'with {self.code}' if self.code else '',
            f'for {self.seconds:g} s' if self.seconds else '',
            f'after {self.lines} lines' if self.lines else '',
        ]
        return ' '.join([self.way, *filter(None, details)])


PEACE = Plan()


def build_plan(seed: int, perturbation: Perturbation, scale: Scale) -> Plan:
    """
    Choose what goes wrong, by the seed.

    For crashes, the first seeds cover all writes of the run: 0 is instead of the first write, 1 is
    after it, 2 is instead of the second one, and so on; the seeds after the last write kill the
    operator twice, at random. For meddling, the first seeds cover all behaviours of the server, one
    by one; the next seeds combine them at random.
    """
    chance = random.Random(f'{perturbation}/{seed}')
    match perturbation:
        case Perturbation.CRASHES:
            return Plan(seed, crashes=_choose_crashes(seed, scale, chance))
        case Perturbation.STALENESS | Perturbation.TRAVELS:
            crash = _choose_crash(scale, chance, stale=True)
            return Plan(
                seed,
                crashes=(
                    dataclasses.replace(crash, is_amnesic=perturbation == Perturbation.TRAVELS),
                ),
            )
        case Perturbation.GAPS:
            return Plan(seed, gaps=_choose_gaps(scale, chance))
        case Perturbation.FAULTS:
            return Plan(seed, intensity=chance.choice([0.05, 0.15, 0.3, 0.5]))
        case Perturbation.ALL:
            crashes = tuple(
                _choose_crash(scale, chance, stale=chance.random() < 0.3)
                for _ in range(chance.choice([0, 1, 1, 2, 3]))
            )
            return Plan(
                seed,
                _order(crashes),
                _choose_gaps(scale, chance) if chance.random() < 0.5 else (),
                intensity=chance.choice([0, 0.05, 0.15, 0.3]),
            )
        case Perturbation.MEDDLING:
            return _build_meddling(seed, scale, chance)
        case Perturbation.RECREATIONS:
            crashes = (_choose_crash(scale, chance),) if chance.random() < 0.3 else ()
            return Plan(seed, crashes, recreations=_choose_recreations(scale, chance))


def count_crashes(scale: Scale) -> int:
    """Return the number of seeds for crashes at every write."""
    return 2 * scale.writes


def _choose_crashes(seed: int, scale: Scale, chance: random.Random) -> tuple[Crash, ...]:
    if 0 <= seed < count_crashes(scale):
        return (Crash(seed // 2 + 1, is_before=seed % 2 == 0, downtime=chance.choice(DOWNTIMES)),)
    return _order((_choose_crash(scale, chance), _choose_crash(scale, chance)))


def _choose_crash(scale: Scale, chance: random.Random, *, stale: bool = False) -> Crash:
    crash = Crash(
        chance.randint(1, max(1, scale.writes)), chance.random() < 0.5, chance.choice(DOWNTIMES)
    )
    if not stale:
        return crash
    return dataclasses.replace(
        crash, behind=chance.randint(1, max(1, scale.changes)), lag=chance.choice(LAGS)
    )


def _choose_gaps(scale: Scale, chance: random.Random) -> tuple[Gap, ...]:
    changes = sorted(
        {chance.randint(1, max(1, scale.changes)) for _ in range(chance.randint(1, 3))}
    )
    return tuple(Gap(change, chance.choice(GAPS), chance.random() < 0.6) for change in changes)


def _build_meddling(seed: int, scale: Scale, chance: random.Random) -> Plan:
    if 0 <= seed < len(scale.server):
        return Plan(seed, server=(scale.server[seed],))

    count = min(len(scale.server), chance.randint(1, 3))
    chosen = {*chance.sample(scale.server, count)}
    return Plan(
        seed,
        crashes=(_choose_crash(scale, chance),) if chance.random() < 0.5 else (),
        server=tuple(name for name in scale.server if name in chosen),
        conflicts=chance.choice([0.0, 0.0, 0.2, 0.5]),
    )


def _choose_recreations(scale: Scale, chance: random.Random) -> tuple[Recreation, ...]:
    changes = sorted(
        {chance.randint(1, max(1, scale.changes)) for _ in range(chance.randint(1, 3))}
    )
    return tuple(Recreation(change, chance.choice(DELAYS)) for change in changes)


def _order(crashes: tuple[Crash, ...]) -> tuple[Crash, ...]:
    """Sort the crashes, at most one per write."""
    return tuple(
        sorted({crash.write: crash for crash in crashes}.values(), key=lambda crash: crash.write)
    )


REFUSALS = (429, 500, 503, 504)


def choose_harm(plan: Plan, verb: str, what: str, nth: int) -> Harm | None:
    """Return the fault of the nth request with this verb to this object, if any."""
    chance = random.Random(f'{plan.seed}/{verb}/{what}/{nth}')
    if chance.random() >= plan.intensity:
        return None

    seconds = chance.choice([0.5, 5.0, 40.0])
    way = chance.choice([Way.REFUSE, Way.REFUSE, Way.CUT, Way.LOSE, Way.TEAR, Way.STALL, Way.SLOW])
    if way is Way.REFUSE:
        extra = {'patch': (409,), 'update': (409,), 'list': (410,), 'watch': (410,)}.get(verb, ())
        return Harm(way, code=chance.choice((*REFUSALS, *extra, *extra)))

    if verb == 'watch' and way is not Way.CUT:
        way = chance.choice([Way.CUT, Way.EXPIRE, Way.END, Way.STALL])
        return Harm(
            way, seconds=seconds * 5 if way is Way.STALL else 0.0, lines=chance.randint(1, 4)
        )

    return Harm(way, seconds=seconds if way in (Way.STALL, Way.SLOW) else 0.0)


def choose_conflict(plan: Plan, verb: str, what: str, nth: int) -> Harm | None:
    """Return the conflict for the nth patch of this object, if any."""
    chance = random.Random(f'{plan.seed}/conflict/{what}/{nth}')
    is_refused = verb == 'patch' and chance.random() < plan.conflicts
    return Harm(Way.REFUSE, code=409) if is_refused else None


@dataclasses.dataclass(frozen=True)
class LineHarm:
    """The fault of one line of a stream."""

    delay: float = 0.0
    is_repeated: bool = False

    def __str__(self) -> str:
        return ' and '.join(
            [
                *([f'delayed by {self.delay:g} s'] if self.delay else []),
                *(['repeated'] if self.is_repeated else []),
            ]
        )


def choose_line_harm(plan: Plan, what: str, nth: int, line: int) -> LineHarm | None:
    """Return the fault of a line of the nth stream of this resource, if any."""
    chance = random.Random(f'{plan.seed}/line/{what}/{nth}/{line}')
    if chance.random() >= plan.intensity:
        return None
    delay = chance.choice([0.0, 0.0, 0.1, 3.0, 30.0])
    return LineHarm(delay, is_repeated=not delay or chance.random() < 0.5)
