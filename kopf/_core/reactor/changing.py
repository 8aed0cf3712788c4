"""
Changing: the handlers of creation, update, deletion, resuming, called for the freshest state of an object.

Nothing is sent from here: what is to be changed in the object is put into the patches, for the caller to apply.
"""
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kopf._cogs.configs import conventions
from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import bodies, dicts, diffs, finalizers, ids, patches
from kopf._core.actions import application, execution, lifecycles, loggers, outcomes, progression
from kopf._core.intents import causes, handlers
from kopf._core.reactor import cycles, inventory, sites, subhandling


@dataclasses.dataclass(frozen=True)
class Step:
    """How far an object has been handled."""
    holding: application.Holding = application.Holding.KEEP
    delay: float | None = None  # seconds until there is something to do, if nothing happens; None if all is done


@dataclasses.dataclass(frozen=True)
class Work:
    """One object to be handled once."""
    served: sites.Served
    body: bodies.Body  # for handlers, filters and storages
    raw: bodies.RawBody  # the same, for those who look into it often: views are slower
    memory: inventory.Memory
    patch: patches.Patch  # of the users
    own: patches.Patch  # of ours
    selectors: causes.Selectors | None = None  # whose handlers are for the object
    is_accompanied: bool = False  # should daemons or timers live beside the object, or do they still?

    @property
    def site(self) -> sites.Site:
        return self.served.site

    @property
    def is_alive(self) -> bool:
        """Does any daemon or timer live beside the object right now, such as is waited for?"""
        return self.memory.lives is not None and self.memory.lives.is_alive

    @property
    def persistence(self) -> settings_.PersistenceSettings:
        return self.site.settings.persistence


async def change_object(work: Work) -> Step:
    """
    Call the handlers that are due for the object as it is, and tell what is to be done next.

    When cancelled, the handlers that have finished by then are put into the patch; the interrupted one is not.
    Raises whatever filters and storages raise.
    """
    registry = work.site.registry._changing
    is_blocked = finalizers.is_blocked(work.raw, work.persistence.finalizer)
    if not is_blocked and _is_surely_needed(work) and not finalizers.is_deletion_ongoing(work.raw):
        return Step(application.Holding.BLOCK)
    cause = detect_cause(work)
    is_ours = _is_finalizer_ours(work)
    if cause.reason is causes.Reason.FREE or (cause.reason is causes.Reason.DELETE and not is_ours):
        return Step()
    if cause.reason is causes.Reason.DELETE:
        return await _delete(_Cycle(work, cause))
    holding = decide_holding(
        is_needed=work.is_accompanied or registry.requires_finalizer(cause), is_ours=is_ours, is_blocked=is_blocked)
    if holding is application.Holding.BLOCK or not registry.is_in_scope(cause):
        return Step(holding)
    return Step(holding, await _continue(_Cycle(work, cause)))


def is_handled(work: Work) -> bool:
    """
    Tell if the object is exactly as it was handled last time, nothing is in progress, and there is nobody to call.

    It is for objects that existed before the operator. When in doubt, it is not handled.
    Raises whatever filters and storages raise.
    """
    storage, registry = work.persistence.diffbase_storage, work.site.registry._changing
    if conventions.is_custom(storage) or finalizers.is_deletion_ongoing(work.raw):
        return False
    essence = build_essence(work, work.body)
    if not storage._is_stored(body=work.body, essence=essence):
        return False
    cause = _build_cause(work, causes.Reason.RESUME, old=essence, new=essence)
    holding = decide_holding(
        is_needed=registry.requires_finalizer(cause), is_ours=_is_finalizer_ours(work),
        is_blocked=finalizers.is_blocked(work.raw, work.persistence.finalizer))
    if holding is not application.Holding.KEEP or not registry.is_in_scope(cause) or registry.iter_handlers(cause):
        return False
    return not _read_state(work, cause.reason).is_begun


def _is_surely_needed(work: Work) -> bool:
    """Tell if the finalizer is needed, whatever has happened to the object."""
    return work.is_accompanied or work.site.registry._changing.surely_requires_finalizer(
        work.served.resource, work.selectors)


def _is_finalizer_ours(work: Work) -> bool:
    """Tell if the objects of the resource can have our finalizer at all."""
    registry = work.site.registry
    return (registry._changing.may_require_finalizer(work.served.resource, work.selectors) or
            registry._spawning.has_handlers(work.served.resource, work.selectors))


def _read_state(work: Work, reason: causes.Reason) -> progression.State:
    """Read the progress of all handlers of the resource, be they selected now or not."""
    known = dict.fromkeys(handler.id for handler in work.site.registry._changing.select(
        work.served.resource, work.selectors))
    return progression.State.read(work.persistence.progress_storage, work.body, known, purpose=reason.value)


def decide_holding(*, is_needed: bool, is_blocked: bool, is_ours: bool) -> application.Holding:
    """Decide what to do to the finalizer of an object that is not being deleted."""
    if is_needed and not is_blocked:
        return application.Holding.BLOCK
    if is_blocked and not is_needed and is_ours:
        return application.Holding.ALLOW
    return application.Holding.KEEP


def detect_cause(work: Work) -> causes.ChangingCause:
    """Compare the object with its last handled state, and tell what it means."""
    old, new = compare(work)
    old = _recall_handled(work, old, new)
    diff = diffs.diff(old, new)
    reason = cycles.detect_reason(
        work.raw, finalizer=work.persistence.finalizer,
        is_new=old is None, is_changed=bool(diff), is_initial=work.memory.is_initial)
    return _build_cause(work, reason, old=old, new=new, diff=diff)


def _recall_handled(work: Work, old: bodies.BodyEssence | None, new: bodies.BodyEssence) -> bodies.BodyEssence | None:
    """Get the last handled state as it is in fact, if it could not be recorded, and the object has changed since."""
    memory = work.memory
    if memory.unrecorded is not None and memory.unrecorded.old != old:
        memory.unrecorded = None  # something else was recorded meanwhile, e.g. by another operator
    if memory.unrecorded is None or not memory.unrecorded.is_complete:
        return old
    handled = memory.unrecorded.essence.value
    return old if handled == new else handled


def _build_cause(work: Work, reason: causes.Reason, *, old: bodies.BodyEssence | None, new: bodies.BodyEssence,
                 diff: diffs.Diff = diffs.EMPTY) -> causes.ChangingCause:
    return causes.ChangingCause(
        logger=loggers.ObjectLogger(body=work.raw, settings=work.site.settings),
        memo=work.memory.memo, indices=work.site.indices, resource=work.served.resource,
        selectors=work.selectors, body=work.body, patch=work.patch,
        old=old, new=new, diff=diff, reason=reason, initial=work.memory.is_initial)


def compare(work: Work) -> tuple[bodies.BodyEssence | None, bodies.BodyEssence]:
    """Get the last handled state of the object, if there is any, and the current one."""
    old = work.persistence.diffbase_storage.fetch(body=work.body)
    return None if old is None else _clear(work, old), build_essence(work, work.body)


def build_essence(work: Work, body: bodies.Body) -> bodies.BodyEssence:
    """Take the part of the object whose changes matter to the handlers of its resource."""
    fields = work.site.registry._changing.get_extra_fields(work.served.resource, work.selectors)
    return _clear(work, work.persistence.diffbase_storage.build(body=body, extra_fields=fields))


def _clear(work: Work, essence: bodies.BodyEssence) -> bodies.BodyEssence:
    """Remove the progress; the users' own storages may do it in place, ours never do."""
    storage = work.persistence.progress_storage
    is_safe = not conventions.is_custom(storage)
    return storage.clear(essence=essence if is_safe else conventions.copy_essence(essence, fully=True))


async def _delete(cycle: '_Cycle') -> Step:
    """Call the handlers of deletion; let the object go when they are all finished."""
    memory = cycle.work.memory
    if not memory.is_released:
        await cycle.run()
        delay = cycle.delay
        if delay is not None:
            cycle.save()
            return Step(delay=delay)
    if cycle.work.is_alive:
        cycle.save()  # its daemons are still exiting; it will be handled again when they have
        return Step()
    if len(dicts.resolve(cycle.work.body, ('metadata', 'finalizers')) or ()) > 1:  # it will stay after we are done
        cycle.purge()
    memory.is_released = True  # even if the object changes now, and the finalizer is not removed at once
    return Step(application.Holding.ALLOW)


async def _continue(cycle: '_Cycle') -> float | None:
    """Call the handlers of a change; remember what is handled when they are all finished."""
    work, cause = cycle.work, cycle.cause
    if cause.reason is causes.Reason.NOOP and not cycle.is_begun and cycle.unrecorded is None:
        return None
    base = cycle.read_base() if cycle.is_begun else None
    if base is None and cycle.unrecorded is not None and not cycle.unrecorded.is_complete:
        base = cycle.unrecorded.essence
    if cycles.is_taken_back(cause.reason, cycle.seen, base):
        return cycle.finish(cycles.Conclusion(handled=base))
    if base is None or base == cycle.seen:
        cycle.renew()
    await cycle.run()
    while cause.reason is causes.Reason.RESUME and cycle.is_going_well:
        await cycle.run()
    if cause.reason is causes.Reason.NOOP:
        conclusion = cycles.Conclusion(handled=cycle.seen)
    else:
        view = cycles.View(cycle.seen, cycle.left, base)
        conclusion = cycles.conclude(cycle.state, [handler.id for handler in cycle.selected], view)
    if conclusion.handled is None:
        if conclusion.base is not None:
            cycle.keep_base(conclusion.base)
        cycle.save()
        cycle.save_handled()
        return cycle.delay
    work.memory.is_initial, work.memory.resumed = False, inventory.NOBODY
    return cycle.finish(conclusion)


class _Cycle:
    """
    One entry into a handling cycle: its handlers, with what they have done and have left to do.

    Used by one task. Its state grows with the outcomes.
    """

    def __init__(self, work: Work, cause: causes.ChangingCause) -> None:
        self.work, self.cause = work, cause
        registry, resumed = work.site.registry._changing, work.memory.resumed
        self.selected = registry.iter_handlers(cause, skip=lambda handler: handler.initial and handler.id in resumed)
        self.storage = work.persistence.progress_storage
        self.state = _read_state(work, cause.reason)
        self.unrecorded = work.memory.unrecorded  # since the previous cycles, at the beginning of this one
        self._recorded = cause.old if self.unrecorded is None else self.unrecorded.old
        self._seen: cycles.Essence | None = None  # not taken yet
        self._left: cycles.Essence | None = None  # the same as seen
        self.is_idle = False  # has nobody been called the last time, though some were due?

    @property
    def seen(self) -> cycles.Essence:
        """What the handlers are called with."""
        if self._seen is None:
            self._seen = cycles.seal(self.cause.new)
        return self._seen

    @property
    def left(self) -> cycles.Essence:
        """The same with the changes of the handlers themselves."""
        return self.seen if self._left is None else self._left

    @property
    def is_begun(self) -> bool:
        """Is there any progress of the past, of this cycle or of another one?"""
        return self.state.is_begun

    @property
    def delay(self) -> float | None:
        """How many seconds until there is something to do; ``None`` if all is done."""
        delay = self.state.delay([handler.id for handler in self.selected], self.work.site.now())
        return lifecycles.IDLE_DELAY if delay == 0 and self.is_idle else delay

    @property
    def is_going_well(self) -> bool:
        """Is there something to do right now, with nothing worth saving so far?"""
        is_smooth = all(state.success or not state.retries for state in self.state.values())
        return is_smooth and self.delay == 0

    def renew(self) -> None:
        """Begin anew with those who have finished with another essence: what they have seen last is gone."""
        self.state = self.state.forgetting(cycles.find_outdated(self.state, self.seen))

    async def run(self) -> None:
        """Let the handlers run that are due and chosen by the lifecycle; if interrupted, save what they have done."""
        results: dict[ids.HandlerId, outcomes.Outcome] = {}
        self.is_idle = False
        is_due = self.delay == 0
        try:
            await subhandling.run_handlers(
                self.selected, self.cause, self.state, self._build_environment(), results=results)
        except BaseException:
            self._take(results)
            if self.cause.reason is not causes.Reason.DELETE and any(state.finished for state in self.state.values()):
                self.keep_base(self.left)
            self.save()
            self.save_handled()
            raise
        self.is_idle = is_due and not results
        self._take(results)

    def save(self) -> None:
        """Put the progress into the patch."""
        self.state.store(self.storage, self.work.body, self.work.own)
        self.work.memory.recorded |= frozenset(id for id, state in self.state.items() if state.retries)

    def finish(self, conclusion: cycles.Conclusion) -> float | None:
        """Remember what is handled; tell if there is more to handle right after that."""
        assert conclusion.handled is not None
        has_base = conclusion.base is not None and self.save_base(conclusion.base, kept=conclusion.kept)
        self.purge(kept=conclusion.kept, has_base=has_base)
        storage, work = self.work.persistence.diffbase_storage, self.work
        storage.store(body=work.body, patch=work.own, essence=conclusion.handled.value)
        if work.memory.unrecorded is not None:
            work.memory.unrecorded = inventory.Unrecorded(conclusion.handled, self._recorded, is_complete=True)
        return None if conclusion.handled == self.left else 0

    def purge(self, *, kept: Iterable[ids.HandlerId] = (), has_base: bool = False) -> None:
        """Remove the progress, except for those who are not to be called for what remains of the change."""
        body, own, left = self.work.body, self.work.own, self._build_remains(frozenset(kept))
        is_careful = conventions.is_custom(self.storage)  # ours also remove what cannot be read; users' ones may fail
        stale = dict.fromkeys([*self.state, *self.state.foreign, *self.work.memory.recorded, cycles.BASE_ID])
        for id in [id for id in stale if id not in left and not (has_base and id == cycles.BASE_ID)]:
            if not is_careful or self.storage.fetch(key=id, body=body) is not None:
                self.storage.purge(key=id, body=body, patch=own)
        for id in sorted(left):
            self.storage.store(key=id, record=left[id].as_record(), body=body, patch=own)
        self.work.memory.recorded = frozenset(left) if left else inventory.NOBODY

    def _build_remains(self, kept: frozenset[ids.HandlerId]) -> dict[ids.HandlerId, progression.HandlerState]:
        """Build what stays for the next cycle: the kept ones, and how to find them if their parents begin anew."""
        if not kept:
            return {}
        purpose = causes.Reason.UPDATE.value
        parents = {id for id in self.state if id not in kept and self.state.subrefs_of(id) & kept}
        remains = {id: dataclasses.replace(self.state[id], purpose=purpose) for id in kept}
        for id in parents:
            subrefs = self.state.subrefs_of(id) & (kept | parents)
            remains[id] = progression.HandlerState(purpose=purpose, subrefs=subrefs)
        return remains

    def read_base(self) -> cycles.Essence | None:
        record = self.storage.fetch(key=cycles.BASE_ID, body=self.work.body)
        return None if record is None else cycles.unseal(record.get('message'))

    @property
    def is_ahead(self) -> bool:
        """Is the change counted from the state that was handled, but could not be recorded?"""
        return self.unrecorded is not None and self.unrecorded.is_complete and self.cause.old != self._recorded

    def save_handled(self) -> None:
        """Put the last handled state into the patch, if it is not there yet: this cycle is not the last one."""
        if self.is_ahead and self.unrecorded is not None:
            self.work.persistence.diffbase_storage.store(
                body=self.work.body, patch=self.work.own, essence=self.unrecorded.essence.value)

    def keep_base(self, base: cycles.Essence) -> None:
        """Let it be known to the end of the cycle what those have seen who finish before others."""
        if self.is_begun and self.read_base() is not None:
            return
        if not self.save_base(base) and not self.is_ahead:
            self.work.memory.unrecorded = inventory.Unrecorded(base, self._recorded, is_unfit=True)

    def save_base(self, base: cycles.Essence, *, kept: Collection[ids.HandlerId] | None = None) -> bool:
        """Put it into the patch, as if it was a part of a handler: whoever ends the cycle removes it, be it not us."""
        if len(base.text) > cycles.BASE_LIMIT:
            return False
        state = progression.HandlerState(purpose=self.cause.reason.value, success=True, message=base.text)
        self.storage.store(key=cycles.BASE_ID, record=state.as_record(), body=self.work.body, patch=self.work.own)
        tried = [id for id, state in self.state.items() if state.retries and (kept is None or id in kept)]
        children = {subref for state in self.state.values() for subref in state.subrefs}
        owner = min(tried, key=lambda id: (id in children, not self.state[id].finished), default=None)
        if owner is not None:
            self.state = self.state.referring(owner, cycles.BASE_ID)
        return True

    def _take(self, results: Mapping[ids.HandlerId, outcomes.Outcome]) -> None:
        """Add the outcomes to the progress, and the results to the status of the object."""
        if results and not self.is_ahead:
            self.work.memory.unrecorded = inventory.Unrecorded(self.seen, self._recorded)
        for id, outcome in results.items():
            if outcome.result is not None:
                self.work.patch.status[id] = outcome.result
        self._left = self._build_left()
        self.state = self.state.with_outcomes(results, now=self.work.site.now(), essence=self.left.digest)
        if self.work.memory.is_initial:
            finished = {id for id, outcome in results.items() if outcome.final}
            self.work.memory.resumed |= finished

    def _build_left(self) -> cycles.Essence:
        """Tell which essence there will be with the changes that the handlers themselves have made."""
        patch, body = self.work.patch, self.work.body
        self._drop_failing_fns()
        if not patch:
            return self.seen
        changed = patches.apply_fns(patch.fns, patches.merge(body, patch))
        try:
            return cycles.seal(build_essence(self.work, bodies.Body(changed)))
        except (TypeError, ValueError):  # cannot be put as JSON: it will be refused when sent
            return self.seen

    def _drop_failing_fns(self) -> None:
        patch = self.work.patch
        for fn in list(patch.fns):
            try:
                patches.apply_fns([*patch.fns[:patch.fns.index(fn) + 1]], patches.merge(self.work.body, patch))
            except Exception as error:
                self.cause.logger.error("A function of the patch has failed, and is dropped: %r", error, exc_info=True)
                patch.fns.remove(fn)

    def _build_environment(self) -> execution.Environment:
        site = self.work.site
        return execution.Environment(settings=site.settings, now=site.now, lifecycle=site.lifecycle, extras=_adjust,
                                     meter=site.context.meter)


def _adjust(handler: handlers.ChangingHandler, cause: causes.ChangingCause) -> Mapping[str, Any]:
    return handler.adjust(cause)
