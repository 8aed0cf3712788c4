"""
Patching: changes of objects, sent only if there is something to change.

A change is either merged into the object of any version, or is an amendment, made for one version
of the object and refused if there is a newer one. If the status is a subresource, it is sent
separately.
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from kopf._cogs.clients import errors, listing, requests, retries
from kopf._cogs.helpers import documents
from kopf._cogs.structs import dicts, references

RawBody = Mapping[str, Any]
Operation = Mapping[str, Any]  # of JSON patches, with ``op``, ``path``, ``value``

_OPTIONS = requests.Options(answers=(404, 409, 422))


class Step(enum.Enum):
    """The kinds of requests: what is sent, and where. Their order is up to the senders."""

    # Members are looked up with every request; the hash of enums is slow.
    __hash__ = object.__hash__

    MERGE_STATUS = enum.auto()
    MERGE_BODY = enum.auto()
    AMEND_BODY = enum.auto()
    AMEND_STATUS = enum.auto()


@dataclasses.dataclass(frozen=True)
class Target:
    """The object to change."""

    resource: references.Resource
    namespace: references.Namespace
    name: str
    uid: str | None = None  # if known; another object can have the same name

    @property
    def has_status(self) -> bool:
        return 'status' in self.resource.subresources


def identify(resource: references.Resource, body: RawBody) -> Target:
    """Build the target from the metadata of an object."""
    metadata = body['metadata']
    namespace = metadata.get('namespace')
    scope = None if namespace is None else references.NamespaceName(namespace)
    return Target(resource, scope, metadata['name'], metadata.get('uid'))


@dataclasses.dataclass(frozen=True)
class Patched:
    """The result of a change. Only the steps before the refused one are done."""

    # After the last accepted request; None if there was none.
    body: RawBody | None = None
    refused: Step | None = None
    refusal: errors.APIConflictError | errors.APIInvalidError | None = None


async def patch_object(
    target: Target, *, merge: Mapping[str, Any], context: requests.Context
) -> Patched | None:
    """
    Change an object in up to 2 requests: none for empty changes. Returns ``None`` if the object
    does not exist, or is no longer fit for handling.

    The first refusal (409 or 422) ends the patching and is returned. Other errors are raised as for
    any request. After an error or a cancellation, it is unknown which steps are done; it is
    harmless to repeat all of them.
    """
    patched: Patched | None = Patched()
    for step, payload in split_merge(merge, has_status=target.has_status).items():
        body = None if patched is None else patched.body
        patched = await patch_part(target, step, payload, context=context)
        if patched is None:
            return None
        if patched.refusal is not None:
            return dataclasses.replace(patched, body=body)
    return patched


async def patch_part(
    target: Target, step: Step, payload: Any, *, context: requests.Context
) -> Patched | None:
    """
    Make one request, with the payload as it is sent: amendments must already be guarded.

    The results and the errors are as in `patch_object`.
    """
    subresource = 'status' if step in (Step.MERGE_STATUS, Step.AMEND_STATUS) else None
    media_type = (
        retries.MERGE_PATCH if step in (Step.MERGE_BODY, Step.MERGE_STATUS) else retries.JSON_PATCH
    )
    url = target.resource.get_url(
        namespace=target.namespace, name=target.name, subresource=subresource
    )
    try:
        body = await requests.patch(
            url, context=context, payload=payload, media_type=media_type, options=_OPTIONS
        )
    except errors.APINotFoundError:
        return None
    except (errors.APIConflictError, errors.APIInvalidError) as error:
        return Patched(None, step, error)
    if not listing.is_object(body):
        raise errors.APIGarbledError(
            f'PATCH {url}: the answer is JSON, but not an object of the API.'
        )
    if isinstance(body, documents.Salvaged):
        return None  # the object exists, but is unfit for handling: treated as absent
    return Patched(listing.clean_object(body))


async def read_object(target: Target, *, context: requests.Context) -> RawBody | None:
    """Read an object; return ``None`` if it is absent, replaced, or unfit for handling."""
    url = target.resource.get_url(namespace=target.namespace, name=target.name)
    try:
        body = await requests.get(url, context=context, options=_OPTIONS)
    except errors.APINotFoundError:
        return None
    if not listing.is_object(body):
        raise errors.APIGarbledError(
            f'GET {url}: the answer is JSON, but not an object of the API.'
        )
    is_another = target.uid is not None and body['metadata'].get('uid') != target.uid
    if is_another or isinstance(body, documents.Salvaged):
        return None
    return listing.clean_object(body)


def split_merge(merge: Mapping[str, Any], *, has_status: bool) -> dict[Step, Mapping[str, Any]]:
    """
    Choose what to merge and where, in the order of sending. Empty sections change nothing, so they
    are not sent.

    The status goes first: if the operator is killed between the two requests, it has not recorded
    yet that the work is done, and repeats it. But if the changes are for one version of the object,
    the status goes last, as the version is checked with the body.
    """
    merge = {key: value for key, value in merge.items() if not dicts.is_mapping(value) or value}
    body = {key: value for key, value in merge.items() if key != 'status' or not has_status}
    status = {key: value for key, value in merge.items() if key == 'status' and has_status}
    parts = [(Step.MERGE_STATUS, status), (Step.MERGE_BODY, body)]
    is_versioned = dicts.has(merge, ('metadata', 'resourceVersion'))
    return {step: part for step, part in (reversed(parts) if is_versioned else parts) if part}


def split_operations(
    operations: Sequence[Operation], *, has_status: bool
) -> dict[Step, list[Operation]]:
    """Choose which operations to send and where; their order is preserved."""
    parts: dict[Step, list[Operation]] = {Step.AMEND_BODY: [], Step.AMEND_STATUS: []}
    for operation in operations:
        is_status = has_status and f'{operation["path"]}/'.startswith('/status/')
        parts[Step.AMEND_STATUS if is_status else Step.AMEND_BODY].append(operation)
    return {step: part for step, part in parts.items() if part}


def guard(operations: Sequence[Operation], body: RawBody) -> list[Operation]:
    """Add tests so that the operations are executed only on this version of the object."""
    metadata = body['metadata']
    guards = [
        {'op': 'test', 'path': '/metadata/resourceVersion', 'value': metadata['resourceVersion']}
    ]
    if metadata.get('uid'):
        guards.append({'op': 'test', 'path': '/metadata/uid', 'value': metadata['uid']})
    return [*guards, *operations]
