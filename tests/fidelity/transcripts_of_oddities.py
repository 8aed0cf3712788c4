"""
Requests that are rarely made, and were answered differently once.
"""

import base64

import fidelity_samples
from fidelity_talks import Talk, Transcript

APPLY = 'application/apply-patch+yaml'
ADDRESSES = '/apis/networking.k8s.io/v1/ipaddresses'
REPEATED = b"""apiVersion: v1
kind: ConfigMap
metadata:
  name: one
  labels: {x: a, x: b}
data:
  a: "1"
  a: "2"
"""
SCALARS = ('y', 'N', 'yes', '0o17', '017', '1_000', '0b11', '1:30', '.5', '1e3', '+1', '=', '<<')
SCALARS += (
    '0x1F',
    '1.',
    '2001-01-01',
    '"y"',
    '0o8',
    '1__0',
    '_1',
    '~',
    'Null',
    'tRUE',
    '-0',
    '1E5',
)


PEM = b"""-----BEGIN CERTIFICATE REQUEST-----
MIHLMHICAQAwEDEOMAwGA1UEAwwFYWxpY2UwWTATBgcqhkjOPQIBBggqhkjOPQMB
BwNCAATQ3qcI6E6Q4dNJCH63IiaewH6ydbLrWlyzlgggQTkT/Tq6jklujw5XS7In
BsZLBF5UI4YbmW9n17fwd2Fq/zVaoAAwCgYIKoZIzj0EAwIDSQAwRgIhALMMjXxk
ISmUttPVmHMmSeNaoO2lyMlmibIp5j+MN1gPAiEArE01c6gXlUMD79Rg1JTxH9Yg
unKFfTnItocbXjYt3eU=
-----END CERTIFICATE REQUEST-----
"""
"""A request for a certificate of a user."""


def build_signing(name: str) -> dict[str, object]:
    encoded = base64.b64encode(PEM).decode()
    spec = {'request': encoded, 'signerName': 'kopf.dev/any', 'usages': ['client auth']}
    return {'metadata': {'name': name}, 'spec': spec}


async def repeat_fields(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    for mode in ('Strict', 'Warn', 'Ignore'):
        talk.note(mode)
        path = f'{configmaps}/one'
        given = {'fieldManager': 'any', 'fieldValidation': mode}
        await talk.ask('PATCH', path, REPEATED, type=APPLY, dryRun='All', **given)
        await talk.post(configmaps, REPEATED, type='application/yaml', dryRun='All', **given)
        body = REPEATED + b'nope: 1\n'
        await talk.post(configmaps, body, type='application/yaml', dryRun='All', **given)
        await talk.ask('PATCH', path, body, type=APPLY, dryRun='All', **given)
    talk.note('order')
    mixed = (
        b'{"apiVersion":"v1","kind":"ConfigMap","zzz":1,"data":{"a":"1","a":"2"},'
        b'"metadata":{"name":"o","nope":1,"labels":{"x":"1","x":"2"},"bbb":2},"aaa":2}'
    )
    await talk.post(configmaps, mixed, fieldValidation='Strict')
    await talk.post(configmaps, mixed, fieldValidation='Warn', dryRun='All')


async def write_scalars(talk: Talk) -> None:
    for scalar in SCALARS:
        talk.note(scalar)
        body = f'apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: one}}\ndata: {{v: {scalar}}}\n'
        path = talk.core('configmaps')
        await talk.post(path, body.encode(), type='application/yaml', dryRun='All')


async def name_versions(talk: Talk) -> None:
    for number, version in enumerate(('abc', '-1', '18446744073709551616', '0')):
        body = fidelity_samples.build_configmap(f'cm-{number}', resourceVersion=version)
        await talk.post(talk.core('configmaps'), body)
    await talk.put(
        talk.core('configmaps', 'cm-0'),
        fidelity_samples.build_configmap('cm-0', resourceVersion='abc'),
    )


async def name_addresses(talk: Talk) -> None:
    parent = {'resource': 'services', 'namespace': talk.namespace, 'name': 'any'}
    names = ('2001:DB8::1', '2001:db8:0::1', '010.0.0.1', '::ffff:10.0.0.1', 'abc')
    for name in names:
        body = {'metadata': {'name': name}, 'spec': {'parentRef': parent}}
        await talk.post(ADDRESSES, body, dryRun='All')
    await talk.post(ADDRESSES, {'metadata': {'name': '10.0.0.9'}, 'spec': {}}, dryRun='All')


async def limit_times(talk: Talk) -> None:
    for timeout in ('garbage', '10', '1x', '.s', '1s2', '9999999999h', '-1s', '0', '1.5h'):
        await talk.get(talk.core('secrets', 'absent'), timeout=timeout)
        await talk.get(f'/apis/{talk.group}', timeout=timeout)
    talk.note('grace')
    spec = {'containers': [{'name': 'a', 'image': 'none'}], 'terminationGracePeriodSeconds': -1}
    template = {'metadata': {'labels': {'a': 'b'}}, 'spec': spec}
    body = {'selector': {'matchLabels': {'a': 'b'}}, 'template': template}
    await talk.post(
        talk.apps('deployments'), {'metadata': {'name': 'one'}, 'spec': body}, dryRun='All'
    )


async def show_reviews(talk: Talk) -> None:
    access = {'spec': {'resourceAttributes': {'verb': 'get', 'resource': 'pods'}}}
    partial = 'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io'
    for path, body in (
        ('/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', access),
        ('/apis/authentication.k8s.io/v1/selfsubjectreviews', {}),
    ):
        await talk.post(path, body, headers={'Accept': fidelity_samples.TABLE})
        await talk.post(path, body, headers={'Accept': partial})


async def apply_scales(talk: Talk) -> None:
    template = {'metadata': {'labels': {'a': 'b'}}}
    template['spec'] = {'containers': [{'name': 'a', 'image': 'none'}]}
    spec = {'replicas': 0, 'selector': {'matchLabels': {'a': 'b'}}, 'template': template}
    await talk.post(talk.apps('replicasets'), {'metadata': {'name': 'one'}, 'spec': spec})
    path = talk.apps('replicasets', 'one', 'scale')
    body = {'apiVersion': 'autoscaling/v1', 'kind': 'Scale', 'metadata': {'name': 'one'}}
    await talk.apply(path, {**body, 'spec': {'replicas': 1}})
    await talk.apply(path, {**body, 'kind': 'Other'})
    await talk.apply(
        talk.apps('replicasets', 'two', 'scale'), {**body, 'metadata': {'name': 'two'}}
    )


async def fill_tokens(talk: Talk) -> None:
    secrets = talk.core('secrets')
    annotations = {'kubernetes.io/service-account.name': 'none'}
    body = {'metadata': {'name': 'one'}, 'type': 'kubernetes.io/service-account-token'}
    await talk.post(secrets, body)
    body['metadata'] = {'name': 'one', 'annotations': annotations}
    await talk.post(secrets, body)
    await talk.wait_until_gone(f'{secrets}/one')
    talk.note('of an account')
    await talk.post(talk.core('serviceaccounts'), {'metadata': {'name': 'own'}})
    annotations['kubernetes.io/service-account.name'] = 'own'
    await talk.post(secrets, body)
    found = await talk.wait_until(f'{secrets}/one', lambda _, body: 'data' in body)
    assert sorted(found['data']) == ['ca.crt', 'namespace', 'token']
    await talk.delete(talk.core('serviceaccounts', 'own'))
    await talk.wait_until_gone(f'{secrets}/one')


async def serve_groups(talk: Talk) -> None:
    for path in ('/apis/flowcontrol.apiserver.k8s.io/v1', '/apis/resource.k8s.io/v1'):
        await talk.get(path)
    devices = f'{talk.namespace}-class'
    selectors = [{'cel': {'expression': 'true'}}]
    classes, claims = (
        '/apis/resource.k8s.io/v1/deviceclasses',
        f'/apis/resource.k8s.io/v1/namespaces/{talk.namespace}/resourceclaims',
    )
    await talk.post(classes, {'metadata': {'name': devices}, 'spec': {'selectors': selectors}})
    await talk.delete(f'{classes}/{devices}')
    await talk.post(claims, {'metadata': {'name': 'one'}, 'spec': {}})
    await talk.merge(f'{claims}/one', {'metadata': {'labels': {'a': 'b'}}})
    await talk.delete(f'{claims}/one')


async def ask_for_health(talk: Talk) -> None:
    for root in ('healthz', 'livez', 'readyz'):
        for path in ('', '/ping', '/etcd', '/none'):
            await talk.get(f'/{root}{path}')
        await talk.get(f'/{root}?verbose')
        await talk.get(f'/{root}?verbose&exclude=none')


async def approve_certificates(talk: Talk) -> None:
    requests = '/apis/certificates.k8s.io/v1/certificatesigningrequests'
    name = f'{talk.namespace}-one'
    made = await talk.post(requests, build_signing(name))
    approved = {'type': 'Approved', 'status': 'True', 'reason': 'any', 'message': 'any'}
    body = {**made, 'status': {'conditions': [approved]}}
    await talk.put(f'{requests}/{name}/status', body)
    await talk.put(f'{requests}/{name}/approval', body)
    await talk.get(f'{requests}/{name}/approval')
    for conditions in (
        [approved, {'type': 'Denied', 'status': 'True'}],
        [{'type': 'Approved', 'status': 'False'}],
        None,
    ):
        await talk.merge(f'{requests}/{name}/approval', {'status': {'conditions': conditions}})
    await talk.delete(f'{requests}/{name}')


TRANSCRIPTS = (
    Transcript('repeated-fields', repeat_fields),
    Transcript('plain-scalars', write_scalars),
    Transcript('odd-versions', name_versions),
    Transcript('odd-addresses', name_addresses),
    Transcript('odd-times', limit_times),
    Transcript('review-forms', show_reviews),
    Transcript('applied-scales', apply_scales),
    Transcript('token-secrets', fill_tokens),
    Transcript('more-groups', serve_groups),
    Transcript('health', ask_for_health),
    Transcript('approvals', approve_certificates),
)
