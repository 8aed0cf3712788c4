"""
Objects: created, read, replaced; their versions and generations, names, and what may not be
changed.
"""

import fidelity_samples
from fidelity_talks import Talk, Transcript


async def live_as_configmap(talk: Talk) -> None:
    configmaps, one = talk.core('configmaps'), talk.core('configmaps', 'one')
    await talk.get(one)
    made = await talk.post(configmaps, fidelity_samples.build_configmap(labels={'app': 'web'}))
    await talk.post(configmaps, fidelity_samples.build_configmap())
    await talk.get(one)
    await talk.put(one, {**made, 'data': {'a': '2'}})
    await talk.put(one, {**made, 'data': {'a': '3'}})
    talk.note('without a version')
    await talk.put(one, fidelity_samples.build_configmap())
    await talk.put(one, fidelity_samples.build_configmap())
    talk.note('wrong identities')
    await talk.put(one, fidelity_samples.build_configmap('two'))
    await talk.put(one, fidelity_samples.build_configmap(namespace='default'))
    await talk.put(
        one, fidelity_samples.build_configmap(uid='00000000-0000-0000-0000-000000000000')
    )
    await talk.put(one, fidelity_samples.build_configmap(resourceVersion='x'))
    await talk.put(talk.core('configmaps', 'two'), fidelity_samples.build_configmap('two'))
    await talk.put(
        talk.core('configmaps', 'two'), fidelity_samples.build_configmap('two', resourceVersion='5')
    )
    await talk.post(configmaps, fidelity_samples.build_configmap('three', resourceVersion='5'))
    await talk.post(configmaps, fidelity_samples.build_configmap('three', namespace='default'))
    await talk.post(f'{configmaps}/one', fidelity_samples.build_configmap())
    await talk.delete(one)
    await talk.delete(one)
    await talk.get(one)


async def live_as_custom(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things, one = talk.custom('things'), talk.custom('things', 'one')
    await talk.get(one)
    made = await talk.post(things, fidelity_samples.build_thing(talk, status={'ignored': True}))
    await talk.post(things, fidelity_samples.build_thing(talk))
    await talk.get(one)
    talk.note('generations')
    same = await talk.put(one, made)
    changed = await talk.put(one, {**same, 'spec': {'size': 2}})
    await talk.put(one, {**made, 'spec': {'size': 3}})
    labelled = {**changed, 'metadata': {**changed['metadata'], 'labels': {'a': 'b'}}}
    labelled = await talk.put(one, labelled)
    await talk.put(f'{one}/status', {**labelled, 'spec': {'size': 9}, 'status': {'phase': 'Ready'}})
    await talk.put(one, {**labelled, 'status': {'phase': 'Other'}})
    await talk.get(one)
    await talk.get(f'{one}/status')
    talk.note('metadata by the status')
    latest = await talk.get(one)
    await talk.put(
        f'{one}/status',
        {
            **latest,
            'metadata': {
                **latest['metadata'],
                'labels': {'a': 'c'},
                'annotations': {'x': 'y'},
                'finalizers': ['k.dev/f'],
            },
        },
    )
    talk.note('without a version')
    await talk.put(one, fidelity_samples.build_thing(talk))
    await talk.put(one, fidelity_samples.build_thing(talk, resourceVersion='x'))
    talk.note('given by the client')
    await talk.post(
        things,
        fidelity_samples.build_thing(
            talk,
            'two',
            generation=5,
            creationTimestamp='2020-01-01T00:00:00Z',
            selfLink='/x',
            uid='00000000-0000-0000-0000-000000000000',
            deletionTimestamp='2020-01-01T00:00:00Z',
        ),
    )
    await talk.put(
        talk.custom('things', 'two'), fidelity_samples.build_thing(talk, 'two', generation=7)
    )
    await talk.delete(one)
    await talk.delete(one)


async def be_named(talk: Talk) -> None:
    configmaps = talk.core('configmaps')
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    await talk.post(configmaps, {'metadata': {'generateName': 'some-'}, 'data': {}})
    await talk.post(configmaps, {'metadata': {'generateName': 'Some-'}, 'data': {}})
    await talk.post(
        things, {**fidelity_samples.build_thing(talk), 'metadata': {'generateName': 'some-'}}
    )
    names = ('', 'UPPER', 'under_score', '-dash', 'dot.dot', 'a' * 254, 'slash/slash', '..')
    for name in names:
        talk.note(f'name {name[:20]!r}')
        await talk.post(configmaps, fidelity_samples.build_configmap(name))
        await talk.post(things, fidelity_samples.build_thing(talk, name))
    talk.note('no metadata')
    await talk.post(configmaps, {'data': {}})
    await talk.post(things, {'apiVersion': f'{talk.group}/v1', 'kind': 'Thing'})
    talk.note('namespaces')
    for name in ('dot.dot', 'a' * 64):
        await talk.post('/api/v1/namespaces', {'metadata': {'name': name}})


async def have_metadata(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    wrong = {
        'labels': {'bad key!': 'x'},
        'label values': {'a': 'bad value!'},
        'long': {'a': 'x' * 64},
        'prefix': {'Bad_Prefix/a': 'x'},
        'number': {'a': 1},
        'null': {'a': None},
    }
    for plural, body in (
        ('configmaps', fidelity_samples.build_configmap()),
        ('things', fidelity_samples.build_thing(talk)),
    ):
        path = talk.core(plural) if plural == 'configmaps' else talk.custom(plural)
        for note, labels in wrong.items():
            talk.note(note)
            await talk.post(
                path, {**body, 'metadata': {'name': 'x', 'labels': labels}}, dryRun='All'
            )
        talk.note('annotations')
        await talk.post(path, {**body, 'metadata': {'name': 'x', 'annotations': {'bad key!': 'x'}}})
        await talk.post(
            path, {**body, 'metadata': {'name': 'x', 'annotations': {'a': 'x' * 262145}}}
        )
        talk.note('finalizers')
        await talk.post(path, {**body, 'metadata': {'name': 'x', 'finalizers': ['bad name!']}})
        await talk.post(path, {**body, 'metadata': {'name': 'x', 'finalizers': ['plain']}})
        talk.note('owners')
        await talk.post(
            path, {**body, 'metadata': {'name': 'y', 'ownerReferences': [{'name': 'x'}]}}
        )
        owner = {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'name': 'x',
            'uid': 'x',
            'controller': True,
        }
        await talk.post(
            path,
            {**body, 'metadata': {'name': 'y', 'ownerReferences': [owner, {**owner, 'name': 'z'}]}},
        )
    for plural in (talk.core('configmaps', 'x'), talk.custom('things', 'x')):
        await talk.wait_until(plural, lambda *_: True)


async def be_dry(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    for path, body in (
        (talk.core('configmaps'), fidelity_samples.build_configmap()),
        (talk.custom('things'), fidelity_samples.build_thing(talk)),
    ):
        await talk.post(path, body, dryRun='All')
        await talk.get(f'{path}/one')
        await talk.post(path, body, dryRun='Some')
        await talk.post(path, body)
        await talk.merge(f'{path}/one', {'metadata': {'labels': {'a': 'b'}}}, dryRun='All')
        await talk.get(f'{path}/one')
        await talk.delete(f'{path}/one', dryRun='All')
        await talk.delete(f'{path}/one', {'dryRun': ['All']})
        await talk.get(f'{path}/one')


async def be_builtin(talk: Talk) -> None:
    secrets, deployments = talk.core('secrets'), talk.apps('deployments')
    await talk.post(
        secrets, {'metadata': {'name': 'one'}, 'stringData': {'a': 'x'}, 'data': {'b': 'eA=='}}
    )
    await talk.post(secrets, {'metadata': {'name': 'two'}, 'data': {'b': 'not base64!'}})
    await talk.merge(f'{secrets}/one', {'type': 'other'})
    await talk.merge(f'{secrets}/one', {'immutable': True})
    await talk.merge(f'{secrets}/one', {'data': {'a': 'eQ=='}})
    await talk.merge(f'{secrets}/one', {'immutable': None})
    talk.note('configmaps')
    await talk.post(talk.core('configmaps'), {'metadata': {'name': 'one'}, 'data': {'a': 1}})
    await talk.post(
        talk.core('configmaps'), {'metadata': {'name': 'one'}, 'data': {'bad key!': 'x'}}
    )
    await talk.post(
        talk.core('configmaps'),
        {'metadata': {'name': 'one'}, 'unknown': 'x'},
        fieldValidation='Strict',
    )
    await talk.post(
        talk.core('configmaps'),
        {'metadata': {'name': 'one'}, 'unknown': 'x'},
        fieldValidation='Warn',
    )
    talk.note('deployments')
    await talk.post(deployments, {'metadata': {'name': 'one'}})
    await talk.post(
        deployments,
        {
            'metadata': {'name': 'one'},
            'spec': {
                'selector': {'matchLabels': {'a': 'b'}},
                'template': {
                    'metadata': {'labels': {'a': 'c'}},
                    'spec': {'containers': [{'name': 'x', 'image': 'y'}]},
                },
            },
        },
    )
    talk.note('namespaces')
    await talk.get(f'/api/v1/namespaces/{talk.namespace}')
    await talk.post('/api/v1/namespaces', {'metadata': {'name': talk.namespace}})
    await talk.post('/api/v1/namespaces/absent-one/configmaps', fidelity_samples.build_configmap())
    await talk.get('/api/v1/namespaces/absent-one/configmaps')
    await talk.get('/api/v1/namespaces/absent-one/configmaps/one')


TRANSCRIPTS = (
    Transcript('configmap-life', live_as_configmap),
    Transcript('custom-life', live_as_custom),
    Transcript('names', be_named),
    Transcript('metadata', have_metadata),
    Transcript('dry-runs', be_dry),
    Transcript('builtins', be_builtin),
)
