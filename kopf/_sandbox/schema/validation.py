"""
Validation: whether custom objects fit their schemas, with the API's errors for those that do not.

Valid objects are recognised quickly. For others, all errors are collected in the order of the API's
own checks, and with its choice of failed alternatives to report. As in the API, errors in unchanged
parts of updated objects are ignored, since schemas may become stricter than the stored objects.
"""

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import equality, errors, schemas
from kopf._sandbox.schema import constraints, invariants, validators

BLOCKING: Final = frozenset(
    (
        'FieldValueNotSupported',
        'FieldValueRequired',
        'FieldValueTooLong',
        'FieldValueTooMany',
        'FieldValueTypeInvalid',
    )
)
_UNCHECKED_RULES: Final = errors.invalid_value(
    '<nil>',
    None,
    'some validation rules were not checked because the object was invalid; '
    'correct the existing errors to complete validation',
)


def validate(
    value: Any, schema: schemas.Schema, path: str = '', *, old: Any = schemas.UNSET
) -> list[errors.FieldError]:
    """
    Return all problems of a value.

    On updates, give the ``old`` value: problems of unchanged parts are not reported. If the value
    is a part of an object, ``path`` is its location: the messages name the fields relative to it.
    """
    validator = validators.compile_validator(schema)
    if validator.accepts(value):
        return []

    report = _Examination(path).examine_changed(validator, value, '', old)
    problems = [*report.problems, *invariants.check_embedded(value, schema, path)]
    if old is schemas.UNSET or not any(invariants.check_lists(old, schema, path)):
        problems += invariants.check_lists(value, schema, path)
    return _note_unchecked_rules(problems, schema)


def validate_status(
    obj: Mapping[str, Any], schema: schemas.Schema, old: Mapping[str, Any]
) -> list[errors.FieldError]:
    """Return all problems of the status in an update of the status alone."""
    status_schema = schema.properties.get('status')
    if 'status' not in obj or status_schema is None:
        return []
    problems = validate(
        obj['status'], status_schema, 'status', old=old.get('status', schemas.UNSET)
    )
    return problems if has_cel(status_schema) else _note_unchecked_rules(problems, schema)


@functools.lru_cache(maxsize=1024)
def has_cel(schema: schemas.Schema) -> bool:
    """Return whether the schema has CEL rules."""
    return _has_rules(schema.raw)


def _has_rules(raw: Any) -> bool:
    if isinstance(raw, Mapping):
        return bool(raw.get('x-kubernetes-validations')) or any(
            _has_rules(value)
            for key, value in raw.items()
            if key not in ('default', 'enum', 'example')
        )
    return isinstance(raw, list) and any(_has_rules(item) for item in raw)


def _note_unchecked_rules(
    problems: list[errors.FieldError], schema: schemas.Schema
) -> list[errors.FieldError]:
    is_noted = has_cel(schema) and any(problem.reason in BLOCKING for problem in problems)
    return [*problems, _UNCHECKED_RULES] if is_noted else problems


@dataclasses.dataclass(slots=True)
class _Report:
    """The problems of a value, and the number of passed checks, to compare alternatives."""

    problems: dict[errors.FieldError, None] = dataclasses.field(default_factory=dict)
    passed: int = 0

    def add(self, problem: errors.FieldError) -> None:
        self.problems[problem] = None

    def merge(self, other: '_Report') -> None:
        self.problems |= other.problems
        self.passed += other.passed


@dataclasses.dataclass(frozen=True)
class _Examination:
    """A search for all problems of one value; ``path`` is its location in the object."""

    path: str

    def examine_changed(
        self, validator: validators.Validator, value: Any, name: str, old: Any
    ) -> _Report:
        """Return the report on a value; without problems if the value is unchanged."""
        report = self._examine(validator, value, name, old)
        if report.problems and old is not schemas.UNSET and equality.is_same(old, value):
            report.problems = {}
        return report

    def _locate(self, name: str) -> str:
        return '.'.join(filter(None, (self.path, name.removeprefix('.')))) or '<nil>'

    def _examine(self, validator: validators.Validator, value: Any, name: str, old: Any) -> _Report:
        report = _Report()
        self._examine_type(validator, value, name, report)
        if value is not None:
            self._examine_options(validator, value, name, old, report)
            self._examine_scalar(validator, value, name, report)
            if isinstance(value, list):
                self._examine_items(validator, value, name, old, report)

        if validator.enum and not validator.enum.test(value):
            report.add(validator.enum.complain(value, self._locate(name), name))
        if isinstance(value, dict):
            self._examine_fields(validator, value, name, old, report)
        report.passed += 0 if value is None else 2
        return report

    def _examine_type(
        self, validator: validators.Validator, value: Any, name: str, report: _Report
    ) -> None:
        if not validator.types and not validator.format:
            report.passed += value is None
            return

        report.passed += value is not None
        wanted = ','.join(validator.types)
        found = constraints.name_type(value)

        if _is_type_fine(validator, value, found):
            report.passed += 1
            return

        if validator.format and value is not None:
            wanted = validator.format
            found = {'integer': 'int64', 'number': 'float64'}.get(found, '')

        text = f'{name} in body must be of type {wanted}: "{found}"'
        report.add(errors.type_invalid(self._locate(name), found, text))

    def _examine_scalar(
        self, validator: validators.Validator, value: Any, name: str, report: _Report
    ) -> None:
        if isinstance(value, str):
            report.passed += 1 + bool(validator.format)
            for constraint in validator.strings:
                if not constraint.test(value):
                    report.add(constraint.complain(value, self._locate(name), name))
                    break
            if validator.check_format and not validator.check_format(value):
                text = (
                    f'{name} in body must be of type {validator.format}: '
                    f'{json.dumps(value, ensure_ascii=False)}'
                )
                report.add(errors.type_invalid(self._locate(name), value, text))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            report.passed += 2
            self._examine_all(validator.numbers, value, name, report)

    def _examine_all(
        self, required: Sequence[constraints.Constraint], value: Any, name: str, report: _Report
    ) -> None:
        for constraint in required:
            if not constraint.test(value):
                report.add(constraint.complain(value, self._locate(name), name))

    def _examine_items(
        self,
        validator: validators.Validator,
        values: list[Any],
        name: str,
        old: Any,
        report: _Report,
    ) -> None:
        report.passed += 2
        if validator.items is not None:
            for index, item in enumerate(values):
                before = _find_old_item(validator, item, old)
                report.merge(
                    self.examine_changed(validator.items, item, f'{name}[{index}]', before)
                )

        self._examine_all(validator.lists, values, name, report)

    def _examine_fields(
        self,
        validator: validators.Validator,
        values: dict[str, Any],
        name: str,
        old: Any,
        report: _Report,
    ) -> None:
        report.passed += 1
        self._examine_all(validator.objects, values, name, report)
        before = old if isinstance(old, dict) else {}

        for key in sorted(values.keys() - validator.fields.keys()):
            if validator.closed:
                text = f'{name}.{key} in body is a forbidden property'
                report.add(errors.invalid_value(self._locate(name), key, text))
            elif validator.others is not None:
                previous = before.get(key, schemas.UNSET)
                report.merge(
                    self.examine_changed(validator.others, values[key], f'{name}.{key}', previous)
                )

        for key in sorted(values.keys() & validator.fields.keys()):
            previous = before.get(key, schemas.UNSET)
            inner = f'{name}.{key}' if name else key
            report.merge(self.examine_changed(validator.fields[key], values[key], inner, previous))

        for key in validator.required:
            if key not in values:
                report.add(errors.required(self._locate(f'{name}.{key}')))

    def _examine_options(
        self, validator: validators.Validator, value: Any, name: str, old: Any, report: _Report
    ) -> None:
        report.passed += 2
        if validator.any_of:
            self._examine_any(validator.any_of, value, name, old, report)
        if validator.one_of:
            self._examine_one(validator.one_of, value, name, old, report)
        if validator.all_of:
            reports = [self._examine(option, value, name, old) for option in validator.all_of]
            for result in reports:
                report.merge(result)
            if any(result.problems for result in reports):
                ending = (
                    '' if not all(result.problems for result in reports) else '. None validated'
                )
                report.add(self._refuse(name, f'must validate all the schemas (allOf){ending}'))

        if (
            validator.negated is not None
            and not self._examine(validator.negated, value, name, old).problems
        ):
            report.add(self._refuse(name, 'must not validate the schema (not)'))

    def _examine_any(
        self,
        options: Sequence[validators.Validator],
        value: Any,
        name: str,
        old: Any,
        report: _Report,
    ) -> None:
        failures = []
        for option in options:
            result = self._examine(option, value, name, old)
            if not result.problems:
                report.merge(result)
                return
            failures.append(result)

        report.add(self._refuse(name, 'must validate at least one schema (anyOf)'))
        report.merge(max(failures, key=lambda failure: failure.passed))

    def _examine_one(
        self,
        options: Sequence[validators.Validator],
        value: Any,
        name: str,
        old: Any,
        report: _Report,
    ) -> None:
        results = [self._examine(option, value, name, old) for option in options]
        good = [result for result in results if not result.problems]
        if len(good) == 1:
            report.merge(good[0])
            return

        ending = f'Found {len(good)} valid alternatives' if good else 'Found none valid'
        report.add(self._refuse(name, f'must validate one and only one schema (oneOf). {ending}'))
        if not good:
            report.merge(max(results, key=lambda failure: failure.passed))

    def _refuse(self, name: str, text: str) -> errors.FieldError:
        return errors.invalid_value(
            self._locate(''), '', f'{json.dumps(name, ensure_ascii=False)} {text}'
        )


def _is_type_fine(validator: validators.Validator, value: Any, found: str) -> bool:
    wanted = validator.types
    if value is None:
        return not wanted or validator.nullable
    if found in wanted or (found == 'integer' and 'number' in wanted):
        return True
    if 'integer' in wanted and constraints.is_integral(value):
        return True
    is_numeric = 'integer' in wanted or 'number' in wanted
    return bool(validator.format) and not is_numeric and found in ('string', 'array')


def _find_old_item(validator: validators.Validator, item: Any, old: Any) -> Any:
    """Return the previous state of an item. Only items of lists that are maps can be identified."""
    if validator.list_type != 'map' or not isinstance(old, list) or not isinstance(item, dict):
        return schemas.UNSET

    keys = [item.get(key) for key in validator.list_map_keys]
    for before in old:
        if (
            isinstance(before, dict)
            and [before.get(key) for key in validator.list_map_keys] == keys
        ):
            return before

    return schemas.UNSET
