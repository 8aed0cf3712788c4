"""
Kinds: the served resources with their properties.

A `Resource` is one resource in one version, built-in or custom. The `Catalog` holds all resources
that are served now; it changes only with CRDs. Objects are stored under `Resource.home`, which all
versions of a resource share.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._sandbox.meta import schemas


class Home(NamedTuple):
    """The storage location of a resource's objects, the same for all versions."""

    group: str
    plural: str


NOWHERE = Home('', '')
NAMESPACES = Home('', 'namespaces')
CRDS = Home('apiextensions.k8s.io', 'customresourcedefinitions')


@dataclasses.dataclass(frozen=True)
class Column:
    """A printer column of a custom resource."""

    name: str
    type: str  # string, integer, number, boolean, date
    path: str  # .spec.replicas
    format: str = ''
    description: str = ''
    priority: int = 0


@dataclasses.dataclass(frozen=True)
class Scale:
    """The paths of the scale subresource."""

    spec_path: str  # .spec.replicas
    status_path: str
    selector_path: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class Resource:
    """One resource in one version."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    list_kind: str = ''
    has_status: bool = False
    scale: Scale | None = None
    subresources: tuple[str, ...] = ()  # other than status and scale: token, eviction, finalize, …
    storage_version: str = ''  # the version in which the objects are stored
    home: Home = NOWHERE
    custom: bool = False  # defined by a CRD
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()  # .spec.color: fields for selectors besides name and namespace
    warning: str = ''  # the warning header for deprecated versions
    conversion: Mapping[str, Any] | None = None  # the webhook, if it converts the versions
    load_schema: Callable[[], schemas.Schema | None] = lambda: None  # compiled when first needed
    load_stored_schema: Callable[[], schemas.Schema | None] = lambda: None  # of the storage version

    @property
    def api_version(self) -> str:
        return f'{self.group}/{self.version}' if self.group else self.version

    @property
    def stored_api_version(self) -> str:
        return f'{self.group}/{self.storage_version}' if self.group else self.storage_version

    @property
    def schema(self) -> schemas.Schema | None:
        return self.load_schema()

    @property
    def stored_schema(self) -> schemas.Schema | None:
        """The schema of the storage version; only for custom resources."""
        return self.load_stored_schema()

    def __str__(self) -> str:
        return f'{self.plural}.{self.version}.{self.group}'.rstrip('.')


class Catalog:
    """All served resources, in the order of addition. Modified only by the serving loop."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._by_path: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._by_home: dict[Home, dict[str, Resource]] = {}
        self.generation = 0  # changes with every modification, to invalidate the caches
        for resource in resources:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def add(self, resource: Resource) -> None:
        """Add a resource, or replace it if it was served already."""
        self._by_path[resource.group, resource.version, resource.plural] = resource
        self._by_kind[resource.group, resource.version, resource.kind] = resource
        self._by_home.setdefault(resource.home, {})[resource.version] = resource
        self.generation += 1

    def discard(self, home: Home) -> None:
        """Stop serving all versions of a resource."""
        for resource in self._by_home.pop(home, {}).values():
            self._by_path.pop((resource.group, resource.version, resource.plural), None)
            self._by_kind.pop((resource.group, resource.version, resource.kind), None)
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_path.get((group, version, plural))

    def find_kind(self, group: str, version: str, kind: str) -> Resource | None:
        return self._by_kind.get((group, version, kind))

    def find_versions(self, home: Home) -> dict[str, Resource]:
        """Return all versions of a resource by name; empty if it is not served."""
        return dict(self._by_home.get(home, {}))


def split_api_version(api_version: Any) -> tuple[str, str]:
    """Split ``apps/v1`` and ``v1`` into the group and the version."""
    group, _, version = str(api_version or '').rpartition('/')
    return group, version
