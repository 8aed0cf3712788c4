"""
Losses: what to leave out of the changes that the cluster refuses.
"""

import dataclasses

from kopf._cogs.clients.patching import application, refusals
from kopf._cogs.structs import patches


@dataclasses.dataclass(frozen=True)
class Loss:
    """The changes left out because the cluster refuses them."""

    fns: tuple[patches.AnyPatchFn, ...] = ()  # can be accepted for another version of the object
    is_refused: bool = False  # whether the functions or our own part are refused

    def extend(
        self,
        refusal: refusals.Refusal,
        changes: application.Changes,
        lesser: application.Changes,
        *,
        is_deleted: bool,
    ) -> 'Loss':
        """Add the part left out because of another refusal."""
        if not refusal.kind.is_amending:
            return Loss(self.fns, self.is_refused or lesser.own != changes.own)
        if is_deleted:
            return self
        return Loss(tuple(changes.patch.fns), is_refused=True)


def lessen(
    changes: application.Changes, *, is_amended: bool, is_status: bool = False
) -> application.Changes | None:
    """
    Leave out the probably refused part; ``None`` if nothing but the finalizer is left.

    If a separately sent status is refused, the rest of the changes is kept.
    """
    if is_status and 'status' in changes.patch:
        return dataclasses.replace(changes, patch=_without_status(changes.patch))
    if is_status and 'status' in changes.own:
        return dataclasses.replace(changes, own=_without_status(changes.own))
    if is_amended:
        return (
            dataclasses.replace(changes, patch=patches.Patch(dict(changes.patch)))
            if changes.patch.fns
            else None
        )
    if len(changes.patch):
        return dataclasses.replace(changes, patch=patches.Patch(fns=changes.patch.fns))
    if changes.own:
        return dataclasses.replace(changes, own=patches.Patch())
    return None


def _without_status(patch: patches.Patch) -> patches.Patch:
    return patches.Patch(
        {key: value for key, value in patch.items() if key != 'status'}, fns=patch.fns
    )


def describe_loss(changes: application.Changes, lesser: application.Changes) -> str:
    """Describe what is left out, for the log."""
    if len(changes.patch.fns) > len(lesser.patch.fns):
        return 'what the patch functions have made'
    if len(lesser.patch):
        return 'the changes of the status, and they are dropped'
    return 'the changes, and they are dropped' if len(changes.patch) else 'our own records'
