"""
Progress: storages of the state of unfinished handlers, which survives restarts.

Each handler has its own record. The storages only read from the body and write to the patch, and
write only differences. Unreadable records count as absent.
"""

import abc
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypedDict, cast

from kopf._cogs.configs import conventions
from kopf._cogs.helpers import jsons
from kopf._cogs.structs import bodies, dicts, ids, objects, patches


class ProgressRecord(TypedDict, total=False):
    """The record of one handler; the moments are in ISO 8601."""

    started: str | None
    stopped: str | None
    delayed: str | None
    purpose: str | None
    retries: int | None
    success: bool | None
    failure: bool | None
    message: str | None
    subrefs: Collection[ids.HandlerId] | None
    essence: str | None  # a digest of the state that a finished handler saw


_TYPES: Mapping[str, type] = {
    'started': str,
    'stopped': str,
    'delayed': str,
    'purpose': str,
    'retries': int,
    'success': bool,
    'failure': bool,
    'message': str,
    'subrefs': list,
    'essence': str,
}


class ProgressStorage(conventions.StanzaCleaning, abc.ABC):
    """
    The way to keep records. The places of a storage in the object are not essential for it.

    The bodies and essences are read-only, and the patch is for writing.
    """

    @abc.abstractmethod
    def fetch(self, *, key: ids.HandlerId, body: objects.Body) -> ProgressRecord | None:
        """Return the record of the handler, if there is one."""

    @abc.abstractmethod
    def store(
        self,
        *,
        key: ids.HandlerId,
        record: ProgressRecord,
        body: objects.Body,
        patch: patches.Patch,
    ) -> None:
        """Replace the record of the handler."""

    @abc.abstractmethod
    def purge(self, *, key: ids.HandlerId, body: objects.Body, patch: patches.Patch) -> None:
        """Remove the record of the handler."""

    @abc.abstractmethod
    def touch(self, *, body: objects.Body, patch: patches.Patch, value: str | None) -> None:
        """Make a dummy change of the object; or remove it if the value is ``None``."""

    @abc.abstractmethod
    def clear(self, *, essence: bodies.BodyEssence) -> bodies.BodyEssence:
        """Return a copy of the essence without the data of this storage; by default, as it is."""
        return conventions.copy_essence(
            cast(Mapping[str, Any], essence), fully=conventions.is_custom(self)
        )

    def _is_blank(self, body: Mapping[str, Any]) -> bool:
        """Return whether there are certainly no records; called only for our own storages."""
        return False

    def _is_clear(self, essence: Mapping[str, Any]) -> bool:
        """Return whether `clear` would certainly remove nothing; only for our own storages."""
        return False

    def flush(self) -> None:
        """Write the records kept in memory, if any; called when nothing else is stored for now."""
        return


class AnnotationsProgressStorage(conventions.AnnotationStoring, ProgressStorage):
    """Records as JSON in annotations, one per handler; with empty fields too if verbose."""

    def __init__(
        self,
        *,
        prefix: str = 'kopf.zalando.org',
        verbose: bool = False,
        touch_key: str = 'touch-dummy',
        v1: bool = True,
    ) -> None:
        super().__init__(prefix=prefix, v1=v1)
        self.verbose = verbose
        self.touch_key = touch_key

    def fetch(self, *, key: ids.HandlerId, body: objects.Body) -> ProgressRecord | None:
        raw = self._fetch_value(body, key)
        return None if raw is None else _parse_record(raw)

    def store(
        self,
        *,
        key: ids.HandlerId,
        record: ProgressRecord,
        body: objects.Body,
        patch: patches.Patch,
    ) -> None:
        kept = _build_record(record, verbose=self.verbose)
        self._store_value(body, patch, key, jsons.dumps(kept).decode(), kept)

    def purge(self, *, key: ids.HandlerId, body: objects.Body, patch: patches.Patch) -> None:
        self._remove_value(body, patch, key)

    def _is_blank(self, body: Mapping[str, Any]) -> bool:
        for name in dicts.resolve_mapping(body, conventions.ANNOTATIONS):
            prefix, _, rest = name.rpartition('/')
            if prefix == self.prefix and rest not in (conventions.LAST_HANDLED, conventions.MARKER):
                return False
        return True

    def _is_clear(self, essence: Mapping[str, Any]) -> bool:
        if conventions.has_empty_stanzas(essence):
            return False
        annotations = dicts.resolve_mapping(essence, conventions.ANNOTATIONS)
        return not annotations or not any(map(self._is_own, annotations))

    def touch(self, *, body: objects.Body, patch: patches.Patch, value: str | None) -> None:
        if value is None:
            self._remove_value(body, patch, self.touch_key)
        else:
            self._store_value(body, patch, self.touch_key, value)

    def clear(self, *, essence: bodies.BodyEssence) -> bodies.BodyEssence:
        cleared = super().clear(essence=essence)
        self._remove_own_annotations(cleared)
        self.remove_empty_stanzas(cleared)
        return cleared


class StatusProgressStorage(ProgressStorage):
    """Records as they are in a field of the status, by the ids of handlers."""

    def __init__(
        self,
        *,
        name: str = 'kopf',
        field: dicts.FieldSpec = 'status.{name}.progress',
        touch_field: dicts.FieldSpec = 'status.{name}.dummy',
    ) -> None:
        super().__init__()
        self.name = name
        self._field = conventions.parse_location(field, name=name)
        self._touch_field = conventions.parse_location(touch_field, name=name)

    @property
    def field(self) -> dicts.FieldPath:
        """The path of the handlers' progress in the object."""
        return self._field

    @field.setter
    def field(self, value: dicts.FieldSpec) -> None:
        self._field = conventions.parse_location(value, name=self.name)

    @property
    def touch_field(self) -> dicts.FieldPath:
        """The path of Kopf's dummy value that causes one more event; here, it is only removed."""
        return self._touch_field

    @touch_field.setter
    def touch_field(self, value: dicts.FieldSpec) -> None:
        self._touch_field = conventions.parse_location(value, name=self.name)

    def fetch(self, *, key: ids.HandlerId, body: objects.Body) -> ProgressRecord | None:
        record = dicts.resolve(body, (*self.field, key))
        return _parse_record(record) if isinstance(record, Mapping) else None

    def store(
        self,
        *,
        key: ids.HandlerId,
        record: ProgressRecord,
        body: objects.Body,
        patch: patches.Patch,
    ) -> None:
        path = (*self.field, key)
        kept = _build_record(record, verbose=False)
        present = dicts.resolve_mapping(body, path)
        meaning = {name: value for name, value in present.items() if value is not None}

        if dicts.has(body, path) and dicts.is_same(meaning, kept):
            dicts.remove(patch, path)
        else:
            dicts.ensure(patch, path, {**dict.fromkeys(present), **kept})

    def purge(self, *, key: ids.HandlerId, body: objects.Body, patch: patches.Patch) -> None:
        conventions.put(body, patch, (*self.field, key), None)

    def _is_blank(self, body: Mapping[str, Any]) -> bool:
        return not dicts.has(body, self.field) and not dicts.has(body, self.touch_field)

    def _is_clear(self, essence: Mapping[str, Any]) -> bool:
        return self._field[0] not in essence and self._touch_field[0] not in essence

    def touch(self, *, body: objects.Body, patch: patches.Patch, value: str | None) -> None:
        conventions.put(body, patch, self.touch_field, value)

    def clear(self, *, essence: bodies.BodyEssence) -> bodies.BodyEssence:
        cleared: Mapping[str, Any] = cast(Mapping[str, Any], super().clear(essence=essence))
        for path in (self.field, self.touch_field):
            cleared = dicts.cut(cleared, path)
        return cast(bodies.BodyEssence, cleared)


class MultiProgressStorage(ProgressStorage):
    """Several storages: all are written to, and the first one that has a record is read from."""

    def __init__(self, storages: Iterable[ProgressStorage]) -> None:
        super().__init__()
        self.storages = list(storages)

    def fetch(self, *, key: ids.HandlerId, body: objects.Body) -> ProgressRecord | None:
        for storage in self.storages:
            record = storage.fetch(key=key, body=body)
            if record is not None:
                return record
        return None

    def store(
        self,
        *,
        key: ids.HandlerId,
        record: ProgressRecord,
        body: objects.Body,
        patch: patches.Patch,
    ) -> None:
        for storage in self.storages:
            storage.store(key=key, record=record, body=body, patch=patch)

    def purge(self, *, key: ids.HandlerId, body: objects.Body, patch: patches.Patch) -> None:
        for storage in self.storages:
            storage.purge(key=key, body=body, patch=patch)

    def touch(self, *, body: objects.Body, patch: patches.Patch, value: str | None) -> None:
        for storage in self.storages:
            storage.touch(body=body, patch=patch, value=value)

    def clear(self, *, essence: bodies.BodyEssence) -> bodies.BodyEssence:
        cleared = essence
        for storage in self.storages:
            if conventions.is_custom(storage):
                cleared = conventions.copy_essence(cast(Mapping[str, Any], cleared), fully=True)
            cleared = storage.clear(essence=cleared)

        is_copied = bool(self.storages) and not conventions.is_custom(self)
        return (
            cleared
            if is_copied
            else conventions.copy_essence(
                cast(Mapping[str, Any], cleared), fully=conventions.is_custom(self)
            )
        )

    def _is_blank(self, body: Mapping[str, Any]) -> bool:
        return all(
            not conventions.is_custom(storage) and storage._is_blank(body)
            for storage in self.storages
        )

    def _is_clear(self, essence: Mapping[str, Any]) -> bool:
        return all(
            not conventions.is_custom(storage) and storage._is_clear(essence)
            for storage in self.storages
        )

    def flush(self) -> None:
        for storage in self.storages:
            storage.flush()


class SmartProgressStorage(MultiProgressStorage):
    """Records in annotations; records of older versions in the status are continued and removed."""

    def __init__(
        self,
        *,
        name: str = 'kopf',
        field: dicts.FieldSpec = 'status.{name}.progress',
        touch_key: str = 'touch-dummy',
        touch_field: dicts.FieldSpec = 'status.{name}.dummy',
        prefix: str = 'kopf.zalando.org',
        v1: bool = True,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            [
                AnnotationsProgressStorage(
                    prefix=prefix, verbose=verbose, touch_key=touch_key, v1=v1
                ),
                _LeftoverProgressStorage(name=name, field=field, touch_field=touch_field),
            ]
        )


class _LeftoverProgressStorage(StatusProgressStorage):
    """A storage that reads and removes records, but never writes them."""

    def store(
        self,
        *,
        key: ids.HandlerId,
        record: ProgressRecord,
        body: objects.Body,
        patch: patches.Patch,
    ) -> None:
        return

    def touch(self, *, body: objects.Body, patch: patches.Patch, value: str | None) -> None:
        if value is None:
            super().touch(body=body, patch=patch, value=None)


def _build_record(record: ProgressRecord, *, verbose: bool) -> dict[str, Any]:
    """Build the record to store, in JSON types and in a stable order."""
    subrefs = record.get('subrefs')
    ordered = sorted(subrefs) if isinstance(subrefs, set | frozenset) else subrefs
    kept = {**record, **({} if subrefs is None else {'subrefs': list(ordered or ())})}
    return {name: value for name, value in kept.items() if verbose or value is not None}


def _parse_record(raw: Mapping[str, Any]) -> ProgressRecord:
    """Take the usable fields: unknown ones of any type, and known ones of the expected types."""
    return cast(
        ProgressRecord, {name: value for name, value in raw.items() if _is_usable(name, value)}
    )


def _is_usable(name: str, value: Any) -> bool:
    if value is None or name not in _TYPES:
        return True
    if isinstance(value, list):
        return name == 'subrefs' and all(isinstance(item, str) for item in value)
    return isinstance(value, _TYPES[name]) and (_TYPES[name] is bool or not isinstance(value, bool))
