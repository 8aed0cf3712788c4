"""
Rewriting of JSON schemas to the structural ones, and what is refused, with the field and a way out.
"""

import collections
import dataclasses
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
import pydantic
import pytest

import kopf
from kopf._kits.schemas import structural

INT, STR, NULL = {'type': 'integer'}, {'type': 'string'}, {'type': 'null'}
TAGGED = [
    {'type': 'object', 'properties': {'t': {'const': tag}, tag: INT}, 'required': ['t', tag]}
    for tag in ('a', 'b')
]


@pytest.mark.guarantee('TYP-003')
@pytest.mark.parametrize(
    'given, expected',
    [
        pytest.param({'anyOf': [INT, NULL]}, {**INT, 'nullable': True}, id='optional'),
        pytest.param({'type': ['integer', 'null']}, {**INT, 'nullable': True}, id='optional-type'),
        pytest.param({**INT, 'default': None}, INT, id='default-null'),
        pytest.param({**INT, 'default': 0}, {**INT, 'default': 0}, id='default'),
        pytest.param({'const': 'x'}, {**STR, 'enum': ['x']}, id='constant'),
        pytest.param({'enum': [1, 2]}, {**INT, 'enum': [1, 2]}, id='enumeration'),
        pytest.param({'enum': ['a', None]}, {**STR, 'enum': ['a']}, id='optional-enumeration'),
        pytest.param(
            {'anyOf': [{'const': 'a'}, {'enum': ['b']}]}, {**STR, 'enum': ['a', 'b']}, id='constants'
        ),
        pytest.param(
            {**INT, 'exclusiveMinimum': 1},
            {**INT, 'minimum': 1, 'exclusiveMinimum': True},
            id='exclusive',
        ),
        pytest.param(
            {**INT, 'minimum': 5, 'exclusiveMinimum': 1}, {**INT, 'minimum': 5}, id='weaker-bound'
        ),
        pytest.param(
            {**INT, 'maximum': 5, 'exclusiveMaximum': 5},
            {**INT, 'maximum': 5, 'exclusiveMaximum': True},
            id='equal-bounds',
        ),
        pytest.param({'anyOf': [INT, STR]}, {'x-kubernetes-int-or-string': True}, id='int-or-string'),
        pytest.param({'anyOf': [INT, {'type': 'number'}]}, {'type': 'number'}, id='numbers'),
        pytest.param({}, {'x-kubernetes-preserve-unknown-fields': True}, id='anything'),
        pytest.param(
            {'type': 'object'},
            {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
            id='any-object',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'a': INT}, 'additionalProperties': False, 'title': 'T'},
            {'type': 'object', 'properties': {'a': INT}},
            id='closed-object',
        ),
        pytest.param(
            {'type': 'object', 'properties': {'a': INT}, 'additionalProperties': True},
            {
                'type': 'object',
                'properties': {'a': INT},
                'x-kubernetes-preserve-unknown-fields': True,
            },
            id='open-object',
        ),
        pytest.param(
            {'type': 'array'},
            {'type': 'array', 'items': {'x-kubernetes-preserve-unknown-fields': True}},
            id='any-list',
        ),
        pytest.param(
            {'type': 'array', 'items': STR, 'uniqueItems': True},
            {'type': 'array', 'items': STR, 'x-kubernetes-list-type': 'set'},
            id='set',
        ),
        pytest.param(
            {**STR, 'contentEncoding': 'base64'}, {**STR, 'format': 'byte'}, id='base64'
        ),
        pytest.param({**STR, 'format': 'decimal'}, STR, id='unknown-format'),
        pytest.param(
            {'$ref': '#/$defs/A', 'description': 'x', '$defs': {'A': {**INT, 'description': 'y'}}},
            {**INT, 'description': 'x'},
            id='reference',
        ),
        pytest.param(
            {'allOf': [{'$ref': '#/$defs/A'}], 'default': 1, '$defs': {'A': INT}},
            {**INT, 'default': 1},
            id='reference-in-all-of',
        ),
        pytest.param(
            {'anyOf': TAGGED},
            {
                'type': 'object',
                'properties': {'t': {**STR, 'enum': ['a', 'b']}, 'a': INT, 'b': INT},
                'required': ['t'],
                'oneOf': [
                    {'properties': {'t': {'enum': ['a']}}, 'required': ['a', 't']},
                    {'properties': {'t': {'enum': ['b']}}, 'required': ['b', 't']},
                ],
            },
            id='tagged',
        ),
    ],
)  # fmt: skip
def test_schemas_are_rewritten(given, expected):
    assert structural.to_plain(structural.rewrite(given, 'Spec.field')) == expected


@pytest.mark.guarantee('TYP-004')
@pytest.mark.parametrize(
    'given',
    [
        pytest.param({'type': 'array', 'prefixItems': [INT]}, id='tuple'),
        pytest.param({'anyOf': [INT, {'type': 'boolean'}]}, id='choice'),
        pytest.param({'type': 'object', 'patternProperties': {'^a': INT}}, id='patterns-of-keys'),
        pytest.param({'type': 'object', 'propertyNames': {'pattern': '^a'}}, id='names-of-keys'),
        pytest.param({'type': ['integer', 'string', 'boolean']}, id='types'),
        pytest.param({'not': INT}, id='negation'),
        pytest.param({'enum': [1, 'a']}, id='mixed-enumeration'),
        pytest.param(NULL, id='only-null'),
    ],
)
def test_schemas_that_cannot_be_rewritten_are_refused_with_the_path(given):
    with pytest.raises(structural.SchemaError, match=r'^Spec\.field: .+\.$'):
        structural.rewrite(given, 'Spec.field')


class Unknown:
    pass


@dataclasses.dataclass
class Node:
    child: 'Node | None' = None


class Model(pydantic.BaseModel):
    my_name: str


class ModelOfItself(pydantic.BaseModel):
    sub: 'ModelOfItself | None' = None


class Pair(NamedTuple):
    first: int
    second: str


@dataclasses.dataclass
class One:
    x: int


@dataclasses.dataclass
class Two:
    y: int


class Tag1(msgspec.Struct, tag=True):
    x: int


class Tag2(msgspec.Struct, tag=True):
    x: str


@dataclasses.dataclass
class Namesakes:
    my_size: int
    mySize: int


@pytest.mark.guarantee('TYP-004')
@pytest.mark.parametrize(
    'annotation, path, way_out',
    [
        pytest.param(Unknown, 'Spec.value', 'dataclasses', id='class'),
        pytest.param(complex, 'Spec.value', 'dataclasses', id='complex'),
        pytest.param(collections.deque, 'Spec.value', 'lists', id='deque'),
        pytest.param(Node, 'Node.child', r'dict\[str, Any\]', id='recursion'),
        pytest.param(Model, 'Spec.value', 'Make the outer class a pydantic model', id='model-inside'),
        pytest.param(Pair, 'Spec.value', 'Use a list', id='named-tuple'),
        pytest.param(tuple[int, str], 'Spec.value', 'Use a list', id='tuple'),
        pytest.param(list[tuple[int, str]], r'Spec.value\[\]', 'Use a list', id='items'),
        pytest.param(One | Two, 'Spec.value', 'with tags', id='untagged'),
        pytest.param(int | list[int], 'Spec.value', 'one class', id='mixed'),
        pytest.param(Tag1 | Tag2, 'Spec.value', 'Rename', id='tagged-with-different-types'),
        pytest.param(dict[int, str], 'Spec.value', r'dict\[str', id='keys'),
        pytest.param(set[One], 'Spec.value', 'Use a list', id='set-of-objects'),
        pytest.param(Annotated[str, kopf.Schema(ge=1)], 'Spec.value', 'Remove', id='limit'),
        pytest.param(Literal['a', 1], 'Spec.value', 'one type', id='literals'),
        pytest.param(TypeVar('T'), 'Spec.value', 'simple types', id='type-variable'),
        pytest.param(Namesakes, 'Namesakes.mySize', 'Rename', id='namesakes'),
    ],
)  # fmt: skip
def test_types_that_do_not_exist_in_the_api_are_refused_at_the_declaration(
    annotation: Any, path, way_out
):
    made = dataclasses.make_dataclass('Spec', [('value', annotation)])

    with pytest.raises(TypeError, match=rf'^{path}: .*{way_out}'):

        @kopf.crd('refused.kopf.dev/v1')
        class Refused:
            spec: made


@pytest.mark.guarantee('TYP-004')
@pytest.mark.parametrize(
    'model, path', [(Model, r'Model\.my_name'), (ModelOfItself, r'ModelOfItself\.sub')]
)
def test_models_of_pydantic_are_refused_with_the_path(model, path):
    with pytest.raises(TypeError, match=rf'^{path}: .*(alias_generator|dict\[str, Any\])'):

        @kopf.crd('refused.kopf.dev/v1')
        class Refused:
            spec: model
