"""
Calling: runs the handlers selected for an object and processes their outcomes.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kopf._cogs.helpers import jsons
from kopf._cogs.structs import ids, patches
from kopf._core.actions import execution, outcomes, progression
from kopf._core.engines.events import failure_events
from kopf._core.intents import causes, handlers, reasons
from kopf._core.reactor import (
    circles,
    decisions,
    inventory,
    reconcilers,
    recording,
    reporting,
    sending,
    sites,
    subhandling,
    views,
)

Reconcile = Callable[[], Awaitable[reconcilers.Reconciled]]
"""Calls the level-triggered handlers, and adds their changes to those of the view."""

CHECKPOINT_TIMEOUT = 2.0
"""Seconds to save the progress when a worker is interrupted."""


class Caller:
    """The caller of the handlers of changes for the objects of one resource."""

    def __init__(self, served: sites.Served, sender: sending.Sender) -> None:
        self.site = served.site
        self._sender = sender
        self._env = execution.Environment(
            settings=self.site.settings,
            now=self.site.now,
            lifecycle=self.site.lifecycle,
            extras=_adjust,
            meter=self.site.context.meter,
            complain=failure_events.complain,
        )

    async def run(
        self,
        view: views.View,
        plan: decisions.Run,
        memory: inventory.Memory,
        *,
        reconcile: Reconcile | None = None,
    ) -> sending.Step:
        """
        Call the handlers and send their changes; if interrupted, save the progress.

        The level-triggered handlers, if due, are called after them, and their changes are sent too.
        """
        told = None
        run = subhandling.Run(plan.state, self._env)
        # There can be other changes already, e.g. from event handlers.
        is_mixed = view.is_essential(view.patch)
        state = plan.state
        is_due = state.delay(plan.ids, self.site.now()) == 0

        if is_due:
            reporting.log_beginning(
                view.logger, plan.cause.reason, view.raw, plan.cause.diff, is_secret=view.is_secret
            )

        try:
            while True:
                results = await execution.run_handlers(plan.selected, plan.cause, state, run.env)
                is_idle = is_due and not results
                state = self._take(view, plan, run.results)
                if is_idle or not self._is_repeated(plan, state):
                    break
            if reconcile is not None:
                reconciled = await reconcile()
                told = reconciled.told
                is_mixed = is_mixed or reconciled.is_essential
        except BaseException as error:
            await self._save_interrupted(view, plan, run.results, memory, error)
            raise

        ran = decisions.Ran(state, run.results, is_idle)
        records = recording.record(view, plan, ran)
        if records.is_over and ran.results and circles.count_cycle(view, memory):
            circles.report(view, sorted(map(repr, ran.results)), _list_fields(plan.cause))
        _report(view, plan, ran, records)
        makers = inventory.NOBODY if is_mixed else _find_makers(view, ran)
        return await self._sender.send(
            view, records, memory, makers=makers, is_spared=not ran.results, told=told
        )

    def _is_repeated(self, plan: decisions.Run, state: progression.State) -> bool:
        """Return whether the next resuming handlers are due, with nothing to save yet."""
        if plan.cause.reason is not reasons.Reason.RESUME:
            return False
        is_smooth = all(state.success or not state.retries for state in state.values())
        return is_smooth and state.delay(plan.ids, self.site.now()) == 0

    def _take(
        self,
        view: views.View,
        plan: decisions.Run,
        results: Mapping[ids.HandlerId, outcomes.Outcome],
    ) -> progression.State:
        """Add the outcomes to the progress, and the results to the object's status."""
        for id, outcome in results.items():
            if outcome.result is not None:
                _put_result(view.patch, id, outcome.result, plan.cause.logger)
        if view.patch.fns:
            _drop_failing_fns(view, plan.cause.logger)
        return plan.state.with_outcomes(results, now=self.site.now(), essence=view.seen.digest)

    async def _save_interrupted(
        self,
        view: views.View,
        plan: decisions.Run,
        results: Mapping[ids.HandlerId, outcomes.Outcome],
        memory: inventory.Memory,
        error: BaseException,
    ) -> None:
        with contextlib.suppress(Exception):
            ran = decisions.Ran(self._take(view, plan, results), results, is_interrupted=True)
            records = recording.record(view, plan, ran)
            if not isinstance(error, asyncio.CancelledError):
                own = recording.compose(view.pending, records.own)
                sent = decisions.Sent(own, _find_makers(view, ran), bool(view.patch))
                memory.outbox = decisions.build_outbox(
                    view, sent, view.patch, tuple(view.patch.fns), own
                )
            elif records.own:
                async with asyncio.timeout(CHECKPOINT_TIMEOUT):
                    await self._sender.send(view, records, memory)


def _find_makers(view: views.View, ran: decisions.Ran) -> frozenset[ids.HandlerId]:
    """
    Find the handlers that made these changes, except ids that later causes map to other functions.
    """
    if not view.roster.shared_ids:
        return ran.finished
    return frozenset(id for id in ran.finished if not view.roster.is_shared(id))


def _report(
    view: views.View, plan: decisions.Run, ran: decisions.Ran, records: recording.Records
) -> None:
    """Log how the cycle ended, or when it continues."""
    is_over = records.is_over
    if plan.cause.reason is reasons.Reason.DELETE:
        is_over = ran.state.delay(plan.ids, view.site.now()) is None
    if is_over and ran.results:
        succeeded, failed = reporting.count_outcomes(ran.state, plan.ids)
        reporting.log_summary(
            plan.cause.logger, plan.cause.reason, succeeded=succeeded, failed=failed
        )
    elif records.delay:
        reporting.log_sleep(view.logger, records.delay)


def _put_result(
    patch: patches.Patch, id: ids.HandlerId, result: Any, logger: causes.Logger
) -> None:
    try:
        jsons.dumps(result)
    except (TypeError, ValueError, RecursionError) as error:
        logger.error('The result of the handler %r is not JSON, and is dropped: %s', id, error)
    else:
        patch.status[id] = result


def _drop_failing_fns(view: views.View, logger: causes.Logger) -> None:
    """Drop the patch functions that fail on the last known state of the object."""
    for fn in list(view.patch.fns):
        earlier = view.patch.fns[: view.patch.fns.index(fn) + 1]
        try:
            patches.apply_fns(earlier, patches.merge(view.raw, view.patch))
        except Exception as error:
            name = getattr(fn, '__qualname__', None) or repr(fn)
            logger.error(
                'A function of the patch has failed, and is dropped: %s: %r',
                name,
                error,
                exc_info=True,
            )
            view.patch.fns.remove(fn)


def _list_fields(cause: causes.ChangingCause) -> Sequence[str]:
    return sorted({'.'.join(item.field) or 'the whole object' for item in cause.diff})


def _adjust(handler: handlers.ChangingHandler, cause: causes.ChangingCause) -> Mapping[str, Any]:
    return handler.adjust(cause)
