"""
Sites: the context of handling that is shared by all objects of an operator or of a resource.
"""

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kopf._cogs.aiokits import clocks
from kopf._cogs.clients import fences, requests
from kopf._cogs.configs import settings as settings_
from kopf._cogs.helpers import meters
from kopf._cogs.structs import references, selectors
from kopf._core.actions import lifecycles
from kopf._core.engines.daemons import spawning
from kopf._core.engines.indexing import indexers as indexers_
from kopf._core.engines.reconciling import caches as caches_
from kopf._core.engines.reconciling import permits as permits_
from kopf._core.intents import handlers, registries
from kopf._core.reactor import inventory


@dataclasses.dataclass(frozen=True)
class Site:
    """The parts of one operator that the handling of objects needs."""

    registry: registries.OperatorRegistry
    settings: settings_.OperatorSettings
    context: requests.Context
    memories: inventory.Memories
    memo: Any
    now: clocks.Now
    lifecycle: lifecycles.LifecycleFn
    indexers: indexers_.Indexers
    spawner: spawning.Spawner
    caches: caches_.Caches = dataclasses.field(default_factory=caches_.Caches)
    permits: permits_.Permits = dataclasses.field(default_factory=permits_.Permits)
    fence: fences.Fence = dataclasses.field(default_factory=fences.Fence)

    def measure_patience(self) -> float:
        """Return the seconds for the running handlers to finish: none if others can lead soon."""
        return 0.0 if self.fence.is_lost else self.settings.queueing.exit_timeout

    @property
    def indices(self) -> Mapping[str, Any]:
        """The indices by their names, for all handlers."""
        return self.indexers.indices

    def get_memo(self, body: Mapping[str, Any], /, *, is_existing: bool) -> Any:
        """
        Get the memo of an existing object if known; otherwise, a copy of the operator's memo.

        Unlike in `Memories.recall`, nothing is remembered: objects are known only while they are
        watched.
        """
        memo = self.memories.find_memo(body) if is_existing else None
        return copy.copy(self.memo) if memo is None else memo


@dataclasses.dataclass(frozen=True)
class Served:
    """The objects of one resource, with the selectors of the handlers currently served."""

    site: Site
    resource: references.Resource
    get_selectors: Callable[[references.Resource], Collection[selectors.Selector] | None]

    @property
    def flow(self) -> meters.Flow:
        """The metrics of these objects."""
        return self.site.context.meter.flows[repr(self.resource)]

    @property
    def selectors(self) -> Collection[selectors.Selector] | None:
        """The selectors resolved to this resource; ``None`` if each one matches on its own."""
        return self.get_selectors(self.resource)

    @property
    def reconcilers(self) -> Sequence[handlers.ReconcileHandler]:
        """The level-triggered handlers of the resource."""
        registry = self.site.registry._reconciling
        return () if registry.is_empty else registry.select(self.resource, self.selectors)

    @property
    def has_handlers(self) -> bool:
        """Whether there are any handlers of the resource, rather than only of related objects."""
        registry = self.site.registry
        chosen = self.selectors
        return bool(self.reconcilers) or any(
            kind.has_handlers(self.resource, chosen)
            for kind in (
                registry._changing,
                registry._watching,
                registry._spawning,
                registry._indexing,
            )
        )

    def is_calm(self) -> bool:
        """Return whether no handler wants every event, and the objects have no daemons."""
        registry = self.site.registry
        # A shortcut, as this is checked many times per event.
        if not registry._watching._handlers and not registry._spawning._handlers:
            return True
        chosen = self.selectors
        is_watched = registry._watching.has_handlers(self.resource, chosen)
        return not is_watched and not registry._spawning.has_handlers(self.resource, chosen)
