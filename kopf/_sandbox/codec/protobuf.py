"""
Protobuf: request bodies in the binary form that kubectl and other Go clients prefer.

It only decodes, and only the built-in kinds: responses are always in JSON, and custom resources
have no messages. The result is the same as from JSON. As in the API, invalid UTF-8 bytes in strings
are replaced. The messages are in ``definitions/messages.json``, by name: the names and types of
their fields by number.
"""

import base64
import dataclasses
import datetime
import functools
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kopf._cogs.helpers import jsons
from kopf._sandbox.codec import decoding, wire_format
from kopf._sandbox.meta import builtins, errors, kinds

PREFIX: Final = b'k8s\0'
MAX_DEPTH: Final = 100
"""The maximum nesting of messages. The API has no limit; real objects are far below this one."""

_META: Final = 'io.k8s.apimachinery.pkg.apis.meta.v1'
_CRD: Final = 'io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1'
_WIRES: Final = {
    'bool': wire_format.VARINT,
    'int32': wire_format.VARINT,
    'int64': wire_format.VARINT,
    'double': wire_format.FIXED64,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    name: str  # empty if its own fields are put in its place in JSON
    type: str  # a scalar, or the full name of a message
    wire: int
    is_list: bool = False
    is_map: bool = False


def decode_object(raw: bytes, kind: str, api_version: str) -> dict[str, Any]:
    """
    Decode an object from the body of a request, with its envelope; raise 400 if it is malformed.

    The expected kind and version are used if the envelope does not name any.
    """
    try:
        found_kind, found_version, content = _open_envelope(raw)
    except wire_format.MalformedError as e:
        raise _refuse(e, kind, raw) from None

    found_kind = found_kind or kind
    found_version = found_version or api_version
    _, version = kinds.split_api_version(found_version)

    try:
        name = _find_message(found_kind, found_version, expected=kind)
        obj = {'kind': found_kind, 'apiVersion': found_version, **decode_message(name, content)}
    except wire_format.MalformedError as e:
        raise _refuse(
            e, kind, raw, found=f'{found_kind} in version {errors.render(version)}'
        ) from None

    decoding.decode_object(obj, builtins.load_schema(name), kind=found_kind, version=version)
    return obj


def decode_message(name: str, raw: bytes, depth: int = 0) -> Any:
    """
    Decode one message without an envelope, by its full name; raise `MalformedError` if it is
    malformed.

    The result includes the zeros that Go writes for all non-pointer fields.
    """
    if depth > MAX_DEPTH:
        raise wire_format.MalformedError('exceeded max depth')

    fields = _load_fields(name)
    values: dict[str, Any] = {}
    for number, wire, value in wire_format.read_fields(raw, name.rpartition('.')[2]):
        field = fields.get(number)
        if field is not None:
            _store_value(values, field, wire, value, depth)

    convert = _CONVERTERS.get(name)
    return values if convert is None else convert(values)


def summarize(raw: bytes, limit: int = 30) -> str:
    """Format the beginning of a body as the API does for undecodable bodies."""
    if not raw:
        return '<empty>'
    shown = _decode_text(raw[:limit]) if raw.startswith(b'{') else raw[:limit].hex()
    return f'{shown} ...' if len(raw) > limit else shown


def _refuse(error: Exception, kind: str, raw: bytes, *, found: str = '') -> errors.ApiError:
    if kind == 'DeleteOptions':
        return errors.bad_request(str(error))
    if found:
        return errors.bad_request(f'{found} cannot be handled as a {kind}: {error}')
    shown = summarize(raw)
    return errors.bad_request(
        f'the object provided is unrecognized (must be of type {kind}): {error} ({shown})'
    )


def _open_envelope(raw: bytes) -> tuple[str, str, bytes]:
    """Return the kind, the version and the content of a ``runtime.Unknown``."""
    if not raw:
        raise wire_format.MalformedError('empty data')
    if not raw.startswith(PREFIX):
        raise wire_format.MalformedError(
            'provided data does not appear to be a protobuf message, '
            f'expected prefix [{" ".join(str(byte) for byte in PREFIX)}]'
        )
    if len(raw) == len(PREFIX):
        raise wire_format.MalformedError('empty body')

    type_meta, content = wire_format.read_pair(raw[len(PREFIX) :], 'Unknown')
    api_version, kind = wire_format.read_pair(type_meta, 'TypeMeta')
    return _decode_text(kind), _decode_text(api_version), content


def _find_message(kind: str, api_version: str, *, expected: str) -> str:
    if kind == 'DeleteOptions':  # the same in all groups, including those of custom resources
        return f'{_META}.DeleteOptions'
    group, version = kinds.split_api_version(api_version)
    name = builtins.load_definition_names().get((group, version, kind), '')
    if name not in _load_messages() or expected == 'DeleteOptions':
        raise wire_format.MalformedError(errors.describe_unknown_kind(kind, api_version))
    return name


@functools.cache
def _load_messages() -> Mapping[str, Mapping[str, str]]:
    messages: Mapping[str, Mapping[str, str]] = jsons.loads(
        (builtins.DEFINITIONS / 'messages.json').read_bytes()
    )
    return messages


@functools.cache
def _load_fields(name: str) -> Mapping[int, Field]:
    package, _, _ = name.rpartition('.')
    return {
        int(number): _parse_field(text, package) for number, text in _load_messages()[name].items()
    }


def _parse_field(text: str, package: str) -> Field:
    name, _, full_type = text.partition(' ')
    is_list = full_type.startswith('[]')
    is_map = full_type.startswith('map[')
    type_ = full_type.removeprefix('[]').removeprefix('map[string]')
    if type_ not in _SCALARS and '.' not in type_:
        type_ = f'{package}.{type_}'
    wire = wire_format.DELIMITED if is_map else _WIRES.get(type_, wire_format.DELIMITED)
    return Field(name, type_, wire, is_list=is_list, is_map=is_map)


def _store_value(values: dict[str, Any], field: Field, wire: int, value: Any, depth: int) -> None:
    """Add one value of a field. Nulls are kept in lists and maps, and dropped elsewhere."""
    if field.is_list and wire == wire_format.DELIMITED != field.wire:
        numbers = wire_format.read_packed(value, field.wire)
        values.setdefault(field.name, []).extend(map(_SCALARS[field.type], numbers))
        return

    if wire != field.wire:
        shown = f'{field.name[:1].upper()}{field.name[1:]}'
        raise wire_format.MalformedError(f'proto: wrong wireType = {wire} for field {shown}')

    if field.is_map:
        key, content = wire_format.read_pair(value, field.name)
        values.setdefault(field.name, {})[_decode_text(key)] = _decode_value(field, content, depth)
        return

    item = _decode_value(field, value, depth)
    if field.is_list:
        values.setdefault(field.name, []).append(item)
    elif not field.name:
        values.update(item)
    elif item is not None:
        values[field.name] = item


def _decode_value(field: Field, value: Any, depth: int) -> Any:
    decode = _SCALARS.get(field.type)
    return decode_message(field.type, value, depth + 1) if decode is None else decode(value)


def _decode_text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode(errors='surrogateescape').translate(_WRONG_BYTES)


def _decode_bytes(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode_double(number: int) -> float:
    """Decode a double; whole numbers become integers, as they have no fraction in JSON."""
    [value] = struct.unpack('<d', number.to_bytes(8, 'little'))
    return int(value) if value.is_integer() and abs(value) < 1e21 else float(value)


def _decode_json(raw: bytes) -> Any:
    try:
        return jsons.loads(raw) if raw else None
    except ValueError as e:
        raise wire_format.MalformedError(f'json parse error: {e}') from e


def _convert_time(values: Mapping[str, Any], *, micro: bool = False) -> str | None:
    """Convert a time; the zero time is empty in protobuf and null in JSON."""
    if not values:
        return None

    fraction = datetime.timedelta(microseconds=values.get('nanos', 0) // 1000 if micro else 0)
    try:
        moment = _EPOCH + datetime.timedelta(seconds=values.get('seconds', 0)) + fraction
    except OverflowError:
        raise wire_format.MalformedError(
            'Time.MarshalJSON: year outside of range [0,9999]'
        ) from None

    return f'{moment.isoformat(timespec="microseconds" if micro else "seconds")}Z'


def _convert_number_or_text(values: Mapping[str, Any]) -> int | str:
    value: int | str = (
        values.get('strVal', '') if values.get('type') == 1 else values.get('intVal', 0)
    )
    return value


def _convert_schema_or_list(values: Mapping[str, Any]) -> Any:
    return values.get('jSONSchemas') or values.get('schema')


def _convert_schema_or_flag(values: Mapping[str, Any]) -> Any:
    return values.get('schema', values.get('allows', False))


def _convert_schema_or_names(values: Mapping[str, Any]) -> Any:
    return values.get('property') or values.get('schema')


def _drop_zeros(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the unset fields of nested schemas: the later decoding does not do it for them."""
    return {name: value for name, value in values.items() if value or name not in _SCHEMA_ZEROS}


_EPOCH: Final = datetime.datetime(1970, 1, 1)
_WRONG_BYTES: Final = dict.fromkeys(range(0xDC80, 0xDD00), '\ufffd')

_SCHEMA_ZEROS: Final = frozenset(
    (
        'id',
        '$schema',
        'title',
        'description',
        'type',
        'format',
        'pattern',
        'nullable',
        'uniqueItems',
        'exclusiveMinimum',
        'exclusiveMaximum',
        'x-kubernetes-embedded-resource',
        'x-kubernetes-int-or-string',
        'message',
        'messageExpression',
        'fieldPath',
        'url',
    )
)

_SCALARS: Final[Mapping[str, Callable[[Any], Any]]] = {
    'string': _decode_text,
    'bytes': _decode_bytes,
    'json': _decode_json,
    'bool': bool,
    'int32': functools.partial(wire_format.convert_sign, bits=32),
    'int64': functools.partial(wire_format.convert_sign, bits=64),
    'double': _decode_double,
}

_CONVERTERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    f'{_META}.Time': _convert_time,
    f'{_META}.MicroTime': functools.partial(_convert_time, micro=True),
    f'{_META}.FieldsV1': lambda values: values.get('Raw'),
    f'{_CRD}.JSON': lambda values: values.get('raw'),
    f'{_CRD}.JSONSchemaProps': _drop_zeros,
    f'{_CRD}.ValidationRule': _drop_zeros,
    f'{_CRD}.ExternalDocumentation': _drop_zeros,
    f'{_CRD}.JSONSchemaPropsOrArray': _convert_schema_or_list,
    f'{_CRD}.JSONSchemaPropsOrBool': _convert_schema_or_flag,
    f'{_CRD}.JSONSchemaPropsOrStringArray': _convert_schema_or_names,
    'io.k8s.apimachinery.pkg.runtime.RawExtension': lambda values: values.get('raw'),
    'io.k8s.apimachinery.pkg.api.resource.Quantity': lambda values: values.get('string', '0'),
    'io.k8s.apimachinery.pkg.util.intstr.IntOrString': _convert_number_or_text,
    **{
        f'io.k8s.api.{package}.v1.ExtraValue': lambda values: values.get('items', [])
        for package in ('authentication', 'authorization', 'certificates')
    },
}
