"""
Admission reviews: the requests to webhooks, and the decoding of their responses.

Responses come from foreign code: every error in them is reported with the API's wording.
"""

import base64
import binascii
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from kopf._cogs.helpers import jsons
from kopf._sandbox.admission import matching
from kopf._sandbox.auth import reviews
from kopf._sandbox.codec import parsing
from kopf._sandbox.meta import errors, go_format, kinds

GROUP = 'admission.k8s.io'
KIND = 'AdmissionReview'
VERSIONS = ('v1', 'v1beta1')

_UNDECODABLE = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type "
    'struct {{ APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }}'
)
_FIELDS: tuple[
    tuple[str, type, str], ...
] = (  # fields of the response, with the names of their Go types
    ('uid', str, 'types.UID'),
    ('allowed', bool, 'bool'),
    ('status', dict, 'v1.Status'),
    ('patch', str, '[]uint8'),
    ('patchType', str, '{version}.PatchType'),
    ('auditAnnotations', dict, 'map[string]string'),
    ('warnings', list, '[]string'),
)


class CallError(Exception):
    """A webhook cannot be called, or its response is malformed. See its failure policy."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The decision of a webhook."""

    allowed: bool
    status: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    operations: tuple[Mapping[str, Any], ...] = ()  # the JSON patch


def choose_version(hook: matching.Hook) -> str:
    """Return the version of reviews to use: the webhook's first that is supported here."""
    for version in hook.versions:
        if version in VERSIONS:
            return version

    raise CallError(
        f'could not create admission objects: webhook does not accept known {KIND} versions '
        f'({", ".join(VERSIONS)})'
    )


def build_review(
    attempt: matching.Attempt, resource: kinds.Resource, uid: str, version: str
) -> dict[str, Any]:
    """Build the review; ``resource`` is in the version for the webhook, not for the request."""
    request = attempt.request
    group, own_version = kinds.split_api_version(attempt.subject.get('apiVersion'))
    kind = attempt.subject.get('kind', '')
    asked: dict[str, Any] = {
        'uid': uid,
        'kind': {'group': group, 'version': own_version, 'kind': kind},
        'resource': _name_resource(resource),
        'subResource': request.subresource,
        'requestKind': {'group': group, 'version': own_version, 'kind': kind},
        'requestResource': _name_resource(request.resource),
        'requestSubResource': request.subresource,
        'name': attempt.name,
        'namespace': attempt.namespace,
        'operation': attempt.operation,
        'userInfo': reviews.build_user_info(request.user),
        'object': convert(attempt.new, request.resource, resource),
        'oldObject': convert(attempt.old, request.resource, resource),
        'dryRun': request.dry_run,
        'options': attempt.options,
    }

    if is_of_resource(attempt.subject, request.resource):
        asked['kind'] = {
            'group': resource.group,
            'version': resource.version,
            'kind': resource.kind,
        }

    optional = ('subResource', 'requestSubResource', 'name', 'namespace')
    present = {key: value for key, value in asked.items() if value or key not in optional}
    return {'kind': KIND, 'apiVersion': f'{GROUP}/{version}', 'request': present}


def convert(
    body: dict[str, Any] | None, source: kinds.Resource, target: kinds.Resource
) -> dict[str, Any] | None:
    """
    Return an object in another version of its resource; objects of subresources, such as scales,
    are returned as is.
    """
    if body is None or source is target or not is_of_resource(body, source):
        return body
    return {**body, 'apiVersion': target.api_version}


def is_of_resource(body: Mapping[str, Any], resource: kinds.Resource) -> bool:
    return body.get('kind') == resource.kind and body.get('apiVersion') == resource.api_version


def parse_answer(raw: bytes, review: Mapping[str, Any], *, is_mutating: bool) -> Verdict:
    """Decode the response to a review. Raises `CallError` if it is malformed."""
    version = review['apiVersion'].rpartition('/')[2]
    answer = _decode(raw, version)
    response = answer.get('response')
    if response is None:
        raise CallError('received invalid webhook response: webhook response was absent')

    _check_types(response, version)
    if version == 'v1':
        _check_strictly(answer, review, is_mutating=is_mutating)
    operations = _decode_patch(response) if is_mutating and response.get('allowed') else ()
    return Verdict(
        response.get('allowed') or False,
        response.get('status') or {},
        tuple(response.get('warnings') or ()),
        operations,
    )


def build_denial(hook: matching.Hook, verdict: Verdict) -> errors.ApiError:
    """Build the error for a request that a webhook has denied."""
    status = verdict.status
    code = status.get('code')
    reason = status.get('reason')
    message = status.get('message')
    denied = f'admission webhook {_quote(hook.name)} denied the request'
    explanation = f': {message or reason}' if message or reason else ' without explanation'
    details = status.get('details')

    return errors.ApiError(
        code if isinstance(code, int) and code >= 400 else 400,
        str(reason or ''),
        denied + explanation,
        details=details if isinstance(details, Mapping) else None,
    )


def _decode(raw: bytes, version: str) -> dict[str, Any]:
    try:
        answer = jsons.loads(raw)
    except ValueError:
        answer = ''  # the API parses it as YAML, where almost any text is a string

    if not isinstance(answer, dict):
        raise CallError(f'failed to call webhook: {describe_undecodable(answer)}')

    own = answer.get('apiVersion') or f'{GROUP}/{version}', answer.get('kind') or KIND
    if own not in [(f'{GROUP}/{known}', KIND) for known in VERSIONS]:
        raise CallError(f'failed to call webhook: {errors.describe_unknown_kind(own[1], own[0])}')

    if own[0] != f'{GROUP}/{version}':
        other = own[0].rpartition('/')[2]
        raise CallError(
            f'failed to call webhook: converting ({other}.{KIND}) to ({version}.{KIND}): '
            f'unknown conversion'
        )

    return answer


def describe_undecodable(answer: Any) -> str:
    """Return the API's message about a response that is not an object."""
    return _UNDECODABLE.format(go_format.json_type(answer))


def _check_types(response: Any, version: str) -> None:
    if not isinstance(response, dict):
        raise _mismatch(response, 'AdmissionReview.response', f'{version}.AdmissionResponse')

    for field, cls, name in _FIELDS:
        value = response.get(field)
        if value is not None and not isinstance(value, cls):
            raise _mismatch(
                value, f'AdmissionResponse.response.{field}', name.format(version=version)
            )

    for warning in response.get('warnings') or ():
        if not isinstance(warning, str):
            raise _mismatch(warning, 'AdmissionResponse.response.warnings', 'string')


def _mismatch(value: Any, field: str, name: str) -> CallError:
    return CallError(
        f'failed to call webhook: json: cannot unmarshal {go_format.json_type(value)} into Go '
        f'struct field {field} of type {name}'
    )


def _check_strictly(
    answer: Mapping[str, Any], review: Mapping[str, Any], *, is_mutating: bool
) -> None:
    response = answer['response']
    uid = review['request']['uid']
    patch = response.get('patch')
    patch_type = response.get('patchType')
    group, version = kinds.split_api_version(answer.get('apiVersion'))
    problems = (
        (
            response.get('uid', '') != uid,
            f'expected response.uid={_quote(uid)}, got {_quote(response.get("uid") or "")}',
        ),
        (
            (group, version, answer.get('kind')) != (GROUP, 'v1', KIND),
            f'expected webhook response of {GROUP}/v1, Kind={KIND}, '
            f'got {group}/{version}, Kind={answer.get("kind", "")}',
        ),
        (
            is_mutating and bool(patch) and patch_type is None,
            'webhook returned response.patch but not response.patchType',
        ),
        (
            is_mutating and not patch and patch_type is not None,
            'webhook returned response.patchType but not response.patch',
        ),
        (is_mutating and patch_type == '', 'webhook returned invalid response.patchType of ""'),
        (not is_mutating and bool(patch), 'validating webhook may not return response.patch'),
        (
            not is_mutating and patch_type is not None,
            'validating webhook may not return response.patchType',
        ),
    )

    for is_wrong, text in problems:
        if is_wrong:
            raise CallError(f'received invalid webhook response: {text}')


def _decode_patch(response: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    encoded = response.get('patch') or ''
    try:
        text = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CallError('failed to call webhook: illegal base64 data at input byte 0') from error

    if not text:
        return ()

    try:
        operations = parsing.parse_json(text)
    except ValueError as error:
        raise _undecodable(str(error)) from error

    if operations is not None and not isinstance(operations, list):
        raise _undecodable(
            f'json: cannot unmarshal {go_format.json_type(operations)} into Go value of type '
            f'jsonpatch.Patch'
        )

    for operation in operations or ():
        if not isinstance(operation, dict):
            raise _undecodable(
                f'json: cannot unmarshal {go_format.json_type(operation)} into Go value of type '
                f'jsonpatch.Operation'
            )

    if operations and response.get('patchType') not in (None, 'JSONPatch'):
        raise CallError(f'unsupported patch type {_quote(response["patchType"])}')
    return tuple(operations or ())


def _undecodable(text: str) -> CallError:
    return CallError(f'received undecodable patch in webhook response: {text}')


def _name_resource(resource: kinds.Resource) -> dict[str, str]:
    return {'group': resource.group, 'version': resource.version, 'resource': resource.plural}


def _quote(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)
