"""
The REST mapper: from a name written by a person to a resource.

The names are those that kubectl accepts (``pods``, ``pod``, ``Pod``, ``po``,
``kopfexamples.kopf.dev``, ``kopfexamples.v1.kopf.dev``), and those with versions first
(``v1/pods``, ``apps/v1/deployments``).
"""

from typing import Any

from kopf._sandbox.meta import discovery, errors, kinds


def find_resource(catalog: kinds.Catalog, text: str) -> kinds.Resource:
    """
    Return the resource in the named version, or in its preferred version.

    Raises the API's 404 if there is none, and `ValueError` if the name is ambiguous.
    """
    found = [resource for resource in catalog if _matches(resource, text)]
    precise = [resource for resource in found if _get_word(text) == resource.plural] or found
    homes = {resource.home for resource in precise}
    if not homes:
        raise errors.ApiError(
            404, 'NotFound', f'the server doesn\'t have a resource type "{text}"', details={}
        )

    if len(homes) > 1:
        listed = ' or '.join(
            sorted(f'{resource.api_version}/{resource.plural}' for resource in precise)
        )
        raise ValueError(f'The resource "{text}" is ambiguous: say which one is meant, {listed}.')

    return min(precise, key=_rank)


def find_stored_resource(catalog: kinds.Catalog, home: kinds.Home) -> kinds.Resource | None:
    """Return the resource in its storage version, if it is served at all."""
    versions = list(catalog.find_versions(home).values())
    native = [
        resource
        for resource in versions
        if resource.version == resource.storage_version and resource.group == home.group
    ]
    return next(iter([*native, *versions]), None)


def _rank(resource: kinds.Resource) -> tuple[bool, Any]:
    return resource.group != resource.home.group, discovery.rank_version(resource.version)


def _get_word(text: str) -> str:
    return (text.rpartition('/')[2] if '/' in text else text.partition('.')[0]).lower()


def _matches(resource: kinds.Resource, text: str) -> bool:
    names = (resource.plural, resource.singular, resource.kind.lower(), *resource.short_names)
    return _get_word(text) in names and _belongs(resource, text)


def _belongs(resource: kinds.Resource, text: str) -> bool:
    """Return whether the resource is of the named group and version, if they are named."""
    if '/' in text:
        return resource.api_version == text.rpartition('/')[0]
    rest = text.partition('.')[2]
    return rest in ('', resource.group, f'{resource.version}.{resource.group}'.rstrip('.'))
