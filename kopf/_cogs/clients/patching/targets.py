"""
Targets: the objects to change.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import references

RawBody = Mapping[str, Any]


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
