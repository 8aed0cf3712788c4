"""
Cells: the building blocks of all printers.

Objects are read leniently: a missing field and a field of a wrong type are both treated as empty.
Nothing here raises for any JSON object, and nothing modifies it.
"""

import dataclasses
import datetime
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

Object = Mapping[str, Any]

NONE: Final = '<none>'
UNSET: Final = '<unset>'
UNKNOWN: Final = '<unknown>'
INVALID: Final = '<invalid>'

_SECOND: Final = datetime.timedelta(seconds=1)
# The longest duration in the API.
_LONGEST: Final = datetime.timedelta(microseconds=(1 << 63) // 1000)
_ZERO_TIME: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_TIMESTAMP: Final = re.compile(
    r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)', re.ASCII
)
_SIGNS: Final = {'In': 'in', 'NotIn': 'notin'}
_FORMS: Final = {'Exists': '{}', 'DoesNotExist': '!{}'}


@dataclasses.dataclass(frozen=True)
class Header:
    """A definition of a column; those of priority above zero are shown only in wide tables."""

    name: str
    type: str = 'string'
    description: str = ''
    format: str = ''
    priority: int = 0


@dataclasses.dataclass(frozen=True)
class Printer:
    """The printer of one kind: the headers, and a function that makes a cell for each of them."""

    headers: Sequence[Header]
    # Returns all cells of one object at a given time.
    print: Callable[[Object, datetime.datetime], Sequence[Any]]
    # Returns the conditions of the row, if any.
    conditions: Callable[[Object], Sequence[Object]] = lambda obj: ()
    null_if_empty: bool = False  # a quirk of the API: an empty table has null instead of rows


NAME: Final = Header('Name', format='name', description='The name of the object.')
AGE: Final = Header('Age', description='The time since the object was created.')
CONTAINERS: Final = (
    Header(
        'Containers', priority=1, description='The names of the containers in the pod template.'
    ),
    Header('Images', priority=1, description='The images of the containers in the pod template.'),
)
SELECTOR: Final = Header(
    'Selector', priority=1, description='The labels by which the pods are selected.'
)


def column(name: str, description: str, type: str = 'string') -> Header:
    """Define a column that is always shown."""
    return Header(name, type, description)


def wide(name: str, description: str) -> Header:
    """Define a column that is shown only in wide tables."""
    return Header(name, description=description, priority=1)


def dig(obj: Any, *keys: str) -> Any:
    """Return a nested value, or ``None`` if it is absent."""
    for key in keys:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(key)
    return obj


def text(obj: Any, *keys: str, default: str = '') -> str:
    """Return a nested string; the default if it is empty or absent."""
    value = dig(obj, *keys)
    return value if isinstance(value, str) and value else default


def number(obj: Any, *keys: str) -> int:
    value = dig(obj, *keys)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def flag(obj: Any, *keys: str, default: bool = False) -> bool:
    value = dig(obj, *keys)
    return value if isinstance(value, bool) else default


def mapping(obj: Any, *keys: str) -> Object:
    value = dig(obj, *keys)
    return value if isinstance(value, Mapping) else {}


def items(obj: Any, *keys: str) -> list[Object]:
    """Return the objects of a nested list."""
    value = dig(obj, *keys)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def texts(obj: Any, *keys: str) -> list[str]:
    """Return the strings of a nested list."""
    value = dig(obj, *keys)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def quantity(obj: Any, *keys: str) -> str:
    """Format an amount as it is stored; zero if it is absent."""
    value = dig(obj, *keys)
    return str(value) if isinstance(value, str | int | float) and value != '' else '0'


def name(obj: Object) -> str:
    return text(obj, 'metadata', 'name')


def is_deleting(obj: Object) -> bool:
    return dig(obj, 'metadata', 'deletionTimestamp') is not None


def has_condition(obj: Object, condition_type: str) -> bool:
    """Return whether the first condition of this type is true."""
    found = find_condition(items(obj, 'status', 'conditions'), condition_type)
    return text(found, 'status') == 'True'


def find_condition(conditions: Iterable[Object], condition_type: str) -> Object | None:
    return next(
        (condition for condition in conditions if condition.get('type') == condition_type), None
    )


def age(obj: Object, now: datetime.datetime) -> str:
    """Format the age of an object."""
    return since(dig(obj, 'metadata', 'creationTimestamp'), now)


def since(timestamp: Any, now: datetime.datetime) -> str:
    """Format the time passed since a timestamp."""
    moment = parse_time(timestamp)
    return UNKNOWN if moment is None or moment == _ZERO_TIME else human(now - moment)


def parse_time(timestamp: Any) -> datetime.datetime | None:
    """Parse RFC 3339; return ``None`` if it is malformed."""
    if not isinstance(timestamp, str) or not _TIMESTAMP.fullmatch(timestamp):
        return None
    try:
        return datetime.datetime.fromisoformat(timestamp).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None


def human(duration: datetime.timedelta) -> str:
    """Format a duration as the API does: at most two units, the longer the less precise."""
    duration = min(max(duration, -_LONGEST), _LONGEST)
    seconds = abs(duration) // _SECOND * (1 if duration >= datetime.timedelta() else -1)
    minutes = seconds // 60
    hours = seconds // 3600
    days = seconds // 86400
    if seconds < -1:
        return INVALID
    if seconds < 2 * 60:
        return f'{max(seconds, 0)}s'
    if minutes < 3 * 60:
        return _join(minutes, 'm', seconds % 60 if minutes < 10 else 0, 's')
    if hours < 48:
        return _join(hours, 'h', minutes % 60 if hours < 8 else 0, 'm')
    if days < 2 * 365:
        return _join(days, 'd', hours % 24 if days < 8 else 0, 'h')

    years = days // 365
    return _join(years, 'y', days % 365 if years < 8 else 0, 'd')


def _join(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f'{major}{major_unit}' + (f'{minor}{minor_unit}' if minor else '')


def labels(obj: Any, *keys: str) -> str:
    """Format labels, sorted."""
    pairs = sorted((str(key), str(value)) for key, value in mapping(obj, *keys).items())
    return ','.join(f'{key}={value}' for key, value in pairs) or NONE


def selector(obj: Any, *keys: str, nothing: str = NONE) -> str:
    """Format a label selector object in the textual form of selectors."""
    source = mapping(obj, *keys)
    requirements = [
        (key, f'{key}={value}') for key, value in mapping(source, 'matchLabels').items()
    ]
    for expression in items(source, 'matchExpressions'):
        requirements.append((text(expression, 'key'), _show_expression(expression)))
    return ','.join(shown for _, shown in sorted(requirements)) or nothing


def _show_expression(expression: Object) -> str:
    key = text(expression, 'key')
    sign = text(expression, 'operator')
    if sign in _FORMS:
        return _FORMS[sign].format(key)
    return f'{key} {_SIGNS.get(sign, sign)} ({",".join(sorted(texts(expression, "values")))})'


def containers(template: Any) -> tuple[str, str]:
    """Format the names and the images of the containers of a pod template."""
    found = items(template, 'spec', 'containers')
    return ','.join(text(item, 'name') for item in found), ','.join(
        text(item, 'image') for item in found
    )


def shorten(shown: Sequence[str], limit: int = 3, separator: str = ',') -> str:
    """Join the first few texts, and the number of the rest."""
    joined = separator.join(shown[:limit])
    return f'{joined} + {len(shown) - limit} more...' if len(shown) > limit else joined
