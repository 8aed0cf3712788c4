"""
Errors: the API's responses to requests that cannot be fulfilled.

Each error has the ``Status`` object for the client, worded as by kube-apiserver. Field errors
(`FieldError`) are collected by validators and become the causes of one 422.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any


class ApiError(Exception):
    """A refused request: the HTTP code and the ``Status`` object of the response."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.details = None if details is None and retry_after is None else dict(details or {})
        if self.details is not None and retry_after is not None:
            self.details['retryAfterSeconds'] = retry_after

    @property
    def status(self) -> dict[str, Any]:
        """The error as an object of the kind ``Status``."""
        status = {
            'kind': 'Status',
            'apiVersion': 'v1',
            'metadata': {},
            'status': 'Failure',
            'message': self.message,
            'reason': self.reason,
            'details': self.details,
            'code': self.code,
        }
        return {key: value for key, value in status.items() if value not in ('', None)}


@dataclasses.dataclass(frozen=True)
class FieldError:
    """One wrong field of an object; ``body`` is the message without the field's path."""

    reason: str  # FieldValueInvalid, FieldValueRequired, …
    field: str  # spec.containers[0].name
    body: str  # Invalid value: "x": must be …

    def __str__(self) -> str:
        return f'{self.field}: {self.body}'

    @property
    def cause(self) -> dict[str, str]:
        return {'reason': self.reason, 'message': self.body, 'field': self.field}


def render(value: Any) -> str:
    """Format a value as in Go's field errors: quoted strings, or compact JSON with sorted keys."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return json.dumps(
        value, separators=(',', ':'), ensure_ascii=False, sort_keys=isinstance(value, dict | list)
    )


def required(field: str, detail: str = '') -> FieldError:
    return FieldError(
        'FieldValueRequired', field, 'Required value' + (f': {detail}' if detail else '')
    )


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    return FieldError('FieldValueInvalid', field, f'Invalid value: {render(value)}: {detail}')


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError('FieldValueTypeInvalid', field, f'Invalid value: {render(value)}: {detail}')


def not_supported(field: str, value: Any, supported: Sequence[Any]) -> FieldError:
    listed = ', '.join(render(str(item)) for item in supported)
    body = f'Unsupported value: {render(value)}: supported values: {listed}'
    return FieldError('FieldValueNotSupported', field, body)


def unknown_dry_run(stages: Sequence[str]) -> FieldError:
    body = f'Unsupported value: {render(list(stages))}: supported values: "All"'
    return FieldError('FieldValueNotSupported', 'dryRun', body)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError('FieldValueDuplicate', field, f'Duplicate value: {render(value)}')


def absent_value(field: str, value: Any) -> FieldError:
    return FieldError('FieldValueNotFound', field, f'Not found: {render(value)}')


def forbidden_field(field: str, detail: str) -> FieldError:
    return FieldError('FieldValueForbidden', field, f'Forbidden: {detail}')


def too_long(field: str, limit: int) -> FieldError:
    unit = 'byte' if limit == 1 else 'bytes'
    return FieldError('FieldValueTooLong', field, f'Too long: may not be more than {limit} {unit}')


def too_many(field: str, count: int, limit: int) -> FieldError:
    items = 'item' if limit == 1 else 'items'
    return FieldError(
        'FieldValueTooMany', field, f'Too many: {count}: must have at most {limit} {items}'
    )


def qualified(group: str, plural: str) -> str:
    """Format the name of a resource as in the messages: ``configmaps``, ``deployments.apps``."""
    return f'{plural}.{group}' if group else plural


def _named(group: str, kind: str, name: str) -> dict[str, Any]:
    return {
        key: value for key, value in (('name', name), ('group', group), ('kind', kind)) if value
    }


def describe_unknown_kind(kind: Any, api_version: Any) -> str:
    """Return the API's message about an unknown kind."""
    return (
        f'no kind {render(kind)} is registered for version {render(api_version)} '
        'in scheme "pkg/runtime/scheme.go:111"'
    )


def bad_request(message: str) -> ApiError:
    return ApiError(400, 'BadRequest', message)


def unauthorized() -> ApiError:
    return ApiError(401, 'Unauthorized', 'Unauthorized')


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    named = f' "{name}"' if name else ''
    return ApiError(
        403,
        'Forbidden',
        f'{qualified(group, plural)}{named} is forbidden: {why}',
        details=_named(group, plural, name),
    )


def namespace_terminating(group: str, plural: str, name: str, namespace: str) -> ApiError:
    message = (
        f'unable to create new content in namespace {namespace} because it is being terminated'
    )
    error = forbidden(group, plural, name, message)
    cause = {
        'reason': 'NamespaceTerminating',
        'message': f'namespace {namespace} is being terminated',
        'field': 'metadata.namespace',
    }

    return ApiError(
        error.code,
        error.reason,
        error.message,
        details={**_named(group, plural, name), 'causes': [cause]},
    )


def not_found(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        404,
        'NotFound',
        f'{qualified(group, plural)} "{name}" not found',
        details=_named(group, plural, name),
    )


def no_such_resource() -> ApiError:
    return ApiError(404, 'NotFound', 'the server could not find the requested resource', details={})


def method_not_allowed() -> ApiError:
    message = 'the server does not allow this method on the requested resource'
    return ApiError(405, 'MethodNotAllowed', message, details={})


def unsupported_verb(group: str, plural: str) -> ApiError:
    """Build the error of custom resources for a method that is not a verb of the API."""
    message = f' is not supported on resources of kind "{qualified(group, plural)}"'
    return ApiError(405, 'MethodNotAllowed', message, details=_named(group, plural, ''))


def unknown_shape(accepted: Sequence[str]) -> ApiError:
    """Build the error for an unsupported shape; for custom resources, also for media types."""
    return ApiError(
        406, 'NotAcceptable', f'only the following media types are accepted: {", ".join(accepted)}'
    )


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """Build the error for unknown media types."""
    listed = ', '.join(accepted)
    return ApiError(
        406,
        'NotAcceptable',
        f'406: Not Acceptable\n\nAvailable representations: {listed}',
        details={},
    )


def already_exists(group: str, plural: str, name: str, *, is_leaving: bool = False) -> ApiError:
    prefix = 'object is being deleted: ' if is_leaving else ''
    return ApiError(
        409,
        'AlreadyExists',
        f'{prefix}{qualified(group, plural)} "{name}" already exists',
        details=_named(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    return ApiError(
        409,
        'Conflict',
        f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}',
        details=_named(group, plural, name),
    )


def expired(message: str) -> ApiError:
    return ApiError(410, 'Expired', message)


def too_large(message: str) -> ApiError:
    return ApiError(413, 'RequestEntityTooLarge', message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    if not accepted:
        return ApiError(415, 'UnsupportedMediaType', '415: Unsupported Media Type', details={})
    return ApiError(
        415,
        'UnsupportedMediaType',
        'the body of the request was in an unknown format - '
        f'accepted media types include: {", ".join(accepted)}',
    )


def invalid(group: str, kind: str, name: str, problems: Sequence[FieldError]) -> ApiError:
    """Build the error for all wrong fields of an object."""
    texts = list(dict.fromkeys(str(problem) for problem in problems))
    listed = texts[0] if len(texts) == 1 else f'[{", ".join(texts)}]'
    causes = [problem.cause for problem in problems]

    return ApiError(
        422,
        'Invalid',
        f'{qualified(group, kind)} "{name}" is invalid: {listed}',
        details={**_named(group, kind, name), 'causes': causes},
    )


def internal(message: str) -> ApiError:
    return ApiError(
        500,
        'InternalError',
        f'Internal error occurred: {message}',
        details={'causes': [{'message': message}]},
    )


def timed_out(
    message: str, *, retry_after: int = 1, causes: Sequence[Mapping[str, str]] = ()
) -> ApiError:
    details = {'causes': list(causes)} if causes else None
    return ApiError(504, 'Timeout', message, details=details, retry_after=retry_after)
