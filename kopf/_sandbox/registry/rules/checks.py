"""
Checks: the rules shared by many kinds: enumerations, ranges, selectors, immutability, amounts.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.meta import errors, metadata, naming, quantities
from kopf._sandbox.registry.rules import entries

NEGATIVE: Final = 'must be greater than or equal to 0'
MISMATCH: Final = '`selector` does not match template `labels`'
_PAIR_OPERATORS: Final = ('In', 'NotIn')
_KEY_OPERATORS: Final = ('Exists', 'DoesNotExist')


def dig(obj: Any, *names: str) -> Any:
    """Return a nested value, or ``None`` if it or any of its parents is absent."""
    for name in names:
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(name)
    return obj


def invalid_struct(field: str, value: Any, detail: str) -> errors.FieldError:
    """Build the error for a value shown as a Go structure: with fields as they are declared."""
    return errors.FieldError(
        'FieldValueInvalid', field, f'Invalid value: {_render_struct(value)}: {detail}'
    )


def duplicate_struct(field: str, value: Any) -> errors.FieldError:
    return errors.FieldError(
        'FieldValueDuplicate', field, f'Duplicate value: {_render_struct(value)}'
    )


def unsupported_struct(field: str, value: Any, supported: Sequence[str]) -> errors.FieldError:
    listed = ', '.join(f'"{item}"' for item in supported)
    text = f'Unsupported value: {_render_struct(value)}: supported values: {listed}'
    return errors.FieldError('FieldValueNotSupported', field, text)


def _render_struct(value: Any) -> str:
    return json.dumps(value, separators=(',', ':'), ensure_ascii=False)


def check_enum(value: str | None, field: str, supported: Sequence[str]) -> entries.Problems:
    """Check that the value is one of the supported; an empty value is reported as missing."""
    if not value:
        return [errors.required(field)]
    return [] if value in supported else [errors.not_supported(field, value, supported)]


def check_optional_enum(
    value: str | None, field: str, supported: Sequence[str]
) -> entries.Problems:
    return (
        []
        if value is None or value in supported
        else [errors.not_supported(field, value, supported)]
    )


def check_count(value: int | None, field: str) -> entries.Problems:
    return [errors.invalid_value(field, value, NEGATIVE)] if value is not None and value < 0 else []


def check_counts(obj: entries.Object, field: str, *names: str) -> entries.Problems:
    return [problem for name in names for problem in check_count(obj.get(name), f'{field}.{name}')]


def check_name(value: str | None, field: str, check: naming.Check) -> entries.Problems:
    """Check a name if it is set."""
    return [errors.invalid_value(field, value, text) for text in check(value)] if value else []


def check_required_name(value: str | None, field: str, check: naming.Check) -> entries.Problems:
    return check_name(value, field, check) if value else [errors.required(field)]


def check_port(value: Any, field: str) -> entries.Problems:
    """Check a port given by its number or name."""
    texts = (
        naming.check_port_name(value) if isinstance(value, str) else naming.check_port(value or 0)
    )
    return [
        errors.invalid_value(field, value or 0 if not isinstance(value, str) else value, text)
        for text in texts
    ]


def check_immutable(new: Any, old: Any, field: str) -> entries.Problems:
    if (new or None) == (old or None):
        return []
    return [errors.invalid_value(field, new, 'field is immutable')]


def check_count_or_percent(value: Any, field: str) -> entries.Problems:
    if isinstance(value, str):
        return [errors.invalid_value(field, value, text) for text in naming.check_percent(value)]
    return check_count(value, field)


def check_whole_at_most(value: Any, field: str) -> entries.Problems:
    """Check that a percentage is at most 100%."""
    is_more = isinstance(value, str) and not naming.check_percent(value) and int(value[:-1]) > 100
    return [errors.invalid_value(field, value, 'must not be greater than 100%')] if is_more else []


def check_amounts(amounts: Mapping[str, str], field: str) -> entries.Problems:
    """Check that the amounts of resources are not negative."""
    return [
        errors.invalid_value(f'{field}[{name}]', amount, NEGATIVE)
        for name, amount in amounts.items()
        if quantities.parse_quantity(amount) < 0
    ]


def check_selector(selector: entries.Object | None, field: str) -> entries.Problems:
    """Check a label selector if it is set."""
    if not selector:
        return []
    problems = metadata.validate_labels(selector.get('matchLabels') or {}, f'{field}.matchLabels')
    for index, term in enumerate(selector.get('matchExpressions') or ()):
        problems += _check_term(term, f'{field}.matchExpressions[{index}]')
    return problems


def _check_term(term: entries.Object, field: str) -> entries.Problems:
    operator = term.get('operator') or ''
    values = term.get('values') or ()
    problems = []

    if operator in _PAIR_OPERATORS and not values:
        problems.append(
            errors.required(
                f'{field}.values', "must be specified when `operator` is 'In' or 'NotIn'"
            )
        )
    elif operator in _KEY_OPERATORS and values:
        problems.append(
            errors.forbidden_field(
                f'{field}.values',
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
        )
    elif operator not in (*_PAIR_OPERATORS, *_KEY_OPERATORS):
        problems.append(
            errors.invalid_value(f'{field}.operator', operator, 'not a valid selector operator')
        )

    problems += [
        errors.invalid_value(f'{field}.key', term.get('key') or '', text)
        for text in naming.check_key(term.get('key') or '')
    ]
    return problems + [
        errors.invalid_value(f'{field}.values[{index}]', value, text)
        for index, value in enumerate(values)
        for text in naming.check_label_value(value)
    ]


def is_empty_selector(selector: entries.Object) -> bool:
    return not selector.get('matchLabels') and not selector.get('matchExpressions')


def matches(selector: entries.Object | None, labels: Mapping[str, str]) -> bool:
    """Return whether a valid selector matches the labels; an absent selector matches nothing."""
    if selector is None:
        return False
    pairs = selector.get('matchLabels') or {}
    if any(labels.get(key) != value for key, value in pairs.items()):
        return False
    return all(_matches_term(term, labels) for term in selector.get('matchExpressions') or ())


def _matches_term(term: entries.Object, labels: Mapping[str, str]) -> bool:
    key = term['key']
    operator = term['operator']
    values = term.get('values') or ()
    if operator == 'In':
        return key in labels and labels[key] in values
    if operator == 'NotIn':
        return labels.get(key) not in values
    return bool((key in labels) == (operator == 'Exists'))
