"""
Discovery: which resources the cluster serves.

Servers are asked for all resources at once; those that cannot tell so are asked for the groups, and then for each
version of each group. The answers are read by pure functions. Nothing is remembered here.
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
        'application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList',  # Kubernetes 1.26 to 1.29
        'application/json',  # older servers answer with the groups only
    ]
)
"""The preferred forms of answers, the best first."""

SKIPPED = (
    errors.APIForbiddenError,
    errors.APINotFoundError,
    errors.APIServerError,
    errors.APIGarbledError,
)
"""What can be wrong with one group with no harm to the others; each group can have a server of its own."""

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
    """What the cluster serves, as far as it tells; absence is certain only for groups that are not in doubt."""

    resources: Collection[references.Resource] = ()
    doubtful: Collection[
        GroupVersion
    ] = ()  # unavailable now: their resources are unknown or can be outdated
    absent: Collection[
        str
    ] = ()  # of ``/api``, ``/apis``: not there, with all their groups; it is so rarely for long


@dataclasses.dataclass(frozen=True)
class ServerVersion:
    """The version of Kubernetes; the numbers are zeros if the server does not tell them."""

    major: int
    minor: int
    text: str  # as the server calls it: "v1.35.4-gke.100"


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
    Find all resources of the cluster, or only of these groups: other groups are neither asked nor complained about.

    Groups that are forbidden, or are not served, or whose servers are down, are left out with one line in the log.
    Raises `RequestError` if the server does not tell even its groups; at once if it forbids that.
    """
    catalogs = [await _read_root(url, context, groups) for url in _select_roots(groups)]
    return _join_catalogs(catalogs)


async def read_version(*, context: requests.Context) -> ServerVersion:
    """Ask the server for its version. It can be forbidden, which is raised at once."""
    answer = await requests.get(
        '/version', context=context, options=requests.Options(answers=(403, 404))
    )
    return parse_version(_check_structure(answer, '/version'))


def parse_aggregated(answer: Answer) -> list[references.Resource]:
    """Read an ``APIGroupDiscoveryList``: all versions of all groups with all their resources."""
    return [
        _build_aggregated_resource(group_version, item)
        for group_version, description in _iterate_versions(answer)
        for item in description.get('resources') or ()
        if (item.get('responseKind') or {}).get(
            'kind'
        )  # absent if only some subresources are served
    ]


def parse_stale(answer: Answer) -> list[GroupVersion]:
    """Read an ``APIGroupDiscoveryList`` for those versions whose servers are not available now."""
    return [
        group_version
        for group_version, description in _iterate_versions(answer)
        if description.get('freshness') == 'Stale'
    ]


def parse_groups(answer: Answer) -> list[GroupVersion]:
    """Read an ``APIGroupList`` or, for the core API, ``APIVersions``."""
    core = answer.get('versions') or []
    versions = [GroupVersion('', version, version == core[0]) for version in core]
    for group in answer.get('groups') or ():
        names = [item['version'] for item in group.get('versions') or ()]
        preferred = (group.get('preferredVersion') or {}).get('version') or next(iter(names), None)
        versions.extend(GroupVersion(group['name'], name, name == preferred) for name in names)
    return versions


def parse_resource_list(answer: Answer, group_version: GroupVersion) -> list[references.Resource]:
    """Read an ``APIResourceList``: the resources of one version, with their subresources beside them."""
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
    """Read the version; some vendors add signs to the numbers: "28+"."""
    major, minor = (re.match(r'\d+', str(answer.get(key, ''))) for key in ('major', 'minor'))
    return ServerVersion(
        major=int(major[0]) if major else 0,
        minor=int(minor[0]) if minor else 0,
        text=str(answer.get('gitVersion', '')),
    )


def _select_roots(groups: Collection[str] | None) -> list[str]:
    """Choose where to ask: the core API is on its own."""
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
    Ask for everything or for the groups; or for the groups only, if the server is confused by such a question.

    Returns nothing if there is nobody to ask. What is not an answer at all must not be taken for the lack of resources.
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
    """List the versions of all groups; the preferred versions are the first ones in their groups."""
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
        singular=item.get('singularName')
        or item['kind'].lower(),  # old servers do not tell it for their own kinds
        shortcuts=frozenset(item.get('shortNames') or ()),
        categories=frozenset(item.get('categories') or ()),
        subresources=frozenset(
            name.removeprefix(prefix) for name in names if name.startswith(prefix)
        ),
        namespaced=bool(item.get('namespaced')),
        preferred=group_version.preferred,
        verbs=frozenset(item.get('verbs') or ()),
    )
