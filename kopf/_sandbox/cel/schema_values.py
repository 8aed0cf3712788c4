"""
Schema values: custom objects as values of CEL, typed by their structural schemas.

Only declared fields exist for expressions. Names that cannot be identifiers are escaped.
"""

import functools
import re
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.cel import cel_types, values

_ESCAPES: Final = {'__': '__underscores__', '.': '__dot__', '-': '__dash__', '/': '__slash__'}
_KEYWORDS: Final = re.compile(
    'true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|'
    'namespace|return|var|void|while'
)
_IDENTIFIER: Final = re.compile(r'[A-Za-z_][A-Za-z0-9_./-]*')
_TEXT: Final[Mapping[str, Any]] = {'type': 'string'}
_META: Final[Mapping[str, Any]] = {
    'type': 'object',
    'properties': {'name': _TEXT, 'generateName': _TEXT},
}
_STRINGS: Final = {
    'byte': cel_types.BYTES,
    'duration': cel_types.DURATION,
    'date': cel_types.TIMESTAMP,
    'date-time': cel_types.TIMESTAMP,
}
_SCALARS: Final = {
    'boolean': cel_types.BOOL,
    'integer': cel_types.INT,
    'number': cel_types.DOUBLE,
}

Raw = Mapping[str, Any]


@functools.lru_cache(maxsize=4096)
def escape(name: str) -> str:
    """Return the name of a field in expressions; empty if it has none."""
    if _KEYWORDS.fullmatch(name):
        return f'__{name}__'
    if not _IDENTIFIER.fullmatch(name):
        return ''
    return re.sub(r'__|[./-]', lambda match: _ESCAPES[match[0]], name)


def list_properties(raw: Raw, *, is_resource: bool) -> dict[str, Raw]:
    """Return the schemas of fields; resources have their kind, version and name anyway."""
    properties = dict(raw.get('properties') or {})
    if not is_resource:
        return properties
    return {**properties, 'apiVersion': _TEXT, 'kind': _TEXT, 'metadata': _META}


def build_type(raw: Raw, *, is_root: bool = False) -> cel_types.Type | None:
    """Return the type of values of a schema; ``None`` if expressions cannot use them."""
    if raw.get('x-kubernetes-int-or-string'):
        return cel_types.DYN

    kind = raw.get('type')
    if kind == 'array':
        item = build_type(raw['items']) if isinstance(raw.get('items'), Mapping) else None
        return None if item is None else cel_types.list_of(item)

    if kind == 'object':
        return _build_object(raw, is_resource=is_resource(raw, is_root=is_root))
    if kind == 'string':
        return _STRINGS.get(str(raw.get('format') or ''), cel_types.STRING)

    found = _SCALARS.get(str(kind))
    return cel_types.DYN if found is None and not kind else found


def is_resource(raw: Raw, *, is_root: bool) -> bool:
    return is_root or bool(raw.get('x-kubernetes-embedded-resource'))


def _build_object(raw: Raw, *, is_resource: bool) -> cel_types.Type | None:
    additional = raw.get('additionalProperties')
    if isinstance(additional, Mapping):
        value = build_type(additional)
        return None if value is None else cel_types.map_of(cel_types.STRING, value)

    fields: dict[str, cel_types.Type] = {}
    for name, child in list_properties(raw, is_resource=is_resource).items():
        kind = build_type(child)
        escaped = escape(name)
        if kind is not None and escaped:
            fields[escaped] = kind

    return cel_types.object_of('object', fields)


def build_value(value: Any, raw: Raw, *, is_root: bool = False) -> Any:
    """Return a value for expressions."""
    if value is None or raw.get('x-kubernetes-int-or-string'):
        return value
    if isinstance(value, list):
        return _build_list(value, raw)
    if isinstance(value, Mapping):
        return _build_fields(value, raw, is_resource=is_resource(raw, is_root=is_root))
    if raw.get('type') == 'number' and values.is_number(value):
        return float(value)
    if isinstance(value, str):
        return _build_text(value, str(raw.get('format') or ''))
    return value


def _build_text(value: str, form: str) -> Any:
    from kopf._sandbox.cel import operators

    try:
        if form == 'duration':
            return operators.parse_duration(value)
        if form in ('date', 'date-time'):
            return operators.parse_timestamp(value if 'T' in value else f'{value}T00:00:00Z')
    except values.EvaluationError:
        return value

    return value.encode() if form == 'byte' else value


def _build_list(value: list[Any], raw: Raw) -> list[Any]:
    items = raw.get('items')
    made = [build_value(item, items if isinstance(items, Mapping) else {}) for item in value]
    match raw.get('x-kubernetes-list-type'):
        case 'set':
            return values.SetList(made)
        case 'map':
            return values.MapList(made, raw.get('x-kubernetes-list-map-keys') or ())
        case _:
            return made


def _build_fields(value: Mapping[str, Any], raw: Raw, *, is_resource: bool) -> dict[str, Any]:
    additional = raw.get('additionalProperties')
    if isinstance(additional, Mapping):
        return {key: build_value(item, additional) for key, item in value.items()}
    if 'type' not in raw:
        return dict(value)
    return {
        escape(name): build_value(value[name], child)
        for name, child in list_properties(raw, is_resource=is_resource).items()
        if name in value and escape(name)
    }
