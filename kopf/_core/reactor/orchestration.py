"""
Orchestration: runs one watcher per served resource and namespace, and no others.

The watchers are started and stopped as the known resources and namespaces change. They are not
expected to end by themselves.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from kopf._cogs.structs import references
from kopf._core.reactor import observation

logger = logging.getLogger(__name__)

STOPPING_TIMEOUT = 30.0
"""
Seconds for cancelled watchers to end; then they are reported in the log or, on exit, abandoned.
"""


class Key(NamedTuple):
    """The resource and the namespace of one watcher; no namespace means the whole cluster."""

    resource: references.Resource
    namespace: references.Namespace

    def __str__(self) -> str:
        return (
            repr(self.resource)
            if self.namespace is None
            else f'{self.resource!r} in {self.namespace!r}'
        )


Spawn = Callable[[references.Resource, references.Namespace], Coroutine[Any, Any, None]]
"""Makes a coroutine that watches until cancelled."""

Retire = Callable[[Key], None]
"""Called when a watcher has ended and its resource or namespace is no longer served."""


def _retire_silently(key: Key) -> None:
    pass


class UnexpectedEndError(Exception):
    """A watcher has ended by itself, with no error, though it was needed."""


@dataclasses.dataclass(eq=False)
class Watcher:
    """A running watcher. Changed only by the orchestrator."""

    resource: references.Resource  # as it was when the watcher was started
    task: asyncio.Task[None]
    is_stopping: bool = False
    alarm: asyncio.TimerHandle | None = None  # rings if it does not stop in time

    def stop(self) -> None:
        """Request the watcher to stop, once: more cancellations could interrupt its shutdown."""
        if not self.is_stopping:
            self.is_stopping = True
            self.task.cancel()

    def silence(self) -> None:
        if self.alarm is not None:
            self.alarm.cancel()


Watchers = dict[Key, Watcher]


async def run_orchestrator(
    *,
    insights: observation.Insights,
    spawn: Spawn,
    retire: Retire = _retire_silently,
    stopping_timeout: float = STOPPING_TIMEOUT,
) -> None:
    """
    Start and stop the watchers as the insights change.

    A new watcher never overlaps with the previous one for the same resource and namespace; other
    watchers do not wait for them. When everything is known and all initial watchers are started,
    ``insights.ready`` is set.

    Watchers are retired if their namespace or resource is no longer served. Replaced watchers and
    those that end with the orchestrator are not retired: their objects presumably still exist.

    Ends only by cancellation or by an error of any watcher, which is raised as is. In both cases,
    all other watchers are cancelled and awaited; those that do not end in time are reported and
    abandoned.
    """
    watchers: Watchers = {}
    ended: set[Key] = set()
    try:
        while True:
            revision = insights.revision
            keys = select_keys(insights.resources, insights.namespaces)
            for key in ended - keys:
                retire(key)
            _adjust(watchers, keys, spawn, stopping_timeout)
            if insights.is_known:
                insights.ready.set()
            await _wait_until_any(insights.wait_until_changed(revision), watchers)
            ended = _collect(watchers)
    finally:
        await _stop_all(watchers, stopping_timeout)


def select_keys(
    resources: Iterable[references.Resource], namespaces: Collection[references.Namespace]
) -> set[Key]:
    """Select what to watch. Cluster-scoped resources do not depend on the served namespaces."""
    return {
        Key(resource, namespace)
        for resource in resources
        for namespace in (namespaces if resource.namespaced else [None])
    }


def is_outdated(before: references.Resource, after: references.Resource) -> bool:
    """
    Return whether the resource has changed so that it must be watched or patched in another way.
    """
    return any(
        getattr(before, field) != getattr(after, field)
        for field in ('namespaced', 'subresources', 'kind')
    )


def _adjust(watchers: Watchers, keys: Collection[Key], spawn: Spawn, timeout: float) -> None:
    """
    Start the missing watchers, stop the unneeded and outdated ones; leave the stopping ones to end.
    """
    needed = {key: key.resource for key in keys}
    for key, watcher in watchers.items():
        if not watcher.is_stopping and (
            key not in needed or is_outdated(watcher.resource, needed[key])
        ):
            logger.debug('Watching over %s is being stopped.', key)
            watcher.stop()
            watcher.alarm = watcher.task.get_loop().call_later(timeout, _complain, key, timeout)

    for key in needed:
        if key not in watchers:
            logger.debug('Watching over %s is being started.', key)
            task = asyncio.create_task(spawn(*key), name=f'watcher of {key}')
            watchers[key] = Watcher(key.resource, task)


def _complain(key: Key, timeout: float) -> None:
    logger.warning(
        'Watching over %s has not stopped in %s s; it cannot be started again until it ends.',
        key,
        timeout,
    )


async def _wait_until_any(change: Coroutine[Any, Any, None], watchers: Watchers) -> None:
    """
    Wait for the change or for the end of any watcher. Cancellation does not affect the watchers.
    """
    waiter = asyncio.create_task(change, name='orchestrator')
    try:
        await asyncio.wait(
            {waiter, *(watcher.task for watcher in watchers.values())},
            return_when=asyncio.FIRST_COMPLETED,
        )
    finally:
        waiter.cancel()
        await asyncio.wait({waiter})


def _collect(watchers: Watchers) -> set[Key]:
    """Forget and return the watchers that ended on request; raise the error of any that did not."""
    ended = {key for key, watcher in watchers.items() if watcher.task.done()}
    failures = _take_failures(watchers)
    if failures:
        first = next(iter(failures))
        error = failures.pop(first)
        _report(failures)
        raise error

    return ended


def _take_failures(watchers: Watchers) -> dict[Key, BaseException]:
    """Forget all watchers that have ended; return the errors of the failed ones."""
    failures: dict[Key, BaseException] = {}
    for key, watcher in [
        (key, watcher) for key, watcher in watchers.items() if watcher.task.done()
    ]:
        del watchers[key]
        watcher.silence()
        error = None if watcher.task.cancelled() else watcher.task.exception()
        if error is None and not watcher.is_stopping:
            error = UnexpectedEndError(
                f'Watching over {key} has ended, although it was not stopped.'
            )
        if error is not None:
            failures[key] = error

    return failures


def _report(failures: Mapping[Key, BaseException]) -> None:
    """
    Log the errors that cannot be raised, with one line per distinct error, as there can be many.
    """
    texts: dict[str, list[str]] = {}
    for key, error in failures.items():
        texts.setdefault(repr(error), []).append(str(key))
    for text, names in texts.items():
        logger.error('Watching over %s has failed too: %s', ', '.join(names), text)


async def _stop_all(watchers: Watchers, timeout: float) -> None:
    """
    Stop all watchers and wait for them, for a limited time. A second cancellation ends the wait.
    """
    for watcher in watchers.values():
        watcher.stop()
        watcher.silence()

    if watchers:
        await asyncio.wait({watcher.task for watcher in watchers.values()}, timeout=timeout)
    _report(_take_failures(watchers))
    if watchers:
        logger.warning(
            'Watching has not stopped in %s s, and is left as it is: %s.',
            timeout,
            ', '.join(map(str, watchers)),
        )
