"""
Accompanying: daemons and timers are started and stopped as their objects come, change and go.
"""
import asyncio
from collections.abc import Callable

from kopf._cogs.structs import bodies, diffs, finalizers, patches
from kopf._core.actions import loggers
from kopf._core.engines import daemons, lives
from kopf._core.intents import causes, handlers, stoppers
from kopf._core.reactor import changing, inventory, queueing, sites


def accompany(served: sites.Served, batch: queueing.Batch, memory: inventory.Memory, *,
              wake: Callable[[bodies.Body], None]) -> bool:
    """
    Start and stop the daemons and timers as the object is now; tell if any should live, or still live.

    They are started only when our finalizer is there, and only by events; they are stopped at once.
    Raises what their filters raise: nothing is started or stopped then.
    """
    site, registry = served.site, served.site.registry._spawning
    if not registry.has_handlers(served.resource, served.selectors):
        return False
    now = asyncio.get_running_loop().time()
    if memory.lives is None:
        memory.lives = lives.Lives(batch.body, memo=memory.memo, now=now, wake=wake)
    living = memory.lives
    if batch.events:
        living.body._replace_with(batch.body)
        living.is_due = True
    is_gone = bool(batch.events) and batch.events[-1]['type'] == 'DELETED'
    is_deleted = is_gone or finalizers.is_deletion_ongoing(living.body)
    matching = [] if is_deleted else registry.iter_handlers(_build_cause(served, living))
    if batch.events and not is_gone and _is_changed(served, living, memory):
        living.note_change(now)
    reason = stoppers.DaemonStoppingReason
    may_start = living.is_due and finalizers.is_blocked(living.body, site.settings.persistence.finalizer)
    place = daemons.Place(served.resource, served.selectors, _Patching(site, memory))
    site.spawner.adjust(living, matching, place, may_start=may_start,
                        reason=reason.RESOURCE_DELETED if is_deleted else reason.FILTERS_MISMATCH)
    living.is_due = living.is_due and not may_start
    return bool(living.running) or any(handler.id not in living.finished for handler in matching)


def _build_cause(served: sites.Served, living: lives.Lives) -> causes.SpawningCause:
    site = served.site
    return causes.SpawningCause(
        logger=loggers.ObjectLogger(body=living.body, settings=site.settings), memo=living.memo,
        indices=site.indices, resource=served.resource, selectors=served.selectors, body=living.body,
        patch=patches.Patch())


def _is_changed(served: sites.Served, living: lives.Lives, memory: inventory.Memory) -> bool:
    """Tell if the object is not idle: it differs from its last handled state, or has no such state at all."""
    idle = [handler for handler in served.site.registry._spawning.select(served.resource, served.selectors)
            if isinstance(handler, handlers.TimerHandler) and handler.idle is not None]
    if not idle:
        return False
    work = changing.Work(served, living.body, memory, patches.Patch(), own=patches.Patch())
    old, new = changing.compare(work)
    return old is None or bool(diffs.diff(old, new))


class _Patching:
    """Remembers that the object is changed by us, so that the handlers of changes wait for it to come back."""
    __slots__ = ('_memory', '_site')

    def __init__(self, site: sites.Site, memory: inventory.Memory) -> None:
        self._site, self._memory = site, memory

    def __call__(self, living: lives.Lives, version: str) -> None:
        timeout = self._site.settings.persistence.consistency_timeout
        if timeout > 0 and version != living.body.metadata.get('resourceVersion'):
            self._memory.awaited = inventory.Awaited(version, asyncio.get_running_loop().time() + timeout)
