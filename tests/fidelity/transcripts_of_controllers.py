"""
What the cluster makes and finishes by itself: the initial objects, and protected storages.
"""

from fidelity_talks import Talk, Transcript

AUTHORITY = 'kube-root-ca.crt'
CLASSES = '/apis/storage.k8s.io/v1/volumeattributesclasses'


async def begin_namespaces(talk: Talk) -> None:
    account, authority = (
        talk.core('serviceaccounts', 'default'),
        talk.core('configmaps', AUTHORITY),
    )
    for path in (account, authority):
        await talk.wait_until(path, lambda code, _: code == 200)
        await talk.get(path)
    talk.note('restored when deleted')
    for path in (account, authority):
        old = await talk.get(path)
        await talk.delete(path)
        await talk.wait_until(path, lambda code, body, old=old: code == 200 and not _is(body, old))
        await talk.get(path)
    talk.note('restored when changed')
    data = {'ca.crt': 'wrong', 'more': 'data'}
    await talk.merge(authority, {'data': data, 'metadata': {'labels': {'own': 'label'}}})
    await talk.wait_until(authority, lambda _, body: 'more' not in body['data'])
    await talk.get(authority)
    talk.note('of the whole cluster')
    await talk.get('/apis/networking.k8s.io/v1/servicecidrs/kubernetes')
    await talk.get('/api/v1/namespaces/default/services/kubernetes')
    for name in ('system-node-critical', 'system-cluster-critical'):
        await talk.get(f'/apis/scheduling.k8s.io/v1/priorityclasses/{name}')


def _is(body: dict, old: dict) -> bool:
    return body['metadata']['uid'] == old['metadata']['uid']


def build_claim(name: str, **spec: object) -> dict:
    resources = {'requests': {'storage': '1Gi'}}
    given = {'accessModes': ['ReadWriteOnce'], 'resources': resources, 'storageClassName': 'none'}
    return {'metadata': {'name': name}, 'spec': {**given, **spec}}


def build_user(name: str, claim: str, **spec: object) -> dict:
    containers = [{'name': 'main', 'image': 'none'}]
    volumes = [{'name': 'data', 'persistentVolumeClaim': {'claimName': claim}}]
    return {
        'metadata': {'name': name},
        'spec': {
            'containers': containers,
            'volumes': volumes,
            'automountServiceAccountToken': False,
            **spec,
        },
    }


async def protect_claims(talk: Talk) -> None:
    claims, pods = talk.core('persistentvolumeclaims'), talk.core('pods')
    await talk.wait_until_accepted(pods, build_user('any', 'any'))
    talk.note('unused')
    await talk.post(claims, build_claim('unused'))
    await talk.delete(f'{claims}/unused')
    await talk.wait_until_gone(f'{claims}/unused')
    talk.note('used by a pod on no node')
    await talk.post(claims, build_claim('waiting'))
    await talk.wait_until_accepted(pods, build_user('waiter', 'waiting'))
    await talk.delete(f'{claims}/waiting')
    await talk.wait_until_gone(f'{claims}/waiting')
    talk.note('used by a pod on a node')
    await talk.post(claims, build_claim('used'))
    made = build_user('user', 'used', nodeName='no-such-node', terminationGracePeriodSeconds=0)
    await talk.wait_until_accepted(pods, made)
    await talk.post(pods, made)
    await talk.delete(f'{claims}/used')
    await talk.get(f'{claims}/used')
    await talk.delete(f'{pods}/user', gracePeriodSeconds=0)
    await talk.wait_until_gone(f'{claims}/used')
    await talk.get(f'{claims}/used')
    talk.note('a lost finalizer')
    await talk.post(claims, build_claim('bare'))
    await talk.merge(f'{claims}/bare', {'metadata': {'finalizers': None}})
    await talk.wait_until(
        f'{claims}/bare', lambda _, body: bool(body['metadata'].get('finalizers'))
    )
    await talk.get(f'{claims}/bare')


async def protect_classes(talk: Talk) -> None:
    claims, name = talk.core('persistentvolumeclaims'), f'{talk.namespace}-class'
    body = {'metadata': {'name': name}, 'driverName': 'none', 'parameters': {'a': 'b'}}
    await talk.post(CLASSES, body)
    await talk.post(claims, build_claim('user', volumeAttributesClassName=name))
    await talk.wait_until(f'{claims}/user', lambda code, _: code == 200)
    await talk.delete(f'{CLASSES}/{name}')
    await talk.get(f'{CLASSES}/{name}')
    await talk.delete(f'{claims}/user')
    await talk.wait_until_gone(f'{CLASSES}/{name}')


TRANSCRIPTS = (
    Transcript('initial-objects', begin_namespaces),
    Transcript('protected-claims', protect_claims),
    Transcript('protected-classes', protect_classes),
)
