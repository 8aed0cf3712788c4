"""
Diff-bases: storages of the last handled state of an object, which is compared with its current
state.

The state is an essence: the part of the object whose changes matter. The storages only read from
the body and write to the patch, and write only differences. If the state cannot be read, the object
counts as never handled.
"""

import abc
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kopf._cogs.configs import conventions
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import bodies, dicts, objects, patches

_SYSTEM = frozenset({'apiVersion', 'kind', 'metadata', 'status'})
# They change together with any other field.
_VOLATILE = frozenset({'resourceVersion', 'managedFields'})


class DiffBaseStorage(conventions.StanzaCleaning, abc.ABC):
    """The way to build and keep the last handled state."""

    def __init__(self, ignored_fields: Iterable[dicts.FieldSpec] | None = None) -> None:
        super().__init__()
        if isinstance(ignored_fields, str):
            raise TypeError(
                f'The ignored fields are a list of fields, not one field: {ignored_fields!r}.'
            )
        self.ignored_fields: list[dicts.FieldSpec] = list(ignored_fields or ())

    def build(
        self,
        *,
        body: objects.Body,
        extra_fields: Iterable[dicts.FieldSpec] | None = None,
    ) -> bodies.BodyEssence:
        """
        Build the essence of the body, plus some extra fields even if they are not essential.

        It shares its nested values with the body, so they are read-only. In classes of users, it is
        a copy.
        """
        paths = sorted(map(dicts.parse_field, extra_fields or ()), key=len)
        essence = _take_essence(body, paths)
        self.remove_annotations(
            cast(bodies.BodyEssence, essence), _choose_annotations(essence, paths)
        )
        # Absent if the classes of users do not call our constructor.
        ignored_fields = getattr(self, 'ignored_fields', ())
        for path in map(dicts.parse_field, ignored_fields):
            essence = dict(dicts.cut(essence, path))
        cleaned = cast(
            bodies.BodyEssence, dicts.plain(essence) if conventions.is_custom(self) else essence
        )
        self.remove_empty_stanzas(cleaned)
        return cleaned

    @abc.abstractmethod
    def fetch(self, *, body: objects.Body) -> bodies.BodyEssence | None:
        """Return the last handled state, if there is one."""

    @abc.abstractmethod
    def store(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence
    ) -> None:
        """Keep the state as the last handled one."""

    def _is_stored(self, *, body: objects.Body, text: str) -> bool:
        """
        Return whether exactly this text is stored; called only for the framework's own storages.

        Stored states usually have sorted keys, as in ``text``, so they are recognised without
        parsing.
        """
        return False

    def _store_text(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence, text: str
    ) -> None:
        """Keep the state, whose JSON is known; called only for the framework's own storages."""
        self.store(body=body, patch=patch, essence=essence)


class AnnotationsDiffBaseStorage(conventions.AnnotationStoring, DiffBaseStorage):
    """The last handled state as JSON in an annotation."""

    def __init__(
        self,
        *,
        prefix: str = 'kopf.zalando.org',
        key: str = conventions.LAST_HANDLED,
        ignored_fields: Iterable[dicts.FieldSpec] | None = None,
        v1: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, v1=v1)
        DiffBaseStorage.__init__(self, ignored_fields)
        self.key = key

    def build(
        self,
        *,
        body: objects.Body,
        extra_fields: Iterable[dicts.FieldSpec] | None = None,
    ) -> bodies.BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        self._remove_own_annotations(essence)
        self.remove_empty_stanzas(essence)
        return essence

    def fetch(self, *, body: objects.Body) -> bodies.BodyEssence | None:
        value = self._fetch_value(body, self.key)
        return None if value is None else _modernise(value)

    def store(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence
    ) -> None:
        self._store_text(body=body, patch=patch, essence=essence, text=_encode(essence))

    def _store_text(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence, text: str
    ) -> None:
        self._store_value(body, patch, self.key, f'{text}\n', essence)

    def _is_stored(self, *, body: objects.Body, text: str) -> bool:
        annotations = dicts.resolve_mapping(body, conventions.ANNOTATIONS)
        return all(
            annotations.get(name) == f'{text}\n' for name in self.make_keys(self.key, body=body)
        )


class StatusDiffBaseStorage(DiffBaseStorage):
    """The last handled state as JSON in a field of the status."""

    def __init__(
        self,
        *,
        name: str = 'kopf',
        field: dicts.FieldSpec = 'status.{name}.last-handled-configuration',
        ignored_fields: Iterable[dicts.FieldSpec] | None = None,
    ) -> None:
        super().__init__(ignored_fields)
        self.name = name
        self._field = conventions.parse_location(field, name=name)

    @property
    def field(self) -> dicts.FieldPath:
        """The path of the last handled state in the object."""
        return self._field

    @field.setter
    def field(self, value: dicts.FieldSpec) -> None:
        self._field = conventions.parse_location(value, name=self.name)

    def build(
        self,
        *,
        body: objects.Body,
        extra_fields: Iterable[dicts.FieldSpec] | None = None,
    ) -> bodies.BodyEssence:
        essence = super().build(body=body, extra_fields=extra_fields)
        return cast(bodies.BodyEssence, dicts.cut(cast(Mapping[str, Any], essence), self.field))

    def fetch(self, *, body: objects.Body) -> bodies.BodyEssence | None:
        decoded = conventions.decode(dicts.resolve(body, self.field))
        return None if decoded is None else _modernise(decoded)

    def store(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence
    ) -> None:
        self._store_text(body=body, patch=patch, essence=essence, text=_encode(essence))

    def _store_text(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence, text: str
    ) -> None:
        conventions.put(body, patch, self.field, text)

    def _is_stored(self, *, body: objects.Body, text: str) -> bool:
        return bool(dicts.resolve(body, self.field) == text)


class MultiDiffBaseStorage(DiffBaseStorage):
    """Several storages: all are written to, and the first one that has the state is read from."""

    def __init__(self, storages: Iterable[DiffBaseStorage]) -> None:
        super().__init__()
        self.storages = list(storages)

    def build(
        self,
        *,
        body: objects.Body,
        extra_fields: Iterable[dicts.FieldSpec] | None = None,
    ) -> bodies.BodyEssence:
        """
        Build the essence without the data of any storage: each storage processes the result of the
        previous one.
        """
        paths = list(extra_fields or ())
        essence = super().build(body=body, extra_fields=paths)
        for storage in self.storages:
            essence = storage.build(body=_build_body(essence, body), extra_fields=paths)
        return (
            conventions.copy_essence(essence, fully=True)
            if conventions.is_custom(self)
            else essence
        )

    def fetch(self, *, body: objects.Body) -> bodies.BodyEssence | None:
        fetched = (storage.fetch(body=body) for storage in self.storages)
        return next((essence for essence in fetched if essence is not None), None)

    def store(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence
    ) -> None:
        for storage in self.storages:
            storage.store(body=body, patch=patch, essence=essence)

    def _store_text(
        self, *, body: objects.Body, patch: patches.Patch, essence: bodies.BodyEssence, text: str
    ) -> None:
        for storage in self.storages:
            storage._store_text(body=body, patch=patch, essence=essence, text=text)

    def _is_stored(self, *, body: objects.Body, text: str) -> bool:
        return bool(self.storages) and all(
            not conventions.is_custom(storage) and storage._is_stored(body=body, text=text)
            for storage in self.storages
        )


def _build_body(essence: bodies.BodyEssence, origin: Mapping[str, Any]) -> objects.Body:
    """Make a body from an essence, with the object's identity, which custom storages can need."""
    kind = {key: origin[key] for key in ('apiVersion', 'kind') if key in origin}
    metadata = dicts.resolve_mapping(origin, ('metadata',))
    identity = {key: metadata[key] for key in ('name', 'namespace', 'uid') if key in metadata}
    return objects.Body(
        {**kind, **essence, 'metadata': {**identity, **essence.get('metadata', {})}}
    )


def _take_essence(
    body: Mapping[str, Any], extra_paths: Iterable[dicts.FieldPath]
) -> dict[str, Any]:
    """
    Select the essential fields by their paths; shorter paths come first, so that only new dicts are
    written to.
    """
    body = bodies.unwrap(body)
    metadata = dicts.resolve_mapping(body, ('metadata',))
    essence = {key: value for key, value in body.items() if key not in _SYSTEM}
    essence['metadata'] = {
        key: dict(dicts.resolve_mapping(metadata, (key,))) for key in ('labels', 'annotations')
    }

    for path in extra_paths:
        if path == ('metadata',):
            others = {key: value for key, value in metadata.items() if key not in _VOLATILE}
            essence['metadata'] = {**others, **essence['metadata']}
        elif path and dicts.has(body, path) and not dicts.has(essence, path):
            dicts.ensure(essence, path, dicts.resolve(body, path))

    return essence


def _choose_annotations(
    essence: Mapping[str, Any], extra_paths: Iterable[dicts.FieldPath]
) -> set[str]:
    """Choose the annotations to remove: all garbage but kubectl's ones named as extra fields."""
    garbage = conventions.select_garbage(essence['metadata']['annotations'])
    named = {
        path[2]
        for path in extra_paths
        if len(path) == 3 and path[:2] == ('metadata', 'annotations')
    }
    return garbage - (named & conventions.GARBAGE)


def _encode(essence: bodies.BodyEssence) -> str:
    return jsons.dumps(essence).decode()


def _modernise(essence: dict[str, Any]) -> bodies.BodyEssence:
    """
    Convert an old essence to the current form: years ago, it had the names of the object and of its
    kind.

    If it was edited by hand, its metadata can be of any type; values of wrong types are removed.
    """
    for path in (('metadata',), ('metadata', 'labels'), ('metadata', 'annotations')):
        if not dicts.is_mapping(dicts.resolve(essence, path, {})):
            dicts.remove(essence, path)

    if 'metadata' in essence and essence['metadata'] is None:
        del essence['metadata']
    if 'apiVersion' in essence or 'kind' in essence:
        for path in (('apiVersion',), ('kind',), ('metadata', 'name'), ('metadata', 'namespace')):
            dicts.remove(essence, path)

    return cast(bodies.BodyEssence, essence)
