"""
Markers: what authors add to the annotations of fields for the schemas of their resources.

They stand in ``Annotated[...]``. They are data, and load no libraries: the codecs translate them to
the language of the library in use. What only Kubernetes understands goes into the JSON schemas
under keys that begin with ``x-``; those that begin with ``x-kopf-`` are used when the definition of
the resource is built, and are not left in it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

_Class = TypeVar('_Class', bound=type)

RULES: Final = 'x-kubernetes-validations'
COLUMN: Final = 'x-kopf-column'
FORMAT: Final = 'x-kopf-format'

RULES_ATTRIBUTE: Final = '__kopf_rules__'
"""Where a class has the rules that are declared for it."""

_LIMITS: Final = (
    'ge',
    'gt',
    'le',
    'lt',
    'multiple_of',
    'min_length',
    'max_length',
    'pattern',
)
"""The options that are checked in Python, too; the libraries have the same names for them."""


class _Marker:
    """The base of the markers. The methods are how pydantic asks the annotations."""

    def list_extras(self) -> dict[str, Any]:
        """Return what is added to the JSON schema of the annotated type."""
        return {}

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return merge_extras(handler(core), self.list_extras())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema(_Marker):
    """
    Restrictions and explanations of a value, for the server and for Python.

    The format, the type of lists and unknown fields are for the server only.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    format: str | None = None
    list_type: Literal['set', 'map', 'atomic'] | None = None
    list_keys: Sequence[str] = ()
    preserve: bool = False
    int_or_string: bool = False
    description: str | None = None
    example: Any = None

    def list_limits(self) -> dict[str, Any]:
        """Return the options that are also checked in Python."""
        given = {name: getattr(self, name) for name in _LIMITS}
        return {name: value for name, value in given.items() if value is not None}

    def list_extras(self) -> dict[str, Any]:
        extras = {
            FORMAT: self.format,
            'x-kubernetes-list-type': self.list_type,
            'x-kubernetes-list-map-keys': list(self.list_keys) or None,
            'x-kubernetes-preserve-unknown-fields': self.preserve or None,
            'x-kubernetes-int-or-string': self.int_or_string or None,
            'description': self.description,
            'example': self.example,
        }
        return {key: value for key, value in extras.items() if value is not None}

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        limits = self.list_limits()
        if not limits:
            return handler(source)
        import pydantic  # only if the author uses it

        restricted: Any = Annotated[source, pydantic.Field(**limits)]
        return handler.generate_schema(restricted)


@dataclasses.dataclass(frozen=True)
class Column(_Marker):
    """A column of ``kubectl get`` with the value of the field."""

    name: str
    priority: int = 0
    type: str | None = None
    format: str | None = None

    def list_extras(self) -> dict[str, Any]:
        column = {'name': self.name, 'priority': self.priority}
        given = {'type': self.type, 'format': self.format}
        column |= {key: value for key, value in given.items() if value is not None}
        return {COLUMN: [column]}


@dataclasses.dataclass(frozen=True)
class Rule(_Marker):
    """A rule in CEL, which the server checks for the field, or for the objects of the class."""

    rule: str
    message: str | None = None
    reason: str | None = None
    field_path: str | None = None
    message_expression: str | None = None

    def list_extras(self) -> dict[str, Any]:
        rule = {
            'rule': self.rule,
            'message': self.message,
            'reason': self.reason,
            'fieldPath': self.field_path,
            'messageExpression': self.message_expression,
        }
        return {RULES: [{key: value for key, value in rule.items() if value is not None}]}


Immutable: Final = Rule('self == oldSelf', 'It cannot be changed.')
"""Once it is set, the field keeps its value."""


def rule(rule: str, message: str | None = None, **options: str) -> Callable[[_Class], _Class]:
    """Decorate a class with a rule in CEL, in which ``self`` is an object of the class."""
    added = Rule(rule, message, **options)

    def decorate(cls: _Class, /) -> _Class:
        # The decorators are applied from the bottom; the rules are read from the top.
        setattr(cls, RULES_ATTRIBUTE, (added, *list_rules(cls)))
        config = vars(cls).get('model_config')
        if isinstance(config, dict) and hasattr(cls, '__pydantic_core_schema__'):
            extras = config.get('json_schema_extra') or {}
            config['json_schema_extra'] = merge_extras(added.list_extras(), extras)
        return cls

    return decorate


def list_rules(cls: type) -> tuple[Rule, ...]:
    """Return the rules that are declared for the class itself, not for its bases."""
    rules: tuple[Rule, ...] = vars(cls).get(RULES_ATTRIBUTE, ())
    return rules


def merge_extras(schema: dict[str, Any], extras: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with these keys; rules and columns are added to those that are there."""
    merged = {**schema, **extras}
    for key in (RULES, COLUMN):
        if key in schema and key in extras:
            merged[key] = [*schema[key], *extras[key]]
    return merged
