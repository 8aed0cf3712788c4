"""
Match conditions: the expressions that decide whether a webhook or a policy applies to a request.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.cel import cel_types, checker, programs, values

_OBJECTS: Final = ('object', 'oldObject')


@dataclasses.dataclass(frozen=True)
class Condition:
    """One condition, as it is configured."""

    name: str
    expression: str


class ConditionError(Exception):
    """Some conditions have failed, and none of the others is false."""


def build_environment(*names: str) -> checker.Environment:
    """Return what the expressions can refer to: the request, its objects, and more by the names."""
    kinds = dict.fromkeys((*_OBJECTS, *names), cel_types.DYN)
    kinds['request'] = _build_request_type()
    return checker.Environment(kinds, programs.load_library())


@functools.cache
def _build_request_type() -> cel_types.Type:
    text = cel_types.STRING
    kind = cel_types.object_of('kubernetes.GroupVersionKind', _list_fields('group version kind'))
    resource = cel_types.object_of(
        'kubernetes.GroupVersionResource', _list_fields('group version resource')
    )
    user = cel_types.object_of(
        'kubernetes.UserInfo',
        {
            'username': text,
            'uid': text,
            'groups': cel_types.list_of(text),
            'extra': cel_types.map_of(text, cel_types.list_of(text)),
        },
    )
    plain = 'subResource requestSubResource name namespace operation'
    fields = {
        **_list_fields(plain),
        'kind': kind,
        'requestKind': kind,
        'resource': resource,
        'requestResource': resource,
        'userInfo': user,
        'dryRun': cel_types.BOOL,
        'options': cel_types.DYN,
    }

    return cel_types.object_of('kubernetes.AdmissionRequest', fields)


def _list_fields(names: str) -> dict[str, cel_types.Type]:
    return dict.fromkeys(names.split(), cel_types.STRING)


@functools.lru_cache(maxsize=1024)
def compile_expression(
    text: str, names: tuple[str, ...] = (), wanted: tuple[cel_types.Type, ...] = (cel_types.BOOL,)
) -> programs.Program:
    """Compile an expression about a request. Raises `programs.CompilationError`."""
    return programs.compile_program(text, build_environment(*names), wanted)


def parse_conditions(items: Any) -> tuple[Condition, ...]:
    return tuple(
        Condition(str(item.get('name') or ''), str(item.get('expression') or ''))
        for item in items or ()
        if isinstance(item, Mapping)
    )


def are_met(
    conditions: Sequence[Condition], data: Mapping[str, Any], names: tuple[str, ...] = ()
) -> bool:
    """Return whether all conditions are true. Raises `ConditionError`."""
    failures = []
    for condition in conditions:
        try:
            if not compile_expression(condition.expression, names).evaluate(data):
                return False
        except (values.EvaluationError, programs.CompilationError) as error:
            failures.append(f"expression '{condition.expression}' resulted in error: {error}")

    if failures:
        shown = failures[0] if len(failures) == 1 else f'[{", ".join(failures)}]'
        raise ConditionError(shown)

    return True
