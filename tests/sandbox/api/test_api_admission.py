"""
The built-in admission: what is refused, what is set by default, and what is counted.
"""

import pytest

STANDARD = 'pod-security.kubernetes.io/enforce'


def build_pod(name='one', container=None, **spec):
    containers = [{'name': 'main', 'image': 'none', **(container or {})}]
    return {'metadata': {'name': name}, 'spec': {'containers': containers, **spec}}


@pytest.fixture
def quotas(namespace):
    return f'/api/v1/namespaces/{namespace}/resourcequotas'


@pytest.fixture
def services(namespace):
    return f'/api/v1/namespaces/{namespace}/services'


async def test_quotas_are_exceeded_by_numbers(api, sandbox, namespace, quotas, plains):
    secrets = f'/api/v1/namespaces/{namespace}/secrets'
    await api.make(quotas, {'metadata': {'name': 'q'}, 'spec': {'hard': {'secrets': '1'}}})
    await api.make(secrets, {'metadata': {'name': 'a'}})

    refused = await api.post(secrets, {'metadata': {'name': 'b'}})
    await api.delete(f'{secrets}/a')
    accepted = await api.post(secrets, {'metadata': {'name': 'b'}})

    assert refused.body['message'] == (
        'secrets "b" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, '
        'limited: secrets=1'
    )
    assert accepted.code == 201
    expected = {'hard': {'secrets': '1'}, 'used': {'secrets': '1'}}
    assert sandbox.wait('quota', 'q', lambda body: body['status'] == expected, namespace)


async def test_quotas_are_exceeded_by_amounts(api, sandbox, namespace, quotas, pods):
    hard = {'requests.memory': '1Gi', 'pods': '5'}
    await api.make(quotas, {'metadata': {'name': 'q'}, 'spec': {'hard': hard}})
    half = {'resources': {'requests': {'memory': '600Mi'}}}

    unspecified = await api.post(pods, build_pod('a'))
    first = await api.post(pods, build_pod('b', half))
    second = await api.post(pods, build_pod('c', half))

    assert unspecified.body['message'].endswith('must specify requests.memory for: main')
    assert (first.code, second.code) == (201, 403)
    assert 'requested: requests.memory=600Mi, used: requests.memory=600Mi' in second.body['message']
    used = {'pods': '1', 'requests.memory': '600Mi'}
    assert sandbox.wait('quota', 'q', lambda body: body['status']['used'] == used, namespace)


async def test_pods_that_have_ended_are_not_counted(api, sandbox, namespace, quotas, pods):
    await api.make(quotas, {'metadata': {'name': 'q'}, 'spec': {'hard': {'pods': '1'}}})
    await api.make(pods, build_pod('a'))
    await api.merge(f'{pods}/a/status', {'status': {'phase': 'Succeeded'}})

    assert sandbox.wait(
        'quota', 'q', lambda body: body['status']['used'] == {'pods': '0'}, namespace
    )
    assert (await api.post(pods, build_pod('b'))).code == 201


async def test_ranges_set_defaults_with_a_note(api, namespace, pods):
    limits = [{'type': 'Container', 'default': {'cpu': '1'}, 'defaultRequest': {'cpu': '100m'}}]
    ranges = f'/api/v1/namespaces/{namespace}/limitranges'
    await api.make(ranges, {'metadata': {'name': 'r'}, 'spec': {'limits': limits}})

    made = await api.make(pods, build_pod())

    [container] = made['spec']['containers']
    assert container['resources'] == {'requests': {'cpu': '100m'}, 'limits': {'cpu': '1'}}
    assert made['metadata']['annotations'] == {
        'kubernetes.io/limit-ranger': 'LimitRanger plugin set: cpu request for container main; '
        'cpu limit for container main'
    }


async def test_default_classes_are_set(api, namespace):
    marks = {'storageclass.kubernetes.io/is-default-class': 'true'}
    classes = '/apis/storage.k8s.io/v1/storageclasses'
    name = f'class-of-{namespace}'
    await api.make(
        classes, {'metadata': {'name': name, 'annotations': marks}, 'provisioner': 'kopf.dev/none'}
    )
    spec = {'accessModes': ['ReadWriteOnce'], 'resources': {'requests': {'storage': '1Gi'}}}

    made = await api.make(
        f'/api/v1/namespaces/{namespace}/persistentvolumeclaims',
        {'metadata': {'name': 'one'}, 'spec': spec},
    )
    await api.delete(f'{classes}/{name}')

    assert made['spec']['storageClassName'] == name


async def test_pods_follow_the_standards_of_their_namespaces(api, namespace, pods):
    path = f'/api/v1/namespaces/{namespace}'
    await api.merge(path, {'metadata': {'labels': {STANDARD: 'baseline'}}})

    refused = await api.post(pods, build_pod(hostNetwork=True))
    accepted = await api.post(pods, build_pod())

    assert refused.body['message'] == (
        'pods "one" is forbidden: violates PodSecurity "baseline:latest": '
        'host namespaces (hostNetwork=true)'
    )
    assert accepted.code == 201


async def test_pods_get_the_tokens_of_their_accounts(api, sandbox, namespace, pods):
    sandbox.wait('serviceaccounts', 'default', lambda body: body is not None, namespace)

    made = await api.make(pods, build_pod('a'))
    again = await api.post(pods, build_pod('a'), dryRun='All')
    bare = await api.make(pods, build_pod('b', automountServiceAccountToken=False))
    absent = await api.post(pods, build_pod('c', serviceAccountName='none'))

    [volume] = made['spec']['volumes']
    [mount] = made['spec']['containers'][0]['volumeMounts']
    assert made['spec']['serviceAccountName'] == 'default'
    assert volume['name'] == mount['name'] and volume['name'].startswith('kube-api-access-')
    assert again.code == 409
    assert 'volumes' not in bare['spec'] and bare['spec']['serviceAccount'] == 'default'
    assert absent.body['message'] == (
        f'pods "c" is forbidden: error looking up service account {namespace}/none: '
        f'serviceaccount "none" not found'
    )


async def test_ports_of_nodes_are_taken_once(api, services):
    spec = {'type': 'NodePort', 'ports': [{'port': 80, 'nodePort': 30123}]}
    made = await api.make(services, {'metadata': {'name': 'a'}, 'spec': spec})

    taken = await api.post(services, {'metadata': {'name': 'b'}, 'spec': spec})
    kept = await api.put(f'{services}/a', made)
    await api.delete(f'{services}/a')
    freed = await api.post(services, {'metadata': {'name': 'b'}, 'spec': spec})
    await api.delete(f'{services}/b')

    assert taken.body['message'].endswith(
        'Invalid value: 30123: provided port is already allocated'
    )
    assert (kept.code, freed.code) == (200, 201)


async def test_one_port_has_one_port_of_nodes_for_all_protocols(api, services):
    ports = [{'name': name, 'port': 53, 'protocol': name.upper()} for name in ('tcp', 'udp')]

    made = await api.make(
        services, {'metadata': {'name': 'a'}, 'spec': {'type': 'NodePort', 'ports': ports}}
    )

    assert len({port['nodePort'] for port in made['spec']['ports']}) == 1


async def test_addresses_of_services_are_taken_once(api, services):
    spec = {'clusterIP': '10.96.0.1', 'ports': [{'port': 80}]}

    taken = await api.post(services, {'metadata': {'name': 'a'}, 'spec': spec})

    assert taken.code == 422
    assert 'provided IP is already allocated' in taken.body['message']


async def test_numbers_of_objects_are_measured(api):
    reply = await api.get('/metrics')

    assert reply.code == 200
    assert b'\napiserver_storage_objects{resource="namespaces"} ' in reply.body


async def test_components_are_healthy(api):
    found = await api.get('/api/v1/componentstatuses')

    names = [item['metadata']['name'] for item in found.body['items']]
    assert names == ['controller-manager', 'etcd-0', 'scheduler']
