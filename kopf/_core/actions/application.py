"""
Application: the changes that the operator makes to an object, sent in as few requests as possible.

There are three kinds of them: what the users want, what we keep there for ourselves, and our finalizer. They go
together. If the cluster refuses the users' part, the other two go without it: what is done is done, and must not be
repeated for ever because of what cannot be stored. What differs in nothing from the object is not sent at all.
"""
import asyncio
import dataclasses
import enum
import functools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._cogs.clients import errors, patching, requests
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import dicts, finalizers, patches

Logger = logging.Logger | logging.LoggerAdapter[Any]

REFUSALS = (400, 403, 413)
"""The codes that mean the same as 409 and 422: wrong content, denied by a webhook or by rights, too large."""

CONFLICTS = 3
"""How many times to try again if the cluster cannot merge the changes because of too many others at the same time."""

CONFLICT_DELAY = 0.2
"""Seconds before the first of these times, twice as many before each next one; prolonged at random by up to a half."""

EMPTIED = ('metadata.annotations', 'metadata.labels', 'metadata.finalizers')
"""What the cluster removes when it is empty."""

INAPPLICABLE = ('the server rejected our request due to an error in our request', 'test failed')
"""How the servers tell that a JSON patch does not fit the object, e.g. by its version. Nothing else is said then."""


class Holding(enum.Enum):
    """What is to be done to our finalizer."""
    KEEP = enum.auto()  # let it be as it is
    BLOCK = enum.auto()  # put it on the object
    ALLOW = enum.auto()  # take it off


@dataclasses.dataclass(frozen=True)
class Changes:
    """All that is to be changed in an object at once."""
    patch: patches.Patch  # of the users
    own: patches.Patch  # of ours, with no functions
    holding: Holding = Holding.KEEP


@dataclasses.dataclass(frozen=True)
class Applied:
    """What has become of the changes."""
    version: str | None = None  # of the object after the last accepted request; None if there was none
    fns: tuple[patches.PatchFn, ...] = ()  # of the users, not accepted for the version of the object
    is_gone: bool = False  # there is no such object any more
    is_held: bool = False  # our finalizer could not be changed now: the object is newer than we know
    is_refused: bool = False  # the functions or our own part are wrong for any version, as far as it is known
    body: Mapping[str, Any] | None = dataclasses.field(default=None, compare=False, repr=False)  # of that version


async def apply_changes(target: patching.Target, changes: Changes, body: Mapping[str, Any], *,
                        context: requests.Context, logger: Logger) -> Applied:
    """
    Send the changes of an object known to be as given; tell which version of it includes them.

    What the cluster refuses is logged and left out, and everything else is sent: the finalizer in any case.
    Raises `RequestError` if nothing is known about the result, or if there is nothing more to leave out: it is
    harmless to repeat then. So it is if cancelled.
    """
    sender = _Sender(target, body, context, logger)
    kept: tuple[patches.PatchFn, ...] = ()
    is_refused, conflicts = False, 0
    while (refusal := await sender.send(changes)) is not None:
        fns, is_amended = tuple(changes.patch.fns), _is_amending(refusal, changes)
        if is_amended and is_outdated(refusal.error):
            return Applied(sender.version, kept or fns, is_held=changes.holding is not Holding.KEEP,
                           is_refused=is_refused, body=sender.patched)
        if is_conflicting(refusal.error, changes) and conflicts < CONFLICTS:
            await asyncio.sleep(math.ldexp(CONFLICT_DELAY, conflicts) * (1 + context.chance() / 2))
            conflicts += 1
            continue
        lesser = None if is_conflicting(refusal.error, changes) else lessen(
            changes, is_amended=is_amended, is_status=refusal.step is patching.Step.MERGE_STATUS)
        if lesser is None:
            raise refusal.error
        logger.error("Patching failed: the cluster refuses %s: %s", _describe_loss(changes, lesser), refusal.error)
        if is_amended and not finalizers.is_deletion_ongoing(sender.body):
            kept, is_refused = fns, True
        is_refused = is_refused or (not is_amended and lesser.own != changes.own)
        changes = lesser
    return Applied(sender.version, kept, is_gone=sender.is_gone,
                   is_refused=is_refused and not sender.is_gone, body=sender.patched)


def lessen(changes: Changes, *, is_amended: bool, is_status: bool = False) -> Changes | None:
    """
    Leave out what is probably refused; ``None`` if there is nothing to leave out but the finalizer.

    If the cluster refuses what was made by the functions, everything that is merged was accepted before that.
    If it refuses the status that is sent apart, the rest of the object has done nothing wrong.
    """
    if is_status and 'status' in changes.patch:
        return dataclasses.replace(changes, patch=_without_status(changes.patch))
    if is_status and 'status' in changes.own:
        return dataclasses.replace(changes, own=_without_status(changes.own))
    if is_amended:
        return Changes(patches.Patch(), patches.Patch(), changes.holding) if changes.patch.fns else None
    if len(changes.patch):
        return Changes(patches.Patch(fns=changes.patch.fns), changes.own, changes.holding)
    if changes.own:
        return Changes(changes.patch, patches.Patch(), changes.holding)
    return None


def _without_status(patch: patches.Patch) -> patches.Patch:
    return patches.Patch({key: value for key, value in patch.items() if key != 'status'}, fns=patch.fns)


def is_refusal(error: errors.RequestError) -> bool:
    """Tell if the cluster has said no, and will say so again; otherwise, it is worth to send the same later."""
    return isinstance(error, errors.APIInvalidError) or (isinstance(error, errors.APIError) and error.code in REFUSALS)


def is_outdated(refusal: errors.APIError) -> bool:
    """Tell if a JSON patch is refused only because the object has changed meanwhile."""
    if isinstance(refusal, errors.APIConflictError):
        return True
    is_explained = bool(dicts.resolve(refusal.details, ('causes',)))
    return refusal.code == 422 and not is_explained and any(text in refusal.message for text in INAPPLICABLE)


def is_conflicting(refusal: errors.APIError, changes: Changes) -> bool:
    """Tell if the changes are refused only because of others at the same moment, and not for what they are."""
    is_versioned = dicts.has(changes.patch, ('metadata', 'resourceVersion'))
    return isinstance(refusal, errors.APIConflictError) and not is_versioned


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """What the cluster does not accept."""
    error: errors.APIError
    step: patching.Step | None = None  # if it is known


def _is_amending(refusal: _Refusal, changes: Changes) -> bool:
    """Tell if the refused part is that of the functions; if unknown, the merged part is suspected first."""
    if refusal.step is None:
        return not len(changes.patch) and not changes.own
    return refusal.step in (patching.Step.AMEND_BODY, patching.Step.AMEND_STATUS)


def _describe_loss(changes: Changes, lesser: Changes) -> str:
    if len(changes.patch.fns) > len(lesser.patch.fns):
        return "what the patch functions have made"
    if lesser.patch:
        return "the changes of the status, and they are dropped"
    return "the changes, and they are dropped" if len(changes.patch) else "our own records"


class _Sender:
    """Sends the changes of one object, and remembers its newest state. Used by one task."""

    def __init__(self, target: patching.Target, body: Mapping[str, Any], context: requests.Context,
                 logger: Logger) -> None:
        self.target, self.body, self.context, self.logger = target, body, context, logger
        self.version: str | None = None
        self.is_gone = False

    @property
    def patched(self) -> Mapping[str, Any] | None:
        """The object after the last accepted request, if there was one."""
        return None if self.version is None else self.body

    async def send(self, changes: Changes) -> _Refusal | None:
        """Send what differs from the object; return what is refused, if anything. All before it is accepted then."""
        merge = self._choose_merge(changes)
        holder = _build_holder(changes.holding, self.context.settings.persistence.finalizer)
        is_verified = not merge

        def build(reference: Mapping[str, Any]) -> Sequence[patching.Operation]:
            nonlocal is_verified
            self._verify({} if is_verified else merge, reference)
            is_verified = True
            return self._build_operations(changes.patch.fns, holder, reference)

        self._log_merge(merge)
        has_fns = bool(changes.patch.fns) or holder is not None
        try:
            patched = await patching.patch_object(
                self.target, merge=merge, amendment=patching.Amendment(self.body, build) if has_fns else None,
                context=self.context)
        except errors.APIError as error:
            if error.code not in REFUSALS:
                raise
            return _Refusal(error)
        refusal = self._take(patched)
        if refusal is None and not is_verified and patched is not None and patched.body is not None:
            self._verify(merge, patched.body)
        return refusal

    def _take(self, patched: patching.Patched | None) -> _Refusal | None:
        if patched is None:
            self.logger.debug("The object is gone: there is nothing to patch.")
            self.is_gone = True
            return None
        if patched.body is not None:
            self.body, self.version = patched.body, _get_version(patched.body)
        return None if patched.refusal is None else _Refusal(patched.refusal, patched.refused)

    def _choose_merge(self, changes: Changes) -> dict[str, Any]:
        """Choose what is to be merged; what cannot be sent at all is left out."""
        try:
            merge = prune(join(changes.own, changes.patch, self.body), self.body)
            jsons.dumps(merge)
        except (TypeError, ValueError, RecursionError) as error:
            self.logger.error("Patching failed: the changes cannot be put as JSON, and are dropped: %s", error)
            return prune(changes.own, self.body)
        return merge

    def _build_operations(self, fns: Sequence[patches.PatchFn], holder: patches.PatchFn | None,
                          reference: Mapping[str, Any]) -> Sequence[patching.Operation]:
        """Build a JSON patch of all functions; those that fail are left out, all of them if it cannot be sent."""
        body = reference
        for fn in fns:
            try:
                body = patches.apply_fns([fn], body)
            except Exception as error:
                self.logger.error("Patching failed: a patch function has failed, and is skipped: %r", error,
                                  exc_info=True)
        holders = [holder] if holder is not None else []
        operations = patches.build_json_patch(reference, patches.apply_fns(holders, body))
        try:
            jsons.dumps(operations)
        except (TypeError, ValueError) as error:
            self.logger.error("Patching failed: what the patch functions have made cannot be put as JSON, "
                              "and is dropped: %s", error)
            operations = patches.build_json_patch(reference, patches.apply_fns(holders, reference))
        self._log_operations(operations)
        return operations

    def _verify(self, merge: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        mismatches = find_mismatches(merge, body)
        if mismatches:
            self.logger.warning("Patching was accepted, but not done as asked, in: %s. Does the schema of the "
                                "resource have these fields, or does anything else change them?",
                                ', '.join(mismatches))

    def _log_merge(self, merge: Mapping[str, Any]) -> None:
        if not self.logger.isEnabledFor(logging.DEBUG):
            return
        for step, part in patching.split_merge(merge, has_status=self.target.has_status).items():
            place = 'status' if step is patching.Step.MERGE_STATUS else 'resource'
            self.logger.debug("Merge-patching the %s with: %r", place, list(part) if self._is_secret else part)

    def _log_operations(self, operations: Sequence[patching.Operation]) -> None:
        if not self.logger.isEnabledFor(logging.DEBUG):
            return
        for step, part in patching.split_operations(operations, has_status=self.target.has_status).items():
            place = 'status' if step is patching.Step.AMEND_STATUS else 'resource'
            shown = [operation['path'] for operation in part] if self._is_secret else part
            self.logger.debug("JSON-patching the %s with: %r", place, shown)

    @property
    def _is_secret(self) -> bool:
        return (self.target.resource.group, self.target.resource.plural) == ('', 'secrets')


def prune(merge: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Leave only what differs from the object: no request is worth making for what is there already."""
    pruned: dict[str, Any] = {}
    for key, value in merge.items():
        present = body.get(key)
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            nested = prune(value, present)
            if nested:
                pruned[key] = nested
        elif isinstance(value, Mapping):
            cleaned = _without_removals(value)
            if cleaned or (present is not None and not isinstance(present, Mapping)) or not value:
                pruned[key] = cleaned
        elif not dicts.is_same(value, present):
            pruned[key] = dicts.plain(value)
    return pruned


def find_mismatches(merge: Mapping[str, Any], body: Mapping[str, Any], path: str = '') -> list[str]:
    """List the fields that are not such as we have asked: dropped or changed by the cluster."""
    found: list[str] = []
    for key, value in merge.items():
        field = f'{path}.{key}' if path else key
        present = body.get(key)
        if isinstance(value, Mapping):
            found.extend(find_mismatches(value, present if isinstance(present, Mapping) else {}, field))
        elif not dicts.is_same(value, present) and not (field in EMPTIED and not value and not present):
            found.append(field)
    return found


def join(own: Mapping[str, Any], users: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """
    Make one merge-patch of two; where they contradict, that of the users wins.

    But if the users remove something as a whole, what is ours in it stays: all the rest is removed one by one.
    """
    joined = dict(own)
    for key, value in users.items():
        ours, present = joined.get(key), dicts.resolve_mapping(body, (key,))
        if isinstance(ours, Mapping) and isinstance(value, Mapping):
            joined[key] = join(ours, value, present)
        elif isinstance(ours, Mapping) and value is None:
            joined[key] = {**dict.fromkeys(present), **ours}
        else:
            joined[key] = value
    return joined


def _build_holder(holding: Holding, finalizer: str) -> patches.PatchFn | None:
    if holding is Holding.BLOCK:
        return functools.partial(finalizers.block_deletion, finalizer=finalizer)
    if holding is Holding.ALLOW:
        return functools.partial(finalizers.allow_deletion, finalizer=finalizer)
    return None


def _without_removals(merge: Mapping[str, Any]) -> dict[str, Any]:
    """Leave only what is to be set: there is nothing to remove in what does not exist."""
    cleaned: dict[str, Any] = {}
    for key, value in merge.items():
        nested = _without_removals(value) if isinstance(value, Mapping) else dicts.plain(value)
        if nested is not None and (nested or not isinstance(value, Mapping) or not value):
            cleaned[key] = nested
    return cleaned


def _get_version(body: Mapping[str, Any] | None) -> str | None:
    version = dicts.resolve(body, ('metadata', 'resourceVersion'))
    return None if version is None else str(version)
