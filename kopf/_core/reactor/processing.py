"""
Processing: one cycle of one object, from what has come of it to the changes made to it.

The handlers of events get every event. The handlers of changes get the freshest state, and only if it includes our own
changes made before: nobody is called for what is known to be outdated. All changes are sent at the end, at once.
"""
import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from kopf._cogs.clients import errors, patching, retries
from kopf._cogs.structs import bodies, dicts, patches
from kopf._core.actions import application, execution, failures, loggers, throttlers
from kopf._core.intents import causes, handlers
from kopf._core.reactor import accompanying, changing, cycles, inventory, queueing, sites

CHECKPOINT_TIMEOUT = 2.0
"""Seconds to save what is done when the handling is interrupted."""

REFUSAL_DELAY, LONGEST_REFUSAL_DELAY = 5.0, 600.0
"""
Seconds to wait for a newer state of an object if the known one is outdated, twice as many each next time; usually
it comes much sooner, and is handled at once.
"""

GONE_DELAY = 120.0
"""
Seconds to wait for the deletion of an object to be known, also from a stream that is silent and is to be replaced.
Then the object exists in fact: servers do not know their resources for a moment when the definitions change.
"""

UNTHROTTLED_DELAY = 60.0
"""Seconds to try again after an error if the settings have no delays for that: then new events are handled at once."""


class Processor:
    """
    Handles the objects of one resource. Any number of them can be handled at once, but each of them only by one task.

    It does not fail, except by cancellation: if something goes wrong beyond the handlers, it is logged, and the object
    is left alone for some time, as the settings say.
    """

    def __init__(self, served: sites.Served) -> None:
        self.served, self.site = served, served.site
        self._flow = served.flow
        self.nudge: accompanying.Nudge = lambda body: None
        self.expect: Callable[[Mapping[str, Any]], None] = lambda body: None  # our own change to come back

    def dismiss(self, batch: queueing.Batch) -> bool:
        """
        Tell if there is nothing to do for an object, and nobody wants to see every event; take notice of it then.

        So it is with half of all events, the echoes of our own changes, and with most of objects at a restart.
        """
        began = _read_clock()
        try:
            is_dismissed = bool(batch.events) and self._is_calm() and self._dismiss(batch)
        except Exception:  # of filters and storages: whoever handles the object will meet them too, and tell of them
            return False
        if is_dismissed:
            self._flow.cycles['finished'] += 1
            self._flow.durations.add(_read_clock() - began)
        return is_dismissed

    def _dismiss(self, batch: queueing.Batch) -> bool:
        memory = self._recall(batch)
        if memory.throttled is not None or memory.lives is not None:
            return False
        if batch.events[-1]['type'] == 'DELETED':
            self.site.memories.forget(batch.body)
            return True
        now = _read_clock()
        known = memory.choose_newest(batch.body, now=now, is_new=True)
        if not _is_nothing_left(memory) or memory.measure_mistrust(batch.body, known, now=now) is not None:
            return False
        if _is_as_left(known, memory):
            return True
        # Later events tell of changes usually: to look for these twice is not worth it.
        is_handled = memory.is_initial and memory.awaited is None and changing.is_handled(
            self._prepare(known, memory, patches.Patch()))
        if is_handled:
            memory.is_initial, memory.resumed = False, inventory.NOBODY
        return is_handled

    async def handle(self, batch: queueing.Batch) -> queueing.Verdict:
        """Handle all that has come for an object; tell when to come back."""
        if not batch.events and not self.site.memories.is_known(batch.body):
            return queueing.Verdict()  # it is gone already
        memory = self._recall(batch)
        if memory.throttled is not None and memory.throttled > _read_clock():
            return queueing.Verdict(memory.throttled - _read_clock(), is_postponed=True)
        is_gone = bool(batch.events) and batch.events[-1]['type'] == 'DELETED'
        began = _read_clock()
        try:
            verdict = await self._handle(batch, memory, is_gone=is_gone)
        except Exception as error:
            verdict = self._throttle(error, batch, memory)
            self._flow.cycles['failed'] += 1
        else:
            self._flow.cycles['finished' if verdict.delay is None else 'continued'] += 1
            memory.throttler, memory.throttled = (memory.throttler if memory.fns else None), None
        self._flow.durations.add(_read_clock() - began)
        if is_gone:
            self.site.memories.forget(batch.body)
            accompanying.forget(self.site, memory)
            return queueing.Verdict()
        return verdict

    async def _handle(self, batch: queueing.Batch, memory: inventory.Memory, *, is_gone: bool) -> queueing.Verdict:
        now = _read_clock()
        known = memory.choose_newest(batch.body, now=now, is_new=bool(batch.events))
        mistrust = memory.measure_mistrust(batch.body, known, now=now)
        if not is_gone and _is_as_left(known, memory) and _is_nothing_left(memory) and self._is_calm():
            return queueing.Verdict(mistrust)
        patch = patches.Patch(memory.unsent, body=known, fns=memory.fns)
        try:
            await self._watch(batch.events, memory, patch)
        finally:
            is_accompanied = accompanying.accompany(self.served, batch, memory, nudge=self.nudge)
        if is_gone:
            return queueing.Verdict()
        work = self._prepare(known, memory, patch, is_accompanied=is_accompanied)
        waiting = self._get_inconsistency(memory)
        registry, resource = self.site.registry, self.served.resource
        has_changing = registry._changing.has_handlers(resource, work.selectors) or registry._spawning.has_handlers(
            resource, work.selectors)
        if has_changing and waiting is None and not memory.fns:
            if not patch and _is_as_left(known, memory):
                return queueing.Verdict(mistrust)
            return await self._change(work)
        if waiting is not None and not application.prune(patch, known):
            memory.fns = tuple(patch.fns)  # they would surely be refused for a body which is known to be outdated
            return queueing.Verdict(waiting if has_changing or memory.fns else None)
        applied = await self._apply(work, changing.Step())
        if not has_changing and not memory.fns:
            return queueing.Verdict()
        return queueing.Verdict(max(self._get_inconsistency(memory) or 0, self._get_pause(applied, memory)))

    def _recall(self, batch: queueing.Batch) -> inventory.Memory:
        is_initial = bool(batch.events) and batch.events[0]['type'] is None
        return self.site.memories.recall(batch.body, memo=self.site.memo, is_initial=is_initial)

    def _prepare(self, body: bodies.RawBody, memory: inventory.Memory, patch: patches.Patch, *,
                 is_accompanied: bool = False) -> changing.Work:
        return changing.Work(self.served, bodies.Body(body), body, memory, patch, own=patches.Patch(memory.records),
                             selectors=self.served.selectors, is_accompanied=is_accompanied)

    def _is_calm(self) -> bool:
        """Tell if nobody wants to see every event."""
        registry = self.site.registry
        if registry._watching.is_empty and registry._spawning.is_empty:
            return True
        resource, chosen = self.served.resource, self.served.selectors
        return not registry._watching.has_handlers(resource, chosen) and not registry._spawning.has_handlers(
            resource, chosen)

    async def _watch(self, events: Sequence[bodies.RawEvent], memory: inventory.Memory, patch: patches.Patch) -> None:
        """Call the handlers of events for each of them; their errors are logged and ignored."""
        registry, settings = self.site.registry._watching, self.site.settings
        if not events or registry.is_empty or not registry.has_handlers(self.served.resource, self.served.selectors):
            return
        first_error: Exception | None = None
        for event in events:
            body = bodies.Body(event['object'])
            cause = causes.WatchingCause(
                logger=loggers.LocalObjectLogger(body=body, settings=settings), memo=memory.memo,
                indices=self.site.indices, resource=self.served.resource, selectors=self.served.selectors,
                body=body, patch=patch, event=event)
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

    async def _change(self, work: changing.Work) -> queueing.Verdict:
        """Call the handlers of changes, and tell when to come back to the object."""
        step, applied = await self._take_step(work)
        if step.holding is application.Holding.BLOCK and self._is_calm() and _is_newest(applied, work.memory):
            # It is as the stream will bring it, and nobody but the handlers of changes is interested in that.
            body = cast(bodies.RawBody, applied.body)
            work = self._prepare(body, work.memory, patches.Patch(body=body))
            step, applied = await self._take_step(work)
        pause = self._get_pause(applied, work.memory)
        is_done = step.delay is None and step.holding is not application.Holding.BLOCK and not pause
        work.memory.settled = applied.version if is_done and self._is_settled(work, applied) else None
        if is_done:
            return queueing.Verdict()
        waiting = self._get_inconsistency(work.memory) or 0
        return queueing.Verdict(max(step.delay or 0, waiting, pause))

    async def _take_step(self, work: changing.Work) -> tuple[changing.Step, application.Applied]:
        """Call the handlers, and send the changes; if interrupted, save what they have done, for a limited time."""
        try:
            step = await changing.change_object(work)
        except asyncio.CancelledError:
            if work.own:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(CHECKPOINT_TIMEOUT):
                        await self._apply(work, changing.Step())
            raise
        return step, await self._apply(work, step)

    def _is_settled(self, work: changing.Work, applied: application.Applied) -> bool:
        """Tell if there will be nothing to do when our own change comes back: it is nothing but our records."""
        if applied.version is None or applied.body is None or work.patch:
            return False
        registry, resource = self.site.registry, self.served.resource
        # Those who decide by more than the object, e.g. by the memo, can decide anew that the finalizer is needed.
        is_volatile = (registry._changing.may_require_finalizer(resource, work.selectors) and
                       not registry._changing.surely_requires_finalizer(resource, work.selectors))
        if is_volatile or registry._spawning.has_handlers(resource, work.selectors):
            return False
        ours = dicts.resolve_mapping(work.own, ('metadata', 'annotations'))
        return cycles.is_only_annotated(work.raw, applied.body, ours.keys())

    async def _apply(self, work: changing.Work, step: changing.Step) -> application.Applied:
        """Send all changes of the object, and remember what to wait for."""
        memory, settings = work.memory, self.site.settings
        if work.own or work.patch:
            settings.persistence.progress_storage.touch(body=work.body, patch=work.own, value=None)
        changes = application.Changes(work.patch, work.own, step.holding)
        logger = loggers.LocalObjectLogger(body=work.raw, settings=settings)
        try:
            applied = await application.apply_changes(
                patching.identify(self.served.resource, work.raw), changes, work.raw,
                context=self.site.context, logger=logger)
        except errors.RequestError as error:
            if not application.is_refusal(error):  # the status, if it is sent apart, or the functions can be not sent
                memory.unsent, memory.fns = dict(work.patch), tuple(work.patch.fns)
                memory.records = dict(work.own) if memory.fns else None
            raise
        memory.unsent, memory.fns, memory.records = dict(applied.unsent) or None, applied.fns, dict(applied.own) or None
        timeout, version = settings.persistence.consistency_timeout, work.raw['metadata'].get('resourceVersion')
        if applied.version is not None and applied.version != version:
            memory.expect(applied.version, _read_clock() + timeout, cast(bodies.RawBody, applied.body))
            if applied.body is not None:
                self.expect(applied.body)
        if applied.is_refused and not applied.fns:
            raise RefusedPatchError("The cluster refuses our own records.")
        if not applied.own and not applied.is_gone and not (memory.unrecorded and memory.unrecorded.is_unfit):
            memory.unrecorded = None
        return applied

    def _get_pause(self, applied: application.Applied, memory: inventory.Memory) -> float:
        """Tell how long to wait for a newer state of the object, for which the refused changes can be accepted."""
        if applied.is_gone:
            return GONE_DELAY
        if applied.is_refused:
            memory.throttler = memory.throttler or throttlers.Throttler()
            now = _read_clock()
            return (memory.throttler.fail(now, self.site.settings.queueing.error_delays) - now) or REFUSAL_DELAY
        is_outdated = applied.is_held or bool(applied.fns)
        memory.refusals = memory.refusals + 1 if is_outdated else 0
        return choose_refusal_delay(memory.refusals, self.site.context.chance()) if is_outdated else 0

    def _get_inconsistency(self, memory: inventory.Memory) -> float | None:
        """Tell for how many seconds to wait for our own changes to come at most; ``None`` if there is no need to."""
        remaining = 0.0 if memory.awaited is None else memory.awaited.deadline - _read_clock()
        return remaining if remaining > 0 else None

    def _throttle(self, error: Exception, batch: queueing.Batch, memory: inventory.Memory) -> queueing.Verdict:
        """Leave the object alone for a while; then continue with its latest state."""
        memory.throttler = memory.throttler or throttlers.Throttler()
        now = _read_clock()
        memory.throttled = memory.throttler.fail(now, self.site.settings.queueing.error_delays)
        delay = (memory.throttled - now) or UNTHROTTLED_DELAY
        loggers.LocalObjectLogger(body=batch.body, settings=self.site.settings).error(
            "The handling of the object has failed, and will be continued in %s s: %s",
            round(delay, 3), error, exc_info=not isinstance(error, RefusedPatchError))
        return queueing.Verdict(delay)


def _is_as_left(body: bodies.RawBody, memory: inventory.Memory) -> bool:
    """Tell if the object is as our own last change has left it, with nothing to do."""
    return memory.settled is not None and memory.settled == dicts.resolve(body, ('metadata', 'resourceVersion'))


def _is_nothing_left(memory: inventory.Memory) -> bool:
    """Tell if nothing waits to be sent, or to be seen first: but what is left settled can be seen later."""
    if memory.fns or memory.unsent or memory.records or memory.recorded or memory.unrecorded:
        return False
    return memory.awaited is None or memory.awaited.version == memory.settled


def _is_newest(applied: application.Applied, memory: inventory.Memory) -> bool:
    """Tell if there is no newer state of the object than the one after the changes, as far as it is known."""
    is_known = applied.body is not None and not memory.fns and not applied.is_gone and not applied.is_held
    return is_known and memory.awaited is not None and memory.awaited.version == applied.version


def choose_refusal_delay(refusals: int, chance: float) -> float:
    """Choose a delay after so many refusals in a row, the last one included; ``chance`` is from 0 to 1."""
    return retries.spread(min(LONGEST_REFUSAL_DELAY, math.ldexp(REFUSAL_DELAY, min(refusals, 16) - 1)), chance)


class RefusedPatchError(Exception):
    """The cluster does not accept a change, and will not accept it while the object is as it is."""


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
