"""
Application: sends the operator's changes of an object in as few requests as possible.

There are three kinds of changes: the users' patch, our own records, and our finalizer. They are
sent together; if several requests are needed, our records go last, when everything else is done. If
the cluster refuses the users' part, the other two are sent without it: the handlers are done, and
must not be repeated forever because of values that cannot be stored. Values equal to those of the
object are not sent.
"""

import asyncio
import dataclasses
import enum
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kopf._cogs.clients import errors, patching, requests
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import bodies, dicts, finalizers, patches, references
from kopf._core.actions import sequences

Logger = logging.Logger | logging.LoggerAdapter[Any]

REFUSALS = (400, 403, 413)
"""
The codes treated the same as 409 and 422: wrong content, denied by a webhook or RBAC, too large.
"""

CONFLICTS = 3
"""The number of retries if the cluster cannot merge the changes because of concurrent changes."""

CONFLICT_DELAY = 0.2
"""
Seconds before the first of these retries, doubled for each next one, plus a random half at most.
"""

REFRESHES = 3
"""How many times the object is read again if others changed it before a request for one version."""

EMPTIED = ('metadata.annotations', 'metadata.labels', 'metadata.finalizers')
"""The fields that the cluster removes when they are empty."""

INAPPLICABLE = ('the server rejected our request due to an error in our request', 'test failed')
"""
How servers report that a JSON patch does not fit the object, e.g. its version, with no details.
"""


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


async def apply_changes(
    target: patching.Target,
    changes: Changes,
    body: Mapping[str, Any],
    *,
    context: requests.Context,
    logger: Logger,
) -> Applied:
    """
    Send the changes of an object in the given state; return the version that includes them.

    Refused changes are logged and left out, and everything else is sent, in particular the
    finalizer. Raises `RequestError` if the result is unknown, or if there is nothing more to leave
    out. After that or a cancellation, it is harmless to repeat.
    """
    sender = _Sender(target, body, context, logger)
    loss = _Loss()
    conflicts = 0
    while (refusal := await sender.send(changes)) is not None:
        changes = sender.left
        if refusal.is_amended and is_outdated(refusal.error):
            return _conclude_outdated(sender, loss)
        if is_conflicting(refusal.error, changes):
            if conflicts >= CONFLICTS or sender.is_stuck:
                raise refusal.error
            await asyncio.sleep(math.ldexp(CONFLICT_DELAY, conflicts) * (1 + context.chance() / 2))
            conflicts += 1
            continue

        is_status = refusal.step is patching.Step.MERGE_STATUS
        lesser = lessen(changes, is_amended=refusal.is_amended, is_status=is_status)
        if lesser is None:
            raise refusal.error
        logger.error(
            'Patching failed: the cluster refuses %s: %s',
            _describe_loss(changes, lesser),
            refusal.error,
        )
        is_deleted = finalizers.is_deletion_ongoing(sender.body)
        loss = loss.extend(refusal, changes, lesser, is_deleted=is_deleted)
        changes = lesser

    return Applied(
        sender.version,
        loss.fns,
        is_gone=sender.is_gone,
        is_refused=loss.is_refused and not sender.is_gone,
        body=sender.patched,
        drifts=tuple(sender.drifts),
    )


def _conclude_outdated(sender: '_Sender', loss: '_Loss') -> Applied:
    """Leave the rest of the changes for a newer version of the object."""
    left = sender.left
    return Applied(
        sender.version,
        loss.fns or tuple(left.patch.fns),
        is_held=left.holding is not Holding.KEEP,
        is_refused=loss.is_refused,
        unsent=dict(left.patch),
        own=dict(left.own),
        body=sender.patched,
        drifts=tuple(sender.drifts),
    )


def lessen(changes: Changes, *, is_amended: bool, is_status: bool = False) -> Changes | None:
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


def is_refusal(error: errors.RequestError) -> bool:
    """
    Return whether the cluster refuses the request and will refuse it again; otherwise, retry later.
    """
    return isinstance(error, errors.APIInvalidError) or (
        isinstance(error, errors.APIError) and error.code in REFUSALS
    )


def is_outdated(refusal: errors.APIError) -> bool:
    """
    Return whether a JSON patch is refused only because the object has changed in the meantime.
    """
    if isinstance(refusal, errors.APIConflictError):
        return True
    is_explained = bool(dicts.resolve(refusal.details, ('causes',)))
    return (
        refusal.code == 422
        and not is_explained
        and any(text in refusal.message for text in INAPPLICABLE)
    )


def is_namesake(refusal: errors.APIError | None) -> bool:
    """Return whether the changes are refused because the name now belongs to another object."""
    if refusal is None:
        return False
    causes = dicts.resolve(refusal.details, ('causes',))
    fields = [cause.get('field') for cause in causes or () if isinstance(cause, Mapping)]
    return 'metadata.uid' in fields or 'UID in precondition' in refusal.message


def is_conflicting(refusal: errors.APIError, changes: Changes) -> bool:
    """Return whether the changes are refused only because of concurrent changes."""
    is_versioned = dicts.has(changes.patch, ('metadata', 'resourceVersion'))
    return isinstance(refusal, errors.APIConflictError) and not is_versioned


@dataclasses.dataclass(frozen=True)
class _Refusal:
    """A request that the cluster has refused."""

    error: errors.APIError
    step: patching.Step

    @property
    def is_amended(self) -> bool:
        """Whether it was a JSON patch: the users' functions or the finalizer."""
        return self.step in sequences.AMENDMENTS.values()


@dataclasses.dataclass(frozen=True)
class _Loss:
    """The changes left out because the cluster refuses them."""

    fns: tuple[patches.AnyPatchFn, ...] = ()  # can be accepted for another version of the object
    is_refused: bool = False  # whether the functions or our own part are refused

    def extend(
        self, refusal: _Refusal, changes: Changes, lesser: Changes, *, is_deleted: bool
    ) -> '_Loss':
        """Add the part left out because of another refusal."""
        if not refusal.is_amended:
            return _Loss(self.fns, self.is_refused or lesser.own != changes.own)
        if is_deleted:
            return self
        return _Loss(tuple(changes.patch.fns), is_refused=True)


def _describe_loss(changes: Changes, lesser: Changes) -> str:
    if len(changes.patch.fns) > len(lesser.patch.fns):
        return 'what the patch functions have made'
    if len(lesser.patch):
        return 'the changes of the status, and they are dropped'
    return 'the changes, and they are dropped' if len(changes.patch) else 'our own records'


class _Sender:
    """The sender of the changes of one object, with its newest state. Used by one task."""

    def __init__(
        self,
        target: patching.Target,
        body: Mapping[str, Any],
        context: requests.Context,
        logger: Logger,
    ) -> None:
        self.target, self.body, self.context, self.logger = target, body, context, logger
        self._changes = NO_CHANGES
        # The changes not accepted yet; the functions are always kept here.
        self._users, self._own = NO_CHANGES.patch, NO_CHANGES.own
        self._revise: Revise | None = None
        self.version: str | None = None
        self.is_gone = False
        self.drifts: list[Drift] = []
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
    def left(self) -> Changes:
        """The changes not accepted yet."""
        return dataclasses.replace(
            self._changes, patch=self._users, own=self._own, revise=self._revise
        )

    async def send(self, changes: Changes) -> _Refusal | None:
        """Send the difference from the object; return the refusal, if any, that stopped it."""
        self._take(changes)
        amended = set[sequences.Place]()
        while not self.is_gone and (request := self._choose_next(amended)) is not None:
            refusal = await (self._amend(request) if request.is_amending else self._merge(request))
            if refusal is not None:
                return refusal
            self._users = _subtract(self._users, request.users)
            self._own = _subtract(self._own, request.own)
            if request.is_amending:
                amended.add(request.place)
        return None

    def _take(self, changes: Changes) -> None:
        """
        Take the difference from the object, without contradictions and values that cannot be sent.
        """
        self._changes, self._revise = changes, changes.revise
        self._users, own = changes.patch, changes.own
        if len(changes.patch):
            own, users = self._separate(changes)
            self._users = patches.Patch(users, fns=changes.patch.fns)
        self._own = patches.Patch(prune(own, self.body)) if own else own

    def _separate(self, changes: Changes) -> tuple[patches.Patch, Mapping[str, Any]]:
        own, users = sequences.separate(changes.own, changes.patch, self.body)
        try:
            users = prune(users, self.body) if changes.is_spared else dicts.plain(users)
            jsons.dumps(users)
        except (TypeError, ValueError, RecursionError) as error:
            self.logger.error(
                'Patching failed: the changes cannot be put as JSON, and are dropped: %s', error
            )
            return changes.own, {}
        return patches.Patch(own), users

    def _choose_next(self, amended: Collection[sequences.Place]) -> sequences.Request | None:
        """
        Choose the next request; rebuild our part once the whole users' part is accepted before it.
        """
        request = self._choose_request(amended)
        if self._revise is None or self.version is None or request is None:
            return request
        if request.users or request.is_amending:
            return request
        self._own = patches.Patch(prune(self._revise(self.body, tuple(self.drifts)), self.body))
        self._revise = None
        return self._choose_request(amended)

    def _choose_request(self, amended: Collection[sequences.Place]) -> sequences.Request | None:
        """
        Choose the next request; the finalizer goes with the functions, or last if there are none.
        """
        users, own = self._users, self._own
        if not users and not own and (self._changes.holding is Holding.KEEP or amended):
            return None
        touched = self._find_touched() - set(amended) if users.fns else set[sequences.Place]()
        requests = sequences.plan(users, own, touched, has_status=self.target.has_status)
        if (
            not requests
            and not users.fns
            and self._changes.holding is not Holding.KEEP
            and not amended
        ):
            return sequences.Request(sequences.Place.BODY, is_amending=True)
        return requests[0] if requests else None

    def _find_touched(self) -> set[sequences.Place]:
        """Find the places that the functions change in the object as it is known."""
        merged = patches.merge(self.body, self._users)
        operations = patches.build_json_patch(merged, self._transform(merged))
        steps = patching.split_operations(operations, has_status=self.target.has_status)
        return {place for place, step in sequences.AMENDMENTS.items() if step in steps}

    async def _merge(self, request: sequences.Request) -> _Refusal | None:
        merge = request.merge
        self._log(request.step, merge, list(merge))
        while True:
            before = self.body
            is_guarded = self._is_guarded(request)
            refusal = await self._patch(request.step, self._identify(merge, is_guarded=is_guarded))
            if (
                not is_guarded
                or refusal is None
                or not isinstance(refusal.error, errors.APIConflictError)
            ):
                break
            if not await self._refresh():
                return None if self.is_gone else refusal

        if refusal is None and not self.is_gone:
            if not is_guarded:
                self.drifts.append(Drift(before, self.body))
            self._verify(merge, self.body)
        return refusal

    def _is_guarded(self, request: sequences.Request) -> bool:
        """
        Return whether the request is only for the known version of the object.

        The servers do not check the uid of the object when the status is merged, so the version is
        checked.
        """
        if (
            dicts.has(request.users, ('metadata', 'resourceVersion'))
            or bodies.get_version(self.body) is None
        ):
            return False
        if request.place is sequences.Place.STATUS and self.target.uid is not None:
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
            fresh = await patching.read_object(self.target, context=self.context)
        except errors.APIForbiddenError:
            self._refreshes = REFRESHES
            return True
        if fresh is None:
            self._note_gone()
            return False
        self.is_stuck = bodies.get_version(fresh) == bodies.get_version(self.body)
        self.drifts.append(Drift(self.body, fresh, is_foreign=True))
        self.body = fresh
        return True

    async def _amend(self, request: sequences.Request) -> _Refusal | None:
        """Send the result of the functions, if any, applied after the unsent merge-patches."""
        wanted = patches.merge(self._transform(patches.merge(self.body, self._users)), request.own)
        operations = patching.split_operations(
            patches.build_json_patch(self.body, wanted), has_status=self.target.has_status
        ).get(request.step)
        if not operations:
            return None
        self._log(request.step, operations, [operation['path'] for operation in operations])
        refusal = await self._patch(request.step, patching.guard(operations, self.body))
        is_late = refusal is not None and is_outdated(refusal.error)
        if is_late and self._changes.is_persistent and await self._refresh():
            return await self._amend(request)
        return None if self.is_gone else refusal

    async def _patch(self, step: patching.Step, payload: Any) -> _Refusal | None:
        try:
            patched = await patching.patch_part(self.target, step, payload, context=self.context)
        except errors.APIError as error:
            if error.code not in REFUSALS:
                raise
            return _Refusal(error, step)
        if patched is None or is_namesake(patched.refusal):
            self._note_gone()
            return None
        if patched.body is not None:
            self.body, self.version = patched.body, bodies.get_version(patched.body)
        return None if patched.refusal is None else _Refusal(patched.refusal, step)

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
        holding, finalizer = self._changes.holding, self.context.settings.persistence.finalizer
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
        return _hold(made, holding, finalizer)

    def _complain(self, fn: patches.AnyPatchFn, text: str, error: Exception) -> None:
        if fn not in self._failed:
            self._failed.append(fn)
            self.logger.error(text, error, exc_info=error)

    def _verify(self, merge: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        mismatches = find_mismatches(merge, body)
        if mismatches:
            self.logger.warning(
                'Patching was accepted, but not done as asked, in: %s. Does the schema of the '
                'resource have these fields, or does anything else change them?',
                ', '.join(mismatches),
            )

    def _log(self, step: patching.Step, content: object, outline: list[str]) -> None:
        """Log the changes to send; only their outline for Secrets."""
        way = 'JSON' if step in sequences.AMENDMENTS.values() else 'Merge'
        place = (
            'status'
            if step in (patching.Step.MERGE_STATUS, patching.Step.AMEND_STATUS)
            else 'resource'
        )
        self.logger.debug(
            '%s-patching the %s with: %r', way, place, outline if self._is_secret else content
        )

    @property
    def _is_secret(self) -> bool:
        return references.is_secret(self.target.resource)


def prune(merge: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Keep only the difference from the object: equal values need no request."""
    pruned: dict[str, Any] = {}
    for key, value in merge.items():
        present = body.get(key)
        if dicts.is_mapping(value) and dicts.is_mapping(present):
            nested = prune(value, present)
            if nested:
                pruned[key] = nested
        elif dicts.is_mapping(value):
            cleaned = _without_removals(value)
            if cleaned or (present is not None and not dicts.is_mapping(present)) or not value:
                pruned[key] = cleaned
        elif not dicts.is_same(value, present):
            pruned[key] = dicts.plain(value)
    return pruned


def find_mismatches(merge: Mapping[str, Any], body: Mapping[str, Any], path: str = '') -> list[str]:
    """List the fields that differ from the requested values: dropped or changed by the cluster."""
    found: list[str] = []
    for key, value in merge.items():
        field = f'{path}.{key}' if path else key
        present = body.get(key)
        if dicts.is_mapping(value):
            found.extend(
                find_mismatches(value, present if dicts.is_mapping(present) else {}, field)
            )
        elif not dicts.is_same(value, present) and not (
            field in EMPTIED and not value and not present
        ):
            found.append(field)
    return found


def _hold(body: Mapping[str, Any], holding: Holding, finalizer: str) -> Mapping[str, Any]:
    """Return the object with or without the finalizer; the rest of it is shared, not copied."""
    if holding is Holding.KEEP:
        return body
    held = cast(bodies.RawBody, {**body, 'metadata': dict(body['metadata'])})
    if holding is Holding.BLOCK:
        finalizers.block_deletion(held, finalizer=finalizer)
    else:
        finalizers.allow_deletion(held, finalizer=finalizer)
    return held


def _without_removals(merge: Mapping[str, Any]) -> dict[str, Any]:
    """
    Keep only the values to set: there is nothing to remove from a mapping that does not exist.
    """
    cleaned: dict[str, Any] = {}
    for key, value in merge.items():
        nested = _without_removals(value) if dicts.is_mapping(value) else dicts.plain(value)
        if nested is not None and (nested or not dicts.is_mapping(value) or not value):
            cleaned[key] = nested
    return cleaned


def _subtract(patch: patches.Patch, sent: Mapping[str, Any]) -> patches.Patch:
    """Keep only the unsent top-level fields: they are sent as a whole."""
    if not sent:
        return patch
    return patches.Patch(
        {key: value for key, value in patch.items() if key not in sent}, fns=patch.fns
    )
