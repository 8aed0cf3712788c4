"""Objects are made to fit their schemas: unknown fields are dropped, missing ones get defaults."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf._sandbox.meta import builtins, errors, schemas
from kopf._sandbox.schema import pruning, validation

EMBEDDED = {'type': 'object', 'x-kubernetes-embedded-resource': True}
PRESERVING = {'x-kubernetes-preserve-unknown-fields': True}
STRING, INTEGER = {'type': 'string'}, {'type': 'integer'}


def make_object(properties, **more):
    return {'type': 'object', 'properties': properties, **more}


def make_schema(**spec):
    return schemas.compile_schema(make_object({'spec': make_object(spec)}))


def make_body(**spec):
    return {
        'apiVersion': 'example.com/v1',
        'kind': 'Probe',
        'metadata': {'name': 'a'},
        'spec': spec,
    }


@pytest.mark.parametrize(
    'field, value, expected, unknown',
    [
        pytest.param(
            make_object({'a': STRING}),
            {'a': '1', 'b': {'c': 1}},
            {'a': '1'},
            ['spec.x.b'],
            id='object',
        ),
        pytest.param(
            {'type': 'array', 'items': make_object({'a': STRING})},
            [{'a': '1', 'b': 1}, 5],
            [{'a': '1'}, 5],
            ['spec.x[0].b'],
            id='list',
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': make_object({'a': STRING})},
            {'k': {'a': '1', 'b': 1}},
            {'k': {'a': '1'}},
            ['spec.x.k.b'],
            id='map',
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': True},
            {'q': {'w': 1}, 'n': None},
            {'q': {}, 'n': None},
            ['spec.x.q.w'],
            id='map-of-anything',
        ),
        pytest.param(
            make_object({'known': make_object({'z': STRING})}, **PRESERVING),
            {'a': {'b': 1}, 'known': {'z': '1', 'y': 2}},
            {'a': {'b': 1}, 'known': {'z': '1'}},
            ['spec.x.known.y'],
            id='preserving',
        ),
        pytest.param(PRESERVING, [{'a': None}], [{'a': None}], [], id='anything'),
        pytest.param(
            INTEGER, {'a': 1, 'b': 2}, {}, ['spec.x.a', 'spec.x.b'], id='object-instead-of-scalar'
        ),
        pytest.param(
            make_object({'a': STRING, 'n': {**STRING, 'nullable': True}}),
            {'a': None, 'n': None},
            {'n': None},
            [],
            id='nulls',
        ),
        pytest.param(
            {**EMBEDDED, **PRESERVING},
            {
                'apiVersion': 'v1',
                'kind': 'Pod',
                'metadata': {'name': 'x', 'foo': 1, 'labels': {}},
                'x': {'y': 1},
            },
            {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': {'name': 'x'}, 'x': {'y': 1}},
            ['spec.x.metadata.foo'],
            id='embedded-preserving',
        ),
        pytest.param(
            {**EMBEDDED, **make_object({'spec': make_object({'q': INTEGER})})},
            {
                'apiVersion': 'v1',
                'kind': 'Pod',
                'spec': {'q': 1, 'w': 2},
                'other': 1,
                'metadata': {'bar': 1},
            },
            {'apiVersion': 'v1', 'kind': 'Pod', 'spec': {'q': 1}, 'metadata': {}},
            ['spec.x.other', 'spec.x.spec.w', 'spec.x.metadata.bar'],
            id='embedded',
        ),
    ],
)
def test_unknown_fields_are_dropped_and_told(field, value, expected, unknown):
    body = make_body(x=value)

    result = pruning.prune(body, make_schema(x=field))

    assert body == make_body(x=expected)
    assert result == unknown


def test_fields_besides_the_meta_fields_are_dropped_at_the_root():
    body = {**make_body(), 'foo': 1, 'metadata': {'name': 'a', 'foo': 1}}

    result = pruning.prune(body, make_schema())

    assert body == make_body()
    assert result == ['metadata.foo', 'foo']


@pytest.mark.parametrize(
    'metadata, expected, unknown',
    [
        pytest.param({'labels': None}, {}, [], id='null'),
        pytest.param(
            {'labels': {}, 'annotations': {}, 'finalizers': [], 'generateName': ''},
            {},
            [],
            id='empty',
        ),
        pytest.param({'labels': {'a': None}}, {'labels': {'a': ''}}, [], id='null-label'),
        pytest.param({'Labels': {'a': 'b'}}, {}, ['metadata.Labels'], id='case-matters'),
        pytest.param(
            {
                'ownerReferences': [
                    {'apiVersion': 'v1', 'kind': 'Pod', 'name': 'a', 'uid': 'u', 'zz': 1}
                ]
            },
            {'ownerReferences': [{'apiVersion': 'v1', 'kind': 'Pod', 'name': 'a', 'uid': 'u'}]},
            ['metadata.ownerReferences[0].zz'],
            id='owner',
        ),
        pytest.param(
            {'deletionGracePeriodSeconds': 0},
            {'deletionGracePeriodSeconds': 0},
            [],
            id='zero-grace-period',
        ),
    ],
)
def test_metadata_of_custom_objects_are_decoded(metadata, expected, unknown):
    body = {**make_body(), 'metadata': metadata}

    result = pruning.prune(body, make_schema())

    assert body['metadata'] == expected
    assert result == unknown


@pytest.mark.parametrize(
    'metadata, message',
    [
        pytest.param(
            {'labels': {'a': 5}},
            'json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string',
            id='label',
        ),
        pytest.param(
            {'labels': 'x'},
            'json: cannot unmarshal string into Go struct field ObjectMeta.labels '
            'of type map[string]string',
            id='labels',
        ),
        pytest.param(
            {'name': 5},
            'json: cannot unmarshal number into Go struct field ObjectMeta.name of type string',
            id='name',
        ),
        pytest.param(
            {'finalizers': 'x'},
            'json: cannot unmarshal string into Go struct field ObjectMeta.finalizers '
            'of type []string',
            id='finalizers',
        ),
        pytest.param(
            {'finalizers': [1]},
            'json: cannot unmarshal number into Go struct field ObjectMeta.finalizers '
            'of type string',
            id='finalizer',
        ),
        pytest.param(
            {'generation': 'x'},
            'json: cannot unmarshal string into Go struct field ObjectMeta.generation '
            'of type int64',
            id='generation',
        ),
        pytest.param(
            {'creationTimestamp': 'x'},
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
            id='time',
        ),
        pytest.param(
            'x', 'json: cannot unmarshal string into Go value of type v1.ObjectMeta', id='all'
        ),
        pytest.param(
            [], 'json: cannot unmarshal array into Go value of type v1.ObjectMeta', id='list'
        ),
    ],
)
def test_metadata_of_wrong_types_are_refused(metadata, message):
    with pytest.raises(errors.ApiError) as caught:
        pruning.prune({**make_body(), 'metadata': metadata}, make_schema())

    assert caught.value.code == 400
    assert caught.value.message == f'Probe in version "v1" cannot be handled as a Probe: {message}'


@pytest.mark.parametrize(
    'resource, message',
    [
        pytest.param(
            {'apiVersion': 5, 'kind': ''},
            'spec.x.apiVersion: Invalid value: 5: must be a string',
            id='version',
        ),
        pytest.param(
            {'apiVersion': None},
            'spec.x.apiVersion: Invalid value: null: must be a string',
            id='null',
        ),
        pytest.param(
            {'metadata': 'x'},
            'spec.x.metadata: Invalid value: "x": '
            'json: cannot unmarshal string into Go value of type v1.ObjectMeta',
            id='metadata',
        ),
        pytest.param(
            {'metadata': {'labels': {'a': 5}}},
            'spec.x.metadata: Invalid value: {"labels":{"a":5}}: '
            'json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string',
            id='labels',
        ),
    ],
)
def test_embedded_resources_of_wrong_types_are_refused(resource, message):
    with pytest.raises(errors.ApiError) as caught:
        pruning.prune(make_body(x=resource), make_schema(x={**EMBEDDED, **PRESERVING}))

    assert caught.value.message == f'Probe in version "v1" cannot be handled as a Probe: {message}'


def test_builtin_objects_are_pruned_in_the_order_of_their_fields():
    resource = next(resource for resource in builtins.load_resources() if resource.kind == 'Pod')
    body = {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'zz': 1,
        'metadata': {'name': 'x', 'yy': 1},
        'status': None,
        'spec': {'containers': [{'name': 'a', 'foo': 1, 'image': None}]},
        'aa': 1,
    }

    result = pruning.prune(body, resource.schema)

    assert result == ['zz', 'metadata.yy', 'spec.containers[0].foo', 'aa']
    assert body == {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {'name': 'x'},
        'spec': {'containers': [{'name': 'a'}]},
    }


DEFAULTED = {'type': 'integer', 'default': 5}


@pytest.mark.parametrize(
    'field, spec, expected',
    [
        pytest.param(DEFAULTED, {}, {'x': 5}, id='missing'),
        pytest.param(DEFAULTED, {'x': 1}, {'x': 1}, id='present'),
        pytest.param(DEFAULTED, {'x': None}, {'x': 5}, id='null'),
        pytest.param({**DEFAULTED, 'nullable': True}, {'x': None}, {'x': None}, id='nullable'),
        pytest.param({'type': 'string', 'default': None}, {}, {}, id='null-is-no-default'),
        pytest.param(make_object({'a': DEFAULTED}), {}, {}, id='parent-missing'),
        pytest.param(
            make_object({'a': DEFAULTED}, default={}), {}, {'x': {'a': 5}}, id='parent-defaulted'
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': make_object({'a': DEFAULTED})},
            {'x': {'k': {}, 'l': {'a': None}}},
            {'x': {'k': {'a': 5}, 'l': {'a': 5}}},
            id='map',
        ),
        pytest.param(
            {'type': 'array', 'items': make_object({'a': DEFAULTED})},
            {'x': [{}, {'a': 1}, 'z']},
            {'x': [{'a': 5}, {'a': 1}, 'z']},
            id='list',
        ),
        pytest.param(
            {'type': 'array', 'items': DEFAULTED}, {'x': [None, 1]}, {'x': [5, 1]}, id='null-item'
        ),
        pytest.param(
            {'type': 'object', 'additionalProperties': DEFAULTED},
            {'x': {'k': None}},
            {'x': {'k': 5}},
            id='null-value',
        ),
    ],
)
def test_missing_fields_get_defaults(field, spec, expected):
    body = make_body(**spec)

    pruning.apply_defaults(body, make_schema(x=field))

    assert body['spec'] == expected


def test_defaults_are_not_shared_by_objects():
    schema = make_schema(x=make_object({'a': STRING}, default={'a': '1'}))
    first, second = make_body(), make_body()

    pruning.apply_defaults(first, schema)
    first['spec']['x']['a'] = '2'
    pruning.apply_defaults(second, schema)

    assert second['spec']['x'] == {'a': '1'}


RICH = make_schema(
    a={'type': 'integer', 'minimum': 0, 'default': 1},
    b={'type': 'string', 'nullable': True, 'default': 'x'},
    c=make_object({'a': DEFAULTED, 'b': STRING}, default={}),
    d={'type': 'array', 'items': make_object({'a': DEFAULTED})},
    e={'type': 'object', 'additionalProperties': DEFAULTED},
    f={'type': 'object', 'additionalProperties': True},
    g={'type': 'object', **PRESERVING},
    h={'x-kubernetes-int-or-string': True},
)
names = st.sampled_from('abcdefgh')
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from(['', 'x', 'abc'])
    | st.floats(-1, 9, width=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


@given(spec=st.dictionaries(names, values, max_size=5))
def test_pruning_and_defaulting_twice_change_nothing(spec):
    body = make_body(**spec)
    pruning.prune(body, RICH)
    pruning.apply_defaults(body, RICH)
    again = copy.deepcopy(body)

    unknown = pruning.prune(again, RICH)
    pruning.apply_defaults(again, RICH)

    assert unknown == []
    assert again == body


@given(spec=st.dictionaries(names, values, max_size=5))
def test_valid_objects_stay_valid_when_pruned_and_defaulted(spec):
    body = make_body(**spec)
    was_valid = validation.validate(body, RICH) == []

    pruning.prune(body, RICH)
    pruning.apply_defaults(body, RICH)

    assert not was_valid or validation.validate(body, RICH) == []
