"""
Creating and deleting: once, and with no surprises when it is already done.
"""

import asyncio

import pytest

from kopf._cogs.clients import creating, deleting, errors
from kopf._cogs.structs import references

CONFIGS = references.Resource('', 'v1', 'secrets', namespaced=True)
NAMESPACES = references.Resource('', 'v1', 'namespaces', namespaced=False)
DEFAULT = references.NamespaceName('default')
CONFIG = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'cm'}}
GENERATED = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'generateName': 'cm-'}}


async def test_objects_are_created_in_the_given_namespace(sandbox, context):
    created = await creating.create_object(CONFIGS, CONFIG, namespace=DEFAULT, context=context)

    assert created == await sandbox.get('secrets', 'cm')


async def test_objects_are_created_in_their_own_namespace(sandbox, context):
    body = {**CONFIG, 'metadata': {'name': 'cm', 'namespace': 'kube-system'}}

    created = await creating.create_object(CONFIGS, body, context=context)

    assert created == await sandbox.get('secrets', 'cm', 'kube-system')


async def test_objects_are_created_in_the_cluster(sandbox, context):
    body = {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'ns'}}

    created = await creating.create_object(NAMESPACES, body, context=context)

    assert created == await sandbox.get('namespaces', 'ns')


async def test_existing_objects_are_an_error_at_once(sandbox, context):
    await sandbox.create(CONFIG)

    with pytest.raises(errors.APIConflictError, match='already exists'):
        await creating.create_object(CONFIGS, CONFIG, namespace=DEFAULT, context=context)

    assert len(sandbox.requests) == 1


async def test_creation_is_not_repeated_if_it_can_be_done_already(sandbox, context):
    fault = sandbox.faults.inject(verb='create', cut=True)

    with pytest.raises(errors.APIDisconnectedError):
        await creating.create_object(CONFIGS, GENERATED, namespace=DEFAULT, context=context)

    assert fault.hits == 1


async def test_creation_is_repeated_if_it_is_certainly_not_done(sandbox, context, virtual_time):
    sandbox.faults.inject(verb='create', code=503, times=2)

    await creating.create_object(CONFIGS, GENERATED, namespace=DEFAULT, context=context)

    assert len(await sandbox.list('secrets', 'default')) == 1


async def test_objects_are_deleted(sandbox, context):
    await sandbox.create(CONFIG)

    deleted = await deleting.delete_object(CONFIGS, 'cm', namespace=DEFAULT, context=context)

    assert deleted['status'] == 'Success'
    assert await sandbox.list('secrets', 'default') == []


async def test_objects_with_finalizers_are_marked_as_being_deleted(sandbox, context):
    await sandbox.create({**CONFIG, 'metadata': {'name': 'cm', 'finalizers': ['kopf.dev/x']}})

    deleted = await deleting.delete_object(CONFIGS, 'cm', namespace=DEFAULT, context=context)

    assert deleted['metadata']['deletionTimestamp']
    assert deleted == await sandbox.get('secrets', 'cm')


async def test_absent_objects_need_no_deletion(sandbox, context):
    assert await deleting.delete_object(CONFIGS, 'cm', namespace=DEFAULT, context=context) is None


async def test_deletion_with_a_lost_answer_is_still_done(sandbox, context, virtual_time):
    await sandbox.create(CONFIG)
    sandbox.faults.inject(verb='delete', cut=True, times=1)

    await deleting.delete_object(CONFIGS, 'cm', namespace=DEFAULT, context=context)

    assert await sandbox.list('secrets', 'default') == []


@pytest.mark.parametrize(
    'act',
    [
        lambda context: creating.create_object(CONFIGS, CONFIG, namespace=DEFAULT, context=context),
        lambda context: deleting.delete_object(CONFIGS, 'cm', namespace=DEFAULT, context=context),
    ],
    ids=['create', 'delete'],
)
async def test_both_can_be_cancelled(sandbox, context, act):
    fault = sandbox.faults.inject(resource='secrets', stall=True)
    task = asyncio.create_task(act(context))
    await fault.wait_until_hit()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
