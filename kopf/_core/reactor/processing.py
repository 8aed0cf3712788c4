"""
Processing: one object, from its received events to the changes made to it.

A thin shell: it builds a view of the object, requests a decision, executes it, and remembers what
follows from the response of the server. Event handlers get every event. Handlers of changes get the
latest state, and only if it includes our own previous changes. All changes are sent together at the
end.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import cast

from kopf._cogs.clients.patching import merge_patches, object_requests, targets
from kopf._cogs.structs import bodies, patches
from kopf._core.actions import breakers, loggers, throttlers
from kopf._core.engines.reconciling import levels
from kopf._core.intents import reasons
from kopf._core.reactor import (
    accompanying,
    calling,
    circles,
    cycles,
    decisions,
    events,
    inventory,
    queueing,
    reconcilers,
    recording,
    reporting,
    sending,
    sites,
    twins,
    views,
)

UNTHROTTLED_DELAY = 60.0
"""Seconds before a retry after an error if no error delays are configured."""

STEPS = 5
"""
How many times in a row the result of our own changes is processed before other objects proceed.
"""

IsLeftAlone = Callable[[bodies.RawBody], bool]
"""Returns whether the object must not be handled now, though it could be when it last arrived."""


class Processor:
    """
    The processor of the objects of one resource: many objects at a time, but one task per object.

    It raises only cancellations: any error outside of the handlers is logged, and the object is not
    processed for some time, depending on the settings.
    """

    def __init__(
        self,
        served: sites.Served,
        *,
        nudge: accompanying.Nudge = lambda body: None,
        expect: sending.Expect = lambda body: None,
        is_left_alone: IsLeftAlone = lambda body: False,
        wake: reconcilers.Wake = lambda key: False,
        is_synced: Callable[[], bool] = lambda: True,
    ) -> None:
        self.served = served
        self.site = served.site
        self._flow = served.flow
        self._link = accompanying.build_link(served, nudge)
        self._is_left_alone = is_left_alone
        self.site.memories.serve(served.resource)
        self._sender = sending.Sender(served, expect)
        self._caller = calling.Caller(served, self._sender)
        self._reconciler = reconcilers.Reconciler(served, wake, is_synced)
        self._is_synced = is_synced
        # The objects with something to do that were seen only while the replica stood by.
        self._doubted: set[inventory.Key] = set()

    def dismiss(self, batch: queueing.Batch) -> bool:
        """
        Return whether the events need no worker; if so, update the memory of the object.

        Events are dismissed if there is nothing to do for the object and no handler wants every
        event. This is the case for half of all events, namely the echoes of our own changes, and
        for most objects at a restart.
        """
        began = _read_clock()
        try:
            is_dismissed = (
                bool(batch.events) and self.served.is_calm() and self._dismiss(batch, now=began)
            )
        except Exception:  # of filters and storages: the worker gets and reports them too
            return False

        if is_dismissed:
            self._flow.cycles['finished'] += 1
            self._flow.durations.add(_read_clock() - began)

        return is_dismissed

    def follow(self, batch: queueing.Batch) -> bool:
        """
        Return whether there is nothing to do for the object if the replica is promoted now.

        The object counts as existing before the operator, however often it has changed meanwhile.
        """
        try:
            is_dismissed = bool(batch.events) and self._follow(batch)
        except Exception:  # of filters and storages: they are reported when the object is handled
            is_dismissed = False

        key = inventory.identify(batch.body)
        if is_dismissed:
            self._doubted.discard(key)
        else:
            self._doubted.add(key)

        return is_dismissed

    def _follow(self, batch: queueing.Batch) -> bool:
        if batch.events[-1]['type'] == 'DELETED':
            self.site.memories.forget(batch.body, self.served.resource)
            return True
        memory = self._recall(batch)
        memory.cycle = dataclasses.replace(inventory.INITIAL, handled=memory.cycle.handled)
        return self.served.is_calm() and self._dismiss(batch, now=_read_clock())

    def _dismiss(self, batch: queueing.Batch, *, now: float) -> bool:
        memory = self._recall(batch)
        if self.site.memories.has_versions(self.served.resource):
            twins.note_handled(self.served, batch, memory)
        if memory.throttle is not None or memory.daemons is not None or memory.outbox is not None:
            return False

        if batch.events[-1]['type'] == 'DELETED':
            self._forget(batch, memory)
            return True

        known = memory.choose_newest(batch.body, now=now, is_new=True)
        if memory.measure_mistrust(batch.body, known, now=now) is not None:
            return False

        self._reconciler.notice(known, memory, is_met=_is_met(batch))
        if self._reconciler.measure_delay(memory) is not None:
            return False
        if _is_settled(known, memory):
            return True
        # Later events usually contain changes: it is not worth looking for these twice.
        if not memory.cycle.is_initial or memory.awaited is not None:
            return False

        view = views.View(self.served, known, memory, moment=views.Moment(now))
        plan = decisions.decide(view, is_concerned=view.is_concerned)
        if not isinstance(plan, decisions.Dismiss):
            return False

        if plan.is_resumed:
            memory.cycle = dataclasses.replace(inventory.NEW, handled=memory.cycle.handled)
        return True

    def poke(self, memory: inventory.Memory, triggers: Collection[levels.Trigger]) -> None:
        """Make the level-triggered handlers due for an object; the caller wakes it up."""
        self._reconciler.poke(memory, triggers)

    def release(self, memory: inventory.Memory) -> bool:
        """Let the held level-triggered handlers go; return whether there are any."""
        return self._reconciler.release(memory)

    async def handle(self, batch: queueing.Batch) -> queueing.Verdict:
        """Handle all events received for an object, and return when to handle it again."""
        resource = self.served.resource
        if not batch.events and not self.site.memories.is_known(batch.body, resource):
            return queueing.Verdict()  # the object is deleted already
        if not batch.events and self._is_left_alone(batch.body):
            return queueing.Verdict()  # until it may be handled again

        memory = self._recall(batch)
        is_gone = bool(batch.events) and batch.events[-1]['type'] == 'DELETED'
        began = _read_clock()
        pause = None if is_gone else self._measure_pause(batch, memory, now=began)
        if pause is not None:
            return queueing.Verdict(pause, is_postponed=True)

        try:
            if self.site.memories.has_versions(resource):
                async with twins.lock(self.served, batch.body):
                    twins.note_handled(self.served, batch, memory)
                    verdict = await self._handle(batch, memory, is_gone=is_gone)
            else:
                self.site.memories.alone.add(id(memory))
                verdict = await self._handle(batch, memory, is_gone=is_gone)
        except Exception as error:
            verdict = self._throttle(error, batch, memory)
            self._flow.cycles['failed'] += 1
        else:
            self._flow.cycles['finished' if verdict.delay is None else 'continued'] += 1
            memory.throttle = None
            verdict = self._join(verdict, memory)
        finally:
            self.site.memories.alone.discard(id(memory))
            self._reconciler.offer_permits()

        self._flow.durations.add(_read_clock() - began)
        if is_gone:
            self._forget(batch, memory)
            accompanying.forget(self.site, memory)
            return queueing.Verdict()

        return verdict

    def _join(self, verdict: queueing.Verdict, memory: inventory.Memory) -> queueing.Verdict:
        """Continue when the level-triggered handlers are due, if that is sooner."""
        delay = self._reconciler.measure_delay(memory)
        if delay is None:
            return verdict
        if not _is_certain(memory):
            delay = max(delay, self._measure_inconsistency(memory) or 0)
        return queueing.Verdict(delay if verdict.delay is None else min(delay, verdict.delay))

    def _forget(self, batch: queueing.Batch, memory: inventory.Memory) -> None:
        if memory.cycle.version is not None:  # otherwise, the operator has never changed it
            logger = loggers.LocalObjectLogger(body=batch.body, settings=self.site.settings)
            reporting.log_deletion(logger)
        self._doubted.discard(inventory.identify(batch.body))
        self.site.memories.forget(batch.body, self.served.resource)

    async def _handle(
        self, batch: queueing.Batch, memory: inventory.Memory, *, is_gone: bool
    ) -> queueing.Verdict:
        now = _read_clock()
        known = memory.choose_newest(batch.body, now=now, is_new=bool(batch.events))
        mistrust = memory.measure_mistrust(batch.body, known, now=now)
        if not is_gone:
            self._reconciler.notice(known, memory, is_met=_is_met(batch))
        is_settled = (
            memory.outbox is None
            and _is_settled(known, memory)
            and self._reconciler.measure_delay(memory) != 0
        )
        if is_settled and not is_gone and self.served.is_calm():
            return queueing.Verdict(mistrust)

        patch = _restore_patch(memory.outbox, known)
        try:
            is_fresh = await events.call_handlers(self.served, batch.events, memory.memo, patch)
        finally:
            is_accompanied = accompanying.accompany(self.served, batch, memory, link=self._link)

        if is_gone:
            return queueing.Verdict()

        waiting = self._measure_inconsistency(memory)
        view = views.View(
            self.served,
            known,
            memory,
            patch,
            is_accompanied=is_accompanied,
            is_fresh=is_fresh,
            moment=views.Moment(
                _read_clock(),
                is_awaiting=waiting is not None,
                is_certain=waiting is None or _is_certain(memory),
                is_synced=not self.served.reconcilers or self._is_synced(),
            ),
        )
        if waiting is None and memory.breaker is not None and memory.cycle.is_foreign(view.version):
            memory.breaker = None
        return await self._proceed(view, memory, mistrust=mistrust)

    async def _proceed(
        self, view: views.View, memory: inventory.Memory, *, mistrust: float | None
    ) -> queueing.Verdict:
        """Execute the decision, then that for the result of our changes, until nothing is left."""
        for _ in range(STEPS):
            plan = decisions.decide(view, is_concerned=view.is_concerned)
            result = await self._execute(view, plan, memory, mistrust=mistrust)
            if isinstance(result, queueing.Verdict):
                return result
            step = result
            if (
                step.body is None
                or not self.served.is_calm()
                or circles.measure_pause(memory) is not None
            ):
                break
            self._reconciler.notice(step.body, memory)
            view = views.View(
                self.served,
                step.body,
                memory,
                patches.Patch(body=step.body),
                moment=views.Moment(
                    _read_clock(), is_synced=not self.served.reconcilers or self._is_synced()
                ),
            )

        is_left = step.body is not None and self.served.is_calm()
        return self._conclude(0.0 if is_left else step.delay, memory)

    async def _execute(
        self,
        view: views.View,
        plan: decisions.Plan,
        memory: inventory.Memory,
        *,
        mistrust: float | None = None,
        told: reconcilers.Told = None,
    ) -> sending.Step | queueing.Verdict:
        """Execute one decision; return a verdict if nothing else can be decided now."""
        match plan:
            case decisions.Run() if self._is_doubtful(view, plan):
                return await self._confirm(view, memory)
            case decisions.Reconcile(decisions.Run() as run) if self._is_doubtful(view, run):
                return await self._confirm(view, memory)
            case decisions.Reconcile(decisions.Run() as run):
                reconcile = functools.partial(self._reconciler.call, view, plan, memory)
                ran = await self._caller.run(view, run, memory, reconcile=reconcile)
                is_let_go = view.is_held and not views.View(self.served, view.raw, memory).is_held
                return sending.Step(0.0, ran.body) if is_let_go else ran
            case decisions.Reconcile(change):
                reconciled = await self._reconciler.call(view, plan, memory)
                change = _add_changes(change, view)
                return await self._execute(
                    view, change, memory, mistrust=mistrust, told=reconciled.told
                )
            case decisions.Dismiss():
                self._settle(view, memory, plan)
                return queueing.Verdict(mistrust)
            case decisions.Await():
                return await self._send_meanwhile(view, memory, told=told)
            case decisions.Wait(delay):
                reporting.log_sleep(view.logger, delay)
                return queueing.Verdict(max(delay, self._measure_inconsistency(memory) or 0))
            case decisions.Run():
                return await self._caller.run(view, plan, memory)
            case _:
                return await self._sender.send(view, _record(view, plan), memory, told=told)

    def _is_doubtful(self, view: views.View, plan: decisions.Run) -> bool:
        """Return whether the previous leader may have handled this change a moment ago."""
        return (
            bool(self._doubted)
            and plan.cause.reason is not reasons.Reason.RESUME
            and inventory.identify(view.raw) in self._doubted
        )

    async def _confirm(self, view: views.View, memory: inventory.Memory) -> queueing.Verdict:
        """Read the object once: its stream can be behind the patches of the previous leader."""
        target = targets.identify(self.served.resource, view.raw)
        body = await object_requests.read_object(target, context=self.site.context)
        self._doubted.discard(inventory.identify(view.raw))
        if body is None:
            return queueing.Verdict()  # its deletion comes by the stream

        version = bodies.get_version(body)
        if version is not None and version != view.version:
            timeout = self.site.settings.persistence.consistency_timeout
            memory.expect(version, _read_clock() + timeout, cast(bodies.RawBody, body))

        return queueing.Verdict(0.0)

    def _conclude(self, delay: float | None, memory: inventory.Memory) -> queueing.Verdict:
        """Continue after the delay, but not while slowed down or awaiting our own changes."""
        pause = circles.measure_pause(memory)
        if pause is None and delay is None:
            return queueing.Verdict()
        return queueing.Verdict(
            max(delay or 0, pause or 0, self._measure_inconsistency(memory) or 0)
        )

    async def _send_meanwhile(
        self, view: views.View, memory: inventory.Memory, *, told: reconcilers.Told
    ) -> queueing.Verdict:
        """
        Send the patch of the event handlers while our own changes are awaited; keep its functions.
        """
        if len(view.patch) and (not view.is_fresh or merge_patches.prune(view.patch, view.raw)):
            await self._sender.send(view, recording.Records(view.cycle), memory, told=told)
        else:
            self._sender.keep_functions(view, memory)

        return queueing.Verdict(self._measure_inconsistency(memory) or 0)

    def _settle(self, view: views.View, memory: inventory.Memory, plan: decisions.Dismiss) -> None:
        """Remember that our own version needs no handling: its echo comes soon."""
        if plan.is_in_scope:
            reporting.log_dismissal(view.logger)
        if self._doubted:
            self._doubted.discard(inventory.identify(view.raw))
        if plan.is_resumed:
            memory.cycle = dataclasses.replace(
                memory.cycle, is_initial=False, resumed=inventory.NOBODY
            )

        if view.version == memory.cycle.version and self.served.is_calm():
            memory.cycle = dataclasses.replace(memory.cycle, is_settled=True)

    def _recall(self, batch: queueing.Batch) -> inventory.Memory:
        is_initial = bool(batch.events) and batch.events[0]['type'] is None
        return self.site.memories.recall(
            batch.body, self.served.resource, memo=self.site.memo, is_initial=is_initial
        )

    def _measure_pause(
        self, batch: queueing.Batch, memory: inventory.Memory, *, now: float
    ) -> float | None:
        """Return the remaining seconds of a pause after errors or too frequent handling."""
        throttle = memory.throttle
        if (
            throttle is not None
            and throttle.until is not None
            and throttle.until > now + breakers.TICK
        ):
            return throttle.until - now
        if memory.breaker is None or memory.cycle.is_foreign(bodies.get_version(batch.body)):
            return None
        return memory.breaker.get_pause(now)

    def _measure_inconsistency(self, memory: inventory.Memory) -> float | None:
        """Return the maximum seconds to wait for our own changes; ``None`` if none are awaited."""
        if memory.awaited is None:
            return None
        remaining = memory.awaited.deadline - _read_clock()
        return remaining if remaining > 0 else None

    def _throttle(
        self, error: Exception, batch: queueing.Batch, memory: inventory.Memory
    ) -> queueing.Verdict:
        """Stop processing the object for some time; then continue with its latest state."""
        delays = throttlers.Throttler() if memory.throttle is None else memory.throttle.delays
        now = _read_clock()
        until = delays.fail(now, self.site.settings.queueing.error_delays)
        memory.throttle = inventory.Throttle(delays, until)
        delay = (until - now) or UNTHROTTLED_DELAY
        loggers.LocalObjectLogger(body=batch.body, settings=self.site.settings).error(
            'The handling of the object has failed, and will be continued in %s s: %s',
            round(delay, 3),
            ' '.join([str(error) or repr(error), *getattr(error, '__notes__', ())]),
            exc_info=not isinstance(error, sending.RefusedPatchError),
        )

        return queueing.Verdict(delay)


def _record(
    view: views.View, plan: decisions.Send | decisions.Record | decisions.Release
) -> recording.Records:
    """Choose the records for the plans that call no handlers."""
    match plan:
        case decisions.Record(state, handled, holding):
            return recording.finish(
                view, state, cycles.Conclusion(handled=handled), holding=holding
            )
        case decisions.Release():
            return recording.release(view, view.state)
        case decisions.Send(holding, delay):
            return recording.Records(view.cycle, holding=holding, delay=delay)


def _add_changes(plan: decisions.Change, view: views.View) -> decisions.Change:
    """Also send the changes of the level-triggered handlers, if there are any."""
    if not view.has_changes or not isinstance(plan, decisions.Dismiss | decisions.Wait):
        return plan
    return decisions.Send(delay=plan.delay if isinstance(plan, decisions.Wait) else None)


def _restore_patch(outbox: inventory.Outbox | None, body: bodies.RawBody) -> patches.Patch:
    if outbox is None:
        return patches.Patch(body=body)
    fns = (
        ()
        if outbox.refused is not None and outbox.refused == bodies.get_version(body)
        else outbox.fns
    )
    return patches.Patch(outbox.patch, body=body, fns=fns)


def _is_met(batch: queueing.Batch) -> bool:
    """Return whether the object is listed for the first time after a start or a pause."""
    return any(event['type'] is None for event in batch.events)


def _is_certain(memory: inventory.Memory) -> bool:
    """Return whether the newest known state includes all our own changes, come back or not."""
    return memory.awaited is None or memory.awaited.body is not None


def _is_settled(body: bodies.RawBody, memory: inventory.Memory) -> bool:
    """Return whether the object is as our last change has left it, with nothing to do."""
    cycle = memory.cycle
    return cycle.is_settled and cycle.version == bodies.get_version(body)


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
