"""
JSON schemas as objects: the fields of the schemas in CRDs, with their types.

Values of other types cannot be decoded, so the rest of the code can rely on these types. The API
shows whole schemas in some of its messages, with the field names of its own Go code.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.meta import go_format


class UndecodableError(Exception):
    """A schema has a value of a wrong type; the message is that of the API's decoder."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a schema: its names in JSON and in the API's code, and its type in that code."""

    name: str
    alias: str
    type: str  # string, bool, int64, float64, []string, list, any, and the kinds of nested schemas

    @property
    def is_good(self) -> Callable[[Any], bool]:
        return _TYPES[self.type]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    'string': lambda value: isinstance(value, str),
    '*string': lambda value: isinstance(value, str),
    'bool': lambda value: isinstance(value, bool),
    '*bool': lambda value: isinstance(value, bool),
    '*int64': lambda value: type(value) is int or (isinstance(value, float) and value.is_integer()),
    '*float64': _is_number,
    '[]string': _is_strings,
    '[]v1.JSON': lambda value: isinstance(value, list),
    '*v1.JSON': lambda value: True,
    '[]v1.ValidationRule': lambda value: (
        isinstance(value, list) and all(isinstance(item, dict) for item in value)
    ),
    '*v1.ExternalDocumentation': lambda value: isinstance(value, dict),
    '*v1.JSONSchemaProps': lambda value: isinstance(value, dict),
    '[]v1.JSONSchemaProps': lambda value: isinstance(value, list),
    'map[string]v1.JSONSchemaProps': lambda value: isinstance(value, dict),
    '*v1.JSONSchemaPropsOrArray': lambda value: isinstance(value, dict | list),
    '*v1.JSONSchemaPropsOrBool': lambda value: isinstance(value, dict | bool),
    'v1.JSONSchemaDependencies': lambda value: isinstance(value, dict),
}

FIELDS: Final = (
    Field('id', 'ID', 'string'),
    Field('$schema', 'Schema', 'string'),
    Field('$ref', 'Ref', '*string'),
    Field('description', 'Description', 'string'),
    Field('type', 'Type', 'string'),
    Field('nullable', 'Nullable', 'bool'),
    Field('format', 'Format', 'string'),
    Field('title', 'Title', 'string'),
    Field('default', 'Default', '*v1.JSON'),
    Field('maximum', 'Maximum', '*float64'),
    Field('exclusiveMaximum', 'ExclusiveMaximum', 'bool'),
    Field('minimum', 'Minimum', '*float64'),
    Field('exclusiveMinimum', 'ExclusiveMinimum', 'bool'),
    Field('maxLength', 'MaxLength', '*int64'),
    Field('minLength', 'MinLength', '*int64'),
    Field('pattern', 'Pattern', 'string'),
    Field('maxItems', 'MaxItems', '*int64'),
    Field('minItems', 'MinItems', '*int64'),
    Field('uniqueItems', 'UniqueItems', 'bool'),
    Field('multipleOf', 'MultipleOf', '*float64'),
    Field('enum', 'Enum', '[]v1.JSON'),
    Field('maxProperties', 'MaxProperties', '*int64'),
    Field('minProperties', 'MinProperties', '*int64'),
    Field('required', 'Required', '[]string'),
    Field('items', 'Items', '*v1.JSONSchemaPropsOrArray'),
    Field('allOf', 'AllOf', '[]v1.JSONSchemaProps'),
    Field('oneOf', 'OneOf', '[]v1.JSONSchemaProps'),
    Field('anyOf', 'AnyOf', '[]v1.JSONSchemaProps'),
    Field('not', 'Not', '*v1.JSONSchemaProps'),
    Field('properties', 'Properties', 'map[string]v1.JSONSchemaProps'),
    Field('additionalProperties', 'AdditionalProperties', '*v1.JSONSchemaPropsOrBool'),
    Field('patternProperties', 'PatternProperties', 'map[string]v1.JSONSchemaProps'),
    Field('dependencies', 'Dependencies', 'v1.JSONSchemaDependencies'),
    Field('additionalItems', 'AdditionalItems', '*v1.JSONSchemaPropsOrBool'),
    Field('definitions', 'Definitions', 'map[string]v1.JSONSchemaProps'),
    Field('externalDocs', 'ExternalDocs', '*v1.ExternalDocumentation'),
    Field('example', 'Example', '*v1.JSON'),
    Field('x-kubernetes-preserve-unknown-fields', 'XPreserveUnknownFields', '*bool'),
    Field('x-kubernetes-embedded-resource', 'XEmbeddedResource', 'bool'),
    Field('x-kubernetes-int-or-string', 'XIntOrString', 'bool'),
    Field('x-kubernetes-list-map-keys', 'XListMapKeys', '[]string'),
    Field('x-kubernetes-list-type', 'XListType', '*string'),
    Field('x-kubernetes-map-type', 'XMapType', '*string'),
    Field('x-kubernetes-validations', 'XValidations', '[]v1.ValidationRule'),
)
_BY_NAME: Final = {field.name: field for field in FIELDS}
_LISTED: Final = ('allOf', 'anyOf', 'oneOf')
_MAPPED: Final = ('properties', 'definitions', 'patternProperties')
# A schema or another value.
_SEVERAL: Final = (
    'items',
    'additionalProperties',
    'additionalItems',
)


def check_types(raw: Any, path: str) -> None:
    """Raise `UndecodableError` for the first value of a wrong type in a schema."""
    if not isinstance(raw, Mapping):
        raise UndecodableError(
            f'json: cannot unmarshal {go_format.json_type(raw)} into '
            f'Go struct field JSONSchemaProps.{path} of type v1.JSONSchemaProps'
        )

    for name, value in raw.items():
        field = _BY_NAME.get(name)
        if field is not None and value is not None and not field.is_good(value):
            wanted = field.type.removeprefix('*')
            if isinstance(value, list) and wanted.startswith('[]'):  # the items are wrong
                value = next(item for item in value if not isinstance(item, str))
                wanted = wanted.removeprefix('[]')
            raise UndecodableError(
                f'json: cannot unmarshal {go_format.json_type(value)} into '
                f'Go struct field JSONSchemaProps.{path}.{name} of type {wanted}'
            )

    for name, child in iterate_children(raw):
        check_types(child, f'{path}.{name}')


def iterate_children(raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all schemas directly inside of a schema, each with the name of its field."""
    for name in _LISTED:
        yield from ((name, child) for child in raw.get(name) or ())
    for name in _MAPPED:
        yield from ((name, child) for child in (raw.get(name) or {}).values())
    for name in _SEVERAL:
        nested = raw.get(name)
        yield from (
            (name, child)
            for child in (nested if isinstance(nested, list) else [nested])
            if child is not None and not isinstance(child, bool)
        )

    if raw.get('not') is not None:
        yield 'not', raw['not']


def has_value(raw: Mapping[str, Any], field: Field) -> bool:
    """Return whether a field has a value that differs from its absence."""
    value = raw.get(field.name)
    return value is not None if field.type.startswith('*') else bool(value)


def dump(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema as the API's code represents it."""
    return {field.alias: _dump_field(raw.get(field.name), field) for field in FIELDS}


def _dump_field(value: Any, field: Field) -> Any:
    if value is None:
        return {'string': '', 'bool': False}.get(field.type)
    if field.name in _LISTED:
        return [dump(child) for child in value]
    if field.name in _MAPPED:
        return {name: dump(value[name]) for name in sorted(value)}
    if field.name == 'not':
        return dump(value)

    if field.name == 'items':
        is_list = isinstance(value, list)
        return {
            'Schema': None if is_list else dump(value),
            'JSONSchemas': [dump(child) for child in value] if is_list else None,
        }

    if field.type == '*v1.JSONSchemaPropsOrBool':
        is_bool = isinstance(value, bool)
        return {'Allows': value if is_bool else True, 'Schema': None if is_bool else dump(value)}

    return value
