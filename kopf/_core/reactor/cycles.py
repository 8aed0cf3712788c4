"""
Cycles: what has happened to an object, and when all of it is handled.

Pure decisions. A cycle begins when the essence of an object differs from the last handled one, and ends when all
handlers due to that are finished. The essence can move on in between. Then some handlers have finished with an older
essence than others. The cycle ends as if it were about that older essence, and the rest of the change makes the next
cycle: nothing is lost, and the handlers that know the newest essence are not called again.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from kopf._cogs.helpers import documents, jsons
from kopf._cogs.structs import bodies, finalizers, ids
from kopf._core.actions import progression
from kopf._core.intents import reasons

BASE_ID = ids.HandlerId('kopf.cycle')
"""Under which name the essence of the first finished handlers is stored until the end of their cycle."""

BASE_LIMIT = 65536
"""
How many characters of it are stored at most: annotations are limited. Beyond that, changes in mid-cycle begin the cycle
anew: for those who have finished it too.
"""


@dataclasses.dataclass(frozen=True)
class Essence:
    """The part of an object whose changes matter, as it was at a moment; it does not change with the object."""

    text: str
    digest: str

    @property
    def is_plain(self) -> bool:
        """Whether no characters are escaped by their codes: the text is the same as in the storages then."""
        return '\\u' not in self.text

    @property
    def value(self) -> bodies.BodyEssence:
        essence: bodies.BodyEssence = jsons.loads(self.text)
        return essence


NEVER_HANDLED = Essence('null', '')
"""The last handled state of objects that have none."""


def seal(essence: Mapping[str, Any]) -> Essence:
    """Take a snapshot of an essence; equal ones are equal, whatever the order of their keys."""
    raw = jsons.dumps(essence, sort_keys=True)
    if (
        not raw.isascii()
    ):  # as it is put into a text of limited size; it takes longer, so it is not for all
        raw = json.dumps(essence, sort_keys=True, separators=(',', ':')).encode('ascii')
    return Essence(raw.decode('ascii'), hashlib.blake2b(raw, digest_size=6).hexdigest())


def unseal(text: object) -> Essence | None:
    """Read a stored snapshot; ``None`` for anything else."""
    try:
        essence = documents.read_shallow(text if isinstance(text, str) else '')
    except ValueError:
        return None
    return seal(essence) if isinstance(essence, dict) else None


_UNTOLD = ('managedFields', 'resourceVersion')


def is_only_annotated(
    before: Mapping[str, Any], after: Mapping[str, Any], names: Collection[str]
) -> bool:
    """Return whether two versions of an object surely differ in nothing but these annotations."""

    def strip(body: Mapping[str, Any]) -> bytes:
        rest = dict(body)
        metadata = dict(rest.pop('metadata'))
        annotations = dict(metadata.pop('annotations', None) or {})
        for key in _UNTOLD:
            metadata.pop(key, None)
        for name in names:
            annotations.pop(name, None)
        return jsons.dumps([rest, metadata, annotations])

    return strip(before) == strip(after)


def detect_reason(
    body: Mapping[str, Any], *, finalizer: str, is_new: bool, is_changed: bool, is_initial: bool
) -> reasons.Reason:
    """Tell why an existing object is to be handled, if at all."""
    if finalizers.is_deletion_ongoing(body):
        return (
            reasons.Reason.DELETE if finalizers.is_blocked(body, finalizer) else reasons.Reason.FREE
        )
    if is_new:
        return reasons.Reason.CREATE
    if is_changed:
        return reasons.Reason.UPDATE
    return reasons.Reason.RESUME if is_initial else reasons.Reason.NOOP


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """How far a cycle has come."""

    handled: Essence | None = (
        None  # to be stored as the last handled one; None if the cycle goes on
    )
    base: Essence | None = (
        None  # what the finished or kept ones know; to be stored until the end of their cycle
    )
    kept: frozenset[ids.HandlerId] = (
        frozenset()
    )  # handlers that need no call in the next cycle: they know it all


def is_taken_back(reason: reasons.Reason, seen: Essence, base: Essence | None) -> bool:
    """
    Return whether some handlers were called for a change that is not there any more, and that was not handled.

    These handlers must know: the change is recorded as handled, and to have it back is the next change.
    """
    return (
        reason in (reasons.Reason.NOOP, reasons.Reason.RESUME) and base is not None and base != seen
    )


def conclude(
    states: Mapping[ids.HandlerId, progression.HandlerState],
    selected: Collection[ids.HandlerId],
    seen: Essence,
    base: Essence | None = None,
    *,
    reason: reasons.Reason = reasons.Reason.UPDATE,
) -> Conclusion:
    """
    Decide if a cycle is over for the selected handlers, and what is handled by it then.

    ``seen`` is what the latest handlers were called with; ``base``, what the first ones were.
    """
    finished = {id for id, state in states.items() if state.finished}
    outdated = find_outdated(states, seen)
    if not finished.issuperset(selected):
        # An update that is not handled by anybody yet can be taken back, if somebody has tried.
        is_tried = reason is reasons.Reason.UPDATE and any(
            state.retries for state in states.values()
        )
        if outdated:
            return Conclusion(base=base or seen)
        return Conclusion(base=seen if finished or is_tried else None)
    if not outdated or base is None:
        return Conclusion(handled=seen)
    kept = frozenset(id for id in finished - outdated if states[id].essence is not None)
    return Conclusion(handled=base, base=seen if kept else None, kept=kept)


def find_outdated(
    states: Mapping[ids.HandlerId, progression.HandlerState], seen: Essence
) -> set[ids.HandlerId]:
    """
    Find the handlers that have finished with another essence, or whose sub-handlers have.

    Where it is not known which essence it was, it is believed to be the newest one.
    """
    outdated = {
        id
        for id, state in states.items()
        if state.finished and state.essence not in (None, seen.digest)
    }
    while outdated:
        parents = {
            id for id, state in states.items() if state.finished and state.subrefs & outdated
        } - outdated
        if not parents:
            return outdated
        outdated |= parents
    return outdated


def is_echo(version: str | None, awaited: str) -> bool:
    """Tell if an object of this version includes the awaited change. Versions grow, if they are numbers."""
    if version == awaited:
        return True
    return is_older(awaited, version)


def is_older(version: str | None, other: str | None) -> bool:
    """Tell if one version is surely older than another: if they are not numbers, nobody knows."""
    one, two = str(version), str(other)
    return one.isdecimal() and two.isdecimal() and int(one) < int(two)
