"""
Admission review: parses the reviews that come from API servers, and builds the responses.

They come from the network, and can contain anything. Errors mention the names of the fields,
never their values, as these can be secret. Nothing is executed or remembered here.
"""

import base64
import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kopf._cogs.helpers import jsons
from kopf._cogs.structs import patches, references, reviews
from kopf._core.actions import failures

KIND: Final = 'AdmissionReview'
VERSIONS = ('admission.k8s.io/v1', 'admission.k8s.io/v1beta1')
"""All supported versions; a review without a version is of the first one."""

MALFORMED = 400

_OBJECT = (dict, Mapping)  # almost always, it is a dict, which is faster to check
_TYPES: Mapping[Any, str] = {_OBJECT: 'an object', str: 'a string', bool: 'true or false'}
_PRIORITIES = (failures.AdmissionError, failures.PermanentError, failures.TemporaryError, Exception)

# The API drops warnings with any of these characters.
_CONTROLS = re.compile(r'[\x00-\x1f\x7f-\x9f]+')
# The API cannot parse or forward other codes: the result would be a failure instead of a denial.
_CODES = range(1, 1000)

RawBody = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Question:
    """A request to the API under review; the types of all fields are verified."""

    api_version: str
    uid: str
    resource: references.Resource  # only its three names are known here
    subresource: str | None
    operation: reviews.Operation | None
    is_dryrun: bool
    userinfo: Mapping[str, Any] = dataclasses.field(repr=False)
    old: RawBody | None = dataclasses.field(repr=False)
    new: RawBody | None = dataclasses.field(repr=False)

    @property
    def body(self) -> RawBody:
        """The object after the request or, if it will be deleted, before it."""
        return self.new if self.new is not None else self.old if self.old is not None else {}

    @property
    def is_about_existing(self) -> bool:
        """Whether the object already exists."""
        return self.operation in ('UPDATE', 'DELETE')


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The decision on a request: if there is an error, the request is denied because of it."""

    error: Exception | None = None
    warnings: Sequence[Any] = ()
    patch: bytes | None = None  # in JSON


def parse_review(review: Any) -> Question:
    """Parse a review; raise `ReviewRefused` if it is not one. Unused fields are not checked."""
    if not isinstance(review, Mapping):
        raise reviews.ReviewRefused('The review is not an object.', code=MALFORMED)

    _choose(review, 'kind', '', [KIND])
    request = _get(review, 'request', '', _OBJECT, is_needed=True)
    resource = _get(request, 'resource', 'request.', _OBJECT, is_needed=True)

    return Question(
        api_version=_choose(review, 'apiVersion', '', VERSIONS) or VERSIONS[0],
        uid=_get(request, 'uid', 'request.', str, is_needed=True),
        resource=references.Resource(
            _get(resource, 'group', 'request.resource.', str) or '',
            _get(resource, 'version', 'request.resource.', str, is_needed=True),
            _get(resource, 'resource', 'request.resource.', str, is_needed=True),
        ),
        subresource=_get(request, 'subResource', 'request.', str) or None,
        operation=_choose(request, 'operation', 'request.', typing.get_args(reviews.Operation)),
        is_dryrun=_get(request, 'dryRun', 'request.', bool) or False,
        userinfo=_get(request, 'userInfo', 'request.', _OBJECT) or {},
        old=_get_body(request, 'oldObject'),
        new=_get_body(request, 'object'),
    )


def _get(
    source: Mapping[str, Any], field: str, prefix: str, kind: Any, *, is_needed: bool = False
) -> Any:
    """Get a field of this type; nulls are the same as absence."""
    value = source.get(field)
    if value is not None and not isinstance(value, kind):
        raise reviews.ReviewRefused(
            f'{prefix}{field} of the review is not {_TYPES[kind]}.', code=MALFORMED
        )
    if is_needed and not value:
        raise reviews.ReviewRefused(f'There is no {prefix}{field} in the review.', code=MALFORMED)
    return value


def _choose(source: Mapping[str, Any], field: str, prefix: str, known: Sequence[str]) -> Any:
    """Get a field with one of these values, or ``None`` if there is no such field."""
    value = _get(source, field, prefix, str)
    if value is not None and value not in known:
        raise reviews.ReviewRefused(
            f'{prefix}{field} of the review is not {" or ".join(known)}.', code=MALFORMED
        )
    return value


def _get_body(request: Mapping[str, Any], field: str) -> RawBody | None:
    """Get an object, with the types of all its fields that are used here verified."""
    body: RawBody | None = _get(request, field, 'request.', _OBJECT)
    if body is None:
        return None

    prefix = f'request.{field}.'
    for name in ('apiVersion', 'kind'):
        _get(body, name, prefix, str)
    metadata = _get(body, 'metadata', prefix, _OBJECT) or {}
    prefix += 'metadata.'
    for name in ('uid', 'name', 'namespace'):
        _get(metadata, name, prefix, str)
    for name in ('labels', 'annotations'):
        _get(metadata, name, prefix, _OBJECT)
    return body


def build_response(question: Question, verdict: Verdict) -> reviews.Response:
    """Build the response to the API in the same version as the review."""
    payload: reviews.ResponsePayload = {'uid': question.uid, 'allowed': verdict.error is None}
    if verdict.warnings:
        payload['warnings'] = [_CONTROLS.sub(' ', str(warning)) for warning in verdict.warnings]
    if verdict.error is not None:
        payload['status'] = build_status(verdict.error)
    elif verdict.patch is not None:
        payload['patch'] = base64.b64encode(verdict.patch).decode('ascii')
        payload['patchType'] = 'JSONPatch'

    return {'apiVersion': question.api_version, 'kind': KIND, 'response': payload}


def build_status(error: Exception) -> reviews.ResponseStatus:
    """
    Explain the denial. Only admission errors have their own codes; their messages can be empty.
    """
    if isinstance(error, failures.AdmissionError):
        code = error.code if isinstance(error.code, int) and error.code in _CODES else 500
        return {'message': failures.read_text(error), 'code': code}
    return {'message': describe_error(error), 'code': 500}


def describe_error(error: Exception) -> str:
    return failures.read_text(error) or type(error).__name__


def find_decision(error: BaseException) -> failures.AdmissionError | None:
    """
    Return the handler's decision to deny, even from an exception group; ``None`` if there is none.
    """
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(find_decision, error.exceptions)), None)
    return error if isinstance(error, failures.AdmissionError) else None


def choose_error(errors: Iterable[Exception]) -> Exception | None:
    """Choose the error to report: admission errors go first; of the same kind, the first one."""
    return min(
        errors,
        default=None,
        key=lambda error: [isinstance(error, kind) for kind in _PRIORITIES].index(True),
    )


def apply_patch(patch: patches.Patch, body: RawBody) -> RawBody:
    """
    Return the object after the patch: merged, then changed by the functions. Raises their errors.
    """
    merged = patches.merge(body, patch)
    return patches.apply_fns(patch.fns, merged) if patch.fns else merged


def encode_patch(before: RawBody, after: RawBody) -> bytes | None:
    """
    Encode the difference as a JSON patch; ``None`` if there is none.

    Raises `TypeError` or `ValueError` if there are values that JSON does not support.
    """
    operations = patches.build_json_patch(before, after)
    return jsons.dumps(operations) if operations else None
