"""
Bodies: objects as they are in the API, raw or wrapped for reading.

The wrappers are read-only at their top level and never copy: what is nested in them are the original dicts and lists.
These belong to the framework, and are shared with its other parts; to change them, make a copy.
"""
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypedDict, cast

from kopf._cogs.structs import dicts

MASK = '***'
"""What is shown instead of the values of Secrets."""

Labels = Mapping[str, str]
Annotations = Mapping[str, str]

RawEventType = Literal[None, 'ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK']
"""``None`` is for objects that existed before the stream began; bookmarks are never given to handlers."""


class RawMeta(TypedDict, total=False):
    """The metadata of an object, as far as it is used here."""
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
    """One change of an object, or its existence."""
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
    """How k8s-events and logs refer to an object."""
    apiVersion: str
    kind: str
    name: str
    uid: str
    namespace: str | None


class OwnerReference(TypedDict, total=False):
    """How objects refer to their owners."""
    controller: bool
    blockOwnerDeletion: bool
    apiVersion: str
    kind: str
    name: str
    uid: str


class _Part(dicts.MappingView[Any]):
    """A body or a part of it: shown as it is, except for the content of Secrets. Users can attach attributes to it."""
    __slots__ = ('__dict__', '__weakref__')

    def __repr__(self) -> str:
        return repr(dict(dicts.resolve_mapping(_conceal(self._holder.content), self._path)))


class Meta(_Part):
    """The metadata of a body."""
    __slots__ = ('_annotations', '_labels')

    def __init__(self, body: 'Body') -> None:
        super().__init__(body, ('metadata',))
        self._labels: _Part | None = None
        self._annotations: _Part | None = None

    @property
    def labels(self) -> Labels:
        """The labels; empty if there are none."""
        if self._labels is None:
            self._labels = _Part(self, ('labels',))
        return self._labels

    @property
    def annotations(self) -> Annotations:
        """The annotations; empty if there are none."""
        if self._annotations is None:
            self._annotations = _Part(self, ('annotations',))
        return self._annotations

    @property
    def uid(self) -> str | None:
        """The unique identifier of the object; new objects of the same name have other ones."""
        return self.get('uid')

    @property
    def name(self) -> str | None:
        """The name of the object."""
        return self.get('name')

    @property
    def namespace(self) -> str | None:
        """The namespace of the object, or ``None`` if it is cluster-scoped."""
        return self.get('namespace')

    @property
    def creation_timestamp(self) -> str | None:
        """When the object was created, as the API writes it."""
        return self.get('creationTimestamp')

    @property
    def deletion_timestamp(self) -> str | None:
        """When the object was marked for deletion, as the API writes it; ``None`` if it was not."""
        return self.get('deletionTimestamp')


class Spec(_Part):
    """The spec of a body."""
    __slots__ = ()

    def __init__(self, body: 'Body') -> None:
        super().__init__(body, ('spec',))


class Status(_Part):
    """The status of a body."""
    __slots__ = ()

    def __init__(self, body: 'Body') -> None:
        super().__init__(body, ('status',))


class Body(_Part):
    """
    An object for reading; its parts follow it when the framework replaces its content with a newer one.

    A body made of another body has the content that the other one has now, and does not follow it.
    """
    __slots__ = ('_meta', '_spec', '_status')

    def __init__(self, src: Mapping[str, Any], /) -> None:
        super().__init__(unwrap(src))
        self._meta: Meta | None = None
        self._spec: Spec | None = None
        self._status: Status | None = None

    @property
    def metadata(self) -> Meta:
        """The metadata, always up to date with the body."""
        if self._meta is None:
            self._meta = Meta(self)
        return self._meta

    @property
    def meta(self) -> Meta:
        """The same as ``metadata``."""
        return self.metadata

    @property
    def spec(self) -> Spec:
        """The spec, always up to date with the body; empty if there is none."""
        if self._spec is None:
            self._spec = Spec(self)
        return self._spec

    @property
    def status(self) -> Status:
        """The status, always up to date with the body; empty if there is none."""
        if self._status is None:
            self._status = Status(self)
        return self._status

    def _replace_with(self, raw: Mapping[str, Any]) -> None:
        """Have another content from now on, with all the views of this body; for the framework only."""
        self._holder.content = unwrap(raw)


def get_version(body: RawBody | Mapping[str, Any]) -> str | None:
    """Get the version of an object, if it has any."""
    metadata: Mapping[str, Any] = body.get('metadata') or {}
    version = metadata.get('resourceVersion')
    return None if version is None else str(version)


def build_object_reference(body: Mapping[str, Any]) -> ObjectReference:
    """Refer to an object, e.g. in k8s-events. What is absent in the body is absent in the reference."""
    metadata = dicts.resolve_mapping(body, ('metadata',))
    return cast(ObjectReference, dict(_iter_present({
        'apiVersion': body.get('apiVersion'),
        'kind': body.get('kind'),
        'name': metadata.get('name'),
        'uid': metadata.get('uid'),
        'namespace': metadata.get('namespace'),
    })))


def build_owner_reference(
        body: Mapping[str, Any],
        *,
        controller: bool | None = True,
        block_owner_deletion: bool | None = True,
) -> OwnerReference:
    """Refer to an object as to an owner of others. What is absent in the body is absent in the reference."""
    return cast(OwnerReference, dict(_iter_present({
        'controller': controller,
        'blockOwnerDeletion': block_owner_deletion,
        'apiVersion': body.get('apiVersion'),
        'kind': body.get('kind'),
        'name': dicts.resolve(body, ('metadata', 'name')),
        'uid': dicts.resolve(body, ('metadata', 'uid')),
    })))


def unwrap(src: Mapping[str, Any]) -> Mapping[str, Any]:
    """Get what is inside of a body as it is at the moment; plain bodies are what they are."""
    return src._content if isinstance(src, dicts.LiveView) else src


def _iter_present(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((key, value) for key, value in fields.items() if value is not None and value != '')


def _conceal(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hide the values of Secrets; also in the annotations, where they are copied to as a part of the whole object."""
    is_secret = content.get('kind') == 'Secret' and content.get('apiVersion') == 'v1'
    return conceal(content) if is_secret else content


def conceal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Hide the values of an object as those of Secrets, whatever its kind is."""
    concealed: dict[str, Any] = dicts.plain(content)
    for path in (('data',), ('stringData',), ('metadata', 'annotations')):
        for key in dicts.resolve_mapping(concealed, path):
            dicts.ensure(concealed, (*path, key), MASK)
    return concealed
