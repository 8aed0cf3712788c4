"""
Recording: what to store on an object after its handlers are called, and what to remember.

Pure: the records are merge-patches, made by the storages for the known body. Nothing is sent from
here.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kopf._cogs.clients.patching import application
from kopf._cogs.configs import conventions
from kopf._cogs.structs import dicts, ids, patches
from kopf._core.actions import lifecycles, progression
from kopf._core.intents import reasons
from kopf._core.reactor import cycles, decisions, inventory, views

Reason = reasons.Reason

TWINS_PERIOD = 60.0
"""
Seconds between the checks while other versions of the resource hold the object: they can be gone.
"""


@dataclasses.dataclass(frozen=True)
class Records:
    """The changes to store on the object, and the memory to keep."""

    cycle: inventory.CycleMemory
    own: patches.Patch = dataclasses.field(default_factory=patches.Patch)
    holding: application.Holding = application.Holding.KEEP
    delay: float | None = None  # seconds until there is something to do; None if there is nothing
    is_over: bool = False  # whether a cycle has ended
    is_rested: bool = False  # whether the object is recorded as is, with nothing left to do


def record(view: views.View, run: decisions.Run, ran: decisions.Ran) -> Records:
    """Record the outcomes as progress if anything is left to do, else as the last handled state."""
    if run.cause.reason is Reason.DELETE:
        return _record_deletion(view, run, ran)

    conclusion = cycles.Conclusion(handled=view.seen)
    if run.cause.reason is not Reason.NOOP:
        conclusion = cycles.conclude(
            ran.state,
            run.list_mandatory(ran.state),
            view.seen,
            run.base,
            reason=run.cause.reason,
        )

    if conclusion.kept and run.cause.reason is not Reason.UPDATE and view.roster.shared_ids:
        kept = frozenset(id for id in conclusion.kept if not view.roster.is_shared(id))
        conclusion = dataclasses.replace(
            conclusion, kept=kept, base=conclusion.base if kept else None
        )

    if conclusion.handled is None or ran.is_interrupted:
        return _record_progress(view, run, ran, conclusion.base)

    waiting = [id for id in run.resuming if not _is_finished(ran.state, id)]
    own, base = _record_end(view, ran.state, conclusion, waiting)
    if waiting:
        handled = _choose_handled(view, conclusion)
        cycle = dataclasses.replace(
            view.cycle, own=None, base=base, resumed=_list_resumed(view, ran), handled=handled
        )
        return Records(
            cycle, own, run.holding, ran.state.delay(waiting, view.site.now()), is_over=True
        )

    cycle = inventory.CycleMemory(
        version=view.cycle.version,
        is_released=view.cycle.is_released,
        base=base,
        handled=_choose_handled(view, conclusion),
    )
    is_rested = run.holding is application.Holding.KEEP and conclusion == cycles.Conclusion(
        view.seen
    )
    return Records(cycle, own, run.holding, is_over=True, is_rested=is_rested)


def finish(
    view: views.View,
    state: progression.State,
    conclusion: cycles.Conclusion,
    *,
    holding: application.Holding = application.Holding.KEEP,
) -> Records:
    """Record the last handled state when no handlers were called."""
    own, base = _record_end(view, state, conclusion, ())
    cycle = dataclasses.replace(
        view.cycle, own=None, base=base, handled=_choose_handled(view, conclusion)
    )
    return Records(cycle, own, holding, is_over=True)


def _choose_handled(view: views.View, conclusion: cycles.Conclusion) -> cycles.Essence | None:
    """
    Choose the last handled state of this version of the resource, if several are served.

    The record on the object is shared by all versions: a change handled under one version is not
    handled under the others, and looks different there if the server converts the objects.
    """
    return conclusion.handled if view.has_versions else None


def _record_end(
    view: views.View,
    state: progression.State,
    conclusion: cycles.Conclusion,
    waiting: Collection[ids.HandlerId],
) -> tuple[patches.Patch, cycles.Essence | None]:
    """
    Record the last handled state and remove the progress.

    Returns the records, and the base if it is too big to be recorded.
    """
    assert conclusion.handled is not None
    own = patches.Patch()
    base = conclusion.base
    is_fit = base is not None and _is_fit(base)
    if base is not None and is_fit:
        state = _record_base(view, state, base, own, purpose=Reason.UPDATE, among=conclusion.kept)
    purge(view, state, own, left=_build_remains(state, conclusion.kept, waiting), has_base=is_fit)
    storage = view.persistence.diffbase_storage
    handled = conclusion.handled

    if handled is view.seen and handled.is_plain and conventions.is_ours(storage):
        storage._store_text(body=view.stored, patch=own, essence=view.new, text=handled.text)
    else:
        storage.store(body=view.stored, patch=own, essence=handled.value)

    return own, None if is_fit else base


def _record_progress(
    view: views.View, run: decisions.Run, ran: decisions.Ran, base: cycles.Essence | None
) -> Records:
    own = patches.Patch()
    state = ran.state
    is_fit = False

    if base is not None and _is_fit(base):
        is_fit = True
        state = _record_base(view, state, base, own, purpose=run.cause.reason)

    state.store(view.persistence.progress_storage, view.stored, own)
    resumed = _list_resumed(view, ran) if view.cycle.is_initial else inventory.NOBODY
    cycle = dataclasses.replace(
        view.cycle, resumed=resumed, own=None, base=None if is_fit else base
    )

    return Records(cycle, own, run.holding, _measure_delay(view, run, ran))


def _record_deletion(view: views.View, run: decisions.Run, ran: decisions.Ran) -> Records:
    """
    Record the progress of a deletion; release the object when its handlers and daemons have ended.
    """
    own = patches.Patch()
    delay = _measure_delay(view, run, ran)
    if delay is not None or view.is_held or ran.is_interrupted:
        ran.state.store(view.persistence.progress_storage, view.stored, own)
        return Records(view.cycle, own, delay=delay)

    return release(view, ran.state)


def release(view: views.View, state: progression.State) -> Records:
    """Release the object; if it has other finalizers, remove all our records from it."""
    own = patches.Patch()
    if view.is_held_by_twins:
        state.store(view.persistence.progress_storage, view.stored, own)
        return Records(dataclasses.replace(view.cycle, is_released=True), own, delay=TWINS_PERIOD)

    if len(dicts.resolve(view.raw, ('metadata', 'finalizers')) or ()) > 1:
        purge(view, state, own)
    cycle = dataclasses.replace(view.cycle, is_released=True)
    return Records(cycle, own, application.Holding.ALLOW)


def purge(
    view: views.View,
    state: progression.State,
    own: patches.Patch,
    *,
    left: Mapping[ids.HandlerId, progression.HandlerState] | None = None,
    has_base: bool = False,
) -> None:
    """
    Remove the progress of all handlers except for the ``left`` ones, whose records are replaced.
    """
    left = left or {}
    storage = view.persistence.progress_storage
    body = view.stored

    if not view.is_blank:
        kept = {*left, cycles.BASE_ID} if has_base else left.keys()
        _remove(
            view, [id for id in (*state, *state.foreign, cycles.BASE_ID) if id not in kept], own
        )

    for id in sorted(left):
        storage.store(key=id, record=left[id].as_record(), body=body, patch=own)


def _remove(view: views.View, stale: Iterable[ids.HandlerId], own: patches.Patch) -> None:
    storage = view.persistence.progress_storage
    body = view.stored
    # Our storages also remove unreadable records; custom storages may fail on them.
    is_careful = conventions.is_custom(storage)
    for id in dict.fromkeys(stale):
        if not is_careful or storage.fetch(key=id, body=body) is not None:
            storage.purge(key=id, body=body, patch=own)


def compose(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Compose one merge-patch of two, with the same effect as applying them one after another."""
    composed = dict(earlier)
    for key, value in later.items():
        present = composed.get(key)
        if dicts.is_mapping(present) and dicts.is_mapping(value):
            composed[key] = compose(present, value)
        else:
            composed[key] = value

    return composed


def _build_remains(
    state: progression.State,
    kept: frozenset[ids.HandlerId],
    waiting: Collection[ids.HandlerId],
) -> dict[ids.HandlerId, progression.HandlerState]:
    """
    Build the progress that stays for the next cycles.

    The kept handlers need no call for the rest of the change; their parents must be able to find
    them. The waiting handlers continue independently of the next cycles.
    """
    if not kept and not waiting:
        return {}

    purpose = Reason.UPDATE.value
    parents = {id for id in state if id not in kept and state.subrefs_of(id) & kept}
    remains = {id: dataclasses.replace(state[id], purpose=purpose) for id in kept}

    for id in parents:
        subrefs = state.subrefs_of(id) & (kept | parents)
        remains[id] = progression.HandlerState(purpose=purpose, subrefs=subrefs)

    for id in _with_subrefs(state, waiting):
        if state.get(id, progression.BLANK) != progression.BLANK:
            remains[id] = dataclasses.replace(state[id], purpose=None)

    return remains


def _with_subrefs(
    state: progression.State, handlers: Iterable[ids.HandlerId]
) -> set[ids.HandlerId]:
    found = set(handlers)
    for id in tuple(found):
        found |= state.subrefs_of(id)
    return found - {cycles.BASE_ID}


def _record_base(
    view: views.View,
    state: progression.State,
    base: cycles.Essence,
    own: patches.Patch,
    *,
    purpose: Reason,
    among: Collection[ids.HandlerId] | None = None,
) -> progression.State:
    """
    Record the base as a sub-handler: any operator that ends the cycle removes it with its parent.
    """
    part = progression.HandlerState(purpose=purpose.value, success=True, message=base.text)
    view.persistence.progress_storage.store(
        key=cycles.BASE_ID, record=part.as_record(), body=view.stored, patch=own
    )
    tried = [
        id
        for id, state_ in state.items()
        if state_.retries and (among is None or id in among) and id != cycles.BASE_ID
    ]
    children = {subref for state_ in state.values() for subref in state_.subrefs}
    owner = min(tried, key=lambda id: (id in children, not state[id].finished), default=None)

    return state if owner is None else state.referring(owner, cycles.BASE_ID)


def _is_fit(base: cycles.Essence) -> bool:
    return len(base.text) <= cycles.BASE_LIMIT


def _is_finished(state: progression.State, id: ids.HandlerId) -> bool:
    return state.get(id, progression.BLANK).finished


def _list_resumed(view: views.View, ran: decisions.Ran) -> frozenset[ids.HandlerId]:
    return view.cycle.resumed | ran.finished


def _measure_delay(view: views.View, run: decisions.Run, ran: decisions.Ran) -> float | None:
    """Return the seconds until there is something to do; ``None`` if everything is done."""
    delay = ran.state.delay(run.ids, view.site.now())
    return lifecycles.IDLE_DELAY if delay == 0 and ran.is_idle else delay
