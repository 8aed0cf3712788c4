"""
The life of custom resources: served at once, changed with their schemas, in versions, gone with
their definitions.
"""

import asyncio
import copy

import pytest
from sandbox_http import GROUP, build_crd, build_version

CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'


@pytest.fixture
def plural(namespace):
    """The name of a resource that no other test has."""
    return f'gadgets{namespace.rpartition("-")[2]}s'


@pytest.fixture
def path(namespace, plural):
    return f'/apis/{GROUP}/v1/namespaces/{namespace}/{plural}'


def build(plural, name, version='v1', **fields):
    kind = plural.removesuffix('s').capitalize()
    return {'apiVersion': f'{GROUP}/{version}', 'kind': kind, 'metadata': {'name': name}, **fields}


def build_defaulting_version(name, *, storage=True, served=True, **defaults):
    """A version with these fields in the spec, with or without the defaults."""
    fields = {
        key: {'type': 'string'} | ({'default': value} if value else {})
        for key, value in defaults.items()
    }
    schema = {'type': 'object', 'properties': {'spec': {'type': 'object', 'properties': fields}}}
    return build_version(name, storage=storage, served=served, schema={'openAPIV3Schema': schema})


def conditions_of(crd):
    return {
        condition['type']: (condition['status'], condition['reason'])
        for condition in crd['status']['conditions']
    }


async def test_resource_is_served_and_discovered_at_once(api, plural, path):
    made = await api.make(CRDS, build_crd(plural, build_version(subresources={'status': {}})))

    found = (await api.get(f'/apis/{GROUP}/v1')).body['resources']
    listed = await api.get(path)
    created = await api.post(path, build(plural, 'a'))
    openapi = (await api.get(f'/openapi/v3/apis/{GROUP}/v1')).body

    assert {plural, f'{plural}/status'} <= {resource['name'] for resource in found}
    assert (listed.code, created.code) == (200, 201)
    assert f'/apis/{GROUP}/v1/namespaces/{{namespace}}/{plural}/{{name}}' in openapi['paths']
    assert made['spec']['names']['listKind'] == f'{made["spec"]["names"]["kind"]}List'
    stored = (await api.get(f'{CRDS}/{plural}.{GROUP}')).body
    assert conditions_of(stored) == {
        'NamesAccepted': ('True', 'NoConflicts'),
        'Established': ('True', 'InitialNamesAccepted'),
    }
    assert stored['status']['storedVersions'] == ['v1']
    assert stored['metadata']['generation'] == 1


async def test_invalid_definition_is_refused(api):
    crd = build_crd('wrongs')
    crd['metadata']['name'] = 'other.name'

    reply = await api.post(CRDS, crd)

    assert reply.code == 422
    assert reply.body['message'] == (
        'CustomResourceDefinition.apiextensions.k8s.io "other.name" is invalid: metadata.name: Invalid value: '
        '"other.name": '
        'must be spec.names.plural+"."+spec.group'
    )


async def test_changed_schema_applies_to_stored_objects(api, plural, path):
    crd = build_crd(plural)
    await api.make(CRDS, crd)
    made = await api.make(path, build(plural, 'a', spec={'size': 1}))
    changed = copy.deepcopy(crd['spec']['versions'])
    changed[0]['schema']['openAPIV3Schema']['properties']['spec'] = {
        'type': 'object',
        'properties': {
            'size': {'type': 'integer', 'maximum': 5},
            'shape': {'type': 'string', 'default': 'round'},
        },
    }

    patched = await api.merge(f'{CRDS}/{plural}.{GROUP}', {'spec': {'versions': changed}})
    read = (await api.get(f'{path}/a')).body
    refused = await api.merge(f'{path}/a', {'spec': {'size': 9}})

    assert patched.body['metadata']['generation'] == 2
    assert read['spec'] == {'size': 1, 'shape': 'round'}
    assert read['metadata']['resourceVersion'] == made['metadata']['resourceVersion']
    assert refused.code == 422
    assert 'spec.size in body should be less than or equal to 5' in refused.body['message']


async def test_objects_are_served_in_all_versions(api, plural, path):
    await api.make(
        CRDS,
        build_crd(
            plural,
            build_version('v1', storage=False),
            build_version('v2'),
            build_version('v3', served=False, storage=False),
        ),
    )
    newer = path.replace('/v1/', '/v2/')

    made = await api.make(path, build(plural, 'a', spec={'size': 1}))
    read = (await api.get(f'{newer}/a')).body
    changed = await api.merge(f'{newer}/a', {'spec': {'size': 2}})
    listed = (await api.get(newer)).body
    async with api.watch(path) as stream:
        _, event = await stream.next()

    assert made['apiVersion'] == f'{GROUP}/v1'
    assert (
        read['apiVersion'] == f'{GROUP}/v2' and read['metadata']['uid'] == made['metadata']['uid']
    )
    assert changed.body['apiVersion'] == f'{GROUP}/v2'
    assert (listed['apiVersion'], [item['apiVersion'] for item in listed['items']]) == (
        f'{GROUP}/v2',
        [f'{GROUP}/v2'],
    )
    assert (event['apiVersion'], event['spec']) == (f'{GROUP}/v1', {'size': 2, 'color': 'grey'})
    assert (await api.get(path.replace('/v1/', '/v3/'))).code == 404
    stored = (await api.get(f'{CRDS}/{plural}.{GROUP}')).body
    assert stored['status']['storedVersions'] == ['v2']


async def test_defaults_are_those_of_the_stored_version(api, plural, path):
    versions = [
        build_defaulting_version('v1', storage=False, a='a1', c='c1'),
        build_defaulting_version('v2', b='b2', a=None, c='c2'),
        build_defaulting_version('v3', storage=False, a=None, b=None, c=None, e='e3'),
    ]
    await api.make(CRDS, build_crd(plural, *versions))
    seconds, thirds = path.replace('/v1/', '/v2/'), path.replace('/v1/', '/v3/')

    by_first = await api.make(path, build(plural, 'x', spec={}))
    by_third = await api.make(thirds, build(plural, 'y', 'v3', spec={}))
    read = [
        (await api.get(f'{place}/{name}')).body['spec']
        for name in 'xy'
        for place in (path, seconds, thirds)
    ]

    assert by_first['spec'] == {'a': 'a1', 'c': 'c1'}
    assert by_third['spec'] == {'b': 'b2', 'c': 'c2'}
    assert read[:3] == [{'a': 'a1', 'c': 'c1'}, *[{'a': 'a1', 'b': 'b2', 'c': 'c1'}] * 2]
    assert read[3:] == [{'c': 'c2'}, *[{'b': 'b2', 'c': 'c2'}] * 2]


async def test_defaults_of_a_stored_version_apply_though_it_is_not_served(api, plural, path):
    hidden = build_defaulting_version('v2', served=False, a=None)
    await api.make(
        CRDS,
        build_crd(plural, build_defaulting_version('v1', storage=False, a=None, b=None), hidden),
    )
    await api.make(path, build(plural, 'x', spec={'a': '1', 'b': '2'}))
    hidden = build_defaulting_version('v2', served=False, a=None, b='b2')

    before = (await api.get(f'{path}/x')).body['spec']
    versions = [build_defaulting_version('v1', storage=False, a=None, b=None), hidden]
    await api.merge(f'{CRDS}/{plural}.{GROUP}', {'spec': {'versions': versions}})
    after = (await api.get(f'{path}/x')).body['spec']

    assert (before, after) == ({'a': '1'}, {'a': '1', 'b': 'b2'})


async def test_new_version_is_served_after_an_update(api, plural, path):
    crd = build_crd(plural)
    await api.make(CRDS, crd)
    await api.make(path, build(plural, 'a'))

    await api.merge(
        f'{CRDS}/{plural}.{GROUP}',
        {'spec': {'versions': [build_version('v1', storage=False), build_version('v2')]}},
    )

    assert (await api.get(f'{path.replace("/v1/", "/v2/")}/a')).body['apiVersion'] == f'{GROUP}/v2'
    stored = (await api.get(f'{CRDS}/{plural}.{GROUP}')).body
    assert stored['status']['storedVersions'] == ['v1', 'v2']


async def test_deleted_definition_takes_its_objects_and_ends_the_watches(api, plural, path):
    await api.make(CRDS, build_crd(plural))
    await api.make(path, build(plural, 'a'))
    await api.make(path, build(plural, 'b'))

    async with api.watch(path) as stream:
        await stream.take(2)
        reply = await api.delete(f'{CRDS}/{plural}.{GROUP}')
        events = await stream.rest()

    assert reply.code == 200
    assert [(type, event['metadata']['name']) for type, event in events] == [
        ('DELETED', 'a'),
        ('DELETED', 'b'),
    ]
    assert (await api.get(f'{CRDS}/{plural}.{GROUP}')).code == 404
    assert (await api.get(path)).code == 404
    assert plural not in {
        resource['name'] for resource in (await api.get(f'/apis/{GROUP}/v1')).body['resources']
    }


async def test_deleted_definition_waits_for_its_objects(api, plural, path):
    await api.make(CRDS, build_crd(plural))
    await api.make(
        path, {**build(plural, 'a'), 'metadata': {'name': 'a', 'finalizers': ['example.com/x']}}
    )

    async with api.watch(path) as stream:
        await stream.take(1)
        reply = await api.delete(f'{CRDS}/{plural}.{GROUP}')
        type, event = await stream.next()
        terminating = (await api.get(f'{CRDS}/{plural}.{GROUP}')).body
        refused = await api.post(path, build(plural, 'b'))
        await api.merge(f'{path}/a', {'metadata': {'finalizers': None}})
    await api.wait_until_gone(f'{CRDS}/{plural}.{GROUP}')

    assert type == 'MODIFIED' and event['metadata']['deletionTimestamp']
    assert terminating['metadata']['finalizers'] == ['customresourcecleanup.apiextensions.k8s.io']
    assert (
        terminating['metadata']['generation'] == 1
        and 'deletionGracePeriodSeconds' not in terminating['metadata']
    )
    assert conditions_of(reply.body)['Terminating'] == ('True', 'InstanceDeletionPending')
    assert conditions_of(terminating)['Terminating'] == ('True', 'InstanceDeletionInProgress')
    assert refused.code == 403
    assert refused.body['message'] == (
        f'{plural}.{GROUP} "b" is forbidden: create not allowed while custom resource definition is terminating'
    )


async def test_recreated_definition_begins_anew(api, plural, path):
    await api.make(CRDS, build_crd(plural))
    await api.make(path, build(plural, 'a'))
    await api.delete(f'{CRDS}/{plural}.{GROUP}')
    await api.wait_until_gone(f'{CRDS}/{plural}.{GROUP}')

    await api.make(CRDS, build_crd(plural))

    assert await api.names(path) == []


async def test_resources_without_namespaces_are_served_without_them(api, plural, namespace, path):
    await api.make(CRDS, build_crd(plural, scope='Cluster'))

    made = await api.make(f'/apis/{GROUP}/v1/{plural}', build(plural, 'a'))

    assert 'namespace' not in made['metadata']
    assert (await api.get(path)).code == 404


async def test_rules_of_the_api_are_set_as_defaults_and_kept(api, plural, path):
    schema = {
        'type': 'object',
        'properties': {
            'spec': {
                'type': 'object',
                'default': {},
                'properties': {
                    'port': {'x-kubernetes-int-or-string': True},
                    'any': {'type': 'object', 'x-kubernetes-preserve-unknown-fields': True},
                    'mode': {'type': 'string', 'enum': ['fast', 'slow'], 'default': 'fast'},
                    'template': {
                        'type': 'object',
                        'x-kubernetes-embedded-resource': True,
                        'x-kubernetes-preserve-unknown-fields': True,
                    },
                },
            }
        },
    }
    await api.make(CRDS, build_crd(plural, build_version(schema={'openAPIV3Schema': schema})))

    made = await api.make(
        path, build(plural, 'a', spec={'port': 'http', 'any': {'x': {'y': 1}}, 'gone': 1})
    )
    empty = await api.make(path, build(plural, 'b'))
    embedded = await api.post(path, build(plural, 'c', spec={'template': {'kind': 'Pod'}}))

    assert made['spec'] == {'port': 'http', 'any': {'x': {'y': 1}}, 'mode': 'fast'}
    assert empty['spec'] == {'mode': 'fast'}
    assert embedded.code == 422
    assert [cause['field'] for cause in embedded.body['details']['causes']] == [
        'spec.template.apiVersion'
    ]


async def test_names_of_others_are_not_taken(api, plural, path):
    await api.make(CRDS, build_crd(plural))
    twin = build_crd(f'twin{plural}')
    twin['spec']['names']['kind'] = build_crd(plural)['spec']['names']['kind']

    await api.make(CRDS, twin)
    async with asyncio.timeout(10):
        while (
            'conditions'
            not in (stored := (await api.get(f'{CRDS}/twin{plural}.{GROUP}')).body)['status']
        ):
            pass

    assert conditions_of(stored)['NamesAccepted'][0] == 'False'
    assert conditions_of(stored)['Established'] == ('False', 'NotAccepted')
    assert (await api.get(path.replace(plural, f'twin{plural}'))).code == 404


async def test_switch_of_the_storage_version_is_seen_in_its_answer(api, sandbox):
    versions = [
        {
            'name': name,
            'served': True,
            'storage': name == 'v1',
            'schema': {'openAPIV3Schema': {'type': 'object'}},
        }
        for name in ('v1', 'v2')
    ]
    body = {
        'apiVersion': 'apiextensions.k8s.io/v1',
        'kind': 'CustomResourceDefinition',
        'metadata': {'name': 'switches.tests.kopf.dev'},
        'spec': {
            'group': 'tests.kopf.dev',
            'scope': 'Namespaced',
            'versions': versions,
            'names': {'plural': 'switches', 'kind': 'Switch'},
        },
    }
    path = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
    await api.make(path, body)
    stored = (await api.get(f'{path}/switches.tests.kopf.dev')).body
    for version in stored['spec']['versions']:
        version['storage'] = version['name'] == 'v2'

    reply = await api.put(f'{path}/switches.tests.kopf.dev', stored)
    await api.delete(f'{path}/switches.tests.kopf.dev')

    assert reply.body['status']['storedVersions'] == ['v1', 'v2']
