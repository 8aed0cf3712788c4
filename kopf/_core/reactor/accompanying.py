"""
Accompanying: starts and stops daemons and timers as their objects appear, change and disappear.
"""

import asyncio
import contextvars
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from kopf._cogs.structs import (
    bodies,
    dicts,
    diffs,
    finalizers,
    objects,
    patches,
)
from kopf._core.actions import loggers
from kopf._core.engines.daemons import tasks
from kopf._core.intents import causes, handlers, stoppers
from kopf._core.reactor import cycles, inventory, queueing, sites, views

Nudge = Callable[[bodies.RawBody], None]
"""Queues an object to be processed again."""


def build_link(served: sites.Served, nudge: Nudge) -> tasks.Link:
    """
    Build the link from the daemons of all objects of a resource to their workers.

    Called by the watcher of the resource: its context is that of the operator, without any object.
    """
    return tasks.Link(
        served.resource,
        served.get_selectors,
        requeue=nudge,
        expect=functools.partial(_expect, served),
        variables=contextvars.copy_context(),
    )


def accompany(
    served: sites.Served, batch: queueing.Batch, memory: inventory.Memory, *, link: tasks.Link
) -> bool:
    """
    Start and stop the daemons and timers for the object as it is now.

    Returns whether any of them should be running or is still running. They are started only by
    events and only when our finalizer is on the object; they are stopped immediately. Raises the
    errors of their filters: until the filters succeed, nothing is started or stopped.
    """
    registry = served.site.registry._spawning
    is_gone = bool(batch.events) and batch.events[-1]['type'] == 'DELETED'
    if is_gone or registry.is_empty or not registry.has_handlers(served.resource, served.selectors):
        forget(served.site, memory)
        return False

    if memory.daemons is None:
        memory.daemons = _begin(served, batch, memory, link)
    daemons = memory.daemons
    if batch.events:
        daemons.refresh(dicts.copy_json(batch.body))
        if _is_changed(served, daemons, memory):
            daemons.note_change(_read_clock())

    if daemons.matching is None:
        daemons.matching = _choose_matching(served, daemons)
    _adjust(served, daemons, daemons.matching)
    expected = map(tasks.identify, daemons.matching)
    return daemons.is_alive or any(key not in daemons.finished for key in expected)


def _choose_matching(
    served: sites.Served, daemons: tasks.ObjectDaemons
) -> tuple[handlers.SpawningHandler, ...]:
    """Choose the daemons and timers that should run for the object as it is now."""
    if finalizers.is_deletion_ongoing(daemons.body):
        return ()
    registry = served.site.registry._spawning
    return tuple(registry.iter_handlers(_build_cause(served, daemons)))


def _adjust(
    served: sites.Served,
    daemons: tasks.ObjectDaemons,
    matching: Collection[handlers.SpawningHandler],
) -> None:
    finalizer = served.site.settings.persistence.finalizer
    may_start = daemons.is_due and finalizers.is_blocked(daemons.body, finalizer)
    daemons.is_due = daemons.is_due and not may_start
    reason = stoppers.DaemonStoppingReason.FILTERS_MISMATCH
    if finalizers.is_deletion_ongoing(daemons.body):
        reason = stoppers.DaemonStoppingReason.RESOURCE_DELETED
    served.site.spawner.adjust(daemons, matching, may_start=may_start, reason=reason)


def forget(site: sites.Site, memory: inventory.Memory) -> None:
    """
    Stop all daemons and timers of an object that no longer exists; they keep its last known state.
    """
    if memory.daemons is not None:
        site.spawner.forget(memory.daemons, stoppers.DaemonStoppingReason.RESOURCE_DELETED)
        memory.daemons = None


def _begin(
    served: sites.Served, batch: queueing.Batch, memory: inventory.Memory, link: tasks.Link
) -> tasks.ObjectDaemons:
    """Start with no daemons, or with the daemons still stopping since the object was last known."""
    key = (served.resource, inventory.identify(batch.body))
    daemons = served.site.spawner.recall(key)
    if daemons is None:
        return tasks.ObjectDaemons(
            key, dicts.copy_json(batch.body), memo=memory.memo, link=link, now=_read_clock()
        )
    daemons.revive(memory.memo, link)
    return daemons


def _build_cause(served: sites.Served, daemons: tasks.ObjectDaemons) -> causes.SpawningCause:
    site = served.site
    return causes.SpawningCause(
        logger=loggers.ObjectLogger(body=daemons.body, settings=site.settings),
        memo=daemons.memo,
        indices=site.indices,
        resource=served.resource,
        selectors=served.selectors,
        body=daemons.body,
        patch=patches.Patch(),
    )


def _is_changed(
    served: sites.Served, daemons: tasks.ObjectDaemons, memory: inventory.Memory
) -> bool:
    """Return whether the object differs from its last handled state, or has no such state."""
    idle = [
        handler
        for handler in served.site.registry._spawning.select(served.resource, served.selectors)
        if isinstance(handler, handlers.TimerHandler) and handler.idle is not None
    ]
    if not idle:
        return False

    view = views.View(
        served, cast(bodies.RawBody, dict(daemons.body)), inventory.Memory(memory.memo)
    )
    return view.old is None or bool(diffs.diff(view.old, view.new))


def _expect(served: sites.Served, body: objects.Body, patched: Mapping[str, Any]) -> None:
    """Make the handlers of changes wait until our own change comes back from the watch-stream."""
    memory = served.site.memories.find(body, served.resource)
    if memory is None:  # the object was deleted meanwhile
        return
    timeout = served.site.settings.persistence.consistency_timeout
    version = str(patched['metadata']['resourceVersion'])
    if not cycles.is_echo(body.metadata.get('resourceVersion'), version):
        memory.expect(version, _read_clock() + timeout, cast(bodies.RawBody, patched))


def _read_clock() -> float:
    return asyncio.get_running_loop().time()
