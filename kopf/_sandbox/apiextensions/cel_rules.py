"""
Rules of expressions: the requirements for ``x-kubernetes-validations`` in schemas.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.cel import programs, validation_rules
from kopf._sandbox.meta import errors

Raw = Mapping[str, Any]
Problems = Iterator[errors.FieldError]
FIELD: Final = validation_rules.FIELD
_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\['([^']+)'\]")


@dataclasses.dataclass(frozen=True)
class Place:
    """The position of a node in the schema, as far as it affects its expressions."""

    is_root: bool = False
    uncorrelatable: str = ''  # the path of the list whose items have no identity


def check_expressions(raw: Raw, path: str, place: Place) -> Problems:
    """Yield the problems of the expressions of one node."""
    for index, rule in enumerate(raw.get(FIELD) or ()):
        if str(rule.get('rule') or '').strip():
            yield from _check_rule(rule, raw, f'{path}.{FIELD}[{index}]', place)


def _check_rule(rule: Raw, raw: Raw, path: str, place: Place) -> Problems:
    plain = {**rule, 'messageExpression': ''}
    try:
        compiled = validation_rules.compile_rule(plain, raw, is_root=place.is_root)
    except programs.CompilationError as error:
        why = 'cel expression must evaluate to a bool' if error.given else str(error)
        yield _complain(rule, f'{path}.rule', why)
        return

    if compiled.is_transition and place.uncorrelatable:
        yield errors.invalid_value(
            f'{path}.rule',
            rule['rule'],
            'oldSelf cannot be used on the uncorrelatable portion of the schema within '
            f'{place.uncorrelatable}',
        )

    if rule.get('optionalOldSelf') is not None and not compiled.is_transition:
        yield errors.invalid_value(
            f'{path}.optionalOldSelf',
            rule['optionalOldSelf'],
            'may not be set if oldSelf is not used in rule',
        )

    field = str(rule.get('fieldPath') or '')
    if field and not is_field(field, raw):
        yield errors.invalid_value(f'{path}.fieldPath', field, 'must be a valid path')
    try:
        validation_rules.compile_rule(rule, raw, is_root=place.is_root)
    except programs.CompilationError as error:
        why = 'must evaluate to a string' if error.given else str(error)
        yield _complain(rule, f'{path}.messageExpression', f'messageExpression {why}')


def is_field(path: str, raw: Raw) -> bool:
    """Return whether a path such as ``.a.b['c']`` leads to a field of the schema."""
    position = 0
    node = raw
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            return False
        found = (node.get('properties') or {}).get(step[1] or step[2])
        if found is None:
            found = node.get('additionalProperties')
        if not isinstance(found, Mapping):
            return False
        position = step.end()
        node = found

    return True


def _complain(rule: Raw, path: str, why: str) -> errors.FieldError:
    shown = json.dumps(dump_rule(rule), separators=(',', ':'), ensure_ascii=False)
    for char in '<>&':
        shown = shown.replace(char, f'\\u{ord(char):04x}')
    return errors.FieldError('FieldValueInvalid', path, f'Invalid value: {shown}: {why}')


def dump_rule(rule: Raw) -> dict[str, Any]:
    """Return a rule as the API shows it in errors."""
    return {
        'Rule': rule.get('rule') or '',
        'Message': rule.get('message') or '',
        'MessageExpression': rule.get('messageExpression') or '',
        'Reason': rule.get('reason'),
        'FieldPath': rule.get('fieldPath') or '',
        'OptionalOldSelf': rule.get('optionalOldSelf'),
    }
