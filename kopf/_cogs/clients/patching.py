"""
Patching: changes of objects, sent only if there is something to change.

A change can be merged into the object, whatever its version. Or it is an amendment, made for one version of the object,
and refused if there is a newer one. If the status is a subresource, it goes separately.
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

    __hash__ = object.__hash__  # members are looked up with every request; that of enums is slow

    MERGE_STATUS = enum.auto()
    MERGE_BODY = enum.auto()
    AMEND_BODY = enum.auto()
    AMEND_STATUS = enum.auto()


@dataclasses.dataclass(frozen=True)
class Target:
    """Which object is to be changed."""

    resource: references.Resource
    namespace: references.Namespace
    name: str
    uid: str | None = None  # if known; an object of the same name can be another one

    @property
    def has_status(self) -> bool:
        return 'status' in self.resource.subresources


def identify(resource: references.Resource, body: RawBody) -> Target:
    """Tell where an object is, by what it tells of itself."""
    metadata = body['metadata']
    namespace = metadata.get('namespace')
    scope = None if namespace is None else references.NamespaceName(namespace)
    return Target(resource, scope, metadata['name'], metadata.get('uid'))


@dataclasses.dataclass(frozen=True)
class Patched:
    """What became of a change. The steps before the refused one have been done; it and those after it have not."""

    body: RawBody | None = None  # as it is after the last accepted request; None if there was none
    refused: Step | None = None
    refusal: errors.APIConflictError | errors.APIInvalidError | None = None


async def patch_object(
    target: Target, *, merge: Mapping[str, Any], context: requests.Context
) -> Patched | None:
    """
    Change an object in up to 2 requests: none for what is empty. ``None`` is for an object that does not exist, or is
    not fit for handling any more.

    The first refusal (409 or 422) ends the patching and is returned. Other errors are raised as from any request. After
    them, or if cancelled, nobody knows which steps are done; it is harmless to repeat them all.
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
    Make one request, with the payload as it is sent: amendments are to be guarded.

    The results and the errors are as of `patch_object`.
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
        return None  # it exists, but is left alone: it is the same as if it does not
    return Patched(listing.clean_object(body))


async def read_object(target: Target, *, context: requests.Context) -> RawBody | None:
    """Read an object; ``None`` if it does not exist, or another object has its name, or it is not fit for handling."""
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
    Choose what to merge and where, in the order of sending. Empty sections change nothing, so they are not sent.

    The status goes first: whoever is killed between the two, has not yet recorded that the work is done, and repeats
    it. But if the changes are only for one version of the object, it goes last, as the object is checked for that.
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
    """Choose which operations to send and where; their order stays."""
    parts: dict[Step, list[Operation]] = {Step.AMEND_BODY: [], Step.AMEND_STATUS: []}
    for operation in operations:
        is_status = has_status and f'{operation["path"]}/'.startswith('/status/')
        parts[Step.AMEND_STATUS if is_status else Step.AMEND_BODY].append(operation)
    return {step: part for step, part in parts.items() if part}


def guard(operations: Sequence[Operation], body: RawBody) -> list[Operation]:
    """Let the operations be executed only on this version of the object."""
    metadata = body['metadata']
    guards = [
        {'op': 'test', 'path': '/metadata/resourceVersion', 'value': metadata['resourceVersion']}
    ]
    if metadata.get('uid'):
        guards.append({'op': 'test', 'path': '/metadata/uid', 'value': metadata['uid']})
    return [*guards, *operations]
