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
import dataclasses
import typing
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

from kopf._cogs.structs import backoffs, dicts, references, reviews, selectors
from kopf._core.actions import execution, failures
from kopf._core.intents import (
    arguments,
    callbacks,
    causes,
    filters,
    handlers,
    naming,
    reasons,
    registries,
)

_Fn = TypeVar('_Fn', bound=Callable[..., Any])
_Name: TypeAlias = str | references.Marker | None
_Resource: TypeAlias = _Name | selectors.ResourceCheck
_Meta: TypeAlias = callbacks.MetaFilter | None
_When: TypeAlias = callbacks.FilterFn | None
_Value: TypeAlias = callbacks.ValueFilter | None
_Errors: TypeAlias = failures.ErrorsMode | None
_Registry: TypeAlias = registries.OperatorRegistry | None


class _Decorator(Protocol):
    def __call__(self, fn: _Fn, /) -> _Fn: ...


class ActivityDecorator(_Decorator, Protocol):
    """The type of the decorators for the operator's own activities."""


class WatchingDecorator(_Decorator, Protocol):
    """The type of the decorator for raw events."""


class ChangingDecorator(_Decorator, Protocol):
    """The type of the decorators for changes and sub-handlers."""


class WebhookDecorator(_Decorator, Protocol):
    """The type of the decorators for admission."""


class IndexingDecorator(_Decorator, Protocol):
    """The type of the decorator for indices."""


class DaemonDecorator(_Decorator, Protocol):
    """The type of the decorator for daemons."""


class TimerDecorator(_Decorator, Protocol):
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
    return _declare_activity(locals(), causes.Activity.STARTUP)


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
    return _declare_activity(locals(), causes.Activity.CLEANUP)


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
    return _declare_activity(locals(), causes.Activity.AUTHENTICATION)


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
    return _declare_activity(locals(), causes.Activity.PROBE)


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
    return _declare(
        'validate',
        locals(),
        handlers.WebhookHandler,
        type=causes.WebhookType.VALIDATING,
        operations=_unite_operations('validate', operation, operations),
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
    return _declare(
        'mutate',
        locals(),
        handlers.WebhookHandler,
        type=causes.WebhookType.MUTATING,
        operations=_unite_operations('mutate', operation, operations),
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
    return _declare(
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
    return _declare('create', locals(), handlers.ChangingHandler, reason=reasons.Reason.CREATE)


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
    return _declare(
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
    return _declare(
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
    return _declare('field', locals(), handlers.ChangingHandler, field_needs_change=True)


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
    return _declare('index', locals(), handlers.IndexingHandler)


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
    return _declare('event', locals(), handlers.WatchingHandler)


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
    return _declare('daemon', locals(), handlers.DaemonHandler)


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
    return _declare('timer', locals(), handlers.TimerHandler)


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


def _declare_activity(given: Mapping[str, Any], activity: causes.Activity) -> _Decorator:
    options = {name: value for name, value in given.items() if name not in ('id', 'registry')}

    def build(fn: Callable[..., Any]) -> handlers.ActivityHandler:
        return handlers.ActivityHandler(
            fn=fn, id=naming.build_id(fn, given['id']), activity=activity, **options
        )

    return _decorate(build, given['registry'])


def _declare(
    name: str,
    given: Mapping[str, Any],
    cls: type[handlers.ResourceHandler],
    **fixed: Any,
) -> _Decorator:
    """
    Check the arguments of a decorator, and turn them into the options of a handler.

    The fixed options are added. Arguments that are not options of the handler are used by the
    decorators themselves.
    """
    try:
        selector = selectors.build_selector(
            given['arg1'],
            given['arg2'],
            given['arg3'],
            **{key: given[key] for key in ('group', 'version', *selectors.KEYWORDS)},
        )
        field = dicts.parse_field(given['field']) or None
        criteria = ('labels', 'annotations', 'when', 'value', 'old', 'new')
        filters.check_filters(field=field, **{key: given.get(key) for key in criteria})
    except (TypeError, ValueError) as error:
        raise type(error)(f'@kopf.on.{name}: {error}') from None
    names = {option.name for option in dataclasses.fields(cls)} & given.keys() - {
        'id',
        'field',
    } - fixed.keys()
    options = {key: given[key] for key in names}

    def build(fn: Callable[..., Any]) -> handlers.ResourceHandler:
        # Indices are named as they are passed to handlers.
        suffix = None if cls is handlers.IndexingHandler else field
        id = naming.build_id(fn, given['id'], field=suffix)
        return cls(fn=fn, id=id, selector=selector, field=field, **options, **fixed)

    return _decorate(build, given['registry'])


def _decorate(
    build: Callable[[Callable[..., Any]], execution.Handler], registry: _Registry
) -> _Decorator:
    def decorate(fn: _Fn, /) -> _Fn:
        naming.check_function(fn)
        target = registries.get_default_registry() if registry is None else registry
        handler = build(fn)
        arguments.check_declaration(handler)
        target._append(handler)
        return fn

    return decorate


def _unite_operations(
    name: str,
    operation: reviews.Operation | None,
    operations: Collection[reviews.Operation] | None,
) -> frozenset[reviews.Operation] | None:
    if operation is not None:
        warnings.warn(
            f'@kopf.on.{name}: operation= is deprecated; use operations=, with a list of them.',
            DeprecationWarning,
            stacklevel=3,
        )
    if operations is None and operation is None:
        return None
    if isinstance(operations, str):
        raise TypeError(
            f'@kopf.on.{name}: operations= is a collection of operations; got {operations!r}.'
        )
    if operations is not None and not operations:
        raise ValueError(
            f'@kopf.on.{name}: operations= is empty, so the function would never be called. '
            f'List the operations, or omit it for all of them.'
        )
    united = frozenset([*(operations or ()), *([] if operation is None else [operation])])
    unknown = united.difference((*typing.get_args(reviews.Operation), '*'))
    if unknown:
        raise ValueError(
            f'@kopf.on.{name}: there are no such operations as {", ".join(sorted(map(repr, unknown)))}. '
            f'There are {", ".join(typing.get_args(reviews.Operation))}; omit it for all of them.'
        )
    return frozenset(typing.get_args(reviews.Operation)) if '*' in united else united


def _register(fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    from kopf._core.reactor import subhandling  # loads asyncio

    subhandling.register(registries.build_subhandler(subhandling.get_parent(), fn, **options))
