"""
Indexing: the functions that tell what is to be known of objects, called on the stream, before any other handlers.

Their errors delay nothing: an object that cannot be indexed is left out of that index, for some time or for ever,
and is handled as usual otherwise. Nothing of this is kept on the objects.
"""
import dataclasses
import datetime
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any

from kopf._cogs.configs import settings as settings_
from kopf._cogs.structs import bodies, ids, patches, references, selectors
from kopf._core.actions import execution, failures, loggers, progression
from kopf._core.engines import indices
from kopf._core.intents import causes, handlers, registries

Key = Hashable
"""What tells one object from all others."""


@dataclasses.dataclass(frozen=True)
class Sighting:
    """An object as it has come from the stream."""
    key: Key
    resource: references.Resource
    selectors: Collection[selectors.Selector] | None
    event: bodies.RawEvent
    memo: Any


class Indexers:
    """
    All indices of an operator, and what is remembered of the objects that could not be indexed.

    Belongs to the event loop of the operator. Each object is indexed by one task at a time.
    """

    def __init__(self, registry: registries.OperatorRegistry, settings: settings_.OperatorSettings,
                 now: Callable[[], datetime.datetime]) -> None:
        self._registry = registry._indexing
        self._settings = settings
        self._env = execution.Environment(settings=settings, now=now, is_quiet=True)
        self._live: dict[str, indices.LiveIndex] = {handler.id: indices.LiveIndex() for handler in self._registry}
        self._troubles: dict[Key, dict[ids.HandlerId, progression.HandlerState]] = {}

    @property
    def indices(self) -> Mapping[str, indices.Index[Any, Any]]:
        """The indices by their names, for all handlers."""
        return self._live

    @property
    def is_empty(self) -> bool:
        """Are there no indices at all?"""
        return not self._live

    def is_indexed(self, resource: references.Resource,
                   resolved: Collection[selectors.Selector] | None = None) -> bool:
        """Tell if the objects of the resource are indexed."""
        return self._registry.has_handlers(resource, resolved)

    async def index(self, sighting: Sighting) -> None:
        """
        Update the indices for the object as it is now, or as it is not any more.

        Errors of the functions and of their filters are logged. If cancelled, some of the indices are not updated.
        """
        declared = self._registry.select(sighting.resource, sighting.selectors)
        if not declared:
            return
        if sighting.event['type'] == 'DELETED':
            self.forget(sighting.key, declared)
            return
        cause = self._build_cause(sighting)
        try:
            matching = self._registry.iter_handlers(cause)
        except Exception:
            cause.logger.exception("The filters of indices have failed; the object stays indexed as it was before.")
            return
        called = {id(handler) for handler in matching}
        for handler in declared:
            if id(handler) not in called:
                self._live[handler.id].discard(_identify(sighting.key, handler))
        for handler in matching:
            await self._index(handler, cause, sighting.key)
        if cause.patch:
            cause.logger.warning("Patches of indexing functions are not applied. Use handlers of events for that.")

    def forget(self, key: Key, declared: Iterable[handlers.IndexingHandler] | None = None) -> None:
        """Remove all that is known of the object."""
        self._troubles.pop(key, None)
        for handler in self._registry if declared is None else declared:
            self._live[handler.id].discard(_identify(key, handler))

    async def _index(self, handler: handlers.IndexingHandler, cause: causes.IndexingCause, key: Key) -> None:
        troubles = self._troubles.get(key, {})
        state = troubles.get(handler.id, progression.HandlerState())
        now = self._env.now()
        if not state.due(now):
            return
        outcome = await execution.run_attempt(
            handler, cause, state, self._env, default_errors=failures.ErrorsMode.IGNORED)
        if outcome.is_success:
            troubles.pop(handler.id, None)
            if outcome.result is not None:
                self._live[handler.id].replace(_identify(key, handler), spread(outcome.result))
        else:
            self._live[handler.id].discard(_identify(key, handler))
            troubles = self._troubles.setdefault(key, {})
            troubles[handler.id] = state.with_outcome(outcome, now=self._env.now())
        if not troubles:
            self._troubles.pop(key, None)

    def _build_cause(self, sighting: Sighting) -> causes.IndexingCause:
        body = bodies.Body(sighting.event['object'])
        return causes.IndexingCause(
            logger=loggers.LocalObjectLogger(body=body, settings=self._settings), memo=sighting.memo,
            indices=self._live, resource=sighting.resource, selectors=sighting.selectors, body=body,
            patch=patches.Patch(body=sighting.event['object']))


def spread(result: Any) -> Mapping[Any, Any]:
    """Tell which values are for which keys: those of a plain dict are, anything else is one value with no key."""
    return result if type(result) is dict else {None: result}


def _identify(key: Key, handler: handlers.IndexingHandler) -> Hashable:
    """Several functions can share one index; the values of each are on their own."""
    return key, id(handler)
