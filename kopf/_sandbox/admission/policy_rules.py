"""
Rules of policies: the requirements for the expressions of admission policies and webhooks.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.admission import match_conditions
from kopf._sandbox.cel import cel_types, checker, programs
from kopf._sandbox.meta import errors

_REASONS: Final = ('Forbidden', 'Invalid', 'RequestEntityTooLarge')
_EMPTY: Final = 'validations or auditAnnotations must contain at least one item'
_BOOL: Final = (cel_types.BOOL,)
_STRING: Final = (cel_types.STRING,)
_NOTES: Final = (cel_types.STRING, cel_types.NULL)

Problems = list[errors.FieldError]


def validate_policy(obj: Mapping[str, Any]) -> Problems:
    """Return the problems of a policy."""
    spec = obj.get('spec') or {}
    params = ('params',) if spec.get('paramKind') else ()
    environment = match_conditions.build_environment('namespaceObject', *params)
    problems = check_conditions(spec.get('matchConditions') or (), 'spec.matchConditions', params)
    environment, found = _check_variables(spec.get('variables') or (), environment)
    problems += found
    validations = spec.get('validations') or ()
    notes = spec.get('auditAnnotations') or ()

    if not validations and not notes:
        problems.append(errors.required('spec.validations', _EMPTY))
        problems.append(errors.required('spec.auditAnnotations', _EMPTY))

    for index, validation in enumerate(validations):
        problems += _check_validation(validation, f'spec.validations[{index}]', environment)
    for index, note in enumerate(notes):
        path = f'spec.auditAnnotations[{index}].valueExpression'
        problems += check_expression(note.get('valueExpression'), path, environment, _NOTES)

    return problems


def _check_variables(
    variables: Sequence[Mapping[str, Any]], environment: checker.Environment
) -> tuple[checker.Environment, Problems]:
    """Check the variables, each of which sees the previous ones; return what sees all of them."""
    problems: Problems = []
    fields: dict[str, cel_types.Type] = {}
    for index, variable in enumerate(variables):
        environment = _add_variables(environment, fields)
        text = str(variable.get('expression') or '')
        path = f'spec.variables[{index}].expression'
        problems += check_expression(text, path, environment, ())
        fields[str(variable.get('name') or '')] = _find_type(text, environment)

    return _add_variables(environment, fields), problems


def _add_variables(
    environment: checker.Environment, fields: dict[str, cel_types.Type]
) -> checker.Environment:
    kind = cel_types.object_of('kubernetes.variables', dict(fields))
    return dataclasses.replace(environment, variables={**environment.variables, 'variables': kind})


def _find_type(text: str, environment: checker.Environment) -> cel_types.Type:
    try:
        return programs.compile_program(text, environment, ()).type
    except programs.CompilationError:
        return cel_types.DYN


def _check_validation(
    validation: Mapping[str, Any], path: str, environment: checker.Environment
) -> Problems:
    problems = check_expression(
        validation.get('expression'), f'{path}.expression', environment, _BOOL
    )
    if validation.get('messageExpression'):
        where = f'{path}.messageExpression'
        problems += check_expression(validation['messageExpression'], where, environment, _STRING)

    reason = validation.get('reason')
    if reason and reason not in _REASONS:
        problems.append(errors.not_supported(f'{path}.reason', reason, _REASONS))
    return problems


def check_conditions(
    conditions: Sequence[Mapping[str, Any]], path: str, names: tuple[str, ...] = ()
) -> Problems:
    """Return the problems of the expressions of match conditions."""
    environment = match_conditions.build_environment(*names)
    problems: Problems = []
    for index, condition in enumerate(conditions):
        where = f'{path}[{index}].expression'
        if str(condition.get('expression') or '').strip():
            problems += check_expression(condition['expression'], where, environment, _BOOL)

    return problems


def check_expression(
    text: Any, path: str, environment: checker.Environment, wanted: tuple[cel_types.Type, ...]
) -> Problems:
    """Return the problem of one expression, if there is any."""
    if not str(text or '').strip():
        return [errors.required(path, 'expression is not specified')]
    try:
        programs.compile_program(str(text), environment, wanted)
    except programs.CompilationError as error:
        given = f' but got {error.given}' if error.given else ''
        return [errors.invalid_value(path, text, f'{error}{given}')]

    return []
