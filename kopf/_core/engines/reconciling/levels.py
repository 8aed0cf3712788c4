"""
Levels: when a level-triggered function is due for one object.

Pure transitions of a frozen value, which is kept in memory only. Moments are those of the event
loop, in seconds. A function is due for two reasons: something has happened, which is a trigger, or
a time has come. Any number of triggers make one call; triggers during a call make one more.
"""

import dataclasses
import datetime
import enum
import hashlib
import math
from collections.abc import Collection, Mapping

from kopf._cogs.helpers import jsons
from kopf._cogs.structs import ids

TICK = 0.001
"""Seconds by which timers of event loops can be early."""

SETTLINGS = 10
"""How many times in a row new triggers postpone a call: constant changes must not prevent it."""


class Trigger(enum.StrEnum):
    """What a function is called for. It is for logs, not for decisions."""

    START = 'start'  # the object is met after the start or after a pause of the operator
    SELF = 'self'  # the object has changed
    OWNED = 'owned'  # a child of the object has changed
    WATCHED = 'watched'  # an object related to it has changed
    EXTERNAL = 'external'  # requested with `kopf.trigger`
    RESYNC = 'resync'
    REQUEUE = 'requeue'
    RETRY = 'retry'


Triggers = frozenset[Trigger]

NONE: Triggers = frozenset()

TIMED = frozenset({Trigger.RESYNC, Trigger.RETRY})
"""The triggers with no news: they do not repeat a call that has failed for good."""


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """The state of one function for one object between the calls."""

    pending: Triggers = NONE  # what has happened since the last call began
    settled: float = -math.inf  # when the pending triggers are due
    postponed: int = 0  # how many times in a row they were postponed
    again: float = math.inf  # when to call the function again even if nothing happens
    purpose: Trigger = Trigger.REQUEUE  # of that call: either a requeue or a retry
    resync: float = math.inf  # when to call it anyway
    failures: int = 0  # how many attempts have failed in a row
    started: datetime.datetime | None = None  # when the first of them began
    is_stuck: bool = False  # whether it has failed for good, so that only news matter
    is_held: bool = False  # whether it is due, but cannot be called until it is released
    is_finished: bool = False  # whether it has nothing to do before the deletion of the object
    seen: str | None = None  # the newest version of the object that was noticed
    digest: str | None = None  # of the field as in the last call, if the function is about a field


NEW = Level()
"""The state for an object that was never met, or that the function is not for."""

Levels = Mapping[ids.HandlerId, Level]
"""The states by the ids of the functions."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """The options of a function that affect when it is called."""

    settle: float | None = None  # seconds of silence to wait for
    resync: float | None = None  # the maximum seconds between calls


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """The end of a call; with none of the fields, it has succeeded."""

    requeue: float | None = None  # seconds until the next call, as requested
    retry: float | None = None  # seconds until the next attempt after a failure
    is_final: bool = False  # whether the failure must not be retried
    is_last: bool = False  # whether nothing remains to be done before the deletion
    started: datetime.datetime | None = None  # when the first attempt began


def poke(level: Level, triggers: Collection[Trigger], pace: Pace, now: float) -> Level:
    """Add triggers; wait until they settle if configured so."""
    if level.is_stuck and TIMED.issuperset(triggers):
        return level

    if level.is_stuck:
        level = dataclasses.replace(level, is_stuck=False, failures=0, started=None)
    pending = level.pending.union(triggers)
    if not pace.settle or Trigger.START in triggers:
        return dataclasses.replace(level, pending=pending)
    if not level.pending:
        return dataclasses.replace(level, pending=pending, settled=now + pace.settle, postponed=0)
    if level.postponed >= SETTLINGS or level.settled == -math.inf:
        return dataclasses.replace(level, pending=pending)
    return dataclasses.replace(
        level, pending=pending, settled=now + pace.settle, postponed=level.postponed + 1
    )


def notice(
    level: Level,
    version: str | None,
    pace: Pace,
    now: float,
    *,
    is_met: bool,
    digest: str | None = None,
) -> Level:
    """
    Notice the object in this version: poke the level if it has changed or is just met.

    ``digest`` is that of the field, if the function is only about a field of the object.
    """
    if level.seen == version and not is_met:
        return level

    is_changed = level.seen is None or digest is None or digest != level.digest
    noticed = dataclasses.replace(level, seen=version, is_held=False)
    if is_met:
        return poke(noticed, {Trigger.START}, pace, now)
    return poke(noticed, {Trigger.SELF}, pace, now) if is_changed else noticed


def follow(level: Level, before: str | None, after: str | None) -> Level:
    """Skip from one version to the next one, if the function knows all changes between them."""
    if level.seen != before:
        return level
    return dataclasses.replace(level, seen=after, is_held=False)


def skip(level: Level) -> Level:
    """Drop everything: the function is not for this object now."""
    return dataclasses.replace(NEW, is_finished=level.is_finished)


def hold(level: Level, *, is_held: bool = True) -> Level:
    """Hold the calls, or let them go."""
    return dataclasses.replace(level, is_held=is_held)


def list_due(level: Level, now: float) -> Triggers:
    """List what the function is due for; it is not due if there is nothing."""
    if level.is_held:
        return NONE

    now += TICK
    due = set(level.pending) if level.settled <= now else set()
    if level.again <= now:
        due.add(level.purpose)
    if level.resync <= now:
        due.add(Trigger.RESYNC)
    return frozenset(due)


def measure_delay(level: Level, now: float) -> float | None:
    """Return the seconds until the function is due; ``None`` if it is not until a trigger."""
    if level.is_held:
        return None
    due = min(level.settled if level.pending else math.inf, level.again, level.resync)
    if due == math.inf:
        return None
    return due - now if due > now + TICK else 0.0


def begin(level: Level) -> Level:
    """Begin a call: it covers all that is pending, and replaces the scheduled one."""
    return dataclasses.replace(
        level,
        pending=NONE,
        settled=-math.inf,
        postponed=0,
        again=math.inf,
        resync=math.inf,
        is_held=False,
    )


def end(
    level: Level,
    ended: Ended,
    pace: Pace,
    now: float,
    *,
    phase: float = 0.0,
    digest: str | None = None,
) -> Level:
    """
    End a call, and schedule the next one. ``phase`` is the share of the period of resyncs.
    """
    resync = math.inf
    if pace.resync is not None and not ended.is_final:
        resync = choose_resync(pace.resync, phase, now)
    level = dataclasses.replace(level, resync=resync, digest=digest)
    if ended.is_final:
        return dataclasses.replace(
            level, is_stuck=not level.pending.difference(TIMED), failures=0, started=None
        )
    if ended.retry is not None:
        return dataclasses.replace(
            level,
            again=now + ended.retry,
            purpose=Trigger.RETRY,
            failures=level.failures + 1,
            started=level.started or ended.started,
        )

    again = math.inf if ended.requeue is None else now + ended.requeue
    return dataclasses.replace(
        level,
        again=again,
        resync=math.inf if ended.is_last else resync,
        purpose=Trigger.REQUEUE,
        failures=0,
        started=None,
        is_finished=ended.is_last,
    )


def choose_resync(period: float, phase: float, now: float) -> float:
    """Choose the next moment of a periodic call; not the one that the timers have just met."""
    remaining = period - (now - phase * period) % period
    return now + remaining + (period if remaining < 2 * TICK else 0)


def choose_phase(uid: str) -> float:
    """Choose the phase of resyncs, from 0 to 1, the same for every start of the operator."""
    return int.from_bytes(hashlib.blake2b(uid.encode(), digest_size=4).digest()) / 2**32


def digest(value: object) -> str:
    """Return the digest of the value of a field."""
    text = jsons.dumps(value, sort_keys=True)
    return hashlib.blake2b(text, digest_size=8).hexdigest()
