"""
The asynchronous client: ``kubernetes_asyncio``.
"""

import json

import kubernetes_asyncio
import pytest
from kubernetes_asyncio import client as models
from kubernetes_asyncio import dynamic

WIDGETS = ('clients.kopf.dev', 'v1', 'default', 'widgets')
MERGE = 'application/merge-patch+json'
JSON = 'application/json-patch+json'


@pytest.fixture
async def client(sandbox):
    configuration = models.Configuration()
    await kubernetes_asyncio.config.load_kube_config(
        config_file=str(sandbox.kubeconfig), client_configuration=configuration
    )
    async with models.ApiClient(configuration) as client:
        yield client


@pytest.fixture
async def core(client):
    return models.CoreV1Api(client)


@pytest.fixture
async def apps(client):
    return models.AppsV1Api(client)


@pytest.fixture
async def objects(client):
    return models.CustomObjectsApi(client)


def build_widget(name, **fields):
    return {
        'apiVersion': 'clients.kopf.dev/v1',
        'kind': 'Widget',
        'metadata': {'name': name},
        **fields,
    }


def refusal_of(error):
    """The essence of an error as the client exposes it."""
    body = json.loads(error.value.body)
    return error.value.status, body['reason'], body['message']


async def test_objects_are_created_and_read_as_models(core, apps):
    created = await core.create_namespaced_config_map(
        'default',
        models.V1ConfigMap(
            metadata=models.V1ObjectMeta(name='cm', labels={'x': 'y'}), data={'key': 'value'}
        ),
    )
    generated = await core.create_namespaced_config_map(
        'default', {'metadata': {'generateName': 'some-'}}
    )
    await core.create_namespaced_secret(
        'default', {'metadata': {'name': 'secret'}, 'stringData': {'password': 'qwerty'}}
    )
    await core.create_namespace({'metadata': {'name': 'space'}})
    await core.create_namespaced_pod(
        'space',
        {
            'metadata': {'name': 'pod'},
            'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
        },
    )
    deployment = await apps.create_namespaced_deployment(
        'default',
        {
            'metadata': {'name': 'web'},
            'spec': {
                'selector': {'matchLabels': {'app': 'web'}},
                'template': {
                    'metadata': {'labels': {'app': 'web'}},
                    'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
                },
            },
        },
    )

    assert created.metadata.uid and generated.metadata.name.startswith('some-')
    assert (await core.read_namespaced_config_map('cm', 'default')).data == {'key': 'value'}
    assert (await core.read_namespaced_secret('secret', 'default')).data == {'password': 'cXdlcnR5'}
    assert (await core.read_namespaced_pod('pod', 'space')).spec.restart_policy == 'Always'
    assert deployment.spec.strategy.type == 'RollingUpdate'


async def test_lists_come_in_pages(core):
    for number in range(7):
        await core.create_namespaced_config_map('default', {'metadata': {'name': f'cm-{number}'}})

    pages, token = [], ''
    while not pages or token:
        page = await core.list_namespaced_config_map('default', limit=3, _continue=token)
        pages.append([item.metadata.name for item in page.items])
        token = page.metadata._continue

    assert pages == [
        ['cm-0', 'cm-1', 'cm-2'],
        ['cm-3', 'cm-4', 'cm-5'],
        ['cm-6', 'kube-root-ca.crt'],
    ]


async def test_page_after_compaction_is_expired(sandbox, core):
    for number in range(3):
        await core.create_namespaced_config_map('default', {'metadata': {'name': f'cm-{number}'}})
    page = await core.list_namespaced_config_map('default', limit=1)
    await core.delete_namespaced_config_map('cm-2', 'default')
    sandbox.compact()

    with pytest.raises(models.ApiException) as error:
        await core.list_namespaced_config_map('default', limit=1, _continue=page.metadata._continue)

    assert refusal_of(error)[:2] == (410, 'Expired')


async def test_lists_are_selected_by_labels_and_fields(core, objects):
    for name, color in (('a', 'red'), ('b', 'blue'), ('c', 'red')):
        await objects.create_namespaced_custom_object(
            *WIDGETS, {**build_widget(name), 'metadata': {'name': name, 'labels': {'color': color}}}
        )

    reds = await objects.list_namespaced_custom_object(*WIDGETS, label_selector='color!=blue')
    one = await objects.list_cluster_custom_object(
        'clients.kopf.dev', 'v1', 'widgets', field_selector='metadata.name=b'
    )

    assert [item['metadata']['name'] for item in reds['items']] == ['a', 'c']
    assert [item['metadata']['name'] for item in one['items']] == ['b']


async def test_objects_are_patched_in_all_ways(core, objects):
    await core.create_namespaced_service(
        'default', {'metadata': {'name': 'svc'}, 'spec': {'ports': [{'port': 80, 'name': 'http'}]}}
    )
    await core.create_namespaced_config_map(
        'default', {'metadata': {'name': 'cm'}, 'data': {'a': '1', 'b': '2'}}
    )
    await objects.create_namespaced_custom_object(*WIDGETS, build_widget('w', spec={'size': 1}))

    strategic = await core.patch_namespaced_service(
        'svc',
        'default',
        {'spec': {'ports': [{'port': 443, 'name': 'https'}]}},
        _content_type='application/strategic-merge-patch+json',
    )
    by_json = await core.patch_namespaced_config_map(
        'cm', 'default', [{'op': 'remove', 'path': '/data/a'}], _content_type=JSON
    )
    merged = await core.patch_namespaced_config_map(
        'cm', 'default', {'data': {'b': None, 'c': '3'}}, _content_type=MERGE
    )
    custom = await objects.patch_namespaced_custom_object(
        *WIDGETS, 'w', {'spec': {'size': 2}}, _content_type=MERGE
    )

    assert sorted(port.port for port in strategic.spec.ports) == [80, 443]
    assert by_json.data == {'b': '2'}
    assert merged.data == {'c': '3'}
    assert custom['spec'] == {'size': 2}


async def test_status_is_written_apart_from_the_spec(core, objects):
    await core.create_namespaced_pod(
        'default',
        {
            'metadata': {'name': 'pod'},
            'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
        },
    )
    made = await objects.create_namespaced_custom_object(
        *WIDGETS, build_widget('w', spec={'size': 1})
    )

    pod = await core.patch_namespaced_pod_status(
        'pod', 'default', {'status': {'phase': 'Running'}}, _content_type=MERGE
    )
    changed = {**made, 'spec': {'size': 9}, 'status': {'ready': True}}
    replaced = await objects.replace_namespaced_custom_object_status(*WIDGETS, 'w', changed)
    addition = {'status': {'count': 1}}
    patched = await objects.patch_namespaced_custom_object_status(
        *WIDGETS, 'w', addition, _content_type=MERGE
    )

    assert pod.status.phase == 'Running'
    assert (replaced['spec'], replaced['status']) == ({'size': 1}, {'ready': True})
    assert patched['status'] == {'ready': True, 'count': 1}


async def test_refusals_are_told_with_their_bodies(core, objects):
    made = await core.create_namespaced_config_map(
        'default', {'metadata': {'name': 'cm'}, 'data': {'a': '1'}}
    )
    await core.patch_namespaced_config_map(
        'cm', 'default', {'data': {'a': '2'}}, _content_type=MERGE
    )

    with pytest.raises(models.ApiException) as absent:
        await core.read_namespaced_config_map('absent', 'default')
    with pytest.raises(models.ApiException) as existing:
        await core.create_namespaced_config_map('default', {'metadata': {'name': 'cm'}})
    with pytest.raises(models.ApiException) as outdated:
        made.data = {'a': '3'}
        await core.replace_namespaced_config_map('cm', 'default', made)
    with pytest.raises(models.ApiException) as invalid:
        await objects.create_namespaced_custom_object(
            *WIDGETS, build_widget('w', spec={'size': -1})
        )

    assert refusal_of(absent) == (404, 'NotFound', 'configmaps "absent" not found')
    assert refusal_of(existing) == (409, 'AlreadyExists', 'configmaps "cm" already exists')
    assert refusal_of(outdated) == (
        409,
        'Conflict',
        'Operation cannot be fulfilled on configmaps "cm": the object has been modified; '
        'please apply your changes to the latest version and try again',
    )
    assert refusal_of(invalid)[:2] == (422, 'Invalid')


async def test_deleted_objects_wait_for_their_finalizers(objects):
    body = {**build_widget('w'), 'metadata': {'name': 'w', 'finalizers': ['example.com/x']}}
    await objects.create_namespaced_custom_object(*WIDGETS, body)

    marked = await objects.delete_namespaced_custom_object(
        *WIDGETS, 'w', propagation_policy='Foreground'
    )
    release = {'metadata': {'finalizers': []}}
    released = await objects.patch_namespaced_custom_object(
        *WIDGETS, 'w', release, _content_type=MERGE
    )

    assert marked['metadata']['finalizers'] == ['example.com/x', 'foregroundDeletion']
    assert marked['metadata']['deletionTimestamp'] == released['metadata']['deletionTimestamp']
    with pytest.raises(models.ApiException) as error:
        await objects.get_namespaced_custom_object(*WIDGETS, 'w')
    assert error.value.status == 404


async def test_watch_replays_the_changes_from_a_version(core):
    version = (await core.list_namespaced_config_map('default')).metadata.resource_version
    await core.create_namespaced_config_map('default', {'metadata': {'name': 'a'}})
    await core.patch_namespaced_config_map(
        'a', 'default', {'data': {'x': 'y'}}, _content_type=MERGE
    )
    await core.delete_namespaced_config_map('a', 'default')

    async with kubernetes_asyncio.watch.Watch() as watch:
        stream = watch.stream(
            core.list_namespaced_config_map, 'default', resource_version=version, timeout_seconds=1
        )
        events = [event async for event in stream]

    assert [(event['type'], event['object'].metadata.name) for event in events] == [
        ('ADDED', 'a'),
        ('MODIFIED', 'a'),
        ('DELETED', 'a'),
    ]


async def test_watch_goes_on_until_it_is_left(objects):
    await objects.create_namespaced_custom_object(*WIDGETS, build_widget('a'))
    seen = []

    async with kubernetes_asyncio.watch.Watch() as watch:
        async for event in watch.stream(
            objects.list_namespaced_custom_object, *WIDGETS, timeout_seconds=10
        ):
            seen.append((event['type'], event['object']['metadata']['name']))
            if len(seen) == 2:
                break
            await objects.create_namespaced_custom_object(*WIDGETS, build_widget('b'))

    assert seen == [('ADDED', 'a'), ('ADDED', 'b')]


async def test_watch_from_a_compacted_version_is_expired(sandbox, core):
    version = (await core.list_namespaced_config_map('default')).metadata.resource_version
    await core.create_namespaced_config_map('default', {'metadata': {'name': 'a'}})
    sandbox.compact()

    with pytest.raises(models.ApiException) as error:
        async with kubernetes_asyncio.watch.Watch() as watch:
            async for _ in watch.stream(
                core.list_namespaced_config_map,
                'default',
                resource_version=version,
                timeout_seconds=5,
            ):
                pass

    assert error.value.status == 410


async def test_manifests_are_created_from_dicts(client, core):
    await kubernetes_asyncio.utils.create_from_dict(
        client,
        {
            'apiVersion': 'v1',
            'kind': 'List',
            'items': [
                {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'a'}},
                {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'space'}},
            ],
        },
    )

    assert (await core.read_namespaced_config_map('a', 'default')).metadata.name == 'a'
    assert (await core.read_namespace('space')).status.phase == 'Active'


async def test_dynamic_client_handles_all_resources(client, tmp_path):
    cluster = await dynamic.DynamicClient(client, cache_file=str(tmp_path / 'discovery.json'))
    widgets = await cluster.resources.get(api_version='clients.kopf.dev/v1', kind='Widget')

    made = await widgets.create(body=build_widget('w', spec={'size': 1}), namespace='default')
    patched = await widgets.patch(
        body={'spec': {'size': 2}}, name='w', namespace='default', content_type=MERGE
    )
    applied = await widgets.server_side_apply(
        body=build_widget('v', spec={'size': 3}), namespace='default', field_manager='me'
    )
    listed = await widgets.get(namespace='default')
    await widgets.delete(name='w', namespace='default', body={})

    assert (made.spec.size, patched.spec.size, applied.spec.size) == (1, 2, 3)
    assert [item.metadata.name for item in listed.items] == ['v', 'w']
    # It does not raise.
    assert (await widgets.get(name='w', namespace='default')).to_dict()['reason'] == 'NotFound'
