"""
Validation rules: ``x-kubernetes-validations`` of schemas, compiled, and evaluated for objects.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kopf._sandbox.cel import cel_types, checker, programs, schema_values, values
from kopf._sandbox.meta import equality, errors, schemas
from kopf._sandbox.schema import constraints

FIELD: Final = 'x-kubernetes-validations'
MAX_MESSAGE: Final = 5 * 1024
Raw = Mapping[str, Any]
_BUILDERS: Final = {
    'FieldValueRequired': 'Required value',
    'FieldValueForbidden': 'Forbidden',
}


@dataclasses.dataclass(frozen=True)
class Rule:
    """One compiled rule."""

    program: programs.Program
    message: str
    expression: programs.Program | None
    reason: str
    field: str
    is_optional: bool  # the old value is optional

    @property
    def is_transition(self) -> bool:
        return 'oldSelf' in self.program.names


@dataclasses.dataclass(frozen=True, eq=False)
class Examined:
    """The rules of one node of a schema, and the nodes below that have rules."""

    raw: Raw
    is_root: bool
    rules: tuple[Rule, ...]
    fields: Mapping[str, 'Examined']
    others: 'Examined | None'  # of maps
    items: 'Examined | None'


def build_environment(raw: Raw, *, is_root: bool, is_optional: bool = False) -> checker.Environment:
    """Return what the rules of a node can refer to."""
    kind = schema_values.build_type(raw, is_root=is_root) or cel_types.DYN
    old = cel_types.optional_of(kind) if is_optional else kind
    return checker.Environment({'self': kind, 'oldSelf': old}, programs.load_library())


def compile_rule(rule: Raw, raw: Raw, *, is_root: bool) -> Rule:
    """Compile a rule. Raises `programs.CompilationError`."""
    is_optional = bool(rule.get('optionalOldSelf'))
    environment = build_environment(raw, is_root=is_root, is_optional=is_optional)
    program = programs.compile_program(str(rule.get('rule') or ''), environment)
    text = rule.get('messageExpression')
    expression = None
    if text:
        expression = programs.compile_program(str(text), environment, (cel_types.STRING,))
    message = str(rule.get('message') or '').strip() or f'failed rule: {program.text.strip()}'
    reason = str(rule.get('reason') or 'FieldValueInvalid')
    return Rule(program, message, expression, reason, str(rule.get('fieldPath') or ''), is_optional)


@functools.lru_cache(maxsize=1024)
def compile_rules(schema: schemas.Schema) -> Examined | None:
    """Compile all rules of a whole schema; return ``None`` if there are none."""
    return _compile(schema.raw, is_root=True)


def _compile(raw: Raw, *, is_root: bool = False) -> Examined | None:
    rules = tuple(_iterate_rules(raw, is_root=is_root))
    fields = {
        name: found
        for name, child in (raw.get('properties') or {}).items()
        if (found := _compile(child)) is not None
    }
    others, items = (
        _compile(child) if isinstance(child, Mapping) else None
        for child in (raw.get('additionalProperties'), raw.get('items'))
    )
    if not rules and not fields and others is None and items is None:
        return None
    return Examined(raw, is_root, rules, fields, others, items)


def _iterate_rules(raw: Raw, *, is_root: bool) -> Iterator[Rule]:
    for rule in raw.get(FIELD) or ():
        try:
            yield compile_rule(rule, raw, is_root=is_root)
        except programs.CompilationError:
            continue  # stored before the expressions were checked


@dataclasses.dataclass(frozen=True)
class Finding:
    """A problem; it is tolerated if the value is unchanged."""

    problem: errors.FieldError
    is_tolerated: bool


def validate(value: Any, schema: schemas.Schema, *, old: Any = schemas.UNSET) -> list[Finding]:
    """Return the problems found by the rules in an object that is valid otherwise."""
    examined = compile_rules(schema)
    return [] if examined is None else list(_validate(examined, value, old, ''))


def _validate(examined: Examined, value: Any, old: Any, path: str) -> Iterator[Finding]:
    if value is None:
        return

    if examined.rules:
        yield from _evaluate(examined, value, old, path)
    if isinstance(value, Mapping):
        before = old if isinstance(old, Mapping) else {}
        for name, item in value.items():
            child = examined.fields.get(name) or examined.others
            if child is not None:
                is_key = name not in examined.fields
                where = f'{path}[{name}]' if is_key else f'{path}.{name}' if path else name
                yield from _validate(child, item, before.get(name, schemas.UNSET), where)
    elif isinstance(value, list) and examined.items is not None:
        known = _index_items(old, examined.raw)
        for index, item in enumerate(value):
            before_item = known.get(_find_key(item, examined.raw), schemas.UNSET)
            yield from _validate(examined.items, item, before_item, f'{path}[{index}]')


def _index_items(old: Any, raw: Raw) -> dict[Any, Any]:
    if raw.get('x-kubernetes-list-type') != 'map' or not isinstance(old, list):
        return {}
    return {_find_key(item, raw): item for item in old}


def _find_key(item: Any, raw: Raw) -> Any:
    keys = raw.get('x-kubernetes-list-map-keys') or ()
    return tuple(item.get(key) for key in keys) if isinstance(item, Mapping) else ()


def _evaluate(examined: Examined, value: Any, old: Any, path: str) -> Iterator[Finding]:
    raw = examined.raw
    is_root = examined.is_root
    is_new = old is schemas.UNSET or old is None
    is_same = not is_new and equality.is_same(value, old)
    own = schema_values.build_value(value, raw, is_root=is_root)
    before = None if is_new else schema_values.build_value(old, raw, is_root=is_root)

    for rule in examined.rules:
        if rule.is_transition and is_new and not rule.is_optional:
            continue
        shown = values.Optional(before, not is_new) if rule.is_optional else before
        problem = _check(rule, {'self': own, 'oldSelf': shown}, value, path)
        if problem is not None:
            # What was stored may stay.
            yield Finding(problem, is_tolerated=is_same and not rule.is_transition)


def _check(rule: Rule, data: Mapping[str, Any], value: Any, path: str) -> errors.FieldError | None:
    try:
        if rule.program.evaluate(data):
            return None
    except values.EvaluationError as error:
        kind = constraints.name_type(value)
        return errors.invalid_value(path or '<nil>', kind, _describe_failure(str(error), rule))

    where = f'{path}{rule.field}'.removeprefix('.') or '<nil>'
    return _build_problem(rule, where, value, _make_message(rule, data))


def _describe_failure(error: str, rule: Rule) -> str:
    shown = rule.message.removeprefix('failed rule: ')
    if error == 'no such overload':
        return (
            "'no such overload': call arguments did not match a supported operator, function or "
            f'macro signature for rule: {shown}'
        )
    return f'{error} evaluating rule: {shown}'


def _build_problem(rule: Rule, path: str, value: Any, message: str) -> errors.FieldError:
    is_complex = isinstance(value, Mapping | list)
    if rule.reason in _BUILDERS:
        return errors.FieldError(rule.reason, path, f'{_BUILDERS[rule.reason]}: {message}')
    if rule.reason == 'FieldValueDuplicate':
        shown = '' if is_complex else f': {errors.render(value)}'
        return errors.FieldError(rule.reason, path, f'Duplicate value{shown}')

    if is_complex:
        return errors.FieldError(rule.reason, path, f'Invalid value: {message}')
    return errors.invalid_value(path, value, message)


def _make_message(rule: Rule, data: Mapping[str, Any]) -> str:
    if rule.expression is None:
        return rule.message
    try:
        made = str(rule.expression.evaluate(data)).strip()
    except values.EvaluationError:
        return rule.message

    is_good = bool(made) and '\n' not in made and len(made.encode()) <= MAX_MESSAGE
    return made if is_good else rule.message
