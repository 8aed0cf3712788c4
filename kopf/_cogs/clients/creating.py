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
    Create an object, and return it as stored. Without the namespace given, it is as in the body, if it is there.

    It is not repeated if it can be executed already, so an object is never created twice, even with a generated name.
    Raises `APIConflictError` at once if there is such an object, other errors as from any request.
    """
    metadata = body.get('metadata') or {}
    url = resource.get_url(namespace=metadata.get('namespace') if namespace is None else namespace)
    created: Mapping[str, Any] = await requests.post(
        url, context=context, payload=body, options=options
    )
    return created
