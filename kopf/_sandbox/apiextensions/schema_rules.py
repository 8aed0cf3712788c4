"""
Rules of schemas: the requirements for the schemas in CRDs besides being structural.

Only a part of JSON Schema is supported, extensions require specific types, and defaults must be
valid values.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.apiextensions import jsonschemas, structural
from kopf._sandbox.cel import availability
from kopf._sandbox.meta import errors, schemas
from kopf._sandbox.schema import pruning, validation

Raw = Mapping[str, Any]
Problems = Iterator[errors.FieldError]

_TYPES: Final = ('array', 'boolean', 'integer', 'number', 'object', 'string')
_REASONS: Final = (
    'FieldValueDuplicate',
    'FieldValueForbidden',
    'FieldValueInvalid',
    'FieldValueRequired',
)
_ROOT_FIELDS: Final = (
    'Description',
    'Type',
    'Format',
    'Title',
    'Maximum',
    'ExclusiveMaximum',
    'Minimum',
    'ExclusiveMinimum',
    'MaxLength',
    'MinLength',
    'Pattern',
    'MaxItems',
    'MinItems',
    'UniqueItems',
    'MultipleOf',
    'Required',
    'Items',
    'Properties',
    'ExternalDocs',
    'Example',
    'XPreserveUnknownFields',
    'XValidations',
)
_UNSUPPORTED: Final = (
    'id',
    'additionalItems',
    'patternProperties',
    'definitions',
    'dependencies',
    '$ref',
)
_UNSUPPORTED_IF_EMPTY: Final = ('dependencies', '$ref')
_LIST_TYPE: Final = 'x-kubernetes-list-type'
_LIST_KEYS: Final = 'x-kubernetes-list-map-keys'
_MAP_TYPE: Final = 'x-kubernetes-map-type'
_RULES: Final = 'x-kubernetes-validations'


def check_schema(raw: Raw, path: str, *, has_status: bool) -> list[errors.FieldError]:
    """Return all problems of a whole schema; its types must be checked already."""
    problems = list(_check_root(raw, path, has_status))
    unsupported = structural.find_unsupported(raw)
    if unsupported is None:
        problems += structural.check_structure(raw, path) or _check_defaults(
            schemas.compile_schema(raw), path
        )

    problems += _check_node(raw, path, _Context(is_root=True))
    if unsupported is not None and not problems:
        problems.append(errors.invalid_value(path, '', unsupported))
    return problems


def _check_root(raw: Raw, path: str, has_status: bool) -> Problems:
    if has_status:
        yield from _check_root_with_status(raw, path)
    if raw.get('nullable'):
        yield errors.forbidden_field(f'{path}.nullable', 'nullable cannot be true at the root')


def _check_root_with_status(raw: Raw, path: str) -> Problems:
    suffix = 'if the status subresource is enabled'
    for field in jsonschemas.FIELDS:
        if field.name == 'type' and raw.get('type') not in (None, '', 'object'):
            why = f'only "object" is allowed as the type at the root of the schema {suffix}'
            yield errors.invalid_value(f'{path}.type', raw['type'], why)
            return
        if jsonschemas.has_value(raw, field) and field.alias not in _ROOT_FIELDS:
            shown = json.dumps(jsonschemas.dump(raw), separators=(',', ':'), ensure_ascii=False)
            why = (
                f'only [{" ".join(_ROOT_FIELDS)}] fields are allowed at the root of the '
                f'schema {suffix}'
            )
            yield errors.FieldError('FieldValueInvalid', path, f'Invalid value: {shown}: {why}')
            return


def _check_defaults(schema: schemas.Schema, path: str) -> Problems:
    """Check the defaults against their own schemas. The values of maps cannot have defaults."""
    default = schema.default
    where = f'{path}.default'
    if default is not schemas.UNSET and default is not None:
        yield from _check_default(default, schema, where)
    if schema.items is not None:
        yield from _check_defaults(schema.items, f'{path}.items')
    for name, child in sorted(schema.properties.items()):
        yield from _check_defaults(child, f'{path}.properties[{name}]')


def _check_default(default: Any, schema: schemas.Schema, path: str) -> Problems:
    wrapper = {'default': pruning.clone(default)}
    try:
        unknown = pruning.prune(wrapper, schemas.Schema(raw={}, properties={'default': schema}))
    except errors.ApiError as e:
        yield errors.invalid_value(path, default, str(e))
        return

    if unknown:
        yield errors.invalid_value(path, default, 'must not have unknown fields')
    yield from validation.validate(default, schema, path)


@dataclasses.dataclass(frozen=True)
class _Context:
    """The position of a node in the schema, as far as it affects the rules."""

    is_root: bool = False
    in_metadata: bool = False
    no_defaults: str = ''  # the reason why defaults are not allowed
    uncorrelatable: str = ''  # the list above whose items have no identity

    def enter(self, name: str, *, is_resource: bool) -> '_Context':
        if not is_resource or name not in pruning.META_FIELDS:
            return dataclasses.replace(self, is_root=False)
        why = f'in top-level {name}' if self.is_root else self.no_defaults
        return dataclasses.replace(self, is_root=False, in_metadata=True, no_defaults=why)

    def enter_map(self) -> '_Context':
        why = (
            'inside additionalProperties applying to object metadata'
            if self.in_metadata
            else self.no_defaults
        )
        return dataclasses.replace(self, is_root=False, no_defaults=why)

    def enter_list(self, raw: Raw, path: str) -> '_Context':
        is_map = raw.get(_LIST_TYPE) == 'map'
        where = self.uncorrelatable or ('' if is_map else path)
        return dataclasses.replace(self, is_root=False, uncorrelatable=where)


def _check_node(raw: Raw, path: str, context: _Context) -> Problems:
    yield from _check_support(raw, path, context)
    yield from _check_children(raw, path, context)
    yield from _check_extensions(raw, path)
    yield from _check_list_map(raw, path)
    yield from _check_list_keys(raw, path)
    yield from _check_rules(raw.get(_RULES) or (), f'{path}.{_RULES}')

    if raw.get(_RULES) and availability.is_available():
        from kopf._sandbox.apiextensions import cel_rules  # CEL is imported only if there are any

        place = cel_rules.Place(context.is_root, context.uncorrelatable)
        yield from cel_rules.check_expressions(raw, path, place)


def _check_support(raw: Raw, path: str, context: _Context) -> Problems:
    kind = raw.get('type')
    if kind and kind not in _TYPES:
        yield errors.not_supported(f'{path}.type', kind, _TYPES)
    if raw.get('default') is not None and context.no_defaults:
        yield errors.forbidden_field(f'{path}.default', f'must not be set {context.no_defaults}')
    for name in _UNSUPPORTED:
        if _has_unsupported(raw, name):
            yield errors.forbidden_field(f'{path}.{name}', f'{name} is not supported')

    for name, why in _find_misused(raw, context):
        yield errors.forbidden_field(f'{path}.{name}', why)


def _has_unsupported(raw: Raw, name: str) -> bool:
    """Return whether an unsupported field is used; most of them are allowed if empty."""
    value = raw.get(name)
    if value is None:
        return False
    return value not in ('', {}) or name in _UNSUPPORTED_IF_EMPTY


def _find_misused(raw: Raw, context: _Context) -> Iterator[tuple[str, str]]:
    """Yield the supported fields with unsupported values, and the reasons."""
    if raw.get('type') == 'null':
        yield 'type', 'type cannot be set to null, use nullable as an alternative'
    if isinstance(raw.get('items'), list):
        yield 'items', 'items must be a schema object and not an array'
    if context.in_metadata and raw.get('x-kubernetes-embedded-resource'):
        yield 'x-kubernetes-embedded-resource', 'must not be used inside of resource meta'
    if raw.get('uniqueItems'):
        why = 'uniqueItems cannot be set to true since the runtime complexity becomes quadratic'
        yield 'uniqueItems', why

    if _restricts_others(raw) and raw.get('properties'):
        yield 'additionalProperties', 'additionalProperties and properties are mutual exclusive'


def _restricts_others(raw: Raw) -> bool:
    """Return whether the schema restricts additional properties."""
    additional = raw.get('additionalProperties')
    return additional is not None and additional is not True


def _check_children(raw: Raw, path: str, context: _Context) -> Problems:
    inner = dataclasses.replace(context, is_root=False)
    if isinstance(raw.get('additionalProperties'), Mapping):
        yield from _check_node(
            raw['additionalProperties'], f'{path}.additionalProperties', context.enter_map()
        )

    is_resource = context.is_root or bool(raw.get('x-kubernetes-embedded-resource'))
    for name, child in sorted((raw.get('properties') or {}).items()):
        yield from _check_node(
            child, f'{path}.properties[{name}]', context.enter(name, is_resource=is_resource)
        )

    if raw.get('not') is not None:
        yield from _check_node(raw['not'], f'{path}.not', inner)
    for name in ('allOf', 'oneOf', 'anyOf'):
        for index, option in enumerate(raw.get(name) or ()):
            yield from _check_node(option, f'{path}.{name}[{index}]', inner)

    items = raw.get('items')
    if isinstance(items, Mapping):
        yield from _check_node(items, f'{path}.items', context.enter_list(raw, path))
    for index, item in enumerate(items if isinstance(items, list) else ()):
        yield from _check_node(item, f'{path}.items[{index}]', inner)


def _check_extensions(raw: Raw, path: str) -> Problems:
    if raw.get('x-kubernetes-preserve-unknown-fields') is False:
        yield errors.invalid_value(
            f'{path}.x-kubernetes-preserve-unknown-fields', False, 'must be true or undefined'
        )

    yield from _check_extension(raw, path, _MAP_TYPE, 'object', ('atomic', 'granular'))
    if (
        raw.get(_LIST_TYPE) == 'set'
        and raw.get('type') == 'array'
        and isinstance(raw.get('items'), Mapping)
    ):
        yield from _check_set_items(raw['items'], f'{path}.items')

    yield from _check_extension(raw, path, _LIST_TYPE, 'array', ('atomic', 'set', 'map'))


def _check_extension(
    raw: Raw, path: str, name: str, kind: str, options: tuple[str, ...]
) -> Problems:
    value = raw.get(name)
    found = raw.get('type')
    if value is None:
        return

    if not found:
        yield errors.required(f'{path}.type', f'must be {kind} if {name} is specified')
    elif found != kind:
        yield errors.invalid_value(f'{path}.type', found, f'must be {kind} if {name} is specified')

    if value not in options:
        yield errors.not_supported(f'{path}.{name}', value, options)


def _check_set_items(raw: Raw, path: str) -> Problems:
    why = 'must be atomic as item of a list with x-kubernetes-list-type=set'
    list_type = raw.get(_LIST_TYPE)
    if raw.get('type') == 'array' and list_type not in (None, 'atomic'):
        yield errors.invalid_value(f'{path}.{_LIST_TYPE}', list_type, why)
    if raw.get('type') == 'object' and raw.get(_MAP_TYPE) != 'atomic':
        yield errors.invalid_value(f'{path}.{_MAP_TYPE}', list_type, why)


def _check_list_map(raw: Raw, path: str) -> Problems:
    list_type = raw.get(_LIST_TYPE)
    keys = raw.get(_LIST_KEYS) or []
    items = raw.get('items')

    if keys and list_type is None:
        yield errors.required(f'{path}.{_LIST_TYPE}', f'must be map if {_LIST_KEYS} is non-empty')
    elif keys and list_type != 'map':
        yield errors.invalid_value(
            f'{path}.{_LIST_TYPE}', list_type, f'must be map if {_LIST_KEYS} is non-empty'
        )

    if list_type != 'map':
        return

    if not keys:
        yield errors.required(f'{path}.{_LIST_KEYS}', f'must not be empty if {_LIST_TYPE} is map')
    if items is None:
        yield errors.required(f'{path}.items', f'must have a schema if {_LIST_TYPE} is map')
    elif isinstance(items, Mapping) and items.get('type') != 'object':
        why = f"must be object if parent array's {_LIST_TYPE} is map"
        yield errors.invalid_value(f'{path}.items.type', items.get('type') or '', why)
    elif isinstance(items, Mapping):
        yield from _check_key_names(keys, items, path)


def _check_key_names(keys: list[str], items: Raw, path: str) -> Problems:
    properties = items.get('properties') or {}
    for index, key in enumerate(keys):
        if key not in properties:
            yield errors.invalid_value(
                f'{path}.{_LIST_KEYS}', keys, 'entries must all be names of item properties'
            )
        elif properties[key].get('type') in ('array', 'object'):
            why = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            yield errors.invalid_value(f'{path}.items.properties[{key}].type', items['type'], why)
        if key in keys[:index]:
            yield errors.invalid_value(
                f'{path}.{_LIST_KEYS}', keys, 'must not contain duplicate entries'
            )


def _check_list_keys(raw: Raw, path: str) -> Problems:
    items = raw.get('items')
    list_type = raw.get(_LIST_TYPE)
    if not isinstance(items, Mapping) or list_type not in ('set', 'map'):
        return

    if items.get('nullable'):
        yield errors.forbidden_field(
            f'{path}.items.nullable', f'cannot be nullable when {_LIST_TYPE} is {list_type}'
        )

    for key in (raw.get(_LIST_KEYS) or ()) if list_type == 'map' else ():
        child = (items.get('properties') or {}).get(key)
        where = f'{path}.items.properties[{key}]'
        if child is None:
            continue
        prefix = f'this property is in {_LIST_KEYS}, so it'
        if key not in (items.get('required') or ()) and child.get('default') is None:
            yield errors.required(
                f'{where}.default', f'{prefix} must have a default or be a required property'
            )
        if child.get('nullable'):
            yield errors.forbidden_field(f'{where}.nullable', f'{prefix} cannot be nullable')


def _check_rules(rules: Any, path: str) -> Problems:
    for index, rule in enumerate(rules):
        text = str(rule.get('rule') or '')
        message = str(rule.get('message') or '')
        if not text.strip():
            yield errors.required(f'{path}[{index}].rule', 'rule is not specified')
        elif message and not message.strip():
            yield errors.invalid_value(
                f'{path}[{index}].message', message, 'must be non-empty if specified'
            )
        elif '\n' in message.strip() or '\r' in message.strip():
            yield errors.invalid_value(
                f'{path}[{index}].message', message, 'must not contain line breaks'
            )
        elif '\n' in text.strip() and not message.strip():
            why = 'message must be specified if rule contains line breaks'
            yield errors.required(f'{path}[{index}].message', why)
        if rule.get('reason') is not None and rule['reason'] not in _REASONS:
            yield errors.not_supported(f'{path}[{index}].reason', rule['reason'], _REASONS)
