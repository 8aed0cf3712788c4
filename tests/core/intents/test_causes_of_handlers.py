"""
Causes: what handlers are told about the reasons of their calls.
"""

import logging

import pytest

import kopf
from kopf._core.intents import causes, stoppers

COMMON = {'logger', 'memo'}
OBJECT = COMMON | {
    'resource',
    'body',
    'spec',
    'meta',
    'status',
    'labels',
    'annotations',
    'name',
    'uid',
    'namespace',
    'patch',
}
BODY = {
    'metadata': {
        'name': 'n1',
        'namespace': 'ns1',
        'uid': 'u1',
        'labels': {'l': '1'},
        'annotations': {'a': '1'},
    },
    'spec': {'field': 'x'},
    'status': {'done': True},
}


def fn(**_):
    pass


@pytest.mark.guarantee('KWA-004', 'KWA-006', 'NEW-049')
def test_activities_know_the_operator():
    settings, memo, logger = kopf.OperatorSettings(), kopf.Memo(), logging.getLogger()
    cause = causes.ActivityCause(
        logger=logger,
        memo=memo,
        settings=settings,
        activity=causes.Activity.STARTUP,
        indices={'index': 1},
    )

    assert cause.kwargs == {
        'logger': logger,
        'memo': memo,
        'settings': settings,
        'activity': 'startup',
        'index': 1,
    }


@pytest.mark.guarantee(
    'KWA-005', 'KWA-008', 'KWA-009', 'KWA-010', 'KWA-011', 'KWA-004', 'NEW-046', 'NEW-047'
)
@pytest.mark.parametrize(
    'kind, specific',
    [
        pytest.param('watching', {'event', 'type'}, id='watching'),
        pytest.param('indexing', set(), id='indexing'),
        pytest.param('spawning', {'stopped'}, id='spawning'),
        pytest.param('changing', {'reason', 'old', 'new', 'diff'}, id='changing'),
        pytest.param(
            'webhook',
            {
                'dryrun',
                'operation',
                'subresource',
                'warnings',
                'userinfo',
                'headers',
                'sslpeer',
                'old',
                'new',
                'diff',
            },
            id='webhook',
        ),
    ],
)
def test_handlers_of_objects_know_the_objects(request, kind, specific):
    cause = request.getfixturevalue(kind)(body=BODY)

    kwargs = cause.kwargs

    assert kwargs.keys() == OBJECT | specific
    assert kwargs['body'] == BODY
    assert kwargs['spec'] == {'field': 'x'}
    assert kwargs['status'] == {'done': True}
    assert kwargs['meta'] == BODY['metadata']
    assert kwargs['labels'] == {'l': '1'}
    assert kwargs['annotations'] == {'a': '1'}
    assert (kwargs['name'], kwargs['namespace'], kwargs['uid']) == ('n1', 'ns1', 'u1')
    assert kwargs['patch'] is cause.patch
    assert kwargs['memo'] is cause.memo
    assert kwargs['logger'] is cause.logger
    assert kwargs['resource'] is cause.resource


@pytest.mark.parametrize('kind', ['watching', 'indexing', 'spawning', 'changing', 'webhook'])
def test_public_types_are_those_of_the_arguments(request, kind):
    kwargs = request.getfixturevalue(kind)(body=BODY).kwargs

    assert isinstance(kwargs['body'], kopf.Body)
    assert isinstance(kwargs['spec'], kopf.Spec)
    assert isinstance(kwargs['meta'], kopf.Meta)
    assert isinstance(kwargs['status'], kopf.Status)
    assert isinstance(kwargs['patch'], kopf.Patch)
    assert isinstance(kwargs['resource'], kopf.Resource)


@pytest.mark.guarantee('KWA-007')
@pytest.mark.parametrize('kind', ['watching', 'indexing', 'spawning', 'changing', 'webhook'])
def test_indices_win_over_other_arguments(request, kind):
    cause = request.getfixturevalue(kind)(
        body=BODY, indices={'pods': 'pods-index', 'spec': 'spec-index'}
    )

    assert cause.kwargs['pods'] == 'pods-index'
    assert cause.kwargs['spec'] == 'spec-index'


@pytest.mark.guarantee('KWA-037')
def test_events_are_raw(watching):
    event = {'type': 'MODIFIED', 'object': BODY}

    kwargs = watching(body=BODY, event=event).kwargs

    assert kwargs['event'] is event
    assert kwargs['type'] == 'MODIFIED'


@pytest.mark.guarantee('KWA-039', 'KWA-009')
def test_whole_objects_are_compared_by_default(registry, changing):
    kopf.on.update('kopfexamples', registry=registry)(fn)
    [handler] = registry._changing
    old, new = {'spec': {'field': 'x'}}, {'spec': {'field': 'y'}}
    cause = changing('update', old, new)

    kwargs = {**cause.kwargs, **handler.adjust(cause)}

    assert (kwargs['old'], kwargs['new']) == (old, new)
    assert kwargs['diff'] == (('change', ('spec', 'field'), 'x', 'y'),)
    assert kwargs['reason'] is kopf.Reason.UPDATE


@pytest.mark.guarantee('KWA-039', 'HND-045', 'HND-047')
@pytest.mark.parametrize('kind', ['update', 'field', 'create', 'delete', 'resume'])
def test_handlers_of_fields_see_only_the_fields(registry, changing, kind):
    getattr(kopf.on, kind)('kopfexamples', field='metadata.labels', registry=registry)(fn)
    [handler] = registry._changing
    old = {'metadata': {'labels': {'label2': 'old'}}, 'spec': {'field': 'x'}}
    new = {'metadata': {'labels': {'label2': 'old', 'label1': 'new-value'}}, 'spec': {'field': 'y'}}

    adjusted = handler.adjust(changing(body=new, old=old, new=new))

    assert adjusted == {
        'old': {'label2': 'old'},
        'new': {'label2': 'old', 'label1': 'new-value'},
        'diff': (('add', ('label1',), None, 'new-value'),),
    }


@pytest.mark.guarantee('NEW-261')
def test_handlers_of_fields_see_additions_in_new_objects(registry, changing):
    kopf.on.field('kopfexamples', field='spec.field', registry=registry)(fn)
    [handler] = registry._changing

    adjusted = handler.adjust(changing('create', None, {'spec': {'field': 'x'}}))

    assert adjusted == {'old': None, 'new': 'x', 'diff': (('add', (), None, 'x'),)}


@pytest.mark.parametrize(
    'kind, build', [('event', 'watching'), ('index', 'indexing'), ('daemon', 'spawning')]
)
def test_handlers_of_fields_see_no_changes_where_there_are_none(request, registry, kind, build):
    getattr(kopf.on, kind)('kopfexamples', field='spec.field', registry=registry)(fn)
    [handler] = [*registry._watching, *registry._indexing, *registry._spawning]

    assert handler.adjust(request.getfixturevalue(build)(body=BODY)) == {}


@pytest.mark.guarantee('KWA-010', 'NEW-047')
def test_daemons_get_their_own_flags(spawning):
    flag = stoppers.AsyncDaemonStopped(stoppers.DaemonStopper())

    assert spawning(stopped=flag).kwargs['stopped'] is flag
    assert not spawning().kwargs['stopped']


@pytest.mark.guarantee('NEW-045')
def test_details_of_reviews_are_empty_unless_known(webhook):
    kwargs = webhook().kwargs

    assert (kwargs['headers'], kwargs['sslpeer'], kwargs['warnings']) == ({}, {}, [])
    assert (kwargs['operation'], kwargs['subresource']) == (None, None)


@pytest.mark.guarantee('HND-026', 'NEW-050', 'WLD-015')
@pytest.mark.parametrize(
    'reason, value',
    [
        (kopf.Reason.CREATE, 'create'),
        (kopf.Reason.UPDATE, 'update'),
        (kopf.Reason.DELETE, 'delete'),
        (kopf.Reason.RESUME, 'resume'),
        (kopf.Reason.NOOP, 'noop'),
        (kopf.Reason.FREE, 'free'),
        (kopf.Reason.GONE, 'gone'),
    ],
)
def test_reasons_are_strings(reason, value):
    assert reason == value
    assert reason.value == value
    assert reason.lower() == value
    assert f'{reason}' == str(reason) == value
    assert isinstance(reason, str)


@pytest.mark.guarantee('HND-026')
def test_all_reasons_are_listed():
    assert [reason.name for reason in kopf.Reason] == [
        'CREATE',
        'UPDATE',
        'DELETE',
        'RESUME',
        'NOOP',
        'FREE',
        'GONE',
    ]
