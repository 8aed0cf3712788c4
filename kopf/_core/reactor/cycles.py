"""
Cycles: what has happened to an object, and when all of it is handled.

Pure decisions. A cycle begins when the essence of an object differs from the last handled one, and
ends when all handlers of that change are finished. The essence can change during the cycle, so that
some handlers finish with an older essence than others. The cycle then ends as if it were about the
older essence, and the rest of the change makes the next cycle: no change is lost, and the handlers
that know the newest essence are not called again.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from kopf._cogs.helpers import documents, jsons
from kopf._cogs.structs import bodies, ids
from kopf._core.actions import progression
from kopf._core.intents import reasons

BASE_ID = ids.HandlerId('kopf.cycle')
"""
The name under which the essence of the first finished handlers is stored until their cycle ends.
"""

BASE_LIMIT = 65536
"""
The maximum number of characters of the stored essence, since annotations are limited in size. If
the essence is longer, a change in the middle of a cycle restarts the cycle for all handlers,
including the finished ones.
"""


@dataclasses.dataclass(frozen=True)
class Essence:
    """An immutable snapshot of the part of an object whose changes matter."""

    text: str
    digest: str

    @property
    def is_plain(self) -> bool:
        """Whether no characters are escaped: then the text is the same as in the storages."""
        return '\\u' not in self.text

    @property
    def value(self) -> bodies.BodyEssence:
        essence: bodies.BodyEssence = jsons.loads(self.text)
        return essence


NEVER_HANDLED = Essence('null', '')
"""The last handled state of objects that were never handled."""


def seal(essence: Mapping[str, Any]) -> Essence:
    """
    Take a snapshot of an essence; equal essences make equal snapshots in any order of their keys.
    """
    raw = jsons.dumps(essence, sort_keys=True)
    # Escape other characters as the storages do. It is slower, so not for every essence.
    if not raw.isascii():
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
    """Return whether two versions of an object certainly differ only in these annotations."""

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


@dataclasses.dataclass(frozen=True)
class Conclusion:
    """The state of a cycle after a run of handlers."""

    # The essence to store as the last handled one; None if the cycle continues.
    handled: Essence | None = None
    # The essence known to the finished or kept handlers; stored until the end of their cycle.
    base: Essence | None = None
    # The handlers that know the newest essence and need no call in the next cycle.
    kept: frozenset[ids.HandlerId] = frozenset()


def is_taken_back(reason: reasons.Reason, seen: Essence, base: Essence | None) -> bool:
    """
    Return whether some handlers were called for a change that was reverted before it was handled.

    These handlers must be informed: the change is recorded as handled, so that the reversal becomes
    the next change.
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
    Decide whether a cycle is over for the selected handlers, and which essence it has handled.

    ``seen`` is the essence passed to the latest handlers; ``base``, the one passed to the first
    handlers.
    """
    finished = {id for id, state in states.items() if state.finished}
    outdated = find_outdated(states, seen)
    if not finished.issuperset(selected):
        # An update that no handler has finished can be reverted after some handlers have tried it.
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
    Find the handlers that finished with another essence, or whose sub-handlers did.

    An unknown essence is assumed to be the newest one.
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
    """Return whether this version includes the awaited change. Numeric versions only grow."""
    if version == awaited:
        return True
    return bodies.is_older(awaited, version)
