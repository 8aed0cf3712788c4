"""
Operators of the same purpose in one cluster: which of them is active, and where they look for each
other.

What they tell of themselves is in the tests of records; how it feels to be paused, in the tests of
pauses.
"""

import asyncio
import logging
import pathlib

import pytest
from clusters import build_crd, build_object, wait_until
from peerings import build_peering, build_peering_crd, build_record, get_writes

import kopf

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.guarantee('PEE-001', 'PEE-005', 'PEE-007', 'PEE-009', 'PEE-010', 'PEE-023', 'DEP-010')
async def test_operators_give_way_to_those_of_higher_priorities_at_once(
    town, cluster, peering, check
):
    await town.run('low', priority=1)
    await check('low')
    high = await town.run('high', priority=2)
    await town.wait_until_recorded('low', 'high')
    await asyncio.sleep(1)
    await check('high')
    await high.stop()
    await town.wait_until_recorded('low')
    await asyncio.sleep(1)
    await check('low')


@pytest.mark.guarantee('PEE-007', 'PEE-009')
async def test_operators_that_come_later_give_way_to_those_of_higher_priorities_from_the_beginning(
    town, cluster, peering, check
):
    await town.run('high', priority=2)
    await check('high')
    await town.run('low', priority=1)
    await check('high')

    assert {identity for identity, _, _ in town.events} == {'high'}


@pytest.mark.guarantee('PEE-012', 'PEE-022')
async def test_only_the_highest_one_is_active_and_others_follow_as_it_dies(
    town, cluster, peering, check
):
    operators = {
        priority: await town.run(f'op{priority}', priority=priority) for priority in (2, 4, 1, 3)
    }
    await town.wait_until_recorded('op1', 'op2', 'op3', 'op4')
    for priority in (4, 3, 2, 1):
        await asyncio.sleep(1)
        await check(f'op{priority}')
        if priority % 2:
            await operators[priority].stop()
        else:
            await operators[priority].kill()
            await asyncio.sleep(61)


@pytest.mark.guarantee('PEE-021', 'PEE-022', 'NEW-216')
async def test_the_killed_operator_is_believed_dead_after_its_lifetime_and_its_record_is_removed(
    town, cluster, peering, check
):
    settings = kopf.OperatorSettings()
    settings.peering.lifetime = 20
    low = await town.run('low', priority=1)
    high = await town.run('high', priority=2, settings=settings)
    await town.wait_until_recorded('low', 'high')
    await asyncio.sleep(100)
    records = await town.get_records()
    killed, lastseen = asyncio.get_running_loop().time(), records['high']['lastseen']
    await high.kill()
    await asyncio.sleep(2)
    await check()
    await town.wait_until_recorded('low')

    assert 5 <= asyncio.get_running_loop().time() - killed <= 21
    assert records['high'] == {'priority': 2, 'lifetime': 20, 'lastseen': lastseen}
    await check('low')
    await low.stop()


@pytest.mark.guarantee('PEE-008')
async def test_operators_of_the_same_priority_pause_all_with_warnings(
    town, cluster, peering, check, logs
):
    await town.run('one', priority=5)
    await check('one')
    two = await town.run('two', priority=5)
    await town.wait_until_recorded('one', 'two')
    await asyncio.sleep(1)
    await check()
    warnings = [line for line in logs(logging.WARNING) if 'the same priority' in line]
    assert len(warnings) == 2
    assert {'one (priority 5)' in line for line in warnings} == {
        'two (priority 5)' in line for line in warnings
    }
    await two.stop()
    await check('one')


@pytest.mark.guarantee('NEW-212', 'NEW-213', 'NEW-214')
async def test_operators_of_the_same_priority_work_together_if_they_share_the_objects(
    town, cluster, peering, check, logs
):
    for index in range(2):
        settings = kopf.OperatorSettings()
        settings.watching.shard_selectors[kopf.EVERYTHING] = f'anything-{index}-of-2'
        await town.run(f'shard{index}', priority=5, settings=settings)
    await town.wait_until_recorded('shard0', 'shard1')
    await check('shard0', 'shard1')
    assert {
        asked.query.partition('shardSelector=')[2].partition('&')[0] for asked in town.get_streams()
    } == {'anything-0-of-2', 'anything-1-of-2'}
    assert not [line for line in logs(logging.WARNING) if 'priority' in line]
    assert not [
        asked for asked in town.get_streams('clusterkopfpeerings') if 'shard' in asked.query
    ]
    await town.run('high', priority=6)
    await asyncio.sleep(1)
    await check('high')


@pytest.mark.guarantee('PEE-013', 'PEE-014')
async def test_operators_in_different_peerings_do_not_see_each_other(
    town, sandbox, cluster, peering, check
):
    settings = kopf.OperatorSettings()
    settings.peering.name = 'third'
    for name in ('other', 'third'):
        await sandbox.create(build_peering(name))
    await town.run('one', priority=1)
    await town.run('two', priority=2, peering_name='other')
    await town.run('three', priority=3, settings=settings)
    await town.wait_until_recorded('one')
    await town.wait_until_recorded('two', name='other')
    await town.wait_until_recorded('three', name='third')
    await check('one', 'two', 'three')


@pytest.mark.guarantee('PEE-001', 'PEE-002', 'PEE-003', 'PEE-004', 'NEW-219')
@pytest.mark.parametrize(
    'has_status', [pytest.param(False, id='plain'), pytest.param(True, id='subresource')]
)
@pytest.mark.parametrize('group', ['kopf.dev', 'zalando.org', 'kopf.zalando.org'])
@pytest.mark.parametrize(
    'scope',
    [pytest.param({}, id='cluster'), pytest.param({'namespaces': ['default']}, id='namespace')],
)
async def test_peerings_are_in_all_groups_and_scopes(
    town, sandbox, cluster, check, group, scope, has_status
):
    namespace = 'default' if scope else None
    plural = 'kopfpeerings' if scope else 'clusterkopfpeerings'
    await sandbox.apply(build_peering_crd(plural, group=group, has_status=has_status))
    if not scope:  # it must not be mistaken for the one of namespaces
        await sandbox.apply(build_peering_crd('kopfpeerings', group='kopf.dev', scope='Cluster'))
    await sandbox.create(build_peering(group=group, namespace=namespace))
    await town.run('low', priority=1, **scope)
    high = await town.run('high', priority=2, **scope)
    await town.wait_until_recorded('low', 'high', namespace=namespace)
    await asyncio.sleep(1)
    await check('high')
    await high.stop()
    await town.wait_until_recorded('low', namespace=namespace)
    await asyncio.sleep(1)
    await check('low')

    assert get_writes(sandbox, 'clusterkopfpeerings' if scope else 'kopfpeerings') == []


@pytest.mark.guarantee('PEE-004', 'PEE-007', 'FND-054')
async def test_operators_of_namespaces_are_in_the_peerings_of_all_their_namespaces(
    town, sandbox, cluster
):
    await sandbox.apply(build_peering_crd('kopfpeerings'))
    for namespace in ('one', 'two', 'three'):
        await sandbox.create(
            {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': namespace}}
        )
        await sandbox.create(build_peering(namespace=namespace))
    wide = await town.run('wide', priority=1, namespaces=['one', 'two', 'new-*'])
    await town.wait_until_recorded('wide', namespace='one')
    await town.wait_until_recorded('wide', namespace='two')
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'new-one'}})
    await sandbox.create(build_peering(namespace='new-one'))
    await town.wait_until_recorded('wide', namespace='new-one')
    assert await town.get_records(namespace='three') == {}

    narrow = await town.run('narrow', priority=2, namespaces=['new-one'])
    await town.wait_until_recorded('wide', 'narrow', namespace='new-one')
    await asyncio.sleep(1)
    await sandbox.create(build_object('free', namespace='one'))
    await sandbox.create(build_object('taken', namespace='new-one'))
    await town.wait_until_handled('wide', 'free')
    await town.wait_until_handled('narrow', 'taken')
    await asyncio.sleep(10)
    assert ('wide', 'taken') not in town.handled
    await narrow.stop()
    await sandbox.create(build_object('left', namespace='new-one'))
    await town.wait_until_handled('wide', 'left')
    await wide.stop()
    assert await town.get_records(namespace='one') == await town.get_records(namespace='two') == {}


@pytest.mark.guarantee('PEE-015', 'PEE-017')
@pytest.mark.parametrize(
    'is_optional', [pytest.param(False, id='by-option'), pytest.param(True, id='by-settings')]
)
@pytest.mark.parametrize(
    'is_defined', [pytest.param(True, id='no-object'), pytest.param(False, id='no-definition')]
)
async def test_the_mandatory_peering_is_waited_for(
    town, sandbox, cluster, check, logs, is_defined, is_optional
):
    settings = kopf.OperatorSettings()
    if is_optional:
        settings.peering.name, settings.peering.mandatory = 'needed', True
    if is_defined:
        await sandbox.apply(build_peering_crd())
    await cluster.create('early')
    await town.run('one', settings=settings, **({} if is_optional else {'peering_name': 'needed'}))
    await asyncio.sleep(100)
    await check()
    assert len([line for line in logs(logging.WARNING) if 'pauses until' in line]) == 1
    await sandbox.apply(build_peering_crd())
    await sandbox.create(build_peering('other'))
    await asyncio.sleep(100)
    await check()
    await sandbox.create(build_peering('needed'))
    await town.wait_until_handled('one', 'early')
    await check('one')
    await sandbox.delete('clusterkopfpeerings', 'needed')
    await asyncio.sleep(1)
    await check()


@pytest.mark.guarantee('PEE-016', 'FND-054')
async def test_the_mandatory_peering_is_needed_in_every_namespace(town, sandbox, cluster):
    await sandbox.apply(build_peering_crd('kopfpeerings'))
    for namespace in ('one', 'two'):
        await sandbox.create(
            {'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': namespace}}
        )
        await sandbox.create(build_object('first', namespace=namespace))
    await town.run('op', peering_name='needed', namespaces=['one', 'two'])
    await sandbox.create(build_peering('needed', namespace='one'))
    await town.wait_until_recorded('op', name='needed', namespace='one')
    await wait_until(lambda: town.handled)
    await asyncio.sleep(100)
    assert len(town.handled) == 1
    await sandbox.create(build_peering('needed', namespace='two'))
    await wait_until(lambda: len(town.handled) == 2)


@pytest.mark.guarantee('PEE-016', 'NEW-222')
async def test_a_namespace_that_is_being_deleted_does_not_wait_for_its_mandatory_peering(
    town, sandbox, cluster, check
):
    deleted, registry = [], town.build_registry('op')

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(name, **_):
        deleted.append(name)

    await sandbox.apply(build_peering_crd('kopfpeerings'))
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'one'}})
    await sandbox.create(build_peering('needed', namespace='one'))
    await town.run('op', peering_name='needed', namespaces=['one'], registry=registry)
    await sandbox.create(build_object('first', namespace='one'))
    await sandbox.wait(
        'kopfexamples', 'first', lambda body: body['metadata'].get('finalizers'), 'one', timeout=60
    )
    await sandbox.delete('namespaces', 'one')
    await sandbox.wait('namespaces', 'one', lambda body: body is None, timeout=600)

    assert deleted == ['first']


@pytest.mark.guarantee('PEE-017', 'PEE-019')
@pytest.mark.parametrize(
    'is_defined', [pytest.param(True, id='no-object'), pytest.param(False, id='no-definition')]
)
async def test_operators_go_on_alone_if_there_is_no_peering(
    town, sandbox, cluster, check, logs, is_defined
):
    settings = kopf.OperatorSettings()
    settings.peering.name = 'wanted'
    if is_defined:
        await sandbox.apply(build_peering_crd())
    await town.run('one', settings=settings)
    await town.run('two', settings=settings)
    await check('one', 'two')
    await asyncio.sleep(1000)

    assert len([line for line in logs(logging.INFO) if 'on its own' in line]) == 2
    assert not [line for line in logs(logging.WARNING) if 'peering' in line]


@pytest.mark.guarantee('PEE-018')
async def test_the_default_peering_is_used_whenever_it_is_created(town, sandbox, cluster, check):
    await town.run('low', priority=1)
    await town.run('high', priority=2)
    await check('low', 'high')
    await sandbox.apply(build_peering_crd())
    await asyncio.sleep(300)
    await sandbox.create(build_peering())
    await town.wait_until_recorded('low', 'high')
    await asyncio.sleep(1)
    await check('high')
    await sandbox.delete('clusterkopfpeerings', 'default')
    await asyncio.sleep(1)
    await check('low', 'high')


@pytest.mark.guarantee('PEE-018', 'PEE-001', 'PEE-025')
@pytest.mark.parametrize('scope', [{}, {'namespaces': ['default']}], ids=['cluster', 'namespace'])
async def test_our_own_manifests_are_enough_for_peering(town, sandbox, cluster, check, scope):
    await sandbox.apply(ROOT / 'peering.yaml', ROOT / 'peering-default.yaml')
    await town.run('low', priority=1, **scope)
    await town.run('high', priority=2, **scope)
    await town.wait_until_recorded('low', 'high', namespace='default' if scope else None)
    await asyncio.sleep(1)
    await check('high')


@pytest.mark.guarantee('PEE-020')
@pytest.mark.parametrize(
    'is_optional', [pytest.param(False, id='option'), pytest.param(True, id='settings')]
)
async def test_standalone_operators_neither_pause_nor_announce_themselves(
    town, sandbox, cluster, peering, check, is_optional
):
    settings = kopf.OperatorSettings()
    settings.peering.standalone = is_optional
    options = {} if is_optional else {'standalone': True}
    await town.run('high', priority=5)
    await town.wait_until_recorded('high')
    sandbox.requests.clear()
    await town.run('alone', priority=1, peering_name='default', settings=settings, **options)
    await check('high', 'alone')
    await asyncio.sleep(1000)

    assert set(await town.get_records()) == {'high'}
    assert not [asked for asked in sandbox.requests if asked.path == '/apis/kopf.dev/v1']


@pytest.mark.guarantee('PEE-019')
async def test_operators_go_on_alone_if_they_may_not_see_the_peering(
    town, sandbox, cluster, peering, check, logs
):
    fault = sandbox.faults.inject(verb='list', resource='clusterkopfpeerings', code=403)
    await town.run('one', priority=1)
    await check('one')
    await asyncio.sleep(1000)
    assert len([line for line in logs(logging.WARNING) if 'peering' in line]) == 1
    fault.lift()
    await town.wait_until_recorded('one')


async def test_peerings_are_seen_whatever_objects_are_selected(town, cluster, peering, check):
    settings = kopf.OperatorSettings()
    settings.watching.label_selectors[kopf.EVERYTHING] = 'app=mine'
    settings.watching.field_selectors[kopf.EVERYTHING] = 'metadata.name!=default'
    await town.run('low', priority=1, settings=settings)
    await town.write({'high': build_record(5)})
    await town.wait_until_recorded('low', 'high')


async def test_the_peering_is_watched_again_after_faults_and_outages(
    town, sandbox, cluster, peering, check
):
    await town.run('one', priority=1)
    await town.wait_until_recorded('one')
    await sandbox.faults.restart(downtime=10)
    await town.write({'high': build_record(5, lifetime=100)})
    await asyncio.sleep(60)
    await check()
    await asyncio.sleep(60)
    await check('one')


async def test_resources_of_operators_themselves_can_be_peerings(town, sandbox, peering):
    registry, names = kopf.OperatorRegistry(), []

    @kopf.on.event('clusterkopfpeerings', registry=registry)
    async def event_fn(name, **_):
        names.append(name)

    await sandbox.apply(build_crd('others', 'Other'))
    await town.run('one', registry=registry)
    await sandbox.create(build_peering('another'))
    await wait_until(lambda: 'another' in names and 'default' in names)
