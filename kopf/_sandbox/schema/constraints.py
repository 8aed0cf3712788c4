"""
Constraints: the requirements of a schema for one value, regardless of nested values.

Each constraint can test a value, and can build the API's error for a bad one. Numbers follow Go:
those beyond 64 bits are floats, and bounds are cut to integers for the comparison with integers.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors
from kopf._sandbox.schema import patterns

Complain = Callable[[Any, str, str], errors.FieldError]
"""Builds an error by the value, the path of the field, and its name inside the message."""

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
_SAFE_FLOAT: Final = float((1 << 53) - 1)


@dataclasses.dataclass(frozen=True, slots=True)
class Constraint:
    """One requirement for values of a certain type."""

    test: Callable[[Any], bool]
    complain: Complain


def name_type(value: Any) -> str:
    """Return the type of a value as it is named in schemas."""
    if isinstance(value, dict):
        return 'object'
    if isinstance(value, str):
        return 'string'
    if isinstance(value, bool):
        return 'boolean'
    if is_int(value):
        return 'integer'
    if isinstance(value, list):
        return 'array'
    return 'null' if value is None else 'number'


def is_int(value: Any) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def is_integral(value: Any) -> bool:
    """Return whether a value fits the type ``integer``: ``2.0`` does."""
    if type(value) is int:
        return INT64_MIN <= value <= INT64_MAX
    return type(value) is float and value.is_integer() and abs(value) <= _SAFE_FLOAT


def complain_invalid(detail: str, shown: Callable[[Any], Any] = lambda value: value) -> Complain:
    return lambda value, field, name: errors.invalid_value(
        field, shown(value), f'{name} in body {detail}'
    )


def read_string_constraints(raw: Mapping[str, Any]) -> list[Constraint]:
    """Return the constraints of strings, in the order of checking; the first failure counts."""
    found = []
    if (longest := raw.get('maxLength')) is not None:
        found.append(
            Constraint(
                lambda value: len(value) <= longest,
                lambda value, field, name: errors.too_long(field, longest),
            )
        )

    if (shortest := raw.get('minLength')) is not None:
        found.append(
            Constraint(
                lambda value: len(value) >= shortest,
                complain_invalid(f'should be at least {shortest} chars long'),
            )
        )

    if pattern := raw.get('pattern'):
        found.append(_read_pattern(pattern))
    return found


def _read_pattern(pattern: str) -> Constraint:
    try:
        compiled = patterns.compile_pattern(pattern)
    except patterns.PatternError as e:
        why = f"should match '{pattern}, but pattern is invalid: {e}'"
        return Constraint(lambda value: False, complain_invalid(why))
    return Constraint(compiled.is_found, complain_invalid(f"should match '{pattern}'"))


def read_number_constraints(raw: Mapping[str, Any]) -> list[Constraint]:
    """Return the constraints of numbers, in the order of checking."""
    found = []
    if (factor := raw.get('multipleOf')) is not None:
        found.append(_read_factor(factor))
    if (minimum := raw.get('minimum')) is not None:
        found.append(_read_minimum(minimum, bool(raw.get('exclusiveMinimum'))))
    if (maximum := raw.get('maximum')) is not None:
        found.append(_read_maximum(maximum, bool(raw.get('exclusiveMaximum'))))
    return found


def _cut(bound: float) -> int:
    """Convert a bound to an integer as Go does: out-of-range values become the lowest integer."""
    return int(bound) if INT64_MIN <= bound <= INT64_MAX else INT64_MIN


def _fit(bound: float, value: Any) -> float:
    """Convert a bound to the type of the value."""
    return _cut(bound) if is_int(value) else float(bound)


def _read_minimum(minimum: float, exclusive: bool) -> Constraint:
    low = _cut(minimum)
    text = 'should be greater than' if exclusive else 'should be greater than or equal to'

    def test(value: Any) -> bool:
        bound = low if type(value) is int else minimum
        return bool(value > bound if exclusive else value >= bound)

    return Constraint(
        test,
        lambda value, field, name: errors.invalid_value(
            field, value, f'{name} in body {text} {errors.render(_fit(minimum, value))}'
        ),
    )


def _read_maximum(maximum: float, exclusive: bool) -> Constraint:
    high = _cut(maximum)
    text = 'should be less than' if exclusive else 'should be less than or equal to'

    def test(value: Any) -> bool:
        bound = high if type(value) is int else maximum
        return bool(value < bound if exclusive else value <= bound)

    return Constraint(
        test,
        lambda value, field, name: errors.invalid_value(
            field, value, f'{name} in body {text} {errors.render(_fit(maximum, value))}'
        ),
    )


def _read_factor(factor: float) -> Constraint:
    def complain(value: Any, field: str, name: str) -> errors.FieldError:
        fitted = _fit(factor, value)
        if fitted <= 0:
            why = f'factor MultipleOf declared for {name} must be positive: {errors.render(fitted)}'
            return errors.invalid_value(field, fitted, why)
        return errors.invalid_value(
            field, value, f'{name} in body should be a multiple of {errors.render(fitted)}'
        )

    return Constraint(lambda value: _is_multiple(value, _fit(factor, value)), complain)


def _is_multiple(value: Any, factor: float) -> bool:
    if factor <= 0:
        return False
    if is_int(value):
        return bool(value % factor == 0)
    times = 1 / factor * value if factor < 1 else value / factor
    return abs(times) <= _SAFE_FLOAT and math.isclose(times, round(times), rel_tol=1e-9, abs_tol=0)


def read_list_constraints(raw: Mapping[str, Any]) -> list[Constraint]:
    """Return the constraints of lists themselves, in the order of checking."""
    found = []
    if (fewest := raw.get('minItems')) is not None:
        found.append(
            Constraint(
                lambda value: len(value) >= fewest,
                complain_invalid(f'should have at least {fewest} items', len),
            )
        )

    if (most := raw.get('maxItems')) is not None:
        found.append(
            Constraint(
                lambda value: len(value) <= most,
                lambda value, field, name: errors.too_many(field, len(value), most),
            )
        )

    if raw.get('uniqueItems'):
        found.append(
            Constraint(
                lambda value: all(item not in value[:index] for index, item in enumerate(value)),
                complain_invalid("shouldn't contain duplicates", lambda value: ''),
            )
        )

    return found


def read_object_constraints(raw: Mapping[str, Any]) -> list[Constraint]:
    """Return the constraints of the sizes of objects and maps, in the order of checking."""
    found = []
    if (fewest := raw.get('minProperties')) is not None:
        found.append(
            Constraint(
                lambda value: len(value) >= fewest,
                complain_invalid(f'should have at least {fewest} properties', len),
            )
        )

    if (most := raw.get('maxProperties')) is not None:
        found.append(
            Constraint(
                lambda value: len(value) <= most,
                lambda value, field, name: errors.too_many(field, len(value), most),
            )
        )

    return found


def read_enum(raw: Mapping[str, Any]) -> Constraint | None:
    """Return the constraint of the allowed values, if there is one."""
    options: Sequence[Any] = raw.get('enum') or ()
    if not options:
        return None

    shown = [option if isinstance(option, str) else errors.render(option) for option in options]
    strings = frozenset(option for option in options if isinstance(option, str))

    def test(value: Any) -> bool:
        return (
            value in strings
            if isinstance(value, str)
            else any(_is_option(value, option) for option in options)
        )

    return Constraint(test, lambda value, field, name: errors.not_supported(field, value, shown))


def _is_option(value: Any, option: Any) -> bool:
    """Compare as Go does: convert numbers to the type of the option. Null is never allowed."""
    if value is None or isinstance(value, bool) or isinstance(option, bool):
        return value is option and value is not None
    if isinstance(value, float) and isinstance(option, int):
        return math.isfinite(value) and int(value) == option
    return bool(value == option)
