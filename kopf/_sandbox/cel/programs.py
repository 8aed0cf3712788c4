"""
Programs: compiled expressions, ready to be evaluated with data.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Final

from kopf._sandbox.cel import cel_types, checker, functions, interpreter, syntax, values


class CompilationError(Exception):
    """The expression is invalid; the message is that of the API."""

    def __init__(self, message: str, *, given: cel_types.Type | None = None) -> None:
        super().__init__(message)
        self.given = given  # the type of a valid expression that is not of the wanted type


@dataclasses.dataclass(frozen=True)
class Program:
    """A compiled expression."""

    text: str
    type: cel_types.Type
    evaluator: interpreter.Evaluator
    names: frozenset[str]  # all names in it, among them the variables

    def evaluate(self, data: Mapping[str, Any]) -> Any:
        """Return the value; raise `values.EvaluationError` if there is none."""
        try:
            return self.evaluator({**data, interpreter.BUDGET: [interpreter.MAX_STEPS]})
        except RecursionError:
            raise values.EvaluationError('the expression is too deep') from None


@functools.cache
def load_library() -> functions.Library:
    """Return all functions of the API. They are imported with the first expression."""
    from kopf._sandbox.cel import collections_library, kubernetes, operators, texts

    library = functions.Library()
    for module in (operators, texts, collections_library, kubernetes):
        library.include(module.LIBRARY)
    return library


def compile_program(
    text: str,
    environment: checker.Environment,
    wanted: tuple[cel_types.Type, ...] = (cel_types.BOOL,),
) -> Program:
    """Compile an expression of one of the types, if any; raise `CompilationError`."""
    try:
        node = syntax.parse(text)
    except syntax.SyntaxProblem as problem:
        raise CompilationError(f'compilation failed: {problem}') from problem

    examination = checker.Checker(environment, text)
    kind = examination.check(node)
    if examination.problems:
        raise CompilationError('compilation failed: ' + '\n'.join(examination.problems))

    if wanted and kind not in wanted:
        names = ' or '.join(map(str, wanted))
        raise CompilationError(f'must evaluate to {names}', given=kind)

    evaluator = interpreter.Interpreter(environment.library, environment.variables).compile(node)
    return Program(text, kind, evaluator, frozenset(_iterate_names(node)))


_CHILDREN: Final = ('operand', 'target', 'range', 'initial', 'condition', 'step', 'result')


def _iterate_names(node: syntax.Node) -> Any:
    if isinstance(node, syntax.Name):
        yield node.name
    for field in _CHILDREN:
        child = getattr(node, field, None)
        if isinstance(child, syntax.Node):
            yield from _iterate_names(child)

    for field in ('arguments', 'items', 'entries'):
        for child in getattr(node, field, ()):
            yield from _iterate_entry(child)


def _iterate_entry(child: Any) -> Any:
    parts = [child] if isinstance(child, syntax.Node) else [child.key, child.value]
    for part in parts:
        if isinstance(part, syntax.Node):
            yield from _iterate_names(part)
