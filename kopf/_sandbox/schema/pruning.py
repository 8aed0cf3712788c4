"""
Pruning and defaulting: the conversion of objects to the structure of their schemas before
validation.

Unknown fields are dropped, and so are nulls of non-nullable fields; missing fields get their
defaults. Values of wrong types are left for validation to refuse them.
"""

import dataclasses
import functools
from collections.abc import Collection
from typing import Any, Final

from kopf._sandbox.codec import object_meta
from kopf._sandbox.meta import errors, kinds, schemas

Trail = tuple[Any, ...]
"""The location of a value: the trail of its parent, and its key or index; empty for the root."""

META_FIELDS: Final = frozenset(('apiVersion', 'kind', 'metadata'))


def prune(obj: dict[str, Any], schema: schemas.Schema) -> list[str]:
    """
    Drop the fields that the schema does not know, and nulls that mean absence. Modifies the object.

    Returns the paths of the dropped unknown fields. Raises the API's 400 if the metadata cannot be
    decoded. For built-in kinds, the metadata is pruned as other fields; for custom kinds, it is
    decoded into its fixed structure.
    """
    found = _Findings()
    if _has_whole_metadata(schema):
        _prune_fields(obj, schema, (), found)
        return [render_trail(trail) for trail in found.unknown]

    try:
        if 'metadata' in obj:
            found.metadata += _coerce_metadata(obj, 'metadata')
        _prune_fields(obj, schema, (), found)
        nested = [
            path for trail, resource in found.embedded for path in _coerce_embedded(resource, trail)
        ]
    except object_meta.UndecodableError as e:
        kind = obj.get('kind')
        version = kinds.split_api_version(obj.get('apiVersion'))[1]
        raise errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: {e}'
        ) from None

    return [
        *sorted(found.metadata),
        *sorted(render_trail(trail) for trail in found.unknown),
        *sorted(nested),
    ]


def apply_defaults(obj: Any, schema: schemas.Schema) -> None:
    """Set the defaults of missing fields, and of non-nullable nulls. Modifies the object."""
    plan = _plan_defaults(schema)
    if plan is not None:
        _apply_plan(obj, plan)


def render_trail(trail: Trail) -> str:
    """Format the location of a value: ``spec.items[0].name``."""
    path = ''
    while trail:
        trail, key = trail
        path = f'[{key}]{path}' if isinstance(key, int) else f'.{key}{path}'
    return path.removeprefix('.')


@dataclasses.dataclass(slots=True)
class _Findings:
    # The unknown fields in the metadata of the root.
    metadata: list[str] = dataclasses.field(default_factory=list)
    unknown: list[Trail] = dataclasses.field(default_factory=list)
    embedded: list[tuple[Trail, dict[str, Any]]] = dataclasses.field(default_factory=list)


def _has_whole_metadata(schema: schemas.Schema) -> bool:
    metadata = schema.properties.get('metadata')
    return metadata is not None and 'uid' in metadata.properties


def _coerce_metadata(obj: dict[str, Any], path: str) -> list[str]:
    if obj['metadata'] is None:
        obj['metadata'] = {}
    return object_meta.coerce(obj['metadata'], path)


def _coerce_embedded(resource: dict[str, Any], trail: Trail) -> list[str]:
    path = render_trail(trail)
    for name in ('apiVersion', 'kind'):
        if name in resource and not isinstance(resource[name], str):
            why = f'Invalid value: {errors.render(resource[name])}: must be a string'
            raise object_meta.UndecodableError(f'{path}.{name}: {why}')

    if 'metadata' not in resource:
        return []

    try:
        return _coerce_metadata(resource, f'{path}.metadata')
    except object_meta.UndecodableError as e:
        why = f'Invalid value: {errors.render(resource["metadata"])}: {e}'
        raise object_meta.UndecodableError(f'{path}.metadata: {why}') from None


def _prune_fields(
    fields: dict[str, Any],
    schema: schemas.Schema,
    trail: Trail,
    found: _Findings,
    keep: bool = False,
) -> None:
    properties = schema.properties
    additional = schema.additional
    keep = keep or schema.preserve_unknown
    fixed = _find_fixed(fields, schema, trail, found)
    dropped = []

    for name, value in fields.items():
        child = properties.get(name, additional)
        if name in fixed:
            continue
        if child is None:
            if not keep:
                dropped.append(name)
                found.unknown.append((trail, name))
        elif isinstance(value, dict):
            _prune_fields(value, child, (trail, name), found)
        elif isinstance(value, list):
            _prune_items(value, child, (trail, name), found)
        elif (
            value is None and not child.nullable and (name in properties or not _has_default(child))
        ):
            # Missing properties get their defaults later.
            dropped.append(name)

    for name in dropped:
        del fields[name]


def _find_fixed(
    fields: dict[str, Any], schema: schemas.Schema, trail: Trail, found: _Findings
) -> Collection[str]:
    """Return the fields that are not pruned; record the embedded resources."""
    if not trail:
        return () if _has_whole_metadata(schema) else META_FIELDS
    if not schema.embedded:
        return ()
    found.embedded.append((trail, fields))
    return META_FIELDS


def _prune_items(
    values: list[Any], schema: schemas.Schema, trail: Trail, found: _Findings, keep: bool = False
) -> None:
    keep = keep or schema.preserve_unknown
    items = schema.items
    if items is None:
        if keep:
            return
        items = _NOTHING_KNOWN

    for index, value in enumerate(values):
        if isinstance(value, dict):
            _prune_fields(value, items, (trail, index), found, keep)
        elif isinstance(value, list):
            _prune_items(value, items, (trail, index), found, keep)


def clone(value: Any) -> Any:
    """Return a deep copy of a JSON value."""
    if isinstance(value, dict):
        return {name: clone(item) for name, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


def _has_default(schema: schemas.Schema) -> bool:
    return schema.default is not schemas.UNSET and schema.default is not None


_NOTHING_KNOWN: Final = schemas.Schema(raw={}, nullable=True)


@dataclasses.dataclass(slots=True)
class _Plan:
    """The defaults for the values of one node of a schema. Nodes without defaults have no plan."""

    # Name, default, nullable.
    missing: list[tuple[str, Any, bool]] = dataclasses.field(default_factory=list)
    fields: dict[str, '_Plan'] = dataclasses.field(default_factory=dict)
    others: schemas.Schema | None = None  # the values of a map
    in_others: '_Plan | None' = None
    items: schemas.Schema | None = None
    in_items: '_Plan | None' = None
    known: frozenset[str] = frozenset()

    @property
    def is_needed(self) -> bool:
        return bool(
            self.missing or self.fields or self.others is not None or self.items is not None
        )


@functools.lru_cache(maxsize=1024)
def _plan_defaults(schema: schemas.Schema) -> _Plan | None:
    return _build_plan(schema, frozenset())


def _build_plan(schema: schemas.Schema, above: frozenset[schemas.Schema]) -> _Plan | None:
    if schema in above:
        # Only built-in kinds have recursive definitions, and there are no such defaults in them.
        return None

    above |= {schema}
    plan = _Plan(known=frozenset(schema.properties))
    for name, child in schema.properties.items():
        if _has_default(child):
            plan.missing.append((name, child.default, child.nullable))
        inner = _build_plan(child, above)
        if inner is not None:
            plan.fields[name] = inner

    for node, attribute in ((schema.additional, 'others'), (schema.items, 'items')):
        inner = None if node is None else _build_plan(node, above)
        if node is not None and (inner is not None or _has_default(node)):
            setattr(plan, attribute, node)
            setattr(plan, f'in_{attribute}', inner)

    return plan if plan.is_needed else None


def _apply_plan(value: Any, plan: _Plan) -> None:
    if isinstance(value, dict):
        _apply_to_fields(value, plan)
    elif isinstance(value, list) and plan.items is not None:
        for index in range(len(value)):
            _apply_within(value, index, plan.items, plan.in_items)


def _apply_to_fields(fields: dict[str, Any], plan: _Plan) -> None:
    for name, default, nullable in plan.missing:
        if name not in fields or (fields[name] is None and not nullable):
            fields[name] = clone(default)

    for name, inner in plan.fields.items():
        if name in fields:
            _apply_plan(fields[name], inner)

    if plan.others is not None:
        for name in fields:
            if name not in plan.known:
                _apply_within(fields, name, plan.others, plan.in_others)


def _apply_within(values: Any, key: Any, schema: schemas.Schema, plan: _Plan | None) -> None:
    if values[key] is None and not schema.nullable and _has_default(schema):
        values[key] = clone(schema.default)
    if plan is not None:
        _apply_plan(values[key], plan)
