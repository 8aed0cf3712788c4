"""
Hierarchies of objects of the client libraries: the same as of dicts.
"""

import kubernetes.client
import kubernetes_asyncio.client
import pykube
import pytest
from hierarchy_samples import OWNER, REFERENCE

import kopf
import kopf.testing

ADOPTED = {
    'generateName': 'kopf-example-1-',
    'namespace': 'ns',
    'labels': {'somelabel': 'somevalue'},
    'ownerReferences': [REFERENCE],
}


@pytest.fixture(
    params=[
        pytest.param(kubernetes.client, id='sync'),
        pytest.param(kubernetes_asyncio.client, id='async'),
    ]
)
def client(request):
    """The modules of the official clients; their classes are named in the same way."""
    return request.param


def serialize(model):
    """Turn a model to what is sent to the API."""
    package = (
        kubernetes_asyncio
        if type(model).__module__.startswith('kubernetes_asyncio')
        else kubernetes
    )
    # With no connections: one of them needs an event loop for that.
    api = object.__new__(package.client.ApiClient)
    return api.sanitize_for_serialization(model)


@pytest.mark.guarantee('HIE-037', 'HIE-002')
@pytest.mark.parametrize(
    'cls',
    [
        pykube.objects.Pod,
        pykube.objects.Node,
        pykube.object_factory(
            type(
                'Api',
                (),
                {
                    'resource_list': lambda *_: {
                        'resources': [
                            {'name': 'kopfexamples', 'kind': 'KopfExample', 'namespaced': True}
                        ]
                    }
                },
            )(),
            'kopf.dev/v1',
            'KopfExample',
        ),
    ],
)
def test_objects_of_pykube_are_adopted(cls):
    obj = cls(None, {'spec': {}})

    kopf.adopt(obj, OWNER)

    assert obj.obj == {'spec': {}, 'metadata': ADOPTED}


@pytest.mark.guarantee('HIE-042')
def test_objects_of_pykube_can_have_nested_labels_and_lose_owners():
    obj = pykube.Deployment(None, {'spec': {'template': {}}})

    kopf.label(obj, {'a': 'b'}, nested='spec.template')
    kopf.append_owner_reference(obj, OWNER)
    kopf.remove_owner_reference(obj, OWNER)

    assert obj.obj == {
        'metadata': {'labels': {'a': 'b'}, 'ownerReferences': []},
        'spec': {'template': {'metadata': {'labels': {'a': 'b'}}}},
    }


@pytest.mark.guarantee('HIE-038', 'HIE-039', 'HIE-040', 'HIE-002', 'NEW-232')
@pytest.mark.parametrize('is_prepared', [False, True])
def test_models_are_adopted(client, is_prepared):
    pod = client.V1Pod(metadata=client.V1ObjectMeta()) if is_prepared else client.V1Pod()

    kopf.adopt(pod, OWNER)

    changed = {key: value for key, value in pod.metadata.to_dict().items() if value is not None}
    assert isinstance(pod.metadata, client.V1ObjectMeta)
    assert isinstance(pod.metadata.owner_references[0], client.V1OwnerReference)
    assert changed == {
        'generate_name': 'kopf-example-1-',
        'namespace': 'ns',
        'labels': {'somelabel': 'somevalue'},
        'owner_references': [
            {
                'api_version': 'kopf.dev/v1',
                'kind': 'KopfExample',
                'name': 'kopf-example-1',
                'uid': 'uid1',
                'controller': True,
                'block_owner_deletion': True,
            }
        ],
    }
    assert pod.metadata.name is None
    assert pod.spec is None
    assert serialize(pod) == {'metadata': ADOPTED}


@pytest.mark.guarantee('NEW-232', 'HIE-042')
def test_models_are_changed_as_dicts_are(client):
    pod = client.V1Pod(
        metadata=client.V1ObjectMeta(
            name='own', generate_name='own-', namespace='own', labels={'a': 'own', 'own': 'x'}
        )
    )

    kopf.harmonize_naming(pod, 'some')
    kopf.adjust_namespace(pod, 'some')
    kopf.label(pod, {'a': 'b', 'c': 'd'})
    assert serialize(pod)['metadata'] == {
        'name': 'own',
        'namespace': 'own',
        'labels': {'a': 'own', 'c': 'd', 'own': 'x'},
    }

    kopf.harmonize_naming(pod, 'some', forced=True)
    kopf.adjust_namespace(pod, 'some', forced=True)
    kopf.label(pod, {'a': 'b'}, forced=True)
    assert serialize(pod)['metadata'] == {
        'generateName': 'some-',
        'namespace': 'some',
        'labels': {'a': 'b', 'c': 'd', 'own': 'x'},
    }


@pytest.mark.guarantee('HIE-042', 'NEW-232')
def test_models_can_lose_owners(client):
    pod = client.V1Pod()
    another = {**OWNER, 'metadata': {'name': 'another', 'uid': 'uid2'}}
    kopf.append_owner_reference(pod, OWNER)
    kopf.append_owner_reference(pod, another)
    kopf.append_owner_reference(pod, OWNER)
    assert [reference.uid for reference in pod.metadata.owner_references] == ['uid1', 'uid2']

    kopf.remove_owner_reference(pod, OWNER)

    assert [reference.uid for reference in pod.metadata.owner_references] == ['uid2']


@pytest.mark.guarantee('HIE-042', 'NEW-232')
@pytest.mark.parametrize(
    'nested', ['spec.jobTemplate.spec.template', [('spec', 'job_template', 'spec', 'template')]]
)
def test_nested_models_are_labelled_by_the_names_of_the_api_or_of_models(client, nested):
    job = client.V1JobSpec(template=client.V1PodTemplateSpec())
    cron = client.V1CronJob(
        spec=client.V1CronJobSpec(
            schedule='* * * * *', job_template=client.V1JobTemplateSpec(spec=job)
        )
    )

    kopf.label(cron, {'a': 'b'}, nested=nested)

    assert cron.metadata.labels == {'a': 'b'}
    assert cron.spec.job_template.metadata is None
    assert cron.spec.job_template.spec.template.metadata.labels == {'a': 'b'}


@pytest.mark.guarantee('HIE-014', 'NEW-232')
def test_nested_models_are_not_made(client):
    job = client.V1Job()

    kopf.label(job, {'a': 'b'}, nested='spec.template')

    assert job.spec is None
    assert job.metadata.labels == {'a': 'b'}


@pytest.mark.parametrize(
    'name, fields',
    [('V1Container', {'name': 'x'}), ('V1PodList', {'items': []}), ('V1ObjectMeta', {})],
)
def test_models_that_are_not_objects_are_refused(client, name, fields):
    pod, wrong = client.V1Pod(), getattr(client, name)(**fields)

    with pytest.raises(TypeError, match=rf'\b{name}\b'):
        kopf.label([pod, wrong], {'a': 'b'})

    assert pod.metadata is None


@pytest.mark.guarantee('HIE-002', 'NEW-232')
def test_objects_of_all_libraries_can_be_mixed():
    objs = [{}, pykube.Pod(None, {}), kubernetes.client.V1Pod(), kubernetes_asyncio.client.V1Pod()]

    kopf.adopt(objs, OWNER)

    assert [objs[0], objs[1].obj, serialize(objs[2]), serialize(objs[3])] == [
        {'metadata': ADOPTED}
    ] * 4


def test_dicts_and_models_can_be_parts_of_each_other(client):
    inside = {'metadata': client.V1ObjectMeta(labels={'x': 'y'})}
    outside = client.V1Pod()
    outside.metadata = {'labels': {'x': 'y'}}

    kopf.adopt([inside, outside], OWNER)

    expected = {'metadata': {**ADOPTED, 'labels': {'x': 'y', 'somelabel': 'somevalue'}}}
    assert {'metadata': serialize(inside['metadata'])} == expected
    assert serialize(outside) == expected


def test_owners_can_be_of_libraries_too(client):
    objs = [{}, {}]
    metadata = client.V1ObjectMeta(name='parent', uid='u', namespace='ns', labels={'a': 'b'})

    kopf.adopt(objs[0], client.V1Pod(api_version='v1', kind='Pod', metadata=metadata))
    kopf.adopt(
        objs[1],
        pykube.Pod(
            None,
            {
                'apiVersion': 'v1',
                'kind': 'Pod',
                'metadata': {'name': 'parent', 'uid': 'u', 'namespace': 'ns', 'labels': {'a': 'b'}},
            },
        ),
    )

    assert (
        objs[0]
        == objs[1]
        == {
            'metadata': {
                'generateName': 'parent-',
                'namespace': 'ns',
                'labels': {'a': 'b'},
                'ownerReferences': [
                    {
                        'apiVersion': 'v1',
                        'kind': 'Pod',
                        'name': 'parent',
                        'uid': 'u',
                        'controller': True,
                        'blockOwnerDeletion': True,
                    }
                ],
            }
        }
    )


@pytest.mark.guarantee('HIE-041')
def test_adopted_models_are_accepted_by_the_client_and_by_the_cluster():
    with kopf.testing.Sandbox(tls=False) as sandbox:
        owner = sandbox.create(
            {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'parent'}}
        )
        api = kubernetes.client.ApiClient(kubernetes.client.Configuration(host=sandbox.url))
        api.set_default_header('Authorization', f'Bearer {sandbox.token}')
        secret = kubernetes.client.V1Secret(string_data={'a': 'b'})
        kopf.adopt(secret, owner)

        kubernetes.client.CoreV1Api(api).create_namespaced_secret('default', secret)

        (created,) = sandbox.list('secrets', 'default')
        assert created['metadata']['name'].startswith('parent-')
        assert [reference['uid'] for reference in created['metadata']['ownerReferences']] == [
            owner['metadata']['uid']
        ]
