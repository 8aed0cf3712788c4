"""
Columns: the table columns of a resource.

Built-in kinds have their own printers; custom resources are printed by the columns of their CRDs;
other resources have only the name and the creation time.
"""

import datetime
import decimal
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kopf._sandbox.endpoints.printers import (
    cells,
    clusters,
    networks,
    pods,
    policies,
    volumes,
    workloads,
)
from kopf._sandbox.meta import kinds
from kopf._sandbox.schema import jsonpaths

_BUILTIN: Mapping[tuple[str, str], cells.Printer] = {
    **pods.PRINTERS,
    **workloads.PRINTERS,
    **networks.PRINTERS,
    **volumes.PRINTERS,
    **clusters.PRINTERS,
    **policies.PRINTERS,
}
_ZERO_TIME = '0001-01-01T00:00:00Z'
_AGE = kinds.Column('Age', 'date', '.metadata.creationTimestamp', description=cells.AGE.description)
_Renderer = Callable[[Any, datetime.datetime], Any]
_HTML_ESCAPES = str.maketrans({char: f'\\u{ord(char):04x}' for char in '<>&\u2028\u2029'})


def find_printer(resource: kinds.Resource) -> cells.Printer:
    """Return the printer of a resource."""
    if resource.custom:
        return _define_custom(resource.columns or (_AGE,))
    return _BUILTIN.get((resource.group, resource.kind), _DEFAULT)


def _print_default(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
    return [cells.name(obj), cells.text(obj, 'metadata', 'creationTimestamp', default=_ZERO_TIME)]


_DEFAULT = cells.Printer(
    [
        cells.NAME,
        cells.column('Created At', 'The moment when the object was created.', 'date'),
    ],
    _print_default,
    null_if_empty=True,
)


@functools.lru_cache(maxsize=256)
def _define_custom(columns: tuple[kinds.Column, ...]) -> cells.Printer:
    """Build a printer of a CRD's columns; as in the API, only of those before a malformed one."""
    known = list(itertools.takewhile(_is_valid, columns))
    paths = [jsonpaths.compile_path(column.path) for column in known]
    renders: list[_Renderer] = [_RENDERERS.get(column.type, _render_nothing) for column in known]

    def print_custom(obj: cells.Object, now: datetime.datetime) -> Sequence[Any]:
        found = [path.find(obj) for path in paths]
        shown = [
            render(values[0], now) if values else None
            for values, render in zip(found, renders, strict=True)
        ]
        return [cells.name(obj), *shown]

    return cells.Printer([cells.NAME, *map(_define_header, known)], print_custom)


def _is_valid(column: kinds.Column) -> bool:
    try:
        jsonpaths.compile_path(column.path)
    except ValueError:
        return False
    return True


def _define_header(column: kinds.Column) -> cells.Header:
    description = (
        column.description
        or f'Custom resource definition column (in JSONPath format): {column.path}'
    )
    return cells.Header(column.name, column.type, description, column.format, column.priority)


def _render_string(value: Any, now: datetime.datetime) -> str:
    match value:
        case str():
            return value
        case None:
            return '<no value>'
        case dict() | list():
            shown = json.dumps(value, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
            return shown.translate(_HTML_ESCAPES)
        case bool():
            return str(value).lower()
        case float():
            return _show_float(value)
        case _:
            return str(value)


def _show_float(value: float) -> str:
    """Format a number in the shortest form, with an exponent for 7 digits and more."""
    if not math.isfinite(value):
        return str(value)
    number = decimal.Decimal(repr(value)).normalize()
    is_moderate = -4 <= number.adjusted() <= 5
    return f'{number:f}' if is_moderate else f'{value:.{len(number.as_tuple().digits) - 1}e}'


def _render_integer(value: Any, now: datetime.datetime) -> int | None:
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _render_number(value: Any, now: datetime.datetime) -> float | None:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _render_boolean(value: Any, now: datetime.datetime) -> bool | None:
    return value if isinstance(value, bool) else None


def _render_date(value: Any, now: datetime.datetime) -> str | None:
    if not isinstance(value, str):
        return None
    if value in ('', 'null'):
        return cells.UNKNOWN
    return cells.INVALID if cells.parse_time(value) is None else cells.since(value, now)


def _render_nothing(value: Any, now: datetime.datetime) -> None:
    return None


_RENDERERS: Mapping[str, _Renderer] = {
    'string': _render_string,
    'integer': _render_integer,
    'number': _render_number,
    'boolean': _render_boolean,
    'date': _render_date,
}
