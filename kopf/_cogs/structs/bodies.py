"""
Bodies: objects as they are in the API.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from kopf._cogs.helpers import aliases
from kopf._cogs.structs import dicts

MASK = '***'
"""The text shown instead of the values of Secrets."""

Labels = Mapping[str, str]
Annotations = Mapping[str, str]

RawEventType = Literal[None, 'ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK']
"""``None`` is for objects that existed before the stream; handlers never get bookmarks."""


class RawMeta(TypedDict, total=False):
    """The metadata of an object; only the fields used here."""

    uid: str
    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    finalizers: list[str]
    resourceVersion: str
    deletionTimestamp: str
    creationTimestamp: str
    selfLink: str


class RawBody(TypedDict, total=False):
    """An object as a plain dict."""

    apiVersion: str
    kind: str
    metadata: RawMeta
    spec: dict[str, Any]
    status: dict[str, Any]


class RawEvent(TypedDict):
    """One change of an object, or a notice of its existence."""

    type: RawEventType
    object: RawBody


class MetaEssence(TypedDict, total=False):
    """The metadata whose changes matter."""

    labels: dict[str, str]
    annotations: dict[str, str]


class BodyEssence(TypedDict, total=False):
    """The part of an object whose changes matter; there can be other stanzas than these."""

    metadata: MetaEssence
    spec: dict[str, Any]
    status: dict[str, Any]


class ObjectReference(TypedDict, total=False):
    """A reference to an object in k8s-events and logs."""

    apiVersion: str
    kind: str
    name: str
    uid: str
    namespace: str | None


class OwnerReference(TypedDict, total=False):
    """A reference from an object to its owner."""

    controller: bool
    blockOwnerDeletion: bool
    apiVersion: str
    kind: str
    name: str
    uid: str


def get_version(body: RawBody | Mapping[str, Any]) -> str | None:
    """Return the resource version of an object, if it has any."""
    metadata: Mapping[str, Any] = body.get('metadata') or {}
    version = metadata.get('resourceVersion')
    return None if version is None else str(version)


def is_older(version: str | None, other: str | None) -> bool:
    """Return whether a version is certainly older than another; never, unless both are numbers."""
    one = str(version)
    two = str(other)
    return one.isdecimal() and two.isdecimal() and int(one) < int(two)


def build_object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """Build a reference to an object, e.g. for k8s-events; absent fields are left out."""
    metadata = dicts.resolve_mapping(body, ('metadata',))
    return cast(
        ObjectReference,
        dict(
            _iter_present(
                {
                    'apiVersion': body.get('apiVersion'),
                    'kind': body.get('kind'),
                    'name': metadata.get('name'),
                    'uid': metadata.get('uid'),
                    'namespace': metadata.get('namespace'),
                }
            )
        ),
    )


def build_owner_reference(
    body: Mapping[str, Any],
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> OwnerReference:
    """Build a reference to an object as an owner of others; absent fields are left out."""
    return cast(
        OwnerReference,
        dict(
            _iter_present(
                {
                    'controller': controller,
                    'blockOwnerDeletion': block_owner_deletion,
                    'apiVersion': body.get('apiVersion'),
                    'kind': body.get('kind'),
                    'name': dicts.resolve(body, ('metadata', 'name')),
                    'uid': dicts.resolve(body, ('metadata', 'uid')),
                }
            )
        ),
    )


def unwrap(src: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the current content of a wrapped body; return plain bodies as they are."""
    return src._content if isinstance(src, dicts.LiveView) else src


def _iter_present(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in fields.items() if value is not None and value != '')


def conceal_secret(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hide the values of Secrets, including annotations, which can contain a copy of them."""
    is_secret = content.get('kind') == 'Secret' and content.get('apiVersion') == 'v1'
    return conceal(content) if is_secret else content


def conceal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Hide the values of an object of any kind in the same way as those of Secrets."""
    concealed: dict[str, Any] = dicts.plain(content)
    for path in (('data',), ('stringData',), ('metadata', 'annotations')):
        for key in dicts.resolve_mapping(concealed, path):
            dicts.ensure(concealed, (*path, key), MASK)
    return concealed


if not TYPE_CHECKING:  # otherwise, any misspelt name would pass type checking
    __getattr__ = aliases.build_getattr(__name__)
