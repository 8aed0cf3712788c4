"""
Deletions over HTTP: finalizers, preconditions, grace periods, collections, owners, namespaces.
"""

import pytest
from sandbox_http import GROUP

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}
OPTIONS = {'kind': 'DeleteOptions', 'apiVersion': 'v1'}
FINALIZERS = ['example.com/one', 'example.com/two']


def build_pod(name, **spec):
    return {
        'metadata': {'name': name},
        'spec': {'containers': [{'name': 'main', 'image': 'image:1'}], **spec},
    }


@pytest.mark.parametrize(
    'resource, body, group',
    [
        pytest.param('configmaps', {}, {}, id='built-in'),
        pytest.param('things', THING, {'group': GROUP}, id='custom'),
    ],
)
async def test_object_without_finalizers_is_removed_at_once(api, paths, resource, body, group):
    path = paths[resource]
    made = await api.make(path, {**body, 'metadata': {'name': 'a'}})

    reply = await api.delete(f'{path}/a')

    assert reply.code == 200
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Success',
        'details': {'name': 'a', **group, 'kind': resource, 'uid': made['metadata']['uid']},
    }
    assert (await api.get(f'{path}/a')).code == 404
    assert (await api.delete(f'{path}/a')).code == 404


async def test_removed_pod_is_returned(api, pods):
    await api.make(pods, build_pod('a'))

    reply = await api.delete(f'{pods}/a')

    assert reply.code == 200
    assert reply.body['kind'] == 'Pod'
    assert reply.body['metadata']['name'] == 'a'
    assert reply.body['metadata']['deletionGracePeriodSeconds'] == 0
    assert (await api.get(f'{pods}/a')).code == 404


async def test_object_with_finalizers_is_only_marked(api, things):
    made = await api.make(things, {**THING, 'metadata': {'name': 'a', 'finalizers': FINALIZERS}})

    first = await api.delete(f'{things}/a')
    second = await api.delete(f'{things}/a')

    meta = first.body['metadata']
    assert (first.code, second.code) == (200, 200)
    assert first.body['kind'] == 'Thing'
    assert meta['finalizers'] == FINALIZERS
    assert meta['deletionTimestamp'] >= made['metadata']['creationTimestamp']
    assert meta['deletionGracePeriodSeconds'] == 0
    assert meta['generation'] == 2
    assert int(meta['resourceVersion']) > int(made['metadata']['resourceVersion'])
    assert second.body == first.body
    assert (await api.get(f'{things}/a')).body == first.body


async def test_object_goes_with_its_last_finalizer(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a', 'finalizers': FINALIZERS}})
    marked = await api.delete(f'{things}/a')

    first = await api.merge(f'{things}/a', {'metadata': {'finalizers': FINALIZERS[1:]}})
    still = await api.get(f'{things}/a')
    last = await api.merge(f'{things}/a', {'metadata': {'finalizers': None}})

    assert (first.code, still.code, last.code) == (200, 200, 200)
    assert still.body['metadata']['finalizers'] == FINALIZERS[1:]
    assert (
        last.body['metadata']['deletionTimestamp'] == marked.body['metadata']['deletionTimestamp']
    )
    assert 'finalizers' not in last.body['metadata']
    assert (await api.get(f'{things}/a')).code == 404


async def test_no_finalizers_are_added_to_an_object_being_deleted(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a', 'finalizers': FINALIZERS[:1]}})
    await api.delete(f'{things}/a')

    reply = await api.merge(f'{things}/a', {'metadata': {'finalizers': FINALIZERS}})

    assert reply.code == 422
    assert reply.body['message'] == (
        f'Thing.{GROUP} "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object '
        f'is being '
        f'deleted, found new finalizers []string{{"example.com/two"}}'
    )


async def test_object_being_deleted_can_be_changed_otherwise(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a', 'finalizers': FINALIZERS}})
    marked = await api.delete(f'{things}/a')

    reply = await api.merge(
        f'{things}/a',
        {'metadata': {'labels': {'x': 'y'}, 'deletionTimestamp': None}, 'spec': {'size': 1}},
    )

    assert reply.code == 200
    assert reply.body['metadata']['labels'] == {'x': 'y'}
    assert (
        reply.body['metadata']['deletionTimestamp'] == marked.body['metadata']['deletionTimestamp']
    )
    assert reply.body['metadata']['generation'] == 3


async def test_name_is_taken_while_the_object_is_being_deleted(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a', 'finalizers': FINALIZERS}})
    await api.delete(f'{things}/a')

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}})

    assert reply.code == 409
    assert reply.body['reason'] == 'AlreadyExists'
    assert reply.body['message'] == f'object is being deleted: things.{GROUP} "a" already exists'


async def test_assigned_pod_has_time_to_finish(api, pods):
    await api.make(pods, build_pod('a', nodeName='some-node'))

    marked = await api.delete(f'{pods}/a')
    shorter = await api.delete(f'{pods}/a', gracePeriodSeconds=5)
    longer = await api.delete(f'{pods}/a', gracePeriodSeconds=50)
    removed = await api.delete(f'{pods}/a', {**OPTIONS, 'gracePeriodSeconds': 0})

    seconds = [
        reply.body['metadata']['deletionGracePeriodSeconds']
        for reply in (marked, shorter, longer, removed)
    ]
    assert seconds == [30, 5, 5, 0]
    assert (
        marked.body['metadata']['deletionTimestamp'] > marked.body['metadata']['creationTimestamp']
    )
    assert (await api.get(f'{pods}/a')).code == 404


@pytest.mark.parametrize(
    'preconditions, message',
    [
        pytest.param(
            {'uid': 'another'},
            'the UID in the precondition (another) does not match the UID in record ({uid}). '
            'The object might have been deleted and then recreated',
            id='uid',
        ),
        pytest.param(
            {'resourceVersion': '1'},
            'the ResourceVersion in the precondition (1) does not match the ResourceVersion in '
            'record ({resourceVersion}). The object might have been modified',
            id='version',
        ),
    ],
)
async def test_another_object_than_expected_is_not_deleted(api, configmaps, preconditions, message):
    made = await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.delete(f'{configmaps}/a', {**OPTIONS, 'preconditions': preconditions})

    assert reply.code == 409
    assert reply.body['reason'] == 'Conflict'
    assert reply.body['message'] == (
        f'Operation cannot be fulfilled on ConfigMap "a": {message.format(**made["metadata"])}'
    )
    assert (await api.get(f'{configmaps}/a')).body == made


async def test_expected_object_is_deleted(api, configmaps):
    made = await api.make(configmaps, {'metadata': {'name': 'a'}})
    expected = {key: made['metadata'][key] for key in ('uid', 'resourceVersion')}

    reply = await api.delete(f'{configmaps}/a', {**OPTIONS, 'preconditions': expected})

    assert reply.code == 200


@pytest.mark.parametrize(
    'options, message',
    [
        pytest.param(
            {'propagationPolicy': 'Some'},
            'propagationPolicy: Unsupported value: "Some": supported values: "Foreground", "Background", '
            '"Orphan", "nil"',
            id='policy',
        ),
        pytest.param(
            {'propagationPolicy': 'Orphan', 'orphanDependents': True},
            'propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both '
            'set',
            id='both',
        ),
        pytest.param(
            {'dryRun': ['Some']},
            'dryRun: Unsupported value: ["Some"]: supported values: "All"',
            id='dry-run',
        ),
    ],
)
async def test_wrong_options_are_refused(api, configmaps, options, message):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.delete(f'{configmaps}/a', {**OPTIONS, **options})

    assert reply.code == 422
    assert reply.body['message'] == f'DeleteOptions.meta.k8s.io "" is invalid: {message}'


async def test_collection_is_deleted_by_selectors(api, things):
    for name, labels in (('a', {'x': '1'}), ('b', {'x': '2'}), ('c', {'x': '1'})):
        await api.make(things, {**THING, 'metadata': {'name': name, 'labels': labels}})
    await api.merge(f'{things}/c', {'metadata': {'finalizers': FINALIZERS}})

    reply = await api.delete(things, labelSelector='x=1')

    assert reply.code == 200
    assert reply.body['kind'] == 'ThingList'
    assert [item['metadata']['name'] for item in reply.body['items']] == ['a', 'c']
    assert await api.names(things) == ['b', 'c']
    assert (await api.get(f'{things}/c')).body['metadata']['deletionTimestamp']


async def test_collection_of_all_namespaces_is_not_deleted(api):
    custom = await api.delete(f'/apis/{GROUP}/v1/things')
    reply = await api.delete('/api/v1/configmaps')

    assert (custom.code, custom.body) == (404, b'404 page not found\n')

    assert reply.code == 405
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'MethodNotAllowed',
        'code': 405,
        'message': 'the server does not allow this method on the requested resource',
        'details': {},
    }


async def test_foreground_deletion_marks_the_object(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a', 'finalizers': FINALIZERS}})

    reply = await api.delete(f'{things}/a', propagationPolicy='Foreground')

    assert reply.body['metadata']['finalizers'] == [*FINALIZERS, 'foregroundDeletion']


async def test_options_of_deletions_are_decoded(api, configmaps):
    await api.post(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.delete(f'{configmaps}/a', {'dryRun': 'All'})

    assert reply.code == 400
    assert reply.body['message'] == (
        'json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type []string'
    )


async def test_query_of_deletions_is_ignored_if_there_is_a_body(api, configmaps):
    await api.post(configmaps, {'metadata': {'name': 'a'}})

    await api.delete(f'{configmaps}/a?dryRun=All', {'dryRun': []})

    assert (await api.get(f'{configmaps}/a')).code == 404


async def test_bodies_of_deletions_must_be_their_options(api, configmaps):
    reply = await api.delete(f'{configmaps}/a', {'kind': 'ConfigMap', 'apiVersion': 'v1'})

    assert reply.code == 400
    assert reply.body['message'].startswith('no kind "ConfigMap" is registered for version "v1"')
