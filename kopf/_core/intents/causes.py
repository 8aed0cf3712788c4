"""
Causes: why handlers are due now, with the arguments for them.

A cause is detected once, and does not change. Its ``kwargs`` are the arguments of handlers and
filters, except for those specific to a handler or an attempt. Indices come last, so they override
other names.
"""

import dataclasses
import enum
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kopf._cogs.helpers import aliases, lazies
from kopf._cogs.structs import (
    bodies,
    concealments,
    dicts,
    diffs,
    objects,
    patches,
    references,
    reviews,
    selectors,
)
from kopf._core.intents import reasons, stoppers

if TYPE_CHECKING:
    from kopf._cogs.configs import settings as settings_

Logger = logging.Logger | logging.LoggerAdapter[Any]
"""The types of loggers for handlers."""

Selectors: TypeAlias = Collection[selectors.Selector]


class Activity(enum.StrEnum):
    """The activities of an operator that are not related to objects."""

    STARTUP = 'startup'
    CLEANUP = 'cleanup'
    AUTHENTICATION = 'authentication'
    PROBE = 'probe'
    PROMOTION = 'promotion'
    DEMOTION = 'demotion'


class WebhookType(enum.StrEnum):
    """The permitted effect of an admission handler on the object."""

    VALIDATING = 'validating'
    MUTATING = 'mutating'


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cause:
    """A reason to call handlers of any kind."""

    logger: Logger
    memo: Any
    indices: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @lazies.lazy
    def kwargs(self) -> Mapping[str, Any]:
        """The arguments of the handlers and the filters."""
        return {**self._own_kwargs(), **self.indices}

    def _own_kwargs(self) -> dict[str, Any]:
        return {'logger': self.logger, 'memo': self.memo}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ActivityCause(Cause):
    """The operator starts, ends, logs in, or is probed."""

    activity: Activity
    settings: 'settings_.OperatorSettings'

    def _own_kwargs(self) -> dict[str, Any]:
        return {**super()._own_kwargs(), 'activity': self.activity, 'settings': self.settings}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ResourceCause(Cause):
    """
    A cause related to an object.

    With ``selectors``, only their handlers are for this resource, e.g. because other resources have
    the same names. Without them, each selector matches on its own.
    """

    resource: references.Resource
    body: objects.Body
    patch: patches.Patch
    selectors: Selectors | None = None

    def _own_kwargs(self) -> dict[str, Any]:
        meta = self.body.metadata
        return {
            **super()._own_kwargs(),
            'resource': self.resource,
            'patch': self.patch,
            'body': self.body,
            'spec': self.body.spec,
            'status': self.body.status,
            'meta': meta,
            'labels': meta.labels,
            'annotations': meta.annotations,
            'uid': meta.uid,
            'name': meta.name,
            'namespace': meta.namespace,
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WatchingCause(ResourceCause):
    """An event of any type was received from the stream."""

    event: bodies.RawEvent

    def _own_kwargs(self) -> dict[str, Any]:
        is_secret = references.is_secret(self.resource)
        event = concealments.conceal_event(self.event) if is_secret else self.event
        return {**super()._own_kwargs(), 'event': event, 'type': event['type']}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class IndexingCause(ResourceCause):
    """An object must be indexed or re-indexed."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SpawningCause(ResourceCause):
    """
    An object may need its daemons and timers, or they are running.

    The stop-flag is that of the daemon; while it is not running yet, the flag is never set.
    """

    stopped: stoppers.DaemonStopped = dataclasses.field(
        default_factory=lambda: stoppers.SyncDaemonStopped(stoppers.DaemonStopper())
    )

    def _own_kwargs(self) -> dict[str, Any]:
        return {**super()._own_kwargs(), 'stopped': self.stopped}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReconcilingCause(ResourceCause):
    """An object must be brought to its desired state, whatever has happened."""

    deleting: bool = False
    triggers: frozenset[str] = frozenset()
    owned: Any = None
    related: Any = None

    def _own_kwargs(self) -> dict[str, Any]:
        return {
            **super()._own_kwargs(),
            'deleting': self.deleting,
            'triggers': self.triggers,
            'owned': self.owned,
            'related': self.related,
        }


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ComparingCause(ResourceCause):
    """An object has two states: the past and the present one. Either can be absent."""

    old: Any = None
    new: Any = None
    diff: diffs.Diff = diffs.EMPTY

    def _own_kwargs(self) -> dict[str, Any]:
        states: dict[str, Any] = {'old': self.old, 'new': self.new, 'diff': self.diff}
        if references.is_secret(self.resource):
            states = conceal_states(**states)
        return {**super()._own_kwargs(), **states}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ChangingCause(ComparingCause):
    """
    An object has changed, or is seen for the first time since the operator started (``initial``).

    The states are the essences: the last handled one, if any, and the current one.
    """

    reason: reasons.Reason
    initial: bool = False

    @property
    def is_deletion(self) -> bool:
        """Whether the object is being deleted."""
        return (
            self.reason is reasons.Reason.DELETE
            or self.body.metadata.deletion_timestamp is not None
        )

    def _own_kwargs(self) -> dict[str, Any]:
        return {**super()._own_kwargs(), 'reason': self.reason}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WebhookCause(ComparingCause):
    """
    A request to the API is under review. The states are the bodies before and after the request.
    """

    dryrun: bool
    operation: reviews.Operation | None = None
    subresource: str | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    userinfo: reviews.UserInfo
    # Can contain credentials.
    headers: reviews.Headers = dataclasses.field(default_factory=dict, repr=False)
    sslpeer: reviews.SSLPeer = dataclasses.field(default_factory=dict)

    def _own_kwargs(self) -> dict[str, Any]:
        return {
            **super()._own_kwargs(),
            'dryrun': self.dryrun,
            'operation': self.operation,
            'subresource': self.subresource,
            'warnings': self.warnings,
            'userinfo': self.userinfo,
            'headers': self.headers,
            'sslpeer': self.sslpeer,
        }


def is_deletion(cause: Cause) -> bool:
    """Return whether a function is called for an object that is being deleted."""
    match cause:
        case ChangingCause():
            return cause.is_deletion
        case ReconcilingCause():
            return cause.deleting
    return False


def conceal_states(
    old: Any, new: Any, diff: diffs.Diff, field: dicts.FieldPath | None = None
) -> dict[str, Any]:
    """Return the same kwargs with masked representations, for Secrets."""
    return {
        'old': concealments.conceal_state(old, field),
        'new': concealments.conceal_state(new, field),
        'diff': concealments.conceal_diff(diff),
    }


def as_deletion(cause: ChangingCause) -> ChangingCause:
    """Return the same cause as if the object were deleted in its current state."""
    return (
        cause
        if cause.reason is reasons.Reason.DELETE
        else dataclasses.replace(cause, reason=reasons.Reason.DELETE)
    )


if not TYPE_CHECKING:  # otherwise, any misspelt name would pass the type checks
    __getattr__ = aliases.build_getattr(__name__)
