"""
Decoding: from the JSON of a request to a built-in object in the form in which the API server keeps it.

The types come from their schemas, and from what the schemas do not say about the Go
structures (``definitions/gotypes.json``). There, a field has a code of several parts: ``*`` for pointers to scalars
(their zeros are kept), ``!`` for the fields that are written even if not set, ``-`` for those that are not
despite of their zero defaults, the name of the type if it cannot be
inferred, and ``@`` with the embedded structure that declares the field.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any, Final

from kopf._kits.sandbox import builtins, errors, gotypes, schemas

_META: Final = 'io.k8s.apimachinery.pkg.apis.meta.v1'
_SPECIAL: Final[Mapping[str, gotypes.Type]] = {
    f'{_META}.Time': gotypes.TIME,
    f'{_META}.MicroTime': gotypes.Time(micro=True),
    'io.k8s.apimachinery.pkg.api.resource.Quantity': gotypes.Quantity(),
    'io.k8s.apimachinery.pkg.util.intstr.IntOrString': gotypes.IntOrString(),
}
_RESOURCE_AMOUNT: Final = gotypes.Quantity(milli=True)

_compiled: dict[schemas.Schema, gotypes.Struct] = {}


def decode_object(obj: dict[str, Any], schema: schemas.Schema, *, kind: str, version: str) -> None:
    """Bring a built-in object to its normal form, in place; raise 400 if some values are of wrong types."""
    struct = _compiled.get(schema)
    if struct is None:
        struct = _compiled[schema] = compile_object(schema)
    try:
        struct.decode(obj, '', '')
    except gotypes.MismatchError as e:
        raise _refuse(kind, version, e) from None


def _refuse(kind: str, version: str, error: gotypes.MismatchError) -> errors.ApiError:
    return errors.bad_request(
        f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
    )


def compile_object(schema: schemas.Schema) -> gotypes.Struct:
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
    """Compiles schemas to types; the same structure is compiled once, and may contain itself."""

    def __init__(self) -> None:
        self._structs: dict[str, gotypes.Struct] = {}

    def compile_struct(self, schema: schemas.Schema, full_name: str) -> gotypes.Struct:
        if full_name in self._structs:
            return self._structs[full_name]
        package, _, short = full_name.rpartition('.')
        struct = gotypes.Struct(name=f'{package.rpartition(".")[2]}.{short}', short=short)
        self._structs[full_name] = struct
        codes = _load_codes().get(full_name, {})
        for name, child in schema.properties.items():
            raw = (schema.raw.get('properties') or {}).get(name) or {}
            struct.add(name, self._compile_field(name, child, raw, codes.get(name, '')))
        return struct

    def _compile_field(
        self, name: str, schema: schemas.Schema, raw: Mapping[str, Any], code: str
    ) -> gotypes.Field:
        code, _, embedded = code.partition('@')
        marks, named = code[: len(code) - len(code.lstrip('*!-'))], code.lstrip('*!-')
        type_ = self._compile_type(schema, raw, named)
        default = None if '-' in marks else raw.get('default')
        is_zero = default is None or default in ({}, '', 0, False)
        return gotypes.Field(
            type=type_,
            path=f'{embedded}.{name}' if embedded else name,
            is_pointer='*' in marks or (isinstance(type_, gotypes.Struct) and default is None),
            is_kept=isinstance(type_, gotypes.Struct)
            or '*' in marks
            or (default is not None and is_zero),
            is_written='!' in marks or default is not None,
            default=None if is_zero else default,
        )

    def _compile_type(
        self, schema: schemas.Schema, raw: Mapping[str, Any], named: str = ''
    ) -> gotypes.Type:
        full_name = _find_ref(raw)
        if full_name in _SPECIAL:
            return _SPECIAL[full_name]
        if schema.properties:
            return self.compile_struct(schema, full_name or named)
        if schema.type == 'array' and schema.items is not None:
            item = self._compile_type(
                schema.items, raw.get('items') or {}, named.removeprefix('[]')
            )
            return gotypes.List(named or f'[]{item.name}', item)
        if schema.additional is not None:
            item = self._compile_type(schema.additional, raw.get('additionalProperties') or {})
            item = _RESOURCE_AMOUNT if isinstance(item, gotypes.Quantity) else item
            return gotypes.Map(named or f'map[string]{item.name}', item)
        return _pick_scalar(schema.type, schema.raw.get('format') or '', named)


def _pick_scalar(kind: str, form: str, named: str) -> gotypes.Type:
    if kind == 'string':
        if form == 'byte':
            return gotypes.Bytes()
        return gotypes.String(named) if named else gotypes.STRING
    if kind == 'integer':
        return gotypes.INT32 if form == 'int32' else gotypes.INT64
    if kind == 'boolean':
        return gotypes.BOOLEAN
    return gotypes.Float() if kind == 'number' else gotypes.ANY


def _find_ref(raw: Mapping[str, Any]) -> str:
    [option, *_] = raw.get('allOf') or [{}]
    return str(raw.get('$ref') or option.get('$ref') or '').rpartition('/')[2]
