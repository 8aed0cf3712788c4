"""
Deleting: objects that should not be there any more.
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
    Delete an object, or mark it as being deleted; return what the server says of it, ``None`` if there is no object.

    Its dependents are treated as the server does by default. Errors are raised as from any request.
    """
    url = resource.get_url(namespace=namespace, name=name)
    options = requests.Options(answers=(404,))
    try:
        deleted: Mapping[str, Any] = await requests.delete(url, context=context, options=options)
    except errors.APINotFoundError:
        return None
    return deleted
