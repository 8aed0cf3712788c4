"""
Storages of the matrix: where the operator keeps the last handled state and the progress.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import kopf

PREFIX = 'matrix.example.com'


@dataclasses.dataclass(frozen=True)
class Storage:
    """One combination of storages."""

    build_progress: Callable[[], kopf.ProgressStorage] | None = None  # None is for the default ones
    build_diffbase: Callable[[], kopf.DiffBaseStorage] | None = None
    is_status: bool = False  # is something kept in the status?

    def configure(self, settings: kopf.OperatorSettings) -> None:
        if self.build_progress is not None:
            settings.persistence.progress_storage = self.build_progress()
        if self.build_diffbase is not None:
            settings.persistence.diffbase_storage = self.build_diffbase()


STORAGES: Mapping[str, Storage] = {
    'default': Storage(),
    'prefixed': Storage(
        lambda: kopf.AnnotationsProgressStorage(prefix=PREFIX),
        lambda: kopf.AnnotationsDiffBaseStorage(prefix=PREFIX, key='last'),
    ),
    'status': Storage(kopf.StatusProgressStorage, kopf.StatusDiffBaseStorage, is_status=True),
    'multi': Storage(
        lambda: kopf.MultiProgressStorage(
            [kopf.AnnotationsProgressStorage(prefix=PREFIX), kopf.StatusProgressStorage()]
        ),
        lambda: kopf.MultiDiffBaseStorage(
            [kopf.AnnotationsDiffBaseStorage(prefix=PREFIX), kopf.StatusDiffBaseStorage()]
        ),
        is_status=True,
    ),
}


def build_essence(settings: kopf.OperatorSettings, body: Mapping[str, Any]) -> Any:
    """Take the part of a state of the object whose changes matter, as these storages define it."""
    persistence = settings.persistence
    essence = persistence.diffbase_storage.build(body=kopf.Body(body))
    return plain(persistence.progress_storage.clear(essence=essence))


def fetch_handled(settings: kopf.OperatorSettings, body: Mapping[str, Any]) -> Any:
    """Read the last handled state of the object; ``None`` if there is none."""
    persistence = settings.persistence
    essence = persistence.diffbase_storage.fetch(body=kopf.Body(body))
    return None if essence is None else plain(persistence.progress_storage.clear(essence=essence))


def list_progress(
    settings: kopf.OperatorSettings, body: Mapping[str, Any], ids: tuple[str, ...]
) -> list[str]:
    """List the handlers with some progress recorded on the object."""
    storage = settings.persistence.progress_storage
    return [id for id in ids if storage.fetch(key=id, body=kopf.Body(body)) is not None]


def plain(value: Any) -> Any:
    """Turn views into dicts and lists without empty dicts, which mean the same as nothing."""
    if isinstance(value, Mapping):
        items = {key: plain(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in ({}, None)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
