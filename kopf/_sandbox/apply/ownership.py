"""
Ownership: the fields of an object, and the fields that differ between two objects.

The schemas define the boundaries of fields: atomic maps and lists are owned as a whole, granular
maps by their keys, lists that are sets or maps by their items. Without a schema, maps are granular,
and lists are atomic. The metadata has the same schema in all objects, including custom resources;
some of its fields are never owned.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kopf._sandbox.apply import fieldsets
from kopf._sandbox.meta import equality, schemas

NEVER_OWNED: Final = frozenset(
    (
        'name',
        'namespace',
        'creationTimestamp',
        'selfLink',
        'uid',
        'clusterName',
        'generation',
        'managedFields',
        'resourceVersion',
    )
)

_STRING: Final = {'type': 'string'}
_KEY: Final = {'type': 'string', 'default': ''}
_NUMBER: Final = {'type': 'integer'}
_FLAG: Final = {'type': 'boolean'}
_STRINGS: Final = {'type': 'object', 'additionalProperties': _STRING}
METADATA: Final = schemas.compile_schema(
    {
        'type': 'object',
        'properties': {
            **dict.fromkeys(
                (
                    'name',
                    'namespace',
                    'generateName',
                    'selfLink',
                    'uid',
                    'resourceVersion',
                    'creationTimestamp',
                    'deletionTimestamp',
                ),
                _STRING,
            ),
            **dict.fromkeys(('generation', 'deletionGracePeriodSeconds'), _NUMBER),
            **dict.fromkeys(('labels', 'annotations'), _STRINGS),
            'finalizers': {'type': 'array', 'x-kubernetes-list-type': 'set', 'items': _STRING},
            'ownerReferences': {
                'type': 'array',
                'x-kubernetes-list-type': 'map',
                'x-kubernetes-list-map-keys': ['uid'],
                'items': {
                    'type': 'object',
                    'x-kubernetes-map-type': 'atomic',
                    'properties': {
                        **dict.fromkeys(('apiVersion', 'kind', 'name', 'uid'), _KEY),
                        **dict.fromkeys(('controller', 'blockOwnerDeletion'), _FLAG),
                    },
                },
            },
            'managedFields': {'type': 'array', 'items': {'type': 'object'}},
        },
    }
)
"""The schema of the metadata of all objects, as far as it affects ownership."""

_STRIPPED: Final[fieldsets.FieldSet] = {
    'f:apiVersion': {},
    'f:kind': {},
    'f:metadata': {
        fieldsets.SELF: {},
        **{fieldsets.build_field_step(name): {} for name in NEVER_OWNED},
    },
}
_TYPE_FIELD: Final = schemas.compile_schema(_STRING)
_ZEROS: Final[Mapping[type, Any]] = {str: '', int: 0, float: 0.0, bool: False}
_ABSENT: Final = object()
_CONTAINERS: Final = (dict, list)


class Comparison(NamedTuple):
    """The differences between the fields of two objects."""

    changed: fieldsets.FieldSet  # added or modified
    removed: fieldsets.FieldSet


def as_object(schema: schemas.Schema | None) -> schemas.Schema:
    """Return the schema extended with the fields that all objects have."""
    return dataclasses.replace(
        schema or schemas.Schema(raw={}, preserve_unknown=True), embedded=True
    )


def find_child(schema: schemas.Schema | None, name: str) -> schemas.Schema | None:
    """Return the schema of a field, if known. The common fields of objects are always known."""
    if schema is None:
        return None
    if schema.embedded and name == 'metadata':
        return METADATA
    if schema.embedded and name in ('apiVersion', 'kind'):
        return _TYPE_FIELD
    return schema.child(name)


def is_declared(schema: schemas.Schema | None, name: str) -> bool:
    """Return whether a field belongs to a fixed structure, and is not a key of a map."""
    if schema is None:
        return False
    return name in schema.properties or (
        schema.embedded and name in ('apiVersion', 'kind', 'metadata')
    )


def is_granular(schema: schemas.Schema | None) -> bool:
    """Return whether a map is owned by its keys."""
    return schema is None or schema.map_type != 'atomic'


def is_associative(schema: schemas.Schema | None) -> bool:
    """Return whether a list is owned by its items."""
    return schema is not None and schema.list_type != 'atomic'


def extract(obj: Mapping[str, Any], schema: schemas.Schema | None) -> fieldsets.FieldSet:
    """Return all fields that an applied object mentions; see `as_object` for its schema."""
    return _extract_map(obj, schema)


def strip(fields: fieldsets.FieldSet) -> fieldsets.FieldSet:
    """Return the fields without those that are never owned."""
    return fieldsets.difference(fields, _STRIPPED)


def _extract_field(
    name: str, value: Any, schema: schemas.Schema | None
) -> fieldsets.FieldSet | None:
    node = _extract_value(value, find_child(schema, name))
    if value is None or value == {} or not is_declared(schema, name):
        node = {fieldsets.SELF: fieldsets.LEAF, **node} if node else fieldsets.LEAF
    return node


def _extract_value(value: Any, schema: schemas.Schema | None) -> fieldsets.FieldSet | None:
    if isinstance(value, dict) and is_granular(schema):
        return _extract_map(value, schema) or None
    if isinstance(value, list) and schema is not None and is_associative(schema):
        return _extract_list(value, schema) or None
    return fieldsets.LEAF


def _extract_map(value: Mapping[str, Any], schema: schemas.Schema | None) -> fieldsets.FieldSet:
    return {
        fieldsets.build_field_step(name): node
        for name in sorted(value)
        if (node := _extract_field(name, value[name], schema)) is not None
    }


def _extract_list(items: Sequence[Any], schema: schemas.Schema) -> fieldsets.FieldSet:
    result: fieldsets.FieldSet = {}
    for step, same in group_items(items, schema).items():
        node = _extract_value(same[0], schema.items) if len(same) == 1 else None
        result[step] = {fieldsets.SELF: fieldsets.LEAF, **node} if node else fieldsets.LEAF
    return fieldsets.sort_steps(result)


def group_items(items: Sequence[Any], schema: schemas.Schema) -> dict[str, list[Any]]:
    """Group the items of a list by identity. Items without identity are omitted."""
    groups: dict[str, list[Any]] = {}
    for item in items:
        try:
            step = fieldsets.build_item_step(item, schema)
        except ValueError:
            continue
        groups.setdefault(step, []).append(item)

    return groups


def ensure_structures(
    fields: fieldsets.FieldSet, schema: schemas.Schema | None
) -> fieldsets.FieldSet:
    """Add the fixed structures that lead to the fields of a set: they have no explicit owners."""
    result: fieldsets.FieldSet = {}
    for step, node in fields.items():
        name = step[2:] if step.startswith('f:') else ''
        child = find_child(schema, name) if name else schema.items if schema is not None else None
        inner = ensure_structures(node, child)
        structured = inner and name and is_declared(schema, name)
        result[step] = {fieldsets.SELF: fieldsets.LEAF, **inner} if structured else inner

    return result


def build_baseline(obj: Mapping[str, Any], schema: schemas.Schema | None) -> dict[str, Any]:
    """
    Build the object with which a new one is compared on creation.

    For custom resources, it is empty. For built-in ones, some structures and all required fields
    are always present, even if empty.
    """
    metadata = schema.properties.get('metadata') if schema is not None else None
    if schema is None or metadata is None or 'managedFields' not in metadata.properties:
        return {}
    return _build_structures(obj, schema)


def _build_structures(obj: Mapping[str, Any], schema: schemas.Schema) -> dict[str, Any]:
    required = schema.raw.get('required') or ()
    baseline: dict[str, Any] = {}
    for name, value in obj.items():
        child = schema.properties.get(name)
        if child is None:
            continue
        if isinstance(value, dict) and child.default == {}:
            baseline[name] = _build_structures(value, child)
        elif value is None or name in required or child.default in ('', 0):
            baseline[name] = None if isinstance(value, dict | list) else _ZEROS.get(type(value))

    return baseline


def compare(
    old: Mapping[str, Any], new: Mapping[str, Any], schema: schemas.Schema | None
) -> Comparison:
    """
    Compare two objects field by field. Never-owned fields are not compared.

    It is fast if the objects share their unchanged parts.
    """
    changed: fieldsets.FieldSet = {}
    removed: fieldsets.FieldSet = {}
    _compare_maps(_get_content(old), _get_content(new), schema, changed, removed)
    inner_changed: fieldsets.FieldSet = {}
    inner_removed: fieldsets.FieldSet = {}

    if old.get('metadata') is not new.get('metadata'):
        _compare_maps(
            _get_metadata(old), _get_metadata(new), METADATA, inner_changed, inner_removed
        )

    if inner_changed:
        changed['f:metadata'] = fieldsets.sort_steps(inner_changed)
    if inner_removed:
        removed['f:metadata'] = inner_removed
    return Comparison(fieldsets.sort_steps(changed), removed)


def _get_content(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in obj.items() if name not in ('apiVersion', 'kind', 'metadata')
    }


def _get_metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get('metadata')
    if not isinstance(metadata, dict):
        return {}
    return {name: value for name, value in metadata.items() if name not in NEVER_OWNED}


def _compare_maps(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    schema: schemas.Schema | None,
    changed: fieldsets.FieldSet,
    removed: fieldsets.FieldSet,
) -> None:
    for name, value in new.items():
        known = old.get(name, _ABSENT)
        if equality.is_same(known, value):
            continue
        if known is _ABSENT:
            changed[fieldsets.build_field_step(name)] = _collect(value, find_child(schema, name))
        else:
            step = fieldsets.build_field_step(name)
            _compare_values(
                step, known, value, find_child(schema, name), Comparison(changed, removed)
            )

    for name, value in old.items():
        if name not in new:
            removed[fieldsets.build_field_step(name)] = _collect(value, find_child(schema, name))


def _compare_values(
    step: str, old: Any, new: Any, schema: schemas.Schema | None, parents: Comparison
) -> None:
    changed: fieldsets.FieldSet = {}
    removed: fieldsets.FieldSet = {}
    if _are_both(dict, old, new) and is_granular(schema):
        _compare_maps(old or {}, new or {}, schema, changed, removed)
    elif _are_both(list, old, new) and schema is not None and is_associative(schema):
        _compare_lists(old or (), new or (), schema, changed, removed)
    else:
        parents.changed[step] = _collect(new, schema)
        removed = {
            inner: node for inner, node in _collect(old, schema).items() if inner != fieldsets.SELF
        }

    if changed:
        parents.changed[step] = fieldsets.sort_steps(changed)
    if removed:
        parents.removed[step] = removed


def _are_both(cls: type, old: Any, new: Any) -> bool:
    """
    Return whether both values are instances of a class or null, and at least one is not empty.
    Otherwise, they are compared as leaves.
    """
    return isinstance(old, cls | None) and isinstance(new, cls | None) and bool(old or new)


def _compare_lists(
    old: Sequence[Any],
    new: Sequence[Any],
    schema: schemas.Schema,
    changed: fieldsets.FieldSet,
    removed: fieldsets.FieldSet,
) -> None:
    """Compare by items; non-unique items are compared as a whole, with no inner fields."""
    before = group_items(old, schema)
    after = group_items(new, schema)
    for step, items in after.items():
        known = before.get(step, [])
        if equality.is_same(known, items):
            continue
        if len(known) == 1 and len(items) == 1:
            _compare_values(step, known[0], items[0], schema.items, Comparison(changed, removed))
            continue
        changed[step] = _collect(items[0], schema.items) if len(items) == 1 else fieldsets.LEAF
        if known and (len(known) == 1 or len(items) == 1):
            removed[step] = _collect(known[0], schema.items) if len(known) == 1 else fieldsets.LEAF

    for step, items in before.items():
        if step not in after:
            removed[step] = _collect(items[0], schema.items) if len(items) == 1 else fieldsets.LEAF


def _collect(value: Any, schema: schemas.Schema | None) -> fieldsets.FieldSet:
    """Return all fields of a value that was added or removed as a whole, with the containers."""
    if not value:
        return fieldsets.LEAF

    if isinstance(value, dict) and is_granular(schema):
        node: fieldsets.FieldSet = {fieldsets.SELF: fieldsets.LEAF}
        for name in sorted(value):
            inner = value[name]
            step = fieldsets.build_field_step(name)
            # Most fields are scalars: avoid a call for each of them.
            is_container = isinstance(inner, _CONTAINERS)
            node[step] = (
                _collect(inner, find_child(schema, name)) if is_container else fieldsets.LEAF
            )
        return node

    if isinstance(value, list) and schema is not None and is_associative(schema):
        node = {fieldsets.SELF: fieldsets.LEAF}
        for step, items in group_items(value, schema).items():
            node[step] = _collect(items[0], schema.items) if len(items) == 1 else fieldsets.LEAF
        return fieldsets.sort_steps(node)

    return fieldsets.LEAF
