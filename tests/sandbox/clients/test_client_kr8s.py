"""
The modern client: ``kr8s``, with both of its faces, asynchronous and synchronous.
"""

import asyncio
import subprocess
import sys

import kr8s
import kr8s.asyncio
import pytest
from kr8s.asyncio import objects


class Widget(objects.APIObject):
    version = 'clients.kopf.dev/v1'
    endpoint = 'widgets'
    kind = 'Widget'
    plural = 'widgets'
    singular = 'widget'
    namespaced = True
    scalable = True
    scalable_spec = 'replicas'


@pytest.fixture
async def api(sandbox):
    api = await kr8s.asyncio.api(kubeconfig=str(sandbox.kubeconfig))
    yield api
    await settle()
    if api._session is not None:
        # It does not close its connections by itself, and has no means for that.
        await api._session.aclose()


async def settle():
    """
    Wait for the generators that the client leaves half-way, which are closed in the background, one
    by one.
    """
    async with asyncio.timeout(5):
        await asyncio.sleep(0)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
            await asyncio.sleep(0)


def build(cls, name, **fields):
    metadata = {'name': name, 'namespace': 'default', **fields.pop('metadata', {})}
    return {'apiVersion': cls.version, 'kind': cls.kind, 'metadata': metadata, **fields}


async def names_of(iterator):
    return [item.name async for item in iterator]


async def test_objects_are_created_and_read(api):
    configmap = await objects.ConfigMap(
        build(objects.ConfigMap, 'cm', data={'key': 'value'}), api=api
    )
    secret = await objects.Secret(
        build(objects.Secret, 'secret', stringData={'password': 'qwerty'}), api=api
    )
    pod = await objects.Pod(
        build(objects.Pod, 'pod', spec={'containers': [{'name': 'main', 'image': 'image:1'}]}),
        api=api,
    )
    widget = await Widget(build(Widget, 'w', spec={'size': 1}), api=api)
    for obj in (configmap, secret, pod, widget):
        await obj.create()

    assert (await objects.ConfigMap.get('cm', namespace='default', api=api)).data == {
        'key': 'value'
    }
    assert (await objects.Secret.get('secret', namespace='default', api=api)).data == {
        'password': 'cXdlcnR5'
    }
    assert pod.status.phase == 'Pending'
    assert widget.metadata.generation == 1 and await widget.exists()
    assert 'default' in await names_of(api.get('namespaces'))
    assert (await api.version())['minor'] == '35'


async def test_resources_are_discovered_by_their_names(api):
    await (await Widget(build(Widget, 'w'), api=api)).create()

    assert await names_of(api.get('widgets.clients.kopf.dev', namespace='default')) == ['w']
    assert await names_of(api.get('wd', namespace='default')) == ['w']


async def test_lists_are_selected_by_labels_and_fields(api):
    for name, color in (('a', 'red'), ('b', 'blue'), ('c', 'red')):
        await (
            await Widget(build(Widget, name, metadata={'labels': {'color': color}}), api=api)
        ).create()

    assert await names_of(
        api.get(Widget, namespace='default', label_selector={'color': 'red'})
    ) == ['a', 'c']
    assert await names_of(
        api.get(Widget, namespace=kr8s.ALL, field_selector='metadata.name=b')
    ) == ['b']


async def test_lists_come_in_pages(sandbox, api):
    for number in range(5):
        sandbox.create(
            {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': f'cm-{number}'}}
        )

    pages, token = [], ''
    while not pages or token:
        params = {'limit': 2, 'continue': token}
        async with api.call_api(
            'GET', version='v1', namespace='default', url='configmaps', params=params
        ) as response:
            page = response.json()
        pages.append([item['metadata']['name'] for item in page['items']])
        token = page['metadata'].get('continue', '')

    assert pages == [['cm-0', 'cm-1'], ['cm-2', 'cm-3'], ['cm-4', 'kube-root-ca.crt']]


async def test_objects_are_patched_in_all_ways(api):
    widget = await Widget(build(Widget, 'w', spec={'size': 1}), api=api)
    await widget.create()

    await widget.patch({'spec': {'size': 2}})
    await widget.patch([{'op': 'add', 'path': '/spec/replicas', 'value': 3}], type='json')
    await widget.patch({'status': {'ready': True}}, subresource='status')

    assert widget.spec == {'size': 2, 'replicas': 3}
    assert widget.status == {'ready': True}
    assert widget.metadata.generation == 3


async def test_objects_are_labelled_and_annotated(api):
    widget = await Widget(build(Widget, 'w'), api=api)
    await widget.create()

    await widget.label({'x': 'y'})
    await widget.annotate({'a': 'b'})

    found = await Widget.get('w', namespace='default', api=api)
    assert dict(found.labels) == {'x': 'y'}
    assert dict(found.annotations) == {'a': 'b'}


async def test_objects_are_scaled(sandbox, api):
    deployment = await objects.Deployment(
        build(
            objects.Deployment,
            'web',
            spec={
                'selector': {'matchLabels': {'app': 'web'}},
                'template': {
                    'metadata': {'labels': {'app': 'web'}},
                    'spec': {'containers': [{'name': 'main', 'image': 'image:1'}]},
                },
            },
        ),
        api=api,
    )
    await deployment.create()

    scaling = asyncio.create_task(deployment.scale(3))
    await asyncio.to_thread(
        sandbox.wait, 'deployments', 'web', lambda body: body['spec']['replicas'] == 3
    )
    sandbox.patch('deployments', 'web', {'status': {'replicas': 3}}, subresource='status')
    await scaling

    assert deployment.replicas == 3


async def test_conditions_are_waited_for(sandbox, api):
    pod = await objects.Pod(
        build(objects.Pod, 'pod', spec={'containers': [{'name': 'main', 'image': 'image:1'}]}),
        api=api,
    )
    await pod.create()

    waiting = asyncio.create_task(pod.wait('condition=Ready', timeout=10))
    await asyncio.to_thread(
        sandbox.patch,
        'pods',
        'pod',
        {'status': {'conditions': [{'type': 'Ready', 'status': 'True'}]}},
        type='strategic',
        subresource='status',
    )
    await waiting

    assert [(condition.type, condition.status) for condition in pod.status.conditions] == [
        ('Ready', 'True')
    ]


async def test_deletions_are_waited_for(sandbox, api):
    widget = await Widget(build(Widget, 'w', metadata={'finalizers': ['example.com/x']}), api=api)
    await widget.create()
    await widget.delete(propagation_policy='Background')

    waiting = asyncio.create_task(widget.wait('delete', timeout=10))
    await asyncio.to_thread(sandbox.patch, 'widgets', 'w', {'metadata': {'finalizers': []}})
    await waiting

    assert not await widget.exists()


async def test_owners_adopt_their_dependents(sandbox, api):
    widget = await Widget(build(Widget, 'w'), api=api)
    configmap = await objects.ConfigMap(build(objects.ConfigMap, 'child'), api=api)
    await widget.create()
    await configmap.create()

    await widget.adopt(configmap)
    await widget.delete(propagation_policy='Foreground')

    await asyncio.to_thread(sandbox.wait, 'configmaps', 'child', lambda body: body is None)
    await asyncio.to_thread(sandbox.wait, 'widgets', 'w', lambda body: body is None)


async def test_refusals_are_told_with_their_statuses(api):
    widget = await Widget(build(Widget, 'w', spec={'size': 1}), api=api)
    await widget.create()

    with pytest.raises(kr8s.ServerError) as existing:
        await widget.create()
    with pytest.raises(kr8s.ServerError) as invalid:
        await widget.patch({'spec': {'size': -1}})
    with pytest.raises(kr8s.ServerError) as outdated:
        await widget.patch({'metadata': {'resourceVersion': '1'}, 'spec': {'size': 2}})
    with pytest.raises(kr8s.NotFoundError):
        await Widget.get('absent', namespace='default', api=api, timeout=0)

    statuses = [
        (error.value.response.status_code, error.value.status['reason'])
        for error in (existing, invalid, outdated)
    ]
    assert statuses == [(409, 'AlreadyExists'), (422, 'Invalid'), (409, 'Conflict')]
    assert str(existing.value) == 'widgets.clients.kopf.dev "w" already exists'


async def test_watch_replays_the_changes_in_order(sandbox, api):
    version = sandbox.create(
        {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'first'}}
    )['metadata']['resourceVersion']
    sandbox.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'a'}})
    sandbox.patch('configmaps', 'a', {'data': {'x': 'y'}})
    sandbox.delete('configmaps', 'a')

    events = []
    async for type, obj in api.watch('configmaps', namespace='default', since=version):
        events.append((type, obj.name))
        if type == 'DELETED':
            break

    assert events == [('ADDED', 'a'), ('MODIFIED', 'a'), ('DELETED', 'a')]


SYNCHRONOUS = """
import sys
import kr8s

api = kr8s.api(kubeconfig=sys.argv[1])
configmap = kr8s.objects.ConfigMap({'metadata': {'name': 'cm', 'namespace': 'default'}, 'data': {'a': 'b'}}, api=api)
configmap.create()
configmap.patch({'data': {'c': 'd'}})
names = [item.name for item in api.get('configmaps', namespace='default')]
data = dict(configmap.data)
configmap.delete()
assert (names, data, configmap.exists()) == (['cm', 'kube-root-ca.crt'], {'a': 'b', 'c': 'd'}, False)
"""


def test_synchronous_face_works_too(sandbox):
    # In a process of its own, as its thread with connections is never stopped otherwise.
    ended = subprocess.run(
        [sys.executable, '-c', SYNCHRONOUS, sandbox.kubeconfig],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ended.returncode, ended.stderr) == (0, '')
    assert [asked.verb for asked in sandbox.requests if asked.plural == 'configmaps'] == [
        'create',
        'patch',
        'list',
        'delete',
        'get',
    ]
