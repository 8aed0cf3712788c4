"""
Creating: new objects.
"""

from collections.abc import Mapping
from typing import Any

from kopf._cogs.clients import requests
from kopf._cogs.structs import references


async def create_object(
    resource: references.Resource,
    body: Mapping[str, Any],
    *,
    namespace: references.Namespace = None,
    context: requests.Context,
    options: requests.Options = requests.USUAL,
) -> Mapping[str, Any]:
    """
    Create an object, and return it as stored. By default, the namespace is that of the body, if
    any.

    The request is not retried if it may already be executed, so an object is never created twice,
    even with a generated name. Raises `APIConflictError` immediately if such an object exists,
    other errors as for any request.
    """
    metadata = body.get('metadata') or {}
    url = resource.get_url(namespace=metadata.get('namespace') if namespace is None else namespace)
    created: Mapping[str, Any] = await requests.post(
        url, context=context, payload=body, options=options
    )

    return created
