"""
Filters: whether a handler should be called for a change of an object.

There are two questions. "Is the object of any interest?" considers only labels, annotations and
``when=``: the fields of an object can change later, and those changes must be noticed. "Is the
handler called now?" considers all criteria.

``None`` is the same as absence in all values. Fields are absent if there is a non-mapping on their
path.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import dicts, objects, reviews
from kopf._core.intents import callbacks, causes, handlers, reasons

_HANDLED = frozenset(
    {reasons.Reason.CREATE, reasons.Reason.UPDATE, reasons.Reason.DELETE, reasons.Reason.RESUME}
)
_CHANGING = frozenset({reasons.Reason.CREATE, reasons.Reason.UPDATE})


def prematch(handler: handlers.ResourceHandler, cause: causes.ResourceCause) -> bool:
    """Return whether the object is of interest for the handler, now or later."""
    if not is_selective(handler):
        return True
    check = _Check(handler, cause)
    try:
        return check.match_metadata() and check.match_when()
    except Exception as error:
        error.add_note(f'It is a filter of {handler}.')
        raise


def match(handler: handlers.ResourceHandler, cause: causes.ResourceCause) -> bool:
    """Return whether the handler should be called now. ``when=`` is called last."""
    if not _match_occasion(handler, cause):
        return False
    if not is_selective(handler):
        return True

    check = _Check(handler, cause)
    try:
        return check.match_metadata() and check.match_field() and check.match_when()
    except Exception as error:
        error.add_note(f'It is a filter of {handler}.')
        raise


def is_selective(handler: handlers.ResourceHandler) -> bool:
    """Return whether the handler has any criteria for the object itself."""
    return (
        bool(handler.labels or handler.annotations)
        or handler.field is not None
        or handler.when is not None
    )


def has_callbacks(handler: handlers.ResourceHandler) -> bool:
    """Return whether any criteria of the handler are users' functions."""
    if not is_selective(handler):
        return False
    if handler.when is not None or callable(handler.value):
        return True
    criteria: list[Any] = [*(handler.labels or {}).values(), *(handler.annotations or {}).values()]
    if isinstance(handler, handlers.ChangingHandler):
        criteria += [handler.old, handler.new]
    return any(map(callable, criteria))


def list_reasons(handler: handlers.ChangingHandler) -> frozenset[reasons.Reason]:
    """List the reasons for which the handler can be called for any object."""
    if handler.reason is not None:
        return frozenset({handler.reason})
    if handler.initial:
        return _HANDLED if handler.deleted else _HANDLED - {reasons.Reason.DELETE}
    return _CHANGING if handler.field_needs_change else _HANDLED


def _match_occasion(handler: handlers.ResourceHandler, cause: causes.ResourceCause) -> bool:
    """Return whether the handler is declared for this kind of change, regardless of the object."""
    match handler, cause:
        case handlers.ChangingHandler(), causes.ChangingCause():
            return _match_reason(handler, cause)
        case handlers.WebhookHandler(), causes.WebhookCause():
            return _match_request(handler, cause)
    return True


def _match_reason(handler: handlers.ChangingHandler, cause: causes.ChangingCause) -> bool:
    if handler.reason is not None:
        return handler.reason == cause.reason
    if handler.initial:
        return (
            cause.reason in _HANDLED
            and cause.initial
            and (handler.deleted or not cause.is_deletion)
        )
    return cause.reason in (_CHANGING if handler.field_needs_change else _HANDLED)


def _match_request(handler: handlers.WebhookHandler, cause: causes.WebhookCause) -> bool:
    return match_operation(handler, cause.operation) and handler.subresource in (
        '*',
        cause.subresource,
    )


def match_operation(handler: handlers.WebhookHandler, operation: reviews.Operation | None) -> bool:
    """
    Return whether the handler reviews such requests.

    Deletions have nothing to mutate, so mutating handlers must declare them explicitly.
    """
    if handler.operations is not None:
        return operation in handler.operations
    return handler.type is not causes.WebhookType.MUTATING or operation != 'DELETE'


@dataclasses.dataclass(frozen=True)
class _Check:
    """The criteria of one handler against one cause."""

    handler: handlers.ResourceHandler
    cause: causes.ResourceCause

    @functools.cached_property
    def kwargs(self) -> Mapping[str, Any]:
        """The arguments of the handler, except for those of a specific attempt."""
        return {**self.cause.kwargs, **self.handler.adjust(self.cause), **self.cause.indices}

    def match_metadata(self) -> bool:
        """Match the object; in reviews, also its old state, or relabelling would evade them."""
        if self._match_metadata_of(self.cause.body):
            return True
        old = self.cause.old if isinstance(self.cause, causes.WebhookCause) else None
        return old is not None and self._match_metadata_of(old)

    def _match_metadata_of(self, body: objects.Body) -> bool:
        return self._match_keys(self.handler.labels, body.metadata.labels) and self._match_keys(
            self.handler.annotations, body.metadata.annotations
        )

    def _match_keys(self, criteria: callbacks.MetaFilter | None, values: Mapping[str, str]) -> bool:
        return all(
            self._accept(criterion, values.get(key)) for key, criterion in (criteria or {}).items()
        )

    def match_when(self) -> bool:
        when = self.handler.when
        return when is None or bool(self.handler.call_back(when, kwargs=self.kwargs))

    def match_field(self) -> bool:
        handler = self.handler
        if handler.field is None:
            return True
        if isinstance(handler, handlers.ChangingHandler) and handler.field_needs_change:
            return self._match_change(handler)
        criterion = _get_criterion(handler)
        return self._accept(
            criterion, self._find_value(handler.field, is_exposed=callable(criterion))
        )

    def _find_value(self, field: dicts.FieldPath, *, is_exposed: bool) -> Any:
        """Find the value of the field: in changes, that of the essence. Functions get copies."""
        if not isinstance(self.cause, causes.ChangingCause):
            return dicts.resolve(self.cause.body, field)
        return self.kwargs['new'] if is_exposed else dicts.resolve(self.cause.new, field)

    def _match_change(self, handler: handlers.ChangingHandler) -> bool:
        """Match the change of the field; in new objects, all fields are added."""
        change = handler.adjust(self.cause)
        old = change['old']
        new = change['new']
        if not change['diff']:
            return False
        if handler.old is not None or handler.new is not None:
            return (handler.old is None or self._accept(handler.old, old)) and (
                handler.new is None or self._accept(handler.new, new)
            )

        criterion = _get_criterion(handler)
        return self._accept(criterion, old) or self._accept(criterion, new)

    def _accept(self, criterion: Any, value: Any) -> bool:
        if criterion is callbacks.PRESENT:
            return value is not None
        if criterion is callbacks.ABSENT:
            return value is None
        if callable(criterion):
            return bool(self.handler.call_back(criterion, value, kwargs=self.kwargs))
        return bool(criterion == value)


def _get_criterion(handler: handlers.ResourceHandler) -> callbacks.ValueFilter:
    return callbacks.PRESENT if handler.value is None else handler.value


def check_filters(
    *,
    labels: callbacks.MetaFilter | None = None,
    annotations: callbacks.MetaFilter | None = None,
    when: callbacks.FilterFn | None = None,
    field: dicts.FieldPath | None = None,
    **values: callbacks.ValueFilter,
) -> None:
    """
    Check the filters of a declaration: by metadata, and by the values of a field.

    Raises `TypeError` for filters that cannot be used alone or together, and `ValueError` for wrong
    criteria.
    """
    _check_metadata('labels', labels)
    _check_metadata('annotations', annotations)
    if when is not None and not callable(when):
        raise TypeError(f'when= is a function that decides by its keyword arguments; got {when!r}.')

    _check_callback('when=', when)
    given = [name for name, criterion in values.items() if criterion is not None]
    for name in given:
        _check_callback(f'{name}=', values[name])
    if given and not field:
        raise TypeError(
            f"{given[0]}= is about a field, but there is none. Add field=, e.g. field='spec.size'."
        )
    if 'value' in given and len(given) > 1:
        raise TypeError(
            'value= is for either the old or the new value, so it cannot be used with '
            f'{given[-1]}=. Keep either value= or old= and new=.'
        )


def _check_metadata(option: str, criteria: callbacks.MetaFilter | None) -> None:
    if criteria is None:
        return
    if not isinstance(criteria, Mapping):
        raise TypeError(f'{option}= is a mapping of names to criteria; got {criteria!r}.')

    for name, criterion in criteria.items():
        if criterion is None:
            raise ValueError(
                f'None is not a criterion for {name!r} in {option}=. Use kopf.ABSENT if there '
                'must be no such name, kopf.PRESENT if its value does not matter.'
            )
        _check_callback(f'{name!r} in {option}=', criterion)


def _check_callback(place: str, criterion: Any) -> None:
    if inspect.iscoroutinefunction(criterion):
        raise TypeError(
            f'Filters are not awaited, so a coroutine function cannot be one: {place} is '
            f'{criterion!r}. Use a regular function.'
        )
