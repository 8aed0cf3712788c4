"""
Go types: how the API server reads JSON into its structures, and how it writes them back.

Built-in objects pass through Go structures on each write. This defines the wording of type errors,
and the normal form: nulls and empty optional values disappear, values of non-pointer fields are
always present, quantities and times are rewritten. Each type here decodes one JSON value: it
returns the normal form or raises `MismatchError`. Dicts are modified in place. Fields unknown to a
structure are left as they are.
"""

import base64
import binascii
import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.meta import quantities


class MismatchError(Exception):
    """A value that does not fit its Go type; the message is that of Go's decoder."""


@dataclasses.dataclass(slots=True)
class Type:
    """The base of all types, and the type of the fields that hold any JSON."""

    name: str = 'interface {}'  # the name in Go's errors

    def decode(self, value: Any, struct: str, path: str) -> Any:
        """Return the value in its normal form; ``struct`` and ``path`` are for the errors."""
        return value

    def make_zero(self) -> Any:
        """Return the value that is written for a field that is not set."""
        return None

    def is_zero(self, value: Any) -> bool:
        """Return whether an optional field with this value is omitted."""
        return value is None


@dataclasses.dataclass(slots=True)
class String(Type):
    name: str = 'string'

    def decode(self, value: Any, struct: str, path: str) -> Any:
        return value if isinstance(value, str) else refuse(value, self.name, struct, path)

    def make_zero(self) -> Any:
        return ''

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class Boolean(Type):
    name: str = 'bool'

    def decode(self, value: Any, struct: str, path: str) -> Any:
        return value if value is True or value is False else refuse(value, self.name, struct, path)

    def make_zero(self) -> Any:
        return False

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class Integer(Type):
    name: str = 'int64'
    limit: int = 2**63

    def decode(self, value: Any, struct: str, path: str) -> Any:
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and -self.limit <= value < self.limit
        ):
            return value
        return refuse(value, self.name, struct, path, shown=True)

    def make_zero(self) -> Any:
        return 0

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class Float(Type):
    name: str = 'float64'

    def decode(self, value: Any, struct: str, path: str) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
        return refuse(value, self.name, struct, path)

    def make_zero(self) -> Any:
        return 0

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class IntOrString(Type):
    name: str = 'int32'

    def decode(self, value: Any, struct: str, path: str) -> Any:
        return value if isinstance(value, str) else INT32.decode(value, struct, path)

    def make_zero(self) -> Any:
        return 0


@dataclasses.dataclass(slots=True)
class Bytes(Type):
    name: str = '[]uint8'

    def decode(self, value: Any, struct: str, path: str) -> Any:
        return (
            clean_base64(value)
            if isinstance(value, str)
            else refuse(value, self.name, struct, path)
        )

    def make_zero(self) -> Any:
        return ''

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class Time(Type):
    name: str = 'string'
    micro: bool = False

    def decode(self, value: Any, struct: str, path: str) -> Any:
        if not isinstance(value, str):
            return refuse(value, self.name, struct, path)
        return clean_time(value, micro=self.micro)


@dataclasses.dataclass(slots=True)
class Quantity(Type):
    name: str = 'string'
    milli: bool = False  # amounts in lists of resources are rounded up to thousandths

    def decode(self, value: Any, struct: str, path: str) -> Any:
        try:
            return quantities.format_quantity(value, milli=self.milli)
        except quantities.QuantityError as e:
            raise MismatchError(str(e)) from None

    def make_zero(self) -> Any:
        return '0'


@dataclasses.dataclass(slots=True)
class List(Type):
    item: Type = dataclasses.field(default_factory=Type)

    def decode(self, value: Any, struct: str, path: str) -> Any:
        if not isinstance(value, list):
            return refuse(value, self.name, struct, path)
        decode = self.item.decode
        for index, item in enumerate(value):
            value[index] = self.item.make_zero() if item is None else decode(item, struct, path)
        return value

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class Map(Type):
    item: Type = dataclasses.field(default_factory=Type)

    def decode(self, value: Any, struct: str, path: str) -> Any:
        if not isinstance(value, dict):
            return refuse(value, self.name, struct, path)
        decode = self.item.decode
        for key, item in value.items():
            value[key] = self.item.make_zero() if item is None else decode(item, struct, path)
        return value

    def is_zero(self, value: Any) -> bool:
        return not value


@dataclasses.dataclass(slots=True)
class Field:
    """One field of a structure."""

    type: Type
    path: str  # the name in the errors: with the embedded structures that lead to it
    is_pointer: bool = False  # unset differs from zero
    is_kept: bool = False  # written even if it has a zero value
    is_written: bool = False  # written even if it is not set
    default: Any = None  # instead of the zero value

    def make_default(self) -> Any:
        """Return the value of a field that is written even if it is not set."""
        if self.default is not None:
            return self.default
        return None if self.is_pointer else self.type.make_zero()


@dataclasses.dataclass(slots=True)
class Struct(Type):
    short: str = ''  # the name without the package
    fields: dict[str, Field] = dataclasses.field(default_factory=dict)
    written: dict[str, Field] = dataclasses.field(default_factory=dict)

    def decode(self, value: Any, struct: str, path: str) -> Any:
        if not isinstance(value, dict):
            return refuse(value, self.name, struct, path)

        prefix = f'{path}.' if path else ''
        for name, item in list(value.items()):
            if (field := self.fields.get(name)) is None:
                continue
            if item is not None:
                item = field.type.decode(item, self.short, prefix + field.path)
            if item is None or (not field.is_kept and field.type.is_zero(item)):
                del value[name]
            else:
                value[name] = item

        for name, field in self.written.items():
            if name not in value:
                value[name] = field.make_default()

        return value

    def make_zero(self) -> Any:
        return self.decode({}, '', '')

    def add(self, name: str, field: Field) -> None:
        self.fields[name] = field
        if field.is_written:
            self.written[name] = field


ANY: Final = Type()
STRING: Final = String()
BOOLEAN: Final = Boolean()
INT32: Final = Integer('int32', 2**31)
INT64: Final = Integer('int64', 2**63)
TIME: Final = Time()

_KINDS: Final[Mapping[type, str]] = {
    str: 'string',
    bool: 'bool',
    int: 'number',
    float: 'number',
    list: 'array',
    dict: 'object',
}


def refuse(value: Any, name: str, struct: str, path: str, *, shown: bool = False) -> Any:
    """Raise Go's error about a value of a wrong type; with ``shown``, numbers are included."""
    kind = _KINDS.get(type(value), 'null')
    if shown and kind == 'number':
        kind = f'number {value!r}'
    place = f'struct field {struct}.{path}' if path else 'value'
    raise MismatchError(f'json: cannot unmarshal {kind} into Go {place} of type {name}')


_base64_regex = re.compile('[A-Za-z0-9+/]*={0,2}')


def clean_base64(text: str) -> str:
    """Remove the line breaks; raise `MismatchError` with the position if the text is not base64."""
    packed = text.replace('\n', '').replace('\r', '') if '\n' in text or '\r' in text else text
    try:
        base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        wrong = re.search('[^A-Za-z0-9+/\r\n]', text)
        found = wrong.start() if wrong is not None and wrong[0] != '=' else len(packed) // 4 * 4
        raise MismatchError(f'illegal base64 data at input byte {found}') from None

    return packed


_time_regex = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)')
_micro_regex = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)')
_LAYOUT: Final = (
    ('2006', r'\d{4}'),
    ('-', '-'),
    ('01', r'\d\d'),
    ('-', '-'),
    ('02', r'\d\d'),
    ('T', 'T'),
    ('15', r'\d\d'),
    (':', ':'),
    ('04', r'\d\d'),
    (':', ':'),
    ('05', r'\d\d'),
)


def clean_time(text: str, *, micro: bool = False) -> str:
    """Convert a time to UTC, to seconds or to microseconds; raise `MismatchError` if malformed."""
    regex = _micro_regex if micro else _time_regex
    if not regex.fullmatch(text):
        raise MismatchError(_explain_time(text, micro=micro))
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise MismatchError(f'parsing time "{text}": {_find_range(text)} out of range') from None

    return moment.strftime('%Y-%m-%dT%H:%M:%S.%fZ' if micro else '%Y-%m-%dT%H:%M:%SZ')


def _explain_time(text: str, *, micro: bool) -> str:
    layout = '2006-01-02T15:04:05.000000Z07:00' if micro else '2006-01-02T15:04:05Z07:00'
    rest = text
    for part, pattern in (*_LAYOUT, *([('.000000', r'\.\d{6}')] if micro else [])):
        match = re.match(pattern, rest)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{part}"'
        rest = rest[match.end() :]

    return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "Z07:00"'


def _find_range(text: str) -> str:
    limits = (
        ('month', text[5:7], 1, 12),
        ('hour', text[11:13], 0, 23),
        ('minute', text[14:16], 0, 59),
        ('second', text[17:19], 0, 59),
    )
    return next(
        (name for name, digits, low, high in limits if not low <= int(digits) <= high), 'day'
    )
