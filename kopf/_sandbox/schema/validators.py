"""
Validators: schemas compiled into fast tests of values.

A validator only separates valid values from invalid ones: nearly all values are valid, and their
check must be cheap. The problems of an invalid value are found by the slower `validation`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import schemas
from kopf._sandbox.schema import constraints, formats, invariants

Test = Callable[[Any], bool]
Tests = dict[type, Test | None]
"""The tests of values by their JSON types; ``None`` if any value of the type is valid."""

_TYPES: Final[Mapping[type, tuple[str, ...]]] = {
    dict: ('object',),
    list: ('array',),
    str: ('string',),
    bool: ('boolean',),
    int: ('integer', 'number'),
    float: ('number',),
    type(None): (),
}


@dataclasses.dataclass(slots=True)
class Validator:
    """One node of a schema, or of its ``anyOf`` and similar."""

    types: tuple[str, ...]
    nullable: bool
    format: str  # only if it is checked
    check_format: formats.Check | None
    strings: Sequence[constraints.Constraint]
    numbers: Sequence[constraints.Constraint]
    lists: Sequence[constraints.Constraint]
    objects: Sequence[constraints.Constraint]
    enum: constraints.Constraint | None
    any_of: Sequence['Validator']
    one_of: Sequence['Validator']
    all_of: Sequence['Validator']
    negated: 'Validator | None'
    fields: Mapping[str, 'Validator']
    others: 'Validator | None'  # the values of a map
    closed: bool  # no other fields are allowed
    required: Sequence[str]
    items: 'Validator | None'
    list_type: str
    list_map_keys: Sequence[str]
    embedded: bool
    tests: Tests = dataclasses.field(default_factory=dict)

    def accepts(self, value: Any) -> bool:
        test = self.tests.get(type(value), _never)
        return test is None or test(value)


@functools.lru_cache(maxsize=1024)
def compile_validator(schema: schemas.Schema) -> Validator:
    """Compile a whole schema of a custom resource; it has no references."""
    return _compile(schema.raw)


def _compile(raw: Mapping[str, Any]) -> Validator:
    additional = raw.get('additionalProperties')
    check_format = formats.find_check(raw.get('format') or '')
    validator = Validator(
        types=_read_types(raw),
        nullable=bool(raw.get('nullable')),
        format=raw['format'] if check_format else '',
        check_format=check_format,
        strings=constraints.read_string_constraints(raw),
        numbers=constraints.read_number_constraints(raw),
        lists=constraints.read_list_constraints(raw),
        objects=constraints.read_object_constraints(raw),
        enum=constraints.read_enum(raw),
        any_of=_compile_all(raw.get('anyOf')),
        one_of=_compile_all(raw.get('oneOf')),
        all_of=_compile_all(raw.get('allOf')),
        negated=_compile_schema(raw.get('not')),
        fields={name: _compile(child) for name, child in (raw.get('properties') or {}).items()},
        others=_compile_schema(additional),
        closed=additional is False,
        required=tuple(raw.get('required') or ()),
        items=_compile_schema(raw.get('items')),
        list_type=raw.get('x-kubernetes-list-type') or 'atomic',
        list_map_keys=tuple(raw.get('x-kubernetes-list-map-keys') or ()),
        embedded=bool(raw.get('x-kubernetes-embedded-resource')),
    )
    validator.tests = {cls: _build_test(cls, validator) for cls in _TYPES}

    return validator


def _read_types(raw: Mapping[str, Any]) -> tuple[str, ...]:
    if raw.get('x-kubernetes-int-or-string'):
        return ('integer', 'string')
    return (raw['type'],) if raw.get('type') else ()


def _compile_all(options: Sequence[Mapping[str, Any]] | None) -> list[Validator]:
    return [_compile(option) for option in options or ()]


def _compile_schema(value: Any) -> Validator | None:
    """Compile a nested schema; return ``None`` if it is absent or a flag."""
    return _compile(value) if isinstance(value, Mapping) else None


def _never(value: Any) -> bool:
    return False


def _build_test(cls: type, validator: Validator) -> Test | None:
    if cls is type(None):
        return None if _allows_null(validator) else _never
    if not _allows_type(cls, validator):
        return _never

    tests = list(_list_tests(cls, validator))
    if cls in (int, float) and 'integer' in validator.types:
        tests.insert(0, constraints.is_int if cls is int else constraints.is_integral)
    if validator.enum:
        tests.append(validator.enum.test)
    if _has_options(validator):
        tests.append(_combine(validator))
    return _join(tests)


def _allows_null(validator: Validator) -> bool:
    """Return whether nulls are valid; they are never among the enumerated values."""
    is_typed = bool(validator.types) and not validator.nullable
    return not is_typed and not validator.enum


def _allows_type(cls: type, validator: Validator) -> bool:
    """Return whether some values of the type can be valid."""
    if not validator.types:
        return True
    is_named = not set(validator.types).isdisjoint(_TYPES[cls])
    return is_named or _is_loose(cls, validator)


def _has_options(validator: Validator) -> bool:
    options = (validator.any_of, validator.one_of, validator.all_of, validator.negated)
    return any(options)


def _is_loose(cls: type, validator: Validator) -> bool:
    """Return whether values of a class may pass in spite of the declared type."""
    is_formatted_list = (
        cls is list and bool(validator.format) and not set(validator.types) & {'integer', 'number'}
    )
    return is_formatted_list or (cls is float and 'integer' in validator.types)


def _list_tests(cls: type, validator: Validator) -> list[Test]:
    if cls is str:
        check = [validator.check_format] if validator.check_format else []
        return [*(constraint.test for constraint in validator.strings), *check]

    if cls in (int, float):
        return [constraint.test for constraint in validator.numbers]
    if cls is list:
        return [*(constraint.test for constraint in validator.lists), *_list_item_tests(validator)]
    if cls is dict:
        return [
            *(constraint.test for constraint in validator.objects),
            *_list_field_tests(validator),
        ]
    return []


def _join(tests: Sequence[Test]) -> Test | None:
    """Join tests into one; without loops for a few of them, for speed."""
    match tests:
        case []:
            return None
        case [only]:
            return only
        case [first, second]:
            return lambda value: first(value) and second(value)
        case [first, second, *others]:
            last = _join(others)
            return lambda value: first(value) and second(value) and (last is None or last(value))

    return None


def _combine(validator: Validator) -> Test:
    any_of = validator.any_of
    one_of = validator.one_of
    all_of = validator.all_of
    negated = validator.negated

    def test(value: Any) -> bool:
        if any_of and not any(option.accepts(value) for option in any_of):
            return False
        if one_of and sum(option.accepts(value) for option in one_of) != 1:
            return False
        return all(option.accepts(value) for option in all_of) and not (
            negated and negated.accepts(value)
        )

    return test


def _list_item_tests(validator: Validator) -> list[Test]:
    tests: list[Test] = []
    if validator.items is not None:
        tests.append(_build_item_test(validator.items.tests))
    if validator.list_type == 'set':
        tests.append(lambda values: not invariants.has_duplicates(values))
    elif validator.list_type == 'map':
        keys = validator.list_map_keys
        tests.append(lambda values: invariants.is_good_map(values, keys))

    return tests


def _build_item_test(tests: Tests) -> Test:
    def test_items(values: list[Any]) -> bool:
        for value in values:
            test = tests.get(type(value), _never)
            if test is not None and not test(value):
                return False
        return True

    return test_items


def _list_field_tests(validator: Validator) -> list[Test]:
    tests: list[Test] = []
    if validator.required:
        required = frozenset(validator.required)
        tests.append(lambda values: required <= values.keys())

    if validator.fields or validator.others or validator.closed:
        fields = {name: field.tests for name, field in validator.fields.items()}
        unknown: Tests = dict.fromkeys(_TYPES, _never if validator.closed else None)
        tests.append(
            _build_field_test(fields, validator.others.tests if validator.others else unknown)
        )

    if validator.embedded:
        tests.append(lambda values: not any(invariants.check_resource(values, '')))
    return tests


def _build_field_test(fields: Mapping[str, Tests], others: Tests) -> Test:
    def test_fields(values: dict[str, Any]) -> bool:
        for name, value in values.items():
            test = fields.get(name, others).get(type(value), _never)
            if test is not None and not test(value):
                return False
        return True

    return test_fields
