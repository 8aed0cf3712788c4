"""
Decoding: from the JSON of a request to a built-in object in the normal form of the API server.

The types come from the schemas, and from the details of Go structures that schemas lack
(``definitions/gotypes.json``). There, a field has a code of several parts: ``*`` for pointers to
scalars (their zeros are kept), ``!`` for fields that are written even if not set, ``-`` for fields
that are not written despite their zero defaults, the name of the type if it cannot be inferred, and
``@`` with the embedded structure that declares the field.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.codec import go_types
from kopf._sandbox.meta import builtins, errors, schemas

_META: Final = 'io.k8s.apimachinery.pkg.apis.meta.v1'
_SPECIAL: Final[Mapping[str, go_types.Type]] = {
    f'{_META}.Time': go_types.TIME,
    f'{_META}.MicroTime': go_types.Time(micro=True),
    'io.k8s.apimachinery.pkg.api.resource.Quantity': go_types.Quantity(),
    'io.k8s.apimachinery.pkg.util.intstr.IntOrString': go_types.IntOrString(),
}
_RESOURCE_AMOUNT: Final = go_types.Quantity(milli=True)

_compiled: dict[schemas.Schema, go_types.Struct] = {}


def decode_object(obj: dict[str, Any], schema: schemas.Schema, *, kind: str, version: str) -> None:
    """Convert a built-in object to its normal form, in place; raise 400 for wrong types."""
    struct = _compiled.get(schema)
    if struct is None:
        struct = _compiled[schema] = compile_object(schema)
    try:
        struct.decode(obj, '', '')
    except go_types.MismatchError as e:
        raise _refuse(kind, version, e) from None


def _refuse(kind: str, version: str, error: go_types.MismatchError) -> errors.ApiError:
    return errors.bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
    )


def compile_object(schema: schemas.Schema) -> go_types.Struct:
    """Compile the types of one built-in kind."""
    [gvk, *_] = schema.raw['x-kubernetes-group-version-kind']
    name = builtins.load_definition_names()[gvk['group'], gvk['version'], gvk['kind']]
    return _Compiler().compile_struct(schema, name)


@functools.cache
def _load_codes() -> Mapping[str, Mapping[str, str]]:
    codes: Mapping[str, Mapping[str, str]] = json.loads(
        (builtins.DEFINITIONS / 'gotypes.json').read_bytes()
    )
    return codes


class _Compiler:
    """Compiles schemas to types; each structure is compiled once, and may contain itself."""

    def __init__(self) -> None:
        self._structs: dict[str, go_types.Struct] = {}

    def compile_struct(self, schema: schemas.Schema, full_name: str) -> go_types.Struct:
        if full_name in self._structs:
            return self._structs[full_name]

        package, _, short = full_name.rpartition('.')
        struct = go_types.Struct(name=f'{package.rpartition(".")[2]}.{short}', short=short)
        self._structs[full_name] = struct
        codes = _load_codes().get(full_name, {})

        for name, child in schema.properties.items():
            raw = (schema.raw.get('properties') or {}).get(name) or {}
            struct.add(name, self._compile_field(name, child, raw, codes.get(name, '')))

        return struct

    def _compile_field(
        self, name: str, schema: schemas.Schema, raw: Mapping[str, Any], code: str
    ) -> go_types.Field:
        code, _, embedded = code.partition('@')
        marks = code[: len(code) - len(code.lstrip('*!-'))]
        named = code.lstrip('*!-')
        type_ = self._compile_type(schema, raw, named)
        default = None if '-' in marks else raw.get('default')
        is_zero = default is None or default in ({}, '', 0, False)

        return go_types.Field(
            type=type_,
            path=f'{embedded}.{name}' if embedded else name,
            is_pointer='*' in marks or (isinstance(type_, go_types.Struct) and default is None),
            is_kept=isinstance(type_, go_types.Struct)
            or '*' in marks
            or (default is not None and is_zero),
            is_written='!' in marks or default is not None,
            default=None if is_zero else default,
        )

    def _compile_type(
        self, schema: schemas.Schema, raw: Mapping[str, Any], named: str = ''
    ) -> go_types.Type:
        full_name = _find_ref(raw)
        if full_name in _SPECIAL:
            return _SPECIAL[full_name]
        if schema.properties:
            return self.compile_struct(schema, full_name or named)

        if schema.type == 'array' and schema.items is not None:
            item = self._compile_type(
                schema.items, raw.get('items') or {}, named.removeprefix('[]')
            )
            return go_types.List(named or f'[]{item.name}', item)

        if schema.additional is not None:
            item = self._compile_type(schema.additional, raw.get('additionalProperties') or {})
            item = _RESOURCE_AMOUNT if isinstance(item, go_types.Quantity) else item
            return go_types.Map(named or f'map[string]{item.name}', item)

        return _pick_scalar(schema.type, schema.raw.get('format') or '', named)


def _pick_scalar(kind: str, form: str, named: str) -> go_types.Type:
    if kind == 'string':
        if form == 'byte':
            return go_types.Bytes()
        return go_types.String(named) if named else go_types.STRING

    if kind == 'integer':
        return go_types.INT32 if form == 'int32' else go_types.INT64
    if kind == 'boolean':
        return go_types.BOOLEAN
    return go_types.Float() if kind == 'number' else go_types.ANY


def _find_ref(raw: Mapping[str, Any]) -> str:
    [option, *_] = raw.get('allOf') or [{}]
    return str(raw.get('$ref') or option.get('$ref') or '').rpartition('/')[2]
