"""
Reasons: the kinds of changes of objects, and which one an object has.
"""

import enum
from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import finalizers


class Reason(enum.StrEnum):
    """The kind of a change of an object."""

    CREATE = 'create'
    UPDATE = 'update'
    DELETE = 'delete'
    RESUME = 'resume'
    NOOP = 'noop'  # nothing essential
    FREE = 'free'  # it is being deleted, but does not wait for us
    GONE = 'gone'  # it no longer exists


def detect_reason(
    body: Mapping[str, Any], *, finalizer: str, is_new: bool, is_changed: bool, is_initial: bool
) -> Reason:
    """Detect why an existing object should be handled, if at all."""
    if finalizers.is_deletion_ongoing(body):
        return Reason.DELETE if finalizers.is_blocked(body, finalizer) else Reason.FREE
    if is_new:
        return Reason.CREATE
    if is_changed:
        return Reason.UPDATE
    return Reason.RESUME if is_initial else Reason.NOOP
