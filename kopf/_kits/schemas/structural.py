"""
Structural schemas: rewrite what Python libraries produce into what CRDs accept.

The input is JSON schema 2020-12 as msgspec and pydantic write it. The output is the structural
dialect of OpenAPI v3: no references, one type for everything, no choices between different objects.
What cannot be rewritten with the same meaning is refused, with the class, the field and a way out.
Pure functions on plain data: no libraries, no classes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from kopf._cogs.codecs import markers

Raw = dict[str, Any]

INT_OR_STRING: Final = 'x-kubernetes-int-or-string'
PRESERVE: Final = 'x-kubernetes-preserve-unknown-fields'
LIST_TYPE: Final = 'x-kubernetes-list-type'

_KEPT: Final = frozenset(
    (
        *('type', 'format', 'description', 'default', 'nullable', 'enum', 'example', 'required'),
        *('minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'),
        *('minLength', 'maxLength', 'pattern', 'minItems', 'maxItems'),
        *('minProperties', 'maxProperties', 'properties', 'additionalProperties', 'items'),
        *('oneOf', INT_OR_STRING, PRESERVE, LIST_TYPE, 'x-kubernetes-list-map-keys'),
        *('x-kubernetes-map-type', 'x-kubernetes-embedded-resource'),
        *(markers.RULES, markers.COLUMN),
    )
)
_DROPPED: Final = frozenset(
    ('$defs', 'title', 'discriminator', 'uniqueItems', 'contentEncoding', 'examples', 'deprecated')
)
_FORMATS: Final = frozenset(
    (
        *('date', 'date-time', 'byte', 'password', 'uri', 'email', 'hostname'),
        *('ipv4', 'ipv6', 'cidr', 'mac', 'uuid', 'int32', 'int64', 'float', 'double'),
    )
)
"""The formats that mean the same for the libraries and for the server."""

_TYPES: Final[Mapping[type, str]] = {
    str: 'string',
    bool: 'boolean',
    int: 'integer',
    float: 'number',
    dict: 'object',
    list: 'array',
}
_SCALARS: Final = ('string', 'boolean', 'integer', 'number')
_REFUSED: Final[Mapping[str, str]] = {
    'prefixItems': 'Tuples do not exist in the API: use a list, or a class with named fields.',
    'patternProperties': 'Keys cannot have patterns in the API: use kopf.Rule for them.',
    'propertyNames': 'Keys cannot be restricted in the API: use kopf.Rule for them.',
    'not': 'Use kopf.Rule to exclude values.',
    'if': 'Use kopf.Rule for conditions.',
    'dependentRequired': 'Use kopf.Rule for conditions.',
}


class SchemaError(TypeError):
    """A schema cannot be expressed in CRDs."""


def rewrite(schema: Mapping[str, Any], path: str) -> Raw:
    """Return the structural schema. Raises `SchemaError` with the path of what is impossible."""
    return _Rewriter(schema.get('$defs') or {}).rewrite(dict(schema), path)


def _refuse(path: str, hint: str) -> NoReturn:
    raise SchemaError(f'{path}: {hint}')


class _Rewriter:
    """The rewriting of one schema with its definitions."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._references: list[str] = []

    def rewrite(self, raw: Raw, path: str) -> Raw:
        depth = len(self._references)
        raw, path = self._inline(raw, path)
        for step in _STEPS:
            step(self, raw, path)
        self._rewrite_children(raw, path)
        del self._references[depth:]
        for key in raw.keys() - _KEPT - _DROPPED:
            _refuse(path, _REFUSED.get(key, f'{key!r} does not exist in the API.'))
        return {key: value for key, value in raw.items() if key in _KEPT}

    def _inline(self, raw: Raw, path: str) -> tuple[Raw, str]:
        """Replace the references by what they refer to; the keys beside them are preferred."""
        while '$ref' in raw:
            name = raw.pop('$ref').rpartition('/')[2]
            target = self._definitions[name]
            title = target.get('title', name)
            if name in self._references:
                hint = 'use dict[str, Any], which keeps any content.'
                _refuse(path, f'{title} contains itself, and schemas of the API are finite: {hint}')
            self._references.append(name)
            raw = markers.merge_extras(dict(target), raw)
            path = title

        if len(raw.get('allOf') or ()) == 1:
            return self._inline({**raw.pop('allOf')[0], **raw}, path)
        return raw, path

    def unite(self, raw: Raw, path: str) -> None:
        """Rewrite the choices between several schemas."""
        key = 'anyOf' if 'anyOf' in raw else 'oneOf'
        if key not in raw or isinstance(raw.get('oneOf'), tuple):
            return

        options = self._flatten(raw.pop(key), path)
        if {'type': 'null'} in options:
            raw['nullable'] = True
        options = [option for option in options if option != {'type': 'null'}]
        if raw.get(INT_OR_STRING) or _list_types(options) == {'integer', 'string'}:
            raw[INT_OR_STRING] = True
        elif len(options) == 1:
            raw.update({**self._inline(options[0], path)[0], **raw})
        elif _list_types(options) == {'integer', 'number'}:
            raw['type'] = 'number'
        elif all('enum' in option for option in options):
            raw['enum'] = [value for option in options for value in option['enum']]
        else:
            raw.update({**_hoist(options, path), **raw})

    def _flatten(self, options: Sequence[Raw], path: str) -> list[Raw]:
        """List the options with no references, also those of the options themselves."""
        flat: list[Raw] = []
        for option in options:
            depth = len(self._references)
            inlined, _ = self._inline(dict(option), path)
            inner = inlined.get('anyOf') or inlined.get('oneOf')
            flat += self._flatten(inner, path) if inner else [inlined]
            del self._references[depth:]
            _rewrite_constant(self, inlined, path)

        return flat

    def _rewrite_children(self, raw: Raw, path: str) -> None:
        if 'properties' in raw:
            raw['properties'] = {
                name: self.rewrite(dict(child), f'{path}.{name}')
                for name, child in raw['properties'].items()
            }

        for key, mark in (('items', '[]'), ('additionalProperties', '{}')):
            if isinstance(raw.get(key), Mapping):
                raw[key] = self.rewrite(dict(raw[key]), f'{path}{mark}')


def _list_types(options: Sequence[Raw]) -> set[str | None]:
    return {option.get('type') for option in options}


def _hoist(options: Sequence[Raw], path: str) -> Raw:
    """
    Turn tagged objects into one object with the properties of all.

    What is required depends on the tag, and only that.
    """
    tag = _find_tag(options)
    if tag is None:
        _refuse(
            path,
            'the API cannot tell these objects or values from each other. Use one class with '
            'optional fields, or structs with tags: class A(msgspec.Struct, tag=True).',
        )

    properties: Raw = {}
    for option in options:
        for name, child in option['properties'].items():
            known = properties.setdefault(name, child)
            if name != tag and known != child:
                _refuse(path, f'{name!r} has different types for different tags. Rename it.')

    values = [value for option in options for value in option['properties'][tag]['enum']]
    properties[tag] = {'type': 'string', 'enum': sorted(values)}
    choices = tuple(
        {
            'properties': {tag: {'enum': option['properties'][tag]['enum']}},
            'required': sorted(option['required']),
        }
        for option in options
    )

    return {'type': 'object', 'properties': properties, 'required': [tag], 'oneOf': choices}


def _find_tag(options: Sequence[Raw]) -> str | None:
    """Find the property that is required in all objects, with different constants."""
    if not all('properties' in option for option in options):
        return None

    for name in options[0]['properties']:
        tags = [dict(option['properties'].get(name) or {}) for option in options]
        for option, tag in zip(options, tags, strict=True):
            _rewrite_constant(None, tag, '')
            if 'enum' in tag and name in (option.get('required') or ()):
                option['properties'] = {**option['properties'], name: tag}
        values = [tuple(tag.get('enum') or ()) for tag in tags]
        if all(len(value) == 1 for value in values) and len({*values}) == len(options):
            return str(name)

    return None


def _rewrite_constant(_: object, raw: Raw, path: str) -> None:
    if 'const' in raw:
        raw['enum'] = [raw.pop('const')]


def _rewrite_nullable(_: object, raw: Raw, path: str) -> None:
    """Turn null among the types and values into a flag; the absence of a value is no default."""
    if isinstance(raw.get('type'), list):
        types = [name for name in raw['type'] if name != 'null']
        raw['nullable'] = 'null' in raw['type']
        raw['type'] = types[0] if len(types) == 1 else _refuse(path, f'several types: {types}.')

    if 'enum' in raw:
        # The server accepts no nulls in enumerations, but drops those of fields that are not
        # nullable.
        raw['enum'] = [value for value in raw['enum'] if value is not None]
        raw['nullable'] = False

    if 'default' in raw and raw['default'] is None:
        del raw['default']
    if not raw.get('nullable'):
        raw.pop('nullable', None)


def _rewrite_type(_: object, raw: Raw, path: str) -> None:
    """Deduce the type from the values."""
    if 'enum' in raw and 'type' not in raw:
        types = {_TYPES.get(type(value)) for value in raw['enum'] if value is not None}
        if len(types) != 1:
            _refuse(path, 'its values are of different types. Use values of one type.')
        raw['type'] = types.pop()

    if raw.get(INT_OR_STRING):
        raw.pop('type', None)
    elif raw.get('type') == 'null':
        _refuse(path, 'it has no values but null. Remove it, or give it a type.')
    elif 'type' not in raw:
        raw[PRESERVE] = True


def _rewrite_bounds(_: object, raw: Raw, path: str) -> None:
    """Turn exclusive bounds from numbers into flags."""
    for key, exclusive in (('minimum', 'exclusiveMinimum'), ('maximum', 'exclusiveMaximum')):
        bound = raw.get(exclusive)
        if bound is None or isinstance(bound, bool):
            continue
        stronger = max if key == 'minimum' else min
        if key in raw and stronger(raw[key], bound) != bound:
            del raw[exclusive]
        else:
            raw[key] = bound
            raw[exclusive] = True


def _rewrite_format(_: object, raw: Raw, path: str) -> None:
    """Keep only the formats that the server knows under the same names, and those by authors."""
    if raw.pop('contentEncoding', None) == 'base64':
        raw['format'] = 'byte'
    if 'format' in raw and raw['format'] not in _FORMATS:
        del raw['format']
    if markers.FORMAT in raw:
        raw['format'] = raw.pop(markers.FORMAT)


def _rewrite_object(_: object, raw: Raw, path: str) -> None:
    """Keep the unknown fields where any fields are possible."""
    if raw.get('type') != 'object':
        return

    additional = raw.get('additionalProperties', None if raw.get('properties') else True)
    is_open = additional is True or additional == {}
    if is_open and not raw.get(PRESERVE):
        raw[PRESERVE] = True
    if is_open or not isinstance(additional, Mapping) or raw.get('properties'):
        raw.pop('additionalProperties', None)
    for key in ('required', 'properties'):
        if not raw.get(key):
            raw.pop(key, None)


def _rewrite_list(rewriter: _Rewriter, raw: Raw, path: str) -> None:
    """Give types to the items; lists of unique items are sets if the items are simple."""
    if raw.get('type') != 'array':
        return
    if 'prefixItems' in raw:
        _refuse(path, _REFUSED['prefixItems'])
    if not isinstance(raw.get('items'), Mapping):
        raw['items'] = {}
    if raw.get('uniqueItems') and LIST_TYPE not in raw and raw['items'].get('type') in _SCALARS:
        raw[LIST_TYPE] = 'set'


_STEPS: Final[Sequence[Callable[[_Rewriter, Raw, str], None]]] = (
    _rewrite_constant,
    _Rewriter.unite,
    _rewrite_constant,
    _rewrite_nullable,
    _rewrite_type,
    _rewrite_bounds,
    _rewrite_format,
    _rewrite_object,
    _rewrite_list,
)


def to_plain(schema: Any) -> Any:
    """Return a copy that consists of dicts and lists, to be written as YAML or JSON."""
    if isinstance(schema, Mapping):
        return {key: to_plain(value) for key, value in schema.items()}
    return [to_plain(item) for item in schema] if isinstance(schema, list | tuple) else schema
