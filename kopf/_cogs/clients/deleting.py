"""
Deleting: objects that should no longer exist.
"""

from collections.abc import Mapping
from typing import Any

from kopf._cogs.clients import errors, requests
from kopf._cogs.structs import references


async def delete_object(
    resource: references.Resource,
    name: str,
    *,
    namespace: references.Namespace = None,
    context: requests.Context,
) -> Mapping[str, Any] | None:
    """
    Delete an object, or mark it for deletion; return the server's response, or ``None`` if there is
    no object.

    Dependents are treated by the server's default policy. Errors are raised as for any request.
    """
    url = resource.get_url(namespace=namespace, name=name)
    options = requests.Options(answers=(404,))
    try:
        deleted: Mapping[str, Any] = await requests.delete(url, context=context, options=options)
    except errors.APINotFoundError:
        return None

    return deleted
