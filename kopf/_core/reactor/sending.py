"""
Sending: sends all changes of an object together, and processes the responses.
"""

import asyncio
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from kopf._cogs.clients import errors, retries
from kopf._cogs.clients.patching import application, refusals, sender, targets
from kopf._cogs.structs import bodies, ids, patches
from kopf._core.reactor import (
    circles,
    decisions,
    inventory,
    reconcilers,
    recording,
    reporting,
    sites,
    views,
)

REFUSAL_DELAY = 5.0
LONGEST_REFUSAL_DELAY = 600.0
"""
Seconds to wait for a newer state of an object if the known state is outdated; doubled for every
refusal in a row. Usually, the newer state arrives much sooner, and is handled immediately.
"""

GONE_DELAY = 120.0
"""
Seconds to wait for the deletion event of a missing object, even if its stream is stale and is being
replaced. After that, the object is considered existing: servers respond that resources are not
found for a moment when their definitions change.
"""

Expect = Callable[[Mapping[str, Any]], None]
"""Registers our own change that will come back from the watch-stream."""


class RefusedPatchError(Exception):
    """The cluster refuses a change, and will refuse it until the object changes."""


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of executing one plan."""

    delay: float | None = None  # seconds until there is something to do; None if there is nothing
    # The object after our changes, if it should be processed immediately.
    body: bodies.RawBody | None = None


REST = Step()
"""There is nothing to do."""


class Sender:
    """The sender of the changes for the objects of one resource."""

    def __init__(self, served: sites.Served, expect: Expect) -> None:
        self.served = served
        self.site = served.site
        self._expect = expect

    async def send(
        self,
        view: views.View,
        records: recording.Records,
        memory: inventory.Memory,
        *,
        makers: frozenset[ids.HandlerId] = inventory.NOBODY,
        is_spared: bool = True,
        told: reconcilers.Told = None,
    ) -> Step:
        """
        Send all changes of the object, and remember what follows from the responses.

        ``told`` are the level-triggered handlers that know the changes, as they made them all;
        without changes by users, all handlers know them.

        Values equal to the known object are omitted only if the object could not have changed since
        the handlers were called, as with event handlers that await nothing. Otherwise, there can be
        a newer state already.
        """
        revision = _Revision(view, records, self._collect(view, records, makers))
        if _is_held(records) and circles.count_cycle(view, memory):
            circles.report(view, ['the finalizer'], ['metadata.finalizers'])
        if records.holding is not application.Holding.KEEP:
            reporting.log_holding(view.logger, records.holding)
        try:
            applied = await sender.apply_changes(
                targets.identify(self.served.resource, view.raw),
                revision.build_changes(is_spared=is_spared, is_guarded=bool(told)),
                view.raw,
                context=self.site.context,
                logger=view.logger,
            )
        except errors.RequestError as error:
            memory.cycle = records.cycle
            memory.outbox = _keep_unsent(view, revision.sent, error)
            raise

        memory.cycle, memory.outbox = decisions.conclude(
            view, revision.records.cycle, revision.sent, applied
        )
        circles.note_drifts(view, applied.drifts, memory)
        if told is not None or not revision.sent.has_users:
            reconcilers.follow(memory, view.version, applied, revision.sent.own, told=told)
        self._expect_echo(view, applied, memory)
        if applied.is_refused and not applied.fns:
            raise RefusedPatchError('The cluster refuses our own records.')

        memory.throttle = None
        return self._make_step(view, records, applied, memory)

    def keep_functions(self, view: views.View, memory: inventory.Memory) -> None:
        """
        Keep the users' patch functions for later: they would be refused for the known version.
        """
        fns = tuple(view.patch.fns)
        if view.outbox is not None:
            memory.outbox = dataclasses.replace(view.outbox, fns=fns)
        elif fns:
            sent = decisions.Sent(view.pending)
            memory.outbox = decisions.build_outbox(view, sent, {}, fns, view.pending)

    def _collect(
        self, view: views.View, records: recording.Records, makers: frozenset[ids.HandlerId]
    ) -> decisions.Sent:
        """Collect the changes to send, including our records that were not accepted before."""
        own = records.own
        if view.pending:
            own = patches.Patch(recording.compose(view.pending, own))
        has_users = bool(view.patch)
        if (own or has_users) and not view.is_blank:
            view.persistence.progress_storage.touch(body=view.stored, patch=own, value=None)
        is_last = (
            records.is_rested and not has_users and view.outbox is None and self.served.is_calm()
        )
        return decisions.Sent(own, makers or _find_makers(view), has_users, is_last)

    def _expect_echo(
        self, view: views.View, applied: application.Applied, memory: inventory.Memory
    ) -> None:
        """Expect our own changes to come back from the watch-stream."""
        if applied.version is None or applied.version == view.version:
            return
        timeout = self.site.settings.persistence.consistency_timeout
        body = cast(bodies.RawBody, applied.body)
        memory.expect(applied.version, _read_clock() + timeout, body)
        self._expect(body)
        if self.site.memories.has_versions(self.served.resource):
            self.site.memories.note_written(inventory.identify(view.raw), applied.version)

    def _make_step(
        self,
        view: views.View,
        records: recording.Records,
        applied: application.Applied,
        memory: inventory.Memory,
    ) -> Step:
        if memory.cycle.is_settled:
            return REST
        if _is_silent(view, records, applied, memory):
            return Step(0.0, view.raw)

        is_vain = (
            _is_held(records) and applied.version is not None and applied.version == view.version
        )
        pause = self._measure_refusal(applied, memory, is_vain=is_vain)
        if pause:
            return Step(max(pause, records.delay or 0))

        is_released = records.holding is application.Holding.ALLOW and records.cycle.is_released
        if records.delay is not None or is_released or not _is_newest(applied, memory):
            return Step(records.delay)

        is_begun = records.holding is application.Holding.BLOCK
        return Step(0.0 if is_begun else None, cast(bodies.RawBody, applied.body))

    def _measure_refusal(
        self, applied: application.Applied, memory: inventory.Memory, *, is_vain: bool
    ) -> float:
        """
        Return how long to wait for a newer state in which the refused changes can be accepted.
        """
        if applied.is_gone:
            return GONE_DELAY

        is_outdated = applied.is_held or (bool(applied.fns) and not applied.is_refused)
        if not is_outdated and not is_vain:
            memory.refusals = 0
            return 0

        memory.refusals += 1
        return choose_refusal_delay(memory.refusals, self.site.context.chance())


class _Revision:
    """
    The records of a cycle, revised when the server returns the result of the handlers' changes.
    """

    def __init__(self, view: views.View, records: recording.Records, sent: decisions.Sent) -> None:
        self.view = view
        self.records = records
        self.sent = sent

    def build_changes(self, *, is_spared: bool, is_guarded: bool) -> application.Changes:
        view = self.view
        sent = self.sent
        return application.Changes(
            view.patch,
            cast(patches.Patch, sent.own),
            self.records.holding,
            is_spared=is_spared and view.is_fresh,
            is_guarded=is_guarded or view.is_essential(view.patch),
            revise=self.make if sent.has_users and sent.makers and self.records.is_over else None,
        )

    def make(
        self, body: Mapping[str, Any], drifts: Sequence[application.Drift]
    ) -> Mapping[str, Any]:
        """Record the current state if no other handlers must be called for the difference."""
        try:
            return self._make(body, drifts)
        # The errors of filters and storages: the next cycle gets and reports them too.
        except Exception:
            return self.sent.own

    def _make(
        self, body: Mapping[str, Any], drifts: Sequence[application.Drift]
    ) -> Mapping[str, Any]:
        applied = application.Applied(body=body, drifts=tuple(drifts))
        own = decisions.find_own(self.view, self.sent.makers, applied)
        if own is None:
            return self.sent.own

        memory = inventory.Memory(
            self.view.memo,
            dataclasses.replace(self.records.cycle, own=own),
            outbox=decisions.build_outbox(self.view, self.sent, {}, (), self.sent.own),
        )
        is_accompanied = self.view.is_accompanied
        view = views.View(
            self.view.served, cast(bodies.RawBody, body), memory, is_accompanied=is_accompanied
        )
        plan = decisions.decide_change(view)

        if isinstance(plan, decisions.Run) and plan.state.delay(plan.ids, view.site.now()) is None:
            self.records = recording.record(view, plan, decisions.Ran(plan.state, {}))
            merged = recording.compose(self.sent.own, self.records.own)
            self.sent = dataclasses.replace(self.sent, own=merged, makers=inventory.NOBODY)

        return self.sent.own


def choose_refusal_delay(refusals: int, chance: float) -> float:
    """Choose a delay after this number of refusals in a row; ``chance`` is from 0 to 1."""
    delay = math.ldexp(REFUSAL_DELAY, min(refusals, 16) - 1)
    return retries.spread(min(LONGEST_REFUSAL_DELAY, delay), chance)


def _find_makers(view: views.View) -> frozenset[ids.HandlerId]:
    """Find the handlers whose changes remain unsent, if the object is as these handlers saw it."""
    outbox = view.outbox
    if outbox is None or not outbox.makers or outbox.seen != view.seen:
        return inventory.NOBODY
    return outbox.makers


def _keep_unsent(
    view: views.View, sent: decisions.Sent, error: errors.RequestError
) -> inventory.Outbox:
    """Keep the unsent changes; only our records if the cluster will always refuse the rest."""
    if refusals.is_refusal(error):
        return decisions.build_outbox(view, sent, {}, (), sent.own)
    return decisions.build_outbox(view, sent, view.patch, tuple(view.patch.fns), sent.own)


def _is_held(records: recording.Records) -> bool:
    """Return whether the finalizer is changed, and not for the last time."""
    return records.holding is not application.Holding.KEEP and not records.cycle.is_released


def _is_silent(
    view: views.View,
    records: recording.Records,
    applied: application.Applied,
    memory: inventory.Memory,
) -> bool:
    """Return whether there is something to do, but no echo will come of what was sent."""
    if applied.is_gone or records.delay is not None:
        return False
    is_flushed = view.outbox is not None and memory.outbox is None
    if is_flushed and applied.version in (None, view.version):
        return True
    return applied.version is None and records.is_over and not records.is_rested


def _is_newest(applied: application.Applied, memory: inventory.Memory) -> bool:
    """Return whether no state of the object is known to be newer than the one after the changes."""
    if applied.body is None or memory.outbox is not None or applied.is_gone or applied.is_held:
        return False
    return memory.awaited is None or memory.awaited.version == applied.version


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
