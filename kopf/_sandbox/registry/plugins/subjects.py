"""
Subjects: what the plugins decide on, and the objects that they look up for it.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from kopf._sandbox.meta import errors, kinds, requests
from kopf._sandbox.storage import memory

Body = Mapping[str, Any]

PODS = kinds.Home('', 'pods')
CLAIMS = kinds.Home('', 'persistentvolumeclaims')


@dataclasses.dataclass(frozen=True)
class Subject:
    """A new or changed object on its way to the storage. Only mutating plugins modify it."""

    request: requests.Request
    obj: dict[str, Any]
    old: Body | None
    store: memory.Storage

    @property
    def home(self) -> kinds.Home:
        return self.request.resource.home

    @property
    def is_new(self) -> bool:
        return self.old is None

    @property
    def name(self) -> str:
        return self.obj['metadata'].get('name') or ''

    def list(self, home: kinds.Home, namespace: str = '') -> list[dict[str, Any]]:
        """Return the stored objects of a resource, in one namespace or in all of them."""
        return [stored.load() for stored in self.store.shelf(home).select(namespace)]

    def forbid(self, why: str) -> errors.ApiError:
        """Build the refusal of the object."""
        resource = self.request.resource
        return errors.forbidden(resource.group, resource.plural, self.name, why)


def list_containers(spec: Body) -> Iterable[dict[str, Any]]:
    """Return the containers of a pod, and then those that run before them."""
    return (*(spec.get('containers') or ()), *(spec.get('initContainers') or ()))
