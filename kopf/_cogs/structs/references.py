"""
References: resources as the cluster serves them, and namespaces as people name them.

A resource is a kind of objects, never one object. It is identified by its group, version and plural
name; its other attributes come from the discovery.
"""

import dataclasses
import enum
import functools
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NewType

NamespaceName = NewType('NamespaceName', str)
"""The name of one namespace."""

Namespace = NamespaceName | None
"""The scope of requests: one namespace, or, with ``None``, the whole cluster."""

NamespacePattern = str | re.Pattern[str]
"""
A pattern of served namespaces: an exact name, comma-separated globs with negations, or a regular
expression.
"""


_PLAIN = re.compile('[A-Za-z0-9._-]+')  # the names of nearly all objects
_SPECIALS = frozenset(',*?!')


class Marker(enum.Enum):
    """A marker in place of a resource's name where no name would fit."""

    EVERYTHING = enum.auto()

    def __repr__(self) -> str:
        return f'kopf.{self.name}'


EVERYTHING: Final = Marker.EVERYTHING
"""All resources: of the cluster, of a group, or of a version."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Resource:
    """
    A resource of the cluster: ``Resource('kopf.dev', 'v1', 'kopfexamples')``; the group of the core
    API is empty.

    Resources are equal if they have the same group, version and plural name, regardless of other
    attributes. Iteration yields these three values.
    """

    group: str
    version: str
    plural: str
    kind: str | None = None
    singular: str | None = None
    shortcuts: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    subresources: frozenset[str] = frozenset()
    namespaced: bool | None = None  # None if unknown yet
    preferred: bool = True  # whether this version is the preferred one of its group
    verbs: frozenset[str] = frozenset()

    def __eq__(self, other: object) -> bool:
        return self is other or (
            self._key == other._key if isinstance(other, Resource) else NotImplemented
        )

    def __hash__(self) -> int:
        return self._hash

    def __iter__(self) -> Iterator[str]:
        return iter(self._key)

    @functools.cached_property
    def _key(self) -> tuple[str, str, str]:
        return self.group, self.version, self.plural

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f'{self.plural}.{self.version}.{self.group}'.rstrip('.')

    @property
    def name(self) -> str:
        """
        The name of the resource in the cluster, without the version: ``kopfexamples.kopf.dev``,
        ``pods``.
        """
        return f'{self.plural}.{self.group}' if self.group else self.plural

    @property
    def api_version(self) -> str:
        """The same as ``apiVersion`` of the objects: ``kopf.dev/v1``, ``v1``."""
        return f'{self.group}/{self.version}' if self.group else self.version

    def get_url(
        self,
        *,
        server: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        params: Mapping[str, str] | None = None,
    ) -> str:
        """
        Build the URL of all objects, of all objects in a namespace, of one object, or of its
        subresource.

        Without a server, it is a path from the root of the API. A subresource can be unknown to the
        discovery. Raises `ValueError` for URLs that no server would serve: a subresource without an
        object, a namespace of a cluster-scoped resource, an object without a namespace of a
        namespaced resource.
        """
        self._refuse_unservable(namespace, name, subresource)
        root = ['apis', self.group] if self.group else ['api']
        scope = [] if namespace is None else ['namespaces', _quote(namespace)]
        target = [_quote(part) for part in (name, subresource) if part is not None]
        path = '/'.join(['', *root, self.version, *scope, self.plural, *target])
        query = f'?{urllib.parse.urlencode(params)}' if params else ''

        return f'{(server or "").rstrip("/")}{path}{query}'

    def _refuse_unservable(
        self, namespace: str | None, name: str | None, subresource: str | None
    ) -> None:
        if subresource is not None and name is None:
            raise ValueError(
                f'Subresources need the name of an object: {subresource!r} of {self!r}.'
            )
        if namespace is not None and self.namespaced is False:
            raise ValueError(
                f'Cluster-scoped resources have no namespaces: {namespace!r} for {self!r}.'
            )
        if namespace is None and name is not None and self.namespaced:
            raise ValueError(
                f'Objects of namespaced resources need the namespace: {name!r} of {self!r}.'
            )


def match_namespace(name: str, pattern: NamespacePattern) -> bool:
    """
    Return whether the namespace matches the pattern.

    Regular expressions must match the whole name. The first glob must match; if it is negated with
    ``!``, all namespaces match initially. Then, the last matching glob decides: a negated one
    excludes the namespace.
    """
    if isinstance(pattern, re.Pattern):
        return pattern.fullmatch(name) is not None

    globs = [glob for glob in (text.strip() for text in pattern.split(',')) if glob]
    if globs and globs[0].startswith('!'):
        globs = ['*', *globs]
    if not globs or not _match_glob(name, globs[0]):
        return False
    return next(
        not glob.startswith('!')
        for glob in reversed(globs)
        if _match_glob(name, glob.removeprefix('!').strip())
    )


def is_exact(pattern: NamespacePattern) -> bool:
    """Return whether the pattern is an exact name, usable even if namespaces are not listed."""
    return isinstance(pattern, str) and bool(pattern.strip()) and not _SPECIALS & set(pattern)


def select_exact(patterns: Iterable[NamespacePattern]) -> frozenset[NamespaceName]:
    """Return the namespaces that are named exactly."""
    return frozenset(
        NamespaceName(str(pattern).strip()) for pattern in patterns if is_exact(pattern)
    )


def _match_glob(name: str, glob: str) -> bool:
    expression = re.escape(glob).replace(r'\*', '.*').replace(r'\?', '.')
    return re.fullmatch(expression, name) is not None


def _quote(part: str) -> str:
    return part if _PLAIN.fullmatch(part) else urllib.parse.quote(part, safe=':')


def is_secret(resource: Resource) -> bool:
    """Return whether the values in the objects of the resource must not be logged."""
    return (resource.group, resource.plural) == ('', 'secrets')
