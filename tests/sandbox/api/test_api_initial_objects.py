"""
What the cluster makes by itself, keeps, and finishes: the initial objects, protected storages.
"""

import base64

import pytest

import kopf.testing

AUTHORITY = 'kube-root-ca.crt'
CLAIM = {
    'accessModes': ['ReadWriteOnce'],
    'resources': {'requests': {'storage': '1Gi'}},
    'storageClassName': 'none',
}


@pytest.fixture
def secrets(namespace):
    return f'/api/v1/namespaces/{namespace}/secrets'


@pytest.fixture
def claims(namespace):
    return f'/api/v1/namespaces/{namespace}/persistentvolumeclaims'


def test_api_server_is_published(sandbox):
    port = int(sandbox.url.rpartition(':')[2])

    service = sandbox.get('services', 'kubernetes')
    endpoints = sandbox.get('endpoints', 'kubernetes')
    found = sandbox.get('endpointslices', 'kubernetes')
    network = sandbox.get('servicecidrs', 'kubernetes')

    assert service['spec']['ports'][0]['targetPort'] == port
    assert service['spec']['clusterIP'] == '10.96.0.1'
    assert endpoints['subsets'][0]['ports'][0]['port'] == port
    assert found['endpoints'][0]['addresses'] == ['127.0.0.1']
    assert network['spec'] == {'cidrs': ['10.96.0.0/12']}


def test_published_objects_are_restored_when_deleted(sandbox):
    old = sandbox.get('services', 'kubernetes')

    sandbox.delete('services', 'kubernetes')

    found = sandbox.wait('services', 'kubernetes', lambda body: body is not None)
    assert found['spec'] == old['spec']
    assert found['metadata']['uid'] != old['metadata']['uid']


def test_new_address_is_published_after_a_restart(tmp_path):
    with kopf.testing.Sandbox(tls=False, save=tmp_path / 'saved') as sandbox:
        old = sandbox.get('services', 'kubernetes')
        port = int(sandbox.url.rpartition(':')[2])

    with (
        kopf.testing.Sandbox(tls=False, port=port),
        kopf.testing.Sandbox(tls=False, save=tmp_path / 'saved') as again,
    ):
        found = again.get('services', 'kubernetes')
        moved = int(again.url.rpartition(':')[2])

    assert moved != port
    assert found['metadata']['uid'] == old['metadata']['uid']
    assert found['spec']['ports'][0]['targetPort'] == moved


def test_new_namespaces_get_their_initial_objects(sandbox, namespace):
    sandbox.wait('serviceaccounts', 'default', lambda body: body is not None, namespace)
    authority = sandbox.wait('configmaps', AUTHORITY, lambda body: body is not None, namespace)

    assert authority['data'] == {'ca.crt': sandbox.ca_data.decode()}


@pytest.mark.parametrize('resource, name', [('serviceaccounts', 'default'), ('cm', AUTHORITY)])
def test_initial_objects_are_restored_when_deleted(sandbox, namespace, resource, name):
    old = sandbox.wait(resource, name, lambda body: body is not None, namespace)

    sandbox.delete(resource, name, namespace)

    new = sandbox.wait(resource, name, lambda body: body is not None, namespace)
    assert new['metadata']['uid'] != old['metadata']['uid']


def test_authority_is_restored_when_changed(sandbox, namespace):
    sandbox.wait('cm', AUTHORITY, lambda body: body is not None, namespace)

    sandbox.patch('cm', AUTHORITY, {'data': {'ca.crt': 'x', 'more': 'y'}}, namespace)

    restored = {'ca.crt': sandbox.ca_data.decode()}
    assert sandbox.wait('cm', AUTHORITY, lambda body: body['data'] == restored, namespace)


async def test_initial_objects_do_not_hold_their_namespace(api, namespace):
    await api.delete(f'/api/v1/namespaces/{namespace}')

    await api.wait_until_gone(f'/api/v1/namespaces/{namespace}')
    assert (await api.get(f'/api/v1/namespaces/{namespace}/serviceaccounts')).body['items'] == []


async def test_claims_go_when_no_pods_on_nodes_use_them(api, claims, pods):
    await api.make(claims, {'metadata': {'name': 'one'}, 'spec': CLAIM})
    volume = {'name': 'data', 'persistentVolumeClaim': {'claimName': 'one'}}
    spec = {'containers': [{'name': 'main', 'image': 'none'}], 'volumes': [volume]}
    spec |= {'nodeName': 'none', 'terminationGracePeriodSeconds': 0}
    await api.make(pods, {'metadata': {'name': 'user'}, 'spec': spec})

    await api.delete(f'{claims}/one')
    left = await api.get(f'{claims}/one')
    await api.delete(f'{pods}/user', gracePeriodSeconds=0)

    assert left.body['metadata']['finalizers'] == ['kubernetes.io/pvc-protection']
    await api.wait_until_gone(f'{claims}/one')


async def test_bound_volumes_stay_until_they_are_released(api, namespace):
    volumes, name = '/api/v1/persistentvolumes', f'volume-of-{namespace}'
    spec = {'capacity': {'storage': '1Gi'}, 'accessModes': ['ReadWriteOnce']}
    spec |= {'hostPath': {'path': '/nowhere'}}
    await api.make(volumes, {'metadata': {'name': name}, 'spec': spec})
    await api.merge(f'{volumes}/{name}/status', {'status': {'phase': 'Bound'}})

    await api.delete(f'{volumes}/{name}')
    left = await api.get(f'{volumes}/{name}')
    await api.merge(f'{volumes}/{name}/status', {'status': {'phase': 'Released'}})

    assert left.body['metadata']['finalizers'] == ['kubernetes.io/pv-protection']
    await api.wait_until_gone(f'{volumes}/{name}')


async def test_namespaces_with_claims_go(api, namespace, claims):
    await api.make(claims, {'metadata': {'name': 'one'}, 'spec': CLAIM})

    await api.delete(f'/api/v1/namespaces/{namespace}')

    await api.wait_until_gone(f'/api/v1/namespaces/{namespace}')


async def test_keys_named_as_deletion_do_not_hold_namespaces(api, namespace, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a'}, 'data': {'deletionTimestamp': 'x'}})

    await api.delete(f'/api/v1/namespaces/{namespace}')

    await api.wait_until_gone(f'/api/v1/namespaces/{namespace}')


async def test_tokens_are_put_into_the_secrets_made_for_them(api, sandbox, namespace, secrets):
    sandbox.wait('serviceaccounts', 'default', lambda body: body is not None, namespace)
    await api.make(
        secrets,
        {
            'metadata': {
                'name': 'one',
                'annotations': {'kubernetes.io/service-account.name': 'default'},
            },
            'type': 'kubernetes.io/service-account-token',
        },
    )

    secret = sandbox.wait('secrets', 'one', lambda body: bool(body.get('data')), namespace)

    assert sorted(secret['data']) == ['ca.crt', 'namespace', 'token']
    assert base64.b64decode(secret['data']['namespace']).decode() == namespace
    token = base64.b64decode(secret['data']['token']).decode()
    review = await api.post(
        '/apis/authentication.k8s.io/v1/tokenreviews', {'spec': {'token': token}}
    )
    assert review.body['status']['user']['username'] == f'system:serviceaccount:{namespace}:default'
