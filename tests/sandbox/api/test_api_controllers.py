"""
What goes on after the answers: owners and their dependents, and the contents of namespaces.
"""

import pytest
from sandbox_http import GROUP

THING = {'apiVersion': f'{GROUP}/v1', 'kind': 'Thing'}
OPTIONS = {'kind': 'DeleteOptions', 'apiVersion': 'v1'}
FINALIZERS = ['example.com/hold']


def refer(owner, **fields):
    """Build a reference to an owner."""
    return {
        'apiVersion': owner['apiVersion'],
        'kind': owner['kind'],
        'name': owner['metadata']['name'],
        'uid': owner['metadata']['uid'],
        **fields,
    }


@pytest.fixture
async def owner(api, things):
    return await api.make(things, {**THING, 'metadata': {'name': 'owner'}})


@pytest.fixture
async def another_owner(api, things):
    return await api.make(things, {**THING, 'metadata': {'name': 'another'}})


async def test_dependents_go_after_their_owner_by_default(api, things, configmaps, owner):
    made = await api.make(
        configmaps, {'metadata': {'name': 'child', 'ownerReferences': [refer(owner)]}}
    )
    await api.make(
        configmaps, {'metadata': {'name': 'grandchild', 'ownerReferences': [refer(made)]}}
    )
    await api.make(configmaps, {'metadata': {'name': 'stranger'}})

    reply = await api.delete(f'{things}/owner')

    assert reply.body['status'] == 'Success'
    await api.wait_until_gone(f'{configmaps}/grandchild')
    assert await api.names(configmaps) == ['stranger']


async def test_dependent_with_finalizers_is_marked(api, things, configmaps, owner):
    await api.make(
        configmaps,
        {
            'metadata': {
                'name': 'child',
                'finalizers': FINALIZERS,
                'ownerReferences': [refer(owner)],
            }
        },
    )

    async with api.watch(configmaps) as stream:
        await stream.take(1)
        await api.delete(f'{things}/owner', propagationPolicy='Background')
        type, body = await stream.next()

    assert type == 'MODIFIED'
    assert body['metadata']['deletionTimestamp']
    assert body['metadata']['finalizers'] == FINALIZERS


async def test_dependent_of_several_owners_stays_with_the_last_one(
    api, things, configmaps, owner, another_owner
):
    await api.make(
        configmaps,
        {'metadata': {'name': 'child', 'ownerReferences': [refer(owner), refer(another_owner)]}},
    )

    async with api.watch(configmaps) as stream:
        await stream.take(1)
        await api.delete(f'{things}/owner')
        type, body = await stream.next()
        await api.delete(f'{things}/another')
        await stream.next()

    assert type == 'MODIFIED'
    assert body['metadata']['ownerReferences'] == [refer(another_owner)]
    assert await api.names(configmaps) == []


async def test_owner_waits_for_its_blocking_dependents_in_foreground(
    api, things, configmaps, owner
):
    await api.make(
        configmaps,
        {
            'metadata': {
                'name': 'child',
                'finalizers': FINALIZERS,
                'ownerReferences': [refer(owner, blockOwnerDeletion=True)],
            }
        },
    )

    async with api.watch(configmaps) as stream:
        await stream.take(1)
        reply = await api.delete(f'{things}/owner', {**OPTIONS, 'propagationPolicy': 'Foreground'})
        await stream.next()
        waiting = await api.get(f'{things}/owner')
        await api.merge(f'{configmaps}/child', {'metadata': {'finalizers': None}})
    await api.wait_until_gone(f'{things}/owner')

    assert reply.body['metadata']['finalizers'] == ['foregroundDeletion']
    assert waiting.code == 200
    assert await api.names(configmaps) == []


async def test_owner_does_not_wait_for_other_dependents_in_foreground(
    api, things, configmaps, owner
):
    await api.make(
        configmaps,
        {
            'metadata': {
                'name': 'child',
                'finalizers': FINALIZERS,
                'ownerReferences': [refer(owner)],
            }
        },
    )

    await api.delete(f'{things}/owner', propagationPolicy='Foreground')
    await api.wait_until_gone(f'{things}/owner')

    assert (await api.get(f'{configmaps}/child')).body['metadata']['deletionTimestamp']


@pytest.mark.parametrize(
    'options',
    [
        pytest.param({'propagationPolicy': 'Orphan'}, id='policy'),
        pytest.param({'orphanDependents': True}, id='old-option'),
    ],
)
async def test_orphans_stay_without_the_reference(api, things, configmaps, owner, options):
    made = await api.make(
        configmaps, {'metadata': {'name': 'child', 'ownerReferences': [refer(owner)]}}
    )

    reply = await api.delete(f'{things}/owner', {**OPTIONS, **options})
    await api.wait_until_gone(f'{things}/owner')

    assert reply.body['metadata']['finalizers'] == ['orphan']
    child = (await api.get(f'{configmaps}/child')).body
    assert child['metadata']['uid'] == made['metadata']['uid']
    assert not {'ownerReferences', 'deletionTimestamp'} & set(child['metadata'])


async def test_object_of_an_absent_owner_is_removed(api, configmaps):
    absent = {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'name': 'absent',
        'uid': '00000000-0000-4000-8000-000000000000',
    }

    await api.make(configmaps, {'metadata': {'name': 'child', 'ownerReferences': [absent]}})

    await api.wait_until_gone(f'{configmaps}/child')


async def test_owner_in_another_namespace_counts_as_absent(api, things, owner):
    await api.make(
        '/api/v1/namespaces/default/configmaps',
        {'metadata': {'name': 'child', 'ownerReferences': [refer(owner)]}},
    )

    await api.wait_until_gone('/api/v1/namespaces/default/configmaps/child')

    assert (await api.get(f'{things}/owner')).code == 200


async def test_namesake_of_the_owner_is_not_the_owner(api, configmaps, owner):
    impostor = {**refer(owner), 'uid': '00000000-0000-4000-8000-000000000000'}

    await api.make(configmaps, {'metadata': {'name': 'child', 'ownerReferences': [impostor]}})

    await api.wait_until_gone(f'{configmaps}/child')


@pytest.mark.parametrize(
    'wrong',
    [
        pytest.param({'kind': 'Plain'}, id='kind'),
        pytest.param({'apiVersion': 'apps/v1'}, id='group'),
    ],
)
async def test_owner_of_another_kind_is_not_the_owner(api, configmaps, owner, wrong):
    await api.make(
        configmaps, {'metadata': {'name': 'child', 'ownerReferences': [refer(owner, **wrong)]}}
    )

    await api.wait_until_gone(f'{configmaps}/child')


async def test_owner_may_be_of_another_version(api, configmaps, owner):
    reference = refer(owner, apiVersion=f'{GROUP}/v9')
    await api.make(configmaps, {'metadata': {'name': 'child', 'ownerReferences': [reference]}})
    await api.make(
        configmaps,
        {'metadata': {'name': 'orphan', 'ownerReferences': [refer(owner, name='other')]}},
    )

    await api.wait_until_gone(f'{configmaps}/orphan')

    assert await api.names(configmaps) == ['child']


async def test_owners_of_each_other_do_not_wait_for_each_other(api, things, configmaps, owner):
    child = await api.make(
        configmaps,
        {'metadata': {'name': 'child', 'ownerReferences': [refer(owner, blockOwnerDeletion=True)]}},
    )
    references = [
        refer({**child, 'apiVersion': 'v1', 'kind': 'ConfigMap'}, blockOwnerDeletion=True)
    ]
    await api.merge(f'{things}/owner', {'metadata': {'ownerReferences': references}})

    await api.delete(f'{things}/owner', propagationPolicy='Foreground')

    await api.wait_until_gone(f'{things}/owner')
    await api.wait_until_gone(f'{configmaps}/child')


async def test_owner_in_foreground_goes_when_its_dependents_are_let_go(
    api, things, configmaps, owner
):
    await api.make(
        configmaps,
        {
            'metadata': {
                'name': 'child',
                'finalizers': FINALIZERS,
                'ownerReferences': [refer(owner, blockOwnerDeletion=True)],
            }
        },
    )
    await api.delete(f'{things}/owner', propagationPolicy='Foreground')
    assert (await api.get(f'{things}/owner')).code == 200

    await api.merge(f'{configmaps}/child', {'metadata': {'ownerReferences': None}})

    await api.wait_until_gone(f'{things}/owner')
    assert await api.names(configmaps) == ['child']


async def test_objects_without_namespaces_can_own_those_in_namespaces(api, configmaps, namespace):
    cluster_owner = (await api.get(f'/api/v1/namespaces/{namespace}')).body
    await api.make(
        configmaps, {'metadata': {'name': 'child', 'ownerReferences': [refer(cluster_owner)]}}
    )
    await api.make(configmaps, {'metadata': {'name': 'other'}})

    assert await api.names(configmaps) == ['child', 'other']


async def test_namespace_goes_with_its_contents(api, namespace, configmaps, things):
    await api.make(configmaps, {'metadata': {'name': 'a'}})
    await api.make(things, {**THING, 'metadata': {'name': 'a'}})

    reply = await api.delete(f'/api/v1/namespaces/{namespace}')
    await api.wait_until_gone(f'/api/v1/namespaces/{namespace}')

    assert reply.code == 200
    assert reply.body['kind'] == 'Namespace'
    assert reply.body['status']['phase'] == 'Terminating'
    assert reply.body['spec'] == {'finalizers': ['kubernetes']}
    assert await api.names(configmaps) == await api.names(things) == []


async def test_namespace_waits_for_its_contents(api, namespace, configmaps):
    await api.make(configmaps, {'metadata': {'name': 'a', 'finalizers': FINALIZERS}})

    async with api.watch(configmaps) as stream:
        await stream.take(1)
        await api.delete(f'/api/v1/namespaces/{namespace}')
        type, body = await stream.next()
        waiting = await api.get(f'/api/v1/namespaces/{namespace}')
        refused = await api.post(configmaps, {'metadata': {'name': 'b'}})
        await api.merge(f'{configmaps}/a', {'metadata': {'finalizers': None}})
    await api.wait_until_gone(f'/api/v1/namespaces/{namespace}')

    assert type == 'MODIFIED' and body['metadata']['deletionTimestamp']
    assert waiting.body['status']['phase'] == 'Terminating'
    assert refused.code == 403
    assert refused.body == {
        'kind': 'Status',
        'apiVersion': 'v1',
        'metadata': {},
        'status': 'Failure',
        'reason': 'Forbidden',
        'code': 403,
        'message': f'configmaps "b" is forbidden: unable to create new content in namespace {namespace} because it is '
        f'being terminated',
        'details': {
            'name': 'b',
            'kind': 'configmaps',
            'causes': [
                {
                    'reason': 'NamespaceTerminating',
                    'message': f'namespace {namespace} is being terminated',
                    'field': 'metadata.namespace',
                }
            ],
        },
    }


async def test_namespace_tells_what_it_waits_for(api, namespace, configmaps, things):
    for name in 'ab':
        await api.make(configmaps, {'metadata': {'name': name, 'finalizers': FINALIZERS}})
    await api.make(things, {**THING, 'metadata': {'name': 'c', 'finalizers': FINALIZERS}})
    await api.make(things, {**THING, 'metadata': {'name': 'd'}})

    async with api.watch(configmaps) as stream:
        await stream.take(2)
        await api.delete(f'/api/v1/namespaces/{namespace}')
        await stream.take(2)
    body = (await api.get(f'/api/v1/namespaces/{namespace}')).body

    conditions = {condition['type']: condition for condition in body['status']['conditions']}
    assert {
        kind: (condition['status'], condition['reason']) for kind, condition in conditions.items()
    } == {
        'NamespaceDeletionDiscoveryFailure': ('False', 'ResourcesDiscovered'),
        'NamespaceDeletionGroupVersionParsingFailure': ('False', 'ParsedGroupVersions'),
        'NamespaceDeletionContentFailure': ('False', 'ContentDeleted'),
        'NamespaceContentRemaining': ('True', 'SomeResourcesRemain'),
        'NamespaceFinalizersRemaining': ('True', 'SomeFinalizersRemain'),
    }
    assert conditions['NamespaceContentRemaining']['message'] == (
        f'Some resources are remaining: configmaps. has 2 resource instances, things.{GROUP} has 1 resource instances'
    )
    assert conditions['NamespaceFinalizersRemaining']['message'] == (
        'Some content in the namespace has finalizers remaining: example.com/hold in 3 resource instances'
    )


async def test_namespace_is_labelled_with_its_name_and_active(api, namespace):
    body = (await api.get(f'/api/v1/namespaces/{namespace}')).body

    assert body['metadata']['labels'] == {'kubernetes.io/metadata.name': namespace}
    assert body['spec'] == {'finalizers': ['kubernetes']}
    assert body['status'] == {'phase': 'Active'}


@pytest.mark.parametrize('name', ['default', 'kube-system', 'kube-public'])
async def test_namespaces_of_the_system_are_never_deleted(api, name):
    reply = await api.delete(f'/api/v1/namespaces/{name}')

    assert reply.code == 403
    assert (
        reply.body['message']
        == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    )


async def test_nothing_is_created_in_absent_namespaces(api):
    reply = await api.post('/api/v1/namespaces/absent/configmaps', {'metadata': {'name': 'a'}})

    assert reply.code == 404
    assert reply.body['message'] == 'namespaces "absent" not found'
    assert reply.body['details'] == {'name': 'absent', 'kind': 'namespaces'}
    assert await api.names('/api/v1/namespaces/absent/configmaps') == []
