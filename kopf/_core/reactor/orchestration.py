"""
Orchestration: one watcher for each resource in each namespace to be served, and no others.

The watchers come and go with what is known of the cluster. They are not expected to end on their own.
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
"""Seconds in which the cancelled watchers are expected to end; then they are complained about or, on exit, left."""


class Key(NamedTuple):
    """What one watcher is for. Where there are no namespaces, there is none here: for the whole cluster."""

    resource: references.Resource
    namespace: references.Namespace

    def __str__(self) -> str:
        return (
            repr(self.resource)
            if self.namespace is None
            else f'{self.resource!r} in {self.namespace!r}'
        )


Spawn = Callable[[references.Resource, references.Namespace], Coroutine[Any, Any, None]]
"""Makes the coroutine that watches for as long as it is not cancelled."""

Retire = Callable[[Key], None]
"""Takes notice that the watcher has ended, and that there is nothing to watch there any more."""


def _retire_silently(key: Key) -> None:
    pass


class UnexpectedEndError(Exception):
    """A watcher has ended on its own, with no error and although it was needed."""


@dataclasses.dataclass(eq=False)
class Watcher:
    """A running watcher. Changed only by the orchestrator."""

    resource: references.Resource  # as it was when the watcher was started
    task: asyncio.Task[None]
    is_stopping: bool = False
    alarm: asyncio.TimerHandle | None = None  # rings if it does not stop in time

    def stop(self) -> None:
        """Tell it to stop, once: the next cancellations could interrupt what it does on the first one."""
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

    A new watcher never overlaps with the previous one for the same resource and namespace; other watchers do not wait
    for them. When everything is known, and all watchers of the beginning are started, ``insights.ready`` is set.

    Watchers are retired if their namespace or resource has gone. Those that are replaced, and those that end with the
    orchestrator, are not: their objects still exist, as far as it is known.

    Ends only by cancellation or by an error of any of the watchers, which is raised as it is. In both cases, all other
    watchers are cancelled and awaited for; those that do not end in time are reported and left.
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
    """Tell what is to be watched. Those resources that are not in namespaces do not depend on which are served."""
    return {
        Key(resource, namespace)
        for resource in resources
        for namespace in (namespaces if resource.namespaced else [None])
    }


def is_outdated(before: references.Resource, after: references.Resource) -> bool:
    """Tell if the resource has changed so much that it is to be watched and patched in another way."""
    return any(
        getattr(before, field) != getattr(after, field)
        for field in ('namespaced', 'subresources', 'kind')
    )


def _adjust(watchers: Watchers, keys: Collection[Key], spawn: Spawn, timeout: float) -> None:
    """Start the missing watchers, stop the unneeded and the outdated ones. What is being stopped, is left to end."""
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
    """Wait for the change or for the end of any watcher. Cancellation affects none of the watchers."""
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
    """Forget the watchers that have ended as they were told to, return which; raise the error of any that has not."""
    ended = {key for key, watcher in watchers.items() if watcher.task.done()}
    failures = _take_failures(watchers)
    if failures:
        first = next(iter(failures))
        error = failures.pop(first)
        _report(failures)
        raise error
    return ended


def _take_failures(watchers: Watchers) -> dict[Key, BaseException]:
    """Forget all watchers that have ended, and tell which of them have failed."""
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
    """Log the errors that cannot be raised; one line for the same errors, as there can be many of them at once."""
    texts: dict[str, list[str]] = {}
    for key, error in failures.items():
        texts.setdefault(repr(error), []).append(str(key))
    for text, names in texts.items():
        logger.error('Watching over %s has failed too: %s', ', '.join(names), text)


async def _stop_all(watchers: Watchers, timeout: float) -> None:
    """Stop all watchers, and wait until they end, for a limited time. One more cancellation ends the wait at once."""
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
