"""
Finalizers: the marks that keep objects from deletion until all who put them have removed them.

Only our own finalizer is ever added or removed; those of others keep their presence, count and order.
"""

from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import bodies, dicts


def is_deletion_ongoing(body: Mapping[str, Any]) -> bool:
    """Tell if the object is marked for deletion, and only its finalizers hold it."""
    return dicts.has(body, ('metadata', 'deletionTimestamp'))


def is_blocked(body: Mapping[str, Any], finalizer: str) -> bool:
    """Tell if this finalizer is among those that hold the object."""
    return finalizer in dicts.resolve(body, ('metadata', 'finalizers'), ())


def block_deletion(body: bodies.RawBody, *, finalizer: str) -> None:
    """Put the finalizer on the object, in place, after those of others; to be used in patches as a function."""
    if not is_blocked(body, finalizer):
        metadata = body.setdefault('metadata', {})
        metadata['finalizers'] = [*(metadata.get('finalizers') or ()), finalizer]


def allow_deletion(body: bodies.RawBody, *, finalizer: str) -> None:
    """Remove the finalizer from the object, in place, all occurrences of it, and the list if it is empty then."""
    if not is_blocked(body, finalizer):
        return
    metadata = body['metadata']
    left = [name for name in metadata['finalizers'] if name != finalizer]
    if left:
        metadata['finalizers'] = left
    else:
        del metadata['finalizers']
