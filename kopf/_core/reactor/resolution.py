"""
Resolution: which resources of the cluster the handlers' selectors match.

Decisions only: nothing is requested, remembered or logged here. Each selector is resolved
independently of the others. The results are rebuilt from scratch every time, as resources appear
and disappear.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kopf._cogs.clients import discovery
from kopf._cogs.structs import references, selectors

Resources = frozenset[references.Resource]

WATCHING = frozenset({'list', 'watch'})
"""The verbs that a resource must support to be served."""


@dataclasses.dataclass(frozen=True)
class Demand:
    """The selectors of all handlers together."""

    # Of all handlers that need the objects to be watched.
    asked: Collection[selectors.Selector] = ()
    # The subset of them whose handlers need the objects to be patched.
    patching: Collection[selectors.Selector] = ()
    # Of the admission handlers, which require nothing from the resources.
    reviewing: Collection[selectors.Selector] = ()

    @property
    def selectors(self) -> frozenset[selectors.Selector]:
        """All selectors of any kind."""
        return frozenset([*self.asked, *self.reviewing])


class Complaint(NamedTuple):
    """A log line about an unserved selector; equal complaints are the same problem."""

    text: str
    values: tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Resolution:
    """The resources that are served for each selector, and those that are not."""

    served: Mapping[selectors.Selector, Resources] = dataclasses.field(default_factory=dict)
    reviewed: Mapping[selectors.Selector, Resources] = dataclasses.field(default_factory=dict)
    ambiguous: Mapping[selectors.Selector, Resources] = dataclasses.field(default_factory=dict)
    unwatchable: Mapping[selectors.Selector, Resources] = dataclasses.field(default_factory=dict)
    unpatchable: Mapping[selectors.Selector, Resources] = dataclasses.field(default_factory=dict)
    # The failed functions, with their errors.
    broken: Mapping[selectors.Selector, str] = dataclasses.field(default_factory=dict)
    unresolved: frozenset[selectors.Selector] = frozenset()

    @property
    def resources(self) -> Resources:
        """All resources to watch."""
        return frozenset(resource for resources in self.served.values() for resource in resources)

    @property
    def all_resources(self) -> Resources:
        """All served resources, either watched or only reviewed at admission."""
        return self.resources.union(*self.reviewed.values())

    def select_selectors(self, resource: references.Resource) -> frozenset[selectors.Selector]:
        """
        Select the selectors for which this resource is served.

        They can be fewer than all matching selectors: a selector alone does not see the other
        resources of the same name.
        """
        return self._meanings.get(resource, frozenset())

    @functools.cached_property
    def _meanings(self) -> Mapping[references.Resource, frozenset[selectors.Selector]]:
        """The inverted mapping, cached because it is needed for every event."""
        return {
            resource: frozenset(
                selector for selector, resources in self.served.items() if resource in resources
            )
            for resource in self.resources
        }

    @property
    def complaints(self) -> frozenset[Complaint]:
        """The problems to be reported to the users."""
        return frozenset(_iterate_complaints(self))


def resolve(demand: Demand, resources: Iterable[references.Resource]) -> Resolution:
    """Resolve each selector to the resources that should be served for it."""
    candidates = list(resources)
    matched, broken = _match_all(demand.selectors, candidates)
    chosen = {selector: _prefer_core(selector, found) for selector, found in matched.items()}
    ambiguous = {
        selector: found for selector, found in chosen.items() if _is_ambiguous(selector, found)
    }
    certain = {
        selector: found for selector, found in chosen.items() if found and selector not in ambiguous
    }
    watched = {selector: found for selector, found in certain.items() if selector in demand.asked}
    patched = {resource for selector in demand.patching for resource in certain.get(selector, ())}
    watchable = {resource for resource in candidates if resource.verbs >= WATCHING}
    unpatchable = {resource for resource in patched & watchable if 'patch' not in resource.verbs}

    return Resolution(
        served=_restrict(
            watched, lambda resource: resource in watchable and resource not in unpatchable
        ),
        reviewed={
            selector: found for selector, found in certain.items() if selector in demand.reviewing
        },
        unwatchable=_restrict(watched, lambda resource: resource not in watchable),
        unpatchable=_restrict(watched, lambda resource: resource in unpatchable),
        ambiguous=ambiguous,
        broken=broken,
        unresolved=frozenset(selector for selector, found in matched.items() if not found),
    )


def select_groups(asked: Iterable[selectors.Selector]) -> frozenset[str] | None:
    """Select the API groups to scan; ``None`` for all groups, if any selector has no group."""
    groups = {selector.group for selector in asked}
    return None if None in groups else frozenset(group for group in groups if group is not None)


def update_resources(
    known: Iterable[references.Resource], catalog: discovery.Catalog
) -> list[references.Resource]:
    """
    Combine the previously known resources with the latest results of the discovery.

    Known resources are kept while the results are in doubt: if the server of an API group is down,
    its resources are not necessarily gone.
    """
    certain = {tuple(resource) for resource in catalog.resources}
    doubtful = {(version.group, version.version) for version in catalog.doubtful}
    kept = [
        resource
        for resource in known
        if tuple(resource) not in certain
        and (
            (resource.group, resource.version) in doubtful or _find_root(resource) in catalog.absent
        )
    ]

    return [*catalog.resources, *kept]


def _match_all(
    asked: Iterable[selectors.Selector],
    resources: Collection[references.Resource],
) -> tuple[dict[selectors.Selector, Resources], dict[selectors.Selector, str]]:
    """Match the selectors with the resources; selectors whose functions fail are left out."""
    matched = {}
    broken = {}
    for selector in asked:
        try:
            matched[selector] = frozenset(
                resource for resource in resources if selector.matches(resource)
            )
        except Exception as error:
            broken[selector] = repr(error)

    return matched, broken


def _prefer_core(selector: selectors.Selector, found: Resources) -> Resources:
    core = frozenset(resource for resource in found if not resource.group)
    return found if selector.is_multiple or not core else core


def _is_ambiguous(selector: selectors.Selector, found: Resources) -> bool:
    return not selector.is_multiple and len({resource.group for resource in found}) > 1


def _restrict(
    found: Mapping[selectors.Selector, Resources], check: Callable[[references.Resource], bool]
) -> dict[selectors.Selector, Resources]:
    restricted = {
        selector: frozenset(filter(check, resources)) for selector, resources in found.items()
    }
    return {selector: resources for selector, resources in restricted.items() if resources}


def _find_root(resource: references.Resource) -> str:
    return '/apis' if resource.group else '/api'


def _iterate_complaints(resolution: Resolution) -> Iterator[Complaint]:
    for selector in resolution.unresolved:
        yield Complaint(
            'Nothing is served for %r: there are no such resources in the cluster.', (selector,)
        )

    for selector, error in resolution.broken.items():
        yield Complaint('Nothing is served for %r: the function has failed: %s', (selector, error))
    for selector, resources in resolution.ambiguous.items():
        yield Complaint(
            'Nothing is served for %r: it is ambiguous, as there are %s. Add the group to the '
            'name.',
            (selector, _join(resources)),
        )

    for selector, resources in resolution.unwatchable.items():
        yield Complaint(
            'Not served for %r, as they cannot be listed and watched: %s.',
            (selector, _join(resources)),
        )

    for selector, resources in resolution.unpatchable.items():
        yield Complaint(
            'Not served for %r, as they cannot be patched, but there are handlers that need it: '
            '%s.',
            (selector, _join(resources)),
        )


def _join(resources: Resources) -> str:
    return ', '.join(sorted(map(repr, resources)))
