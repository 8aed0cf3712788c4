"""
The checker: the types of expressions, and what is wrong with them before there are any data.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kopf._sandbox.cel import cel_types, functions, syntax, values

_LOGIC: Final = ('_&&_', '_||_')
_TYPE_NAMES: Final = frozenset(
    ('bool', 'int', 'uint', 'double', 'string', 'bytes', 'list', 'map', 'null_type', 'type')
)
_OPTIONAL_SELECT: Final = '_?._'


@dataclasses.dataclass(frozen=True)
class Environment:
    """What expressions can refer to: variables with their types, and functions."""

    variables: Mapping[str, cel_types.Type]
    library: functions.Library
    objects: Mapping[str, cel_types.Type] = dataclasses.field(default_factory=dict)


class Checker:
    """Checks one expression; the problems are collected in ``problems``."""

    def __init__(self, environment: Environment, text: str) -> None:
        self._environment = environment
        self._text = text
        self._problems: list[tuple[int, str]] = []
        self.types: dict[int, cel_types.Type] = {}
        self._scopes: list[dict[str, cel_types.Type]] = [dict(environment.variables)]

    @property
    def problems(self) -> list[str]:
        """The problems, in the order of their places in the text."""
        return [text for _, text in sorted(self._problems, key=lambda item: item[0])]

    def check(self, node: syntax.Node) -> cel_types.Type:
        """Return the type of a node; that of errors if there are problems in it."""
        kind: cel_types.Type = _CHECKS[type(node)](self, node)
        self.types[id(node)] = kind
        return kind

    def complain(self, node: syntax.Node, message: str) -> cel_types.Type:
        self._problems.append((node.offset, syntax.locate(self._text, node.offset, message)))
        return cel_types.ERROR

    def find_variable(self, name: str) -> cel_types.Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def check_constant(self, node: syntax.Constant) -> cel_types.Type:
        return cel_types.Type(values.name_type(node.value))

    def check_name(self, node: syntax.Name) -> cel_types.Type:
        found = self.find_variable(node.name)
        if found is not None:
            return found
        if node.name in _TYPE_NAMES:
            return cel_types.Type('type', (cel_types.Type(node.name),))
        return self.complain(node, f"undeclared reference to '{node.name}' (in container '')")

    def check_select(self, node: syntax.Select) -> cel_types.Type:
        operand = self.check(node.operand)
        is_optional = operand.name == 'optional'
        inner = operand.params[0] if is_optional else operand
        found = self._find_field(node, inner, node.field)
        if node.is_test:
            return cel_types.BOOL
        return cel_types.optional_of(found) if is_optional and found.name != 'optional' else found

    def _find_field(self, node: syntax.Node, owner: cel_types.Type, field: str) -> cel_types.Type:
        if owner.fields is not None:
            found = owner.fields.get(field)
            return found or self.complain(node, f"undefined field '{field}'")

        if owner.name == 'map':
            return owner.params[1]
        if cel_types.is_loose(owner) or owner.is_parameter:
            return cel_types.DYN if owner.name != cel_types.ERROR.name else owner
        return self.complain(node, f"type '{owner}' does not support field selection")

    def check_call(self, node: syntax.Call) -> cel_types.Type:
        if node.function in (_OPTIONAL_SELECT, '_[?_]'):
            return self._check_optional_access(node)
        if node.function == '_?_:_':
            return self._check_choice(node)
        if node.function in _LOGIC:
            return self._check_logic(node)

        qualified = find_qualified(node, self._environment.library, self.find_variable)
        if qualified:
            arguments = [self.check(argument) for argument in node.arguments]
            return self._resolve(node, qualified, arguments, is_method=False)

        nodes = [*([node.target] if node.target is not None else []), *node.arguments]
        arguments = [self.check(argument) for argument in nodes]
        return self._resolve(node, node.function, arguments, is_method=node.target is not None)

    def _resolve(
        self,
        node: syntax.Call,
        name: str,
        arguments: Sequence[cel_types.Type],
        *,
        is_method: bool,
    ) -> cel_types.Type:
        library = self._environment.library
        if name not in library.overloads:
            return self.complain(node, f"undeclared reference to '{name}' (in container '')")

        found: cel_types.Type | None = None
        for overload in library.find(name, is_method=is_method, count=len(arguments)):
            bindings: cel_types.Bindings = {}
            if all(
                cel_types.assign(wanted, given, bindings)
                for wanted, given in zip(overload.parameters, arguments, strict=True)
            ):
                result = cel_types.substitute(overload.result, bindings)
                found = result if found in (None, result) else cel_types.DYN

        if found is not None:
            return found
        if any(argument == cel_types.ERROR for argument in arguments):
            return cel_types.ERROR

        shown = list(map(str, arguments))
        applied = f'{shown[0]}.({", ".join(shown[1:])})' if is_method else f'({", ".join(shown)})'
        return self.complain(
            node, f"found no matching overload for '{name}' applied to '{applied}'"
        )

    def _check_optional_access(self, node: syntax.Call) -> cel_types.Type:
        operand = self.check(node.arguments[0])
        inner = operand.params[0] if operand.name == 'optional' else operand
        if node.function == _OPTIONAL_SELECT:
            field = node.arguments[1]
            assert isinstance(field, syntax.Constant), 'the grammar has only names there'
            found = self._find_field(node, inner, str(field.value))
        else:
            key = self.check(node.arguments[1])
            found = self._resolve(node, '_[_]', [inner, key], is_method=False)

        return found if found.name == 'optional' else cel_types.optional_of(found)

    def _check_choice(self, node: syntax.Call) -> cel_types.Type:
        condition, first, second = (self.check(argument) for argument in node.arguments)
        bindings: cel_types.Bindings = {}
        wanted = cel_types.Type('A')

        if not cel_types.assign(cel_types.BOOL, condition, {}) or not (
            cel_types.assign(wanted, first, bindings) and cel_types.assign(wanted, second, bindings)
        ):
            applied = f'({condition}, {first}, {second})'
            return self.complain(
                node, f"found no matching overload for '_?_:_' applied to '{applied}'"
            )

        return bindings['A']

    def _check_logic(self, node: syntax.Call) -> cel_types.Type:
        kinds = [self.check(argument) for argument in node.arguments]
        if all(cel_types.assign(cel_types.BOOL, kind, {}) for kind in kinds):
            return cel_types.BOOL
        applied = f'({", ".join(map(str, kinds))})'
        return self.complain(
            node, f"found no matching overload for '{node.function}' applied to '{applied}'"
        )

    def check_list(self, node: syntax.ListNode) -> cel_types.Type:
        kind: cel_types.Type | None = None
        for index, item in enumerate(node.items):
            found = self.check(item)
            if index in node.optional and found.name == 'optional':
                found = found.params[0]
            kind = cel_types.join(kind, found)
        return cel_types.list_of(kind or cel_types.Type('T'))

    def check_struct(self, node: syntax.StructNode) -> cel_types.Type:
        if node.name:
            return self._check_object(node)
        key: cel_types.Type | None = None
        value: cel_types.Type | None = None
        for entry in node.entries:
            assert isinstance(entry.key, syntax.Node), 'keys of maps are expressions'
            key = cel_types.join(key, self.check(entry.key))
            value = cel_types.join(value, self._check_entry(entry))

        return cel_types.map_of(key or cel_types.Type('K'), value or cel_types.Type('V'))

    def _check_entry(self, entry: syntax.Entry) -> cel_types.Type:
        found = self.check(entry.value)
        is_wrapped = entry.is_optional and found.name == 'optional'
        return found.params[0] if is_wrapped else found

    def _check_object(self, node: syntax.StructNode) -> cel_types.Type:
        kind = self._environment.objects.get(node.name)
        if kind is None or kind.fields is None:
            return self.complain(node, f"undeclared reference to '{node.name}' (in container '')")

        for entry in node.entries:
            given = self._check_entry(entry)
            wanted = kind.fields.get(str(entry.key))
            if wanted is None:
                self.complain(entry.value, f"undefined field '{entry.key}'")
            elif not cel_types.assign(wanted, given, {}):
                self.complain(
                    entry.value,
                    f"expected type of field '{entry.key}' is '{wanted}' but provided type is "
                    f"'{given}'",
                )

        return kind

    def check_comprehension(self, node: syntax.Comprehension) -> cel_types.Type:
        first, second = self._find_item_types(node, self.check(node.range))
        self._scopes.append({node.accumulator: self.check(node.initial)})
        self._scopes.append(
            {node.variable: first, **({node.second: second} if node.second else {})}
        )
        self.check(node.condition)
        step = self.check(node.step)
        self._scopes.pop()
        if step != cel_types.ERROR:
            self._scopes[-1][node.accumulator] = step
        result = self.check(node.result)
        self._scopes.pop()
        return result

    def _find_item_types(
        self, node: syntax.Comprehension, kind: cel_types.Type
    ) -> tuple[cel_types.Type, cel_types.Type]:
        if kind.name == 'list':
            return (cel_types.INT, kind.params[0]) if node.second else (kind.params[0], kind)
        if kind.name == 'map':
            return kind.params[0], kind.params[1]

        if not cel_types.is_loose(kind):
            self.complain(
                node.range,
                f"expression of type '{kind}' cannot be range of a comprehension "
                '(must be list, map, or dynamic)',
            )
            return cel_types.ERROR, cel_types.ERROR

        return cel_types.DYN, cel_types.DYN


_CHECKS: Final[dict[type, Any]] = {
    syntax.Constant: Checker.check_constant,
    syntax.Name: Checker.check_name,
    syntax.Select: Checker.check_select,
    syntax.Call: Checker.check_call,
    syntax.ListNode: Checker.check_list,
    syntax.StructNode: Checker.check_struct,
    syntax.Comprehension: Checker.check_comprehension,
}


def find_qualified(node: syntax.Call, library: functions.Library, find_variable: Any) -> str:
    """Return the name of a function with dots, such as ``ip.isCanonical``; empty for methods."""
    names: list[str] = [node.function]
    target = node.target
    while isinstance(target, syntax.Select) and not target.is_test:
        names.insert(0, target.field)
        target = target.operand

    if not isinstance(target, syntax.Name) or find_variable(target.name) is not None:
        return ''

    name = '.'.join([target.name, *names])
    return name if name in library.overloads else ''
