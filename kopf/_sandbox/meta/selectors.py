"""
Selectors: the conditions on objects in lists, watches and webhooks.

Both the textual form of queries (``app=web,tier in (a, b)``) and the ``LabelSelector`` objects of
manifests become one `Selector`, which is matched against labels or fields. Malformed ones raise
`ApiError`.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kopf._sandbox.meta import errors, naming

_TOKEN = re.compile(r'\s*(?:(?P<op>!=|==|=|>|<|!|\(|\)|,)|(?P<word>[^\s,!=<>()]+))')
_TOKEN_OPERATOR = re.compile(r'[!=<>()]+')
_NO_BEGINNINGS = ('=', '==', '!=', '(', ')', ',', '>', '<')
_OBJECT_OPERATORS = {'In': 'in', 'NotIn': 'notin', 'Exists': 'exists', 'DoesNotExist': '!'}


@dataclasses.dataclass(frozen=True)
class Requirement:
    """One condition on one label or field."""

    key: str
    operator: str  # in, notin, exists, !, >, <
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case 'in':
                return value is not None and value in self.values
            case 'notin':
                return value is None or value not in self.values
            case 'exists':
                return value is not None
            case '!':
                return value is None
            case _:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        try:
            actual = int(value or '')
            limit = int(next(iter(self.values)))
        except ValueError:
            return False
        return actual > limit if self.operator == '>' else actual < limit


@dataclasses.dataclass(frozen=True)
class Selector:
    """All of the requirements; with none, everything matches."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def keys(self) -> list[str]:
        return [requirement.key for requirement in self.requirements]


class Selectable(Protocol):
    """The properties of an object that selectors use."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def fields(self) -> Mapping[str, str]: ...


@dataclasses.dataclass(frozen=True)
class Interest:
    """The restrictions of a list or a watch."""

    namespace: str = ''
    labels: Selector = Selector()
    fields: Selector = Selector()

    @property
    def is_selective(self) -> bool:
        return bool(self.labels or self.fields)

    def wants(self, item: Selectable) -> bool:
        if self.namespace and item.namespace != self.namespace:
            return False
        if not self.is_selective:
            return True
        if self.labels and not self.labels.matches(item.labels):
            return False
        return not self.fields or self.fields.matches(
            {**item.fields, 'metadata.name': item.name, 'metadata.namespace': item.namespace}
        )


def parse_interest(
    options: Mapping[str, str], namespace: str, selectable: Sequence[str], *, custom: bool = False
) -> Interest:
    """Parse the selectors of a query; only names, namespaces and the listed fields are allowed."""
    labels = parse_labels(options.get('labelSelector', ''))
    fields = parse_fields(options.get('fieldSelector', ''))
    known = {
        'metadata.name',
        'metadata.namespace',
        *(field.removeprefix('.') for field in selectable),
    }

    for key in fields.keys:
        if key not in known and (selectable or custom):
            raise errors.bad_request(f'field label not supported: {key}')
        if key not in known:
            raise errors.bad_request(
                f'{errors.render(key)} is not a known field selector: '
                f'only "metadata.name", "metadata.namespace"'
            )

    return Interest(namespace, labels, fields)


def parse_labels(text: str) -> Selector:
    """Parse a ``labelSelector`` of a query."""
    try:
        return Selector(tuple(_Parser(text).parse()))
    except ValueError as e:
        raise errors.bad_request(str(e)) from e


def parse_fields(text: str) -> Selector:
    """Parse a ``fieldSelector`` of a query: the API supports only equality."""
    requirements = []
    for term in _split_terms(text):
        match = re.fullmatch(r'((?:[^=!\\]|\\.)*?)(!=|==|=)(.*)', term, re.DOTALL)
        if match is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        key, operator, value = match.groups()
        plain = re.sub(r'\\(.)', r'\1', value)
        requirements.append(
            Requirement(key, 'notin' if operator == '!=' else 'in', frozenset([plain]))
        )

    return Selector(tuple(requirements))


def build_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Convert a ``LabelSelector`` object; ``None`` selects everything."""
    selector = selector or {}
    requirements = [
        Requirement(key, 'in', frozenset([value]))
        for key, value in (selector.get('matchLabels') or {}).items()
    ]
    for expression in selector.get('matchExpressions') or []:
        operator = _OBJECT_OPERATORS.get(expression.get('operator'))
        if operator is None:
            shown = errors.render(expression.get('operator'))
            raise errors.bad_request(f'{shown} is not a valid label selector operator')
        values = frozenset(expression.get('values') or ())
        requirements.append(Requirement(expression.get('key', ''), operator, values))

    return Selector(tuple(requirements))


def match_label_selector(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a ``LabelSelector`` object matches the labels."""
    return build_selector(selector).matches(labels)


def format_selector(selector: Mapping[str, Any] | None) -> str:
    """Format a ``LabelSelector`` object as text, as in the scale subresource."""
    terms = []
    for requirement in sorted(
        build_selector(selector).requirements, key=lambda requirement: requirement.key
    ):
        values = sorted(requirement.values)
        match requirement.operator:
            case 'in' if len(values) == 1:
                terms.append(f'{requirement.key}={values[0]}')
            case 'in' | 'notin' as operator:
                terms.append(f'{requirement.key} {operator} ({",".join(values)})')
            case 'exists':
                terms.append(requirement.key)
            case _:
                terms.append(f'!{requirement.key}')

    return ','.join(terms)


class _Parser:
    """A recursive descent parser of label selectors."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokenize(text)
        self.position = 0

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while self._peek() is not None:
            if self._peek() in _NO_BEGINNINGS:
                raise ValueError(
                    f"found '{self._peek()}', expected: !, identifier, or 'end of string'"
                )
            try:
                requirements.append(self._parse_requirement())
            except ValueError as e:
                raise ValueError(f'unable to parse requirement: {e}') from e
            token = self._take()
            if token not in (None, ','):
                raise ValueError(f"found '{token}', expected: ',' or 'end of string'")
            if token == ',' and (self._peek() is None or self._peek() in _NO_BEGINNINGS):
                raise ValueError(f"found '{self._peek() or ''}', expected: identifier after ','")

        return requirements

    def _parse_requirement(self) -> Requirement:
        if self._peek() == '!':
            self._take()
            return Requirement(self._take_key(), '!')

        key = self._take_key()
        match self._peek():
            case None | ',':
                return Requirement(key, 'exists')
            case '=' | '==':
                self._take()
                return Requirement(key, 'in', frozenset([self._take_value(key)]))
            case '!=':
                self._take()
                return Requirement(key, 'notin', frozenset([self._take_value(key)]))
            case 'in' | 'notin' as operator:
                self._take()
                return Requirement(key, operator, self._take_values(key))
            case '>' | '<' as operator:
                self._take()
                return Requirement(key, operator, frozenset([self._take_number()]))
            case found:
                raise ValueError(f"found '{found}', expected: in, notin, =, ==, !=, gt, lt")

    def _peek(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def _take(self) -> str | None:
        token = self._peek()
        self.position += 1
        return token

    def _take_key(self) -> str:
        token = self._take()
        if token is None or token == '!' or token in _NO_BEGINNINGS:
            raise ValueError(f"found '{token or ''}', expected: identifier")
        for problem in naming.check_key(token):
            raise ValueError(f'<nil>: Invalid value: {errors.render(token)}: {problem}')
        return token

    def _take_value(self, key: str) -> str:
        if self._peek() in (None, ','):
            return ''
        token = str(self._take())
        if _TOKEN_OPERATOR.fullmatch(token):
            raise ValueError(f"found '{token}', expected: identifier")
        return _check_value(token, key)

    def _take_number(self) -> str:
        token = self._take() or ''
        if _TOKEN_OPERATOR.fullmatch(token):
            raise ValueError(f"found '{token}', expected: identifier")
        if not re.fullmatch(r'-?\d+', token):
            raise ValueError(
                f"values[0]: Invalid value: {errors.render(token)}: for 'Gt', 'Lt' operators, "
                f'the value must be an integer'
            )
        return token

    def _take_values(self, key: str) -> frozenset[str]:
        if (token := self._take()) != '(':
            raise ValueError(f"found '{token or ''}' expected: '('")

        values = []
        while self._peek() not in (None, ')'):
            if _TOKEN_OPERATOR.fullmatch(self._peek() or ''):
                raise ValueError(f"found '{self._peek()}', expected: ',', ')' or identifier")
            values.append('' if self._peek() == ',' else str(self._take()))
            token = self._peek()
            if token == ',':
                self._take()
            elif token != ')':
                raise ValueError(f"found '{token or ''}', expected: ',' or ')'")

        if self._take() != ')':
            raise ValueError("found '', expected: ',', or identifier")
        return frozenset(
            _check_value(value, key, index) for index, value in enumerate(sorted({*values} or {''}))
        )


def _check_value(value: str, key: str, index: int = 0) -> str:
    for problem in naming.check_label_value(value):
        raise ValueError(
            f'values[{index}][{key}]: Invalid value: {errors.render(value)}: {problem}'
        )
    return value


def _tokenize(text: str) -> list[str]:
    tokens = []
    position = 0
    text = text.strip()

    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"found '{text[position:]}', expected: identifier")
        tokens.append(match['op'] or match['word'])
        position = match.end()

    return tokens


def _split_terms(text: str) -> Sequence[str]:
    """Split by commas that are not escaped by backslashes; skip empty terms."""
    return [term for term in re.findall(r'(?:[^,\\]|\\.)+', text) if term]
