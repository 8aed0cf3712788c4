"""
Conversions: the same object in another version of its resource.

Custom resources are converted by the strategy ``None``: only the ``apiVersion`` changes, and fields
unknown in that version are not shown. Those of conversion webhooks must be converted by
`conversion_webhooks.Converter` before they are read or written here. Both are
stored in the storage version, pruned and defaulted by its schema, so that reading them needs no
other steps. Among built-in resources, only the two shapes of events differ.
"""

from typing import Any

from kopf._cogs.helpers import jsons
from kopf._sandbox.meta import builtins, kinds, schemas
from kopf._sandbox.schema import pruning
from kopf._sandbox.storage import memory

EVENTS = kinds.Home('', 'events')


def read_raw(resource: kinds.Resource, stored: memory.Stored) -> bytes:
    """Encode a stored object in the version of this resource."""
    if _is_viewed(resource):
        return _find_view(resource, stored)
    return stored.raw if _is_native(resource) else jsons.dumps(read(resource, stored))


def read(resource: kinds.Resource, stored: memory.Stored) -> dict[str, Any]:
    """Decode a stored object in the version of this resource."""
    if _is_viewed(resource):
        viewed: dict[str, Any] = jsons.loads(_find_view(resource, stored))
        return viewed

    body = stored.load()
    if _is_native(resource):
        return body
    if resource.home == EVENTS:
        return builtins.convert_event(body, resource.api_version)

    body['apiVersion'] = resource.api_version
    schema = resource.schema
    if schema is not None:
        pruning.prune(body, schema)
    return body


def make_storable(resource: kinds.Resource, body: dict[str, Any]) -> dict[str, Any]:
    """Convert an object of this resource's version to the stored form. May modify the object."""
    if _is_native(resource):
        return body
    if resource.home == EVENTS:
        return builtins.convert_event(body, 'v1')
    return reread(resource, body)


def reread(resource: kinds.Resource, body: dict[str, Any]) -> dict[str, Any]:
    """
    Convert a custom object by the schema of the storage version. Modifies the object.

    Objects of other versions stay as they are if only a webhook can convert them.
    """
    if resource.conversion is not None and body['apiVersion'] != resource.stored_api_version:
        return body
    fit(body, resource.stored_schema)
    return {**body, 'apiVersion': resource.stored_api_version}


def fit(body: dict[str, Any], schema: schemas.Schema | None) -> None:
    """Drop the unknown fields of a custom object, and set its defaults. Modifies the object."""
    if schema is not None:
        pruning.prune(body, schema)
        pruning.apply_defaults(body, schema)


def _is_viewed(resource: kinds.Resource) -> bool:
    return resource.conversion is not None


def _find_view(resource: kinds.Resource, stored: memory.Stored) -> bytes:
    assert stored.views is not None, 'objects are converted by webhooks before they are read'
    return stored.views[resource]


def _is_native(resource: kinds.Resource) -> bool:
    return resource.version == resource.storage_version and resource.group == resource.home.group
