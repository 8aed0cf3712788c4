"""
Filters: which handlers are called for what, and which objects are of interest.
"""

import pytest

import kopf
from kopf._cogs.structs import diffs
from kopf._core.intents import causes, reasons

ABSENT, PRESENT = kopf.ABSENT, kopf.PRESENT


def fn(**_):
    pass


def meta(stanza, values):
    return {'metadata': {} if values is None else {stanza: values}}


def spec(value):
    """The states of objects with or without the field ``spec.field``."""
    return {'spec': {} if value is ABSENT else {'field': value}}


def is_world(value, **_):
    return value == 'world'


METADATA = [
    pytest.param('somevalue', {'key': 'somevalue'}, True, id='equal'),
    pytest.param('somevalue', {'key': 'other'}, False, id='different'),
    pytest.param('somevalue', {'other': 'somevalue'}, False, id='other-key'),
    pytest.param('somevalue', {}, False, id='value-of-empty'),
    pytest.param('somevalue', None, False, id='value-of-none'),
    pytest.param('', {'key': ''}, True, id='empty-equal'),
    pytest.param('', {}, False, id='empty-absent'),
    pytest.param(PRESENT, {'key': 'any'}, True, id='present'),
    pytest.param(PRESENT, {'key': ''}, True, id='present-empty'),
    pytest.param(PRESENT, {}, False, id='not-present'),
    pytest.param(PRESENT, None, False, id='present-in-none'),
    pytest.param(ABSENT, {'key': 'any'}, False, id='not-absent'),
    pytest.param(ABSENT, {'key': ''}, False, id='absent-empty'),
    pytest.param(ABSENT, {}, True, id='absent'),
    pytest.param(ABSENT, None, True, id='absent-in-none'),
    pytest.param(lambda value, **_: value == 'v', {'key': 'v'}, True, id='callback-accepts'),
    pytest.param(lambda value, **_: value == 'v', {'key': 'x'}, False, id='callback-refuses'),
    pytest.param(lambda value, **_: value is None, {}, True, id='callback-of-absent'),
    pytest.param(lambda value, **_: 'truthy', {'key': 'x'}, True, id='callback-truthy'),
    pytest.param(lambda value, **_: '', {'key': 'x'}, False, id='callback-falsy'),
]


@pytest.mark.guarantee('FLT-003', 'FLT-004', 'FLT-005', 'FLT-006', 'FLT-008', 'FLT-026', 'FLT-027')
@pytest.mark.parametrize('stanza', ['labels', 'annotations'])
@pytest.mark.parametrize('criterion, values, expected', METADATA)
def test_metadata_are_checked(registry, called, watching, stanza, criterion, values, expected):
    kopf.on.event('kopfexamples', registry=registry, **{stanza: {'key': criterion}})(fn)

    ids = called(watching(meta(stanza, values)))

    assert bool(ids) is expected


@pytest.mark.guarantee('FLT-001', 'FLT-007')
@pytest.mark.parametrize(
    'mismatching, expected',
    [
        pytest.param({}, True, id='all'),
        pytest.param({'labels': {'a': 'y', 'b': 'n'}}, False, id='not-labels'),
        pytest.param({'annotations': {'a': 'y', 'b': 'n'}}, False, id='not-annotations'),
        pytest.param({'value': 'n'}, False, id='not-field'),
        pytest.param({'when': lambda **_: False}, False, id='not-when'),
    ],
)
def test_all_filters_must_match(registry, called, watching, mismatching, expected):
    body = {
        'metadata': {'labels': {'a': 'y', 'b': 'y'}, 'annotations': {'a': 'y', 'b': 'y'}},
        'spec': {'field': 'y'},
    }
    matching = {**body['metadata'], 'field': 'spec.field', 'value': 'y', 'when': lambda **_: True}
    kopf.on.event('kopfexamples', registry=registry, **{**matching, **mismatching})(fn)

    assert bool(called(watching(body))) is expected


def test_functions_can_rely_on_the_other_filters(registry, called, watching):
    kopf.on.event(
        'kopfexamples',
        registry=registry,
        labels={'key': PRESENT},
        field='spec.field',
        when=lambda labels, spec, **_: labels['key'] and spec['field'],
    )(fn)

    assert called(watching({})) == []
    assert called(watching({'metadata': {'labels': {'key': 'x'}}})) == []
    assert called(watching({'metadata': {'labels': {'key': 'x'}}, 'spec': {'field': 'y'}})) == [
        'fn/spec.field'
    ]


STATES = [
    pytest.param({}, 'x', True, id='bare-present'),
    pytest.param({}, ABSENT, False, id='bare-absent'),
    pytest.param({}, None, False, id='bare-null'),
    pytest.param({}, 0, True, id='bare-zero'),
    pytest.param({}, False, True, id='bare-false'),
    pytest.param({}, '', True, id='bare-empty-string'),
    pytest.param({}, [], True, id='bare-empty-list'),
    pytest.param({}, {}, True, id='bare-empty-dict'),
    pytest.param({'value': 'x'}, 'x', True, id='equal'),
    pytest.param({'value': 'x'}, 'y', False, id='different'),
    pytest.param({'value': 'x'}, ABSENT, False, id='value-of-absent'),
    pytest.param({'value': True}, True, True, id='true'),
    pytest.param({'value': True}, 'true', False, id='not-text'),
    pytest.param({'value': {'a': [1]}}, {'a': [1]}, True, id='equal-dict'),
    pytest.param({'value': PRESENT}, 'x', True, id='present'),
    pytest.param({'value': PRESENT}, ABSENT, False, id='not-present'),
    pytest.param({'value': ABSENT}, ABSENT, True, id='absent'),
    pytest.param({'value': ABSENT}, None, True, id='absent-null'),
    pytest.param({'value': ABSENT}, 'x', False, id='not-absent'),
    pytest.param({'value': is_world}, 'world', True, id='callback-accepts'),
    pytest.param({'value': is_world}, 'x', False, id='callback-refuses'),
    pytest.param(
        {'value': lambda value, **_: value is None}, ABSENT, True, id='callback-of-absent'
    ),
]


@pytest.mark.guarantee('FLT-009', 'FLT-010', 'FLT-011', 'FLT-027')
@pytest.mark.parametrize('filters, value, expected', STATES)
@pytest.mark.parametrize('kind', ['event', 'index', 'daemon', 'timer', 'validate', 'mutate'])
def test_fields_are_checked_in_the_current_state(
    request, registry, called, kind, filters, value, expected
):
    fixture = {'event': 'watching', 'index': 'indexing', 'validate': 'webhook', 'mutate': 'webhook'}
    build = request.getfixturevalue(fixture.get(kind, 'spawning'))
    getattr(kopf.on, kind)('kopfexamples', field='spec.field', registry=registry, **filters)(fn)

    assert bool(called(build(spec(value)))) is expected


@pytest.mark.guarantee('FLT-009', 'FLT-010', 'FLT-011', 'FLT-027')
@pytest.mark.parametrize('filters, value, expected', STATES)
@pytest.mark.parametrize('kind', ['create', 'resume', 'delete'])
def test_fields_are_checked_in_the_current_state_despite_the_changes(
    registry, called, changing, kind, filters, value, expected
):
    getattr(kopf.on, kind)('kopfexamples', field='spec.field', registry=registry, **filters)(fn)
    old = None if kind == 'create' else spec('world' if value == 'x' else 'x')

    ids = called(changing(kind, old=old, new=spec(value), initial=True))

    assert bool(ids) is expected


@pytest.mark.guarantee('FLT-012', 'FLT-013', 'FLT-014', 'HND-045', 'FLT-010', 'FLT-027')
@pytest.mark.parametrize('kind', ['update', 'field'])
@pytest.mark.parametrize(
    'filters, change, expected',
    [
        pytest.param({}, ('x', 'y'), True, id='bare-changed'),
        pytest.param({}, (ABSENT, 'y'), True, id='bare-added'),
        pytest.param({}, ('x', ABSENT), True, id='bare-removed'),
        pytest.param({}, ('x', 'x'), False, id='bare-unchanged'),
        pytest.param({}, (ABSENT, ABSENT), False, id='bare-absent'),
        pytest.param({}, (None, ABSENT), False, id='bare-null-is-absent'),
        pytest.param({}, (True, 1), True, id='bare-true-is-not-one'),
        pytest.param({'value': 'x'}, ('x', 'y'), True, id='value-left'),
        pytest.param({'value': 'x'}, ('y', 'x'), True, id='value-entered'),
        pytest.param({'value': 'x'}, (ABSENT, 'x'), True, id='value-added'),
        pytest.param({'value': 'x'}, ('x', ABSENT), True, id='value-removed'),
        pytest.param({'value': 'x'}, ('y', 'z'), False, id='value-unrelated'),
        pytest.param({'value': 'x'}, ('x', 'x'), False, id='value-unchanged'),
        pytest.param({'value': PRESENT}, ('x', ABSENT), True, id='present-removed'),
        pytest.param({'value': PRESENT}, (ABSENT, ABSENT), False, id='present-never'),
        pytest.param({'value': ABSENT}, ('x', ABSENT), True, id='absent-entered'),
        pytest.param({'value': ABSENT}, (ABSENT, 'x'), True, id='absent-left'),
        pytest.param({'value': ABSENT}, ('x', 'y'), False, id='absent-never'),
        pytest.param({'value': ABSENT}, (ABSENT, ABSENT), False, id='absent-unchanged'),
        pytest.param({'value': is_world}, ('world', 'x'), True, id='callback-old'),
        pytest.param({'value': is_world}, ('x', 'world'), True, id='callback-new'),
        pytest.param({'value': is_world}, ('x', 'y'), False, id='callback-neither'),
        pytest.param(
            {'value': lambda value, **_: value is None},
            ('x', ABSENT),
            True,
            id='callback-of-absent',
        ),
    ],
)
def test_values_are_checked_before_and_after_the_change(
    registry, called, changing, kind, filters, change, expected
):
    getattr(kopf.on, kind)('kopfexamples', field='spec.field', registry=registry, **filters)(fn)
    states = [
        {**spec(value), 'metadata': {'labels': {'version': version}}}
        for version, value in enumerate(change)
    ]

    ids = called(changing('update', *states))

    assert bool(ids) is expected


@pytest.mark.guarantee('FLT-019', 'FLT-020', 'FLT-021', 'FLT-022', 'FLT-023', 'FLT-024')
@pytest.mark.parametrize('kind', ['update', 'field'])
@pytest.mark.parametrize(
    'filters, change, expected',
    [
        pytest.param({'old': 'x', 'new': 'y'}, ('x', 'y'), True, id='exact'),
        pytest.param({'old': 'x', 'new': 'y'}, ('y', 'x'), False, id='reversed'),
        pytest.param({'old': 'x', 'new': 'y'}, ('x', 'z'), False, id='only-old'),
        pytest.param({'old': 'x', 'new': 'y'}, ('z', 'y'), False, id='only-new'),
        pytest.param({'old': ABSENT, 'new': PRESENT}, (ABSENT, 'y'), True, id='added'),
        pytest.param({'old': ABSENT, 'new': PRESENT}, ('x', 'y'), False, id='not-added'),
        pytest.param({'old': PRESENT, 'new': ABSENT}, ('x', ABSENT), True, id='removed'),
        pytest.param({'old': PRESENT, 'new': ABSENT}, ('x', 'y'), False, id='not-removed'),
        pytest.param({'new': 'world'}, ('x', 'world'), True, id='reached'),
        pytest.param({'new': 'world'}, (ABSENT, 'world'), True, id='reached-by-addition'),
        pytest.param({'new': 'world'}, ('world', 'x'), False, id='not-reached'),
        pytest.param({'new': 'world'}, ('world', 'world'), False, id='already-reached'),
        pytest.param({'old': 'world'}, ('world', 'x'), True, id='lost'),
        pytest.param({'old': 'world'}, ('world', ABSENT), True, id='lost-by-removal'),
        pytest.param({'old': 'world'}, ('x', 'world'), False, id='not-lost'),
        pytest.param({'old': 'world'}, ('world', 'world'), False, id='not-yet-lost'),
        pytest.param({'old': 'x', 'new': None}, ('x', 'y'), True, id='new-is-none'),
        pytest.param({'old': None, 'new': 'y'}, ('x', 'y'), True, id='old-is-none'),
        pytest.param({'old': is_world}, ('world', 'x'), True, id='callback-old'),
        pytest.param({'new': is_world}, ('world', 'x'), False, id='callback-new'),
        pytest.param({'new': True}, (False, True), True, id='true'),
        pytest.param({'new': True}, (False, 'true'), False, id='not-text'),
    ],
)
def test_old_and_new_values_are_checked_each(
    registry, called, changing, kind, filters, change, expected
):
    getattr(kopf.on, kind)('kopfexamples', field='spec.field', registry=registry, **filters)(fn)
    states = [
        {**spec(value), 'metadata': {'labels': {'version': version}}}
        for version, value in enumerate(change)
    ]

    ids = called(changing('update', *states))

    assert bool(ids) is expected


def test_callbacks_see_the_old_value_first_and_the_new_one_only_if_needed(
    registry, called, changing
):
    seen = []
    kopf.on.update(
        'kopfexamples',
        field='spec.field',
        registry=registry,
        value=lambda value, **_: seen.append(value) or value == 'stop',
    )(fn)

    called(changing('update', spec('x'), spec('y')))
    called(changing('update', spec('stop'), spec('unseen')))

    assert seen == ['x', 'y', 'stop']


@pytest.mark.guarantee('FLT-018')
def test_updates_of_other_fields_are_handled_if_the_condition_is_in_a_function(
    registry, called, changing
):
    kopf.on.update(
        'kopfexamples', registry=registry, when=lambda spec, **_: spec.get('field') == 'x'
    )(fn)

    assert called(
        changing('update', {'spec': {'field': 'x'}}, {'spec': {'field': 'x', 'other': 1}})
    ) == ['fn']
    assert (
        called(changing('update', {'spec': {'field': 'y'}}, {'spec': {'field': 'y', 'other': 1}}))
        == []
    )


@pytest.mark.guarantee('FLT-017')
def test_named_fields_of_the_status_are_checked(registry, called, changing):
    kopf.on.update('kopfexamples', registry=registry, field='status.done', new=True)(fn)

    assert called(changing('update', {'status': {'done': False}}, {'status': {'done': True}})) == [
        'fn/status.done'
    ]
    assert called(changing('update', {'status': {'done': True}}, {'status': {'done': False}})) == []


@pytest.mark.parametrize('kind', ['create', 'update', 'field', 'event'])
@pytest.mark.parametrize(
    'stanza',
    [
        pytest.param('text', id='string'),
        pytest.param(['field'], id='list'),
        pytest.param(None, id='null'),
    ],
)
def test_fields_inside_of_non_mappings_are_absent(
    registry, called, changing, watching, kind, stanza
):
    decorator = getattr(kopf.on, kind)
    decorator('kopfexamples', id='bare', field='spec.field.sub', registry=registry)(fn)
    decorator('kopfexamples', id='absent', field='spec.field.sub', value=ABSENT, registry=registry)(
        fn
    )
    body = spec(stanza)
    old = None if kind == 'create' else {'spec': {'field': {'sub': 'x'}}}
    cause = (
        watching(body)
        if kind == 'event'
        else changing('create' if kind == 'create' else 'update', old, body)
    )

    ids = called(cause)

    if old is None or kind == 'event':
        assert ids == ['absent/spec.field.sub']
    else:
        assert ids == ['bare/spec.field.sub', 'absent/spec.field.sub']  # it was there before


@pytest.mark.guarantee('KWA-038')
@pytest.mark.parametrize(
    'reason, initial, expected',
    [
        *[
            pytest.param(reason, False, {reason}, id=reason)
            for reason in ('create', 'update', 'delete')
        ],
        *[
            pytest.param(reason, True, {reason, 'resume'}, id=f'{reason}-at-start')
            for reason in ('create', 'update')
        ],
        pytest.param('resume', True, {'resume'}, id='resume'),
        pytest.param('delete', True, {'delete', 'deleted'}, id='delete-at-start'),
        *[
            pytest.param(reason, True, set(), id=f'{reason}-at-start')
            for reason in ('noop', 'free', 'gone')
        ],
        *[pytest.param(reason, False, set(), id=reason) for reason in ('noop', 'free', 'gone')],
    ],
)
def test_handlers_are_called_for_their_reasons(
    registry, called, changing, reason, initial, expected
):
    for kind in ('create', 'update', 'delete', 'resume'):
        getattr(kopf.on, kind)('kopfexamples', id=kind, registry=registry)(fn)
    kopf.on.resume('kopfexamples', id='deleted', deleted=True, registry=registry)(fn)
    expected = expected | {'deleted'} if 'resume' in expected else expected

    ids = called(changing(reason, old={}, new={'spec': {}}, initial=initial))

    assert set(ids) == expected


def test_objects_in_deletion_are_not_resumed_by_whatever_reason(registry, called, changing):
    kopf.on.resume('kopfexamples', id='resume', registry=registry)(fn)
    kopf.on.resume('kopfexamples', id='deleted', deleted=True, registry=registry)(fn)
    body = {'metadata': {'deletionTimestamp': '2020-01-01T00:00:00Z'}}

    assert called(changing('resume', old={}, new={}, body=body, initial=True)) == ['deleted']


@pytest.mark.guarantee('NEW-261')
@pytest.mark.parametrize(
    'reason, old, new, expected',
    [
        pytest.param('create', None, spec('x'), True, id='created-with'),
        pytest.param('create', None, spec(ABSENT), False, id='created-without'),
        pytest.param('create', None, spec(None), False, id='created-with-null'),
        pytest.param('update', spec('x'), spec('y'), True, id='updated'),
        pytest.param('resume', spec('x'), spec('x'), False, id='resumed'),
        pytest.param('delete', spec('x'), spec('x'), False, id='deleted'),
        pytest.param('delete', spec('x'), spec('y'), False, id='deleted-with-change'),
        pytest.param('noop', spec('x'), spec('y'), False, id='noop'),
    ],
)
def test_field_handlers_are_called_for_additions_and_changes(
    registry, called, changing, reason, old, new, expected
):
    kopf.on.field('kopfexamples', field='spec.field', registry=registry)(fn)

    ids = called(changing(reason, old, new, initial=True))

    assert bool(ids) is expected


@pytest.mark.guarantee('NEW-261')
@pytest.mark.parametrize(
    'filters, value, expected',
    [
        pytest.param({'value': 'x'}, 'x', True, id='value'),
        pytest.param({'value': 'x'}, 'y', False, id='other-value'),
        pytest.param({'old': ABSENT, 'new': PRESENT}, 'x', True, id='added'),
        pytest.param({'old': PRESENT}, 'x', False, id='changed'),
        pytest.param({'value': ABSENT}, 'x', True, id='absence-left'),
        pytest.param({'value': ABSENT}, ABSENT, False, id='absent'),
    ],
)
def test_creation_with_a_field_is_its_addition(
    registry, called, changing, filters, value, expected
):
    kopf.on.field('kopfexamples', field='spec.field', registry=registry, **filters)(fn)

    assert bool(called(changing('create', None, spec(value)))) is expected


@pytest.mark.guarantee('FLT-012')
def test_update_handlers_with_fields_are_not_called_for_creations(registry, called, changing):
    kopf.on.update('kopfexamples', field='spec.field', registry=registry)(fn)

    assert called(changing('create', None, spec('x'))) == []


@pytest.mark.guarantee('KWA-012', 'FLT-028', 'FLT-029')
def test_functions_get_the_kwargs_of_the_cause(registry, called, changing):
    seen = {}
    kopf.on.update(
        'kopfexamples',
        registry=registry,
        when=lambda **kwargs: seen.update(when=kwargs) or True,
        labels={'key': lambda value, **kwargs: seen.update(labels=kwargs) or True},
        annotations={'key': lambda value, **kwargs: seen.update(annotations=kwargs) or True},
    )(fn)
    cause = changing('update', spec('x'), spec('y'), indices={'some_index': 'index'})

    called(cause)

    assert seen['when'] == seen['labels'] == seen['annotations'] == cause.kwargs
    assert seen['when']['reason'] == 'update'
    assert seen['when']['some_index'] == 'index'
    assert seen['when']['memo'] is cause.memo


@pytest.mark.guarantee('KWA-012', 'KWA-039')
def test_functions_of_field_handlers_see_only_the_field(registry, called, changing):
    seen = []
    kopf.on.field(
        'kopfexamples',
        field='spec.field',
        registry=registry,
        when=lambda old, new, diff, **_: seen.append((old, new, diff)),
    )(fn)

    called(changing('update', spec({'x': 1}), spec({'x': 2})))

    assert seen == [({'x': 1}, {'x': 2}, (('change', ('x',), 1, 2),))]


@pytest.mark.parametrize('option', ['when', 'labels', 'value'])
def test_errors_of_functions_are_not_hidden(registry, called, watching, option):
    def fail(*_, **__):
        raise ZeroDivisionError

    options = {'labels': {'key': fail}} if option == 'labels' else {option: fail}
    kopf.on.event('kopfexamples', field='spec.field', registry=registry, **options)(fn)

    with pytest.raises(ZeroDivisionError):
        called(watching(spec('x')))


@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({}, True, id='no-filters'),
        pytest.param({'labels': {'key': 'x'}}, True, id='labels-match'),
        pytest.param({'labels': {'key': 'y'}}, False, id='labels-mismatch'),
        pytest.param({'annotations': {'key': 'x'}}, True, id='annotations-match'),
        pytest.param({'annotations': {'key': 'y'}}, False, id='annotations-mismatch'),
        pytest.param({'when': lambda **_: True}, True, id='when-matches'),
        pytest.param({'when': lambda **_: False}, False, id='when-mismatches'),
    ],
)
@pytest.mark.parametrize('kind', ['create', 'update', 'delete', 'resume'])
def test_scope_is_limited_by_metadata_and_functions(registry, changing, kind, options, expected):
    getattr(kopf.on, kind)('kopfexamples', registry=registry, **options)(fn)
    body = {'metadata': {'labels': {'key': 'x'}, 'annotations': {'key': 'x'}}}

    assert registry._changing.is_in_scope(changing('noop', body, body)) is expected


@pytest.mark.parametrize(
    'kind, options',
    [
        pytest.param('field', {}, id='field'),
        pytest.param('field', {'value': 'never'}, id='field-with-value'),
        pytest.param('update', {'new': 'never'}, id='update'),
        pytest.param('create', {'value': 'never'}, id='create'),
    ],
)
def test_scope_is_not_limited_by_fields(registry, called, changing, kind, options):
    getattr(kopf.on, kind)('kopfexamples', field='spec.nonexistent', registry=registry, **options)(
        fn
    )
    cause = changing('create', None, spec('x'))

    assert registry._changing.is_in_scope(cause)
    assert called(cause) == []


def test_scope_is_not_for_objects_of_other_resources(registry, changing):
    kopf.on.field('others', field='spec.field', registry=registry)(fn)

    assert not registry._changing.is_in_scope(changing('create', None, spec('x')))


@pytest.mark.parametrize(
    'kind, options, expected',
    [
        pytest.param('delete', {}, True, id='delete'),
        pytest.param('delete', {'optional': True}, False, id='optional'),
        pytest.param('delete', {'optional': False}, True, id='not-optional'),
        pytest.param('delete', {'labels': {'key': 'x'}}, True, id='labels-match'),
        pytest.param('delete', {'labels': {'key': 'y'}}, False, id='labels-mismatch'),
        pytest.param('delete', {'field': 'spec.field', 'value': 'x'}, True, id='field-matches'),
        pytest.param('delete', {'field': 'spec.field', 'value': 'y'}, False, id='field-mismatches'),
        pytest.param('delete', {'field': 'spec.other'}, False, id='field-absent'),
        pytest.param('delete', {'when': lambda **_: False}, False, id='when-mismatches'),
        pytest.param(
            'delete', {'when': lambda reason, **_: reason == 'delete'}, True, id='when-by-reason'
        ),
        pytest.param('create', {}, False, id='create'),
        pytest.param('update', {}, False, id='update'),
        pytest.param('resume', {'deleted': True}, False, id='resume'),
        pytest.param('field', {'field': 'spec.field'}, False, id='field-handler'),
    ],
)
@pytest.mark.parametrize('reason', ['create', 'update', 'resume', 'noop', 'delete'])
def test_finalizers_are_for_mandatory_handlers_of_matching_objects(
    registry, changing, kind, options, reason, expected
):
    getattr(kopf.on, kind)('kopfexamples', registry=registry, **options)(fn)
    body = {'metadata': {'labels': {'key': 'x'}}, **spec('x')}

    assert registry._changing.requires_finalizer(changing(reason, body, body)) is expected


@pytest.mark.parametrize('kind', ['daemon', 'timer'])
def test_finalizers_are_for_matching_daemons_and_timers(registry, spawning, kind):
    getattr(kopf, kind)('kopfexamples', labels={'key': 'x'}, registry=registry)(fn)

    assert registry._spawning.requires_finalizer(spawning({'metadata': {'labels': {'key': 'x'}}}))
    assert not registry._spawning.requires_finalizer(spawning({}))


@pytest.mark.parametrize(
    'options, operation, subresource, expected',
    [
        pytest.param({}, 'CREATE', None, True, id='any'),
        pytest.param({'operations': ['CREATE', 'UPDATE']}, 'UPDATE', None, True, id='listed'),
        pytest.param({'operations': ['CREATE']}, 'UPDATE', None, False, id='unlisted'),
        pytest.param({}, 'UPDATE', 'status', False, id='main-only'),
        pytest.param({'subresource': 'status'}, 'UPDATE', 'status', True, id='subresource'),
        pytest.param({'subresource': 'status'}, 'UPDATE', 'scale', False, id='other-subresource'),
        pytest.param({'subresource': 'status'}, 'UPDATE', None, False, id='not-main'),
        pytest.param({'subresource': '*'}, 'UPDATE', None, True, id='any-subresource-or-main'),
        pytest.param({'subresource': '*'}, 'UPDATE', 'scale', True, id='any-subresource'),
    ],
)
def test_reviews_are_limited_by_operations_and_subresources(
    registry, called, webhook, options, operation, subresource, expected
):
    kopf.on.validate('kopfexamples', registry=registry, **options)(fn)

    ids = called(webhook({}, operation=operation, subresource=subresource))

    assert bool(ids) is expected


@pytest.mark.guarantee('FND-029')
@pytest.mark.parametrize('reason', ['create', 'delete', 'resume'])
@pytest.mark.parametrize(
    'options, expected',
    [
        pytest.param({'field': 'spec.field'}, True, id='remembered'),
        pytest.param({'field': 'spec.ignored'}, False, id='ignored'),
        pytest.param(
            {'field': 'spec.ignored', 'value': kopf.ABSENT}, True, id='absence-of-ignored'
        ),
    ],
)
def test_fields_are_looked_for_in_what_is_remembered(
    registry, called, changing, reason, options, expected
):
    getattr(kopf.on, reason)('kopfexamples', registry=registry, **options)(fn)
    essence, body = {'spec': {'field': 'x'}}, {'spec': {'field': 'x', 'ignored': 'y'}}

    ids = called(changing(reason, new=essence, body=body, initial=True))

    assert bool(ids) is expected


@pytest.mark.guarantee('FND-029')
def test_fields_of_other_handlers_are_looked_for_in_the_object(registry, called, watching):
    kopf.on.event('kopfexamples', registry=registry, field='spec.ignored')(fn)

    assert called(watching({'spec': {'ignored': 'y'}}))


def test_deletions_are_imagined_with_all_the_rest_as_it_is(changing):
    cause = changing('update', spec('x'), spec('y'), initial=True)

    imagined = causes.as_deletion(cause)

    assert imagined.reason is reasons.Reason.DELETE
    assert (imagined.body, imagined.old, imagined.new) == (cause.body, cause.old, cause.new)
    assert imagined.diff == diffs.diff(cause.old, cause.new)
    assert cause.reason is reasons.Reason.UPDATE
