"""
Conversions: read values of users' types from raw objects, and write them back.

A codec is made once per type, and is kept. The libraries are loaded when the first codec is made:
msgspec, which is an extra, or pydantic, if the type is made with it.
"""

import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from kopf._cogs.codecs import fields, resource_types

_NAMINGS: dict[type, resource_types.Naming] = {}
"""The classes that are parts of declared resources, with the naming of their fields."""

OWN_FIELDS: Final = ('metadata', 'meta', 'api_version', 'apiVersion', 'kind')
"""The fields of classes of whole objects that every object has: they are not converted."""


class MisfitError(ValueError):
    """A raw value does not fit its type: where it differs, and what is expected there."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f'{path}: {problem}' if path else problem)
        self.path = path
        self.problem = problem

    def within(self, parent: str) -> 'MisfitError':
        """Return the same error with the path from the outer value."""
        glue = '' if not self.path or self.path.startswith('[') else '.'
        return MisfitError(f'{parent}{glue}{self.path}', self.problem)


class Codec(Protocol):
    """The conversions of one type."""

    def load(self, raw: Any) -> Any:
        """Read a value of the type. Raises `MisfitError`."""

    def dump(self, value: Any) -> Any:
        """Return a JSON-like value with the names of the API."""

    def describe(self) -> dict[str, Any]:
        """Return the schema of the type: JSON schema 2020-12, with the names of the API."""


def is_class(annotation: Any) -> bool:
    """
    Return whether raw values can be converted to this class because of an annotation alone.

    For dicts with types, that would change existing functions: they must be parts of a declared
    resource.
    """
    cls = fields.unwrap_optional(annotation)
    flavor = fields.find_flavor(cls)
    if flavor is None or getattr(cls, '__module__', '').partition('.')[0] == 'kopf':
        return False
    return flavor is not fields.Flavor.TYPED_DICT or cls in _NAMINGS


def find_naming(annotation: Any) -> resource_types.Naming:
    """Return the naming of the fields of a class: that of its resource, or camelCase."""
    cls = fields.unwrap_optional(annotation)
    declared = resource_types.find_declaration(cls)
    return declared.naming if declared is not None else _NAMINGS.get(cls, 'camel')


def set_naming(cls: type, naming: resource_types.Naming) -> None:
    """Remember the naming of a class and of all classes inside of it."""
    flavor = fields.find_flavor(cls)
    if flavor is None or _NAMINGS.get(cls) == naming:
        return
    _NAMINGS[cls] = naming
    for field in fields.list_fields(cls, flavor, naming):
        for inner in _iterate_classes(field.annotation):
            set_naming(inner, naming)


def _iterate_classes(annotation: Any) -> typing.Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _iterate_classes(argument)


def get_codec(annotation: Any, naming: resource_types.Naming | None = None) -> Codec:
    """
    Return the codec of a type, e.g. of ``Spec | None``.

    Raises `DeclarationError`, a `TypeError`, if the type cannot be expressed in the API;
    `NameError` if it refers to names that are not defined yet; `MissingLibraryError`.
    """
    return _make_codec(annotation, naming if naming is not None else find_naming(annotation))


@functools.cache
def _make_codec(annotation: Any, naming: resource_types.Naming) -> Codec:
    cls = fields.unwrap_optional(annotation)
    if fields.find_flavor(cls) is fields.Flavor.PYDANTIC:
        from kopf._cogs.codecs import pydantic_codecs

        return pydantic_codecs.PydanticCodec(annotation, naming)

    try:
        from kopf._cogs.codecs import msgspec_codecs
    except ImportError as error:
        raise resource_types.MissingLibraryError(
            f'The class {getattr(cls, "__name__", cls)} needs the library msgspec, which is not '
            f'installed. Install it (pip install msgspec), or make the class a model of pydantic.'
        ) from error

    return msgspec_codecs.MsgspecCodec(annotation, naming)


class ObjectCodec:
    """The conversions of whole objects: their parts are converted each on its own."""

    def __init__(self, cls: type, naming: resource_types.Naming) -> None:
        flavor = fields.find_flavor(cls)
        assert flavor is not None
        self._make: Callable[..., Any] = dict if flavor is fields.Flavor.TYPED_DICT else cls
        listed = fields.list_fields(cls, flavor, naming)
        self.parts = [field for field in listed if field.name not in OWN_FIELDS]
        self._own = [field for field in listed if field.name in OWN_FIELDS]
        self._codecs = {field.name: get_codec(field.annotation, naming) for field in self.parts}

    def load(self, raw: Mapping[str, Any], metadata: Any = None) -> Any:
        """Read an object; its metadata is given as it should be seen. Raises `MisfitError`."""
        given = {}
        for field in self.parts:
            value = raw.get(field.wire)
            if value is not None or field.make_default is None:
                # The API drops empty stanzas.
                given[field.argument] = self._load_part(field, {} if value is None else value)

        own = {'api_version': raw.get('apiVersion'), 'apiVersion': raw.get('apiVersion')}
        own |= {'metadata': metadata, 'meta': metadata, 'kind': raw.get('kind')}
        for field in self._own:
            given[field.argument] = own[field.name]
        return self._make(**given)

    def _load_part(self, field: fields.Field, value: Any) -> Any:
        try:
            return self._codecs[field.name].load(value)
        except MisfitError as error:
            raise error.within(field.wire) from error.__cause__

    def dump(self, value: Any) -> dict[str, Any]:
        """Return the parts of the object, without its metadata."""
        raw = {}
        for field in self.parts:
            part = value.get(field.name) if isinstance(value, dict) else getattr(value, field.name)
            if part is not None:
                raw[field.wire] = self._codecs[field.name].dump(part)
        return raw

    def describe_parts(self) -> dict[str, dict[str, Any]]:
        """Return the JSON schemas of the parts."""
        return {field.wire: self._codecs[field.name].describe() for field in self.parts}


@functools.cache
def get_object_codec(cls: type) -> ObjectCodec:
    """Return the codec of a class of whole objects."""
    return ObjectCodec(cls, find_naming(cls))


def to_patch(value: Any, cls: Any = None) -> Any:
    """
    Return a value of a class as it is in patches: with the names of the API, and with simple types.

    Fields that are ``None`` are removed from objects by such patches. For dicts with types, the
    class must be given.
    """
    return dump(value) if cls is None else get_codec(cls).dump(value)


def dump(value: Any) -> Any:
    """Return a JSON-like value of an instance of a class; plain values are returned as they are."""
    cls: Any = type(value)
    if fields.find_flavor(cls) is None:
        return value
    if resource_types.find_declaration(cls) is not None:
        return get_object_codec(cls).dump(value)
    return get_codec(cls).dump(value)
