"""
The interpreter: expressions as functions of their variables.

As in the API, errors in a part of ``&&`` and ``||`` matter only if the other part does not decide.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.cel import cel_types, checker, functions, syntax, values

Scope = Mapping[str, Any]
Evaluator = Callable[[Scope], Any]

MAX_STEPS: Final = 1_000_000
"""The iterations of one expression; a real server limits its cost, which is not known here."""

BUDGET: Final = '@budget'
_TYPES: Final = ('bool', 'int', 'uint', 'double', 'string', 'bytes', 'list', 'map', 'null_type')
_CONSTANT_TYPES: Final = {name: cel_types.Type(name) for name in (*_TYPES, 'type')}


class Lazy:
    """A variable that is calculated when it is first needed."""

    def __init__(self, calculate: Callable[[], Any]) -> None:
        self._calculate = calculate
        self._outcome: tuple[Any, values.EvaluationError | None] | None = None

    def get(self) -> Any:
        if self._outcome is None:
            try:
                self._outcome = self._calculate(), None
            except values.EvaluationError as error:
                self._outcome = None, error

        value, failure = self._outcome
        if failure is not None:
            raise failure
        return value


class Interpreter:
    """Compiles the nodes of one expression."""

    def __init__(self, library: functions.Library, variables: Mapping[str, Any]) -> None:
        self._library = library
        self._names: set[str] = set(variables)

    def compile(self, node: syntax.Node) -> Evaluator:
        """Return the function that evaluates a node."""
        made: Evaluator = _COMPILERS[type(node)](self, node)
        return made

    def compile_constant(self, node: syntax.Constant) -> Evaluator:
        value = node.value
        return lambda scope: value

    def compile_name(self, node: syntax.Name) -> Evaluator:
        name = node.name

        def get(scope: Scope) -> Any:
            if name not in scope:
                if name in _CONSTANT_TYPES:
                    return _CONSTANT_TYPES[name]
                raise values.EvaluationError(f'no such attribute(s): {name}')

            value = scope[name]
            if isinstance(value, values.EvaluationError):
                raise value
            return value.get() if isinstance(value, Lazy) else value

        return get

    def compile_select(self, node: syntax.Select) -> Evaluator:
        operand = self.compile(node.operand)
        field = node.field
        if node.is_test:
            return lambda scope: has_field(operand(scope), field)
        return lambda scope: get_field(operand(scope), field)

    def compile_call(self, node: syntax.Call) -> Evaluator:
        special = _SPECIAL.get(node.function)
        if special is not None:
            return special([self.compile(argument) for argument in node.arguments])

        qualified = checker.find_qualified(node, self._library, self._find)
        is_method = node.target is not None and not qualified
        nodes = [node.target, *node.arguments] if is_method else node.arguments
        arguments = [self.compile(argument) for argument in nodes if argument is not None]
        overloads = self._library.find(
            qualified or node.function, is_method=is_method, count=len(arguments)
        )

        return _dispatch(overloads, arguments)

    def _find(self, name: str) -> object:
        return name if name in self._names else None

    def compile_list(self, node: syntax.ListNode) -> Evaluator:
        items = [
            (self.compile(item), index in node.optional) for index, item in enumerate(node.items)
        ]

        def build(scope: Scope) -> list[Any]:
            made = ((evaluate(scope), is_optional) for evaluate, is_optional in items)
            return [
                value.value if is_optional else value
                for value, is_optional in made
                if not is_optional or value.is_present
            ]

        return build

    def compile_struct(self, node: syntax.StructNode) -> Evaluator:
        entries = [
            (
                self.compile(entry.key) if isinstance(entry.key, syntax.Node) else entry.key,
                self.compile(entry.value),
                entry.is_optional,
            )
            for entry in node.entries
        ]

        def build(scope: Scope) -> dict[Any, Any]:
            made = {}
            for key, evaluate, is_optional in entries:
                value = evaluate(scope)
                if is_optional and not value.is_present:
                    continue
                name = key if isinstance(key, str) else key(scope)
                made[name] = value.value if is_optional else value

            return made

        return build

    def compile_comprehension(self, node: syntax.Comprehension) -> Evaluator:
        iterate = self.compile(node.range)
        initial = self.compile(node.initial)
        added = {node.variable, node.second, node.accumulator} - self._names
        self._names |= added
        condition = self.compile(node.condition)
        step = self.compile(node.step)
        result = self.compile(node.result)
        self._names -= added

        def run(scope: Scope) -> Any:
            inner = dict(scope)
            pairs = _list_pairs(iterate(scope), is_double=bool(node.second))
            inner[node.accumulator] = initial(scope)

            for first, second in pairs:
                _spend(scope)
                inner[node.variable] = first
                if node.second:
                    inner[node.second] = second
                if not condition(inner):
                    break
                inner[node.accumulator] = _attempt(step, inner)

            return result(inner)

        return run


def _spend(scope: Scope) -> None:
    budget = scope.get(BUDGET)
    if budget is not None:
        budget[0] -= 1
        if budget[0] < 0:
            raise values.EvaluationError('operation cancelled: actual cost limit exceeded')


def _attempt(evaluate: Evaluator, scope: Scope) -> Any:
    """Return the value or the error: the next steps can still decide."""
    try:
        return evaluate(scope)
    except values.EvaluationError as error:
        return error


def _list_pairs(value: Any, *, is_double: bool) -> Sequence[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list):
        return list(enumerate(value)) if is_double else [(item, None) for item in value]
    raise values.EvaluationError('no such overload')


def has_field(value: Any, field: str) -> bool:
    if isinstance(value, values.Optional):
        return value.is_present and has_field(value.value, field)
    if isinstance(value, Mapping):
        return field in value
    raise values.EvaluationError('no such overload')


def get_field(value: Any, field: str) -> Any:
    if isinstance(value, values.Optional):
        return get_optional(value, field)
    if not isinstance(value, Mapping):
        raise values.EvaluationError('no such overload')
    if field not in value:
        raise values.EvaluationError(f'no such key: {field}')
    found = value[field]
    return found.get() if isinstance(found, Lazy) else found


def get_optional(owner: Any, key: Any) -> values.Optional:
    """Return an item as an optional value."""
    if isinstance(owner, values.Optional):
        return get_optional(owner.value, key) if owner.is_present else values.NONE
    if isinstance(owner, Mapping):
        return values.Optional(get_field(owner, key), True) if key in owner else values.NONE
    if isinstance(owner, list) and isinstance(key, int):
        is_inside = 0 <= key < len(owner)
        return values.Optional(owner[key], True) if is_inside else values.NONE

    raise values.EvaluationError('no such overload')


def _dispatch(overloads: Sequence[functions.Overload], arguments: Sequence[Evaluator]) -> Evaluator:
    def call(scope: Scope) -> Any:
        given = [evaluate(scope) for evaluate in arguments]
        for overload in overloads:
            if overload.accepts(given):
                return overload.call(*given)
        raise values.EvaluationError('no such overload')

    return call


def _compile_logic(arguments: Sequence[Evaluator], decisive: bool) -> Evaluator:
    first, second = arguments

    def decide(scope: Scope) -> bool:
        value = _attempt(first, scope)
        if value is decisive:
            return bool(decisive)

        other = _attempt(second, scope)
        if other is decisive:
            return bool(decisive)

        for outcome in (value, other):
            if isinstance(outcome, values.EvaluationError):
                raise outcome
            if not isinstance(outcome, bool):
                raise values.EvaluationError('no such overload')

        return not decisive

    return decide


def _compile_choice(arguments: Sequence[Evaluator]) -> Evaluator:
    condition, first, second = arguments

    def choose(scope: Scope) -> Any:
        value = condition(scope)
        if not isinstance(value, bool):
            raise values.EvaluationError('no such overload')
        return first(scope) if value else second(scope)

    return choose


def _compile_tolerance(arguments: Sequence[Evaluator]) -> Evaluator:
    def tolerate(scope: Scope) -> bool:
        value = _attempt(arguments[0], scope)
        return isinstance(value, values.EvaluationError) or value is not False

    return tolerate


def _compile_optional(arguments: Sequence[Evaluator]) -> Evaluator:
    owner, key = arguments
    return lambda scope: get_optional(owner(scope), key(scope))


_SPECIAL: Final[dict[str, Callable[[Sequence[Evaluator]], Evaluator]]] = {
    '_&&_': lambda arguments: _compile_logic(arguments, False),
    '_||_': lambda arguments: _compile_logic(arguments, True),
    '_?_:_': _compile_choice,
    '@not_strictly_false': _compile_tolerance,
    '_?._': _compile_optional,
    '_[?_]': _compile_optional,
}
_COMPILERS: Final[dict[type, Any]] = {
    syntax.Constant: Interpreter.compile_constant,
    syntax.Name: Interpreter.compile_name,
    syntax.Select: Interpreter.compile_select,
    syntax.Call: Interpreter.compile_call,
    syntax.ListNode: Interpreter.compile_list,
    syntax.StructNode: Interpreter.compile_struct,
    syntax.Comprehension: Interpreter.compile_comprehension,
}
