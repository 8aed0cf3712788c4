"""
Third-party: objects of client libraries, read and written by the API's names of their fields.

The objects are mappings, pykube resources, or models of the official clients, synchronous or
asynchronous; they can be nested in each other, as the libraries allow. No library is imported here:
if its objects exist, it is already imported.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

MODELS = ('kubernetes.client.models', 'kubernetes_asyncio.client.models')
METADATA = 'V1ObjectMeta'


def iter_objects(objs: Any) -> Iterator[Any]:
    """
    Iterate over one or many objects, as mappings or models; wrappers of mappings are unwrapped.

    Raises `TypeError` for anything that is not an object or cannot be changed.
    """
    obj = unwrap(objs)
    if isinstance(obj, MutableMapping) or _is_model(obj):
        if not _has_metadata(obj):
            raise TypeError(
                f'{type(obj).__name__} has no metadata of objects: it is a part of something else.'
            )
        yield obj
    elif isinstance(obj, Mapping):
        raise TypeError(
            f'{type(objs).__name__} is read-only. To change it, make a copy: copy.deepcopy(obj).'
        )
    elif isinstance(obj, Iterable) and not isinstance(obj, str | bytes):
        for item in obj:
            yield from iter_objects(item)
    else:
        raise TypeError(
            f'Objects are dicts, or objects of pykube or kubernetes, or lists of them; '
            f'{type(obj).__name__} is none of these.'
        )


def unwrap(obj: Any) -> Any:
    """Return the content of an object that only wraps it; return other objects as they are."""
    pykube = sys.modules.get('pykube.objects')
    return obj.obj if pykube is not None and isinstance(obj, pykube.APIObject) else obj


def is_readable(obj: Any) -> bool:
    """Return whether it has fields to read, even if it is read-only."""
    return isinstance(obj, Mapping) or _is_model(obj)


def get(obj: Any, key: str) -> Any:
    """Return a field of an object or of its part; ``None`` if there is none."""
    if isinstance(obj, Mapping):
        return obj.get(key)
    return getattr(obj, _get_attribute(obj, key), None) if _is_model(obj) else None


def resolve(obj: Any, path: Iterable[str]) -> Any:
    """Return a field at this path in an object; ``None`` if there is none."""
    for key in path:
        obj = get(obj, key)
    return obj


def put(obj: Any, key: str, value: Any) -> None:
    """Set a field of an object or of its part."""
    if isinstance(obj, MutableMapping):
        obj[key] = value
    else:
        setattr(obj, _get_attribute(obj, key), value)


def discard(obj: Any, key: str) -> None:
    """Remove a field of an object or of its part, if it is there."""
    if isinstance(obj, MutableMapping):
        obj.pop(key, None)
    else:
        setattr(obj, _get_attribute(obj, key), None)


def ensure_metadata(obj: Any) -> Any:
    """Return the metadata of an object for changing; add it if there is none."""
    metadata = get(obj, 'metadata')
    if isinstance(metadata, MutableMapping) or _is_model(metadata):
        return metadata
    if isinstance(metadata, Mapping):
        put(obj, 'metadata', dict(metadata))
    else:
        put(obj, 'metadata', _get_class(obj, METADATA)() if _is_model(obj) else {})

    return get(obj, 'metadata')


def make_owner_reference(metadata: Any, reference: Mapping[str, Any]) -> Any:
    """Make an owner reference that suits the metadata: a dict for dicts, a model for models."""
    if not _is_model(metadata):
        return dict(reference)

    cls = _get_class(metadata, 'V1OwnerReference')
    return cls(
        **{
            attribute: reference[key]
            for attribute, key in cls.attribute_map.items()
            if key in reference
        }
    )


def _is_model(obj: Any) -> bool:
    return any(cls.__module__.startswith(MODELS) for cls in type(obj).__mro__)


def _has_metadata(obj: Any) -> bool:
    return isinstance(obj, Mapping) or type(obj).openapi_types.get('metadata') == METADATA


def _get_attribute(model: Any, key: str) -> str:
    """Return the attribute of a model for a field: ``generate_name`` for ``generateName``."""
    attributes: Mapping[str, str] = type(model).attribute_map
    return next((attribute for attribute, name in attributes.items() if name == key), key)


def _get_class(model: Any, name: str) -> Any:
    """Return a class of the same library; its package is imported, as its models exist."""
    package = next(
        prefix
        for cls in type(model).__mro__
        for prefix in MODELS
        if cls.__module__.startswith(prefix)
    )
    return getattr(sys.modules[package], name)
