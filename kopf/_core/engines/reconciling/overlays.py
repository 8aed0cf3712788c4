"""
Overlays: our own writes that the watch-stream has not confirmed yet.

Pure decisions. The answer to a write is newer than what the stream has delivered. It is kept as the
state of the object until the stream reaches its version: older events are set aside, the event of
the same version is the echo of the write, a newer one replaces it. Versions are compared as
integers. If they are not integers, the overlay lasts for a limited time.
"""

import dataclasses
import enum
from typing import Generic, TypeVar

from kopf._cogs.structs import bodies

E = TypeVar('E')


@dataclasses.dataclass(frozen=True, slots=True)
class Overlay(Generic[E]):
    """Our last write of one object."""

    uid: str
    version: str | None  # for a deletion, the last version before it
    patience: float  # before it, the stream can be in disorder, as in the middle of a list
    deadline: float  # after it, the stream is right, whatever the versions are
    own: frozenset[str]  # the versions of all our writes that the stream has not delivered
    is_deletion: bool = False
    base: E | None = None  # the state of the object by the stream
    is_heard: bool = False  # whether the stream has told anything about the object since


@dataclasses.dataclass(frozen=True, slots=True)
class Sighting:
    """What the stream tells of the object."""

    uid: str
    version: str | None
    is_deleted: bool
    is_listed: bool = False  # other changes before it could be missed


class Verdict(enum.Enum):
    """What is done with an event of an object that has an overlay."""

    REPLACE = enum.auto()  # the stream is newer: the overlay is over
    CONFIRM = enum.auto()  # it is the echo of the write: the overlay is over
    SET_ASIDE = enum.auto()  # it is older: the overlay remains


def judge(overlay: Overlay[E], seen: Sighting, now: float) -> Verdict:
    """Decide whether the event or the overlay is newer."""
    if overlay.is_deletion:
        return _judge_by_deletion(overlay, seen, now)
    if seen.is_deleted:
        return _judge_deletion(overlay, seen, now)
    if seen.version is not None and seen.version == overlay.version:
        return Verdict.CONFIRM
    is_newer = bodies.is_older(overlay.version, seen.version)
    return Verdict.REPLACE if is_newer or now >= overlay.deadline else Verdict.SET_ASIDE


def _judge_by_deletion(overlay: Overlay[E], seen: Sighting, now: float) -> Verdict:
    """After our deletion, only its event and other objects of the same name are accepted."""
    if seen.uid == overlay.uid:
        if seen.is_deleted:
            return Verdict.CONFIRM
    elif not seen.is_deleted and not bodies.is_older(seen.version, overlay.version):
        return Verdict.REPLACE
    return Verdict.REPLACE if now >= overlay.deadline else Verdict.SET_ASIDE


def _judge_deletion(overlay: Overlay[E], seen: Sighting, now: float) -> Verdict:
    """
    An event of deletion without a version is deduced from a list, which can be old.

    A deletion of another uid is of a former object of this name, unless its version is newer.
    """
    if seen.version is None:
        return Verdict.REPLACE if now >= overlay.deadline else Verdict.SET_ASIDE
    if seen.version == overlay.version or bodies.is_older(overlay.version, seen.version):
        return Verdict.REPLACE

    is_older = bodies.is_older(seen.version, overlay.version)
    is_final = seen.uid == overlay.uid and not is_older
    return Verdict.REPLACE if is_final or now >= overlay.deadline else Verdict.SET_ASIDE


def is_echo(overlay: Overlay[E], seen: Sighting) -> bool:
    """
    Return whether there were no changes by others before the confirmation of our write.

    A list has the last changes only: those by others can be missed before ours.
    """
    return seen.is_deleted or (seen.version in overlay.own and not seen.is_listed)


def is_foreign(overlay: Overlay[E], seen: Sighting) -> bool:
    """Return whether the event is of a change by others, even if the overlay includes it."""
    return not seen.is_deleted and seen.version not in overlay.own


def is_void(overlay: Overlay[E], listed: str | None, now: float) -> bool:
    """Return whether a list of this version disproves the overlay, which it has not confirmed."""
    is_certain = not overlay.is_deletion and (
        listed == overlay.version or bodies.is_older(overlay.version, listed)
    )
    return is_certain or now >= overlay.deadline


def is_contradicted(overlay: Overlay[E], reached: str | None, now: float) -> bool:
    """
    Return whether the stream disproves the overlay: it has reached a newer version of the resource,
    or it has told something else of the object, and a mere delay would not be that long.

    If the versions can be compared, there is no limit of the delay.
    """
    is_passed = not overlay.is_deletion and bodies.is_older(overlay.version, reached)
    if is_passed and now >= overlay.patience:
        return True

    is_limited = overlay.is_deletion or not str(overlay.version).isdecimal()
    return is_limited and overlay.is_heard and now >= overlay.deadline
