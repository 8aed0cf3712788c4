"""
Applying: the managed fields after creations, updates and applications; conflicts; what is removed
and what stays.
"""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf._sandbox.apply import managed_fields, patches, server_side
from kopf._sandbox.meta import errors, schemas

API = 'example.com/v1'
NOW, LATER = '2020-01-01T00:00:00Z', '2020-01-01T00:00:01Z'
ITEM = {
    'type': 'object',
    'properties': {'name': {'type': 'string'}, 'v': {'type': 'integer'}, 'w': {'type': 'integer'}},
}
SCHEMA = schemas.compile_schema(
    {
        'type': 'object',
        'properties': {
            'spec': {
                'type': 'object',
                'properties': {
                    'replicas': {'type': 'integer'},
                    'paused': {'type': 'boolean'},
                    'port': {'x-kubernetes-int-or-string': True},
                    'since': {'type': 'string', 'format': 'date-time'},
                    'labels': {'type': 'object', 'additionalProperties': {'type': 'string'}},
                    'items': {
                        'type': 'array',
                        'x-kubernetes-list-type': 'map',
                        'x-kubernetes-list-map-keys': ['name'],
                        'items': ITEM,
                    },
                    'set': {
                        'type': 'array',
                        'x-kubernetes-list-type': 'set',
                        'items': {'type': 'string'},
                    },
                    'list': {'type': 'array', 'items': {'type': 'string'}},
                    'free': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
                },
            },
            'status': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
        },
    }
)


def author(manager='me', now=NOW, **kwargs):
    return managed_fields.Author(manager=manager, api_version=API, now=now, **kwargs)


def obj(spec=None, **kwargs):
    metadata = {'name': 'x', **kwargs.pop('metadata', {})}
    specs = {} if spec is None else {'spec': spec}
    return {'apiVersion': API, 'kind': 'Thing', 'metadata': metadata, **specs, **kwargs}


def entry(manager, operation, fields, time=NOW, **kwargs):
    times = {} if time is None else {'time': time}
    return {
        'manager': manager,
        'operation': operation,
        'apiVersion': API,
        **times,
        'fieldsType': 'FieldsV1',
        'fieldsV1': fields,
        **kwargs,
    }


def create(spec, manager='me', **kwargs):
    created = obj(spec, **kwargs)
    entries = server_side.record_update(None, created, schema=SCHEMA, author=author(manager))
    return {**created, 'metadata': {**created['metadata'], 'managedFields': entries}}


def update(live, patch, manager='me', **kwargs):
    patched = patches.merge(live, patch)
    return server_side.record_update(live, patched, schema=SCHEMA, author=author(manager, **kwargs))


def apply(live, spec, manager='me', now=NOW, force=False, **kwargs):
    return server_side.apply(
        live, obj(spec, **kwargs), schema=SCHEMA, author=author(manager, now), force=force
    )


def list_owners(applied):
    return {
        (one['manager'], one['operation']): one['fieldsV1']
        for one in applied['metadata'].get('managedFields', [])
    }


def test_creator_owns_all():
    entries = server_side.record_update(
        None,
        obj({'replicas': 1, 'items': [{'name': 'x'}]}, metadata={'labels': {'a': 'b'}, 'uid': 'u'}),
        schema=SCHEMA,
        author=author(),
    )

    assert json.dumps(entries) == json.dumps(
        [
            entry(
                'me',
                'Update',
                {
                    'f:metadata': {'f:labels': {'.': {}, 'f:a': {}}},
                    'f:spec': {
                        '.': {},
                        'f:items': {'.': {}, 'k:{"name":"x"}': {'.': {}, 'f:name': {}}},
                        'f:replicas': {},
                    },
                },
            )
        ]
    )


def test_creator_of_nothing_owns_nothing():
    assert server_side.record_update(None, obj(), schema=SCHEMA, author=author()) is None


@pytest.mark.parametrize(
    'patch, expected',
    [
        pytest.param(
            {'spec': {'replicas': 2}},
            [
                entry('me', 'Update', {'f:spec': {'.': {}, 'f:labels': {'.': {}, 'f:a': {}}}}),
                entry('you', 'Update', {'f:spec': {'f:replicas': {}}}, LATER),
            ],
            id='taken-over',
        ),
        pytest.param(
            {'spec': {'labels': {'b': 'c'}}},
            [
                entry(
                    'me',
                    'Update',
                    {'f:spec': {'.': {}, 'f:labels': {'.': {}, 'f:a': {}}, 'f:replicas': {}}},
                ),
                entry('you', 'Update', {'f:spec': {'f:labels': {'f:b': {}}}}, LATER),
            ],
            id='added',
        ),
        pytest.param(
            {'spec': {'replicas': None}},
            [entry('me', 'Update', {'f:spec': {'.': {}, 'f:labels': {'.': {}, 'f:a': {}}}})],
            id='removed',
        ),
        pytest.param(
            {'spec': None, 'status': {'x': 1}},
            [entry('you', 'Update', {'f:status': {'.': {}, 'f:x': {}}}, LATER)],
            id='all-taken',
        ),
    ],
)
def test_changed_fields_change_their_owners(patch, expected):
    live = create({'replicas': 1, 'labels': {'a': 'b'}})

    assert update(live, patch, 'you', now=LATER) == expected


@pytest.mark.parametrize(
    'patch',
    [
        pytest.param({}, id='nothing'),
        pytest.param({'spec': {'replicas': 1}}, id='the-same-value'),
        pytest.param(
            {'metadata': {'resourceVersion': '5', 'generation': 2}}, id='fields-of-nobody'
        ),
        pytest.param({'metadata': {'managedFields': None}}, id='managed-fields-left-out'),
        pytest.param(
            {'metadata': {'managedFields': [{'operation': 'Zzz'}]}}, id='managed-fields-broken'
        ),
    ],
)
def test_owners_are_the_same_if_nothing_changes(patch):
    live = create({'replicas': 1})

    assert update(live, patch, 'you', now=LATER) is live['metadata']['managedFields']


def test_updates_of_one_manager_are_together_except_for_subresources():
    live = create({'replicas': 1})

    entries = update(live, {'status': {'x': 1}}, now=LATER, subresource='status')
    live['metadata']['managedFields'] = entries
    entries = update(live, {'spec': {'paused': True}}, now=LATER)

    assert entries == [
        entry('me', 'Update', {'f:spec': {'.': {}, 'f:paused': {}, 'f:replicas': {}}}, LATER),
        entry('me', 'Update', {'f:status': {'.': {}, 'f:x': {}}}, LATER, subresource='status'),
    ]


def test_reset_fields_are_owned_by_nobody():
    live = create({'replicas': 1})

    entries = update(
        live, {'status': {'x': 1}, 'spec': {'replicas': 2}}, 'you', reset_fields=('status', 'spec')
    )

    assert entries is live['metadata']['managedFields']


@pytest.mark.parametrize(
    'sent', [pytest.param([], id='empty'), pytest.param([{}], id='empty-entry')]
)
def test_owners_are_not_recorded_since_they_are_reset(sent):
    live = create({'replicas': 1})

    assert update(live, {'metadata': {'managedFields': sent}, 'spec': {'replicas': 2}}) is None

    del live['metadata']['managedFields']
    assert update(live, {'spec': {'replicas': 2}}) is None


def test_owners_are_recorded_on_creation_even_if_reset():
    created = obj({'replicas': 1}, metadata={'managedFields': [{}]})

    assert server_side.record_update(None, created, schema=SCHEMA, author=author()) == [
        entry('me', 'Update', {'f:spec': {'.': {}, 'f:replicas': {}}})
    ]


def test_owners_are_as_users_modify_them():
    live = create({'replicas': 1})
    sent = [
        entry('c', 'Update', {'f:b': {}, 'f:a': {}, 'z:unknown': {}}),
        entry('b', 'Update', {}),
        entry('a', 'Apply', {'f:x': {}}),
    ]

    entries = update(live, {'metadata': {'managedFields': sent}})

    assert json.dumps(entries) == json.dumps(
        [entry('a', 'Apply', {'f:x': {}}), entry('c', 'Update', {'f:a': {}, 'f:b': {}})]
    )


@pytest.mark.parametrize(
    'broken',
    [
        pytest.param('x', id='string'),
        pytest.param([1], id='list-of-numbers'),
        pytest.param([{**entry('a', 'Update', {'f:x': {}}), 'manager': {'x': 'y'}}], id='manager'),
        pytest.param([{**entry('a', 'Update', {'f:x': {}}), 'apiVersion': ''}], id='no-version'),
        pytest.param([{**entry('a', 'Update', {'f:x': {}}), 'fieldsType': 'X'}], id='type'),
        pytest.param([entry('a', 'Update', {'x': {}})], id='step'),
        pytest.param([entry('a', 'Update', [])], id='fields'),
    ],
)
def test_broken_managed_fields_of_users_are_ignored(broken):
    live = create({'replicas': 1})

    assert (
        update(live, {'metadata': {'managedFields': broken}}) is live['metadata']['managedFields']
    )


def test_oldest_updates_are_merged_if_there_are_too_many():
    live = create({'replicas': 1}, 'm00')
    for number in range(1, 12):
        patch = {'spec': {'labels': {f'l{number:02}': 'x'}}}
        entries = update(live, patch, f'm{number:02}', now=f'2020-01-01T00:00:{number:02}Z')
        live = patches.merge(live, patch)
        live['metadata'] = {**live['metadata'], 'managedFields': entries}

    assert [one['manager'] for one in entries] == [
        'ancient-changes',
        *(f'm{number:02}' for number in range(3, 12)),
    ]
    assert entries[0] == entry(
        'ancient-changes',
        'Update',
        {'f:spec': {'.': {}, 'f:labels': {'.': {}, 'f:l01': {}, 'f:l02': {}}, 'f:replicas': {}}},
        '2020-01-01T00:00:02Z',
    )


def test_applied_configuration_creates_an_object():
    config = obj(
        {'replicas': 1, 'items': [{'name': 'x', 'v': 1}], 'labels': {}},
        metadata={'finalizers': ['f']},
    )
    before = copy.deepcopy(config)

    applied = server_side.apply(None, config, schema=SCHEMA, author=author())

    assert config == before
    assert {**applied, 'metadata': config['metadata']} == config
    assert json.dumps(applied['metadata']['managedFields']) == json.dumps(
        [
            entry(
                'me',
                'Apply',
                {
                    'f:metadata': {'f:finalizers': {'v:"f"': {}}},
                    'f:spec': {
                        'f:items': {'k:{"name":"x"}': {'.': {}, 'f:name': {}, 'f:v': {}}},
                        'f:labels': {},
                        'f:replicas': {},
                    },
                },
            )
        ]
    )


@pytest.mark.parametrize(
    'live, config, expected',
    [
        pytest.param(
            {'labels': {'a': '1'}},
            {'labels': {'b': '2'}},
            {'labels': {'a': '1', 'b': '2'}},
            id='map',
        ),
        pytest.param(
            {'labels': {'a': '1'}}, {'labels': {}}, {'labels': {'a': '1'}}, id='empty-map'
        ),
        pytest.param(
            {'labels': {'a': '1'}}, {'labels': None}, {'labels': {'a': '1'}}, id='null-map'
        ),
        pytest.param(
            {'labels': {}}, {'labels': {'b': '2'}}, {'labels': {'b': '2'}}, id='map-over-empty'
        ),
        pytest.param({'list': ['a', 'b']}, {'list': ['c']}, {'list': ['c']}, id='list'),
        pytest.param({'set': ['a', 'b']}, {'set': ['c', 'b']}, {'set': ['a', 'c', 'b']}, id='set'),
        pytest.param({'set': ['a', 'b']}, {'set': []}, {'set': ['a', 'b']}, id='empty-set'),
        pytest.param(
            {'set': ['a', 'b', 'c']},
            {'set': ['c', 'a']},
            {'set': ['b', 'c', 'a']},
            id='set-reordered',
        ),
        pytest.param(
            {'set': ['b', 'a']},
            {'set': ['x', 'b', 'y']},
            {'set': ['x', 'b', 'a', 'y']},
            id='set-around',
        ),
        pytest.param(
            {'items': [{'name': 'a', 'v': 1}, {'name': 'b'}]},
            {'items': [{'name': 'a', 'w': 2}]},
            {'items': [{'name': 'a', 'v': 1, 'w': 2}, {'name': 'b'}]},
            id='items',
        ),
        pytest.param(
            {'free': {'x': {'y': 1}}},
            {'free': {'x': {'z': [2]}}},
            {'free': {'x': {'y': 1, 'z': [2]}}},
            id='free',
        ),
        pytest.param(
            {'free': {'x': 1}},
            {'free': {'x': {'z': 2}}},
            {'free': {'x': {'z': 2}}},
            id='type-changed',
        ),
        pytest.param({'port': 80}, {'port': 'http'}, {'port': 'http'}, id='int-or-string'),
    ],
)
def test_configuration_is_merged_into_the_object(live, config, expected):
    applied = apply(create(live), config, 'you', force=True)

    assert applied['spec'] == expected


def test_fields_not_applied_any_more_are_removed():
    live = apply(
        None,
        {
            'replicas': 1,
            'labels': {'a': '1', 'b': '2'},
            'items': [{'name': 'x', 'v': 1}],
            'set': ['a', 'b'],
        },
    )

    applied = apply(live, {'labels': {'a': '1'}, 'items': [{'name': 'y'}], 'set': ['b']}, now=LATER)

    assert applied['spec'] == {'labels': {'a': '1'}, 'items': [{'name': 'y'}], 'set': ['b']}
    assert applied['metadata']['managedFields'][0]['time'] == LATER


def test_fields_of_others_are_not_removed():
    live = apply(
        None, {'replicas': 1, 'labels': {'a': '1', 'b': '2'}, 'items': [{'name': 'x', 'v': 1}]}
    )
    live = apply(live, {'replicas': 1, 'items': [{'name': 'x', 'v': 1}]}, 'you')
    entries = update(live, {'spec': {'labels': {'c': '3'}}}, 'they')
    live = patches.merge(live, {'spec': {'labels': {'c': '3'}}})
    live['metadata']['managedFields'] = entries

    applied = apply(live, {})

    assert applied['spec'] == {
        'replicas': 1,
        'labels': {'c': '3'},
        'items': [{'name': 'x', 'v': 1}],
    }
    assert list_owners(applied) == {
        ('me', 'Apply'): {'f:spec': {}},
        ('you', 'Apply'): {
            'f:spec': {
                'f:items': {'k:{"name":"x"}': {'.': {}, 'f:name': {}, 'f:v': {}}},
                'f:replicas': {},
            }
        },
        ('they', 'Update'): {'f:spec': {'f:labels': {'f:c': {}}}},
    }


def test_configuration_without_changes_leaves_the_object_equal():
    live = apply(None, {'replicas': 1, 'items': [{'name': 'x', 'v': 1}], 'labels': {}})

    assert (
        apply(live, {'replicas': 1, 'items': [{'name': 'x', 'v': 1}], 'labels': {}}, now=LATER)
        == live
    )


def test_fields_are_shared_with_no_time_if_the_values_are_the_same():
    live = apply(None, {'replicas': 1})

    applied = apply(live, {'replicas': 1}, 'you', now=LATER)

    assert applied['metadata']['managedFields'] == [
        entry('you', 'Apply', {'f:spec': {'f:replicas': {}}}, None),
        entry('me', 'Apply', {'f:spec': {'f:replicas': {}}}),
    ]


def test_objects_without_owners_get_one_for_what_was_before():
    live = create({'replicas': 1}, status={'x': 1})
    del live['metadata']['managedFields']

    applied = server_side.apply(
        live, obj({'paused': True}), schema=SCHEMA, author=author(reset_fields=('status',))
    )

    assert list_owners(applied) == {
        ('me', 'Apply'): {'f:spec': {'f:paused': {}}},
        ('before-first-apply', 'Update'): {'f:spec': {'.': {}, 'f:replicas': {}}},
    }


def test_one_conflict_is_told_in_one_line():
    live = create({'replicas': 1})

    with pytest.raises(errors.ApiError) as caught:
        apply(live, {'replicas': 2}, 'you')

    assert caught.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'Conflict',
        'code': 409,
        'message': 'Apply failed with 1 conflict: conflict with "me" using example.com/v1: .spec.replicas',
        'details': {
            'causes': [
                {
                    'reason': 'FieldManagerConflict',
                    'field': '.spec.replicas',
                    'message': 'conflict with "me" using example.com/v1',
                }
            ]
        },
    }


def test_many_conflicts_are_told_by_owners():
    live = apply(
        create({'replicas': 1, 'items': [{'name': 'x', 'v': 1}]}),
        {'replicas': 1, 'set': ['a']},
        'a',
    )
    live = {**live, 'status': {'x': 1}}
    live['metadata']['managedFields'].append(
        entry('s', 'Update', {'f:status': {'f:x': {}}}, subresource='status')
    )

    with pytest.raises(errors.ApiError) as caught:
        apply(live, {'replicas': 2, 'items': [{'name': 'x', 'v': 2}]}, 'you', status={'x': 2})

    assert caught.value.message == '\n'.join(
        (
            'Apply failed with 4 conflicts: conflicts with "a":',
            '- .spec.replicas',
            'conflicts with "me" using example.com/v1:',
            '- .spec.replicas',
            '- .spec.items[name="x"].v',
            'conflicts with "s" with subresource "status" using example.com/v1:',
            '- .status.x',
        )
    )
    assert [cause['field'] for cause in caught.value.details['causes']] == [
        '.spec.replicas',
        '.spec.replicas',
        '.spec.items[name="x"].v',
        '.status.x',
    ]


def test_forced_conflicts_take_the_fields_over():
    live = create({'replicas': 1, 'paused': True})

    applied = apply(live, {'replicas': 2}, 'you', force=True)

    assert applied['spec'] == {'replicas': 2, 'paused': True}
    assert list_owners(applied) == {
        ('you', 'Apply'): {'f:spec': {'f:replicas': {}}},
        ('me', 'Update'): {'f:spec': {'.': {}, 'f:paused': {}}},
    }


def test_kubectl_continues_what_it_applied_on_its_side():
    last = json.dumps(obj({'replicas': 1, 'paused': True}))
    live = create(
        {'replicas': 1, 'paused': False}, metadata={'annotations': {server_side.LAST_APPLIED: last}}
    )

    applied = apply(live, {'replicas': 2}, 'kubectl')

    assert applied['spec'] == {'replicas': 2, 'paused': False}
    assert applied['metadata']['annotations'] == {
        server_side.LAST_APPLIED: (
            '{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"},"spec":{"replicas":2}}\n'
        )
    }
    with pytest.raises(errors.ApiError, match=r'1 conflict: .*: \.spec\.paused'):
        apply(live, {'replicas': 2, 'paused': True}, 'kubectl')


@pytest.mark.parametrize(
    'last',
    [
        pytest.param('', id='empty'),
        pytest.param('{', id='not-json'),
        pytest.param('[]', id='not-an-object'),
        pytest.param(json.dumps({**obj({'replicas': 1}), 'apiVersion': 'v2'}), id='other-version'),
        pytest.param(json.dumps(obj({'replicas': 'x'})), id='not-fitting'),
        pytest.param(json.dumps(obj({'replicas': 3})), id='changed-since'),
    ],
)
def test_kubectl_has_conflicts_if_it_is_not_known_what_it_applied(last):
    live = create({'replicas': 1}, metadata={'annotations': {server_side.LAST_APPLIED: last}})

    with pytest.raises(errors.ApiError, match='1 conflict'):
        apply(live, {'replicas': 2}, 'kubectl')


@pytest.mark.parametrize(
    'config, message',
    [
        pytest.param(
            [],
            'error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array '
            'into Go value of type map[string]interface {}',
            id='list',
        ),
        pytest.param(None, 'invalid object type: /, Kind=', id='null'),
        pytest.param(
            {**obj(), 'apiVersion': 'v2'}, 'invalid object type: /v2, Kind=Thing', id='version'
        ),
        pytest.param(
            {**obj(), 'kind': 'Other'}, 'invalid object type: example.com/v1, Kind=Other', id='kind'
        ),
        pytest.param(
            obj(metadata={'managedFields': []}),
            'metadata.managedFields must be nil',
            id='managed-fields',
        ),
    ],
)
def test_bad_configurations_are_bad_requests(config, message):
    with pytest.raises(errors.ApiError) as caught:
        server_side.apply(create({}), config, schema=SCHEMA, author=author())

    assert (caught.value.code, caught.value.reason, caught.value.message) == (
        400,
        'BadRequest',
        message,
    )


@pytest.mark.parametrize(
    'spec, complaint',
    [
        pytest.param({'x': 1}, '.spec.x: field not declared in schema', id='unknown-field'),
        pytest.param(
            {'replicas': 'x'},
            '.spec.replicas: expected numeric (int or float), got string',
            id='number',
        ),
        pytest.param(
            {'replicas': True},
            '.spec.replicas: expected numeric (int or float), got bool',
            id='boolean-number',
        ),
        pytest.param({'paused': 'x'}, '.spec.paused: expected boolean, got &{x}', id='boolean'),
        pytest.param({'since': {}}, '.spec.since: expected any scalar, got &{map[]}', id='scalar'),
        pytest.param(
            {'labels': {'a': {'b': [1, 'c']}}},
            '.spec.labels.a: expected string, got &value.valueUnstructured{'
            'Value:map[string]interface {}{"b":[]interface {}{1, "c"}}}',
            id='string',
        ),
        pytest.param({'labels': 5}, '.spec.labels: expected map, got &{5}', id='map'),
        pytest.param({'list': 'x'}, '.spec.list: expected list, got &{x}', id='list'),
        pytest.param(
            {'list': ['a', 1]},
            '.spec.list[1]: expected string, got &value.valueUnstructured{Value:1}',
            id='list-item',
        ),
        pytest.param(
            {'items': [{'name': 'x'}, {'name': 'x'}]},
            '.spec.items: duplicate entries for key [name="x"]',
            id='duplicate-keys',
        ),
        pytest.param(
            {'set': ['a', 'a']},
            '.spec.set: duplicate entries for key [="a"]',
            id='duplicate-values',
        ),
        pytest.param(
            {'items': ['x']},
            '.spec.items: element 0: associative list with keys may not have non-map elements',
            id='no-identity',
        ),
        pytest.param(
            {'replicas': 'x', 'paused': 5},
            'errors:\n  .spec.paused: expected boolean, got &{5}\n'
            '  .spec.replicas: expected numeric (int or float), got string',
            id='many',
        ),
    ],
)
def test_configurations_must_fit_the_schema(spec, complaint):
    with pytest.raises(errors.ApiError) as caught:
        apply(None, spec, metadata={'namespace': 'ns'})

    assert caught.value.status == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'code': 500,
        'message': f'failed to create typed patch object (ns/x; example.com/v1, Kind=Thing): {complaint}',
    }


def test_live_objects_must_fit_the_schema_too():
    live = {**create({}), 'spec': {'set': [{}]}}

    with pytest.raises(
        errors.ApiError, match=r"failed to create typed live object .* element that's a map type"
    ):
        apply(live, {'set': ['a']})


SPECS = st.fixed_dictionaries(
    {},
    optional={
        'replicas': st.integers(0, 2),
        'labels': st.dictionaries(st.sampled_from('abc'), st.sampled_from('xy'), max_size=2),
        'items': st.lists(
            st.fixed_dictionaries(
                {'name': st.sampled_from('xyz')}, optional={'v': st.integers(0, 1)}
            ),
            max_size=3,
            unique_by=lambda item: item['name'],
        ),
        'set': st.lists(st.sampled_from('abc'), max_size=3, unique=True),
        'list': st.lists(st.sampled_from('ab'), max_size=2),
        'free': st.dictionaries(
            st.sampled_from('pq'), st.integers(2, 3) | st.just({}) | st.just({'r': 1}), max_size=2
        ),
    },
)


@settings(deadline=None)
@given(SPECS, SPECS, SPECS)
def test_applying_twice_is_the_same_as_once(created, first, second):
    live = apply(create(created), first, 'a', force=True)
    before = copy.deepcopy(live)

    once = apply(live, second, 'b', force=True)

    assert live == before
    assert apply(once, second, 'b', now=LATER) == once


@settings(deadline=None)
@given(SPECS, SPECS)
def test_applier_owns_exactly_what_it_applies(first, second):
    second = {'replicas': 1, **second}
    live = apply(None, first)

    mine = ('me', 'Apply')
    assert list_owners(apply(live, second))[mine] == list_owners(apply(None, second))[mine]
