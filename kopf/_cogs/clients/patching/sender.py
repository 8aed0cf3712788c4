"""
Sender: sends the operator's changes of an object in as few requests as possible.

All kinds of changes are sent together; if several requests are needed, our records go last, when
everything else is done. If the cluster refuses the users' part, the other two are sent without it:
the handlers are done, and must not be repeated forever because of values that cannot be stored.
Values equal to those of the object are not sent.
"""

import asyncio
import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from kopf._cogs.clients import errors, requests
from kopf._cogs.clients.patching import (
    application,
    losses,
    merge_patches,
    object_requests,
    plans,
    refusals,
    targets,
)
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import bodies, dicts, finalizers, patches, references

Logger = logging.Logger | logging.LoggerAdapter[Any]

CONFLICTS = 3
"""The number of retries if the cluster cannot merge the changes because of concurrent changes."""

CONFLICT_DELAY = 0.2
"""
Seconds before the first of these retries, doubled for each next one, plus a random half at most.
"""

REFRESHES = 3
"""How many times the object is read again if others changed it before a request for one version."""


async def apply_changes(
    target: targets.Target,
    changes: application.Changes,
    body: Mapping[str, Any],
    *,
    context: requests.Context,
    logger: Logger,
) -> application.Applied:
    """
    Send the changes of an object in the given state; return the version that includes them.

    Refused changes are logged and left out, and everything else is sent, in particular the
    finalizer. Raises `RequestError` if the result is unknown, or if there is nothing more to leave
    out. After that or a cancellation, it is harmless to repeat.
    """
    sender = Sender(target, body, context, logger)
    sender.take(changes)
    loss = losses.Loss()
    conflicts = 0

    while (request := sender.choose_next()) is not None:
        refusal = await sender.send(request)
        if refusal is None:
            continue
        changes = sender.left
        if refusal.kind.is_amending and refusals.is_outdated(refusal.error):
            return _conclude_outdated(sender, loss)
        if refusals.is_conflicting(refusal.error, changes):
            if conflicts >= CONFLICTS or sender.is_stuck:
                raise refusal.error
            await asyncio.sleep(math.ldexp(CONFLICT_DELAY, conflicts) * (1 + context.chance() / 2))
            conflicts += 1
        else:
            lesser = _leave_out(changes, refusal, logger)
            is_deleted = finalizers.is_deletion_ongoing(sender.body)
            loss = loss.extend(refusal, changes, lesser, is_deleted=is_deleted)
            changes = lesser
        sender.take(changes)

    return application.Applied(
        sender.version,
        loss.fns,
        is_gone=sender.is_gone,
        is_refused=loss.is_refused and not sender.is_gone,
        body=sender.patched,
        drifts=tuple(sender.drifts),
    )


def _leave_out(
    changes: application.Changes, refusal: refusals.Refusal, logger: Logger
) -> application.Changes:
    """Leave out what is refused, and log it; raise the refusal if there is nothing to leave out."""
    lesser = losses.lessen(
        changes,
        is_amended=refusal.kind.is_amending,
        is_status=refusal.kind is plans.Kind.MERGE_STATUS,
    )
    if lesser is None:
        raise refusal.error

    logger.error(
        'Patching failed: the cluster refuses %s: %s',
        losses.describe_loss(changes, lesser),
        refusal.error,
    )
    return lesser


def _conclude_outdated(sender: 'Sender', loss: losses.Loss) -> application.Applied:
    """Leave the rest of the changes for a newer version of the object."""
    left = sender.left
    return application.Applied(
        sender.version,
        loss.fns or tuple(left.patch.fns),
        is_held=left.holding is not application.Holding.KEEP,
        is_refused=loss.is_refused,
        unsent=dict(left.patch),
        own=dict(left.own),
        body=sender.patched,
        drifts=tuple(sender.drifts),
    )


class _Draft(NamedTuple):
    """The content of one patch."""

    payload: Any
    is_guarded: bool  # whether it is only for the known version of the object


class Sender:
    """The sender of the changes of one object, with its newest state. Used by one task."""

    def __init__(
        self,
        target: targets.Target,
        body: Mapping[str, Any],
        context: requests.Context,
        logger: Logger,
    ) -> None:
        self.target = target
        self.body = body
        self.context = context
        self.logger = logger
        self._changes = application.NO_CHANGES
        # The changes not accepted yet; the functions are always kept here.
        self._users = self._changes.patch
        self._own = self._changes.own
        self._revise: application.Revise | None = None
        self._amended: set[plans.Kind] = set()
        self.version: str | None = None
        self.is_gone = False
        self.drifts: list[application.Drift] = []
        self.is_stuck = False  # whether there are conflicts though the object does not change
        self._refreshes = 0
        # Whether others change the object too often to find a quiet moment.
        self._is_hot = False
        # Includes functions with results that are not JSON: each is reported once.
        self._failed: list[patches.AnyPatchFn] = []

    @property
    def patched(self) -> Mapping[str, Any] | None:
        """The object after the last accepted request, if there was one."""
        return None if self.version is None else self.body

    @property
    def left(self) -> application.Changes:
        """The changes not accepted yet."""
        return dataclasses.replace(
            self._changes, patch=self._users, own=self._own, revise=self._revise
        )

    def take(self, changes: application.Changes) -> None:
        """
        Take the difference from the object, without contradictions and values that cannot be sent.
        """
        self._changes = changes
        self._revise = changes.revise
        self._users = changes.patch
        own = changes.own

        if len(changes.patch):
            own, users = self._separate(changes)
            self._users = patches.Patch(users, fns=changes.patch.fns)

        self._own = patches.Patch(merge_patches.prune(own, self.body)) if own else own
        self._amended = set()

    def _separate(self, changes: application.Changes) -> tuple[patches.Patch, Mapping[str, Any]]:
        own, users = merge_patches.separate(changes.own, changes.patch, self.body)
        try:
            users = (
                merge_patches.prune(users, self.body) if changes.is_spared else dicts.plain(users)
            )
            jsons.dumps(users)
        except (TypeError, ValueError, RecursionError) as error:
            self.logger.error(
                'Patching failed: the changes cannot be put as JSON, and are dropped: %s', error
            )
            return changes.own, {}

        return patches.Patch(own), users

    def choose_next(self) -> plans.Request | None:
        """
        Choose the next request, if anything is left for an object that is not gone; rebuild our
        part once the whole users' part is accepted before it.
        """
        request = None if self.is_gone else self._choose_request()
        if self._revise is None or self.version is None or request is None:
            return request
        if request.users or request.kind.is_amending:
            return request

        revised = self._revise(self.body, tuple(self.drifts))
        self._own = patches.Patch(merge_patches.prune(revised, self.body))
        self._revise = None

        return self._choose_request()

    def _choose_request(self) -> plans.Request | None:
        """
        Choose the next request; the finalizer goes with the functions, or last if there are none.
        """
        users = self._users
        own = self._own
        is_held = self._changes.holding is not application.Holding.KEEP and not self._amended
        if not users and not own and not is_held:
            return None

        touched = self._find_touched() - self._amended if users.fns else set[plans.Kind]()
        requests = plans.plan(users, own, touched, has_status=self.target.has_status)
        if requests:
            return requests[0]
        return plans.Request(plans.Kind.AMEND_BODY) if is_held and not users.fns else None

    def _find_touched(self) -> set[plans.Kind]:
        """Find the parts that the functions change in the object as it is known."""
        merged = patches.merge(self.body, self._users)
        operations = patches.build_json_patch(merged, self._transform(merged))
        return set(plans.split_operations(operations, has_status=self.target.has_status))

    async def send(self, request: plans.Request) -> refusals.Refusal | None:
        """
        Send one request; return the refusal, unless it is accepted, or the object is gone.

        If it is for the known version only, and others have changed the object meanwhile, the
        object is read, and the request is repeated for its newer version.
        """
        if not request.kind.is_amending:
            self._log(request.kind, request.merge, list(request.merge))
        refusal: refusals.Refusal | None = None
        while (draft := self._draft(request)) is not None:
            before = self.body
            try:
                patched = await object_requests.patch_part(
                    self.target, request.kind, draft.payload, context=self.context
                )
            except errors.APIError as error:
                if error.code not in refusals.REFUSALS:
                    raise
                patched = object_requests.Patched(None, request.kind, error)
            refusal = self._note(patched)
            if refusal is None and not request.kind.is_amending:
                self._note_merged(request, draft, before)
            is_late = refusal is not None and self._is_late(refusal, draft)
            if not is_late or not await self._refresh():
                break
            refusal = None

        if refusal is None or self.is_gone:
            self._subtract(request)
            return None

        return refusal

    def _draft(self, request: plans.Request) -> _Draft | None:
        """Prepare the content of a request for the object as it is known; ``None`` for nothing."""
        if request.kind.is_amending:
            return self._draft_amendment(request)
        is_guarded = self._is_guarded(request)
        return _Draft(self._identify(request.merge, is_guarded=is_guarded), is_guarded)

    def _draft_amendment(self, request: plans.Request) -> _Draft | None:
        """Apply the functions, if any, after the unsent merge-patches."""
        wanted = patches.merge(self._transform(patches.merge(self.body, self._users)), request.own)
        operations = plans.split_operations(
            patches.build_json_patch(self.body, wanted), has_status=self.target.has_status
        ).get(request.kind)
        if not operations:
            return None
        self._log(request.kind, operations, [operation['path'] for operation in operations])
        return _Draft(plans.guard(operations, self.body), is_guarded=True)

    def _is_guarded(self, request: plans.Request) -> bool:
        """
        Return whether the request is only for the known version of the object.

        The servers do not check the uid of the object when the status is merged, so the version is
        checked.
        """
        if plans.is_versioned(request.users) or bodies.get_version(self.body) is None:
            return False
        if request.kind.is_status and self.target.uid is not None:
            return True
        return self._changes.is_guarded and bool(request.users) and not self._is_hot

    def _identify(self, merge: Mapping[str, Any], *, is_guarded: bool) -> Mapping[str, Any]:
        """
        Add the preconditions to the changes: the uid and, if guarded, the version of the object.
        """
        identity: dict[str, Any] = {}
        if self.target.uid is not None:
            identity['uid'] = self.target.uid
        if is_guarded:
            identity['resourceVersion'] = bodies.get_version(self.body)
        if not identity:
            return merge
        return {**merge, 'metadata': {**identity, **dicts.resolve_mapping(merge, ('metadata',))}}

    def _is_late(self, refusal: refusals.Refusal, draft: _Draft) -> bool:
        """Return whether to repeat the request for a newer version of the object."""
        if refusal.kind.is_amending:
            return self._changes.is_persistent and refusals.is_outdated(refusal.error)
        return draft.is_guarded and isinstance(refusal.error, errors.APIConflictError)

    async def _refresh(self) -> bool:
        """
        Read the object that others have changed; return false if it is gone or retries are useless.
        """
        if self._refreshes >= REFRESHES:
            self._is_hot = not self._is_hot and not self.is_stuck
            return self._is_hot

        delay = math.ldexp(CONFLICT_DELAY, self._refreshes - 1) if self._refreshes else 0
        await asyncio.sleep(delay * (1 + self.context.chance() / 2))
        self._refreshes += 1

        try:
            fresh = await object_requests.read_object(self.target, context=self.context)
        except errors.APIForbiddenError:
            self._refreshes = REFRESHES
            return True

        if fresh is None:
            self._note_gone()
            return False

        self.is_stuck = bodies.get_version(fresh) == bodies.get_version(self.body)
        self.drifts.append(application.Drift(self.body, fresh, is_foreign=True))
        self.body = fresh

        return True

    def _note(self, patched: object_requests.Patched | None) -> refusals.Refusal | None:
        """Record the result of a request; return the refusal, if any."""
        if patched is None or refusals.is_namesake(patched.refusal):
            self._note_gone()
            return None

        if patched.body is not None:
            self.body = patched.body
            self.version = bodies.get_version(patched.body)

        if patched.refusal is None or patched.refused is None:
            return None
        return refusals.Refusal(patched.refusal, patched.refused)

    def _note_merged(
        self, request: plans.Request, draft: _Draft, before: Mapping[str, Any]
    ) -> None:
        """Record that the changes are accepted, and check whether they are done as asked."""
        if self.is_gone:
            return

        if not draft.is_guarded:
            self.drifts.append(application.Drift(before, self.body))
        mismatches = merge_patches.find_mismatches(request.merge, self.body)
        if mismatches:
            self.logger.warning(
                'Patching was accepted, but not done as asked, in: %s. Does the schema of the '
                'resource have these fields, or does anything else change them?',
                ', '.join(mismatches),
            )

    def _subtract(self, request: plans.Request) -> None:
        """Take the accepted request out of what is left."""
        self._users = application.subtract(self._users, request.users)
        self._own = application.subtract(self._own, request.own)
        if request.kind.is_amending:
            self._amended.add(request.kind)

    def _note_gone(self) -> None:
        self.logger.debug('The object is gone: there is nothing to patch.')
        self.is_gone = True

    def _transform(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """
        Apply the functions and the finalizer.

        Failing functions are skipped; all of them are, if the result is not JSON.
        """
        made = body
        for fn in self._users.fns:
            try:
                made = patches.apply_fns([fn], made)
            except Exception as error:
                self._complain(
                    fn, 'Patching failed: a patch function has failed, and is skipped: %r', error
                )

        holding = self._changes.holding
        finalizer = self.context.settings.persistence.finalizer
        try:
            if made is not body:
                jsons.dumps(patches.build_json_patch(body, made))
        except (TypeError, ValueError) as error:
            self._complain(
                self._users.fns[0],
                'Patching failed: what the patch functions have made cannot be put '
                'as JSON, and is dropped: %s',
                error,
            )
            made = body

        return application.hold(made, holding, finalizer)

    def _complain(self, fn: patches.AnyPatchFn, text: str, error: Exception) -> None:
        if fn not in self._failed:
            self._failed.append(fn)
            self.logger.error(text, error, exc_info=error)

    def _log(self, kind: plans.Kind, content: object, outline: list[str]) -> None:
        """Log the changes to send; only their outline for Secrets."""
        is_secret = references.is_secret(self.target.resource)
        self.logger.debug(
            '%s-patching the %s with: %r',
            'JSON' if kind.is_amending else 'Merge',
            'status' if kind.is_status else 'resource',
            outline if is_secret else content,
        )
