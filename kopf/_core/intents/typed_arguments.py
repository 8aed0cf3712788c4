"""
Typed arguments: values of the users' classes for the functions that ask for them by annotations.

``spec: DatabaseSpec`` gets an instance of that class; ``spec`` with any other annotation, or with
none, stays as it is. Nothing is loaded for functions without such annotations, and nothing is done
for their calls. Annotations that refer to unknown names, e.g. to those imported only for type
checkers, are the same as none.
"""

import collections
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kopf._cogs.structs import bodies, dicts, objects, references
from kopf._core.actions import failures

if TYPE_CHECKING:
    from kopf._cogs.codecs import conversions

OBJECT: Final = 'obj'
"""The argument that exists only with such an annotation."""

_STANZAS: Final = ('spec', 'status')
_STATES: Final = ('old', 'new')
_NAMES: Final = (*_STANZAS, 'body', OBJECT, *_STATES)
_PLAIN: Final = frozenset(('kopf', 'builtins', 'typing', 'collections'))
"""The packages whose classes in annotations mean the usual arguments."""

_LIMIT: Final = 10_000
_told: collections.OrderedDict[tuple[Any, str], None] = collections.OrderedDict()
"""The objects that were reported already, with the reports; they are forgotten if too many."""


class TypedArgument(NamedTuple):
    """One argument with the type of its values."""

    name: str
    annotation: Any


class Subject(NamedTuple):
    """The object for which a function is called."""

    body: objects.Body
    resource: references.Resource
    field: dicts.FieldPath | None  # of the handler: the states are those of the field
    is_deleted: bool  # then, what does not fit is given as it is


def find(fn: Callable[..., Any]) -> tuple[TypedArgument, ...]:
    """Find the arguments that are annotated with classes to convert to."""
    return tuple(_iterate(fn))


def check(fn: Callable[..., Any], field: dicts.FieldPath | None, *, is_last: bool = False) -> None:
    """
    Raise `TypeError` if a class cannot be converted to.

    Names that are not defined yet may be defined later, unless it is the last check: then, raise
    `NameError`.
    """
    for argument in find(fn):
        try:
            _get_load(argument, field)
        except NameError:
            if is_last:
                raise


def convert(
    arguments: Sequence[TypedArgument], kwargs: Mapping[str, Any], subject: Subject
) -> dict[str, Any]:
    """
    Return the arguments with the values of the classes.

    Raises `InvalidObjectError` if the object does not fit, unless it is being deleted. A past state
    that does not fit is ``None`` where that is possible.
    """
    from kopf._cogs.codecs import conversions

    converted = dict(kwargs)
    for argument in arguments:
        try:
            converted[argument.name] = _convert(argument, kwargs, subject)
        except conversions.MisfitError as error:
            if argument.name == 'old' and type(None) in _list_options(argument.annotation):
                converted['old'] = None
            elif not subject.is_deleted:
                raise _complain(argument, error, subject) from error
            elif argument.name == OBJECT:
                converted[OBJECT] = subject.body

    return converted


def _iterate(fn: Callable[..., Any]) -> Iterator[TypedArgument]:
    function = _find_function(fn)
    if function is None:
        return

    try:
        annotations = function.__annotations__
    except NameError:  # since Python 3.14, they are evaluated here
        return

    for name in _NAMES:
        annotation = annotations.get(name)
        if isinstance(annotation, str):
            annotation = _evaluate(annotation, function)
        if annotation is not None and not _is_plain(annotation):
            from kopf._cogs.codecs import conversions

            if conversions.is_class(annotation):
                yield TypedArgument(name, annotation)


def _find_function(fn: Callable[..., Any]) -> types.FunctionType | None:
    """Find the function whose annotations are those of the arguments."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, types.MethodType | staticmethod):
        fn = fn.__func__
    if isinstance(fn, types.FunctionType):
        return fn
    call = inspect.getattr_static(type(fn), '__call__', None)
    return call if isinstance(call, types.FunctionType) else None


def _evaluate(text: str, function: types.FunctionType) -> Any:
    """Evaluate an annotation in the module of the function; return ``None`` if it is impossible."""
    inner = getattr(function, '__wrapped__', function)
    module = sys.modules.get(getattr(inner, '__module__', None) or '')
    names = vars(module) if module is not None else {}
    holder = types.SimpleNamespace(__annotations__={'value': text})

    try:
        return typing.get_type_hints(holder, names, include_extras=True)['value']
    except Exception:  # arbitrary code of users
        return None


def _is_plain(annotation: Any) -> bool:
    """Return whether it surely means the usual arguments; this needs no libraries."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_plain, typing.get_args(annotation)))
    cls = annotation if origin is None else origin
    is_known = isinstance(cls, type) and cls.__module__.partition('.')[0] in _PLAIN
    return is_known or cls is Any


def _list_options(annotation: Any) -> tuple[Any, ...]:
    options: tuple[Any, ...] = getattr(annotation, '__args__', ())
    return options


def _convert(argument: TypedArgument, kwargs: Mapping[str, Any], subject: Subject) -> Any:
    load = _get_load(argument, subject.field)
    raw = bodies.unwrap(subject.body)
    if argument.name in _STANZAS:
        value = raw.get(argument.name)
    elif argument.name in _STATES:
        value = kwargs[argument.name]
        value = None if value is None else bodies.unwrap(value)
    else:
        return load(raw, subject.body.metadata)

    if value is None:
        is_optional = type(None) in _list_options(argument.annotation)
        return None if is_optional or argument.name in _STATES else load({}, None)

    return load(value, subject.body.metadata)


@functools.cache
def _get_load(argument: TypedArgument, field: dicts.FieldPath | None) -> Callable[[Any, Any], Any]:
    from kopf._cogs.codecs import conversions, fields, resource_types

    cls = fields.unwrap_optional(argument.annotation)
    declared = resource_types.find_declaration(cls)
    is_part = argument.name in _STANZAS or (argument.name in _STATES and field is not None)
    if is_part and declared is not None:
        raise TypeError(
            f'The argument {argument.name!r} is not a whole {cls.__name__}. Annotate it with the '
            f'class of its content, or add the argument obj: {cls.__name__}.'
        )
    if not is_part:
        return conversions.get_object_codec(cls).load

    codec: conversions.Codec = conversions.get_codec(argument.annotation)
    return lambda raw, metadata: codec.load(raw)


def _complain(
    argument: TypedArgument, error: 'conversions.MisfitError', subject: Subject
) -> failures.InvalidObjectError:
    """Build the error with the full path; remember what was reported for the object."""
    prefix = argument.name if argument.name in _STANZAS else ''
    if argument.name in _STATES and subject.field is not None:
        prefix = '.'.join(subject.field)
    text = str(error.within(prefix) if prefix else error)
    if references.is_secret(subject.resource):
        text = 'its content is not as expected'
    key = (subject.body.metadata.uid, text)
    is_first = key not in _told
    _told[key] = None
    while len(_told) > _LIMIT:
        _told.popitem(last=False)
    return failures.InvalidObjectError(text, resource=repr(subject.resource), is_first=is_first)
