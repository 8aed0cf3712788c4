"""
Reviewing: what an admission review asks about, and how it is answered.

Reviews come from the network, and can be anything at all. What is wrong with them is told by the names of the fields,
never by their values, as these can be secret. Nothing is executed or remembered here.
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
"""All that are understood; if a review does not tell its version, it is of the first one."""

MALFORMED = 400

_OBJECT = (dict, Mapping)  # almost always, it is a dict, which is quicker to check
_TYPES: Mapping[Any, str] = {_OBJECT: 'an object', str: 'a string', bool: 'true or false'}
_PRIORITIES = (failures.AdmissionError, failures.PermanentError, failures.TemporaryError, Exception)

_CONTROLS = re.compile(
    r'[\x00-\x1f\x7f-\x9f]+'
)  # the API drops the warnings that have any of these
_CODES = range(
    1, 1000
)  # the API cannot read or pass on any others, which would be a failure instead of a denial

RawBody = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Question:
    """A request to the API, of which it is asked if it is acceptable; all its fields are of these types for sure."""

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
        """The object as it will be or, if it will not be any more, as it was."""
        return self.new if self.new is not None else self.old if self.old is not None else {}

    @property
    def is_about_existing(self) -> bool:
        """Does the object exist already?"""
        return self.operation in ('UPDATE', 'DELETE')


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is decided on a question: if there is an error, the request is denied because of it."""

    error: Exception | None = None
    warnings: Sequence[Any] = ()
    patch: bytes | None = None  # of JSON


def parse_review(review: Any) -> Question:
    """Read a review; raise `ReviewRefused` if it is not one. Fields that are not used here are not looked at."""
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
    """Take a field of this type; nulls are the same as absence."""
    value = source.get(field)
    if value is not None and not isinstance(value, kind):
        raise reviews.ReviewRefused(
            f'{prefix}{field} of the review is not {_TYPES[kind]}.', code=MALFORMED
        )
    if is_needed and not value:
        raise reviews.ReviewRefused(f'There is no {prefix}{field} in the review.', code=MALFORMED)
    return value


def _choose(source: Mapping[str, Any], field: str, prefix: str, known: Sequence[str]) -> Any:
    """Take a field with one of these values, or nothing if there is no such field."""
    value = _get(source, field, prefix, str)
    if value is not None and value not in known:
        raise reviews.ReviewRefused(
            f'{prefix}{field} of the review is not {" or ".join(known)}.', code=MALFORMED
        )
    return value


def _get_body(request: Mapping[str, Any], field: str) -> RawBody | None:
    """Take an object, of which all is as objects have it, as far as anybody here relies on that."""
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
    """Put the verdict as the API expects it: in the same version as the review."""
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
    """Explain the denial. Only the errors made for that have their own codes; they can also say nothing at all."""
    if isinstance(error, failures.AdmissionError):
        code = error.code if isinstance(error.code, int) and error.code in _CODES else 500
        return {'message': str(error), 'code': code}
    return {'message': describe_error(error), 'code': 500}


def describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def find_decision(error: BaseException) -> failures.AdmissionError | None:
    """Return the decision of a handler to deny, also if it comes in a group, as task groups raise it; else nothing."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(find_decision, error.exceptions)), None)
    return error if isinstance(error, failures.AdmissionError) else None


def choose_error(errors: Iterable[Exception]) -> Exception | None:
    """Choose the one to be reported: those made for that go first; of the same kind, the first one."""
    return min(
        errors,
        default=None,
        key=lambda error: [isinstance(error, kind) for kind in _PRIORITIES].index(True),
    )


def apply_patch(patch: patches.Patch, body: RawBody) -> RawBody:
    """Get the object as it is after the patch: merged first, then changed by the functions. Raises what these raise."""
    merged = patches.merge(body, patch)
    return patches.apply_fns(patch.fns, merged) if patch.fns else merged


def encode_patch(before: RawBody, after: RawBody) -> bytes | None:
    """
    Put the difference as a JSON patch; ``None`` if there is none.

    Raises `TypeError` or `ValueError` if there is something that JSON cannot have.
    """
    operations = patches.build_json_patch(before, after)
    return jsons.dumps(operations) if operations else None
