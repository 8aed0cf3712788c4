"""
Objects: bodies wrapped for reading, with their parts.

The wrappers are read-only at their top level and never copy: their nested values are the original
dicts and lists. These belong to the framework, and are shared with its other parts; to change them,
make a copy.
"""

from collections.abc import Mapping
from typing import Any

from kopf._cogs.structs import bodies, dicts


class _Part(dicts.MappingView[Any]):
    """
    A body or a part of it: shown as it is, except for the content of Secrets. Users can attach
    attributes to it.
    """

    __slots__ = ('__dict__', '__weakref__')

    def __repr__(self) -> str:
        return repr(
            dict(dicts.resolve_mapping(bodies.conceal_secret(self._holder.content), self._path))
        )


class Meta(_Part):
    """The metadata of a body."""

    __slots__ = ('_annotations', '_labels')

    def __init__(self, body: 'Body') -> None:
        super().__init__(body, ('metadata',))
        self._labels: _Part | None = None
        self._annotations: _Part | None = None

    @property
    def labels(self) -> bodies.Labels:
        """The labels; empty if there are none."""
        if self._labels is None:
            self._labels = _Part(self, ('labels',))
        return self._labels

    @property
    def annotations(self) -> bodies.Annotations:
        """The annotations; empty if there are none."""
        if self._annotations is None:
            self._annotations = _Part(self, ('annotations',))
        return self._annotations

    @property
    def uid(self) -> str | None:
        """The unique identifier of the object; a new object of the same name has another one."""
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
    A read-only object; its parts follow it when the framework replaces its content with a newer
    one.

    A body made from another body has the current content of the latter, and does not follow it.
    """

    __slots__ = ('_meta', '_spec', '_status')

    def __init__(self, src: Mapping[str, Any], /) -> None:
        super().__init__(bodies.unwrap(src))
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
        """Replace the content of this body and of all its views; for the framework only."""
        self._holder.content = bodies.unwrap(raw)
