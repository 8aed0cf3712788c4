"""
Registries: all declared handlers, and their selection by resource and cause.

Handlers are added by decorators, at any time and from any module, and stay in the order of their
declaration. One registry can be used by several operators at the same time.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from kopf._cogs.helpers import aliases
from kopf._cogs.structs import dicts, ids, references, selectors
from kopf._core.actions import execution
from kopf._core.intents import causes, filters, handlers, naming, reasons

ResourceHandlerT = TypeVar('ResourceHandlerT', bound=handlers.ResourceHandler)
CauseT = TypeVar('CauseT', bound=causes.ResourceCause)
Selectors: TypeAlias = Collection[selectors.Selector]


class ActivityRegistry:
    """The handlers of the operator's own activities."""

    def __init__(self) -> None:
        self._handlers: list[handlers.ActivityHandler] = []

    def append(self, handler: handlers.ActivityHandler) -> None:
        self._handlers.append(handler)

    def __iter__(self) -> Iterator[handlers.ActivityHandler]:
        return iter(tuple(self._handlers))

    def discard(self, unwanted: Collection[int]) -> None:
        """Forget the handlers with these identities."""
        self._handlers[:] = [handler for handler in self._handlers if id(handler) not in unwanted]

    def select(self, activity: causes.Activity) -> list[handlers.ActivityHandler]:
        """Select the handlers of one activity: each function once per id, with unique ids."""
        declared = naming.deduplicate(
            handler for handler in self._handlers if handler.activity == activity
        )
        return naming.number_namesakes(declared, lambda handler: {handler.activity})


class ResourceRegistry(Generic[ResourceHandlerT, CauseT]):
    """The handlers of one kind for objects."""

    def __init__(self) -> None:
        self._handlers: list[ResourceHandlerT] = []
        self._selected: dict[
            tuple[references.Resource, frozenset[selectors.Selector]], list[ResourceHandlerT]
        ] = {}

    def append(self, handler: ResourceHandlerT) -> None:
        self._handlers.append(handler)
        self._selected.clear()

    def __iter__(self) -> Iterator[ResourceHandlerT]:
        return iter(tuple(self._handlers))

    @property
    def is_empty(self) -> bool:
        """Whether there are no handlers for any resources."""
        return not self._handlers

    def discard(self, unwanted: Collection[int]) -> None:
        """Forget the handlers with these identities."""
        self._handlers[:] = [handler for handler in self._handlers if id(handler) not in unwanted]
        self._selected.clear()

    def selectors(self) -> set[selectors.Selector]:
        """Return the selectors of all handlers."""
        return {handler.selector for handler in self if handler.selector is not None}

    def select(
        self, resource: references.Resource, resolved: Selectors | None = None
    ) -> Sequence[ResourceHandlerT]:
        """
        Select the handlers of the resource: those whose selectors were resolved to this resource.

        If the resolved selectors are unknown, each selector matches on its own, regardless of other
        resources. The results are cached, as they are needed many times per event.
        """
        if not isinstance(resolved, frozenset):
            return self._distinguish(self._select_declared(resource, resolved))

        selected = self._selected.get((resource, resolved))
        if selected is None:
            selected = self._distinguish(self._select_declared(resource, resolved))
            self._selected[resource, resolved] = selected

        return selected

    def find_namesakes(
        self,
        resource: references.Resource,
        resolved: Selectors | None = None,
    ) -> Mapping[ids.HandlerId, Mapping[ids.HandlerId, str]]:
        """
        Find the ids with several functions for the resource, with the places by the assigned ids.
        """
        declared = self._select_declared(resource, resolved)
        return naming.find_namesakes(declared, self._distinguish(declared))

    def _select_declared(
        self, resource: references.Resource, resolved: Selectors | None
    ) -> list[ResourceHandlerT]:
        return [handler for handler in self if _is_for(handler.selector, resource, resolved)]

    def _distinguish(self, declared: list[ResourceHandlerT]) -> list[ResourceHandlerT]:
        """Assign different ids to different functions, if anything is stored under these ids."""
        return declared

    def has_handlers(
        self, resource: references.Resource, resolved: Selectors | None = None
    ) -> bool:
        """Return whether there are any handlers for the resource."""
        return bool(self._handlers) and bool(self.select(resource, resolved))

    def iter_handlers(
        self, cause: CauseT, *, skip: Callable[[ResourceHandlerT], bool] | None = None
    ) -> list[ResourceHandlerT]:
        """Select the handlers to be called now, each function once per id, in order."""
        return naming.deduplicate(
            handler
            for handler in self._select_for(cause)
            if (skip is None or not skip(handler)) and filters.match(handler, cause)
        )

    def is_in_scope(self, cause: CauseT) -> bool:
        """Return whether the object is of interest, now or after changes of its fields."""
        return any(filters.prematch(handler, cause) for handler in self._select_for(cause))

    def _select_for(self, cause: CauseT) -> Sequence[ResourceHandlerT]:
        return self.select(cause.resource, cause.selectors)


class WatchingRegistry(ResourceRegistry[handlers.WatchingHandler, causes.WatchingCause]):
    """The handlers of raw events."""


class IndexingRegistry(ResourceRegistry[handlers.IndexingHandler, causes.IndexingCause]):
    """The indices."""


class WebhooksRegistry(ResourceRegistry[handlers.WebhookHandler, causes.WebhookCause]):
    """The handlers of admission reviews."""


class ReconcilingRegistry(ResourceRegistry[handlers.ReconcileHandler, causes.ReconcilingCause]):
    """The level-triggered handlers."""

    def selectors(self) -> set[selectors.Selector]:
        links = {link.selector for handler in self for link in handler.links}
        return super().selectors() | links

    def _distinguish(
        self, declared: list[handlers.ReconcileHandler]
    ) -> list[handlers.ReconcileHandler]:
        return naming.number_namesakes(
            naming.deduplicate(declared), lambda handler: {'reconciling'}
        )


class SpawningRegistry(ResourceRegistry[handlers.SpawningHandler, causes.SpawningCause]):
    """The daemons and timers."""

    def requires_finalizer(self, cause: causes.SpawningCause) -> bool:
        """
        Return whether the object must not be deleted before its daemons and timers are stopped.
        """
        return any(handler.requires_finalizer for handler in self.iter_handlers(cause))

    def _distinguish(
        self, declared: list[handlers.SpawningHandler]
    ) -> list[handlers.SpawningHandler]:
        return naming.number_namesakes(declared, lambda handler: {'spawning'})


class ChangingRegistry(ResourceRegistry[handlers.ChangingHandler, causes.ChangingCause]):
    """The handlers of changes."""

    def __init__(self) -> None:
        super().__init__()
        self._rosters: dict[references.Resource, Roster] = {}

    def requires_finalizer(self, cause: causes.ChangingCause) -> bool:
        """Return whether any mandatory handlers would be called if the object was deleted now."""
        mandatory = [handler for handler in self._select_for(cause) if handler.requires_finalizer]
        if not mandatory:
            return False
        if any(map(_is_for_any_deletion, mandatory)):
            return True
        deletion = causes.as_deletion(cause)
        return any(filters.match(handler, deletion) for handler in mandatory)

    def survey(self, resource: references.Resource, resolved: Selectors | None = None) -> 'Roster':
        """Get the properties of the resource's handlers, cached as every event needs them."""
        selected = self.select(resource, resolved)
        roster = self._rosters.get(resource)
        if roster is None or roster.members is not selected:
            roster = self._rosters[resource] = Roster.build(selected)
        return roster

    def _distinguish(
        self, declared: list[handlers.ChangingHandler]
    ) -> list[handlers.ChangingHandler]:
        return naming.number_namesakes(declared, filters.list_reasons)


@dataclasses.dataclass(frozen=True)
class Roster:
    """The handlers of changes of one resource, and their consequences for all its objects."""

    members: Sequence[handlers.ChangingHandler]
    known_ids: Collection[ids.HandlerId]
    # The fields whose changes must be noticed even if they are usually ignored.
    extra_fields: Collection[dicts.FieldPath]
    has_callbacks: bool  # whether any filters are users' functions
    # Whether the objects can have our finalizer at all; if not, it belongs to another operator.
    may_hold: bool
    must_hold: bool  # whether every object must be held until its deletion is handled
    shared_ids: Collection[ids.HandlerId]  # ids of different functions for different causes

    @classmethod
    def build(cls, selected: Sequence[handlers.ChangingHandler]) -> 'Roster':
        mandatory = [handler for handler in selected if handler.requires_finalizer]
        return cls(
            members=selected,
            known_ids=tuple(dict.fromkeys(handler.id for handler in selected)),
            extra_fields=frozenset(
                handler.field for handler in selected if handler.field is not None
            ),
            has_callbacks=any(map(filters.has_callbacks, selected)),
            may_hold=bool(mandatory),
            must_hold=any(map(_is_for_any_deletion, mandatory)),
            shared_ids=naming.find_shared_ids(selected),
        )

    def is_shared(self, id: ids.HandlerId) -> bool:
        """Return whether the id, or that of a parent, is shared by different functions."""
        return any(id == shared or id.startswith(f'{shared}/') for shared in self.shared_ids)


class OperatorRegistry:
    """
    All handlers of an operator.

    It is opaque for users: they only create it, and pass it to decorators and operators.
    """

    def __init__(self) -> None:
        self._activities = ActivityRegistry()
        self._watching = WatchingRegistry()
        self._changing = ChangingRegistry()
        self._spawning = SpawningRegistry()
        self._indexing = IndexingRegistry()
        self._reconciling = ReconcilingRegistry()
        self._webhooks = WebhooksRegistry()

    def _append(self, handler: execution.Handler) -> None:
        match handler:
            case handlers.ActivityHandler():
                self._activities.append(handler)
            case handlers.WatchingHandler():
                self._watching.append(handler)
            case handlers.ChangingHandler():
                self._changing.append(handler)
            case handlers.SpawningHandler():
                self._spawning.append(handler)
            case handlers.IndexingHandler():
                self._indexing.append(handler)
            case handlers.ReconcileHandler():
                self._reconciling.append(handler)
            case handlers.WebhookHandler():
                self._webhooks.append(handler)
            case _:
                raise TypeError(f'It is not a handler of an operator: {handler!r}.')

    def _discard(self, unwanted: Iterable[execution.Handler]) -> None:
        """Forget the handlers, as if they were never declared."""
        identities = {id(handler) for handler in unwanted}
        for registry in self._registries:
            registry.discard(identities)

    def _iter_handlers(self) -> Iterator[execution.Handler]:
        """Iterate over all handlers of all kinds."""
        for registry in self._registries:
            yield from registry

    @property
    def _registries(self) -> 'tuple[ActivityRegistry | ResourceRegistry[Any, Any], ...]':
        return (
            self._changing,
            self._watching,
            self._spawning,
            self._indexing,
            self._reconciling,
            self._webhooks,
            self._activities,
        )

    def watched_selectors(self) -> set[selectors.Selector]:
        """Return the selectors of resources to watch; admission reviews need no watching."""
        return (
            self.patched_selectors()
            | self._watching.selectors()
            | self._indexing.selectors()
            | self._reconciling.selectors()
        )

    def reviewed_selectors(self) -> set[selectors.Selector]:
        """Return the selectors of resources whose requests are reviewed."""
        return self._webhooks.selectors()

    def patched_selectors(self) -> set[selectors.Selector]:
        """Return the selectors of resources whose objects must be patchable."""
        finalizing = {
            handler.selector
            for handler in self._reconciling
            if handler.deletion and handler.selector is not None
        }
        return self._changing.selectors() | self._spawning.selectors() | finalizing


def _is_for_any_deletion(handler: handlers.ChangingHandler) -> bool:
    return handler.reason is reasons.Reason.DELETE and not filters.is_selective(handler)


def _is_for(
    selector: selectors.Selector | None, resource: references.Resource, resolved: Selectors | None
) -> bool:
    if selector is None:
        return True
    return selector.matches(resource) if resolved is None else selector in resolved


def build_subhandler(
    parent: handlers.ChangingHandler,
    fn: Callable[..., Any],
    *,
    id: str | None = None,
    field: dicts.FieldSpec = None,
    **options: Any,
) -> handlers.ChangingHandler:
    """
    Build a sub-handler of another handler; it is for all reasons of its parent.

    Raises `TypeError` if it has criteria for old values, but the parent is not for changes; also
    for wrong filters. Raises `ValueError` if it is not a function.
    """
    naming.check_function(fn)
    path = dicts.parse_field(field) or None
    criteria = {
        name: options.get(name) for name in ('labels', 'annotations', 'when', 'value', 'old', 'new')
    }
    filters.check_filters(field=path, **criteria)
    if (
        options.get('old') is not None or options.get('new') is not None
    ) and not parent.field_needs_change:
        raise TypeError(
            'old= and new= are only for sub-handlers of update and field handlers, and '
            f'{parent.id!r} is neither. Use value=, which is about the current value.'
        )
    return handlers.ChangingHandler(
        fn=fn,
        id=naming.build_id(fn, id, field=path, prefix=parent.id),
        field=path,
        field_needs_change=parent.field_needs_change,
        **options,
    )


_default_registry: OperatorRegistry | None = None


def get_default_registry() -> OperatorRegistry:
    """Get the registry of all decorators and operators with no explicit registry."""
    global _default_registry
    if _default_registry is None:
        _default_registry = OperatorRegistry()
    return _default_registry


def set_default_registry(registry: OperatorRegistry) -> None:
    """Set the registry of all later decorators and operators with no explicit registry."""
    global _default_registry
    _default_registry = registry


if not TYPE_CHECKING:  # otherwise, any misspelt name would pass the type checks
    __getattr__ = aliases.build_getattr(__name__)
