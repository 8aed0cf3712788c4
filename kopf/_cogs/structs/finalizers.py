"""
Finalizers: marks that block the deletion of an object until their owners have removed them.

Only our own finalizer is ever added or removed; finalizers of other owners keep their presence,
count and order.
"""

from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import bodies, dicts


def is_deletion_ongoing(body: Mapping[str, Any]) -> bool:
    """Return whether the object is marked for deletion, and only finalizers hold it."""
    return dicts.has(body, ('metadata', 'deletionTimestamp'))


def is_blocked(body: Mapping[str, Any], finalizer: str) -> bool:
    """Return whether this finalizer is among those of the object."""
    return finalizer in dicts.resolve(body, ('metadata', 'finalizers'), ())


def block_deletion(body: bodies.RawBody, *, finalizer: str) -> None:
    """Add the finalizer to the object, in place, after the existing ones; used in patches."""
    if not is_blocked(body, finalizer):
        metadata = body.setdefault('metadata', {})
        metadata['finalizers'] = [*(metadata.get('finalizers') or ()), finalizer]


def allow_deletion(body: bodies.RawBody, *, finalizer: str) -> None:
    """Remove all occurrences of the finalizer, in place, and the list if it becomes empty."""
    if not is_blocked(body, finalizer):
        return
    metadata = body['metadata']
    left = [name for name in metadata['finalizers'] if name != finalizer]
    if left:
        metadata['finalizers'] = left
    else:
        del metadata['finalizers']
