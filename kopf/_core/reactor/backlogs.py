"""
Backlogs: the events of one object that are not handled yet, and which of them must be kept.
"""

from collections.abc import Sequence

from kopf._cogs.structs import bodies


def fold(backlog: Sequence[bodies.RawEvent], event: bodies.RawEvent) -> list[bodies.RawEvent]:
    """
    Add an event to a backlog where not all events matter; return the new backlog, 3 events at most.

    The latest event contains the current state of the object. The latest deletion before it means
    that the object was gone in between: e.g. it did not match the selectors of the stream, or was
    deleted in a gap and restored from a backup. The first event shows whether the object existed
    before the stream, and is kept if the other events would imply otherwise.
    """
    deletions = [earlier for earlier in backlog if earlier['type'] == 'DELETED']
    kept = [*deletions[-1:], event]
    is_first_needed = bool(backlog) and (backlog[0]['type'] is None) != (kept[0]['type'] is None)

    return [backlog[0], *kept] if is_first_needed else kept


def as_found(event: bodies.RawEvent) -> bodies.RawEvent:
    """Return the event as if the object were found existing; it is, if the replica is promoted."""
    return event if event['type'] == 'DELETED' else {**event, 'type': None}
