"""
Peers: who else serves the same objects, and who of them is to give way.

Decisions only: nothing is requested here. The records of operators come from their peering object, and can be anything.
Deadlines are by the clock of the event loop: clocks of different machines differ, so the time of day is believed only
when a record is seen for the first time; afterwards, it is alive for as long as it is being renewed.
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
"""Where peering objects can be defined; the first one that is there is used. Only the first one is not outdated."""

VERSION = 'v1'
CLUSTER_PLURAL, NAMESPACED_PLURAL = 'clusterkopfpeerings', 'kopfpeerings'

DEFAULT_LIFETIME = 60
LONGEST_LIFETIME = 600
"""Seconds for which an operator is believed to be alive at most, whatever its record says: it can be renewed sooner."""

HIGHEST_PRIORITY = 2**53
"""The number up to which JSON is exact; priorities beyond it, or below its negative, count as it."""

SHOWN_PEERS, SHOWN_TEXT = 5, 100
"""How many operators are named in one line, and how many characters of their identities and messages are there."""

SHORTEST_INTERVAL = 1.0
"""Seconds between the records of one operator in one peering object, at least."""

EARLIEST_MARGIN, LATEST_MARGIN = 10.0, 5.0
"""Seconds before the end of a record, between which it is renewed, at random."""

REMEMBERING = 3600.0
"""Seconds for which a vanished operator is remembered, so that it is believed more if it comes back."""

Identity = NewType('Identity', str)


def detect_identity(*, environ: Mapping[str, str], now: datetime.datetime, tail: str) -> Identity:
    """Tell how this operator is known to others: by its pod or, if it is unknown, by who, where and when started it."""
    pod = environ.get('POD_ID')
    return Identity(pod or f'{detect_user()}/{now:%Y%m%d%H%M%S}/{tail}')


def detect_user() -> Identity:
    """Tell how a person is known to operators."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # there are containers with nameless users
        user = str(os.getuid()) if hasattr(os, 'getuid') else 'unknown'
    return Identity(f'{user}@{socket.gethostname()}')


@dataclasses.dataclass(frozen=True)
class Record:
    """What an operator tells of itself."""

    priority: int = 0
    lifetime: int = DEFAULT_LIFETIME  # seconds
    lastseen: datetime.datetime | None = None  # by its own clock; None if it does not tell
    message: str = ''

    def as_raw(self) -> dict[str, Any]:
        raw: dict[str, Any] = {'priority': self.priority, 'lifetime': self.lifetime}
        if self.lastseen is not None:
            raw['lastseen'] = self.lastseen.isoformat()
        return raw | ({'message': self.message} if self.message else {})


def parse_records(body: Mapping[str, Any] | None) -> dict[Identity, Record]:
    """Find the records in a peering object; skip what cannot be one."""
    status = (body or {}).get('status')
    raws = status if isinstance(status, Mapping) else {}
    return {
        Identity(identity): parse_record(raw)
        for identity, raw in raws.items()
        if isinstance(raw, Mapping)
    }


def parse_record(raw: Mapping[str, Any]) -> Record:
    """Understand what can be understood; all else is as if it is absent."""
    message = raw.get('message')
    return Record(
        priority=limit_priority(_parse_integer(raw.get('priority'), 0)),
        lifetime=limit_lifetime(_parse_integer(raw.get('lifetime'), DEFAULT_LIFETIME)),
        lastseen=times.parse_moment(raw.get('lastseen')),
        message=message if isinstance(message, str) else '',
    )


def limit_priority(priority: int) -> int:
    """Return the priority as all operators understand it."""
    return max(-HIGHEST_PRIORITY, min(HIGHEST_PRIORITY, priority))


def limit_lifetime(lifetime: int) -> int:
    """Return the lifetime, in seconds, as all operators understand it."""
    return max(0, min(LONGEST_LIFETIME, lifetime))


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another operator, as it is known by now."""

    identity: Identity
    record: Record
    deadline: float  # after which it is dead if nothing comes from it
    is_present: bool = True  # is the record still there?

    def __str__(self) -> str:
        message = f', {_shorten(self.record.message)!r}' if self.record.message else ''
        identity = self.identity if self.identity.isprintable() else repr(self.identity)
        return f'{_shorten(identity)} (priority {self.record.priority}{message})'


Peers = Mapping[Identity, Peer]


def update_peers(
    peers: Peers, records: Mapping[Identity, Record], *, now: float, today: datetime.datetime
) -> Peers:
    """Take notice of the records as they are now; ``now`` and ``today`` are the same moment by two clocks."""
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
    """Take notice of one record: of the first one of the operator, or of its renewal, or of no change at all."""
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
    """What matters of this operator for the decision."""

    identity: Identity
    priority: int
    is_sharded: bool = False  # are there others that serve other objects with the same priority?


@dataclasses.dataclass(frozen=True)
class Decision:
    """What follows from the presence of others."""

    superiors: Collection[Peer] = ()
    equals: Collection[Peer] = ()  # only those that are in the way
    dead: Collection[Peer] = ()
    deadline: float = math.inf  # when to decide anew if nothing changes

    @property
    def is_pausing(self) -> bool:
        return bool(self.superiors or self.equals)

    @property
    def end(self) -> float:
        """When the pause ends if no one of those in the way renews its record."""
        return max((peer.deadline for peer in (*self.superiors, *self.equals)), default=-math.inf)


def decide(peers: Peers, rank: Rank, *, now: float) -> Decision:
    """Decide who gives way to whom."""
    others = [peer for peer in peers.values() if peer.is_present and peer.identity != rank.identity]
    alive = [peer for peer in others if peer.deadline > now]
    return Decision(
        superiors=[peer for peer in alive if peer.record.priority > rank.priority],
        equals=[
            peer for peer in alive if peer.record.priority == rank.priority and not rank.is_sharded
        ],
        dead=[peer for peer in others if peer.deadline <= now],
        deadline=min((peer.deadline for peer in alive), default=math.inf),
    )


def choose_interval(lifetime: float, chance: float) -> float:
    """Choose the seconds from one record of ours to the next one; ``chance`` is a random number from 0 to 1."""
    margin = LATEST_MARGIN + (EARLIEST_MARGIN - LATEST_MARGIN) * chance
    return max(SHORTEST_INTERVAL, lifetime - margin)


def is_recorded(records: Mapping[Identity, Record], identity: Identity, record: Record) -> bool:
    """Tell if others see us as we are, however long ago."""
    seen = records.get(identity)
    return seen is not None and (seen.priority, seen.lifetime) == (record.priority, record.lifetime)


def build_patch(own: Identity, record: Record | None, dead: Iterable[Peer] = ()) -> dict[str, Any]:
    """Build the patch of a peering object: with our record, or without it, and surely without those of the dead."""
    removed: dict[str, Any] = {peer.identity: None for peer in dead}
    return {'status': {**removed, own: None if record is None else record.as_raw()}}


def select_resource(
    resources: Iterable[references.Resource], *, clusterwide: bool
) -> references.Resource | None:
    """Choose the resource of peering objects of this scope among those served, if there is any."""
    plural = CLUSTER_PLURAL if clusterwide else NAMESPACED_PLURAL
    candidates = {
        resource.group: resource
        for resource in resources
        if resource.plural == plural and resource.namespaced != clusterwide
    }
    return next((candidates[group] for group in GROUPS if group in candidates), None)


def join_names(group: Collection[Peer]) -> str:
    """List those who are there: all of them if they are few."""
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
