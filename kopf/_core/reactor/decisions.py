"""
Decisions: what to do for an object in its current state, and what follows from the results.

Pure: nothing is called, sent or awaited here, except for the users' filters and storages. No other
module decides whether there is anything to do. The effect of our changes is taken from the
responses of the server.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from kopf._cogs.clients.patching import application
from kopf._cogs.helpers import lazies
from kopf._cogs.structs import dicts, finalizers, ids, objects, patches
from kopf._core.actions import outcomes, progression
from kopf._core.engines.reconciling import levels
from kopf._core.intents import causes, filters, handlers, reasons
from kopf._core.reactor import cycles, inventory, views

Reason = reasons.Reason


@dataclasses.dataclass(frozen=True)
class Dismiss:
    """There is nothing to do until the object changes."""

    # Whether the object was examined for the first time since the start and needs no resuming.
    is_resumed: bool = False
    is_in_scope: bool = True  # whether any handler is interested in it


@dataclasses.dataclass(frozen=True)
class Wait:
    """The remaining handlers are scheduled for later."""

    delay: float  # seconds


@dataclasses.dataclass(frozen=True)
class Send:
    """There are no handlers to call, but there are changes to send, at least the finalizer."""

    holding: application.Holding = application.Holding.KEEP
    delay: float | None = None  # seconds until the remaining handlers are due, if there are any


@dataclasses.dataclass(frozen=True)
class Record:
    """There are no handlers to call, but a reverted change is recorded as handled."""

    state: progression.State
    handled: cycles.Essence
    holding: application.Holding = application.Holding.KEEP


@dataclasses.dataclass(frozen=True)
class Run:
    """The handlers to call for this cause, if they are due."""

    cause: causes.ChangingCause
    selected: Sequence[handlers.ChangingHandler]
    state: progression.State
    base: cycles.Essence | None = None
    holding: application.Holding = application.Holding.KEEP
    # The handlers that do not hold up the end of the cycle.
    resuming: frozenset[ids.HandlerId] = inventory.NOBODY

    def list_mandatory(self, state: progression.State) -> list[ids.HandlerId]:
        """
        List the handlers that must finish before the cycle ends: all but the retried resuming ones.
        """
        if not self.resuming:
            return self.ids
        return [id for id in self.ids if id not in self.resuming or not state.is_retried(id)]

    @lazies.lazy
    def ids(self) -> list[ids.HandlerId]:
        return [handler.id for handler in self.selected]


@dataclasses.dataclass(frozen=True)
class Release:
    """All handlers of the deletion are finished: the object may be deleted."""


@dataclasses.dataclass(frozen=True)
class Await:
    """The handlers wait until our own changes come back from the watch-stream."""


Change: TypeAlias = Dismiss | Wait | Send | Record | Run | Release | Await
DISMISS = Dismiss()
RESUMED = Dismiss(is_resumed=True)
IGNORE = Dismiss(is_in_scope=False)
AWAIT = Await()
KEEP = application.Holding.KEEP


@dataclasses.dataclass(frozen=True)
class Reconcile:
    """
    The level-triggered handlers are due, in addition to what to do for the change of the object.
    """

    change: Change
    called: Sequence[handlers.ReconcileHandler] = ()
    # Those that are not for the object as it is now.
    skipped: Sequence[handlers.ReconcileHandler] = ()
    # Those that wait until the deletion is blocked, or until the related objects are known.
    held: Sequence[handlers.ReconcileHandler] = ()


Plan: TypeAlias = Change | Reconcile


def decide(view: views.View, *, is_concerned: bool = True) -> Plan:
    """
    Decide what to do for the object. Raises the errors of the filters and the storages.

    Changes and levels are independent: neither waits for the other. If the object does not concern
    the handlers of changes, daemons and timers, only the levels matter, and the changes to send.
    """
    due = [
        handler
        for handler in view.reconcilers
        if levels.list_due(view.get_level(handler), view.moment.now)
    ]
    change = decide_change(view) if is_concerned else _send_if_any(view, KEEP, otherwise=IGNORE)
    if not due or not view.moment.is_certain:
        return change
    return _decide_levels(view, change, due)


def _decide_levels(
    view: views.View, change: Change, due: Sequence[handlers.ReconcileHandler]
) -> Reconcile:
    is_deleted = finalizers.is_deletion_ongoing(view.raw)
    called = []
    skipped = []
    held = []

    for handler in due:
        is_over = is_deleted and (
            not handler.deletion or not view.is_blocked or view.get_level(handler).is_finished
        )
        if is_over or not view.is_reconcilable(handler):
            skipped.append(handler)
        elif is_early(view, handler, is_synced=view.moment.is_synced):
            held.append(handler)
        else:
            called.append(handler)

    return Reconcile(change, called, skipped, held)


def is_early(view: views.View, handler: handlers.ReconcileHandler, *, is_synced: bool) -> bool:
    """Return whether the handler must wait for the finalizer, or for its related objects."""
    if handler.links and not is_synced:
        return True
    return handler.deletion and not view.is_blocked


def decide_change(view: views.View) -> Change:
    """Decide what to do for the change of the object, regardless of the levels."""
    if view.moment.is_awaiting:
        return AWAIT
    if view.outbox is not None and (view.outbox.patch or view.outbox.fns) and not view.is_refused:
        return Send()
    if finalizers.is_deletion_ongoing(view.raw):
        return _decide_deletion(view)
    if not view.is_blocked and view.is_surely_needed:
        return Send(application.Holding.BLOCK)

    holding = _choose_holding(view)
    if holding is application.Holding.BLOCK:
        return Send(holding)
    if not view.registry.is_in_scope(view.cause):
        return _send_if_any(view, holding, otherwise=IGNORE)
    return _decide_change(view, holding)


def _choose_holding(view: views.View) -> application.Holding:
    """Decide the same for the object, but keep the finalizer that others may need."""
    is_needed = view.is_surely_needed or view.registry.requires_finalizer(view.cause)
    holding = decide_holding(is_needed=is_needed, is_blocked=view.is_blocked)
    if holding is application.Holding.ALLOW and (not view.is_ours or view.is_needed_by_twins):
        return application.Holding.KEEP
    return holding


def decide_holding(*, is_needed: bool, is_blocked: bool) -> application.Holding:
    """Decide whether to add or remove our finalizer on an object that is not being deleted."""
    if is_needed and not is_blocked:
        return application.Holding.BLOCK
    if is_blocked and not is_needed:
        return application.Holding.ALLOW
    return application.Holding.KEEP


def _decide_deletion(view: views.View) -> Change:
    if not view.is_blocked or not view.is_ours:
        return _send_if_any(view, application.Holding.KEEP, otherwise=IGNORE)
    if view.cycle.is_released:
        return _send_if_any(view, application.Holding.KEEP) if view.is_held else Release()

    selected = _select(view)
    if not selected and not view.is_held and not view.has_changes:
        return Release()
    return Run(view.isolate(), selected, view.state)


def _decide_change(view: views.View, holding: application.Holding) -> Change:
    cause = view.cause
    state = view.state
    is_begun = state.is_begun or view.cycle.own is not None
    if cause.reason is Reason.NOOP and not is_begun:
        return _send_if_any(view, holding)

    if cycles.is_taken_back(cause.reason, view.seen, view.base):
        assert view.base is not None
        return Record(state, view.base, holding)

    if view.base is None or view.base == view.seen:
        state = state.forgetting(cycles.find_outdated(state, view.seen))

    selected = _select(view)
    resuming = _find_resuming(view, selected)
    if (
        cause.reason is Reason.RESUME
        and not selected
        and not is_begun
        and not _has_to_send(view, holding)
    ):
        return RESUMED
    return _wait_if_early(view, Run(view.isolate(), selected, state, view.base, holding, resuming))


def _wait_if_early(view: views.View, run: Run) -> Change:
    """Wait if all remaining handlers are for later and there is nothing to record."""
    if not run.state.is_begun:
        return run

    now = view.site.now()
    delay = run.state.delay(run.ids, now)
    if (
        not delay
        or run.state.foreign
        or view.cycle.own is not None
        or _has_to_send(view, run.holding)
    ):
        return run

    mandatory = run.list_mandatory(run.state)
    is_unfinished = run.state.delay(mandatory or run.ids, now) is not None
    return Wait(delay) if is_unfinished else run


def _select(view: views.View) -> list[handlers.ChangingHandler]:
    resumed = view.cycle.resumed
    return view.registry.iter_handlers(
        view.cause, skip=lambda handler: handler.initial and handler.id in resumed
    )


def _find_resuming(
    view: views.View, selected: Sequence[handlers.ChangingHandler]
) -> frozenset[ids.HandlerId]:
    """Find the handlers that are called only because the operator has started."""
    initial = {handler.id for handler in selected if handler.initial}
    if not initial or view.cause.reason is Reason.RESUME:
        return inventory.NOBODY
    for handler in view.roster.members:
        if handler.id in initial and not handler.initial and filters.match(handler, view.cause):
            initial.discard(handler.id)

    return frozenset(initial)


def _has_to_send(view: views.View, holding: application.Holding) -> bool:
    return holding is not application.Holding.KEEP or view.has_changes


def _send_if_any(
    view: views.View, holding: application.Holding, *, otherwise: Dismiss = DISMISS
) -> Change:
    return Send(holding) if _has_to_send(view, holding) else otherwise


# The consequences.


@dataclasses.dataclass(frozen=True)
class Ran:
    """The results of a run: the progress including the outcomes."""

    state: progression.State
    results: Mapping[ids.HandlerId, outcomes.Outcome]
    is_idle: bool = False  # whether the lifecycle has selected no handlers, though some were due
    is_interrupted: bool = False

    @property
    def finished(self) -> frozenset[ids.HandlerId]:
        return frozenset(id for id, outcome in self.results.items() if outcome.final)


def find_own(
    view: views.View, makers: Collection[ids.HandlerId], applied: application.Applied
) -> inventory.Own | None:
    """
    Find the effect of the handlers' own changes in the response of the server.

    Returns ``None`` if they changed nothing essential, or if another writer could have changed the
    object in the meantime: then the handlers are called for the result as for any other change.
    """
    if not makers or applied.body is None:
        return None

    after = view.take_essence(applied.body)
    if after == view.seen:
        return None
    if any(is_essential(view, drift) for drift in applied.drifts):
        return None
    return inventory.Own(frozenset(makers), view.seen, after)


def is_essential(view: views.View, drift: application.Drift) -> bool:
    """Return whether the essence of the object has changed."""
    return view.take_essence(drift.before) != view.take_essence(drift.after)


def is_rested(view: views.View, own: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """
    Return whether there is certainly nothing to do after a cycle: only its records were added.

    In case of doubt, return false, so that the usual decision is made: for example, if the need for
    the finalizer depends on anything besides the object.
    """
    is_volatile = view.roster.may_hold and not view.is_surely_needed
    if is_volatile:
        return False

    ours = dicts.resolve_mapping(own, ('metadata', 'annotations'))
    return len(own) == 1 and cycles.is_only_annotated(view.raw, answer, ours.keys())


@dataclasses.dataclass(frozen=True)
class Sent:
    """The changes sent for a view, and the handlers that made them."""

    own: Mapping[str, Any]  # our records
    # The handlers that have finished with the essence they were called with.
    makers: frozenset[ids.HandlerId] = inventory.NOBODY
    has_users: bool = False  # whether there were any changes made by users' functions
    is_last: bool = False  # whether these are only the records of a cycle with nothing left to do


def conclude(
    view: views.View, cycle: inventory.CycleMemory, sent: Sent, applied: application.Applied
) -> tuple[inventory.CycleMemory, inventory.Outbox | None]:
    """
    Decide what to remember of the object and what remains to be sent, by the server's responses.
    """
    own = find_own(view, sent.makers, applied) if sent.has_users else None
    is_settled = (
        sent.is_last and applied.body is not None and is_rested(view, sent.own, applied.body)
    )
    concluded = cycle.at(applied.version or view.version, own, is_settled=is_settled)

    return concluded, _decide_outbox(view, sent, applied, concluded.version)


def _decide_outbox(
    view: views.View, sent: Sent, applied: application.Applied, version: str | None
) -> inventory.Outbox | None:
    """Decide what remains to be sent, and for which version the patch functions are refused."""
    if applied.is_gone:
        return None

    records = applied.own
    if applied.is_refused and not applied.fns:
        records = sent.own
    if applied.unsent or applied.fns or records:
        outbox = build_outbox(view, sent, applied.unsent, applied.fns, records)
        is_in_vain = applied.is_refused and bool(applied.fns)
        return dataclasses.replace(outbox, refused=version) if is_in_vain else outbox

    if view.is_refused and view.outbox is not None:
        return dataclasses.replace(view.outbox, refused=version)
    return None


def build_outbox(
    view: views.View,
    sent: Sent,
    patch: Mapping[str, Any],
    fns: tuple[patches.AnyPatchFn, ...],
    own: Mapping[str, Any],
) -> inventory.Outbox:
    """
    Keep the changes that could not be sent. Our records count as stored unless others store theirs.
    """
    recorded = view.persistence.diffbase_storage.fetch(body=objects.Body(view.raw))
    return inventory.Outbox(
        patch=dict(patch),
        fns=fns,
        own=dict(own),
        recorded=views.digest(recorded),
        makers=sent.makers,
        seen=view.seen if sent.makers else None,
    )
