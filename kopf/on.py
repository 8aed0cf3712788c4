"""
The decorators: declare handlers for events of objects and of the operator itself.

Each decorator returns the function unchanged, so decorators can be stacked, and the function can be
called directly. The resources are named by up to three positional arguments or by keywords, the
same way in all decorators: ``'pods'``, ``'deployments.apps'``, ``('apps', 'v1', 'deployments')``,
``kind='Pod'``, ``category='all'``, ``kopf.EVERYTHING``, or a function of ``kopf.Resource``. Other
options are explained in the documentation.

Invalid declarations raise `TypeError` or `ValueError` immediately.
"""

# ruff: noqa: PLR0913  # there are as many arguments as there are options
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from kopf._cogs.structs import backoffs, dicts, references, reviews, selectors
from kopf._core.actions import failures
from kopf._core.intents import (
    callbacks,
    causes,
    declarations,
    handlers,
    mappings,
    reasons,
    registries,
)

_Fn = TypeVar('_Fn', bound=Callable[..., Any])
_Name: TypeAlias = str | references.Marker | None
_Resource: TypeAlias = _Name | type[Any] | selectors.ResourceCheck
_Meta: TypeAlias = callbacks.MetaFilter | None
_When: TypeAlias = callbacks.FilterFn | None
_Value: TypeAlias = callbacks.ValueFilter | None
_Errors: TypeAlias = failures.ErrorsMode | None
_Registry: TypeAlias = registries.OperatorRegistry | None


class ActivityDecorator(declarations.Decorator, Protocol):
    """The type of the decorators for the operator's own activities."""


class WatchingDecorator(declarations.Decorator, Protocol):
    """The type of the decorator for raw events."""


class ChangingDecorator(declarations.Decorator, Protocol):
    """The type of the decorators for changes and sub-handlers."""


class WebhookDecorator(declarations.Decorator, Protocol):
    """The type of the decorators for admission."""


class IndexingDecorator(declarations.Decorator, Protocol):
    """The type of the decorator for indices."""


class ReconcilingDecorator(declarations.Decorator, Protocol):
    """The type of the decorator for level-triggered functions."""


class DaemonDecorator(declarations.Decorator, Protocol):
    """The type of the decorator for daemons."""


class TimerDecorator(declarations.Decorator, Protocol):
    """The type of the decorator for timers."""


def startup(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    registry: _Registry = None,
) -> ActivityDecorator:
    """Call the function when the operator starts, before anything else."""
    return declarations.declare_activity(locals(), causes.Activity.STARTUP)


def cleanup(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    registry: _Registry = None,
) -> ActivityDecorator:
    """Call the function when the operator exits, after everything else."""
    return declarations.declare_activity(locals(), causes.Activity.CLEANUP)


def login(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    registry: _Registry = None,
) -> ActivityDecorator:
    """Call the function when the operator needs credentials; the function returns them."""
    return declarations.declare_activity(locals(), causes.Activity.AUTHENTICATION)


def probe(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    registry: _Registry = None,
) -> ActivityDecorator:
    """Call the function when the health of the operator is requested; report its result."""
    return declarations.declare_activity(locals(), causes.Activity.PROBE)


def promoted(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    registry: _Registry = None,
) -> ActivityDecorator:
    """
    Call the function when this replica becomes the leader, before any objects are handled.

    It is not called without an election: see ``settings.leadership``.
    """
    return declarations.declare_activity(locals(), causes.Activity.PROMOTION)


def demoted(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    registry: _Registry = None,
) -> ActivityDecorator:
    """
    Call the function when this replica stops leading, after all objects are handled.

    If the leadership is lost rather than given back, there is little time, and nothing is written.
    """
    return declarations.declare_activity(locals(), causes.Activity.DEMOTION)


def validate(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    operation: reviews.Operation | None = None,
    operations: Collection[reviews.Operation] | None = None,
    subresource: str | None = None,
    persistent: bool | None = None,
    side_effects: bool | None = None,
    ignore_failures: bool | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> WebhookDecorator:
    """Call the function when an object is about to be changed; it can deny the change."""
    return declarations.declare(
        'validate',
        locals(),
        handlers.WebhookHandler,
        type=causes.WebhookType.VALIDATING,
        operations=declarations.unite_operations('validate', operation, operations),
    )


def mutate(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    operation: reviews.Operation | None = None,
    operations: Collection[reviews.Operation] | None = None,
    subresource: str | None = None,
    persistent: bool | None = None,
    side_effects: bool | None = None,
    ignore_failures: bool | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> WebhookDecorator:
    """Call the function when an object is about to be changed; it can deny or modify the change."""
    return declarations.declare(
        'mutate',
        locals(),
        handlers.WebhookHandler,
        type=causes.WebhookType.MUTATING,
        operations=declarations.unite_operations('mutate', operation, operations),
    )


def resume(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    deleted: bool | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> ChangingDecorator:
    """Call the function once after the operator starts, for every object that existed before."""
    return declarations.declare(
        'resume', locals(), handlers.ChangingHandler, initial=True, deleted=bool(deleted)
    )


def create(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> ChangingDecorator:
    """Call the function when an object is created, or is first seen by the operator."""
    return declarations.declare(
        'create', locals(), handlers.ChangingHandler, reason=reasons.Reason.CREATE
    )


def update(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    old: _Value = None,
    new: _Value = None,
    registry: _Registry = None,
) -> ChangingDecorator:
    """Call the function when an object, or the given field of it, is changed."""
    return declarations.declare(
        'update',
        locals(),
        handlers.ChangingHandler,
        reason=reasons.Reason.UPDATE,
        field_needs_change=True,
    )


def delete(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    optional: bool | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> ChangingDecorator:
    """
    Call the function when an object is being deleted.

    Unless the handler is ``optional``, the object is not removed until the function is finished.
    """
    return declarations.declare(
        'delete',
        locals(),
        handlers.ChangingHandler,
        reason=reasons.Reason.DELETE,
        requires_finalizer=not optional,
    )


def field(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec,
    value: _Value = None,
    old: _Value = None,
    new: _Value = None,
    registry: _Registry = None,
) -> ChangingDecorator:
    """
    Call the function when the field of an object is added, changed or removed.

    It is also called for a new object that has the field.
    """
    if not field:
        raise TypeError(
            "@kopf.on.field: the field is not specified. Add field=, e.g. field='spec.size'."
        )
    return declarations.declare(
        'field', locals(), handlers.ChangingHandler, field_needs_change=True
    )


def index(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> IndexingDecorator:
    """Call the function for every object, and keep its results in the index of the same name."""
    return declarations.declare('index', locals(), handlers.IndexingHandler)


def event(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> WatchingDecorator:
    """
    Call the function for every event of the objects, with no retries.

    The framework keeps no state of these calls, and does not modify the objects for them.
    """
    return declarations.declare('event', locals(), handlers.WatchingHandler)


def reconcile(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    owns: Collection[selectors.Notation | mappings.Owns] | None = None,
    watches: Mapping[Any, mappings.Link | Collection[mappings.Link]] | None = None,
    resync: float | None = None,
    settle: float | None = None,
    deletion: bool | None = None,
    workers: int | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> ReconcilingDecorator:
    """
    Call the function whenever the object can differ from what it should be, after any change.

    The function sees only the present, and nothing is stored on the object to remember the calls.
    """
    declarations.check_paces(resync=resync, settle=settle, workers=workers)
    return declarations.declare(
        'reconcile',
        {**locals(), 'backoff': backoffs.Backoff() if backoff is None else backoff},
        handlers.ReconcileHandler,
        deletion=bool(deletion),
        **declarations.parse_links(owns, watches),
    )


def daemon(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    initial_delay: handlers.InitialDelay | None = None,
    cancellation_backoff: float | None = None,
    cancellation_timeout: float | None = None,
    cancellation_polling: float | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> DaemonDecorator:
    """Keep the function running as long as the object exists."""
    return declarations.declare('daemon', locals(), handlers.DaemonHandler)


def timer(
    arg1: _Resource = None,
    arg2: _Name = None,
    arg3: _Name = None,
    /,
    *,
    group: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    plural: str | None = None,
    singular: str | None = None,
    shortcut: str | None = None,
    category: str | None = None,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    interval: float | None = None,
    initial_delay: handlers.InitialDelay | None = None,
    sharp: bool | None = None,
    idle: float | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    registry: _Registry = None,
) -> TimerDecorator:
    """Call the function periodically as long as the object exists."""
    return declarations.declare('timer', locals(), handlers.TimerHandler)


def subhandler(
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
    field: dicts.FieldSpec = None,
    value: _Value = None,
    old: _Value = None,
    new: _Value = None,
) -> ChangingDecorator:
    """Make the function a part of the current handler, with its own state, retries and errors."""
    options = locals()

    def decorate(fn: _Fn, /) -> _Fn:
        _register(fn, options)
        return fn

    return decorate


def register(
    fn: _Fn,
    *,
    id: str | None = None,
    param: Any = None,
    errors: _Errors = None,
    timeout: float | None = None,
    retries: int | None = None,
    backoff: float | backoffs.Backoff | None = None,
    labels: _Meta = None,
    annotations: _Meta = None,
    when: _When = None,
) -> _Fn:
    """Declare a function as a sub-handler, as `subhandler` does, without decorating it."""
    _register(fn, {name: value for name, value in locals().items() if name != 'fn'})
    return fn


def _register(fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    from kopf._core.reactor import subhandling  # loads asyncio

    subhandling.register(registries.build_subhandler(subhandling.get_parent(), fn, **options))
