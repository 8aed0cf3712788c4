"""
OpenAPI v2: the documents in protobuf, as kubectl requests them for kinds it knows nothing about.

Only the parts that the sandbox publishes are encoded: the header, the definitions, and the security
schemes; there are no paths. This format has free-form values in YAML; here they are in JSON, which
is also YAML.
"""

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kopf._cogs.helpers import jsons

MEDIA_TYPE: Final = 'application/com.github.proto-openapi.spec.v2.v1.0+protobuf'
MEDIA_TYPES: Final = (MEDIA_TYPE, 'application/com.github.proto-openapi.spec.v2@v1.0+protobuf')

_VARINT: Final = 0
_FIXED64: Final = 1
_DELIMITED: Final = 2
_VENDOR_EXTENSION: Final = 31

_Encoder = Callable[[int, Any], bytes]


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode a document."""
    info = _write_text(1, document['info']['title']) + _write_text(2, document['info']['version'])
    requirements = [
        _write_named(1, name, b''.join(_write_texts(1, scopes)))
        for requirement in document['security']
        for name, scopes in requirement.items()
    ]
    schemes = [
        _write_named(1, name, _write(2, _encode_key(scheme)))
        for name, scheme in document['securityDefinitions'].items()
    ]

    return b''.join(
        [
            _write_text(1, document['swagger']),
            _write(2, info),
            _write(8, b''),
            _write(9, _encode_schemas(document['definitions'])),
            *(_write(12, requirement) for requirement in requirements),
            _write(13, b''.join(schemes)),
        ]
    )


def _encode_key(scheme: Mapping[str, str]) -> bytes:
    fields = ('type', 'name', 'in', 'description')
    return b''.join(
        _write_text(number, scheme[field]) for number, field in enumerate(fields, start=1)
    )


def _encode_schemas(schemas: Mapping[str, Any]) -> bytes:
    return b''.join(
        _write_named(1, name, _encode_schema(schema)) for name, schema in schemas.items()
    )


def _encode_schema(schema: Mapping[str, Any]) -> bytes:
    parts = []
    for key, value in schema.items():
        if key in _FIELDS:
            number, encode_field = _FIELDS[key]
            parts.append(encode_field(number, value))
        elif key.startswith('x-'):
            parts.append(_write(_VENDOR_EXTENSION, _write_text(1, key) + _write_any(2, value)))

    return b''.join(parts)


def _write_additional(number: int, value: Any) -> bytes:
    content = _write_flag(2, value) if isinstance(value, bool) else _write(1, _encode_schema(value))
    return _write(number, content)


def _write_type(number: int, value: Any) -> bytes:
    return _write(number, b''.join(_write_texts(1, [value] if isinstance(value, str) else value)))


def _write_items(number: int, value: Any) -> bytes:
    return _write(number, _write(1, _encode_schema(value)))


def _write_properties(number: int, value: Any) -> bytes:
    return _write(number, _encode_schemas(value))


def _write_anys(number: int, values: Any) -> bytes:
    return b''.join(_write_any(number, value) for value in values)


def _write_any(number: int, value: Any) -> bytes:
    return _write(number, _write(2, jsons.dumps(value) + b'\n'))


def _write_named(number: int, name: str, content: bytes) -> bytes:
    return _write(number, _write_text(1, name) + _write(2, content))


def _write_texts(number: int, values: Iterable[str]) -> Iterable[bytes]:
    return (_write_text(number, value) for value in values)


def _write_required(number: int, values: Any) -> bytes:
    return b''.join(_write_texts(number, values))


def _write_text(number: int, value: str) -> bytes:
    return _write(number, value.encode(errors='replace'))


def _write(number: int, content: bytes) -> bytes:
    return _write_varint(number << 3 | _DELIMITED) + _write_varint(len(content)) + content


def _write_flag(number: int, value: Any) -> bytes:
    return _write_integer(number, int(bool(value)))


def _write_integer(number: int, value: Any) -> bytes:
    return _write_varint(number << 3 | _VARINT) + _write_varint(int(value) & (2**64 - 1))


def _write_double(number: int, value: Any) -> bytes:
    return _write_varint(number << 3 | _FIXED64) + struct.pack('<d', value)


def _write_varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


_FIELDS: Final[Mapping[str, tuple[int, _Encoder]]] = {
    '$ref': (1, _write_text),
    'format': (2, _write_text),
    'title': (3, _write_text),
    'description': (4, _write_text),
    'multipleOf': (6, _write_double),
    'maximum': (7, _write_double),
    'exclusiveMaximum': (8, _write_flag),
    'minimum': (9, _write_double),
    'exclusiveMinimum': (10, _write_flag),
    'maxLength': (11, _write_integer),
    'minLength': (12, _write_integer),
    'pattern': (13, _write_text),
    'maxItems': (14, _write_integer),
    'minItems': (15, _write_integer),
    'uniqueItems': (16, _write_flag),
    'maxProperties': (17, _write_integer),
    'minProperties': (18, _write_integer),
    'required': (19, _write_required),
    'enum': (20, _write_anys),
    'additionalProperties': (21, _write_additional),
    'type': (22, _write_type),
    'items': (23, _write_items),
    'properties': (25, _write_properties),
    'example': (30, _write_any),
}
"""The fields of a schema: their numbers and encoders."""
