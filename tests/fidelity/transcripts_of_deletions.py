"""
Deletions: finalizers, preconditions, propagation to dependents, collections, and namespaces.
"""

from typing import Any

import fidelity_samples
from fidelity_talks import Talk, Transcript


async def wait_for_finalizers(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    for plural, body in (
        (talk.custom('things'), fidelity_samples.build_thing(talk)),
        (talk.core('configmaps'), fidelity_samples.build_configmap()),
    ):
        one = f'{plural}/one'
        finalizers = {'finalizers': ['kopf.dev/a', 'kopf.dev/b']}
        await talk.post(plural, {**body, 'metadata': {**body['metadata'], **finalizers}})
        await talk.delete(one)
        await talk.delete(one)
        await talk.get(one)
        talk.note('while being deleted')
        await talk.post(plural, body)
        await talk.merge(one, {'metadata': {'labels': {'a': 'b'}}})
        await talk.merge(
            one, {'metadata': {'finalizers': ['kopf.dev/a', 'kopf.dev/b', 'kopf.dev/c']}}
        )
        await talk.merge(one, {'metadata': {'deletionTimestamp': None}})
        await talk.merge(one, {'metadata': {'finalizers': ['kopf.dev/b']}})
        await talk.json(
            one,
            ('test', '/metadata/finalizers/0', 'kopf.dev/a'),
            ('remove', '/metadata/finalizers/0'),
        )
        await talk.json(
            one,
            ('test', '/metadata/finalizers/0', 'kopf.dev/b'),
            ('remove', '/metadata/finalizers/0'),
        )
        await talk.get(one)
        talk.note('anew')
        await talk.post(plural, body)
        await talk.delete(one)


async def have_conditions(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    for plural, body in (
        (talk.custom('things'), fidelity_samples.build_thing(talk)),
        (talk.core('configmaps'), fidelity_samples.build_configmap()),
    ):
        one = f'{plural}/one'
        made = await talk.post(plural, body)
        uid, version = made['metadata']['uid'], made['metadata']['resourceVersion']
        await talk.delete(one, {'preconditions': {'uid': '00000000-0000-0000-0000-000000000000'}})
        await talk.merge(one, {'metadata': {'labels': {'a': 'b'}}})
        await talk.delete(one, {'preconditions': {'resourceVersion': version}})
        await talk.delete(one, {'propagationPolicy': 'Sideways'})
        await talk.delete(one, {'propagationPolicy': 'Orphan', 'orphanDependents': True})
        await talk.delete(one, {'gracePeriodSeconds': -1})
        await talk.delete(one, {'kind': 'Other', 'apiVersion': 'v1'})
        await talk.delete(one, b'{not json')
        await talk.delete(one, {'preconditions': {'uid': uid}, 'gracePeriodSeconds': 0})


async def propagate(talk: Talk) -> None:
    # Kinds that garbage collectors know at once.
    secrets, configmaps = (
        talk.core('secrets'),
        talk.core('configmaps'),
    )
    for policy in ('Background', 'Foreground', 'Orphan'):
        talk.note(policy)
        owner = await talk.post(secrets, {'metadata': {'name': 'owner'}})
        reference = {
            'apiVersion': 'v1',
            'kind': 'Secret',
            'name': 'owner',
            'uid': owner['metadata']['uid'],
            'blockOwnerDeletion': True,
            'controller': True,
        }
        await talk.post(
            configmaps, fidelity_samples.build_configmap('child', ownerReferences=[reference])
        )
        # So the collector knows of what was made before: the child.
        await wait_until_collected(talk, reference)
        await talk.delete(f'{secrets}/owner', propagationPolicy=policy)
        await talk.wait_until_gone(f'{secrets}/owner')
        if policy != 'Orphan':
            await talk.wait_until_gone(f'{configmaps}/child')
        await talk.get(f'{configmaps}/child')


async def wait_until_collected(talk: Talk, reference: dict[str, Any]) -> None:
    """Make an object of an absent owner, and wait until it is gone."""
    absent = {**reference, 'uid': '00000000-0000-0000-0000-000000000000'}
    await talk.post(
        talk.core('configmaps'), fidelity_samples.build_configmap('waif', ownerReferences=[absent])
    )
    await talk.wait_until_gone(talk.core('configmaps', 'waif'))


async def collect(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    for plural, body in (
        (talk.custom('things'), fidelity_samples.build_thing(talk)),
        (talk.core('configmaps'), fidelity_samples.build_configmap()),
    ):
        for name in ('a', 'b', 'c'):
            metadata = {'name': name, 'labels': {'n': name, 'x': 'y'}}
            await talk.post(plural, {**body, 'metadata': metadata})
        await talk.delete(plural, labelSelector='n=a')
        await talk.delete(plural, labelSelector='n=a')
        await talk.delete(plural, labelSelector='bad!')
        await talk.get(plural, labelSelector='x')
        await talk.merge(f'{plural}/b', {'metadata': {'finalizers': ['kopf.dev/f']}})
        await talk.delete(plural, labelSelector='x')
        await talk.get(plural, labelSelector='x')
        await talk.merge(f'{plural}/b', {'metadata': {'finalizers': None}})
    await talk.delete(f'/apis/{talk.group}/v1/things')


async def end_namespaces(talk: Talk) -> None:
    name = f'{talk.namespace}-more'
    path, configmaps = f'/api/v1/namespaces/{name}', f'/api/v1/namespaces/{name}/configmaps'
    await talk.post('/api/v1/namespaces', {'metadata': {'name': name}})
    await talk.post(configmaps, fidelity_samples.build_configmap(finalizers=['kopf.dev/f']))
    await talk.delete(path)
    await talk.wait_until(path, lambda _, body: 'conditions' in body['status'])
    await talk.post(configmaps, fidelity_samples.build_configmap('two'))
    await talk.post('/api/v1/namespaces', {'metadata': {'name': name}})
    await talk.delete(path)
    await talk.get(path)
    await talk.merge(f'{configmaps}/one', {'metadata': {'labels': {'a': 'b'}}})
    await talk.merge(f'{configmaps}/one', {'metadata': {'finalizers': None}})
    await talk.wait_until_gone(path)
    await talk.get(path)
    await talk.get(f'{configmaps}/one')
    await talk.delete(path)
    talk.note('protected')
    await talk.delete('/api/v1/namespaces/default')


TRANSCRIPTS = (
    Transcript('finalizers', wait_for_finalizers),
    Transcript('preconditions', have_conditions),
    Transcript('propagation', propagate),
    Transcript('collections', collect),
    Transcript('namespaces', end_namespaces),
)
