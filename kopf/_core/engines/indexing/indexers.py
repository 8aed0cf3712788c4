"""
Indexers: call the indexing functions for every event of a stream, before any other handlers.

Their errors delay nothing: an object that cannot be indexed is left out of that index, temporarily
or forever, and is handled as usual otherwise. Nothing of this is stored on the objects.
"""

import dataclasses
import datetime
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import meters
from kopf._cogs.structs import bodies, dicts, objects, patches, references, selectors
from kopf._core.actions import execution, failures, loggers, progression
from kopf._core.engines.indexing import indices
from kopf._core.intents import causes, filters, handlers, naming, registries

Key = Hashable
"""The identifier of an object."""

Source = tuple[references.Resource, Key, int]
"""
An object with the function that indexed it, since several functions can share one index:
``(resource, key, id(handler))``. If the object is served in several versions of the resource, it is
indexed under each of them.
"""


@dataclasses.dataclass(frozen=True)
class Sighting:
    """An object as received from the stream."""

    key: Key
    resource: references.Resource
    selectors: Collection[selectors.Selector] | None
    event: bodies.RawEvent
    memo: Any


class Indexers:
    """
    All indices of an operator, and the states of the objects that could not be indexed.

    Belongs to the event loop of the operator. Each object is indexed by one task at a time.
    """

    def __init__(
        self,
        registry: registries.OperatorRegistry,
        settings: settings_.OperatorSettings,
        now: Callable[[], datetime.datetime],
        *,
        meter: meters.Meter | None = None,
    ) -> None:
        self._registry = registry._indexing
        self._settings = settings
        self._env = execution.Environment(settings=settings, now=now, meter=meter)
        self._live: dict[str, indices.LiveIndex] = {}
        self._troubles: dict[Source, progression.HandlerState] = {}
        self.prepare()

    @property
    def indices(self) -> Mapping[str, indices.LiveIndex]:
        """The indices by their names, for all handlers. It is always the same mapping."""
        return self._live

    @property
    def is_empty(self) -> bool:
        """Whether there are no indices."""
        return not self._live

    def prepare(self) -> None:
        """Create the missing indices: startup handlers can declare more of them."""
        for handler in self._registry:
            self._live.setdefault(handler.id, indices.LiveIndex())

    def is_indexed(
        self, resource: references.Resource, resolved: Collection[selectors.Selector] | None = None
    ) -> bool:
        """Return whether the objects of the resource are indexed."""
        return self._registry.has_handlers(resource, resolved)

    async def index(self, sighting: Sighting) -> None:
        """
        Update the indices for the current state of the object, or for its deletion.

        Errors of the functions and of their filters are logged. If cancelled, some of the indices
        are not updated.
        """
        declared = self._registry.select(sighting.resource, sighting.selectors)
        if not declared:
            return

        if sighting.event['type'] == 'DELETED':
            self.forget(sighting.resource, sighting.key)
            return

        cause = self._build_cause(sighting)
        verdicts = [(handler, _match(handler, cause)) for handler in declared]
        matching = naming.deduplicate(handler for handler, is_matching in verdicts if is_matching)
        kept = {
            id(handler)
            for handler in [
                *matching,
                *(handler for handler, verdict in verdicts if verdict is None),
            ]
        }

        for handler in declared:
            if id(handler) not in kept:
                self._live[handler.id].discard((sighting.resource, sighting.key, id(handler)))

        for handler in matching:
            await self._index(handler, cause, sighting.key)
        if cause.patch:
            cause.logger.warning(
                'Patches of indexing functions are not applied. Use handlers of events for that.'
            )

    def forget(self, resource: references.Resource, key: Key) -> None:
        """
        Remove an object of this resource that was deleted or is no longer served from all indices.
        """
        for handler in self._registry:
            source = resource, key, id(handler)
            self._live[handler.id].discard(source)
            self._troubles.pop(source, None)

    async def _index(
        self, handler: handlers.IndexingHandler, cause: causes.IndexingCause, key: Key
    ) -> None:
        source = cause.resource, key, id(handler)
        state = self._troubles.get(source, _BLANK)
        if not state.due(self._env.now()):
            return

        outcome = await execution.run_attempt(
            handler, cause, state, self._env, default_errors=failures.ErrorsMode.IGNORED
        )
        if outcome.is_success:
            self._troubles.pop(source, None)
            if outcome.result is not None:
                self._live[handler.id].replace(source, spread(outcome.result))
        else:
            self._live[handler.id].discard(source)

        if not outcome.is_success and not isinstance(
            outcome.exception, failures.InvalidObjectError
        ):
            self._troubles[source] = state.with_outcome(outcome, now=self._env.now())

    def _build_cause(self, sighting: Sighting) -> causes.IndexingCause:
        # Functions may modify the body in place.
        body = objects.Body(dicts.copy_json(sighting.event['object']))
        return causes.IndexingCause(
            logger=loggers.LocalObjectLogger(body=body, settings=self._settings),
            memo=sighting.memo,
            indices=self._live,
            resource=sighting.resource,
            selectors=sighting.selectors,
            body=body,
            patch=patches.Patch(body=sighting.event['object']),
        )


def spread(result: Any) -> Mapping[Any, Any]:
    """Return the values by keys: a plain dict as is, anything else as one value with no key."""
    return result if type(result) is dict else {None: result}


def _match(handler: handlers.IndexingHandler, cause: causes.IndexingCause) -> bool | None:
    """
    Return whether the object matches the filters of the index; ``None`` if the filters have failed.
    """
    try:
        return filters.match(handler, cause)
    except Exception:
        cause.logger.exception(
            'The filters of the index %r have failed; the object stays there as it was, or is not.',
            str(handler.id),
        )
        return None


_BLANK = progression.HandlerState()
