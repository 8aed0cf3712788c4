"""
Schemas: the structure of a resource's objects.

A schema is a tree of nodes compiled once from OpenAPI v3, both for custom resources (from their
CRDs) and for built-in ones (from the definitions shipped with the package). This tree is used for
pruning, defaulting, validation, strategic merging, field ownership, explaining. This module only
compiles it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

UNSET: Final = object()
"""The default of fields that have no default (``null`` is a default of nullable fields)."""

Resolver = Callable[[str], 'Schema']
"""Returns the compiled schema of a ``$ref``."""


@dataclasses.dataclass(slots=True, eq=False)
class Schema:
    """
    One node: an object, a map, a list, or a scalar. Not modified after it is compiled.

    A node with no type and no children accepts anything (for built-ins, it also has
    ``preserve_unknown``).
    """

    raw: Mapping[str, Any]  # the source, for validation and for publishing; may contain $refs
    type: str = ''  # object, array, string, integer, number, boolean; '' for any
    properties: dict[str, 'Schema'] = dataclasses.field(default_factory=dict)
    additional: 'Schema | None' = None  # the values of a map
    items: 'Schema | None' = None  # the items of a list
    preserve_unknown: bool = False
    int_or_string: bool = False
    embedded: bool = False  # x-kubernetes-embedded-resource: has apiVersion, kind, metadata
    nullable: bool = False
    default: Any = UNSET
    list_type: str = 'atomic'  # atomic, set, map
    list_map_keys: tuple[str, ...] = ()
    map_type: str = 'granular'  # granular, atomic
    # Merge, replace, retainKeys: only for built-in kinds.
    patch_strategies: frozenset[str] = frozenset()
    patch_merge_key: str = ''

    @property
    def is_map(self) -> bool:
        return self.additional is not None

    def child(self, name: str) -> 'Schema | None':
        """Return the schema of one field or key, if it is known."""
        return self.properties.get(name, self.additional)


def compile_schema(raw: Mapping[str, Any], resolve: Resolver | None = None) -> Schema:
    """
    Compile OpenAPI v3 into a tree of nodes.

    References, alone or as the only item of ``allOf``, are resolved by ``resolve``; the keys beside
    them (defaults, list types, patch strategies) override those of the referred schema.
    """
    ref = _get_ref(raw)
    if ref is None or resolve is None:
        schema = Schema(raw=raw)
        fill_schema(schema, raw, resolve)
        return schema

    target = resolve(ref)
    overrides = {key for key in raw if key not in ('$ref', 'allOf', 'description')}
    return (
        dataclasses.replace(target, **_read_marks({**target.raw, **raw})) if overrides else target
    )


def fill_schema(schema: Schema, raw: Mapping[str, Any], resolve: Resolver | None) -> None:
    """Compile into an existing node, so that recursive definitions can refer to it."""
    for name, value in _read_marks(raw).items():
        setattr(schema, name, value)
    for name, child in (raw.get('properties') or {}).items():
        schema.properties[name] = compile_schema(child, resolve)
    additional = raw.get('additionalProperties')
    if isinstance(additional, Mapping):
        schema.additional = compile_schema(additional, resolve)
    # True or false: any keys are possible, and their values are unknown.
    elif additional is not None:
        schema.additional = Schema(raw={}, nullable=True)

    items = raw.get('items')
    if isinstance(items, Mapping):
        schema.items = compile_schema(items, resolve)


def _get_ref(raw: Mapping[str, Any]) -> str | None:
    if '$ref' in raw:
        return str(raw['$ref'])
    options = raw.get('allOf') or []
    if len(options) == 1 and '$ref' in options[0] and 'properties' not in raw:
        return str(options[0]['$ref'])
    return None


def _read_marks(raw: Mapping[str, Any]) -> dict[str, Any]:
    int_or_string = (
        bool(raw.get('x-kubernetes-int-or-string')) or raw.get('format') == 'int-or-string'
    )
    return {
        'raw': raw,
        'type': '' if int_or_string else raw.get('type') or '',
        'preserve_unknown': bool(raw.get('x-kubernetes-preserve-unknown-fields')),
        'int_or_string': int_or_string,
        'embedded': bool(raw.get('x-kubernetes-embedded-resource')),
        'nullable': bool(raw.get('nullable')),
        'default': raw.get('default', UNSET),
        'list_type': raw.get('x-kubernetes-list-type') or 'atomic',
        'list_map_keys': tuple(raw.get('x-kubernetes-list-map-keys') or ()),
        'map_type': raw.get('x-kubernetes-map-type') or 'granular',
        'patch_strategies': frozenset((raw.get('x-kubernetes-patch-strategy') or '').split(','))
        - {''},
        'patch_merge_key': raw.get('x-kubernetes-patch-merge-key') or '',
    }
