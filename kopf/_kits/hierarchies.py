"""
Hierarchies: make objects belong to other objects.

All functions here take one object or many, and modify them in place: dicts, or objects of the
client libraries. If the objects or the owner are invalid, or there is no owner, nothing is
modified. Nothing is sent to the cluster. By default, the owner is the object of the current
handler; values taken from the owner are copied, never shared.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

from kopf._cogs.helpers import thirdparty
from kopf._cogs.structs import bodies, dicts
from kopf._core.actions import execution

Objs: TypeAlias = Any
"""One object or many: mutable mappings, resources of pykube, models of the official clients."""

Owner: TypeAlias = Any
"""Any mapping with ``apiVersion``, ``kind``, ``metadata``; or an object of a client library."""

Nested: TypeAlias = str | Iterable[dicts.FieldSpec] | None

T = TypeVar('T')


def adopt(
    objs: Objs,
    owner: Owner | None = None,
    *,
    forced: bool = False,
    strict: bool = False,
    nested: Nested = None,
) -> None:
    """
    Make the objects children of the owner.

    The objects get the owner's reference, labels and namespace, and names made of the owner's name.
    See `append_owner_reference`, `harmonize_naming`, `adjust_namespace`, `label` for the details
    and options. Raises `LookupError` if no owner is given and no object is being handled, or if the
    owner has no name.
    """
    objs = list(thirdparty.iter_objects(objs))
    parent = _choose_owner(owner)
    structures = _list_structures(objs, nested)
    name = _choose_name(None, parent)
    append_owner_reference(objs, parent)
    _harmonize_naming(objs, name, forced=forced, strict=strict)
    _adjust_namespace(objs, _get_meta(parent, 'namespace'), forced=forced)
    _label(structures, _get_meta(parent, 'labels') or {}, forced=forced)


def append_owner_reference(
    objs: Objs,
    owner: Owner | None = None,
    *,
    controller: bool | None = True,
    block_owner_deletion: bool | None = True,
) -> None:
    """
    Add an owner reference, so that the objects are deleted together with the owner.

    Other owners, if any, stay. Objects that already refer to the owner (by its uid) are not
    modified.
    """
    objs = list(thirdparty.iter_objects(objs))
    reference = bodies.build_owner_reference(
        _choose_owner(owner), controller=controller, block_owner_deletion=block_owner_deletion
    )
    for obj in objs:
        existing = _list_references(obj)
        if _identify(reference) not in map(_identify, existing):
            metadata = thirdparty.ensure_metadata(obj)
            added = thirdparty.make_owner_reference(metadata, reference)
            thirdparty.put(metadata, 'ownerReferences', [*existing, added])


def remove_owner_reference(objs: Objs, owner: Owner | None = None) -> None:
    """Remove the reference to the owner, if the objects have one."""
    objs = list(thirdparty.iter_objects(objs))
    unwanted = _identify(bodies.build_owner_reference(_choose_owner(owner)))
    for obj in objs:
        existing = _list_references(obj)
        remaining = [reference for reference in existing if _identify(reference) != unwanted]
        if len(remaining) != len(existing):
            thirdparty.put(thirdparty.ensure_metadata(obj), 'ownerReferences', remaining)


def harmonize_naming(
    objs: Objs, name: str | None = None, *, forced: bool = False, strict: bool = False
) -> None:
    """
    Name the objects after the owner, or as given.

    Objects that already have names keep them unless ``forced``. If ``strict``, the name is used as
    is; otherwise, it is a prefix to which Kubernetes adds a random suffix on creation. Raises
    `LookupError` if no name is given, and there is no object being handled, or it has no name.
    """
    objs = list(thirdparty.iter_objects(objs))
    _harmonize_naming(objs, _choose_name(name, None), forced=forced, strict=strict)


def adjust_namespace(objs: Objs, namespace: str | None = None, *, forced: bool = False) -> None:
    """
    Put the objects into the namespace of the owner, or into the given one.

    Objects that already have namespaces keep them unless ``forced``. If the owner is
    cluster-scoped, the objects stay where they are; if ``forced``, their namespaces are removed.
    """
    objs = list(thirdparty.iter_objects(objs))
    _adjust_namespace(
        objs, _choose(namespace, lambda: _get_meta(_choose_owner(None), 'namespace')), forced=forced
    )


def label(
    objs: Objs,
    labels: Mapping[str, str | None] | None = None,
    *,
    forced: bool = False,
    nested: Nested = None,
    force: bool | None = None,
) -> None:
    """
    Add the labels of the owner, or the given ones, to the labels of the objects.

    Existing labels are overwritten only if ``forced``. ``nested`` are the fields whose structures
    have labels too, such as ``spec.template``; absent fields are skipped. ``force`` is the former
    name of ``forced``.
    """
    if force is not None:
        warnings.warn('force= is deprecated: use forced=.', DeprecationWarning, stacklevel=2)
        forced = force

    structures = _list_structures(list(thirdparty.iter_objects(objs)), nested)
    _label(
        structures,
        _choose(labels, lambda: _get_meta(_choose_owner(None), 'labels') or {}),
        forced=forced,
    )


def _harmonize_naming(objs: Iterable[Any], name: str, *, forced: bool, strict: bool) -> None:
    for obj in objs:
        wanted, unwanted, value = (
            ('name', 'generateName', name) if strict else ('generateName', 'name', f'{name}-')
        )
        if not forced and _get_meta(obj, 'name'):
            wanted = 'name'
            unwanted = 'generateName'
            value = _get_meta(obj, 'name')
        elif not forced and _get_meta(obj, 'generateName'):
            continue
        metadata = thirdparty.ensure_metadata(obj)
        thirdparty.put(metadata, wanted, value)
        thirdparty.discard(metadata, unwanted)


def _adjust_namespace(objs: Iterable[Any], namespace: str | None, *, forced: bool) -> None:
    for obj in objs:
        current = _get_meta(obj, 'namespace')
        if namespace and (forced or not current):
            thirdparty.put(thirdparty.ensure_metadata(obj), 'namespace', namespace)
        elif not namespace and forced and current:
            thirdparty.discard(thirdparty.ensure_metadata(obj), 'namespace')


def _label(structures: Iterable[Any], labels: Mapping[str, str | None], *, forced: bool) -> None:
    if not labels:
        return
    for structure in structures:
        existing = _get_meta(structure, 'labels') or {}
        merged = {**existing, **labels} if forced else {**labels, **existing}
        thirdparty.put(thirdparty.ensure_metadata(structure), 'labels', merged)


def _list_structures(objs: Iterable[Any], nested: Nested) -> list[Any]:
    """List the objects and the structures in their nested fields; absent fields are skipped."""
    specs: Iterable[dicts.FieldSpec] = (
        [nested] if isinstance(nested, str) else [] if nested is None else nested
    )
    paths = [dicts.parse_field(spec) for spec in specs]
    found = [[obj, *(thirdparty.resolve(obj, path) for path in paths)] for obj in objs]

    return [
        structure
        for fields in found
        for field in fields
        if field is not None
        for structure in thirdparty.iter_objects(field)
    ]


def _choose(value: T | None, otherwise: Callable[[], T]) -> T:
    return value if value is not None else otherwise()


def _choose_name(name: str | None, owner: Mapping[str, Any] | None) -> str:
    chosen = name or _get_meta(_choose(owner, lambda: _choose_owner(None)), 'name')
    if not chosen:
        raise LookupError('The owner has no name, and no other name is given.')
    return str(chosen)


def _choose_owner(owner: Owner | None) -> Mapping[str, Any]:
    """Extract the needed fields of the given owner or of the handled object."""
    chosen = thirdparty.unwrap(owner) if owner is not None else execution.get_handled_body()
    if chosen is None:
        raise LookupError(
            'There is no owner: it is neither given, nor is this called in a handler of an object. '
            'Outside of handlers, give the owner, its labels, its name or its namespace explicitly.'
        )
    if not thirdparty.is_readable(chosen):
        raise TypeError(
            'An owner is a dict, or an object of pykube or kubernetes, not '
            f'{type(chosen).__name__}.'
        )

    fields = ('name', 'uid', 'namespace', 'labels')
    return {
        **{key: thirdparty.get(chosen, key) for key in ('apiVersion', 'kind')},
        'metadata': {key: _get_meta(chosen, key) for key in fields},
    }


def _get_meta(obj: Any, key: str) -> Any:
    return thirdparty.resolve(obj, ('metadata', key))


def _list_references(obj: Any) -> list[Any]:
    return list(_get_meta(obj, 'ownerReferences') or [])


def _identify(reference: Any) -> object:
    """Return the identity of an owner: its uid, or its kind and name if it has no uid yet."""
    names = ('apiVersion', 'kind', 'name')
    return thirdparty.get(reference, 'uid') or tuple(
        thirdparty.get(reference, name) for name in names
    )
