"""
Discovery: the description of the served resources.

Pure functions over the catalog, for both protocols of discovery: step by step (groups, then the
resources of each version) and aggregated (everything at once, for newer clients).
"""

import base64
import functools
import hashlib
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kopf._sandbox.meta import kinds

AGGREGATED_MEDIA_TYPE: Final = (
    'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList'
)
AGGREGATED_KIND: Final = ('apidiscovery.k8s.io', 'v2', 'APIGroupDiscoveryList')
"""The group, version and kind of the aggregated discovery, as requested by clients."""

KUBERNETES_VERSION: Final = (1, 35, 4)
"""The version of Kubernetes that the sandbox emulates."""

_VERSION_PATTERN: Final = re.compile(r'v([0-9]+)(?:(alpha|beta)([0-9]+))?')
_STABILITIES: Final = {None: 0, 'beta': 1, 'alpha': 2}


class Kind(NamedTuple):
    """
    The kind of objects of a resource or a subresource; with no version, of the resource's own group
    and version.
    """

    kind: str
    group: str = ''
    version: str = ''


class Subresource(NamedTuple):
    name: str
    kind: Kind
    verbs: tuple[str, ...]


def build_core_versions(server_address: str) -> dict[str, Any]:
    """Build the response for ``/api``; the server's address is like ``127.0.0.1:6443``."""
    addresses = [{'clientCIDR': '0.0.0.0/0', 'serverAddress': server_address}]
    return {'kind': 'APIVersions', 'versions': ['v1'], 'serverAddressByClientCIDRs': addresses}


def build_groups(catalog: kinds.Catalog) -> dict[str, Any]:
    """Build the response for ``/apis``."""
    return {
        'kind': 'APIGroupList',
        'apiVersion': 'v1',
        'groups': [
            _describe_group(group, versions)
            for group, versions in list_versions(catalog).items()
            if group
        ],
    }


def build_group(catalog: kinds.Catalog, group: str) -> dict[str, Any] | None:
    """Build the response for ``/apis/{group}``, if the group is served."""
    versions = list_versions(catalog).get(group)
    if not group or not versions:
        return None
    return {'kind': 'APIGroup', 'apiVersion': 'v1', **_describe_group(group, versions)}


def build_resources(catalog: kinds.Catalog, group: str, version: str) -> dict[str, Any] | None:
    """Build the response for ``/api/v1`` or ``/apis/{group}/{version}``, if it is served."""
    resources = select_resources(catalog, group, version)
    if not resources:
        return None

    items = [item for resource in resources for item in _describe_resource(resource)]
    head = (
        {'kind': 'APIResourceList'}
        if not group
        else {'kind': 'APIResourceList', 'apiVersion': 'v1'}
    )
    return {**head, 'groupVersion': resources[0].api_version, 'resources': items}


def build_aggregated(catalog: kinds.Catalog, *, core: bool) -> dict[str, Any]:
    """Build the aggregated response for ``/api`` (the core group) or ``/apis`` (other groups)."""
    items = [
        _aggregate_group(catalog, group, versions)
        for group, versions in list_versions(catalog).items()
        if core is (group == '')
    ]
    return {
        'kind': 'APIGroupDiscoveryList',
        'apiVersion': 'apidiscovery.k8s.io/v2',
        'metadata': {},
        'items': items,
    }


def build_version() -> dict[str, str]:
    """Build the response for ``/version``."""
    major, minor, patch = KUBERNETES_VERSION
    machine = platform.machine().lower()
    architecture = {'x86_64': 'amd64', 'aarch64': 'arm64'}.get(machine, machine)

    return {
        'major': str(major),
        'minor': str(minor),
        'emulationMajor': str(major),
        'emulationMinor': str(minor),
        'minCompatibilityMajor': str(major),
        'minCompatibilityMinor': str(minor - 1),
        'gitVersion': f'v{major}.{minor}.{patch}+kopf-sandbox',
        'gitCommit': '',
        'gitTreeState': '',
        'buildDate': '1970-01-01T00:00:00Z',
        'goVersion': '',
        'compiler': platform.python_implementation().lower(),
        'platform': f'{platform.system().lower()}/{architecture}',
    }


def list_versions(catalog: kinds.Catalog) -> dict[str, list[str]]:
    """
    Return the served groups with their versions, the preferred versions first.

    The built-in groups go first, in the order of the catalog; then the groups of custom resources
    by name.
    """
    versions: dict[str, set[str]] = {}
    builtin: set[str] = set()
    for resource in catalog:
        versions.setdefault(resource.group, set()).add(resource.version)
        if not resource.custom:
            builtin.add(resource.group)

    groups = [group for group in versions if group in builtin] + sorted(versions.keys() - builtin)
    return {group: sorted(versions[group], key=rank_version) for group in groups}


def rank_version(version: str) -> tuple[int, int, int, int, str]:
    """Return the sorting key of a version: by stability, the newest first; then other names."""
    match = _VERSION_PATTERN.fullmatch(version)
    if match is None:
        return 1, 0, 0, 0, version
    major, stability, minor = match.groups()
    return 0, _STABILITIES[stability], -int(major), -int(minor or 0), ''


def select_resources(catalog: kinds.Catalog, group: str, version: str) -> list[kinds.Resource]:
    return [
        resource for resource in catalog if resource.group == group and resource.version == version
    ]


def list_subresources(resource: kinds.Resource) -> list[Subresource]:
    """Return all subresources of a resource, in the order of the API."""
    known = (('status', resource.has_status), ('scale', resource.scale is not None))
    names = [name for name, served in known if served] + list(resource.subresources)
    ordered = names if resource.custom else sorted(names)
    own = Kind(resource.kind)

    return [
        Subresource(name, kind or own, verbs)
        for name in ordered
        for kind, verbs in [_SUBRESOURCES[name]]
    ]


_SUBRESOURCES: Final[Mapping[str, tuple[Kind | None, tuple[str, ...]]]] = {
    'status': (None, ('get', 'patch', 'update')),
    'scale': (Kind('Scale', 'autoscaling', 'v1'), ('get', 'patch', 'update')),
    'approval': (None, ('get', 'patch', 'update')),
    'finalize': (None, ('update',)),
    'binding': (Kind('Binding'), ('create',)),
    'eviction': (Kind('Eviction', 'policy', 'v1'), ('create',)),
    'token': (Kind('TokenRequest', 'authentication.k8s.io', 'v1'), ('create',)),
}


HASHED_VERSIONS = {kinds.Home('apiextensions.k8s.io', 'customresourcedefinitions'): 'v1beta1'}
"""The versions that the API hashes instead of the storage versions: outdated, but published."""


@functools.lru_cache(maxsize=1024)
def hash_storage_version(group: str, version: str, kind: str) -> str:
    """Hash the version in which the objects are stored, exactly as the API does."""
    digest = hashlib.sha256(f'{group}/{version}/{kind}'.encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _describe_group(group: str, versions: Iterable[str]) -> dict[str, Any]:
    described = [{'groupVersion': f'{group}/{version}', 'version': version} for version in versions]
    return {'name': group, 'versions': described, 'preferredVersion': described[0]}


def _describe_resource(resource: kinds.Resource) -> Iterator[dict[str, Any]]:
    described: dict[str, Any] = {
        'name': resource.plural,
        'singularName': resource.singular,
        'namespaced': resource.namespaced,
        'kind': resource.kind,
        'verbs': list(resource.verbs),
        **_describe_names(resource),
    }
    if 'watch' in resource.verbs:
        version = HASHED_VERSIONS.get(resource.home, resource.storage_version)
        described['storageVersionHash'] = hash_storage_version(
            resource.home.group, version, resource.kind
        )

    yield described
    for subresource in list_subresources(resource):
        name, (kind, group, version), verbs = subresource
        foreign = {'group': group, 'version': version} if version else {}
        yield {
            'name': f'{resource.plural}/{name}',
            'singularName': '',
            'namespaced': resource.namespaced,
            **foreign,
            'kind': kind,
            'verbs': list(verbs),
        }


def _aggregate_group(catalog: kinds.Catalog, group: str, versions: Iterable[str]) -> dict[str, Any]:
    aggregated = []
    for version in versions:
        resources = select_resources(catalog, group, version)
        items = [
            _aggregate_resource(resource)
            for resource in sorted(resources, key=lambda item: item.plural)
        ]
        aggregated.append({'version': version, 'resources': items, 'freshness': 'Current'})

    return {'metadata': {'name': group} if group else {}, 'versions': aggregated}


def _aggregate_resource(resource: kinds.Resource) -> dict[str, Any]:
    # For custom resources, the API always repeats the group and version; for built-in ones, only if
    # they differ.
    own = (resource.group, resource.version) if resource.custom else ('', '')
    subresources = [
        {'subresource': name, 'responseKind': _aggregate_kind(kind, own), 'verbs': list(verbs)}
        for name, kind, verbs in list_subresources(resource)
    ]
    return {
        'resource': resource.plural,
        'responseKind': _aggregate_kind(Kind(resource.kind), own),
        'scope': 'Namespaced' if resource.namespaced else 'Cluster',
        'singularResource': resource.singular,
        'verbs': list(resource.verbs),
        **_describe_names(resource),
        **({'subresources': subresources} if subresources else {}),
    }


def _aggregate_kind(kind: Kind, own: tuple[str, str]) -> dict[str, str]:
    group, version = (kind.group, kind.version) if kind.version else own
    return {'group': group, 'version': version, 'kind': kind.kind}


def _describe_names(resource: kinds.Resource) -> dict[str, list[str]]:
    named = {'shortNames': list(resource.short_names), 'categories': list(resource.categories)}
    return {key: names for key, names in named.items() if names}
