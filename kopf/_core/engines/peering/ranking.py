"""
Ranking: which of the operators that serve the same objects must pause.

Decisions only: nothing is requested here. The records of operators come from their peering object,
and can contain anything. Deadlines are by the clock of the event loop: clocks of different machines
differ, so the time of day is used only when a record is seen for the first time; afterwards, the
operator is alive while its record is being renewed.
"""

import dataclasses
import datetime
import getpass
import math
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NewType

from kopf._cogs.helpers import times
from kopf._cogs.structs import references

GROUPS = ('kopf.dev', 'zalando.org', 'kopf.zalando.org')
"""
The API groups of peering objects; the first one served is used. All but the first are deprecated.
"""

VERSION = 'v1'
CLUSTER_PLURAL = 'clusterkopfpeerings'
NAMESPACED_PLURAL = 'kopfpeerings'

DEFAULT_LIFETIME = 60
LONGEST_LIFETIME = 600
"""The maximum seconds to consider an operator alive; it can renew its record sooner."""

HIGHEST_PRIORITY = 2**53
"""The number up to which JSON is exact; priorities are limited by it and its negative."""

SHOWN_PEERS = 5
SHOWN_TEXT = 100
"""
The maximum number of operators in one log line, and of characters of their identities and messages.
"""

SHORTEST_INTERVAL = 1.0
"""The minimum seconds between the records of one operator in one peering object."""

EARLIEST_MARGIN = 10.0
LATEST_MARGIN = 5.0
"""The range of seconds before the end of a record in which it is renewed, at random."""

REMEMBERING = 3600.0
"""Seconds to remember an operator that has left, so that its renewed record is recognised."""

Identity = NewType('Identity', str)


def detect_identity(*, environ: Mapping[str, str], now: datetime.datetime, tail: str) -> Identity:
    """Return the identity of this operator: its pod, or else the user, host and start time."""
    pod = environ.get('POD_ID')
    return Identity(pod or f'{detect_user()}/{now:%Y%m%d%H%M%S}/{tail}')


def ally(identity: Identity, group: str | None) -> Identity:
    """Mark the identity as one of a group that chooses its only active member in another way."""
    return Identity(f'{group}:{identity}') if group else identity


def detect_user() -> Identity:
    """Return the identity of a person for operators."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # there are containers with nameless users
        user = str(os.getuid()) if hasattr(os, 'getuid') else 'unknown'
    return Identity(f'{user}@{socket.gethostname()}')


@dataclasses.dataclass(frozen=True)
class Record:
    """The record of an operator in a peering object."""

    priority: int = 0
    lifetime: int = DEFAULT_LIFETIME  # seconds
    lastseen: datetime.datetime | None = None  # by its own clock; None if absent
    message: str = ''

    def as_raw(self) -> dict[str, Any]:
        raw: dict[str, Any] = {'priority': self.priority, 'lifetime': self.lifetime}
        if self.lastseen is not None:
            raw['lastseen'] = self.lastseen.isoformat()
        return raw | ({'message': self.message} if self.message else {})


def parse_records(body: Mapping[str, Any] | None) -> dict[Identity, Record]:
    """Parse the records in a peering object; skip invalid ones."""
    status = (body or {}).get('status')
    raws = status if isinstance(status, Mapping) else {}
    return {
        Identity(identity): parse_record(raw)
        for identity, raw in raws.items()
        if isinstance(raw, Mapping)
    }


def parse_record(raw: Mapping[str, Any]) -> Record:
    """Parse the valid fields of a record; all others are treated as absent."""
    message = raw.get('message')
    return Record(
        priority=limit_priority(_parse_integer(raw.get('priority'), 0)),
        lifetime=limit_lifetime(_parse_integer(raw.get('lifetime'), DEFAULT_LIFETIME)),
        lastseen=times.parse_moment(raw.get('lastseen')),
        message=message if isinstance(message, str) else '',
    )


def limit_priority(priority: int) -> int:
    """Limit the priority to the range that all operators support."""
    return max(-HIGHEST_PRIORITY, min(HIGHEST_PRIORITY, priority))


def limit_lifetime(lifetime: int) -> int:
    """Limit the lifetime, in seconds, to the range that all operators support."""
    return max(0, min(LONGEST_LIFETIME, lifetime))


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another operator, as known by now."""

    identity: Identity
    record: Record
    deadline: float  # after which it is dead unless it is renewed
    is_present: bool = True  # whether its record still exists

    def __str__(self) -> str:
        message = f', {_shorten(self.record.message)!r}' if self.record.message else ''
        identity = self.identity if self.identity.isprintable() else repr(self.identity)
        return f'{_shorten(identity)} (priority {self.record.priority}{message})'


Peers = Mapping[Identity, Peer]


def update_peers(
    peers: Peers, records: Mapping[Identity, Record], *, now: float, today: datetime.datetime
) -> Peers:
    """Update the peers by their records; ``now`` and ``today`` are one time by two clocks."""
    updated = {
        identity: update_peer(peers.get(identity), identity, record, now=now, today=today)
        for identity, record in records.items()
    }
    vanished = {
        identity: dataclasses.replace(peer, is_present=False)
        for identity, peer in peers.items()
        if identity not in records and peer.deadline + REMEMBERING > now
    }
    return vanished | updated


def update_peer(
    before: Peer | None, identity: Identity, record: Record, *, now: float, today: datetime.datetime
) -> Peer:
    """Update a peer by its record: the first one, a renewed one, or an unchanged one."""
    if before is not None and before.record.lastseen == record.lastseen:
        deadline = before.deadline - before.record.lifetime + record.lifetime
    elif before is not None and _is_later(record.lastseen, before.record.lastseen):
        deadline = now + record.lifetime
    else:
        age = 0.0 if record.lastseen is None else (today - record.lastseen).total_seconds()
        deadline = now - max(0.0, age) + record.lifetime

    return Peer(identity, record, deadline)


@dataclasses.dataclass(frozen=True)
class Rank:
    """This operator's rank when peers are compared."""

    identity: Identity
    priority: int
    is_sharded: bool = False  # whether others serve other objects with the same priority
    group: str | None = None  # whose members do not pause each other, see `ally`

    def is_ally(self, peer: Identity) -> bool:
        return self.group is not None and peer.startswith(f'{self.group}:')


@dataclasses.dataclass(frozen=True)
class Decision:
    """The consequences of the presence of other operators."""

    superiors: Collection[Peer] = ()
    equals: Collection[Peer] = ()  # only those that conflict with this operator
    dead: Collection[Peer] = ()
    deadline: float = math.inf  # when to decide again if nothing changes

    @property
    def is_pausing(self) -> bool:
        return bool(self.superiors or self.equals)

    @property
    def end(self) -> float:
        """When the pause ends if none of its causes renew their records."""
        return max((peer.deadline for peer in (*self.superiors, *self.equals)), default=-math.inf)


def decide(peers: Peers, rank: Rank, *, now: float) -> Decision:
    """Decide which operators make this one pause, and which are dead."""
    others = [peer for peer in peers.values() if peer.is_present and peer.identity != rank.identity]
    alive = [peer for peer in others if peer.deadline > now]
    return Decision(
        superiors=[peer for peer in alive if peer.record.priority > rank.priority],
        equals=[
            peer
            for peer in alive
            if peer.record.priority == rank.priority
            and not rank.is_sharded
            and not rank.is_ally(peer.identity)
        ],
        dead=[peer for peer in others if peer.deadline <= now],
        deadline=min((peer.deadline for peer in alive), default=math.inf),
    )


def choose_interval(lifetime: float, chance: float) -> float:
    """
    Choose the seconds until the next record of ours; ``chance`` is a random number from 0 to 1.
    """
    margin = LATEST_MARGIN + (EARLIEST_MARGIN - LATEST_MARGIN) * chance
    return max(SHORTEST_INTERVAL, lifetime - margin)


def is_recorded(records: Mapping[Identity, Record], identity: Identity, record: Record) -> bool:
    """Return whether our record is up to date, regardless of its age."""
    seen = records.get(identity)
    return seen is not None and (seen.priority, seen.lifetime) == (record.priority, record.lifetime)


def build_patch(own: Identity, record: Record | None, dead: Iterable[Peer] = ()) -> dict[str, Any]:
    """
    Build the patch of a peering object, with or without our record, that removes the dead peers.
    """
    removed: dict[str, Any] = {peer.identity: None for peer in dead}
    return {'status': {**removed, own: None if record is None else record.as_raw()}}


def select_resource(
    resources: Iterable[references.Resource], *, clusterwide: bool
) -> references.Resource | None:
    """Select the served resource of peering objects of this scope, if any."""
    plural = CLUSTER_PLURAL if clusterwide else NAMESPACED_PLURAL
    candidates = {
        resource.group: resource
        for resource in resources
        if resource.plural == plural and resource.namespaced != clusterwide
    }
    return next((candidates[group] for group in GROUPS if group in candidates), None)


def join_names(group: Collection[Peer]) -> str:
    """List the peers by name; only some of them if there are many."""
    names = sorted(map(str, group))
    rest = len(names) - SHOWN_PEERS
    return ', '.join(names[:SHOWN_PEERS]) + (f', and {rest} more' if rest > 0 else '')


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_TEXT else f'{text[:SHOWN_TEXT]}…'


def _is_later(after: datetime.datetime | None, before: datetime.datetime | None) -> bool:
    return after is not None and before is not None and after > before


def _parse_integer(value: Any, default: int) -> int:
    try:
        return default if isinstance(value, bool) else int(value)
    except (TypeError, ValueError, OverflowError):
        return default
