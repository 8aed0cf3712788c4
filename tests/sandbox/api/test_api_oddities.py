"""
Requests that are rarely made: to scales, with repeated fields, for approvals, about the health.
"""

import base64

import pytest

SIGNING = '/apis/certificates.k8s.io/v1/certificatesigningrequests'


async def test_scales_are_applied(api, deployments):
    template = {'metadata': {'labels': {'a': 'b'}}}
    template['spec'] = {'containers': [{'name': 'main', 'image': 'none'}]}
    spec = {'replicas': 1, 'selector': {'matchLabels': {'a': 'b'}}, 'template': template}
    await api.make(deployments, {'metadata': {'name': 'one'}, 'spec': spec})
    scale = {'apiVersion': 'autoscaling/v1', 'kind': 'Scale', 'metadata': {'name': 'one'}}
    body = {**scale, 'spec': {'replicas': 3}}

    refused = await api.apply(f'{deployments}/one/scale', body, fieldManager='scaler')
    forced = await api.apply(f'{deployments}/one/scale', body, fieldManager='scaler', force='true')
    scaled = await api.get(f'{deployments}/one')

    assert refused.code == 409
    assert refused.body['message'].endswith('using autoscaling/v1: .spec.replicas')
    assert forced.body['spec'] == {'replicas': 3}
    assert scaled.body['spec']['replicas'] == 3
    owners = {
        (entry['manager'], entry.get('subresource'))
        for entry in scaled.body['metadata']['managedFields']
    }
    assert ('scaler', 'scale') in owners


async def test_repeated_keys_of_yaml_are_named_with_their_lines(api, configmaps):
    body = b'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: "1"\n  k: "2"\n'

    refused = await api.post(configmaps, body, type='application/yaml', fieldValidation='Strict')
    warned = await api.post(configmaps, body, type='application/yaml', fieldValidation='Warn')

    assert refused.body['message'].endswith(
        'strict decoding error: yaml: unmarshal errors:\n  line 6: key "k" already set in map'
    )
    assert (warned.code, warned.body['data']) == (201, {'k': '2'})
    assert warned.warnings == ('299 - "line 6: key \\"k\\" already set in map"',)


@pytest.mark.parametrize('version', ['abc', '-1', '18446744073709551616'])
async def test_texts_that_are_no_versions_are_ignored_on_creation(api, configmaps, version):
    made = await api.make(configmaps, {'metadata': {'name': 'a', 'resourceVersion': version}})

    assert made['metadata']['resourceVersion'] != version


@pytest.mark.parametrize(
    'timeout, why',
    [
        ('garbage', 'invalid duration "garbage"'),
        ('10', 'missing unit in duration "10"'),
        ('1x', 'unknown unit "x" in duration "1x"'),
    ],
)
async def test_timeouts_must_be_durations(api, configmaps, timeout, why):
    refused = await api.get(configmaps, timeout=timeout)
    accepted = await api.get(configmaps, timeout='1m30s')

    text = f'invalid timeout specified in the request URL - time: {why}'
    assert (refused.code, refused.body['message']) == (400, text)
    assert accepted.code == 200


async def test_addresses_of_the_sixth_version_are_names(api, namespace):
    parent = {'resource': 'services', 'namespace': namespace, 'name': 'any'}
    path = '/apis/networking.k8s.io/v1/ipaddresses'

    made = await api.post(
        path, {'metadata': {'name': '2001:db8::1'}, 'spec': {'parentRef': parent}}, dryRun='All'
    )

    assert made.code == 201


async def test_health_is_listed_by_checks(api):
    brief = await api.get('/readyz')
    verbose = await api.get('/readyz', verbose='')
    unknown = await api.get('/livez/none')

    assert brief.body == b'ok'
    assert verbose.body.startswith(b'[+]ping ok\n') and verbose.body.endswith(
        b'[+]shutdown ok\nreadyz check passed\n'
    )
    assert unknown.code == 404


async def test_approvals_are_final(api, namespace):
    request = base64.b64encode(b'any').decode()
    spec = {'request': request, 'signerName': 'kopf.dev/any', 'usages': ['client auth']}
    path = f'{SIGNING}/{namespace}'
    made = await api.make(SIGNING, {'metadata': {'name': namespace}, 'spec': spec})
    approved = {'conditions': [{'type': 'Approved', 'status': 'True'}]}

    elsewhere = await api.put(f'{path}/status', {**made, 'status': approved})
    accepted = await api.put(f'{path}/approval', {**made, 'status': approved})
    taken_back = await api.merge(f'{path}/approval', {'status': {'conditions': None}})

    assert made['spec']['groups'] == ['system:masters', 'system:authenticated']
    assert elsewhere.code == 422
    assert accepted.body['status']['conditions'][0]['lastUpdateTime']
    assert taken_back.body['message'].endswith(
        'updates may not remove a condition of type "Approved"'
    )
