"""
Requests of one object: a patch, a merge-patch of all its parts, and the reading of it.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._cogs.clients import errors, listing, requests
from kopf._cogs.clients.patching import plans, targets
from kopf._cogs.helpers import documents

RawBody = Mapping[str, Any]

_OPTIONS = requests.Options(answers=(404, 409, 422))


@dataclasses.dataclass(frozen=True)
class Patched:
    """The result of a change. Only the requests before the refused one are done."""

    # After the last accepted request; None if there was none.
    body: RawBody | None = None
    refused: plans.Kind | None = None
    refusal: errors.APIError | None = None


async def patch_object(
    target: targets.Target, *, merge: Mapping[str, Any], context: requests.Context
) -> Patched | None:
    """
    Change an object in up to 2 requests: none for empty changes. Returns ``None`` if the object
    does not exist, or is no longer fit for handling.

    The first refusal (409 or 422) ends the patching and is returned. Other errors are raised as for
    any request. After an error or a cancellation, it is unknown which requests are done;
    it is harmless to repeat all of them.
    """
    patched: Patched | None = Patched()
    for kind, payload in plans.split_merge(merge, has_status=target.has_status).items():
        body = None if patched is None else patched.body
        patched = await patch_part(target, kind, payload, context=context)
        if patched is None:
            return None
        if patched.refusal is not None:
            return dataclasses.replace(patched, body=body)

    return patched


async def patch_part(
    target: targets.Target, kind: plans.Kind, payload: Any, *, context: requests.Context
) -> Patched | None:
    """
    Make one request, with the payload as it is sent: amendments must already be guarded.

    The results and the errors are as in `patch_object`.
    """
    url = target.resource.get_url(
        namespace=target.namespace, name=target.name, subresource=kind.subresource
    )
    call = requests.build_call('PATCH', url, _OPTIONS, payload, kind.media_type)
    try:
        body = await requests.send(call, context=context, options=_OPTIONS)
    except errors.APINotFoundError:
        return None
    except (errors.APIConflictError, errors.APIInvalidError) as error:
        return Patched(None, kind, error)

    if not listing.is_object(body):
        raise errors.APIGarbledError(
            f'PATCH {url}: the answer is JSON, but not an object of the API.'
        )
    if isinstance(body, documents.Salvaged):
        return None  # the object exists, but is unfit for handling: treated as absent
    return Patched(listing.clean_object(body))


async def read_object(target: targets.Target, *, context: requests.Context) -> RawBody | None:
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
