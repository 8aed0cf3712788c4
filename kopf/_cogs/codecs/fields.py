"""
Fields: what the classes of the users consist of, whichever library they are made with.

Dataclasses, ``msgspec.Struct``, ``TypedDict``, classes of attrs, models of pydantic: each is listed
in the same way. No libraries are loaded: a class is of a library only if that is loaded already.
"""

import ast
import dataclasses
import enum
import inspect
import itertools
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

import typing_extensions

from kopf._cogs.codecs import resource_types

MISSING: Final = object()
"""There is no default: the field is required."""


class Flavor(enum.Enum):
    """How a class with fields is made."""

    DATACLASS = 'a dataclass'
    STRUCT = 'a msgspec.Struct'
    ATTRS = 'a class of attrs'
    TYPED_DICT = 'a TypedDict'
    PYDANTIC = 'a model of pydantic'


class Field(NamedTuple):
    """One field of a class."""

    name: str  # the name in Python
    argument: str  # the name for the constructor
    wire: str  # the name in the API
    annotation: Any
    make_default: Callable[[], Any] | None  # None if it is required
    is_omissible: bool = False  # absent in Python, too, if it is absent in the API


def find_flavor(cls: object) -> Flavor | None:
    """Return how the class is made; ``None`` if it is not a class with fields."""
    if not isinstance(cls, type):
        return None
    if typing.is_typeddict(cls) or typing_extensions.is_typeddict(cls):
        return Flavor.TYPED_DICT

    marks = {
        '__pydantic_core_schema__': Flavor.PYDANTIC,
        '__struct_fields__': Flavor.STRUCT,
        '__attrs_attrs__': Flavor.ATTRS,
        '__dataclass_fields__': Flavor.DATACLASS,
    }
    return next((flavor for mark, flavor in marks.items() if hasattr(cls, mark)), None)


def list_fields(cls: type, flavor: Flavor, naming: resource_types.Naming) -> list[Field]:
    """
    List the fields that have values in the API.

    Raises `NameError` if some annotations refer to what does not exist (yet).
    """
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    return [
        field._replace(wire=_choose_wire_name(field, naming))
        for field in _LISTERS[flavor](cls, hints)
    ]


def _choose_wire_name(field: Field, naming: resource_types.Naming) -> str:
    """Respect the name that is chosen by the author of the class."""
    is_chosen = field.wire != field.name
    is_kept = is_chosen or naming == 'none'
    return field.wire if is_kept else resource_types.make_camel(field.name)


def _list_dataclass(cls: type, hints: Mapping[str, Any]) -> Iterator[Field]:
    for field in dataclasses.fields(cls):
        if field.init:
            make = _choose_factory(field.default, field.default_factory, dataclasses.MISSING)
            yield Field(field.name, field.name, field.name, hints[field.name], make)


def _list_struct(cls: type, hints: Mapping[str, Any]) -> Iterator[Field]:
    structs = sys.modules['msgspec'].structs
    for field in structs.fields(cls):
        none = sys.modules['msgspec'].NODEFAULT
        make = _choose_factory(field.default, field.default_factory, none)
        yield Field(field.name, field.name, field.encode_name, hints[field.name], make)


def _list_attrs(cls: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    attr = sys.modules['attr']
    for field in cls.__attrs_attrs__:
        if not field.init:
            continue
        default = field.default
        factory = attr.NOTHING
        if isinstance(default, attr.Factory):
            default, factory = attr.NOTHING, default.factory
        make = _choose_factory(default, factory, attr.NOTHING)
        yield Field(field.name, field.alias, field.name, hints.get(field.name, Any), make)


def _list_typed_dict(cls: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name, hint in hints.items():
        while typing.get_origin(hint) in _QUALIFIERS:
            hint = typing.get_args(hint)[0]
        is_omissible = name not in cls.__required_keys__
        yield Field(name, name, name, hint, _make_nothing if is_omissible else None, is_omissible)


def _list_pydantic(cls: Any, hints: Mapping[str, Any]) -> Iterator[Field]:
    for name, field in cls.model_fields.items():
        make = None if field.is_required() else _bind(field.get_default, call_default_factory=True)
        yield Field(name, field.alias or name, field.alias or name, hints[name], make)


_QUALIFIERS: Final = (
    typing.Required,
    typing.NotRequired,
    typing_extensions.Required,
    typing_extensions.NotRequired,
    typing_extensions.ReadOnly,
)

_LISTERS: Final[Mapping[Flavor, Callable[[type, Mapping[str, Any]], Iterator[Field]]]] = {
    Flavor.DATACLASS: _list_dataclass,
    Flavor.STRUCT: _list_struct,
    Flavor.ATTRS: _list_attrs,
    Flavor.TYPED_DICT: _list_typed_dict,
    Flavor.PYDANTIC: _list_pydantic,
}


def _choose_factory(default: Any, factory: Any, none: object) -> Callable[[], Any] | None:
    if factory is not none:
        made: Callable[[], Any] = factory
        return made
    return None if default is none else lambda: default


def _bind(fn: Callable[..., Any], **kwargs: Any) -> Callable[[], Any]:
    return lambda: fn(**kwargs)


def _make_nothing() -> Any:
    return MISSING


def read_docstring(cls: type) -> str | None:
    """Return the docstring that the author has written, not one that is generated or inherited."""
    doc = vars(cls).get('__doc__')
    if not isinstance(doc, str) or doc.startswith(f'{cls.__name__}('):
        return None
    return _fold(doc)


def read_field_docstrings(cls: type) -> Mapping[str, str]:
    """Return the texts under the fields in the sources of the class and of its bases, if any."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        texts |= _read_own_docstrings(base)
    return texts


def _read_own_docstrings(cls: type) -> Mapping[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):
        return {}

    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: _fold(text.value.value)
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def _fold(text: str) -> str:
    """Join the lines of the paragraphs; the schemas have no other formatting."""
    paragraphs = inspect.cleandoc(text).split('\n\n')
    return '\n\n'.join(' '.join(paragraph.split()) for paragraph in paragraphs)


def unwrap_optional(annotation: Any) -> Any:
    """Return ``X`` of ``X | None`` and of ``Annotated[X, ...]``, in any combination."""
    origin = typing.get_origin(annotation)
    args = typing.get_args(annotation)
    if origin is Annotated:
        return unwrap_optional(args[0])

    if is_union(annotation):
        rest = [arg for arg in args if arg is not type(None)]
        if len(rest) == 1:
            return unwrap_optional(rest[0])

    return annotation


def is_union(annotation: Any) -> bool:
    """Return whether it is ``X | Y`` or ``Union[X, Y]``."""
    import types

    return typing.get_origin(annotation) in (typing.Union, types.UnionType)
