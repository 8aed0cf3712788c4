"""
Lists: selectors, pages, versions, and other representations.
"""

import functools

import fidelity_samples
from fidelity_talks import Talk, Transcript

UNKNOWN = 'application/json;as=Other;v=v1;g=meta.k8s.io'
PARTIAL = 'application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io'
PARTIALS = 'application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io'


async def select(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    paths = talk.custom('things'), talk.core('configmaps')
    for name, labels in (
        ('a', {'app': 'web', 'n': '1'}),
        ('b', {'app': 'db', 'n': '2'}),
        ('c', {'n': '3'}),
        ('d', {}),
    ):
        labels = {'mine': 'yes', **labels}
        await talk.post(paths[0], fidelity_samples.build_thing(talk, name, labels=labels))
        await talk.post(paths[1], fidelity_samples.build_configmap(name, labels=labels))
    selectors = (
        'app=web',
        'app==web',
        'app!=web',
        'app',
        '!app',
        'app in (web,db)',
        'app notin (web)',
        'n>1',
        'n<2',
        'n>x',
        'app=web,n=2',
        'app in (web, db),n notin (2)',
        'app=',
        'app in ()',
        ' app = web ',
        '=web',
        'app=web,',
        'app>',
        'bad key=x',
        'app=bad value',
        'app in (web',
        ',',
    )
    for path in paths:
        for selector in selectors:
            await talk.get(path, labelSelector=f'mine,{selector}')
        for selector in (
            'metadata.name=a',
            'metadata.name!=a',
            'metadata.name==a',
            f'metadata.namespace={talk.namespace}',
            'metadata.namespace=other',
            'spec.size=1',
            'metadata.name',
            'metadata.name in (a)',
            'metadata.name=a,metadata.name=b',
        ):
            await talk.get(path, fieldSelector=selector, labelSelector='mine')


async def page(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    for index in range(5):
        await talk.post(
            things, fidelity_samples.build_thing(talk, f'n{index}', labels={'odd': str(index % 2)})
        )
    first = await talk.get(things, limit=2)
    token = first['metadata']['continue']
    await talk.delete(f'{things}/n3')
    await talk.post(things, fidelity_samples.build_thing(talk, 'n9'))
    second = await talk.get(things, limit=2, **{'continue': token})
    await talk.get(things, limit=2, **{'continue': second['metadata']['continue']})
    await talk.get(things, **{'continue': token})
    await talk.get(things, limit=5)
    await talk.get(things, limit=100)
    await talk.get(things, limit=0)
    await talk.get(things, limit=-1)
    await talk.get(things, limit='x')
    await talk.get(things, limit=1, labelSelector='odd=0')
    await talk.get(things, **{'continue': 'garbage'})
    await talk.get(
        things, **{'continue': token}, resourceVersion=first['metadata']['resourceVersion']
    )


async def lose_pages(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    tokens = {}
    for path, build in (
        (talk.custom('things'), functools.partial(fidelity_samples.build_thing, talk)),
        (talk.core('configmaps'), fidelity_samples.build_configmap),
    ):
        for index in range(6):
            await talk.post(path, build(f'n{index}', labels={'mine': 'yes'}))
        first = await talk.get(path, limit=2, labelSelector='mine')
        tokens[path] = first['metadata']['continue']
        await talk.merge(f'{path}/n1', {'metadata': {'labels': {'a': 'b'}}})
        await talk.delete(f'{path}/n3')
    await talk.forget('things')
    for path, token in tokens.items():
        query = {'limit': 2, 'labelSelector': 'mine'}
        talk.note('expired')
        expired = await talk.get(path, **query, **{'continue': token})
        talk.note('inconsistent')
        rest = await talk.get(path, **query, **{'continue': expired['metadata']['continue']})
        await talk.get(path, **query, **{'continue': rest['metadata']['continue']})


async def be_of_versions(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    made = await talk.post(things, fidelity_samples.build_thing(talk))
    old = made['metadata']['resourceVersion']
    await talk.merge(f'{things}/one', {'spec': {'size': 2}})
    for version in ('', '0', old):
        talk.note('0' if version == '0' else 'a known version' if version else 'the latest')
        await talk.get(f'{things}/one', resourceVersion=version) if version != '0' else None
        for match in ('', 'NotOlderThan', 'Exact', 'Wrong'):
            if (version, match) not in (('0', ''), ('0', 'NotOlderThan')):
                await talk.get(
                    things,
                    resourceVersion=version,
                    **({'resourceVersionMatch': match} if match else {}),
                )
    talk.note('impossible versions')
    for version in ('x', '-1', '1.5'):
        await talk.get(things, resourceVersion=version)
        await talk.get(f'{things}/one', resourceVersion=version)
    await talk.get(things, resourceVersion='999999999')
    await talk.get(things, resourceVersionMatch='Exact')


async def be_represented(talk: Talk) -> None:
    columns = [
        {'name': 'Size', 'type': 'integer', 'jsonPath': '.spec.size'},
        {'name': 'Color', 'type': 'string', 'jsonPath': '.spec.color', 'priority': 1},
        {'name': 'Born', 'type': 'date', 'jsonPath': '.metadata.creationTimestamp'},
    ]
    await talk.define(
        fidelity_samples.build_crd(
            talk, 'things', fidelity_samples.build_version(additionalPrinterColumns=columns)
        )
    )
    await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk))
    await talk.post(
        talk.core('configmaps'), fidelity_samples.build_configmap(labels={'mine': 'yes'})
    )
    for path, selector in ((talk.custom('things'), ''), (talk.core('configmaps'), 'mine')):
        for accept in (fidelity_samples.TABLE, PARTIALS):
            talk.note(accept)
            await talk.get(path, labelSelector=selector, headers={'Accept': accept})
        for accept in (
            fidelity_samples.TABLE,
            PARTIAL,
            'application/yaml',
            'text/html',
            UNKNOWN,
            '*/*',
            'application/*',
            f'{fidelity_samples.TABLE},application/json',
            f'application/json,{fidelity_samples.TABLE}',
        ):
            talk.note(accept)
            await talk.get(f'{path}/one', headers={'Accept': accept})


TRANSCRIPTS = (
    Transcript('selectors', select),
    Transcript('pages', page),
    Transcript('expired-pages', lose_pages, is_intrusive=True),
    Transcript('versions', be_of_versions),
    Transcript('representations', be_represented),
)
