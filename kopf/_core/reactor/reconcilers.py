"""
Reconcilers: calls the level-triggered handlers of an object, and remembers when they are due next.

The decisions are made elsewhere; the memory of an object is changed here. It can be poked at any
time, also while a handler is being called for the object: the handler is then called once more.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

from kopf._cogs.clients.patching import application
from kopf._cogs.structs import bodies, dicts, finalizers, ids, patches
from kopf._core.actions import execution, outcomes, progression
from kopf._core.engines.events import failure_events
from kopf._core.engines.reconciling import levels
from kopf._core.intents import handlers, requeues
from kopf._core.reactor import circles, cycles, decisions, inventory, sites, views

Wake = Callable[[inventory.Key], bool]
"""
Queues a known object to be processed again, by its key; returns false if it cannot be queued.
"""

Told = frozenset[ids.HandlerId] | None
"""The handlers that know the changes, as they made them; ``None`` for no such changes."""

_NOT_TOLD: frozenset[ids.HandlerId] = frozenset()


@dataclasses.dataclass(frozen=True)
class Reconciled:
    """The changes made by the level-triggered handlers of one object."""

    # The functions that know all the changes, as they made them; ``None`` if nothing was changed.
    told: Told
    is_essential: bool  # whether they can affect the essence of the object


class Reconciler:
    """The caller of the level-triggered handlers for the objects of one resource."""

    def __init__(
        self, served: sites.Served, wake: Wake, is_synced: Callable[[], bool] = lambda: True
    ) -> None:
        self.served = served
        self.site = served.site
        self._wake = wake
        self._is_synced = is_synced
        self._warned: set[str] = set()  # the fields with contradicting changes, already reported
        self._env = execution.Environment(
            settings=self.site.settings,
            now=self.site.now,
            meter=self.site.context.meter,
            complain=failure_events.complain,
        )

    async def call(
        self, view: views.View, plan: decisions.Reconcile, memory: inventory.Memory
    ) -> Reconciled:
        """
        Call the handlers one after another, and add their changes to those of the view.

        If interrupted, the interrupted handler is due again. Handlers with no permits wait for
        them: they are called later.
        """
        for handler in plan.skipped:
            _put(memory, handler, levels.skip(_get(memory, handler)))
        for handler in plan.held:
            # If the related objects are known since the decision, nothing would release it.
            if decisions.is_early(view, handler, is_synced=self._is_synced()):
                _put(memory, handler, levels.hold(_get(memory, handler)))
        is_answer = any(
            levels.Trigger.SELF in _get(memory, handler).pending for handler in plan.called
        )
        key = inventory.identify(view.raw)
        makers: set[ids.HandlerId] = set()
        for handler in plan.called:
            name = _name_limit(handler)
            release = functools.partial(self._release, key, handler)
            if self.site.permits.take(name, handler.workers, key, release):
                before = _copy(view.reconciling.patch)
                try:
                    await self._call(handler, view, memory)
                finally:
                    self.site.permits.free(name)
                if _copy(view.reconciling.patch) != before:
                    makers.add(handler.id)
            else:
                _put(memory, handler, levels.hold(_get(memory, handler)))

        if makers and is_answer and len(self.served.reconcilers) > 1:
            _count_circle(view, makers, memory)
        return self._collect(view, frozenset(makers))

    def offer_permits(self) -> None:
        """Let other objects have the free permits: the objects woken up for them can be gone."""
        for handler in self.served.reconcilers:
            self.site.permits.offer(_name_limit(handler), handler.workers)

    def _collect(self, view: views.View, makers: frozenset[ids.HandlerId]) -> Reconciled:
        patch = view.reconciling.patch
        told = None
        if view.patch or patch:
            told = makers if len(makers) == 1 and not view.patch else _NOT_TOLD
        reconciled = Reconciled(told, is_essential=bool(patch) and view.is_essential(patch))
        conflicts = merge(view.patch, patch)

        if not self._warned.issuperset(conflicts):
            self._warned.update(conflicts)
            view.logger.warning(
                'Several handlers change the same fields of the object in different ways; the last '
                'one wins: %s.',
                ', '.join(conflicts),
            )

        return reconciled

    async def _call(
        self, handler: handlers.ReconcileHandler, view: views.View, memory: inventory.Memory
    ) -> None:
        before = _get(memory, handler)
        triggers = levels.list_due(before, _read_clock())
        state = None
        if before.failures:
            state = progression.HandlerState(started=before.started, retries=before.failures)
        _put(memory, handler, levels.begin(before))
        cause = view.explain(handler, triggers)
        cause.logger.debug('%s is due: %s.', handler, ', '.join(sorted(triggers)))

        try:
            outcome = await execution.run_attempt(handler, cause, state, self._env)
        except BaseException:
            level = levels.poke(_get(memory, handler), triggers, levels.Pace(), _read_clock())
            _put(memory, handler, level)
            raise

        _report_requeue(cause.logger, handler, outcome.result)
        level = levels.end(
            _get(memory, handler),
            conclude(outcome, is_deletion=cause.deleting),
            pace(handler),
            _read_clock(),
            phase=levels.choose_phase(str(cause.body.metadata.uid or '')),
            digest=_digest(handler, view.raw),
        )
        _put(memory, handler, level)

    def _release(self, key: inventory.Key, handler: handlers.ReconcileHandler) -> bool:
        memory = self.site.memories.find_by_key(key, self.served.resource)
        if memory is None or not _get(memory, handler).is_held:
            return False
        _put(memory, handler, levels.hold(_get(memory, handler), is_held=False))
        return self._wake(key)

    def notice(
        self, body: bodies.RawBody, memory: inventory.Memory, *, is_met: bool = False
    ) -> None:
        """Notice the object in this state, so that its changes are handled."""
        for handler in self.served.reconcilers:
            level = levels.notice(
                _get(memory, handler),
                bodies.get_version(body),
                pace(handler),
                _read_clock(),
                is_met=is_met,
                digest=_digest(handler, body),
            )
            _put(memory, handler, level)

    def poke(self, memory: inventory.Memory, triggers: Collection[levels.Trigger]) -> None:
        """Make the handlers due for the object; the caller wakes up the object."""
        for handler in self.served.reconcilers:
            level = levels.poke(_get(memory, handler), triggers, pace(handler), _read_clock())
            _put(memory, handler, level)

    def release(self, memory: inventory.Memory) -> bool:
        """Let the held handlers go; return whether there are any."""
        held = {id: level for id, level in (memory.level_states or {}).items() if level.is_held}
        released = {id: levels.hold(level, is_held=False) for id, level in held.items()}
        memory.level_states = {**(memory.level_states or {}), **released}
        return bool(held)

    def measure_delay(self, memory: inventory.Memory) -> float | None:
        """Return the seconds until any handler is due; ``None`` if none until a trigger."""
        if not memory.level_states:
            return None
        now = _read_clock()
        delays = [levels.measure_delay(level, now) for level in memory.level_states.values()]
        return min((delay for delay in delays if delay is not None), default=None)


def follow(
    memory: inventory.Memory,
    before: str | None,
    applied: application.Applied,
    own: Mapping[str, Any],
    *,
    told: Told = None,
) -> None:
    """
    Skip the version made by the handlers' own changes, or by our records, unless others changed it.

    It is skipped for the handlers that are told, by default for all.
    """
    if not memory.level_states or applied.version is None:
        return

    records = dicts.resolve_mapping(own, ('metadata', 'annotations')).keys()
    for drift in applied.drifts:
        if drift.is_foreign or not cycles.is_only_annotated(drift.before, drift.after, records):
            return

    memory.level_states = {
        id: levels.follow(level, before, applied.version) if told is None or id in told else level
        for id, level in memory.level_states.items()
    }


def conclude(outcome: outcomes.Outcome, *, is_deletion: bool) -> levels.Ended:
    """Decide what follows from the outcome of a call."""
    if not outcome.final:
        return levels.Ended(retry=outcome.delay or 0.0, started=outcome.began)
    if outcome.exception is not None:
        return levels.Ended(is_final=True)
    if isinstance(outcome.result, requeues.Requeue):
        return levels.Ended(requeue=outcome.result.after)
    return levels.Ended(is_last=is_deletion)


def pace(handler: handlers.ReconcileHandler) -> levels.Pace:
    """Extract the options that affect when the handler is called."""
    return levels.Pace(handler.settle, handler.resync)


def merge(patch: patches.Patch, later: patches.Patch) -> list[str]:
    """Add the later changes to the earlier ones; return the fields where they contradict."""
    conflicts = [*_find_conflicts(patch, later, '')]
    _compose(patch, later)
    patch.fns.extend(later.fns)
    return conflicts


def _compose(target: dict[str, Any], later: Mapping[str, Any]) -> None:
    for key, value in later.items():
        if isinstance(target.get(key), dict) and dicts.is_mapping(value):
            _compose(target[key], value)
        else:
            target[key] = value


def _find_conflicts(one: Mapping[str, Any], other: Mapping[str, Any], path: str) -> list[str]:
    conflicts = []
    for key in other.keys() & one.keys():
        if dicts.is_mapping(one[key]) and dicts.is_mapping(other[key]):
            conflicts += _find_conflicts(one[key], other[key], f'{path}{key}.')
        elif one[key] != other[key]:
            conflicts.append(f'{path}{key}')
    return sorted(conflicts)


def _report_requeue(logger: Any, handler: handlers.ReconcileHandler, result: Any) -> None:
    if isinstance(result, requeues.Requeue):
        logger.debug(
            '%s is requeued in %s s%s.',
            handler,
            result.after,
            '' if result.reason is None else f': {result.reason}',
        )


def _digest(handler: handlers.ReconcileHandler, body: bodies.RawBody) -> str | None:
    if handler.field is None:
        return None
    value = dicts.resolve(body, handler.field)
    # The deletion is for the function to handle, whatever its field is.
    is_deleted = handler.deletion and finalizers.is_deletion_ongoing(body)
    return levels.digest([value, is_deleted])


def _count_circle(
    view: views.View, makers: Collection[ids.HandlerId], memory: inventory.Memory
) -> None:
    """Slow down an object whose functions react to the changes of each other without an end."""
    if circles.count_cycle(view, memory):
        circles.report(view, sorted(map(repr, makers)), sorted(view.reconciling.patch))


def _name_limit(handler: handlers.ReconcileHandler) -> Hashable:
    return handler.id, handler.selector


def _copy(patch: patches.Patch) -> tuple[Any, ...]:
    return dicts.copy_json(patch), list(patch.fns)


def _get(memory: inventory.Memory, handler: handlers.ReconcileHandler) -> levels.Level:
    return (memory.level_states or {}).get(handler.id, levels.NEW)


def _put(memory: inventory.Memory, handler: handlers.ReconcileHandler, level: levels.Level) -> None:
    id: ids.HandlerId = handler.id
    if (memory.level_states or {}).get(id) is not level:
        memory.level_states = {**(memory.level_states or {}), id: level}


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
