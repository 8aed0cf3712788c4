"""
Structural schemas: the rules that make the schemas in CRDs usable for pruning and defaulting.

The schema itself must define the structure of objects: types are specified for everything, while
``allOf``, ``anyOf``, ``oneOf``, ``not`` only restrict the values of known fields.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.apiextensions import jsonschemas
from kopf._sandbox.meta import errors
from kopf._sandbox.schema import patterns

Raw = Mapping[str, Any]
Problems = Iterator[errors.FieldError]

ROOT: Final = 'at the root'
ITEM: Final = 'for specified array items'
FIELD: Final = 'for specified object fields'
"""The levels of schemas, as they are named in the messages."""

_EMBEDDED: Final = 'x-kubernetes-embedded-resource'
_INT_OR_STRING: Final = 'x-kubernetes-int-or-string'
_PRESERVE: Final = 'x-kubernetes-preserve-unknown-fields'
_NEITHER_INT_NOR_STRING: Final = 'must be false if x-kubernetes-int-or-string is true'
_OBJECT_IF_EMBEDDED: Final = 'must be object if x-kubernetes-embedded-resource is true'

_UNSUPPORTED: Final = {
    'id': 'id',
    '$schema': 'schema',
    '$ref': '$ref',
    'patternProperties': 'patternProperties',
    'dependencies': 'dependencies',
    'additionalItems': 'additionalItems',
    'definitions': 'definitions',
}
_FORBIDDEN_IN_OPTIONS: Final = {
    'type': 'empty',
    'default': 'undefined',
    'title': 'empty',
    'description': 'empty',
    'nullable': 'false',
    _PRESERVE: 'false',
    _EMBEDDED: 'false',
    _INT_OR_STRING: 'false',
    'x-kubernetes-list-map-keys': 'empty',
    'x-kubernetes-list-type': 'undefined',
    'x-kubernetes-map-type': 'undefined',
    'x-kubernetes-validations': 'empty',
}
_IGNORED: Final = frozenset(('externalDocs', 'example'))
_METADATA_FREEDOM: Final = frozenset(('type', 'default', 'properties', *_IGNORED))
_METADATA_FIELDS: Final = frozenset(('name', 'generateName'))


def find_unsupported(raw: Raw) -> str | None:
    """Return the API's message about the first feature that structural schemas cannot express."""
    for key, name in _UNSUPPORTED.items():
        if raw.get(key) is not None and raw[key] not in ('', {}):
            return f"OpenAPIV3Schema '{name}' is not supported"

    if isinstance(raw.get('items'), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if raw.get(_PRESERVE) is False:
        return f"internal error: '{_PRESERVE}' must be true or undefined"
    return next(
        filter(None, (find_unsupported(child) for _, child in jsonschemas.iterate_children(raw))),
        None,
    )


def check_structure(raw: Raw, path: str) -> list[errors.FieldError]:
    """Return all violations of the structure in a whole schema, in the order of the API."""
    problems = [*_check_node(raw, ROOT, path), *_check_completeness(raw, raw, path, path)]
    return sorted(problems, key=str)


def _check_node(raw: Raw, level: str, path: str) -> Problems:
    items = raw.get('items')
    additional = raw.get('additionalProperties')
    if raw.get('type') == 'array' and items is None:
        yield errors.required(f'{path}.items', 'must be specified')
    if items is not None:
        yield from _check_node(items, ITEM, f'{path}.items')
    for name, child in (raw.get('properties') or {}).items():
        yield from _check_node(child, FIELD, f'{path}.properties[{name}]')
    if additional is not None and level is ROOT:
        yield errors.forbidden_field(f'{path}.additionalProperties', 'must not be used at the root')
    if isinstance(additional, Mapping):
        yield from _check_node(additional, FIELD, f'{path}.additionalProperties')
    if raw.get(_INT_OR_STRING):
        for name in (_PRESERVE, _EMBEDDED):
            if raw.get(name):
                yield errors.invalid_value(f'{path}.{name}', True, _NEITHER_INT_NOR_STRING)

    yield from _check_options(raw, path, skipping=True)
    yield from _check_type(raw, level, path)
    yield from _check_meta_fields(raw, level, path)


def _check_type(raw: Raw, level: str, path: str) -> Problems:
    kind = raw.get('type') or ''
    if raw.get(_EMBEDDED):
        yield from _check_embedded(raw, path)
    elif not kind and not _is_typeless(raw):
        yield errors.required(f'{path}.type', f'must not be empty {level}')
    if level is ROOT and kind not in ('', 'object'):
        yield errors.invalid_value(f'{path}.type', kind, 'must be object at the root')


def _is_typeless(raw: Raw) -> bool:
    """Return whether the values may be of various types, so that none is specified."""
    return bool(raw.get(_INT_OR_STRING) or raw.get(_PRESERVE))


def _check_embedded(raw: Raw, path: str) -> Problems:
    kind = raw.get('type') or ''
    if not kind:
        yield errors.required(f'{path}.type', _OBJECT_IF_EMBEDDED)
    elif kind != 'object':
        yield errors.invalid_value(f'{path}.type', kind, _OBJECT_IF_EMBEDDED)

    if raw.get('additionalProperties') is not None:
        why = 'must not be used if x-kubernetes-embedded-resource is set'
        yield errors.forbidden_field(f'{path}.additionalProperties', why)

    if not raw.get(_PRESERVE) and not raw.get('properties'):
        why = (
            'must not be empty if x-kubernetes-embedded-resource is true '
            'without x-kubernetes-preserve-unknown-fields'
        )
        yield errors.required(f'{path}.properties', why)


def _check_meta_fields(raw: Raw, level: str, path: str) -> Problems:
    if level is not ROOT and not raw.get(_EMBEDDED):
        return

    properties = raw.get('properties') or {}
    for name, kind in (('kind', 'string'), ('apiVersion', 'string'), ('metadata', 'object')):
        if name in properties and properties[name].get('type') != kind:
            found = properties[name].get('type') or ''
            yield errors.invalid_value(f'{path}.properties[{name}].type', found, f'must be {kind}')

    if (
        level is ROOT
        and 'metadata' in properties
        and not _is_plain_metadata(properties['metadata'])
    ):
        why = (
            'must not specify anything other than name and generateName, but metadata is '
            'implicitly specified'
        )
        yield errors.forbidden_field(f'{path}.properties[metadata]', why)


def _is_plain_metadata(raw: Raw) -> bool:
    set_fields = {field.name for field in jsonschemas.FIELDS if jsonschemas.has_value(raw, field)}
    return set_fields <= _METADATA_FREEDOM and set(raw.get('properties') or ()) <= _METADATA_FIELDS


def _is_int_or_string(options: Any) -> bool:
    plain = [
        {key: value for key, value in option.items() if key not in _IGNORED}
        for option in options or ()
    ]
    return plain == [{'type': 'integer'}, {'type': 'string'}]


def _check_options(raw: Raw, path: str, *, skipping: bool) -> Problems:
    """Check the restrictions of values; with ``skipping``, allow "an integer or a string"."""
    is_usual = skipping and _is_int_or_string(raw.get('anyOf'))
    if not is_usual:
        yield from _check_alternatives(raw, 'anyOf', path)
    for index, option in enumerate(raw.get('allOf') or ()):
        is_usual = skipping and index == 0 and _is_int_or_string(option.get('anyOf'))
        yield from _check_option(option, f'{path}.allOf[{index}]', skipping=is_usual)

    yield from _check_alternatives(raw, 'oneOf', path)
    if raw.get('not') is not None:
        yield from _check_option(raw['not'], f'{path}.not')
    if raw.get('pattern'):
        yield from _check_pattern(raw['pattern'], f'{path}.pattern')


def _check_alternatives(raw: Raw, name: str, path: str) -> Problems:
    for index, option in enumerate(raw.get(name) or ()):
        yield from _check_option(option, f'{path}.{name}[{index}]')


def _check_pattern(pattern: str, path: str) -> Problems:
    try:
        patterns.compile_pattern(pattern)
    except patterns.PatternError as e:
        why = f"must be a valid regular expression, but isn't: {e}"
        yield errors.invalid_value(path, pattern, why)


def _check_option(raw: Raw, path: str, *, skipping: bool = False) -> Problems:
    yield from _check_options(raw, path, skipping=skipping)
    if raw.get('items') is not None:
        yield from _check_option(raw['items'], f'{path}.items')
    for name, child in (raw.get('properties') or {}).items():
        yield from _check_option(child, f'{path}.properties[{name}]')
    if raw.get('additionalProperties') not in (None, False):
        yield errors.forbidden_field(
            f'{path}.additionalProperties', 'must be undefined to be structural'
        )

    for name, wanted in _FORBIDDEN_IN_OPTIONS.items():
        if raw.get(name) not in (None, False, '', []) or (
            name == 'default' and raw.get(name) is not None
        ):
            yield errors.forbidden_field(f'{path}.{name}', f'must be {wanted} to be structural')

    if 'metadata' in (raw.get('properties') or {}):
        yield errors.forbidden_field(
            f'{path}.properties[metadata]', 'must not be specified in a nested context'
        )


def _check_completeness(raw: Raw, schema: Raw | None, option_path: str, path: str) -> Problems:
    """Check that the restrictions mention only the fields that the schema defines."""
    for name in ('allOf', 'anyOf', 'oneOf'):
        for index, option in enumerate(raw.get(name) or ()):
            yield from _check_option_completeness(
                option, schema, f'{option_path}.{name}[{index}]', path
            )

    if raw.get('not') is not None:
        yield from _check_option_completeness(raw['not'], schema, f'{option_path}.not', path)


def _check_option_completeness(
    raw: Raw, schema: Raw | None, option_path: str, path: str
) -> Problems:
    if schema is None:
        yield errors.required(path, f'because it is defined in {option_path}')
        return

    yield from _check_completeness(raw, schema, option_path, path)
    if raw.get('items') is not None:
        items = schema.get('items')
        yield from _check_option_completeness(
            raw['items'], items, f'{option_path}.items', f'{path}.items'
        )

    known = schema.get('properties') or {}
    for name, child in (raw.get('properties') or {}).items():
        inner = f'.properties[{name}]'
        yield from _check_option_completeness(
            child, known.get(name), option_path + inner, path + inner
        )
