"""
Patches: of every type, on maps, lists and nulls; what they refuse; and server-side applying.
"""

from typing import Any

import fidelity_samples
from fidelity_talks import Talk, Transcript


async def merge(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    await talk.post(
        talk.custom('things'),
        fidelity_samples.build_thing(
            talk,
            spec={
                'size': 1,
                'tags': ['a', 'b'],
                'extra': {'deep': {'x': 1, 'y': 2}, 'null': None, 'list': [{'a': 1}]},
            },
        ),
    )
    await talk.post(talk.core('configmaps'), fidelity_samples.build_configmap())
    one, configmap = talk.custom('things', 'one'), talk.core('configmaps', 'one')
    for patch in (
        {},
        {'spec': {}},
        {'spec': {'size': 1}},
        {'spec': {'size': 2}},
        {'spec': {'tags': ['c']}},
        {'spec': {'extra': {'deep': {'x': None, 'z': 3}}}},
        {'spec': {'extra': {'absent': None}}},
        {'spec': {'extra': {'list': []}}},
        {'spec': {'extra': 'text'}},
        {'spec': {'extra': None}},
        {'spec': None},
        {'status': {'phase': 'x'}},
        {'metadata': {'labels': {'a': 'b'}}},
        {'metadata': {'labels': None}},
        {'metadata': {'annotations': {'a': 'b', 'c': None}}},
        {'metadata': {'name': 'other'}},
        {'metadata': {'namespace': 'other'}},
        {'metadata': {'uid': 'other'}},
        {'metadata': {'resourceVersion': '1'}},
        {'metadata': {'generation': 100}},
        {'metadata': {'creationTimestamp': None}},
        {'metadata': {'deletionTimestamp': '2020-01-01T00:00:00Z'}},
        {'metadata': {'finalizers': ['kopf.dev/f']}},
        {'metadata': {'finalizers': None}},
        {'kind': 'Other'},
        {'apiVersion': 'kopf.dev/v9'},
        [],
        'text',
        None,
        5,
    ):
        talk.note(repr(patch))
        await talk.merge(one, patch)
        await talk.merge(configmap, patch)
    talk.note('absent')
    await talk.merge(talk.custom('things', 'two'), {'spec': {}})
    await talk.merge(talk.core('configmaps', 'two'), {'data': {}})
    await talk.merge(talk.custom('things'), {'spec': {}})


async def merge_status(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    one = talk.custom('things', 'one')
    made = await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk))
    await talk.merge(f'{one}/status', {'status': {'phase': 'Ready', 'n': 1}})
    await talk.merge(f'{one}/status', {'status': {'phase': 'Ready', 'n': 1}})
    await talk.merge(f'{one}/status', {'status': {'n': None}})
    await talk.merge(f'{one}/status', {'spec': {'size': 5}, 'status': {'n': 2}})
    await talk.merge(
        f'{one}/status', {'metadata': {'labels': {'a': 'b'}, 'finalizers': ['kopf.dev/f']}}
    )
    await talk.merge(one, {'spec': {'size': 5}, 'status': {'n': 3}})
    await talk.merge(
        f'{one}/status', {'metadata': {'resourceVersion': made['metadata']['resourceVersion']}}
    )
    await talk.json(f'{one}/status', ('replace', '/status/n', 7))
    await talk.json(f'{one}/status', ('replace', '/spec/size', 7))
    await talk.merge(f'{one}/status', {'status': None})
    await talk.merge(f'{one}/scale', {'spec': {'replicas': 1}})
    await talk.merge(f'{one}/other', {'spec': {'replicas': 1}})
    await talk.merge(talk.custom('things', 'two', 'status'), {'status': {}})


async def patch_by_json(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    made = await talk.post(
        talk.custom('things'),
        fidelity_samples.build_thing(
            talk,
            finalizers=['kopf.dev/a', 'kopf.dev/b'],
            spec={'size': 1, 'tags': ['a', 'b'], 'extra': {'a/b~c': 1}},
        ),
    )
    one, version = talk.custom('things', 'one'), made['metadata']['resourceVersion']
    for operations in (
        [],
        [('test', '/spec/size', 1)],
        [('test', '/spec/size', 2)],
        [('test', '/spec/absent', 2)],
        [('test', '/metadata/resourceVersion', version), ('replace', '/spec/size', 2)],
        [('test', '/metadata/resourceVersion', version), ('replace', '/spec/size', 3)],
        [('add', '/spec/tags/-', 'c')],
        [('add', '/spec/tags/0', 'z')],
        [('remove', '/spec/tags/1')],
        [('remove', '/spec/tags/9')],
        [('remove', '/spec/absent')],
        [('replace', '/spec/absent', 1)],
        [('add', '/spec/absent/deep', 1)],
        [('replace', '/spec/extra/a~1b~0c', 2)],
        [('add', '/spec/tags', [])],
        [('add', '/status', {'x': 1})],
        [('add', '/metadata/labels', {'a': 'b'})],
        [('add', '/metadata/annotations/a', 'b')],
        [('replace', '/spec', None)],
        [('remove', '/spec')],
        [('replace', '/metadata/name', 'other')],
        [('remove', '/metadata/finalizers/0')],
        [('replace', '/metadata/finalizers', ['kopf.dev/b', 'kopf.dev/c'])],
        [('remove', '/metadata/finalizers')],
        [('explode', '/spec')],
        [('add', 'spec', {})],
        [('add', '', {})],
        [('replace', '/spec', {'size': 'x'})],
    ):
        talk.note(str(operations).replace(version, 'VERSION'))
        await talk.json(one, *operations)
    talk.note('not a patch')
    for body in (
        {},
        {'op': 'add'},
        'text',
        None,
        [1],
        [{'op': 'move', 'from': '/spec/a', 'path': '/spec/b'}],
        [{'op': 'copy', 'from': '/metadata/name', 'path': '/spec/extra'}],
    ):
        await talk.ask('PATCH', one, body, type='application/json-patch+json')


async def patch_strategically(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    await talk.post(talk.custom('things'), fidelity_samples.build_thing(talk))
    await talk.post(
        talk.core('configmaps'),
        fidelity_samples.build_configmap(finalizers=['kopf.dev/a'], labels={'a': 'b'}),
    )
    configmap = talk.core('configmaps', 'one')
    await talk.strategic(talk.custom('things', 'one'), {'spec': {'size': 2}})
    await talk.strategic(configmap, {'data': {'b': '2'}})
    await talk.strategic(configmap, {'data': {'a': None}})
    await talk.strategic(configmap, {'metadata': {'finalizers': ['kopf.dev/b']}})
    await talk.strategic(
        configmap, {'metadata': {'$deleteFromPrimitiveList/finalizers': ['kopf.dev/a']}}
    )
    await talk.strategic(configmap, {'metadata': {'labels': {'$patch': 'replace', 'c': 'd'}}})
    await talk.strategic(configmap, {'data': {'$patch': 'delete'}})
    await talk.strategic(configmap, {'metadata': {'$setElementOrder/finalizers': ['kopf.dev/b']}})
    await talk.strategic(configmap, {'metadata': {'finalizers': None}})
    await talk.strategic(configmap, {'data': {'$patch': 'explode'}})
    await talk.strategic(configmap, {'data': []})
    talk.note('wrong types')
    for type in ('application/json', 'application/yaml', 'text/plain', 'application/x-patch', ''):
        await talk.ask('PATCH', configmap, {'data': {}}, type=type)
        await talk.ask('PATCH', talk.custom('things', 'one'), {'spec': {}}, type=type)


async def apply(talk: Talk) -> None:
    await talk.define(fidelity_samples.build_crd(talk))
    for path, fields, other in (
        (
            talk.custom('things', 'one'),
            {**fidelity_samples.build_thing(talk, spec={'size': 1})},
            {'spec': {'size': 2}},
        ),
        (talk.core('configmaps', 'one'), fidelity_samples.build_configmap(), {'data': {'a': '2'}}),
    ):
        await talk.apply(path, fields)
        await talk.apply(path, fields)
        talk.note('conflict')
        await talk.apply(path, {**fields, **other}, 'another')
        await talk.apply(path, {**fields, **other}, 'another', force='true')
        await talk.apply(path, fields)
        talk.note('shared')
        await talk.apply(path, {**fields, **other})
        talk.note('given up')
        bare = {key: value for key, value in fields.items() if key not in other}
        await talk.apply(path, bare)
        await talk.apply(path, bare, 'another')
        talk.note('by an update')
        await talk.merge(path, other)
        await talk.apply(path, fields)
        talk.note('wrong')
        await talk.apply(path, fields, '')
        await talk.apply(path, {**fields, 'metadata': {'name': 'other'}})
        await talk.apply(path, {**fields, 'metadata': {'name': 'one', 'managedFields': [{}]}})
        await talk.apply(path, {**fields, 'kind': 'Other'})
        await talk.apply(path, {'metadata': {'name': 'one'}})
        await talk.apply(path, b'{: not yaml')
        await talk.ask('PATCH', path, fields, type='application/apply-patch+yaml')
    talk.note('status')
    await talk.apply(
        talk.custom('things', 'one', 'status'), fidelity_samples.build_thing(talk, status={'n': 1})
    )
    talk.note('owners of fields')
    await talk.merge(
        talk.custom('things', 'one'), {'spec': {'extra': {'x': 1}}}, fieldManager='by-hand'
    )
    await talk.merge(
        talk.custom('things', 'one'), {'spec': {'extra': {'y': 1}}}, fieldManager='x' * 129
    )
    await talk.merge(talk.custom('things', 'one'), {'metadata': {'managedFields': [{}]}})


LISTS = {
    'type': 'object',
    'properties': {
        'spec': {
            'type': 'object',
            'properties': {
                'ports': {
                    'type': 'array',
                    'x-kubernetes-list-type': 'map',
                    'x-kubernetes-list-map-keys': ['name', 'protocol'],
                    'items': {
                        'type': 'object',
                        'required': ['name'],
                        'properties': {
                            'name': {'type': 'string'},
                            'protocol': {'type': 'string', 'default': 'TCP'},
                            'number': {'type': 'integer'},
                            'tags': {'type': 'array', 'items': {'type': 'string'}},
                        },
                    },
                },
                'names': {
                    'type': 'array',
                    'x-kubernetes-list-type': 'set',
                    'items': {'type': 'string'},
                },
                'words': {
                    'type': 'array',
                    'x-kubernetes-list-type': 'atomic',
                    'items': {'type': 'string'},
                },
                'fixed': {
                    'type': 'object',
                    'x-kubernetes-map-type': 'atomic',
                    'properties': {'a': {'type': 'integer'}, 'b': {'type': 'integer'}},
                },
            },
        }
    },
}


async def apply_lists(talk: Talk) -> None:
    await talk.define(
        fidelity_samples.build_crd(talk, 'things', fidelity_samples.build_version(schema=LISTS))
    )
    one = talk.custom('things', 'one')
    http, https, dns = (
        {'name': name, 'number': port} for name, port in (('http', 80), ('https', 443), ('dns', 53))
    )

    async def apply(
        note: str, manager: str, options: dict[str, str] | None = None, **spec: Any
    ) -> None:
        talk.note(note)
        await talk.apply(
            one, fidelity_samples.build_thing(talk, spec=spec), manager, **(options or {})
        )

    await apply(
        'created', 'a', ports=[http, https], names=['x', 'y'], words=['v', 'w'], fixed={'a': 1}
    )
    await apply('more items', 'b', ports=[dns], names=['z'])
    await apply('same items', 'b', ports=[dns, http], names=['z', 'x'])
    await apply('more fields of an item', 'c', ports=[{'name': 'http', 'tags': ['p', 'q']}])
    await apply('other key', 'c', ports=[{**dns, 'protocol': 'UDP'}])
    await apply('conflict of an item', 'b', ports=[{**http, 'number': 8080}])
    await apply(
        'conflict of tags',
        'b',
        ports=[{'name': 'http', 'tags': ['r']}],
        words=['u'],
        fixed={'b': 2},
    )
    await apply(
        'forced',
        'b',
        {'force': 'true'},
        ports=[{**http, 'number': 8080}],
        words=['u'],
        fixed={'b': 2},
    )
    await apply('given back', 'b', ports=[dns])
    await apply('removed items', 'a', ports=[https], names=['y'])
    await apply(
        'order', 'a', ports=[https, {'name': 'new', 'number': 1}, dns], names=['z', 'w', 'y']
    )
    await apply('nothing', 'b')
    await apply('duplicates', 'a', ports=[http, http])
    await apply('duplicates in the set', 'a', names=['x', 'x'])
    await apply('no key', 'a', ports=[{'number': 1}])
    await apply('not a list', 'a', ports={'http': 80})
    await apply('null', 'a', ports=None, names=['y'])
    talk.note('by updates')
    await talk.merge(
        one, {'spec': {'ports': [{**https, 'number': 8443}, dns]}}, fieldManager='hand'
    )
    await talk.merge(one, {'spec': {'ports': [http, http]}}, fieldManager='hand')
    await talk.json(
        one, ('add', '/spec/ports/-', {'name': 'last', 'number': 9}), fieldManager='hand'
    )
    await talk.json(one, ('remove', '/spec/ports/0'), fieldManager='hand')
    await apply('after updates', 'a', ports=[{'name': 'last', 'number': 10}])


async def apply_lists_of_builtins(talk: Talk) -> None:
    services = talk.core('services', 'one')
    base = {'apiVersion': 'v1', 'kind': 'Service', 'metadata': {'name': 'one'}}

    async def apply(note: str, manager: str, ports: list[Any], **options: str) -> None:
        talk.note(note)
        await talk.apply(
            services, {**base, 'spec': {'clusterIP': 'None', 'ports': ports}}, manager, **options
        )

    await apply(
        'created',
        'a',
        [{'port': 80, 'name': 'http'}, {'port': 443, 'name': 'https', 'protocol': 'TCP'}],
    )
    await apply('more', 'b', [{'port': 53, 'protocol': 'UDP', 'name': 'dns'}])
    await apply('conflict', 'b', [{'port': 80, 'name': 'web'}])
    await apply('forced', 'b', [{'port': 80, 'name': 'web'}], force='true')
    await apply('removed', 'a', [{'port': 443, 'name': 'https'}])
    await apply('duplicates', 'a', [{'port': 443, 'name': 'x'}, {'port': 443, 'name': 'y'}])
    await apply('no key', 'a', [{'name': 'x'}])


TRANSCRIPTS = (
    Transcript('merge-patches', merge),
    Transcript('status-patches', merge_status),
    Transcript('json-patches', patch_by_json),
    Transcript('strategic-patches', patch_strategically),
    Transcript('applies', apply),
    Transcript('applied-lists', apply_lists),
    Transcript('applied-lists-of-builtins', apply_lists_of_builtins),
)
