"""
Processing: one object, from what has come of it to the changes made to it.

A thin shell: it takes a view of the object, asks for the decision, does what was decided, and remembers what follows
from the answer of the server. Event handlers get every event. Handlers of changes get the freshest state, and only
if it includes our own changes made before. All changes are sent at the end, at once.
"""
import asyncio
import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from kopf._cogs.aiokits import turns
from kopf._cogs.clients import errors, patching, retries
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import bodies, dicts, finalizers, ids, patches
from kopf._core.actions import (
    application,
    breakers,
    execution,
    failures,
    loggers,
    outcomes,
    progression,
    throttlers,
)
from kopf._core.engines import posting
from kopf._core.intents import causes, handlers
from kopf._core.reactor import (
    accompanying,
    cycles,
    decisions,
    inventory,
    queueing,
    recording,
    sites,
    subhandling,
    views,
)

CHECKPOINT_TIMEOUT = 2.0
"""Seconds to save what is done when the handling is interrupted."""

REFUSAL_DELAY, LONGEST_REFUSAL_DELAY = 5.0, 600.0
"""
Seconds to wait for a newer state of an object if the known one is outdated, twice as many each next time; usually
it comes much sooner, and is handled at once.
"""

GONE_DELAY = 120.0
"""
Seconds to wait for the deletion of an object to be known, also from a stream that is silent and is being replaced.
Then the object exists in fact: servers do not know their resources for a moment when the definitions change.
"""

UNTHROTTLED_DELAY = 60.0
"""Seconds to try again after an error if the settings have no delays for that: then new events are handled at once."""

STEPS = 5
"""How many times in a row an object is looked at as our own changes have left it, before others get their turn."""


@dataclasses.dataclass(frozen=True)
class _Step:
    """How one plan has ended."""
    delay: float | None = None  # seconds until there is something to do; None if there is nothing
    body: bodies.RawBody | None = None  # as our changes have left it, if that is worth a look right now


class Processor:
    """
    Handles the objects of one resource. Any number of them can be handled at once, but each of them only by one task.

    It does not fail, except by cancellation: if something goes wrong beyond the handlers, it is logged, and the object
    is left alone for some time, as the settings say.
    """

    def __init__(
        self,
        served: sites.Served,
        *,
        nudge: accompanying.Nudge = lambda body: None,
        expect: Callable[[Mapping[str, Any]], None] = lambda body: None,
    ) -> None:
        self.served, self.site = served, served.site
        self._flow = served.flow
        self._nudge = nudge
        self._expect = expect  # our own change to come back

    def dismiss(self, batch: queueing.Batch) -> bool:
        """
        Return whether nothing is to be done for an object and no handler wants every event; take notice of it then.

        So it is with half of all events, the echoes of our own changes, and with most objects at a restart.
        """
        began = _read_clock()
        try:
            is_dismissed = bool(batch.events) and self._is_calm() and self._dismiss(batch)
        except Exception:  # of filters and storages: the worker will meet them too, and report them
            return False
        if is_dismissed:
            self._flow.cycles['finished'] += 1
            self._flow.durations.add(_read_clock() - began)
        return is_dismissed

    def _dismiss(self, batch: queueing.Batch) -> bool:
        memory = self._recall(batch)
        if memory.throttle is not None or memory.lives is not None or memory.outbox is not None:
            return False
        if batch.events[-1]['type'] == 'DELETED':
            self.site.memories.forget(batch.body, self.served.resource)
            return True

        now = _read_clock()
        known = memory.choose_newest(batch.body, now=now, is_new=True)
        if memory.measure_mistrust(batch.body, known, now=now) is not None:
            return False
        if _is_settled(known, memory):
            return True
        # Later events usually tell of changes: to look for these twice is not worth it.
        if not memory.cycle.is_initial or memory.awaited is not None:
            return False
        plan = self._decide(self._look(known, memory, patches.Patch()))
        if not isinstance(plan, decisions.Dismiss):
            return False
        if plan.is_resumed:
            memory.cycle = inventory.NEW
        return True

    async def handle(self, batch: queueing.Batch) -> queueing.Verdict:
        """Handle all that has come for an object, and return when to come back."""
        key, resource = inventory.identify(batch.body), self.served.resource
        if not batch.events and not self.site.memories.is_known(batch.body, resource):
            return queueing.Verdict()  # it is gone already
        memory = self._recall(batch)
        is_gone = bool(batch.events) and batch.events[-1]['type'] == 'DELETED'
        pause = None if is_gone else self._measure_pause(batch, memory)
        if pause is not None:
            return queueing.Verdict(pause, is_postponed=True)

        began = _read_clock()
        try:
            async with self.site.memories.lock(key):  # there can be another version of the resource
                verdict = await self._handle(batch, memory, is_gone=is_gone)
        except Exception as error:
            verdict = self._throttle(error, batch, memory)
            self._flow.cycles['failed'] += 1
        else:
            self._flow.cycles['finished' if verdict.delay is None else 'continued'] += 1
            memory.throttle = None
        self._flow.durations.add(_read_clock() - began)
        if is_gone:
            self.site.memories.forget(batch.body, resource)
            accompanying.forget(self.site, memory)
            return queueing.Verdict()
        return verdict

    async def _handle(self, batch: queueing.Batch, memory: inventory.Memory, *, is_gone: bool) -> queueing.Verdict:
        now = _read_clock()
        known = memory.choose_newest(batch.body, now=now, is_new=bool(batch.events))
        mistrust = memory.measure_mistrust(batch.body, known, now=now)
        is_settled = memory.outbox is None and _is_settled(known, memory)
        if is_settled and not is_gone and self._is_calm():
            return queueing.Verdict(mistrust)

        patch = _restore_patch(memory.outbox, known)
        try:
            is_fresh = await self._watch(batch.events, memory, patch)
        finally:
            is_accompanied = accompanying.accompany(self.served, batch, memory, nudge=self._nudge)
        if is_gone:
            return queueing.Verdict()

        view = self._look(known, memory, patch, is_accompanied=is_accompanied, is_fresh=is_fresh)
        waiting = self._measure_inconsistency(memory)
        if waiting is not None and self._is_concerned(known):
            return await self._send_meanwhile(view, memory, waiting)
        if _is_foreign(view.version, memory):
            memory.breaker = None
        return await self._proceed(view, memory, mistrust=mistrust)

    async def _proceed(self, view: views.View, memory: inventory.Memory, *,
                       mistrust: float | None) -> queueing.Verdict:
        """Do what is decided for the object, then for what our changes have made of it, until there is nothing."""
        for _ in range(STEPS):
            plan = self._decide(view)
            match plan:
                case decisions.Dismiss():
                    self._settle(view, memory, plan)
                    return queueing.Verdict(mistrust)
                case decisions.Wait(delay):
                    return queueing.Verdict(max(delay, self._measure_inconsistency(memory) or 0))
                case decisions.Run():
                    step = await self._run(view, plan, memory)
                case _:
                    step = await self._apply(view, _record(view, plan), memory)
            if step.body is None or not self._is_calm() or self._is_broken(memory):
                break
            view = self._look(step.body, memory, patches.Patch(body=step.body))
        pause = None if memory.breaker is None else memory.breaker.get_pause(_read_clock())
        rest = 0.0 if step.body is not None and self._is_calm() else step.delay
        if pause is None and rest is None:
            return queueing.Verdict()
        return queueing.Verdict(max(rest or 0, pause or 0, self._measure_inconsistency(memory) or 0))

    def _decide(self, view: views.View) -> decisions.Plan:
        if self._is_concerned(view.raw):
            return decisions.decide(view)
        return decisions.Send() if view.has_changes else decisions.DISMISS

    async def _run(self, view: views.View, plan: decisions.Run, memory: inventory.Memory) -> _Step:
        """Call the handlers, and send their changes; if interrupted, save what they have done, for a limited time."""
        run = subhandling.Run(plan.state, self._build_environment())
        is_mixed = _is_essential(view)  # there are changes of others already, e.g. of event handlers
        state, is_idle = plan.state, False
        try:
            while True:
                is_due = state.delay(plan.ids, self.site.now()) == 0
                results = await execution.run_handlers(plan.selected, plan.cause, state, run.env)
                is_idle = is_due and not results
                state = self._take(view, plan, run.results)
                is_resuming = plan.cause.reason is causes.Reason.RESUME
                if is_idle or not is_resuming or not _is_going_well(state, plan.ids, self.site.now()):
                    break
        except BaseException as error:
            await self._save_interrupted(view, plan, run.results, memory, error)
            raise
        ran = decisions.Ran(state, run.results, is_idle)
        records = recording.record(view, plan, ran)
        if records.is_over and ran.results:
            fields = sorted({'.'.join(item.field) or 'the whole object' for item in plan.cause.diff})
            self._count_cycle(view, ', '.join(sorted(map(repr, ran.results))), fields, memory)
        makers = inventory.NOBODY if is_mixed else ran.finished
        return await self._apply(view, records, memory, makers=makers, is_spared=not ran.results)

    def _take(self, view: views.View, plan: decisions.Run,
              results: Mapping[ids.HandlerId, outcomes.Outcome]) -> progression.State:
        """Add the outcomes to the progress, and the results to the status of the object."""
        for id, outcome in results.items():
            if outcome.result is not None:
                try:
                    jsons.dumps(outcome.result)
                except (TypeError, ValueError, RecursionError) as error:
                    plan.cause.logger.error("The result of the handler %r is not JSON, and is dropped: %s", id, error)
                else:
                    view.patch.status[id] = outcome.result
        _drop_failing_fns(view, plan.cause.logger)
        return plan.state.with_outcomes(results, now=self.site.now(), essence=view.seen.digest)

    async def _save_interrupted(self, view: views.View, plan: decisions.Run,
                                results: Mapping[ids.HandlerId, outcomes.Outcome], memory: inventory.Memory,
                                error: BaseException) -> None:
        with contextlib.suppress(Exception):
            ran = decisions.Ran(self._take(view, plan, results), results, is_interrupted=True)
            records = recording.record(view, plan, ran)
            if not isinstance(error, asyncio.CancelledError):
                sent = decisions.Sent(recording.compose(view.pending, records.own), ran.finished, bool(view.patch))
                memory.outbox = decisions.build_outbox(view, sent, view.patch, tuple(view.patch.fns), sent.own)
            elif records.own:
                async with asyncio.timeout(CHECKPOINT_TIMEOUT):
                    await self._apply(view, records, memory)

    async def _apply(self, view: views.View, records: recording.Records, memory: inventory.Memory, *,
                     makers: frozenset[ids.HandlerId] = inventory.NOBODY, is_spared: bool = True) -> _Step:
        """
        Send all changes of the object, and remember what follows from the answers.

        What equals the object is spared only if nothing could happen to it since the handlers were called with it, as
        with event handlers that await nothing. Otherwise, there can be a newer state by now.
        """
        own = patches.Patch(recording.compose(view.pending, records.own))
        if own or view.patch:
            self.site.settings.persistence.progress_storage.touch(body=view.stored, patch=own, value=None)
        sent = decisions.Sent(own, makers or _find_makers(view), bool(view.patch))
        revision = _Revision(view, records, sent)
        changes = application.Changes(
            view.patch, own, records.holding, is_spared=is_spared and view.is_fresh, is_guarded=_is_essential(view),
            revise=revision.make if sent.makers and records.is_over else None)
        logger = loggers.LocalObjectLogger(body=view.raw, settings=self.site.settings)
        if records.holding is not application.Holding.KEEP and not records.cycle.is_released:
            self._count_cycle(view, 'the finalizer', ['metadata.finalizers'], memory)
        try:
            applied = await application.apply_changes(
                patching.identify(self.served.resource, view.raw), changes, view.raw,
                context=self.site.context, logger=logger)
        except errors.RequestError as error:
            is_refused = application.is_refusal(error)
            fns = () if is_refused else tuple(view.patch.fns)
            memory.cycle = records.cycle
            memory.outbox = decisions.build_outbox(view, sent, {} if is_refused else view.patch, fns, own)
            raise
        memory.cycle, memory.outbox = decisions.conclude(view, revision.records.cycle, revision.sent, applied)
        self._expect_echo(view, applied, memory)
        if applied.is_refused and not applied.fns:
            raise RefusedPatchError("The cluster refuses our own records.")
        memory.throttle = None
        is_plain = records.is_rested and not sent.has_users and view.outbox is None
        if is_plain and applied.body is not None and decisions.is_rested(view, own, applied.body) and self._is_calm():
            memory.cycle = dataclasses.replace(memory.cycle, is_settled=True)
            return _Step()
        is_flushed = view.outbox is not None and memory.outbox is None and not applied.is_gone
        if is_flushed and applied.version is None and records.delay is None:
            return _Step(0.0, view.raw)  # nothing of it was worth sending
        is_unfinished = records.is_over and not records.is_rested and records.delay is None
        if is_unfinished and applied.version is None and not applied.is_gone:
            return _Step(0.0, view.raw)  # it is recorded elsewhere, so nothing will come back
        return self._make_step(view, records, applied, memory)

    def _expect_echo(self, view: views.View, applied: application.Applied, memory: inventory.Memory) -> None:
        """Wait for our own changes to come back from the stream."""
        if applied.version is None or applied.version == view.version:
            return
        timeout = self.site.settings.persistence.consistency_timeout
        body = cast(bodies.RawBody, applied.body)
        memory.expect(applied.version, _read_clock() + timeout, body)
        self._expect(body)
        if self.site.memories.has_versions(self.served.resource):
            self.site.memories.note_written(inventory.identify(view.raw), applied.version)

    def _make_step(self, view: views.View, records: recording.Records, applied: application.Applied,
                   memory: inventory.Memory) -> _Step:
        is_released = records.holding is application.Holding.ALLOW and memory.cycle.is_released
        is_held = records.holding is not application.Holding.KEEP and not is_released
        is_vain = is_held and applied.version is not None and applied.version == view.version
        pause = self._measure_refusal(applied, memory, is_vain=is_vain)
        if pause:
            return _Step(max(pause, records.delay or 0))
        if records.delay is not None or is_released or not _is_newest(applied, memory):
            return _Step(records.delay)
        is_begun = records.holding is application.Holding.BLOCK
        return _Step(0.0 if is_begun else None, cast(bodies.RawBody, applied.body))

    async def _send_meanwhile(self, view: views.View, memory: inventory.Memory, waiting: float) -> queueing.Verdict:
        """Send what event handlers have asked for while our own changes are not seen; the rest would be refused."""
        if len(view.patch) and (not view.is_fresh or application.prune(view.patch, view.raw)):
            await self._apply(view, recording.Records(view.cycle), memory)
        elif tuple(view.patch.fns) != (() if view.outbox is None else view.outbox.fns):
            built = decisions.build_outbox(
                view, decisions.Sent(view.pending), {}, tuple(view.patch.fns), view.pending)
            memory.outbox = built if view.outbox is None else dataclasses.replace(view.outbox, fns=built.fns)
        return queueing.Verdict(max(waiting, self._measure_inconsistency(memory) or 0))

    def _settle(self, view: views.View, memory: inventory.Memory, plan: decisions.Dismiss) -> None:
        """Remember that there is nothing to do for this version, if it is our own: it will come back soon."""
        if plan.is_resumed:
            memory.cycle = dataclasses.replace(memory.cycle, is_initial=False, resumed=inventory.NOBODY)
        if view.version == memory.cycle.version and self._is_calm():
            memory.cycle = dataclasses.replace(memory.cycle, is_settled=True)

    def _count_cycle(self, view: views.View, names: str, fields: Sequence[str], memory: inventory.Memory) -> None:
        """Slow down an object that is handled again and again with no change by others in between."""
        if _is_foreign(view.version, memory):
            return
        limits = _build_limits(self.site.settings)
        before = memory.breaker or breakers.CLOSED
        memory.breaker = breakers.count_cycle(before, limits, _read_clock())
        if memory.breaker.pauses == before.pauses:
            return
        self._flow.loops += 1
        if not before.pauses:
            text = (f"The object is handled again and again, though only this operator changes it: by {names}, for "
                    f"{', '.join(fields) or 'no fields'}. It is slowed down until others change it. Do the handlers "
                    f"change the fields that they react to?")
            loggers.LocalObjectLogger(body=view.raw, settings=self.site.settings).error("%s", text)
            posting.event(view.raw, type='Error', reason='HandledInCircles', message=text)

    def _is_broken(self, memory: inventory.Memory) -> bool:
        return memory.breaker is not None and memory.breaker.get_pause(_read_clock()) is not None

    def _recall(self, batch: queueing.Batch) -> inventory.Memory:
        is_initial = bool(batch.events) and batch.events[0]['type'] is None
        return self.site.memories.recall(
            batch.body, self.served.resource, memo=self.site.memo, is_initial=is_initial)

    def _look(self, body: bodies.RawBody, memory: inventory.Memory, patch: patches.Patch, *,
              is_accompanied: bool = False, is_fresh: bool = True) -> views.View:
        is_alive = memory.lives is not None and memory.lives.is_alive
        return views.View(
            self.served, body, memory.memo, memory.cycle, memory.outbox, patch, is_accompanied, is_alive, is_fresh)

    def _is_calm(self) -> bool:
        """Return whether no handler wants every event, and no daemons follow the object."""
        registry = self.site.registry
        if registry._watching.is_empty and registry._spawning.is_empty:
            return True
        resource, chosen = self.served.resource, self.served.selectors
        return not registry._watching.has_handlers(resource, chosen) and not registry._spawning.has_handlers(
            resource, chosen)

    def _is_concerned(self, body: bodies.RawBody) -> bool:
        """Return whether anything but event handlers can be interested in the object, or was once."""
        registry, resource, chosen = self.site.registry, self.served.resource, self.served.selectors
        if registry._changing.has_handlers(resource, chosen) or registry._spawning.has_handlers(resource, chosen):
            return True
        is_passive = registry._changing.is_empty and registry._spawning.is_empty
        return not is_passive and finalizers.is_blocked(body, self.site.settings.persistence.finalizer)

    async def _watch(self, events: Sequence[bodies.RawEvent], memory: inventory.Memory, patch: patches.Patch) -> bool:
        """
        Call the event handlers for each event; their errors are logged and ignored.

        Returns whether nothing could happen to the object meanwhile.
        """
        registry = self.site.registry._watching
        if not events or registry.is_empty or not registry.has_handlers(self.served.resource, self.served.selectors):
            return True
        with turns.Turn() as turn:
            await self._watch_all(events, memory, patch)
        return not turn.is_over

    async def _watch_all(self, events: Sequence[bodies.RawEvent], memory: inventory.Memory,
                         patch: patches.Patch) -> None:
        registry, settings = self.site.registry._watching, self.site.settings
        first_error: Exception | None = None
        for event in events:
            copied: bodies.RawEvent = {**event, 'object': dicts.copy_json(event['object'])}
            body = bodies.Body(copied['object'])
            cause = causes.WatchingCause(
                logger=loggers.LocalObjectLogger(body=body, settings=settings), memo=memory.memo,
                indices=self.site.indices, resource=self.served.resource, selectors=self.served.selectors,
                body=body, patch=patch, event=copied)
            try:
                await self._watch_event(registry.iter_handlers(cause), cause)
            except Exception as error:  # of the filters; the next events have done nothing wrong
                first_error = first_error or error
        if first_error is not None:
            raise first_error

    async def _watch_event(self, selected: Sequence[handlers.WatchingHandler], cause: causes.WatchingCause) -> None:
        settings = self.site.settings
        logger = loggers.ObjectLogger(body=cause.body, settings=settings)
        env = execution.Environment(settings=settings, now=self.site.now, extras=lambda *_: {'logger': logger},
                                    meter=self.site.context.meter)
        for handler in selected:
            await execution.run_attempt(handler, cause, None, env, default_errors=failures.ErrorsMode.IGNORED)

    def _build_environment(self) -> execution.Environment:
        site = self.site
        return execution.Environment(settings=site.settings, now=site.now, lifecycle=site.lifecycle,
                                     extras=_adjust, meter=site.context.meter)

    def _measure_pause(self, batch: queueing.Batch, memory: inventory.Memory) -> float | None:
        """Return for how many seconds the object is left alone: after errors, or if it is handled too often."""
        now = _read_clock()
        throttle = memory.throttle
        if throttle is not None and throttle.until is not None and throttle.until > now + breakers.TICK:
            return throttle.until - now
        if memory.breaker is None or _is_foreign(_get_version(batch.body), memory):
            return None
        return memory.breaker.get_pause(now)

    def _measure_refusal(self, applied: application.Applied, memory: inventory.Memory, *, is_vain: bool) -> float:
        """Return how long to wait for a newer state of the object, for which the refused changes can be accepted."""
        if applied.is_gone:
            return GONE_DELAY
        is_outdated = applied.is_held or (bool(applied.fns) and not applied.is_refused)
        if not is_outdated and not is_vain:
            memory.refusals = 0
            return 0
        memory.refusals += 1
        return choose_refusal_delay(memory.refusals, self.site.context.chance())

    def _measure_inconsistency(self, memory: inventory.Memory) -> float | None:
        """Return for how many seconds to wait for our own changes to come at most; ``None`` if there is no need to."""
        remaining = 0.0 if memory.awaited is None else memory.awaited.deadline - _read_clock()
        return remaining if remaining > 0 else None

    def _throttle(self, error: Exception, batch: queueing.Batch, memory: inventory.Memory) -> queueing.Verdict:
        """Leave the object alone for a while; then continue with its latest state."""
        delays = throttlers.Throttler() if memory.throttle is None else memory.throttle.delays
        now = _read_clock()
        until = delays.fail(now, self.site.settings.queueing.error_delays)
        memory.throttle = inventory.Throttle(delays, until)
        delay = (until - now) or UNTHROTTLED_DELAY
        loggers.LocalObjectLogger(body=batch.body, settings=self.site.settings).error(
            "The handling of the object has failed, and will be continued in %s s: %s",
            round(delay, 3), ' '.join([str(error) or repr(error), *getattr(error, '__notes__', ())]),
            exc_info=not isinstance(error, RefusedPatchError))
        return queueing.Verdict(delay)


class _Revision:
    """The records of a cycle, made again if the server has told what the handlers' own changes have become."""

    def __init__(self, view: views.View, records: recording.Records, sent: decisions.Sent) -> None:
        self.view = view
        self.records = records
        self.sent = sent

    def make(self, body: Mapping[str, Any], drifts: Sequence[application.Drift]) -> Mapping[str, Any]:
        """Record the object as it is now, if no other handlers are to be called for the difference."""
        try:
            return self._make(body, drifts)
        except Exception:  # of filters and storages: the next cycle will meet them too, and report them
            return self.sent.own

    def _make(self, body: Mapping[str, Any], drifts: Sequence[application.Drift]) -> Mapping[str, Any]:
        applied = application.Applied(body=body, drifts=tuple(drifts))
        own = decisions.find_own(self.view, self.sent.makers, applied)
        if own is None:
            return self.sent.own
        outbox = decisions.build_outbox(self.view, self.sent, {}, (), self.sent.own)
        cycle = dataclasses.replace(self.records.cycle, own=own)
        view = dataclasses.replace(
            self.view, raw=cast(bodies.RawBody, body), cycle=cycle, outbox=outbox, patch=patches.Patch())
        plan = decisions.decide(view)
        if isinstance(plan, decisions.Run) and plan.state.delay(plan.ids, view.site.now()) is None:
            self.records = recording.record(view, plan, decisions.Ran(plan.state, {}))
            merged = recording.compose(self.sent.own, self.records.own)
            self.sent = dataclasses.replace(self.sent, own=merged, makers=inventory.NOBODY)
        return self.sent.own


def _record(view: views.View, plan: decisions.Send | decisions.Record | decisions.Release) -> recording.Records:
    """Choose the records for the plans that call nobody."""
    match plan:
        case decisions.Record(state, handled, holding):
            return recording.finish(view, state, cycles.Conclusion(handled=handled), holding=holding)
        case decisions.Release():
            return recording.release(view, view.state)
        case decisions.Send(holding):
            return recording.Records(view.cycle, holding=holding)


def _restore_patch(outbox: inventory.Outbox | None, body: bodies.RawBody) -> patches.Patch:
    if outbox is None:
        return patches.Patch(body=body)
    fns = () if outbox.refused is not None and outbox.refused == _get_version(body) else outbox.fns
    return patches.Patch(outbox.patch, body=body, fns=fns)


def _find_makers(view: views.View) -> frozenset[ids.HandlerId]:
    """Find whose changes have waited to be sent, if the object is still as these handlers have seen it."""
    outbox = view.outbox
    if outbox is None or not outbox.makers or outbox.seen != view.seen:
        return inventory.NOBODY
    return outbox.makers


def _is_essential(view: views.View) -> bool:
    """Return whether the users' changes can concern the essence of the object, by their place."""
    if not len(view.patch):
        return False
    if view.patch.keys() - {'status'}:
        return True
    fields = view.registry.get_extra_fields(view.served.resource, view.selectors)
    return any(not field or field[0] == 'status' for field in fields)


def _drop_failing_fns(view: views.View, logger: causes.Logger) -> None:
    """Drop the functions of the patch that fail for the object as it is known."""
    for fn in list(view.patch.fns):
        earlier = view.patch.fns[:view.patch.fns.index(fn) + 1]
        try:
            patches.apply_fns(earlier, patches.merge(view.raw, view.patch))
        except Exception as error:
            logger.error("A function of the patch has failed, and is dropped: %s: %r",
                         getattr(fn, '__qualname__', None) or repr(fn), error, exc_info=True)
            view.patch.fns.remove(fn)


def _is_going_well(state: progression.State, handlers: Sequence[ids.HandlerId], now: Any) -> bool:
    """Return whether there is something to do right now, with nothing worth saving so far."""
    is_smooth = all(state.success or not state.retries for state in state.values())
    return is_smooth and state.delay(handlers, now) == 0


def _is_settled(body: bodies.RawBody, memory: inventory.Memory) -> bool:
    """Return whether the object is as our own last change has left it, with nothing to do."""
    cycle = memory.cycle
    return cycle.is_settled and cycle.version == _get_version(body)


def _is_foreign(version: str | None, memory: inventory.Memory) -> bool:
    """Return whether others have changed the object since this operator has handled it."""
    own = memory.cycle.version
    return own is None or not cycles.is_echo(own, str(version))


def _is_newest(applied: application.Applied, memory: inventory.Memory) -> bool:
    """Return whether there is no newer state of the object than after the changes, as far as it is known."""
    if applied.body is None or memory.outbox is not None or applied.is_gone or applied.is_held:
        return False
    return memory.awaited is None or memory.awaited.version == applied.version


def _get_version(body: bodies.RawBody) -> str | None:
    version = dicts.resolve(body, ('metadata', 'resourceVersion'))
    return None if version is None else str(version)


def _build_limits(settings: Any) -> breakers.Limits:
    chosen = settings.breaker
    return breakers.Limits(chosen.limit, chosen.window, chosen.delay, chosen.max_delay)


def choose_refusal_delay(refusals: int, chance: float) -> float:
    """Choose a delay after so many refusals in a row, the last one included; ``chance`` is from 0 to 1."""
    return retries.spread(min(LONGEST_REFUSAL_DELAY, math.ldexp(REFUSAL_DELAY, min(refusals, 16) - 1)), chance)


def _adjust(handler: handlers.ChangingHandler, cause: causes.ChangingCause) -> Mapping[str, Any]:
    return handler.adjust(cause)


class RefusedPatchError(Exception):
    """The cluster does not accept a change, and will not accept it while the object is as it is."""


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
