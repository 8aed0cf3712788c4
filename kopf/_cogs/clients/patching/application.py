"""
Application: the operator's changes of an object, and what has become of them.

There are three kinds of changes: the users' patch, our own records, and our finalizer.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kopf._cogs.structs import bodies, finalizers, patches


class Holding(enum.Enum):
    """The action on our finalizer."""

    KEEP = enum.auto()  # leave it as is
    BLOCK = enum.auto()  # add it to the object
    ALLOW = enum.auto()  # remove it from the object


class Drift(NamedTuple):
    """Two consecutive states of an object between which other writers may have changed it."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    is_foreign: bool = False  # whether only other writers have changed it


Revise = Callable[[Mapping[str, Any], Sequence[Drift]], Mapping[str, Any]]
"""
Makes our part of the changes from the object after the users' part, with all drifts until then.
"""


@dataclasses.dataclass(frozen=True)
class Changes:
    """All changes of an object to send together."""

    patch: patches.Patch  # by the users' functions
    own: patches.Patch  # our records, with no functions
    holding: Holding = Holding.KEEP
    is_spared: bool = True  # whether the users' values that the object already has may be omitted
    is_guarded: bool = False  # whether the users' values are merged only into the known version
    # Whether the functions are immediately applied to newer versions of the object.
    is_persistent: bool = False
    # Rebuilds our part after the users' part is accepted, if they are sent separately.
    revise: Revise | None = None


NO_CHANGES = Changes(patches.Patch(), patches.Patch())


@dataclasses.dataclass(frozen=True)
class Applied:
    """The result of the changes."""

    # The version of the object after the last accepted request; None if there was none.
    version: str | None = None
    # The users' functions not accepted for the version of the object.
    fns: tuple[patches.AnyPatchFn, ...] = ()
    is_gone: bool = False  # the object no longer exists
    # Whether our finalizer could not be changed because the object is newer than we know.
    is_held: bool = False
    # Whether the functions or our own part are presumably wrong for any version.
    is_refused: bool = False
    # The users' values to be sent with the functions.
    unsent: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Our records to be sent with the functions.
    own: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The object of that version.
    body: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False, repr=False)
    drifts: tuple[Drift, ...] = dataclasses.field(default=(), compare=False, repr=False)


def hold(body: Mapping[str, Any], holding: Holding, finalizer: str) -> Mapping[str, Any]:
    """Return the object with or without the finalizer; the rest of it is shared, not copied."""
    if holding is Holding.KEEP:
        return body
    held = cast(bodies.RawBody, {**body, 'metadata': dict(body['metadata'])})
    if holding is Holding.BLOCK:
        finalizers.block_deletion(held, finalizer=finalizer)
    else:
        finalizers.allow_deletion(held, finalizer=finalizer)

    return held


def subtract(patch: patches.Patch, sent: Mapping[str, Any]) -> patches.Patch:
    """Keep only the unsent top-level fields: they are sent as a whole."""
    if not sent:
        return patch
    return patches.Patch(
        {key: value for key, value in patch.items() if key not in sent}, fns=patch.fns
    )
