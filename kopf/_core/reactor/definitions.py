"""
Definitions: compares custom resource definitions (CRDs) with the discovered resources.

Decisions only. A cluster serves what its CRDs define, but with a delay: the definitions change
first, and the discovery follows a moment later. While the two differ, it makes sense to scan again.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kopf._cogs.structs import references

Names = tuple[str, str]
"""The group and the plural name, which identify a CRD."""

Found = Mapping[Names, Collection[references.Resource]]
"""The discovered resources, in all their versions."""


@dataclasses.dataclass(frozen=True)
class Definition:
    """The content of a CRD that is also visible in the discovery."""

    group: str
    plural: str
    kind: str = ''
    singular: str = ''
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    namespaced: bool = True
    # The served versions, each with its subresources.
    versions: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    is_established: bool = False  # whether it is served now or will be in a moment
    is_terminating: bool = False  # whether it is being deleted, together with all its objects

    @property
    def names(self) -> Names:
        return self.group, self.plural


def parse_definition(body: Mapping[str, Any]) -> Definition:
    """Parse a CRD; absent and malformed fields are treated as empty."""
    spec = _get_mapping(body, 'spec')
    status = _get_mapping(body, 'status')
    plural, _, group = str(_get_mapping(body, 'metadata').get('name') or '').partition('.')
    names = _get_mapping(status, 'acceptedNames')

    return Definition(
        group=group,
        plural=plural,
        kind=str(names.get('kind') or ''),
        singular=str(names.get('singular') or ''),
        shortcuts=frozenset(names.get('shortNames') or ()),
        categories=frozenset(names.get('categories') or ()),
        namespaced=spec.get('scope') == 'Namespaced',
        versions={
            str(version.get('name')): frozenset(_get_mapping(version, 'subresources'))
            for version in spec.get('versions') or ()
            if version.get('served')
        },
        is_established=_has_condition(status, 'Established'),
        is_terminating=_has_condition(status, 'Terminating')
        or bool(_get_mapping(body, 'metadata').get('deletionTimestamp')),
    )


def is_reflected(definition: Definition, found: Found) -> bool:
    """
    Return whether the discovered resources match their definition.

    Definitions that are not established yet or are being deleted always count as matching.
    """
    if not definition.is_established or definition.is_terminating:
        return True

    resources = found.get(definition.names, ())
    return {resource.version for resource in resources} == set(definition.versions) and all(
        _is_same(resource, definition) for resource in resources
    )


def keep_patchable(
    resources: Iterable[references.Resource],
    definitions: Iterable[Definition],
) -> list[references.Resource]:
    """
    Restore the verb ``patch`` for the resources whose CRDs are being deleted.

    The discovery no longer lists it, but the server still accepts patches: otherwise, the objects
    would never lose their finalizers, and the CRD would never be deleted.
    """
    terminating = {definition.names for definition in definitions if definition.is_terminating}
    return [
        dataclasses.replace(resource, verbs=resource.verbs | {'patch'})
        if (resource.group, resource.plural) in terminating
        else resource
        for resource in resources
    ]


def group_resources(resources: Iterable[references.Resource]) -> Found:
    """Group all versions of each resource by the names that identify its CRD."""
    found: dict[Names, list[references.Resource]] = {}
    for resource in resources:
        found.setdefault((resource.group, resource.plural), []).append(resource)
    return found


def is_relevant(definition: Definition, groups: Collection[str] | None) -> bool:
    """Return whether the definition belongs to one of these groups; ``None`` means all groups."""
    return groups is None or definition.group in groups


def _is_same(resource: references.Resource, definition: Definition) -> bool:
    return (
        resource.kind == definition.kind
        and definition.singular in ('', resource.singular)
        and resource.shortcuts == definition.shortcuts
        and resource.categories == definition.categories
        and resource.namespaced == definition.namespaced
        and resource.subresources == definition.versions[resource.version]
    )


def _has_condition(status: Mapping[str, Any], type_: str) -> bool:
    return any(
        condition.get('type') == type_ and condition.get('status') == 'True'
        for condition in status.get('conditions') or ()
    )


def _get_mapping(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = body.get(field)
    return value if isinstance(value, Mapping) else {}
