"""
Shadows: the types by which msgspec reads and describes the values of users' types.

The users' classes are not made for the API: their fields have names of Python, restrictions that
only we understand, durations. For each class, a ``msgspec.Struct`` is made beside it, with the
names of the API and with everything that msgspec must know. A raw value is read as the shadow,
which checks it entirely, and is then turned into the user's class. The schemas are those of the
shadows, too: so, what the server accepts and what Python accepts follow from one definition.

Everything that cannot be expressed is refused with the path of the field and with a way out.
"""

import collections.abc
import datetime
import decimal
import enum
import itertools
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, NoReturn, Union

import msgspec
import typing_extensions

from kopf._cogs.codecs import fields, go_durations, markers, resource_types

Convert = Callable[[Any], Any]

SCALARS: Final = (str, int, float, bool, decimal.Decimal, uuid.UUID, datetime.date)
LISTS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
}
SETS: Final = (set, frozenset, collections.abc.Set)
DICTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

_HINT_TUPLE: Final = 'Use a list, or a class with named fields.'
_HINT_UNION: Final = (
    'Use one class with optional fields, or structs with tags: class A(msgspec.Struct, tag=True).'
)
_HINT_RECURSIVE: Final = (
    'The schemas of the API are finite: annotate it as dict[str, Any], which keeps any content.'
)
_HINT_KEY: Final = 'The keys of mappings in the API are strings: use dict[str, ...].'
_HINT_PYDANTIC: Final = 'Make the outer class a pydantic model, too, or the inner one a dataclass.'
_HINT_OTHER: Final = (
    'Use simple types, lists, dicts, dataclasses; or Any, for values that are not checked.'
)

_numbers = itertools.count(1)

_extras: dict[str, dict[str, Any]] = {}
"""What the schemas of whole shadows have in addition, by the names of the shadows."""


class Plan(NamedTuple):
    """How values of a type are read and written; ``None`` is for values that stay as they are."""

    type: Any
    load: Convert | None = None
    dump: Convert | None = None
    is_scalar: bool = False


def build_plan(annotation: Any, path: str, naming: resource_types.Naming) -> Plan:
    """
    Make the shadow of a type. Raises `DeclarationError` if it cannot be expressed in the API, and
    `NameError` if annotations refer to what is not defined yet.
    """
    return _Builder(naming).plan(annotation, path)


def refuse(path: str, what: str, hint: str) -> NoReturn:
    """Raise the error about a field."""
    raise resource_types.DeclarationError(f'{path}: {what}. {hint}')


class _Builder:
    """The making of shadows for the types inside of one type."""

    def __init__(self, naming: resource_types.Naming) -> None:
        self._naming = naming
        self._plans: dict[type, Plan] = {}
        self._path: list[type] = []

    def plan(self, annotation: Any, path: str) -> Plan:
        annotation = _resolve_alias(annotation)
        origin = typing.get_origin(annotation)
        if origin is Annotated:
            return self._plan_annotated(annotation, path)
        if fields.is_union(annotation):
            return self._plan_union(annotation, path)
        if origin is Literal:
            return Plan(annotation, is_scalar=True)
        if annotation in (tuple, collections.abc.Iterable) or origin is tuple:
            return self._plan_tuple(annotation, path)
        if (origin or annotation) in LISTS:
            return self._plan_list(annotation, path)
        if (origin or annotation) in DICTS:
            return self._plan_dict(annotation, path)
        return self._plan_class(annotation, path)

    def _plan_class(self, cls: Any, path: str) -> Plan:
        if cls is Any or cls is object:
            return Plan(Any)
        if cls in (None, type(None)):
            return Plan(None)
        if cls is datetime.timedelta:
            return _DURATION
        if cls is datetime.datetime:
            return Plan(Annotated[datetime.datetime, msgspec.Meta(tz=True)], is_scalar=True)

        flavor = fields.find_flavor(cls)
        if flavor is fields.Flavor.PYDANTIC:
            refuse(path, f'{cls.__name__} is a model of pydantic inside of others', _HINT_PYDANTIC)
        if flavor is not None:
            return self._plan_object(cls, flavor, path)

        if isinstance(cls, type) and issubclass(cls, tuple):
            refuse(path, 'tuples with different items do not exist in the API', _HINT_TUPLE)
        if cls is bytes or (isinstance(cls, type) and issubclass(cls, (enum.Enum, *SCALARS))):
            return Plan(cls, is_scalar=True)

        refuse(path, f'{_name(cls)} does not exist in the API', _HINT_OTHER)

    def _plan_annotated(self, annotation: Any, path: str) -> Plan:
        base, *metadata = typing.get_args(annotation)
        known = [item for item in metadata if isinstance(item, markers._Marker)]
        schemas = [item for item in known if isinstance(item, markers.Schema)]
        inner = _INT_OR_STRING if any(s.int_or_string for s in schemas) else self.plan(base, path)
        metas = [item for item in metadata if isinstance(item, msgspec.Meta)]

        for schema in schemas:
            if schema.list_limits():
                metas.append(msgspec.Meta(**_adjust(schema.list_limits(), inner.type)))

        extras: dict[str, Any] = {}
        for item in known:
            extras = markers.merge_extras(extras, item.list_extras())
        metas += [msgspec.Meta(extra_json_schema=extras)] if extras else []
        return inner._replace(type=_annotate(inner.type, metas, path))

    def _plan_union(self, annotation: Any, path: str) -> Plan:
        args = typing.get_args(annotation)
        rest = [arg for arg in args if arg is not type(None)]
        plan = self._plan_options(rest, path)
        if len(rest) == len(args):
            return plan

        load = _skip_none(plan.load)
        dump = _skip_none(plan.dump)
        shadow = _unite([plan.type, None])

        # In unions, msgspec ignores what is added to the schemas of the options.
        return Plan(_add_extras(shadow, _list_extras(plan.type)), load, dump, plan.is_scalar)

    def _plan_options(self, options: list[Any], path: str) -> Plan:
        if len(options) == 1:
            return self.plan(options[0], path)
        if set(options) == {int, str}:
            return _INT_OR_STRING
        if set(options) == {int, float}:
            return Plan(float, is_scalar=True)
        if all(typing.get_origin(option) is Literal for option in options):
            return Plan(_unite(options), is_scalar=True)

        if not all(
            getattr(getattr(cls, '__struct_config__', None), 'tag', None) for cls in options
        ):
            refuse(path, f'the API cannot tell {_name_all(options)} from each other', _HINT_UNION)

        plans = {cls: self.plan(cls, path) for cls in options}
        loads = {_get_class(plan.type): plan.load for plan in plans.values()}
        dumps = {cls: plan.dump for cls, plan in plans.items()}
        joined = _unite([plan.type for plan in plans.values()])

        return Plan(joined, _dispatch(loads), _dispatch(dumps))

    def _plan_tuple(self, annotation: Any, path: str) -> Plan:
        args = typing.get_args(annotation)
        if len(args) != 2 or args[1] is not Ellipsis:
            refuse(path, 'tuples with different items do not exist in the API', _HINT_TUPLE)
        item = self.plan(args[0], f'{path}[]')
        load = _convert_items(item.load, tuple)
        return Plan(list[item.type], load, _convert_items(item.dump, list))  # type: ignore[name-defined]

    def _plan_list(self, annotation: Any, path: str) -> Plan:
        origin = typing.get_origin(annotation) or annotation
        (of_items,) = typing.get_args(annotation) or (Any,)
        item = self.plan(of_items, f'{path}[]')
        made = LISTS[origin]
        if origin in SETS and not item.is_scalar:
            refuse(path, 'sets in the API have only simple items', 'Use a list.')
        # Sets of what cannot be hashed before it is converted are read as lists.
        read = list if made is list or item.load is not None else made
        load = _convert_items(item.load, made)
        shadow: Any = read[item.type]  # type: ignore[index]

        if origin in SETS:
            extras = {'x-kubernetes-list-type': 'set'}
            shadow = Annotated[shadow, msgspec.Meta(extra_json_schema=extras)]

        return Plan(shadow, load, _convert_items(item.dump, list))

    def _plan_dict(self, annotation: Any, path: str) -> Plan:
        key, value = typing.get_args(annotation) or (str, Any)
        if _resolve_alias(key) is not str and not _is_string_enum(key):
            refuse(path, f'the keys are {_name(key)}', _HINT_KEY)
        if _resolve_alias(value) is Any:
            return Plan(dict[str, Any])
        item = self.plan(value, f'{path}{{}}')
        load = _convert_values(item.load)
        dump = _convert_values(item.dump)

        return Plan(dict[key, item.type], load, dump)  # type: ignore[valid-type, name-defined]

    def _plan_object(self, cls: type, flavor: fields.Flavor, path: str) -> Plan:
        if cls in self._plans:
            return self._plans[cls]

        if cls in self._path:
            refuse(path, f'{cls.__name__} contains itself', _HINT_RECURSIVE)
        self._path.append(cls)
        listed = fields.list_fields(cls, flavor, self._naming)
        _check_names(cls, listed)
        plans = {field.name: self.plan(field.annotation, _join(cls, field)) for field in listed}
        self._path.pop()
        shadow = _make_shadow(cls, listed, plans)
        load = _make_load(cls, flavor, listed, plans)
        dump = _make_dump(cls, flavor, listed, plans)
        plan = self._plans[cls] = Plan(shadow, load, dump)

        return plan


def _make_shadow(cls: Any, listed: list[fields.Field], plans: Mapping[str, Plan]) -> Any:
    """Make the struct with the names of the API; what is omitted there stays unset."""
    docs = fields.read_field_docstrings(cls)
    config = getattr(cls, '__struct_config__', None)
    definitions: list[Any] = []

    for field in listed:
        extras = {'description': docs[field.name]} if field.name in docs else {}
        extras |= _describe_default(field, plans[field.name])
        shadow = _add_extras(plans[field.name].type, extras)
        if field.make_default is None:
            definitions.append((field.name, shadow))
        else:
            optional = _unite([shadow, msgspec.UnsetType])
            definitions.append((field.name, optional, msgspec.UNSET))

    struct = msgspec.defstruct(
        f'{cls.__name__}_{next(_numbers)}',
        definitions,
        kw_only=True,
        rename={field.name: field.wire for field in listed},
        tag=getattr(config, 'tag', None),
        tag_field=getattr(config, 'tag_field', None),
    )
    doc = fields.read_docstring(cls)
    whole = {'title': cls.__name__, **({'description': doc} if doc else {})}
    for rule in markers.list_rules(cls):
        whole = markers.merge_extras(whole, rule.list_extras())
    _extras[struct.__name__] = whole
    return struct


def describe(shadow: Any) -> dict[str, Any]:
    """Return the JSON schema of a shadow, with what msgspec does not know of the classes."""
    schema = msgspec.json.schema(shadow)
    for name, definition in (schema.get('$defs') or {}).items():
        definition.update(_extras.get(name, {}))
    return schema


def _describe_default(field: fields.Field, plan: Plan) -> dict[str, Any]:
    """Return the default for the schema; ``None`` is the absence of values."""
    if field.make_default is None:
        return {}
    default = field.make_default()
    if default is fields.MISSING or default is None or default is msgspec.UNSET:
        return {}
    return {'default': msgspec.to_builtins(plan.dump(default) if plan.dump else default)}


def _make_load(
    cls: Any, flavor: fields.Flavor, listed: list[fields.Field], plans: Mapping[str, Plan]
) -> Convert:
    unset = msgspec.UNSET
    make = dict if flavor is fields.Flavor.TYPED_DICT else cls
    steps = [(field.name, field.argument, plans[field.name].load) for field in listed]

    def load(shadow: Any) -> Any:
        given = {}
        for name, argument, convert in steps:
            value = getattr(shadow, name)
            if value is not unset:
                given[argument] = value if convert is None else convert(value)
        return make(**given)

    return load


def _make_dump(
    cls: Any, flavor: fields.Flavor, listed: list[fields.Field], plans: Mapping[str, Plan]
) -> Convert:
    unset = msgspec.UNSET
    is_dict = flavor is fields.Flavor.TYPED_DICT
    steps = [(field.name, field.wire, plans[field.name].dump) for field in listed]
    config = getattr(cls, '__struct_config__', None)
    tag = {config.tag_field: config.tag} if config is not None and config.tag_field else {}

    def dump(value: Any) -> dict[str, Any]:
        raw = dict(tag)
        for name, wire, convert in steps:
            item = value.get(name, unset) if is_dict else getattr(value, name)
            if item is not unset:
                raw[wire] = item if convert is None else convert(item)
        return raw

    return dump


def _check_names(cls: type, listed: list[fields.Field]) -> None:
    """Refuse names that are the same in the API."""
    taken: dict[str, str] = {}
    for field in listed:
        other = taken.setdefault(field.wire, field.name)
        if other != field.name:
            what = f'{field.name} and {other} are both {field.wire!r} in the API'
            refuse(_join(cls, field), what, 'Rename one of them.')


def _annotate(base: Any, metas: list[msgspec.Meta], path: str) -> Any:
    """Add the restrictions to the type; refuse those that are not for the type."""
    shadow = base
    for meta in metas:
        shadow = Annotated[shadow, meta]
    try:
        msgspec.inspect.type_info(shadow)
    except TypeError as error:
        problem = str(error).partition(' - type ')[0]
        refuse(path, f'{problem[:1].lower()}{problem[1:]}', 'Remove this option of kopf.Schema.')

    return shadow


def _add_extras(shadow: Any, extras: dict[str, Any]) -> Any:
    """Add what only the schema has; what is given by the author is preferred."""
    given = _list_extras(shadow)
    added = {key: value for key, value in extras.items() if key not in given}
    return Annotated[shadow, msgspec.Meta(extra_json_schema=added)] if added else shadow


def _list_extras(shadow: Any) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for meta in getattr(shadow, '__metadata__', ()):
        given = markers.merge_extras(given, meta.extra_json_schema or {})
    return given


def _adjust(limits: dict[str, Any], base: Any) -> dict[str, Any]:
    """Return the limits; those of integers are integers."""
    if _get_class(fields.unwrap_optional(base)) is not int:
        return limits
    is_whole = {key: isinstance(v, float) and v.is_integer() for key, v in limits.items()}
    return {key: int(value) if is_whole[key] else value for key, value in limits.items()}


def _unite(options: Sequence[Any]) -> Any:
    return Union[tuple(options)]  # noqa: UP007  # made dynamically


def _get_class(shadow: Any) -> Any:
    return shadow.__origin__ if typing.get_origin(shadow) is Annotated else shadow


def _dispatch(converts: Mapping[Any, Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        chosen = converts[type(value)]
        return value if chosen is None else chosen(value)

    return convert


def _skip_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _convert_items(convert: Convert | None, made: Callable[[Any], Any]) -> Convert | None:
    if convert is None:
        return made if made is tuple else None
    return lambda values: made([convert(value) for value in values])


def _convert_values(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda values: {key: convert(value) for key, value in values.items()}


def _resolve_alias(annotation: Any) -> Any:
    """Return what stands behind ``NewType`` and ``type X = ...``."""
    while True:
        if isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif isinstance(annotation, typing_extensions.TypeAliasType):
            annotation = annotation.__value__
        else:
            return annotation


def _is_string_enum(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, str) and issubclass(cls, enum.Enum)


def _join(cls: type, field: fields.Field) -> str:
    return f'{cls.__name__}.{field.name}'


def _name(cls: Any) -> str:
    return cls.__name__ if isinstance(cls, type) else str(cls)


def _name_all(options: list[Any]) -> str:
    return ', '.join(map(_name, options))


_DURATION: Final = Plan(
    Annotated[str, msgspec.Meta(pattern=go_durations.PATTERN)],
    go_durations.parse_duration,
    go_durations.format_duration,
    is_scalar=True,
)
_INT_OR_STRING: Final = Plan(
    Annotated[int | str, msgspec.Meta(extra_json_schema={'x-kubernetes-int-or-string': True})],
    is_scalar=True,
)
