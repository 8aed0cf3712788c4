"""
Custom objects are validated by their schemas, and the answers are those of the API to the letter.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._sandbox.meta import schemas
from kopf._sandbox.schema import validation, validators

STRING, INTEGER = {'type': 'string'}, {'type': 'integer'}
SET = {'type': 'array', 'items': STRING, 'x-kubernetes-list-type': 'set'}
MAP = {
    'type': 'array',
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['k'],
    'items': {'type': 'object', 'required': ['k'], 'properties': {'k': STRING, 'v': INTEGER}},
}
MAP_BY_TWO = {**MAP, 'x-kubernetes-list-map-keys': ['k', 'v']}
PAIR = {'type': 'object', 'properties': {'a': STRING, 'b': STRING}}
EITHER = [{'required': ['a']}, {'required': ['b']}]
ITEMS = {
    'type': 'array',
    'items': {
        'type': 'object',
        'required': ['name'],
        'properties': {'name': {**STRING, 'minLength': 1}, 'n': INTEGER},
    },
}
EMBEDDED = {
    'type': 'object',
    'x-kubernetes-embedded-resource': True,
    'x-kubernetes-preserve-unknown-fields': True,
}
UNCHECKED = (
    '<nil>',
    'Invalid value: null: some validation rules were not checked because the object was invalid; '
    'correct the existing errors to complete validation',
)


def make_schema(**spec):
    return schemas.compile_schema(
        {'type': 'object', 'properties': {'spec': {'type': 'object', 'properties': spec}}}
    )


def show(problems):
    return [
        (problem.reason.removeprefix('FieldValue'), problem.field, problem.body)
        for problem in problems
    ]


def mistype(wanted, found, field='spec.x'):
    return (
        'TypeInvalid',
        field,
        f'Invalid value: "{found}": {field} in body must be of type {wanted}: "{found}"',
    )


@pytest.mark.parametrize(
    'field, value',
    [
        pytest.param(INTEGER, 5, id='integer'),
        pytest.param(INTEGER, 2.0, id='integer-as-float'),
        pytest.param({'type': 'number'}, 1.5, id='number'),
        pytest.param({'type': 'number'}, 1, id='number-as-integer'),
        pytest.param({'type': 'number'}, 2**70, id='huge-number'),
        pytest.param({**INTEGER, 'format': 'int32'}, 2**40, id='unchecked-format'),
        pytest.param({'x-kubernetes-int-or-string': True}, 5, id='int'),
        pytest.param({'x-kubernetes-int-or-string': True}, '5%', id='or-string'),
        pytest.param(
            {'x-kubernetes-preserve-unknown-fields': True}, [None, {'a': 1}], id='anything'
        ),
        pytest.param({**STRING, 'nullable': True}, None, id='nullable'),
        pytest.param({**STRING, 'minLength': 3, 'maxLength': 3}, 'ééé', id='length-in-characters'),
        pytest.param({**STRING, 'pattern': 'b'}, 'abc', id='pattern-is-searched-for'),
        pytest.param({**INTEGER, 'enum': [1, 2]}, 2.0, id='enum-of-numbers'),
        pytest.param({**PAIR, 'oneOf': EITHER}, {'a': '1'}, id='one-of'),
        pytest.param({**STRING, 'not': {'enum': ['bad']}}, 'good', id='not'),
        pytest.param(SET, ['a', 'b'], id='set'),
        pytest.param(MAP_BY_TWO, [{'k': 'a', 'v': 1}, {'k': 'a', 'v': 2}], id='map'),
        pytest.param(
            EMBEDDED, {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'x'}}, id='embedded'
        ),
        pytest.param(
            {**STRING, 'format': 'date'}, ['x'], id='formatted-list-by-an-oddity-of-the-api'
        ),
    ],
)
def test_good_values_are_accepted(field, value):
    assert validation.validate({'spec': {'x': value}}, make_schema(x=field)) == []


@pytest.mark.parametrize(
    'field, value, expected',
    [
        pytest.param(INTEGER, 'x', [mistype('integer', 'string')], id='type-integer'),
        pytest.param(INTEGER, 1.5, [mistype('integer', 'number')], id='type-fraction'),
        pytest.param(INTEGER, 2**70, [mistype('integer', 'number')], id='type-huge'),
        pytest.param(INTEGER, True, [mistype('integer', 'boolean')], id='type-boolean'),
        pytest.param(STRING, 5, [mistype('string', 'integer')], id='type-string'),
        pytest.param({'type': 'object'}, [], [mistype('object', 'array')], id='type-object'),
        pytest.param(
            {'type': 'array', 'items': STRING},
            [1],
            [mistype('string', 'integer', 'spec.x[0]')],
            id='type-item',
        ),
        pytest.param(
            {'type': 'array', 'items': STRING},
            [None],
            [mistype('string', 'null', 'spec.x[0]')],
            id='null-item',
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': STRING},
            {'k': 1},
            [mistype('string', 'integer', 'spec.x.k')],
            id='type-map',
        ),
        pytest.param(
            {'x-kubernetes-int-or-string': True},
            1.5,
            [mistype('integer,string', 'number')],
            id='int-or-string',
        ),
        pytest.param(
            {**STRING, 'format': 'date'},
            5,
            [
                (
                    'TypeInvalid',
                    'spec.x',
                    'Invalid value: "int64": spec.x in body must be of type date: "int64"',
                )
            ],
            id='format-of-number',
        ),
        pytest.param(
            {**STRING, 'format': 'date-time'},
            'x',
            [
                (
                    'TypeInvalid',
                    'spec.x',
                    'Invalid value: "x": spec.x in body must be of type date-time: "x"',
                )
            ],
            id='format',
        ),
        pytest.param(
            {**STRING, 'enum': ['red', 'green']},
            'x',
            [
                (
                    'NotSupported',
                    'spec.x',
                    'Unsupported value: "x": supported values: "red", "green"',
                )
            ],
            id='enum',
        ),
        pytest.param(
            {**STRING, 'enum': ['a', 'b'], 'nullable': True},
            None,
            [('NotSupported', 'spec.x', 'Unsupported value: null: supported values: "a", "b"')],
            id='enum-null',
        ),
        pytest.param(
            {**STRING, 'enum': ['red']},
            2.0,
            [
                mistype('string', 'number'),
                ('NotSupported', 'spec.x', 'Unsupported value: 2: supported values: "red"'),
            ],
            id='enum-and-type',
        ),
        pytest.param(
            {**INTEGER, 'enum': [1, 2]},
            5,
            [('NotSupported', 'spec.x', 'Unsupported value: 5: supported values: "1", "2"')],
            id='enum-integer',
        ),
        pytest.param(
            {**STRING, 'pattern': '^a'},
            'b',
            [('Invalid', 'spec.x', 'Invalid value: "b": spec.x in body should match \'^a\'')],
            id='pattern',
        ),
        pytest.param(
            {**STRING, 'minLength': 3},
            'é',
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: "é": spec.x in body should be at least 3 chars long',
                )
            ],
            id='min-length',
        ),
        pytest.param(
            {**STRING, 'maxLength': 3, 'pattern': '^a'},
            'toolong',
            [('TooLong', 'spec.x', 'Too long: may not be more than 3 bytes')],
            id='max-length-before-pattern',
        ),
        pytest.param(
            {**INTEGER, 'minimum': 3},
            1,
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 1: spec.x in body should be greater than or equal to 3',
                )
            ],
            id='minimum',
        ),
        pytest.param(
            {**INTEGER, 'minimum': 3, 'exclusiveMinimum': True},
            3,
            [('Invalid', 'spec.x', 'Invalid value: 3: spec.x in body should be greater than 3')],
            id='exclusive-minimum',
        ),
        pytest.param(
            {**INTEGER, 'maximum': 3},
            10,
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 10: spec.x in body should be less than or equal to 3',
                )
            ],
            id='maximum',
        ),
        pytest.param(
            {**INTEGER, 'maximum': 3, 'exclusiveMaximum': True},
            3,
            [('Invalid', 'spec.x', 'Invalid value: 3: spec.x in body should be less than 3')],
            id='exclusive-maximum',
        ),
        pytest.param(
            {'type': 'number', 'minimum': 3.5},
            1.25,
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 1.25: spec.x in body should be greater than or equal to 3.5',
                )
            ],
            id='minimum-of-floats',
        ),
        pytest.param(
            {'type': 'number', 'minimum': 3.5},
            1,
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 1: spec.x in body should be greater than or equal to 3',
                )
            ],
            id='minimum-is-cut-for-integers',
        ),
        pytest.param(
            {'type': 'number', 'maximum': 1e21},
            1e22,
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 1e+22: spec.x in body should be less than or equal to 1e+21',
                )
            ],
            id='maximum-is-big',
        ),
        pytest.param(
            {**INTEGER, 'multipleOf': 3},
            4,
            [('Invalid', 'spec.x', 'Invalid value: 4: spec.x in body should be a multiple of 3')],
            id='multiple',
        ),
        pytest.param(
            {'type': 'number', 'multipleOf': 0.5},
            0.7,
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 0.7: spec.x in body should be a multiple of 0.5',
                )
            ],
            id='multiple-of-fraction',
        ),
        pytest.param(
            {'type': 'array', 'items': INTEGER, 'minItems': 2},
            [1],
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 1: spec.x in body should have at least 2 items',
                )
            ],
            id='min-items',
        ),
        pytest.param(
            {'type': 'array', 'items': INTEGER, 'maxItems': 2},
            [1, 2, 3],
            [('TooMany', 'spec.x', 'Too many: 3: must have at most 2 items')],
            id='max-items',
        ),
        pytest.param(
            {'type': 'object', 'minProperties': 2},
            {'a': 1},
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: 1: spec.x in body should have at least 2 properties',
                )
            ],
            id='min-properties',
        ),
        pytest.param(
            {'type': 'object', 'maxProperties': 1},
            {'a': 1, 'b': 2},
            [('TooMany', 'spec.x', 'Too many: 2: must have at most 1 item')],
            id='max-properties',
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': False},
            {'a': 1},
            [('Invalid', 'spec.x', 'Invalid value: "a": spec.x.a in body is a forbidden property')],
            id='closed',
        ),
        pytest.param(
            {**PAIR, 'required': ['a', 'b']},
            {},
            [
                ('Required', 'spec.x.a', 'Required value'),
                ('Required', 'spec.x.b', 'Required value'),
            ],
            id='required',
        ),
        pytest.param(
            ITEMS,
            [{'name': ''}, {'n': 'x'}, 5],
            [
                (
                    'Invalid',
                    'spec.x[0].name',
                    'Invalid value: "": spec.x[0].name in body should be at least 1 chars long',
                ),
                mistype('integer', 'string', 'spec.x[1].n'),
                ('Required', 'spec.x[1].name', 'Required value'),
                mistype('object', 'integer', 'spec.x[2]'),
            ],
            id='items',
        ),
        pytest.param(
            {**PAIR, 'oneOf': EITHER},
            {},
            [
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
                    'Found none valid',
                ),
                ('Required', 'spec.x.a', 'Required value'),
            ],
            id='one-of-none',
        ),
        pytest.param(
            {**PAIR, 'oneOf': EITHER},
            {'a': '1', 'b': '1'},
            [
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
                    'Found 2 valid alternatives',
                )
            ],
            id='one-of-many',
        ),
        pytest.param(
            {**PAIR, 'anyOf': EITHER},
            {},
            [
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
                ),
                ('Required', 'spec.x.a', 'Required value'),
            ],
            id='any-of',
        ),
        pytest.param(
            {'x-kubernetes-int-or-string': True, 'anyOf': [INTEGER, STRING]},
            True,
            [
                mistype('integer,string', 'boolean'),
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
                ),
                mistype('integer', 'boolean'),
            ],
            id='any-of-int-or-string',
        ),
        pytest.param(
            {**STRING, 'allOf': [{'minLength': 2}, {'pattern': '^z'}]},
            'x',
            [
                (
                    'Invalid',
                    'spec.x',
                    'Invalid value: "x": spec.x in body should be at least 2 chars long',
                ),
                ('Invalid', 'spec.x', 'Invalid value: "x": spec.x in body should match \'^z\''),
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must validate all the schemas (allOf). '
                    'None validated',
                ),
            ],
            id='all-of-none',
        ),
        pytest.param(
            {**STRING, 'allOf': [{'minLength': 2}, {'pattern': '^z'}]},
            'xx',
            [
                ('Invalid', 'spec.x', 'Invalid value: "xx": spec.x in body should match \'^z\''),
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must validate all the schemas (allOf)',
                ),
            ],
            id='all-of-some',
        ),
        pytest.param(
            {**STRING, 'not': {'enum': ['bad']}},
            'bad',
            [
                (
                    'Invalid',
                    '<nil>',
                    'Invalid value: "": "spec.x" must not validate the schema (not)',
                )
            ],
            id='not',
        ),
        pytest.param(
            SET,
            ['a', 'b', 'a', 'a', 'b'],
            [
                ('Duplicate', 'spec.x[2]', 'Duplicate value: "a"'),
                ('Duplicate', 'spec.x[4]', 'Duplicate value: "b"'),
            ],
            id='set',
        ),
        pytest.param(
            MAP,
            [{'k': 'a'}, {'k': 'b'}, {'k': 'a'}],
            [('Duplicate', 'spec.x[2]', 'Duplicate value: {"k":"a"}')],
            id='map',
        ),
        pytest.param(
            MAP_BY_TWO,
            [{'k': 'a', 'v': 1}, {'v': 1, 'k': 'a'}],
            [('Duplicate', 'spec.x[1]', 'Duplicate value: {"k":"a","v":1}')],
            id='map-by-two-keys',
        ),
        pytest.param(
            MAP,
            [{'v': 1}, {'v': 2}],
            [
                ('Required', 'spec.x[0].k', 'Required value'),
                ('Required', 'spec.x[1].k', 'Required value'),
                ('Duplicate', 'spec.x[1]', 'Duplicate value: {}'),
            ],
            id='map-without-keys',
        ),
        pytest.param(
            MAP,
            ['x', 'y'],
            [
                mistype('object', 'string', 'spec.x[0]'),
                mistype('object', 'string', 'spec.x[1]'),
                (
                    'Invalid',
                    'spec.x[0]',
                    'Invalid value: "x": must be an object for an array of list-type map',
                ),
            ],
            id='map-of-strings',
        ),
        pytest.param(
            EMBEDDED,
            {},
            [
                ('Required', 'spec.x.apiVersion', 'Required value'),
                ('Required', 'spec.x.kind', 'Required value'),
            ],
            id='embedded-empty',
        ),
        pytest.param(
            EMBEDDED,
            {'apiVersion': 'a/b/c', 'kind': 'Pod', 'metadata': {'name': 'x/y'}},
            [
                (
                    'Invalid',
                    'spec.x.apiVersion',
                    'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
                ),
                ('Invalid', 'spec.x.metadata.name', 'Invalid value: "x/y": may not contain \'/\''),
            ],
            id='embedded-bad',
        ),
    ],
)
def test_bad_values_are_refused_in_the_words_of_the_api(field, value, expected):
    problems = validation.validate({'spec': {'x': value}}, make_schema(x=field))

    assert show(problems) == expected


def test_many_problems_are_told_at_once():
    schema = make_schema(int=INTEGER, str=STRING, req={**PAIR, 'required': ['a']})

    problems = validation.validate({'spec': {'int': 'x', 'str': 5, 'req': {}}}, schema)

    assert [problem.field for problem in problems] == ['spec.int', 'spec.req.a', 'spec.str']


@pytest.mark.parametrize('spec', [None, 'x', [], 5])
def test_specs_of_wrong_types_are_survived(spec):
    problems = validation.validate({'spec': spec}, make_schema(x=INTEGER))

    assert [problem.field for problem in problems] == ['spec']


OLD = {
    'n': 'bad',
    'm': {'q': 'bad'},
    'l': [{'k': '1', 'v': 'bad'}],
    'ml': [{'k': 'a', 'v': 'bad'}, {'k': 'b', 'v': 1}],
    's': ['a', 'a'],
}
STRICTER = make_schema(
    n=INTEGER,
    m={'type': 'object', 'properties': {'q': INTEGER, 'w': INTEGER}},
    ml=MAP,
    s=SET,
    z=STRING,
    l={'type': 'array', 'items': {'type': 'object', 'properties': {'k': STRING, 'v': INTEGER}}},
)


@pytest.mark.parametrize(
    'change, fields',
    [
        pytest.param({}, [], id='nothing'),
        pytest.param({'z': 'new'}, [], id='neighbour'),
        pytest.param({'n': 'worse'}, ['spec.n'], id='bad-to-bad'),
        pytest.param({'m': {'q': 'bad', 'w': 1}}, [], id='neighbour-inside'),
        pytest.param({'m': {'q': 'worse'}}, ['spec.m.q'], id='inside'),
        pytest.param(
            {'l': [{'k': '1', 'v': 'bad'}, {'k': '2'}]},
            ['spec.l[0].v'],
            id='atomic-list-is-one-value',
        ),
        pytest.param(
            {'ml': [{'k': 'c', 'v': 2}, {'k': 'a', 'v': 'bad'}]},
            [],
            id='map-items-are-told-by-keys',
        ),
        pytest.param(
            {'ml': [{'k': 'a', 'v': 'bad'}, {'k': 'b', 'v': 'bad'}]},
            ['spec.ml[1].v'],
            id='other-map-item',
        ),
        pytest.param({'s': ['a', 'a', 'b']}, [], id='duplicates-when-there-were-duplicates'),
    ],
)
def test_updates_are_not_blamed_for_what_they_leave_as_it_was(change, fields):
    problems = validation.validate({'spec': {**OLD, **change}}, STRICTER, old={'spec': OLD})

    assert [problem.field for problem in problems] == fields


STATUS = {
    'type': 'object',
    'properties': {
        'n': INTEGER,
        'c': {
            'type': 'array',
            'items': {'type': 'object', 'required': ['t'], 'properties': {'t': STRING}},
        },
    },
}


@pytest.mark.parametrize(
    'status, expected',
    [
        pytest.param({'n': 1}, [], id='good'),
        pytest.param(
            {'n': 'x', 'c': [{}]},
            [
                ('Required', 'status.c[0].t', 'Required value'),
                (
                    'TypeInvalid',
                    'status.n',
                    'Invalid value: "string": n in body must be of type integer: "string"',
                ),
            ],
            id='inside',
        ),
        pytest.param(
            'x',
            [
                (
                    'TypeInvalid',
                    'status',
                    'Invalid value: "string":  in body must be of type object: "string"',
                )
            ],
            id='whole',
        ),
    ],
)
def test_status_is_validated_alone_with_names_relative_to_it(status, expected):
    schema = schemas.compile_schema(
        {'type': 'object', 'properties': {'spec': INTEGER, 'status': STATUS}}
    )

    problems = validation.validate_status(
        {'spec': 'bad', 'status': status}, schema, {'spec': 'bad'}
    )

    assert show(problems) == expected


def test_unchecked_rules_are_told_about_when_the_object_is_bad():
    rules = [{'rule': "self != 'a'"}]
    schema = make_schema(
        x={**STRING, 'x-kubernetes-validations': rules}, y=INTEGER, z={**STRING, 'pattern': 'a'}
    )

    blocking = validation.validate({'spec': {'y': 'x'}}, schema)
    harmless = validation.validate({'spec': {'z': 'x'}}, schema)

    assert show(blocking) == [mistype('integer', 'string', 'spec.y'), ('Invalid', *UNCHECKED)]
    assert [problem.field for problem in harmless] == ['spec.z']
    assert validation.has_cel(schema)
    assert not validation.has_cel(STRICTER)


names = st.sampled_from(['a', 'b', 'k', 'v', 'name', 'n', 'kind', 'apiVersion'])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from(['', 'a', 'red', 'abc'])
    | st.just(2**70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)
FIELDS = [
    SET,
    MAP,
    MAP_BY_TWO,
    PAIR,
    ITEMS,
    EMBEDDED,
    STATUS,
    INTEGER,
    {**PAIR, 'oneOf': EITHER},
    {**PAIR, 'anyOf': EITHER},
    {'x-kubernetes-int-or-string': True, 'anyOf': [INTEGER, STRING]},
    {**STRING, 'enum': ['red'], 'format': 'date'},
    {'type': 'number', 'minimum': 1, 'maximum': 5, 'multipleOf': 2},
    {'type': 'object', 'additionalProperties': False},
]


@given(field=st.sampled_from(FIELDS), value=values)
def test_every_refusal_is_explained(field, value):
    schema = make_schema(x=field)

    problems = validation.validate({'spec': {'x': value}}, schema)

    assert bool(problems) != validators.compile_validator(schema).accepts({'spec': {'x': value}})
