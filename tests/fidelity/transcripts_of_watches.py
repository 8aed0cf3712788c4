"""
Watches: from now and from the past, with selectors, bookmarks, initial events and timeouts; and
those refused.
"""

import functools

import fidelity_samples
from fidelity_talks import Talk, Transcript


async def follow(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    for plural, body, change in (
        (
            talk.custom('things'),
            fidelity_samples.build_thing(talk, labels={'mine': 'yes'}),
            {'spec': {'size': 5}},
        ),
        (
            talk.core('configmaps'),
            fidelity_samples.build_configmap(labels={'mine': 'yes'}),
            {'data': {'a': '5'}},
        ),
    ):
        one = f'{plural}/one'
        listed = await talk.get(plural, labelSelector='mine')
        version = listed['metadata']['resourceVersion']
        async with talk.watch(plural, resourceVersion=version, labelSelector='mine') as stream:
            made = await talk.post(plural, body)
            await talk.merge(one, change)
            await talk.merge(one, change)
            await talk.merge(one, {'metadata': {'finalizers': ['kopf.dev/f']}})
            await talk.delete(one)
            await talk.merge(one, {'metadata': {'finalizers': None}})
            await stream.take(5)
        talk.note('from the past')
        async with talk.watch(
            plural, resourceVersion=made['metadata']['resourceVersion'], labelSelector='mine'
        ) as stream:
            await stream.take(4)


async def select(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    listed = await talk.get(things)
    since = {'resourceVersion': listed['metadata']['resourceVersion']}
    async with (
        talk.watch(things, labelSelector='app=web', **since) as by_label,
        talk.watch(things, fieldSelector='metadata.name=b', **since) as by_field,
        talk.watch(f'/apis/{talk.group}/v1/things', **since) as everywhere,
    ):
        await talk.post(things, fidelity_samples.build_thing(talk, 'a', labels={'app': 'web'}))
        await talk.post(things, fidelity_samples.build_thing(talk, 'b'))
        await talk.merge(f'{things}/b', {'metadata': {'labels': {'app': 'web'}}})
        await talk.merge(f'{things}/a', {'metadata': {'labels': {'app': 'db'}}})
        await talk.merge(f'{things}/a', {'spec': {'size': 3}})
        await talk.delete(f'{things}/a')
        await talk.delete(f'{things}/b')
        await by_label.take(4)
        await by_field.take(3)
        await everywhere.take(7)
    talk.note('of one object')
    created = await talk.post(things, fidelity_samples.build_thing(talk, 'c'))
    # From older ones, the cache of the server may not know it yet.
    version = created['metadata']['resourceVersion']
    async with talk.watch(f'{things}/c', resourceVersion=version) as stream:
        await stream.take(1)


async def begin(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    for name in ('a', 'b'):
        await talk.post(things, fidelity_samples.build_thing(talk, name))
    talk.note('from the latest')
    for query in ({}, {'resourceVersion': '0'}):
        async with talk.watch(things, **query) as stream:
            await stream.take(2)
    async with talk.watch(things, allowWatchBookmarks='true') as stream:
        await stream.take(3)
    async with talk.watch(things, allowWatchBookmarks='true', resourceVersion='0') as stream:
        await stream.take(3)
    talk.note('initial events')
    initial = {
        'sendInitialEvents': 'true',
        'resourceVersionMatch': 'NotOlderThan',
        'allowWatchBookmarks': 'true',
    }
    async with talk.watch(things, **initial) as stream:
        await stream.take(3)
        await talk.post(things, fidelity_samples.build_thing(talk, 'c'))
        await stream.take(1)
    async with talk.watch(things, **initial, labelSelector='none') as stream:
        await stream.take(1)
    talk.note('no initial events')
    async with talk.watch(things, **{**initial, 'sendInitialEvents': 'false'}) as stream:
        await talk.delete(f'{things}/c')
        await stream.take(1)
    talk.note('as tables and metadata')
    for kind in ('Table', 'PartialObjectMetadata'):
        accept = {'Accept': f'application/json;as={kind};v=v1;g=meta.k8s.io'}
        async with talk.watch(things, headers=accept) as stream:
            await stream.take(2)


async def list_by_watching(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    initial = {
        'sendInitialEvents': 'true',
        'resourceVersionMatch': 'NotOlderThan',
        'allowWatchBookmarks': 'true',
    }
    mine = {'labelSelector': 'mine'}
    for plural, build in (
        (talk.custom('things'), functools.partial(fidelity_samples.build_thing, talk)),
        (talk.core('configmaps'), fidelity_samples.build_configmap),
    ):
        old = await talk.post(plural, build('a', labels={'mine': 'yes'}))
        await talk.post(plural, build('b', labels={'mine': 'yes'}))
        await talk.post(plural, build('c', labels={'yours': 'yes'}))
        for version in ('0', old['metadata']['resourceVersion']):
            talk.note('since 0' if version == '0' else 'since an object')
            async with talk.watch(plural, **initial, **mine, resourceVersion=version) as stream:
                await stream.take(3)
        talk.note('with changes')
        async with talk.watch(plural, **initial, **mine) as stream:
            await stream.take(3)
            await talk.merge(f'{plural}/c', {'metadata': {'labels': {'mine': 'yes'}}})
            await talk.merge(f'{plural}/c', {'metadata': {'labels': {'mine': None}}})
            await talk.delete(f'{plural}/b')
            await stream.take(3)
        talk.note('of one object')
        async with talk.watch(plural, **initial, fieldSelector='metadata.name=a') as stream:
            await stream.take(2)
        talk.note('without bookmarks')
        async with talk.watch(
            plural, **{**initial, 'allowWatchBookmarks': 'false'}, **mine
        ) as stream:
            await stream.take(1)
            await talk.delete(f'{plural}/a')
            await stream.take(1)
        talk.note('in other forms')
        await talk.post(plural, build('d', labels={'mine': 'yes'}))
        for kind in ('Table', 'PartialObjectMetadata'):
            accept = {'Accept': f'application/json;as={kind};v=v1;g=meta.k8s.io'}
            async with talk.watch(plural, headers=accept, **initial, **mine) as stream:
                await stream.take(2)


async def end(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    listed = await talk.get(things)
    since = {'resourceVersion': listed['metadata']['resourceVersion']}
    async with talk.watch(things, timeoutSeconds=1, **since) as stream:
        await stream.rest()
    async with talk.watch(things, timeoutSeconds=1, allowWatchBookmarks='true') as stream:
        await stream.rest()
    talk.note('bookmarks before the end')
    bookmarks = {
        'timeoutSeconds': 6,
        'allowWatchBookmarks': 'true',
        'labelSelector': 'none',
        **since,
    }
    async with (
        talk.watch(things, **bookmarks) as plain,
        talk.watch(things, **bookmarks, headers={'Accept': fidelity_samples.TABLE}) as table,
    ):
        # Not for these watches, but there is some progress.
        await talk.post(things, fidelity_samples.build_thing(talk))
        await plain.take(1, bookmarks=True)
        await table.take(1, bookmarks=True)


async def be_too_late(talk: Talk) -> None:
    before = await talk.get('/api/v1/namespaces', fieldSelector='metadata.name=default')
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    for name in ('a', 'b', 'c'):
        await talk.post(things, fidelity_samples.build_thing(talk, name))
    await talk.get(things, limit=1)
    await talk.merge(f'{things}/c', {'spec': {'size': 2}})
    await talk.compact()
    talk.note('watches')
    for query in ({}, {'allowWatchBookmarks': 'true'}):
        async with talk.watch(
            things, resourceVersion=before['metadata']['resourceVersion'], **query
        ) as stream:
            await stream.rest()
    talk.note('lists')
    await talk.get(
        things, resourceVersion=before['metadata']['resourceVersion'], resourceVersionMatch='Exact'
    )


async def be_refused(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    things = talk.custom('things')
    initial = {
        'sendInitialEvents': 'true',
        'resourceVersionMatch': 'NotOlderThan',
        'allowWatchBookmarks': 'true',
    }
    for query in (
        {'resourceVersion': 'x'},
        {'labelSelector': 'bad key=x'},
        {'fieldSelector': 'spec.size=1'},
        {'timeoutSeconds': 'x'},
        {'resourceVersionMatch': 'Exact'},
        {'resourceVersionMatch': 'NotOlderThan'},
        {'sendInitialEvents': 'true'},
        {**initial, 'resourceVersionMatch': 'Exact'},
        {'sendInitialEvents': 'true', 'resourceVersionMatch': 'NotOlderThan'} | {'limit': 'x'},
        {'continue': 'x', 'sendInitialEvents': 'true', 'resourceVersionMatch': 'NotOlderThan'},
    ):
        async with talk.watch(things, **query):
            pass
    async with talk.watch(talk.custom('others')):
        pass
    talk.note('in lists')
    await talk.get(things, sendInitialEvents='true')
    await talk.get(things, **initial)


TRANSCRIPTS = (
    Transcript('watches', follow),
    Transcript('watch-selectors', select),
    Transcript('watch-beginnings', begin),
    Transcript('watch-lists', list_by_watching),
    Transcript('watch-endings', end),
    Transcript('expired-versions', be_too_late, is_intrusive=True),
    Transcript('watch-refusals', be_refused),
)
