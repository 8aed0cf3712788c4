"""
Selectors: which resources are meant, before it is known which resources exist.

The notations are those of the decorators' positional arguments; each is read the same way wherever it is accepted.
Reading them needs no cluster; matching needs only a resource.
"""
import dataclasses
import re
from collections.abc import Callable
from typing import Any

from kopf._cogs.structs import references

ResourceCheck = Callable[[references.Resource], Any]
"""Tells by its truthy result that a resource is meant."""

Notation = (str | references.Marker | tuple[str, str | references.Marker] | tuple[str, str, str | references.Marker]
            | ResourceCheck)
"""All that can stand for a selector: ``'pods'``, ``('apps', 'v1', 'deployments')``, ``kopf.EVERYTHING``, a function."""

_VERSION = re.compile(r'v\d+((alpha|beta)\d+)?')


@dataclasses.dataclass(frozen=True)
class Selector:
    """What is expected of a resource. Parts that are ``None`` do not matter."""
    group: str | None
    version: str | None
    name: str | references.Marker | ResourceCheck  # any of the resource's names, or all resources, or those accepted

    def __repr__(self) -> str:
        name = self.name if isinstance(self.name, str) else repr(self.name)
        return '.'.join([name, *(part for part in (self.version, self.group) if part)])

    def matches(self, resource: references.Resource) -> bool:
        """
        Tell if this resource is meant, on its own: with no regard to other resources of the same names.

        With no version asked, only the preferred version is meant, except that functions see all versions.
        K8s-events are meant only if they are named, as there are usually too many of them.
        """
        if self.group not in (None, resource.group) or self.version not in (None, resource.version):
            return False
        if isinstance(self.name, str):
            return (self.version is not None or resource.preferred) and self.name in _list_names(resource)
        if _is_k8s_event(resource):
            return False
        if isinstance(self.name, references.Marker):
            return self.version is not None or resource.preferred
        return bool(self.name(resource))


def parse_selector(notation: Notation | Selector) -> Selector:
    """
    Read any of the notations; a selector stands for itself. Equal meanings give equal selectors.

    Raises `TypeError` for anything that is not a notation.
    """
    selector = _parse(notation)
    if selector is None or '' in (selector.name, selector.version):
        raise TypeError(f"Resources are selected by names, kopf.EVERYTHING, tuples of 2 or 3 strings with either "
                        f"at the end, or functions of kopf.Resource; got {notation!r}.")
    return selector


def _parse(notation: object) -> Selector | None:
    match notation:
        case Selector():
            return notation
        case str():
            return _parse_name(notation)
        case (str(group), str() | references.Marker() as name):
            return _parse_pair(group, name)
        case (str(group), str(version), str() | references.Marker() as name):
            return Selector(group, version, name)
        case references.Marker():
            return Selector(None, None, notation)
        case _ if callable(notation):
            return Selector(None, None, notation)
    return None


def _parse_name(text: str) -> Selector:
    """Read ``name``, ``name.group``, ``name.version``, ``name.version.group``, or any pair with a slash in between."""
    head, slash, name = text.rpartition('/')
    if slash:
        return _parse_pair(head, name)
    name, _, rest = text.partition('.')
    version, _, group = rest.partition('.')
    if _VERSION.fullmatch(version):
        return Selector(group, version, name)
    return Selector(rest or None, None, name)


def _parse_pair(group: str, name: str | references.Marker) -> Selector:
    """Read the group, the group with the version, or the version of the core API; and the name."""
    group, slash, version = group.rpartition('/')
    if slash:
        return Selector(group, version, name)
    return Selector('', version, name) if version == 'v1' else Selector(version, None, name)


def _list_names(resource: references.Resource) -> set[str | None]:
    return {resource.plural, resource.singular, resource.kind, *resource.shortcuts}


def _is_k8s_event(resource: references.Resource) -> bool:
    return resource.plural == 'events' and resource.group in ('', 'events.k8s.io')
