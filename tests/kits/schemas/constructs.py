"""
The constructs of types: what authors can write in annotations, with values that fit and do not fit.

Each construct is the only field, ``value``, of an object of its own. So all of them are in one
resource: the spec has a field for each object.
"""

import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NewType, TypedDict

import attrs
import msgspec
import pydantic

import kopf

REQUIRED = object()
"""There is no default."""


class Color(enum.StrEnum):
    RED = 'red'
    BLUE = 'blue'


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    """A dataclass with names of Python."""

    x_axis: int
    y_axis: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    """A frozen dataclass with slots."""

    max_size: int = 5


class Struct(msgspec.Struct):
    """A struct."""

    first_name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0


class Renamed(msgspec.Struct, rename='kebab'):
    """A struct with its own names."""

    first_name: str


@attrs.define
class Attrs:
    """A class of attrs."""

    min_count: int
    _hidden: str = 'x'


class Part(TypedDict):
    host_name: str
    port: typing.NotRequired[int]


class Disk(msgspec.Struct, tag='disk', tag_field='kind'):
    size: int


class Bucket(msgspec.Struct, tag='bucket', tag_field='kind'):
    url: str


class Inner(pydantic.BaseModel):
    size: Annotated[int, pydantic.Field(gt=0)] = 1


def _make_alias(name: str) -> str:
    head, *rest = name.split('_')
    return head + ''.join(map(str.title, rest))


class Model(pydantic.BaseModel):
    """A model of pydantic."""

    model_config = pydantic.ConfigDict(alias_generator=_make_alias, populate_by_name=True)

    host_name: str
    inner: Inner | None = None
    kind: Literal['a', 'b'] = 'a'
    tags: set[str] = set()
    weight: Annotated[int, kopf.Schema(ge=1)] = 1


Name = NewType('Name', str)


@dataclasses.dataclass(frozen=True)
class Construct:
    """One construct, with raw values that both the server and Python accept, or both refuse."""

    id: str
    annotation: Any
    good: Sequence[Any]
    bad: Sequence[Any] = ()
    default: Any = REQUIRED
    only_server: Sequence[Any] = ()  # values that the server refuses, and Python does not


CONSTRUCTS = [
    Construct('string', str, ['', 'x'], [1, True, [], {}]),
    Construct('integer', int, [0, -5, 2**40], ['1', 1.5, True]),
    Construct('number', float, [0.5, 3, -1.25], ['1', False]),
    Construct('boolean', bool, [True, False], ['true', 1]),
    Construct('optional', str | None, ['x', None], [1], default=None),
    Construct('optionalNumber', typing.Optional[int], [1, None], ['x'], default=None),  # noqa: UP045
    Construct('defaultString', str, ['y'], [1], default='x'),
    Construct('defaultInteger', int, [4], ['x'], default=3),
    Construct('newType', Name, ['x'], [1]),
    Construct('minimum', Annotated[int, kopf.Schema(ge=1)], [1, 2], [0, -1]),
    Construct('exclusive', Annotated[int, kopf.Schema(gt=1, lt=4)], [2, 3], [1, 4]),
    Construct('maximum', Annotated[float, kopf.Schema(le=1.5)], [1.5, -2], [1.6]),
    Construct('multiple', Annotated[int, kopf.Schema(multiple_of=5)], [0, 10], [3]),
    Construct('pattern', Annotated[str, kopf.Schema(pattern='^[a-z]+$')], ['abc'], ['', 'A1']),
    Construct('length', Annotated[str, kopf.Schema(min_length=2, max_length=3)], ['äö'], ['x', 'wxyz']),
    Construct('optionalPattern', Annotated[str, kopf.Schema(pattern='^a')] | None, ['ab', None], ['b'], None),
    Construct('metaOfMsgspec', Annotated[int, msgspec.Meta(ge=2)], [2], [1]),
    Construct('literal', Literal['a', 'b'], ['a'], ['c', 1]),
    Construct('literalNumbers', Literal[1, 2], [1], [3, 'x']),
    Construct('optionalLiteral', Literal['a', 'b'] | None, ['a', None], ['c'], None),
    Construct('enumeration', Color, ['red'], ['green'], default=Color.BLUE),
    Construct('enumerationOfNumbers', Level, [1], [3]),
    Construct('list', list[int], [[], [1, 1]], [['x'], 'x', {}]),
    Construct('defaultList', list[str], [['x']], [[1]], default=['a']),
    Construct('items', Annotated[list[str], kopf.Schema(min_length=1, max_length=2)], [['a']], [[], ['a'] * 3]),
    Construct('itemsWithLimits', list[Annotated[int, kopf.Schema(le=3)]], [[3]], [[3, 4]]),
    Construct('sequence', Sequence[str], [['x']], [[1]]),
    Construct('homogeneous', tuple[int, ...], [[1, 2]], [['x']]),
    Construct('set', set[str], [['a', 'b']], [[1]], only_server=[['a', 'a']]),
    Construct('listType', Annotated[list[str], kopf.Schema(list_type='set')], [['a']], [[1]], only_server=[['a', 'a']]),
    Construct(
        'listMap',
        Annotated[list[Point], kopf.Schema(list_type='map', list_keys=['xAxis'])],
        [[{'xAxis': 1}, {'xAxis': 2}]],
        [[{'yAxis': 1}]],
        only_server=[[{'xAxis': 1}, {'xAxis': 1}]],
    ),
    Construct('mapping', dict[str, int], [{}, {'a': 1}], [{'a': 'x'}, []]),
    Construct('mappingOfObjects', Mapping[str, Point], [{'a': {'xAxis': 1}}], [{'a': {}}]),
    Construct('anything', Any, [1, 'x', {'a': {'b': 1}}, [1]], default=None),
    Construct('anyMapping', dict[str, Any], [{'a': {'b': [1]}}], [1]),
    Construct('plainList', list, [[1, 'a', {'b': 1}]], [{}]),
    Construct('intOrString', int | str, [1, '50%'], [1.5, True, []]),
    Construct('intOrStringSchema', Annotated[Any, kopf.Schema(int_or_string=True)], [1, 'x'], [[]]),
    Construct('dateTime', datetime.datetime, ['2020-01-01T00:00:00Z'], ['yesterday', 1]),
    Construct('date', datetime.date, ['2020-01-31'], ['2020-02-31', 'x']),
    Construct('duration', datetime.timedelta, ['1h30m', '250ms'], ['1', 'x'], datetime.timedelta(seconds=90)),
    Construct('bytes', bytes, ['aGVsbG8='], [1]),
    Construct('decimal', decimal.Decimal, ['1.25'], [[]]),
    Construct('uuid', uuid.UUID, ['f81d4fae-7dec-11d0-a765-00a0c91e6bf6'], ['x']),
    Construct('format', Annotated[str, kopf.Schema(format='ipv4')], ['10.0.0.1'], [1], only_server=['x']),
    Construct('dataclass', Point, [{'xAxis': 1}], [{}, {'xAxis': 'x'}, 1]),
    Construct('optionalDataclass', Point | None, [{'xAxis': 1}, None], [{'yAxis': 1}], default=None),
    Construct('defaultDataclass', Frozen, [{'maxSize': 1}, {}], [{'maxSize': 'x'}], default=Frozen(7)),
    Construct('struct', Struct, [{'firstName': 'x', 'age': 2}], [{'firstName': 'x', 'age': -1}, {}]),
    Construct('structWithNames', Renamed, [{'first-name': 'x'}], [{'firstName': 'x'}]),
    Construct('attrs', Attrs, [{'minCount': 1}], [{}]),
    Construct('typedDict', Part, [{'hostName': 'x'}, {'hostName': 'x', 'port': 1}], [{'port': 1}]),
    Construct('tagged', Disk | Bucket, [{'kind': 'disk', 'size': 1}], [{'kind': 'disk', 'url': 'x'}, {'kind': 'z'}]),
    Construct('optionalTagged', Disk | Bucket | None, [{'kind': 'bucket', 'url': 'x'}, None], [{'size': 1}], None),
    Construct('listOfTagged', list[Disk | Bucket], [[{'kind': 'disk', 'size': 1}]], [[{'kind': 'z'}]]),
    Construct('preserved', Annotated[Frozen, kopf.Schema(preserve=True)], [{'maxSize': 1, 'z': 2}], [1]),
]  # fmt: skip

HOST = {'hostName': 'x'}
MODELS = [
    Construct('model', Model, [HOST, {**HOST, 'inner': {'size': 2}}, {**HOST, 'inner': None}]),
    Construct('modelWithLimits', Model, [{**HOST, 'weight': 1}], [{**HOST, 'weight': 0}]),
    Construct('modelWithModels', Model, [], [{**HOST, 'inner': {'size': 0}}, {'kind': 'a'}]),
    Construct('modelWithValues', Model, [{**HOST, 'tags': ['a']}], [{**HOST, 'kind': 'c'}]),
]


def make_class(constructs: Sequence[Construct]) -> type:
    """Make the class of a spec with a field per construct."""
    listed = []
    for construct in constructs:
        field: Any = dataclasses.field()
        if construct.default is not REQUIRED:
            default = construct.default
            field = dataclasses.field(default_factory=lambda default=default: default)
        holder = dataclasses.make_dataclass(
            f'Holder{construct.id.title()}', [('value', construct.annotation, field)]
        )
        listed.append((construct.id, holder | None, dataclasses.field(default=None)))
    return dataclasses.make_dataclass('ConstructsSpec', listed)
