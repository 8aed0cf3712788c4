"""
Conversion webhooks: custom objects in other versions, as the webhooks of their CRDs make them.

Webhooks are called for one object at a time: when it is read in another version than the one it is
stored in, and when it is written in another version than the storage version. What they return is
checked: only labels and annotations may differ in the metadata.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kopf._cogs.helpers import jsons
from kopf._sandbox.admission import admission_review, matching, webhook_client
from kopf._sandbox.meta import errors, kinds, metadata
from kopf._sandbox.registry import conversions
from kopf._sandbox.schema import pruning
from kopf._sandbox.storage import memory

GROUP: Final = 'apiextensions.k8s.io'
KIND: Final = 'ConversionReview'
VERSIONS: Final = ('v1', 'v1beta1')
TIMEOUT: Final = 30
_CALLING: Final = 'failed to call webhook: '
_IDENTITY: Final = {'name': 'name', 'namespace': 'namespace', 'uid': 'UID'}
_CHANGEABLE: Final = ('labels', 'annotations')


class ConversionError(Exception):
    """A webhook cannot be called, or what it has returned is not a proper conversion."""


class Converter:
    """
    Converts custom objects by webhooks. Any number of conversions may be in progress at once.

    With no webhooks, nothing awaits.
    """

    def __init__(self, caller: webhook_client.Caller, new_id: Callable[[], str]) -> None:
        self._caller = caller
        self._new_id = new_id

    async def prepare(
        self, resource: kinds.Resource, items: Iterable[memory.Stored], *, again: bool = False
    ) -> None:
        """
        Convert stored objects for `conversions.read`, unless they are converted already.

        As in the API, lists and watches reuse the conversions; other requests do them ``again``.
        Raises the API's error for the first object that cannot be converted.
        """
        if resource.conversion is None:
            return

        for stored in items:
            if again or stored.views is None or resource not in stored.views:
                original = stored.load()
                body = await self.convert(resource, original, resource.api_version)
                if 'resourceVersion' in original['metadata']:  # not in dry runs
                    body['metadata']['resourceVersion'] = original['metadata']['resourceVersion']
                if resource.schema is not None:
                    pruning.prune(body, resource.schema)  # no defaults, as in the API
                views = dict(stored.views or {})
                views[resource] = jsons.dumps(body)
                stored.views = views

    async def make_storable(self, resource: kinds.Resource, body: dict[str, Any]) -> dict[str, Any]:
        """Convert an object of this version to the stored form. May modify the object."""
        if resource.conversion is not None:
            body = await self.convert(resource, body, resource.stored_api_version)
        return conversions.make_storable(resource, body)

    async def convert(
        self, resource: kinds.Resource, body: dict[str, Any], wanted: str
    ) -> dict[str, Any]:
        """Return an object of a resource in another version; raise the API's errors."""
        own = body['apiVersion']
        if own == wanted or resource.conversion is None:
            return body

        subject = f'conversion webhook for {own}, Kind={body["kind"]}'
        hook = parse_hook(resource.conversion)
        try:
            review = build_review(hook, body, wanted, self._new_id())
            converted = parse_answer(await self._ask(hook, review), review)
            check_type(converted, body, wanted)
            check_metadata(converted, body)
        except ConversionError as error:
            raise errors.ApiError(500, '', f'{subject} {error}') from error

        return {**converted, 'metadata': restore_metadata(converted, body)}

    async def _ask(self, hook: matching.Hook, review: Mapping[str, Any]) -> bytes:
        try:
            return await self._caller.ask(hook, review)
        except admission_review.CallError as error:
            raise ConversionError(f'failed: {str(error).removeprefix(_CALLING)}') from error


def parse_hook(webhook: Mapping[str, Any]) -> matching.Hook:
    """Return the address of a conversion webhook by ``spec.conversion.webhook`` of its CRD."""
    return matching.parse_hook(
        {
            'clientConfig': webhook.get('clientConfig'),
            'admissionReviewVersions': webhook.get('conversionReviewVersions'),
            'timeoutSeconds': TIMEOUT,
        },
        'conversion',
    )


def build_review(
    hook: matching.Hook, body: Mapping[str, Any], wanted: str, uid: str
) -> dict[str, Any]:
    """Build the request to convert an object, in the webhook's first known version of reviews."""
    version = next((version for version in hook.versions if version in VERSIONS), None)
    if version is None:
        raise ConversionError(
            'failed: webhook does not accept known ConversionReview versions '
            f'({", ".join(hook.versions)})'
        )

    meta = {name: value for name, value in body['metadata'].items() if name != 'resourceVersion'}
    request = {'uid': uid, 'desiredAPIVersion': wanted, 'objects': [{**body, 'metadata': meta}]}
    response: dict[str, Any] = {'uid': '', 'convertedObjects': None, 'result': {'metadata': {}}}

    return {
        'kind': KIND,
        'apiVersion': f'{GROUP}/{version}',
        'request': request,
        'response': response,
    }


def parse_answer(raw: bytes, review: Mapping[str, Any]) -> dict[str, Any]:
    """Return the only object of the response. Raises `ConversionError` if there is none."""
    try:
        answer = jsons.loads(raw)
    except ValueError:
        answer = ''  # the API parses it as YAML, where almost any text is a string

    if not isinstance(answer, dict):
        raise ConversionError(f'failed: {admission_review.describe_undecodable(answer)}')

    response = answer.get('response')
    _check_review(answer, response, review)
    objects = response.get('convertedObjects') or [] if isinstance(response, dict) else []
    if len(objects) != 1:
        raise ConversionError(f'returned {len(objects)} objects, expected 1')
    if not isinstance(objects[0], dict):
        raise ConversionError('returned invalid object at index 0: not an object')
    return {**objects[0], 'metadata': objects[0].get('metadata') or {}}


def _check_review(answer: Mapping[str, Any], response: Any, review: Mapping[str, Any]) -> None:
    version = answer.get('apiVersion') or ''
    kind = answer.get('kind') or ''
    known = [f'{GROUP}/{name}' for name in VERSIONS]
    if kind != KIND or version not in known:
        raise ConversionError(f'failed: {errors.describe_unknown_kind(kind, version)}')
    if version != review['apiVersion']:
        raise ConversionError(
            f'failed: expected webhook response of {review["apiVersion"]}, Kind={KIND}, '
            f'got {version}, Kind={kind}'
        )
    if not isinstance(response, dict):
        raise ConversionError('failed: no response provided')
    if review['apiVersion'].endswith('/v1') and response.get('uid') != review['request']['uid']:
        raise ConversionError(
            f'failed: expected response.uid={_quote(review["request"]["uid"])}, '
            f'got {_quote(response.get("uid") or "")}'
        )

    _check_result(response.get('result'))


def _check_result(result: Any) -> None:
    result = result if isinstance(result, dict) else {}
    if result.get('status') == 'Success':
        return
    status = f"response.result.status was '{result.get('status') or ''}', not 'Success'"
    raise ConversionError(f'failed: {result.get("message") or status}')


def check_type(converted: Mapping[str, Any], body: Mapping[str, Any], wanted: str) -> None:
    """Raise `ConversionError` if the converted object is of another kind or version."""
    version = converted.get('apiVersion') or ''
    kind = converted.get('kind') or ''
    if version != wanted:
        raise ConversionError(
            'returned invalid object at index 0: invalid groupVersion '
            f'(expected {wanted}, received {version})'
        )
    if kind != body['kind']:
        raise ConversionError(
            'returned invalid object at index 0: invalid kind '
            f'(expected {body["kind"]}, received {kind})'
        )


def check_metadata(converted: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """Raise `ConversionError` if the identity is changed, or if labels or annotations are wrong."""
    given = converted['metadata']
    own = body['metadata']
    if not isinstance(given, Mapping):
        raise ConversionError('returned invalid object: metadata is not an object')

    for field, shown in _IDENTITY.items():
        before = own.get(field) or ''
        after = given.get(field) or ''
        if before != after:
            raise ConversionError(
                f'returned invalid object: must have the same {shown}: {before} != {after}'
            )

    for field in _CHANGEABLE:
        checked = {'name': 'any', field: given.get(field)}
        if problems := metadata.validate_metadata(checked, namespaced=False):
            raise ConversionError(f'returned invalid metadata: {_join(problems)}')


def restore_metadata(converted: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the original metadata with the labels and annotations of the converted object."""
    kept = {name: value for name, value in body['metadata'].items() if name not in _CHANGEABLE}
    given = converted['metadata']
    return {**kept, **{name: given[name] for name in _CHANGEABLE if given.get(name)}}


def _quote(text: Any) -> str:
    return json.dumps(text, ensure_ascii=False)


def _join(problems: Sequence[errors.FieldError]) -> str:
    texts = list(map(str, problems))
    return texts[0] if len(texts) == 1 else f'[{", ".join(texts)}]'
