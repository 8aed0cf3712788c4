"""
The official synchronous client: ``kubernetes``.
"""

import datetime
import json
import textwrap

import kubernetes
import pytest
from kubernetes import dynamic

WIDGETS = ('clients.kopf.dev', 'v1', 'default', 'widgets')
MERGE = 'application/merge-patch+json'
JSON = 'application/json-patch+json'


@pytest.fixture
def client(sandbox):
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(
        config_file=str(sandbox.kubeconfig), client_configuration=configuration
    )
    with kubernetes.client.ApiClient(configuration) as client:
        yield client
        client.rest_client.pool_manager.clear()  # it does not close its connections by itself


@pytest.fixture
def core(client):
    return kubernetes.client.CoreV1Api(client)


@pytest.fixture
def apps(client):
    return kubernetes.client.AppsV1Api(client)


@pytest.fixture
def objects(client):
    return kubernetes.client.CustomObjectsApi(client)


@pytest.fixture
def cluster(client, tmp_path):
    return dynamic.DynamicClient(client, cache_file=str(tmp_path / 'discovery.json'))


def build_widget(name, **fields):
    return {
        'apiVersion': 'clients.kopf.dev/v1',
        'kind': 'Widget',
        'metadata': {'name': name},
        **fields,
    }


def build_deployment(name):
    return {
        'apiVersion': 'apps/v1',
        'kind': 'Deployment',
        'metadata': {'name': name},
        'spec': {
            'selector': {'matchLabels': {'app': name}},
            'template': {
                'metadata': {'labels': {'app': name}},
                'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
            },
        },
    }


def refusal_of(error):
    """The essence of an error as the client exposes it."""
    body = json.loads(error.value.body)
    return error.value.status, body['reason'], body['message']


def test_objects_are_created_and_read_as_models(core):
    created = core.create_namespaced_config_map(
        'default',
        kubernetes.client.V1ConfigMap(
            metadata=kubernetes.client.V1ObjectMeta(name='cm', labels={'x': 'y'}),
            data={'key': 'value'},
        ),
    )
    core.create_namespaced_secret(
        'default', {'metadata': {'name': 'secret'}, 'stringData': {'password': 'qwerty'}}
    )
    core.create_namespaced_pod(
        'default',
        {
            'metadata': {'name': 'pod'},
            'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
        },
    )
    core.create_namespace({'metadata': {'name': 'space'}})

    assert core.read_namespaced_config_map('cm', 'default').data == {'key': 'value'}
    assert created.metadata.uid and isinstance(
        created.metadata.creation_timestamp, datetime.datetime
    )
    assert core.read_namespaced_secret('secret', 'default').data == {'password': 'cXdlcnR5'}
    assert core.read_namespaced_pod('pod', 'default').status.phase == 'Pending'
    assert core.read_namespace('space').status.phase == 'Active'
    everywhere = core.list_config_map_for_all_namespaces(label_selector='x=y')
    assert [item.metadata.name for item in everywhere.items] == ['cm']


def test_names_are_generated(core):
    made = core.create_namespaced_config_map('default', {'metadata': {'generateName': 'some-'}})

    assert made.metadata.name.startswith('some-') and len(made.metadata.name) == 10


def test_lists_come_in_pages(core):
    for number in range(7):
        core.create_namespaced_config_map('default', {'metadata': {'name': f'cm-{number}'}})

    pages, token = [], None
    while token is None or token:
        page = core.list_namespaced_config_map('default', limit=3, _continue=token)
        pages.append([item.metadata.name for item in page.items])
        token = page.metadata._continue or ''

    assert pages == [
        ['cm-0', 'cm-1', 'cm-2'],
        ['cm-3', 'cm-4', 'cm-5'],
        ['cm-6', 'kube-root-ca.crt'],
    ]


def test_custom_objects_come_in_pages(objects):
    for number in range(5):
        objects.create_namespaced_custom_object(*WIDGETS, build_widget(f'w-{number}'))

    first = objects.list_namespaced_custom_object(*WIDGETS, limit=3)
    last = objects.list_namespaced_custom_object(
        *WIDGETS, limit=3, _continue=first['metadata']['continue']
    )

    assert [item['metadata']['name'] for item in (*first['items'], *last['items'])] == [
        'w-0',
        'w-1',
        'w-2',
        'w-3',
        'w-4',
    ]
    assert first['metadata']['remainingItemCount'] == 2


def test_lists_are_selected_by_labels_and_fields(core):
    for name, color in (('a', 'red'), ('b', 'blue'), ('c', 'red')):
        core.create_namespaced_config_map(
            'default', {'metadata': {'name': name, 'labels': {'color': color}}}
        )

    reds = core.list_namespaced_config_map('default', label_selector='color in (red, green)')
    one = core.list_namespaced_config_map('default', field_selector='metadata.name=b')

    assert [item.metadata.name for item in reds.items] == ['a', 'c']
    assert [item.metadata.name for item in one.items] == ['b']


def test_objects_are_patched_in_all_ways(core, apps, objects):
    core.create_namespaced_config_map(
        'default', {'metadata': {'name': 'cm'}, 'data': {'a': '1', 'b': '2'}}
    )
    apps.create_namespaced_deployment('default', build_deployment('web'))
    objects.create_namespaced_custom_object(*WIDGETS, build_widget('w', spec={'size': 1}))

    strategic = apps.patch_namespaced_deployment(
        'web',
        'default',
        {'spec': {'template': {'spec': {'containers': [{'name': 'side', 'image': 'side:1'}]}}}},
    )
    by_json = core.patch_namespaced_config_map(
        'cm', 'default', [{'op': 'remove', 'path': '/data/a'}]
    )
    merged = core.patch_namespaced_config_map(
        'cm', 'default', {'data': {'b': None, 'c': '3'}}, _content_type=MERGE
    )
    custom = objects.patch_namespaced_custom_object(
        *WIDGETS, 'w', {'spec': {'size': 2}}, _content_type=MERGE
    )
    steps = [{'op': 'add', 'path': '/spec/replicas', 'value': 3}]
    custom_by_json = objects.patch_namespaced_custom_object(
        *WIDGETS, 'w', steps, _content_type=JSON
    )

    assert [container.name for container in strategic.spec.template.spec.containers] == [
        'side',
        'main',
    ]
    assert by_json.data == {'b': '2'}
    assert merged.data == {'c': '3'}
    assert custom['spec'] == {'size': 2}
    assert custom_by_json['spec'] == {'size': 2, 'replicas': 3}
    assert custom_by_json['metadata']['generation'] == 3


def test_status_is_written_apart_from_the_spec(apps, objects):
    apps.create_namespaced_deployment('default', build_deployment('web'))
    made = objects.create_namespaced_custom_object(*WIDGETS, build_widget('w', spec={'size': 1}))

    deployment = apps.patch_namespaced_deployment_status(
        'web', 'default', {'status': {'replicas': 1, 'readyReplicas': 1}}
    )
    changed = {**made, 'spec': {'size': 9}, 'status': {'ready': True}}
    replaced = objects.replace_namespaced_custom_object_status(*WIDGETS, 'w', changed)
    addition = {'status': {'count': 1}}
    patched = objects.patch_namespaced_custom_object_status(
        *WIDGETS, 'w', addition, _content_type=MERGE
    )

    assert (
        deployment.status.replicas,
        deployment.status.ready_replicas,
        deployment.metadata.generation,
    ) == (1, 1, 1)
    assert (replaced['spec'], replaced['status']) == ({'size': 1}, {'ready': True})
    assert patched['status'] == {'ready': True, 'count': 1}
    assert patched['metadata']['generation'] == 1


def test_scale_is_read_and_written(apps, objects):
    apps.create_namespaced_deployment('default', build_deployment('web'))
    objects.create_namespaced_custom_object(*WIDGETS, build_widget('w', spec={'replicas': 1}))

    scale = apps.patch_namespaced_deployment_scale('web', 'default', {'spec': {'replicas': 4}})
    custom = objects.patch_namespaced_custom_object_scale(
        *WIDGETS, 'w', {'spec': {'replicas': 5}}, _content_type=MERGE
    )

    assert (
        scale.spec.replicas == apps.read_namespaced_deployment('web', 'default').spec.replicas == 4
    )
    assert custom['spec'] == {'replicas': 5}
    assert objects.get_namespaced_custom_object(*WIDGETS, 'w')['spec'] == {'replicas': 5}


def test_outdated_updates_are_conflicts(core):
    made = core.create_namespaced_config_map(
        'default', {'metadata': {'name': 'cm'}, 'data': {'a': '1'}}
    )
    made.data = {'a': '2'}
    core.replace_namespaced_config_map('cm', 'default', made)
    made.data = {'a': '3'}

    with pytest.raises(kubernetes.client.ApiException) as error:
        core.replace_namespaced_config_map('cm', 'default', made)

    assert refusal_of(error) == (
        409,
        'Conflict',
        'Operation cannot be fulfilled on configmaps "cm": the object has been modified; '
        'please apply your changes to the latest version and try again',
    )
    assert error.value.reason == 'Conflict'


def test_refusals_are_told_with_their_bodies(core, objects):
    core.create_namespaced_config_map('default', {'metadata': {'name': 'cm'}})

    with pytest.raises(kubernetes.client.ApiException) as absent:
        core.read_namespaced_config_map('absent', 'default')
    with pytest.raises(kubernetes.client.ApiException) as existing:
        core.create_namespaced_config_map('default', {'metadata': {'name': 'cm'}})
    with pytest.raises(kubernetes.client.ApiException) as invalid:
        objects.create_namespaced_custom_object(*WIDGETS, build_widget('w', spec={'size': -1}))

    assert refusal_of(absent) == (404, 'NotFound', 'configmaps "absent" not found')
    assert refusal_of(existing) == (409, 'AlreadyExists', 'configmaps "cm" already exists')
    assert refusal_of(invalid) == (
        422,
        'Invalid',
        'Widget.clients.kopf.dev "w" is invalid: spec.size: Invalid value: -1: '
        'spec.size in body should be greater than or equal to 0',
    )
    assert json.loads(invalid.value.body)['details']['causes'][0]['field'] == 'spec.size'


def test_deleted_objects_wait_for_their_finalizers(core, objects):
    objects.create_namespaced_custom_object(
        *WIDGETS, {**build_widget('w'), 'metadata': {'name': 'w', 'finalizers': ['example.com/x']}}
    )

    marked = objects.delete_namespaced_custom_object(*WIDGETS, 'w')
    released = objects.patch_namespaced_custom_object(
        *WIDGETS, 'w', {'metadata': {'finalizers': []}}, _content_type=MERGE
    )

    assert marked['metadata']['deletionTimestamp'] == released['metadata']['deletionTimestamp']
    with pytest.raises(kubernetes.client.ApiException) as error:
        objects.get_namespaced_custom_object(*WIDGETS, 'w')
    assert error.value.status == 404


@pytest.mark.parametrize(
    'policy, survivors',
    [
        pytest.param('Background', [], id='background'),
        pytest.param('Foreground', [], id='foreground'),
        pytest.param('Orphan', ['child'], id='orphan'),
    ],
)
def test_dependents_share_the_fate_that_was_chosen(sandbox, core, objects, policy, survivors):
    owner = objects.create_namespaced_custom_object(*WIDGETS, build_widget('w'))
    core.create_namespaced_config_map(
        'default',
        {
            'metadata': {
                'name': 'child',
                'ownerReferences': [
                    {
                        'apiVersion': 'clients.kopf.dev/v1',
                        'kind': 'Widget',
                        'name': 'w',
                        'uid': owner['metadata']['uid'],
                        'blockOwnerDeletion': True,
                    }
                ],
            }
        },
    )

    objects.delete_namespaced_custom_object(*WIDGETS, 'w', propagation_policy=policy)
    sandbox.wait('widgets', 'w', lambda body: body is None)
    if not survivors:
        sandbox.wait('configmaps', 'child', lambda body: body is None)

    assert [item.metadata.name for item in core.list_namespaced_config_map('default').items] == [
        *survivors,
        'kube-root-ca.crt',
    ]


def test_collections_are_deleted(core):
    for name, color in (('a', 'red'), ('b', 'blue')):
        core.create_namespaced_config_map(
            'default', {'metadata': {'name': name, 'labels': {'color': color}}}
        )

    core.delete_collection_namespaced_config_map('default', label_selector='color=red')

    assert [item.metadata.name for item in core.list_namespaced_config_map('default').items] == [
        'b',
        'kube-root-ca.crt',
    ]


def test_watch_replays_the_changes_from_a_version(core):
    version = core.list_namespaced_config_map('default').metadata.resource_version
    core.create_namespaced_config_map('default', {'metadata': {'name': 'a'}})
    core.patch_namespaced_config_map('a', 'default', {'data': {'x': 'y'}})
    core.delete_namespaced_config_map('a', 'default')

    watch = kubernetes.watch.Watch()
    events = list(
        watch.stream(
            core.list_namespaced_config_map, 'default', resource_version=version, timeout_seconds=1
        )
    )

    assert [(event['type'], event['object'].metadata.name) for event in events] == [
        ('ADDED', 'a'),
        ('MODIFIED', 'a'),
        ('DELETED', 'a'),
    ]
    versions = [int(event['object'].metadata.resource_version) for event in events]
    assert int(version) < versions[0] < versions[1] < versions[2]


def test_watch_of_custom_objects_goes_on_until_it_is_stopped(objects):
    objects.create_namespaced_custom_object(*WIDGETS, build_widget('a'))
    watch, seen = kubernetes.watch.Watch(), []

    for event in watch.stream(objects.list_namespaced_custom_object, *WIDGETS, timeout_seconds=10):
        seen.append((event['type'], event['object']['metadata']['name']))
        if len(seen) == 1:
            objects.create_namespaced_custom_object(*WIDGETS, build_widget('b'))
        else:
            watch.stop()

    assert seen == [('ADDED', 'a'), ('ADDED', 'b')]


def test_watch_from_a_compacted_version_is_expired(sandbox, core):
    version = core.list_namespaced_config_map('default').metadata.resource_version
    core.create_namespaced_config_map('default', {'metadata': {'name': 'a'}})
    sandbox.compact()

    with pytest.raises(kubernetes.client.ApiException) as error:
        list(
            kubernetes.watch.Watch().stream(
                core.list_namespaced_config_map,
                'default',
                resource_version=version,
                timeout_seconds=5,
            )
        )

    assert error.value.status == 410
    assert error.value.reason.startswith(f'Expired: too old resource version: {version} (')


def test_manifests_are_created_from_files(client, core, apps, objects, tmp_path):
    path = tmp_path / 'manifests.yaml'
    path.write_text(
        textwrap.dedent("""
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: cm}
        data: {key: value}
        ---
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: main, image: "image:1"}]}
    """)
    )

    kubernetes.utils.create_from_yaml(client, str(path))

    assert core.read_namespaced_config_map('cm', 'default').data == {'key': 'value'}
    assert apps.read_namespaced_deployment('web', 'default').spec.replicas == 1
    with pytest.raises(kubernetes.utils.FailToCreateError, match='already exists'):
        kubernetes.utils.create_from_yaml(client, str(path))


def test_dynamic_client_discovers_the_resources(cluster):
    widgets = cluster.resources.get(api_version='clients.kopf.dev/v1', kind='Widget')
    configmaps = cluster.resources.get(api_version='v1', kind='ConfigMap')

    widgets.create(body=build_widget('w', spec={'size': 1}), namespace='default')
    configmaps.create(body={'metadata': {'name': 'cm'}, 'data': {'a': 'b'}}, namespace='default')

    assert widgets.get(name='w', namespace='default').spec.size == 1
    assert [item.metadata.name for item in configmaps.get(namespace='default').items] == [
        'cm',
        'kube-root-ca.crt',
    ]
    assert (
        widgets.patch(
            body={'spec': {'size': 2}}, name='w', namespace='default', content_type=MERGE
        ).spec.size
        == 2
    )
    assert (
        widgets.status.patch(
            body={'status': {'ok': True}}, name='w', namespace='default', content_type=MERGE
        ).status.ok
        is True
    )
    assert (
        cluster.resources.get(short_names=['wd'], api_version='clients.kopf.dev/v1').kind
        == 'Widget'
    )


def test_dynamic_client_deletes_and_watches(cluster):
    widgets = cluster.resources.get(api_version='clients.kopf.dev/v1', kind='Widget')
    version = widgets.get(namespace='default').metadata.resourceVersion
    widgets.create(body=build_widget('w'), namespace='default')
    widgets.delete(name='w', namespace='default', body={})

    events = list(widgets.watch(namespace='default', resource_version=version, timeout=1))

    assert [(event['type'], event['object'].metadata.name) for event in events] == [
        ('ADDED', 'w'),
        ('DELETED', 'w'),
    ]
    with pytest.raises(dynamic.exceptions.NotFoundError):
        widgets.get(name='w', namespace='default')


def test_dynamic_client_applies_on_the_server_side(cluster):
    widgets = cluster.resources.get(api_version='clients.kopf.dev/v1', kind='Widget')

    made = widgets.server_side_apply(
        body=build_widget('w', spec={'size': 1}), namespace='default', field_manager='one'
    )
    with pytest.raises(dynamic.exceptions.ConflictError) as error:
        widgets.server_side_apply(
            body=build_widget('w', spec={'size': 2}), namespace='default', field_manager='two'
        )
    forced = widgets.server_side_apply(
        body=build_widget('w', spec={'size': 2}),
        namespace='default',
        field_manager='two',
        force_conflicts=True,
    )

    assert made.spec.size == 1
    assert (
        json.loads(error.value.body)['message']
        == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    )
    assert forced.spec.size == 2
    assert [entry.manager for entry in forced.metadata.managedFields] == ['two']


def test_leases_are_held_by_leaders(client):
    leases = kubernetes.client.CoordinationV1Api(client)
    now = datetime.datetime.now(tz=datetime.UTC)
    made = leases.create_namespaced_lease(
        'default',
        {
            'metadata': {'name': 'leader'},
            'spec': {
                'holderIdentity': 'one',
                'leaseDurationSeconds': 15,
                'acquireTime': now.isoformat(timespec='microseconds'),
                'renewTime': now.isoformat(timespec='microseconds'),
            },
        },
    )
    stale = leases.read_namespaced_lease('leader', 'default')

    made.spec.holder_identity = 'two'
    made.spec.lease_transitions = 1
    taken = leases.replace_namespaced_lease('leader', 'default', made)
    stale.spec.holder_identity = 'three'
    with pytest.raises(kubernetes.client.ApiException) as error:
        leases.replace_namespaced_lease('leader', 'default', stale)

    assert (taken.spec.holder_identity, taken.spec.lease_transitions) == ('two', 1)
    assert taken.spec.renew_time == now
    assert error.value.status == 409


def test_access_is_reviewed(client):
    review = kubernetes.client.AuthorizationV1Api(client).create_self_subject_access_review(
        {
            'spec': {
                'resourceAttributes': {'verb': 'create', 'resource': 'pods', 'namespace': 'default'}
            }
        }
    )

    assert review.status.allowed is True


def test_definitions_are_read_as_models(client):
    crds = kubernetes.client.ApiextensionsV1Api(client)

    crd = crds.read_custom_resource_definition('widgets.clients.kopf.dev')

    assert [(condition.type, condition.status) for condition in crd.status.conditions] == [
        ('NamesAccepted', 'True'),
        ('Established', 'True'),
    ]
    assert crd.status.accepted_names.kind == 'Widget'
    assert kubernetes.client.VersionApi(client).get_code().minor == '35'
