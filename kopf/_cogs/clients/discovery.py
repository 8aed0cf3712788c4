"""
Discovery: which resources the cluster serves.

Servers are asked for all resources at once; older servers, which do not support that, are asked for
the groups, and then for each version of each group. The responses are parsed by pure functions.
Nothing is cached here.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from kopf._cogs.clients import errors, requests
from kopf._cogs.structs import references

AGGREGATED = ', '.join(
    [
        'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList',
        # Kubernetes 1.26 to 1.29.
        'application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList',
        'application/json',  # older servers respond with the groups only
    ]
)
"""The accepted formats of responses, the best first."""

SKIPPED = (
    errors.APIForbiddenError,
    errors.APINotFoundError,
    errors.APIServerError,
    errors.APIGarbledError,
)
"""Errors of one group that do not affect other groups; each group can have its own server."""

Answer = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class GroupVersion:
    """A version of an API group; the group of the core API is empty."""

    group: str
    version: str
    preferred: bool = True

    def __str__(self) -> str:
        return f'{self.group}/{self.version}' if self.group else self.version

    @property
    def url(self) -> str:
        return f'/apis/{self.group}/{self.version}' if self.group else f'/api/{self.version}'


GroupedT = TypeVar('GroupedT', GroupVersion, references.Resource)


@dataclasses.dataclass(frozen=True)
class Catalog:
    """The known resources of the cluster; absence is certain only for groups not in doubt."""

    resources: Collection[references.Resource] = ()
    # Currently unavailable: their resources are unknown or possibly outdated.
    doubtful: Collection[GroupVersion] = ()
    # The roots, ``/api`` or ``/apis``, that are missing with all their groups; usually briefly.
    absent: Collection[str] = ()


@dataclasses.dataclass(frozen=True)
class ServerVersion:
    """The version of Kubernetes; the numbers are zeros if the server does not report them."""

    major: int
    minor: int
    text: str  # as reported by the server: "v1.35.4-gke.100"


async def read_resources(
    *,
    context: requests.Context,
    groups: Collection[str] | None = None,
) -> Collection[references.Resource]:
    """Find all resources of the cluster, or only of these groups; see `read_catalog`."""
    catalog = await read_catalog(context=context, groups=groups)
    return catalog.resources


async def read_catalog(
    *, context: requests.Context, groups: Collection[str] | None = None
) -> Catalog:
    """
    Find all resources of the cluster, or only of these groups; other groups are neither requested
    nor reported.

    Groups that are forbidden, or not served, or whose servers are down, are left out with one line
    in the log. Raises `RequestError` if the server does not list even its groups; immediately if it
    forbids that.
    """
    catalogs = [await _read_root(url, context, groups) for url in _select_roots(groups)]
    return _join_catalogs(catalogs)


async def read_version(*, context: requests.Context) -> ServerVersion:
    """Return the version of the server. It can be forbidden, which is raised immediately."""
    answer = await requests.get(
        '/version', context=context, options=requests.Options(answers=(403, 404))
    )
    return parse_version(_check_structure(answer, '/version'))


def parse_aggregated(answer: Answer) -> list[references.Resource]:
    """Parse an ``APIGroupDiscoveryList``: all versions of all groups with all their resources."""
    return [
        _build_aggregated_resource(group_version, item)
        for group_version, description in _iterate_versions(answer)
        for item in description.get('resources') or ()
        # The kind is absent if only some subresources are served.
        if (item.get('responseKind') or {}).get('kind')
    ]


def parse_stale(answer: Answer) -> list[GroupVersion]:
    """Return the versions in an ``APIGroupDiscoveryList`` whose servers are unavailable now."""
    return [
        group_version
        for group_version, description in _iterate_versions(answer)
        if description.get('freshness') == 'Stale'
    ]


def parse_groups(answer: Answer) -> list[GroupVersion]:
    """Parse an ``APIGroupList`` or, for the core API, ``APIVersions``."""
    core = answer.get('versions') or []
    versions = [GroupVersion('', version, version == core[0]) for version in core]
    for group in answer.get('groups') or ():
        names = [item['version'] for item in group.get('versions') or ()]
        preferred = (group.get('preferredVersion') or {}).get('version') or next(iter(names), None)
        versions.extend(GroupVersion(group['name'], name, name == preferred) for name in names)

    return versions


def parse_resource_list(answer: Answer, group_version: GroupVersion) -> list[references.Resource]:
    """Parse an ``APIResourceList``: the resources of one version, with their subresources."""
    items = [
        item for item in answer.get('resources') or () if item.get('name') and item.get('kind')
    ]
    names = [item['name'] for item in items]
    return [
        _build_listed_resource(group_version, item, names)
        for item in items
        if '/' not in item['name']
    ]


def parse_version(answer: Answer) -> ServerVersion:
    """Parse the version; some vendors add signs to the numbers: "28+"."""
    major, minor = (re.match(r'\d+', str(answer.get(key, ''))) for key in ('major', 'minor'))
    return ServerVersion(
        major=int(major[0]) if major else 0,
        minor=int(minor[0]) if minor else 0,
        text=str(answer.get('gitVersion', '')),
    )


def _select_roots(groups: Collection[str] | None) -> list[str]:
    """Choose the roots to request: the core API has its own one."""
    if groups is None:
        return ['/api', '/apis']
    return (['/api'] if '' in groups else []) + (['/apis'] if any(groups) else [])


async def _read_root(
    url: str, context: requests.Context, groups: Collection[str] | None
) -> Catalog:
    answer = await _read_answer(url, context)
    if answer is None:
        return Catalog(absent=[url])

    if answer.get('kind') == 'APIGroupDiscoveryList':
        stale = _select_groups(parse_stale(answer), groups)
        for group_version in stale:
            context.logger.warning(
                'Resources of %s can be outdated: their server is not available.', group_version
            )
        return Catalog(_select_groups(parse_aggregated(answer), groups), stale)

    return _join_catalogs(
        [
            await _read_group_version(group_version, context)
            for group_version in _select_groups(parse_groups(answer), groups)
        ]
    )


async def _read_answer(url: str, context: requests.Context) -> Answer | None:
    """
    Request everything or the groups; or only the groups, if the server does not understand the
    former.

    Returns ``None`` if the root is not found. Invalid responses must not be taken for the absence
    of resources.
    """
    answers = (403, 404, 406)
    try:
        options = requests.Options(headers={'Accept': AGGREGATED}, answers=answers)
        return _check_kind(await requests.get(url, context=context, options=options), url)
    except errors.APIClientError as error:
        if error.code not in (404, 406):
            raise

    try:
        options = requests.Options(answers=answers)
        return _check_kind(await requests.get(url, context=context, options=options), url)
    except errors.APINotFoundError as error:
        context.logger.warning('The server has no API at %s: %s', url, error)
        return None


async def _read_group_version(group_version: GroupVersion, context: requests.Context) -> Catalog:
    options = requests.Options(answers=(403, 404, 503))
    try:
        answer = _check_structure(
            await requests.get(group_version.url, context=context, options=options),
            group_version.url,
        )
    except SKIPPED as error:
        context.logger.warning(
            'Resources of %s are not available, and are left out: %s', group_version, error
        )
        return Catalog(doubtful=[group_version])

    return Catalog(parse_resource_list(answer, group_version))


def _check_kind(answer: Any, url: str) -> Answer:
    checked = _check_structure(answer, url)
    if checked.get('kind') not in ('APIGroupDiscoveryList', 'APIGroupList', 'APIVersions'):
        raise errors.APIGarbledError(
            f'GET {url}: the answer is of another kind than those of the discovery.'
        )
    return checked


def _check_structure(answer: Any, url: str) -> Answer:
    if not isinstance(answer, Mapping):
        raise errors.APIGarbledError(f'GET {url}: the answer is JSON, but not of the API.')
    return answer


def _select_groups(items: Iterable[GroupedT], groups: Collection[str] | None) -> list[GroupedT]:
    return [item for item in items if groups is None or item.group in groups]


def _join_catalogs(catalogs: Collection[Catalog]) -> Catalog:
    return Catalog(
        resources=[resource for catalog in catalogs for resource in catalog.resources],
        doubtful=[group_version for catalog in catalogs for group_version in catalog.doubtful],
        absent=[url for catalog in catalogs for url in catalog.absent],
    )


def _iterate_versions(answer: Answer) -> Iterable[tuple[GroupVersion, Answer]]:
    """Iterate over the versions of all groups; the first version in a group is preferred."""
    for item in answer.get('items') or ():
        group = (item.get('metadata') or {}).get('name') or ''
        for index, description in enumerate(item.get('versions') or ()):
            yield GroupVersion(group, description['version'], index == 0), description


def _build_aggregated_resource(group_version: GroupVersion, item: Answer) -> references.Resource:
    kind = item['responseKind']['kind']
    return references.Resource(
        group=group_version.group,
        version=group_version.version,
        plural=item['resource'],
        kind=kind,
        singular=item.get('singularResource') or kind.lower(),
        shortcuts=frozenset(item.get('shortNames') or ()),
        categories=frozenset(item.get('categories') or ()),
        subresources=frozenset(
            subitem['subresource'] for subitem in item.get('subresources') or ()
        ),
        namespaced=item.get('scope') == 'Namespaced',
        preferred=group_version.preferred,
        verbs=frozenset(item.get('verbs') or ()),
    )


def _build_listed_resource(
    group_version: GroupVersion, item: Answer, names: Collection[str]
) -> references.Resource:
    prefix = f'{item["name"]}/'
    return references.Resource(
        group=group_version.group,
        version=group_version.version,
        plural=item['name'],
        kind=item['kind'],
        # Old servers do not report the singular names of their own kinds.
        singular=item.get('singularName') or item['kind'].lower(),
        shortcuts=frozenset(item.get('shortNames') or ()),
        categories=frozenset(item.get('categories') or ()),
        subresources=frozenset(
            name.removeprefix(prefix) for name in names if name.startswith(prefix)
        ),
        namespaced=bool(item.get('namespaced')),
        preferred=group_version.preferred,
        verbs=frozenset(item.get('verbs') or ()),
    )
