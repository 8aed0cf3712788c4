"""
Elections: which replica leads, decided by the fields of one Lease, as client-go does it.

Decisions only: nothing is requested here. The holder writes the Lease again and again, based on the
version that it has last seen; the others take the Lease over when it has not changed for as long as
it lasts, by their own clocks since they saw it change. The times in the Lease are for people. All
times here are of a clock that only goes forward, such as that of the event loop.

There are never two leaders while the rates of the clocks differ by less than the ratio of the
duration to the renewal deadline: the holder stops by its own clock, counting from the moment when
it began its last successful renewal, which is before anyone else could see that renewal.
"""

import dataclasses
import datetime
import enum
import math
from collections.abc import Mapping
from typing import Any

JITTER = 0.2
"""The maximum share by which a retry is delayed, so that replicas do not all ask at once."""

RELEASED_DURATION = 1
"""The duration in seconds that is left in a released Lease: its fields cannot be empty or zero."""

TRANSITIONS_LIMIT = 2**31 - 1

Spec = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Terms:
    """The times of an election, in seconds."""

    duration: float = 15.0  # how long others wait for the holder to renew the Lease
    deadline: float = 10.0  # how long the holder leads after it began its last renewal
    retry: float = 2.0  # between the attempts to get the Lease, and between the renewals

    @property
    def timeout(self) -> float:
        """The limit of one request: there must be time for another one."""
        return max(1.0, self.deadline / 2)


class Role(enum.Enum):
    """What the replica is in its election; it leads at most once."""

    FOLLOWING = enum.auto()  # stands by, whether another one leads or none
    LEADING = enum.auto()
    LOST = enum.auto()  # led, and must do nothing more
    RESIGNED = enum.auto()  # led, or not, and wants no Lease


@dataclasses.dataclass(frozen=True)
class Observed:
    """A Lease as received from the API."""

    version: str
    spec: Spec


class Refusal(enum.Enum):
    """Other results of the requests."""

    ABSENT = enum.auto()  # there is no such Lease
    CONFLICT = enum.auto()  # the Lease exists already, or has another version
    FAILED = enum.auto()  # it is unknown what has happened


Answer = Observed | Refusal


@dataclasses.dataclass(frozen=True)
class State:
    """What a replica knows of the election."""

    identity: str
    terms: Terms = dataclasses.field(default_factory=Terms)
    role: Role = Role.FOLLOWING
    spec: Spec | None = None  # as last seen; None if no Lease was ever seen
    version: str | None = None  # to be replaced by the next writing; None if the Lease is absent
    changed: float = -math.inf  # when the fields were seen to change
    renewed: float = -math.inf  # when the last successful writing began
    due: float = -math.inf  # when to do something next
    is_outdated: bool = True  # whether the Lease must be read before it is written

    @property
    def holder(self) -> str:
        """The identity in the Lease, possibly of a dead holder; empty if it is released."""
        holder = (self.spec or {}).get('holderIdentity')
        return holder if isinstance(holder, str) else ''

    @property
    def transitions(self) -> int:
        """How many times the Lease has changed its holder."""
        return _read_integer((self.spec or {}).get('leaseTransitions'))

    @property
    def expiry(self) -> float:
        """When the Lease can be taken over if it does not change."""
        duration = _read_integer((self.spec or {}).get('leaseDurationSeconds'))
        return self.changed + (duration if duration > 0 else self.terms.duration)

    @property
    def deadline(self) -> float:
        """When the replica stops leading unless it renews the Lease."""
        return self.renewed + self.terms.deadline


@dataclasses.dataclass(frozen=True)
class Wait:
    """Do nothing until then, or until the Lease changes."""

    until: float


@dataclasses.dataclass(frozen=True)
class Read:
    """Read the Lease."""


@dataclasses.dataclass(frozen=True)
class Write:
    """Write these fields in place of that version, or create the Lease if there is none."""

    spec: Spec
    version: str | None


@dataclasses.dataclass(frozen=True)
class Lose:
    """Stop leading now."""


Action = Wait | Read | Write | Lose


def decide(state: State, *, now: float, today: datetime.datetime) -> Action:
    """Decide what to do now; ``today`` is the time of day to write into the Lease."""
    match state.role:
        case Role.RESIGNED:
            return Wait(math.inf)
        case Role.LOST:
            return Lose()
        case Role.LEADING if now >= state.deadline:
            return Lose()
        case Role.LEADING if now < state.due:
            return Wait(min(state.due, state.deadline))
        case Role.FOLLOWING if now < state.due:
            return Wait(state.due)

    if state.is_outdated:
        return Read()
    return Write(build_spec(state, today), state.version)


def react(
    state: State, action: Action, answer: Answer, *, since: float, now: float, chance: float
) -> State:
    """
    Return the state after the result of a reading or writing that began at ``since``.

    ``chance`` is a random number from 0 to 1.
    """
    match action, answer:
        case Read(), Observed() | Refusal.ABSENT:
            state = observe(state, answer, now=now)
            if state.role is Role.LEADING or is_free(state, now=now):
                return dataclasses.replace(state, due=now, is_outdated=False)
            return _retry(state, now=now, chance=chance)
        case Write(), Observed():
            return _accept(observe(state, answer, now=now), since=since, now=now)
        case Write(), Refusal.CONFLICT | Refusal.ABSENT if state.role is Role.LEADING:
            return dataclasses.replace(state, due=now, is_outdated=True)

    return _retry(state, now=now, chance=chance)


def observe(state: State, lease: Observed | Refusal, *, now: float) -> State:
    """
    Return the state after the Lease was seen, whether it was asked for or not.

    If the Lease is absent, the last seen holder is respected as long as the Lease would have
    lasted: it creates the Lease again. A leader that sees another holder has lost.
    """
    if not isinstance(lease, Observed):
        return dataclasses.replace(state, version=None)

    changed = state.changed if lease.spec == state.spec else now
    state = dataclasses.replace(state, spec=lease.spec, version=lease.version, changed=changed)
    if state.role is Role.LEADING and state.holder != state.identity:
        state = dataclasses.replace(state, role=Role.LOST)
    return state


def notice(state: State, lease: Observed | Refusal, *, now: float) -> State:
    """Return the state of a follower that saw the Lease while waiting: it can be taken at once."""
    if state.role is not Role.FOLLOWING:
        return state
    state = observe(state, lease, now=now)
    if is_free(state, now=now):
        return dataclasses.replace(state, due=now, is_outdated=False)
    return dataclasses.replace(
        state, due=max(state.due, min(state.expiry, now + state.terms.retry))
    )


def is_free(state: State, *, now: float) -> bool:
    """Return whether the Lease may be taken: it is absent, released, expired, or ours already."""
    return state.holder in ('', state.identity) or now >= state.expiry


def resign(state: State) -> State:
    """Return the state of a replica that must neither lead nor become a leader."""
    return dataclasses.replace(state, role=Role.RESIGNED)


def build_spec(state: State, today: datetime.datetime) -> dict[str, Any]:
    """Build the fields of the Lease that is taken or renewed by this replica."""
    is_ours = state.holder == state.identity
    is_taken = state.spec is not None and not is_ours
    acquired = (state.spec or {}).get('acquireTime') if is_ours else None

    return {
        'holderIdentity': state.identity,
        'leaseDurationSeconds': math.ceil(state.terms.duration),
        'acquireTime': acquired if isinstance(acquired, str) else format_time(today),
        'renewTime': format_time(today),
        'leaseTransitions': min(state.transitions + is_taken, TRANSITIONS_LIMIT),
    }


def build_release(state: State, today: datetime.datetime) -> dict[str, Any]:
    """Build the fields of the Lease that this replica gives back."""
    return {
        'holderIdentity': '',
        'leaseDurationSeconds': RELEASED_DURATION,
        'acquireTime': format_time(today),
        'renewTime': format_time(today),
        'leaseTransitions': state.transitions,
    }


def format_time(moment: datetime.datetime) -> str:
    """Format a time as the API does in Leases: with microseconds, in UTC."""
    return f'{moment.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%S.%f}Z'


def _accept(state: State, *, since: float, now: float) -> State:
    """Lead, unless the response has come too late to be of use: then the Lease is renewed again."""
    if state.role is not Role.LEADING and now >= since + state.terms.deadline:
        return dataclasses.replace(state, due=now, is_outdated=True)
    if state.role not in (Role.LEADING, Role.FOLLOWING) or state.holder != state.identity:
        return state
    return dataclasses.replace(
        state, role=Role.LEADING, renewed=since, due=since + state.terms.retry, is_outdated=False
    )


def _retry(state: State, *, now: float, chance: float) -> State:
    """Read the Lease again after a while, or as soon as it can have expired."""
    due = now + state.terms.retry * (1 + JITTER * chance)
    if state.role is Role.FOLLOWING and state.expiry > now:
        due = min(due, state.expiry)
    return dataclasses.replace(state, due=due, is_outdated=True)


def _read_integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
