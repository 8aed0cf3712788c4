"""
Writes over HTTP: versions and generations, the endpoints of the status, conflicts, and patches.
"""

import re

import pytest
from sandbox_http import GROUP

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}
PLAIN = {'apiVersion': f'{GROUP}/v1', 'kind': 'Plain'}


def version_of(body):
    return int(body['metadata']['resourceVersion'])


async def test_created_object_gets_what_only_the_server_sets(api, namespace, configmaps):
    reply = await api.post(
        configmaps,
        {
            'metadata': {
                'name': 'cm',
                'uid': 'mine',
                'creationTimestamp': '2001-01-01T00:00:00Z',
                'deletionGracePeriodSeconds': 7,
                'selfLink': '/mine',
            },
            'data': {'key': 'value'},
        },
    )

    assert reply.code == 201
    meta = reply.body['metadata']
    assert reply.body == {
        'kind': 'ConfigMap',
        'apiVersion': 'v1',
        'metadata': meta,
        'data': {'key': 'value'},
    }
    assert set(meta) == {
        'name',
        'namespace',
        'uid',
        'resourceVersion',
        'creationTimestamp',
        'managedFields',
    }
    assert (meta['name'], meta['namespace']) == ('cm', namespace)
    assert re.fullmatch(
        '[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}', meta['uid']
    )
    assert re.fullmatch(
        '20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z', meta['creationTimestamp']
    )
    assert meta['creationTimestamp'] != '2001-01-01T00:00:00Z'
    assert meta['managedFields'] == [
        {
            'manager': 'api-tests',
            'operation': 'Update',
            'apiVersion': 'v1',
            'time': meta['creationTimestamp'],
            'fieldsType': 'FieldsV1',
            'fieldsV1': {'f:data': {'.': {}, 'f:key': {}}},
        }
    ]


async def test_custom_object_begins_with_the_first_generation_and_no_status(api, things):
    made = await api.make(
        things,
        {
            **THING,
            'metadata': {'name': 'a', 'generation': 7},
            'spec': {'size': 1},
            'status': {'x': 1},
        },
    )

    assert made['metadata']['generation'] == 1
    assert made['spec'] == {'size': 1, 'color': 'grey'}
    assert 'status' not in made


async def test_custom_object_without_the_subresource_keeps_its_status(api, plains):
    made = await api.make(
        plains, {**PLAIN, 'metadata': {'name': 'a'}, 'spec': {'size': 1}, 'status': {'x': 1}}
    )

    assert made['status'] == {'x': 1}


async def test_versions_increase_over_all_resources(api, configmaps, things):
    first = await api.make(configmaps, {'metadata': {'name': 'a'}})
    second = await api.make(things, {**THING, 'metadata': {'name': 'a'}})
    third = await api.make(configmaps, {'metadata': {'name': 'b'}})
    listed = await api.get(configmaps)

    assert version_of(first) < version_of(second) < version_of(third) <= version_of(listed.body)


@pytest.mark.parametrize(
    'resource, body',
    [
        pytest.param('configmaps', {'data': {'key': 'value'}}, id='built-in'),
        pytest.param('things', {**THING, 'spec': {'size': 1}}, id='custom'),
    ],
)
async def test_write_without_changes_makes_no_version(api, paths, resource, body):
    path = paths[resource]
    made = await api.make(path, {**body, 'metadata': {'name': 'a', 'labels': {'x': 'y'}}})

    replies = [
        await api.put(f'{path}/a', made),
        await api.put(
            f'{path}/a',
            {
                **body,
                'metadata': {
                    **made['metadata'],
                    'resourceVersion': made['metadata']['resourceVersion'],
                },
            },
        ),
        await api.merge(f'{path}/a', {'metadata': {'labels': {'x': 'y'}}}),
        await api.merge(f'{path}/a', {}),
        await api.ask(
            'PATCH',
            f'{path}/a',
            [{'op': 'replace', 'path': '/metadata/labels/x', 'value': 'y'}],
            type='application/json-patch+json',
        ),
    ]

    assert [reply.code for reply in replies] == [200] * 5
    assert {reply.body['metadata']['resourceVersion'] for reply in replies} == {
        made['metadata']['resourceVersion']
    }
    assert replies[-1].body == made


@pytest.mark.parametrize(
    'patch, generation',
    [
        pytest.param({'spec': {'size': 2}}, 2, id='spec'),
        pytest.param({'spec': {'size': 1}}, 1, id='same-spec'),
        pytest.param({'metadata': {'labels': {'x': 'y'}}}, 1, id='labels'),
        pytest.param({'metadata': {'annotations': {'x': 'y'}}}, 1, id='annotations'),
        pytest.param({'metadata': {'finalizers': ['example.com/x']}}, 1, id='finalizers'),
        pytest.param({'metadata': {'generation': 9}}, 1, id='generation'),
        pytest.param({'status': {'x': 1}}, 1, id='status'),
    ],
)
async def test_generation_moves_only_with_what_is_wanted(api, things, patch, generation):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    reply = await api.merge(f'{things}/a', patch)

    assert reply.code == 200
    assert reply.body['metadata']['generation'] == generation


async def test_generation_moves_with_the_status_where_it_has_no_endpoint(api, plains):
    await api.make(plains, {**PLAIN, 'metadata': {'name': 'a'}})

    reply = await api.merge(f'{plains}/a', {'status': {'x': 1}})

    assert reply.body['metadata']['generation'] == 2
    assert reply.body['status'] == {'x': 1}
    assert (await api.get(f'{plains}/a/status')).code == 404


async def test_main_endpoint_ignores_the_status(api, things):
    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})
    await api.merge(f'{things}/a/status', {'status': {'x': 1}})

    reply = await api.put(
        f'{things}/a',
        {
            **THING,
            'metadata': {
                'name': 'a',
                'resourceVersion': (await api.get(f'{things}/a')).body['metadata'][
                    'resourceVersion'
                ],
            },
            'spec': {'size': 2},
            'status': {'x': 2},
        },
    )

    assert reply.code == 200
    assert reply.body['spec'] == {'size': 2, 'color': 'grey'}
    assert reply.body['status'] == {'x': 1}
    assert reply.body['metadata']['uid'] == made['metadata']['uid']


async def test_status_endpoint_of_a_custom_object_ignores_the_rest(api, things):
    made = await api.make(
        things, {**THING, 'metadata': {'name': 'a', 'labels': {'x': 'y'}}, 'spec': {'size': 1}}
    )

    reply = await api.put(
        f'{things}/a/status',
        {
            **made,
            'spec': {'size': 2},
            'status': {'x': 1},
            'metadata': {
                **made['metadata'],
                'labels': {'x': 'z'},
                'annotations': {'a': 'b'},
                'finalizers': ['example.com/x'],
            },
        },
    )

    assert reply.code == 200
    assert reply.body['spec'] == {'size': 1, 'color': 'grey'}
    assert reply.body['status'] == {'x': 1}
    assert reply.body['metadata']['labels'] == {'x': 'y'}
    assert not {'annotations', 'finalizers'} & set(reply.body['metadata'])
    assert reply.body['metadata']['generation'] == 1
    assert version_of(reply.body) > version_of(made)


async def test_status_endpoint_of_a_built_in_object_takes_the_metadata_too(api, pods):
    made = await api.make(
        pods,
        {
            'metadata': {'name': 'a', 'labels': {'x': 'y'}},
            'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
        },
    )

    reply = await api.merge(
        f'{pods}/a/status',
        {
            'metadata': {'labels': {'x': 'z'}},
            'spec': {'containers': []},
            'status': {'phase': 'Running'},
        },
    )

    assert reply.code == 200
    assert reply.body['metadata']['labels'] == {'x': 'z'}
    assert reply.body['spec'] == made['spec']
    assert reply.body['status']['phase'] == 'Running'
    assert version_of(reply.body) > version_of(made)


async def test_writers_of_the_status_are_recorded_separately(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})

    reply = await api.merge(f'{things}/a/status', {'status': {'x': 1}}, fieldManager='another')

    managed = reply.body['metadata']['managedFields']
    records = {record.pop('manager'): record for record in managed if record.pop('time')}
    assert records == {
        'api-tests': {
            'operation': 'Update',
            'apiVersion': f'{GROUP}/v1',
            'fieldsType': 'FieldsV1',
            'fieldsV1': {'f:spec': {'.': {}, 'f:color': {}, 'f:size': {}}},
        },
        'another': {
            'operation': 'Update',
            'apiVersion': f'{GROUP}/v1',
            'fieldsType': 'FieldsV1',
            'fieldsV1': {'f:status': {'.': {}, 'f:x': {}}},
            'subresource': 'status',
        },
    }


async def test_generated_names_are_unique(api, configmaps):
    made = [await api.make(configmaps, {'metadata': {'generateName': 'some-'}}) for _ in range(3)]

    names = {body['metadata']['name'] for body in made}
    assert len(names) == 3
    assert all(re.fullmatch('some-[bcdfghjklmnpqrstvwxz2456789]{5}', name) for name in names)
    assert {body['metadata']['generateName'] for body in made} == {'some-'}


async def test_existing_object_is_not_created_again(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.post(configmaps, {'metadata': {'name': 'a'}})

    assert reply.code == 409
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'AlreadyExists',
        'code': 409,
        'message': 'configmaps "a" already exists',
        'details': {'name': 'a', 'kind': 'configmaps'},
    }


async def test_new_object_is_checked_before_it_is_found_to_exist(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    reply = await api.post(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': -1}})

    assert (reply.code, reply.body['reason']) == (422, 'Invalid')


async def test_new_object_cannot_have_a_version(api, things):
    reply = await api.post(things, {**THING, 'metadata': {'name': 'a', 'resourceVersion': '1'}})

    assert reply.code == 500
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'code': 500,
        'message': 'resourceVersion should not be set on objects to be created',
    }


@pytest.mark.parametrize('method', ['PUT', 'PATCH'])
async def test_outdated_write_is_a_conflict(api, things, method):
    made = await api.make(things, {**THING, 'metadata': {'name': 'a'}, 'spec': {'size': 1}})
    await api.merge(f'{things}/a', {'spec': {'size': 2}})

    outdated = {
        **THING,
        'metadata': {'name': 'a', 'resourceVersion': made['metadata']['resourceVersion']},
        'spec': {'size': 3},
    }
    reply = await (
        api.put(f'{things}/a', outdated) if method == 'PUT' else api.merge(f'{things}/a', outdated)
    )

    assert reply.code == 409
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'Conflict',
        'code': 409,
        'message': f'Operation cannot be fulfilled on things.{GROUP} "a": '
        f'the object has been modified; please apply your changes to the latest version and try again',
        'details': {'name': 'a', 'group': GROUP, 'kind': 'things'},
    }


async def test_write_to_another_incarnation_is_a_conflict(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}})

    reply = await api.put(f'{configmaps}/a', {'metadata': {'name': 'a', 'uid': 'another'}})

    actual = (await api.get(f'{configmaps}/a')).body['metadata']['uid']
    assert reply.code == 409
    assert reply.body['message'] == (
        'Operation cannot be fulfilled on configmaps "a": StorageError: invalid object, Code: 4, '
        f'Key: /registry/configmaps/{configmaps.split("/")[4]}/a, ResourceVersion: 0, AdditionalErrorMsg: '
        f'Precondition failed: '
        f'UID in precondition: another, UID in object meta: {actual}'
    )


async def test_built_in_object_is_replaced_unconditionally(api, configmaps):
    made = await api.make(
        configmaps, {'metadata': {'name': 'a', 'labels': {'x': 'y'}}, 'data': {'a': 'b'}}
    )

    reply = await api.put(f'{configmaps}/a', {'metadata': {'name': 'a'}, 'data': {'c': 'd'}})

    assert reply.code == 200
    assert reply.body['data'] == {'c': 'd'}
    assert 'labels' not in reply.body['metadata']
    assert reply.body['metadata']['uid'] == made['metadata']['uid']
    assert reply.body['metadata']['creationTimestamp'] == made['metadata']['creationTimestamp']


async def test_custom_object_is_replaced_only_by_its_version(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    reply = await api.put(f'{things}/a', {**THING, 'metadata': {'name': 'a'}})

    assert reply.code == 422
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'Invalid',
        'code': 422,
        'message': f'things.{GROUP} "a" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for '
        f'an update',
        'details': {
            'name': 'a',
            'group': GROUP,
            'kind': 'things',
            'causes': [
                {
                    'reason': 'FieldValueInvalid',
                    'message': 'Invalid value: 0: must be specified for an update',
                    'field': 'metadata.resourceVersion',
                }
            ],
        },
    }


async def test_immutable_fields_are_kept_or_refused(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}, 'immutable': True, 'data': {'a': 'b'}})

    reply = await api.merge(f'{configmaps}/a', {'data': {'a': 'c'}})

    assert reply.code == 422
    assert reply.body['message'] == (
        'ConfigMap "a" is invalid: data: Forbidden: field is immutable when `immutable` is set'
    )
    assert reply.body['details']['causes'] == [
        {
            'reason': 'FieldValueForbidden',
            'message': 'Forbidden: field is immutable when `immutable` is set',
            'field': 'data',
        }
    ]


async def test_selector_of_a_deployment_is_immutable(api, deployments):
    await api.make(deployments, build_deployment('a'))

    reply = await api.merge(
        f'{deployments}/a',
        {
            'spec': {
                'selector': {'matchLabels': {'app': 'b'}},
                'template': {'metadata': {'labels': {'app': 'b'}}},
            }
        },
    )

    assert reply.code == 422
    assert reply.body['message'] == (
        'Deployment.apps "a" is invalid: spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable'
    )


async def test_generation_of_a_deployment_follows_its_spec(api, deployments):
    made = await api.make(deployments, build_deployment('a'))
    scaled = await api.merge(f'{deployments}/a', {'spec': {'replicas': 3}})
    labelled = await api.merge(f'{deployments}/a', {'metadata': {'labels': {'x': 'y'}}})
    reported = await api.merge(
        f'{deployments}/a/status', {'status': {'observedGeneration': 2, 'replicas': 3}}
    )

    bodies = [made, scaled.body, labelled.body, reported.body]
    assert [body['metadata']['generation'] for body in bodies] == [1, 2, 2, 2]
    assert reported.body['status'] == {'observedGeneration': 2, 'replicas': 3}


async def test_containers_are_merged_by_their_names(api, deployments):
    await api.make(deployments, build_deployment('a'))

    reply = await api.ask(
        'PATCH',
        f'{deployments}/a',
        {
            'spec': {
                'template': {
                    'spec': {
                        'containers': [
                            {'name': 'side', 'image': 'side:1'},
                            {'name': 'main', 'image': 'image:2'},
                        ]
                    }
                }
            }
        },
        type='application/strategic-merge-patch+json',
    )

    containers = reply.body['spec']['template']['spec']['containers']
    assert [(container['name'], container['image']) for container in containers] == [
        ('side', 'side:1'),
        ('main', 'image:2'),
    ]


async def test_custom_objects_have_no_strategic_patches(api, things):
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    reply = await api.ask('PATCH', f'{things}/a', {}, type='application/strategic-merge-patch+json')

    assert reply.code == 415
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'UnsupportedMediaType',
        'code': 415,
        'message': 'the body of the request was in an unknown format - accepted media types include: '
        'application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml',
    }


async def test_failed_test_of_a_json_patch_changes_nothing(api, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}, 'data': {'a': 'b'}})

    reply = await api.ask(
        'PATCH',
        f'{configmaps}/a',
        [
            {'op': 'replace', 'path': '/data/a', 'value': 'c'},
            {'op': 'test', 'path': '/data/a', 'value': 'b'},
        ],
        type='application/json-patch+json',
    )

    assert reply.code == 422
    assert reply.body['reason'] == 'Invalid'
    assert reply.body['message'] == 'the server rejected our request due to an error in our request'
    assert (await api.get(f'{configmaps}/a')).body['data'] == {'a': 'b'}


async def test_absent_object_is_not_patched(api, things):
    reply = await api.merge(f'{things}/a', {'spec': {'size': 1}})

    assert reply.code == 404
    assert reply.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'NotFound',
        'code': 404,
        'message': f'things.{GROUP} "a" not found',
        'details': {'name': 'a', 'group': GROUP, 'kind': 'things'},
    }


async def test_applied_object_is_created_and_then_changed(api, things):
    applied = {**THING, 'metadata': {'name': 'a'}}
    first = await api.apply(f'{things}/a', {**applied, 'spec': {'size': 1}}, fieldManager='one')
    second = await api.apply(f'{things}/a', {**applied, 'spec': {'size': 2}}, fieldManager='one')
    same = await api.apply(f'{things}/a', {**applied, 'spec': {'size': 2}}, fieldManager='one')

    assert [reply.code for reply in (first, second, same)] == [201, 200, 200]
    assert second.body['spec'] == {'size': 2, 'color': 'grey'}
    assert same.body == second.body


async def test_fields_of_others_are_not_applied_without_force(api, things):
    applied = {**THING, 'metadata': {'name': 'a'}}
    await api.apply(f'{things}/a', {**applied, 'spec': {'size': 1}}, fieldManager='one')

    refused = await api.apply(f'{things}/a', {**applied, 'spec': {'size': 2}}, fieldManager='two')
    forced = await api.apply(
        f'{things}/a', {**applied, 'spec': {'size': 2}}, fieldManager='two', force='true'
    )

    assert refused.code == 409
    assert refused.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'Conflict',
        'code': 409,
        'message': 'Apply failed with 1 conflict: conflict with "one": .spec.size',
        'details': {
            'causes': [
                {
                    'reason': 'FieldManagerConflict',
                    'message': 'conflict with "one"',
                    'field': '.spec.size',
                }
            ]
        },
    }
    assert forced.body['spec']['size'] == 2
    assert [record['manager'] for record in forced.body['metadata']['managedFields']] == ['two']


async def test_apply_needs_a_manager(api, things):
    reply = await api.apply(f'{things}/a', THING)

    assert reply.code == 422
    assert reply.body['message'] == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is '
        'required for apply patch'
    )


def build_deployment(name):
    return {
        'metadata': {'name': name},
        'spec': {
            'selector': {'matchLabels': {'app': 'a'}},
            'template': {
                'metadata': {'labels': {'app': 'a'}},
                'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
            },
        },
    }
