"""
What is wrong with elections, and what is visible of them: errors, logs, probes, metrics, peerings.
"""

import asyncio
import logging

import aiohttp
import pytest
from clusters import wait_until
from operator_endpoints import Site
from peerings import build_record
from replicas_of_operators import LEASE, Fleet, build_settings
from webhook_servers import MANAGED, Hall, list_writes, wait_for_records

import kopf
import kopf.testing
from kopf._cogs.structs import vaults

LEASES = 'leases.coordination.k8s.io'


@pytest.fixture
async def fleet(sandbox, cluster, run_operator):
    return Fleet(sandbox, run_operator)


@pytest.mark.guarantee('LDR-006')
@pytest.mark.parametrize(
    'changes, complaint',
    [
        pytest.param({'name': 'Wrong_Name'}, 'accepted is a name of a Lease', id='name'),
        pytest.param({'name': 'x' * 254}, 'up to 253', id='long-name'),
        pytest.param({'name': ''}, 'accepted is a name of a Lease', id='empty-name'),
        pytest.param({'namespace': ''}, 'accepted is a non-empty string', id='namespace'),
        pytest.param({'standby': 'warm'}, "accepted is 'hot' or 'cold'", id='standby'),
        pytest.param({'retry_period': 0}, 'seconds above 0', id='no-retries'),
        pytest.param(
            {'renew_deadline': 15},
            'renew_deadline is 15; accepted is less than settings.leadership.lease_duration',
            id='late-renewal',
        ),
        pytest.param(
            {'retry_period': 12},
            'retry_period is 12; accepted is less than settings.leadership.renew_deadline',
            id='rare-retries',
        ),
    ],
)
async def test_wrong_settings_are_refused(fleet, changes, complaint):
    one = await fleet.run('a', **changes)

    with pytest.raises(Exception, match=complaint):
        await one.task


@pytest.mark.guarantee('LDR-006')
async def test_the_namespace_must_be_set_outside_of_pods(fleet, monkeypatch):
    monkeypatch.delenv('POD_NAMESPACE', raising=False)
    one = await fleet.run('a', namespace=None)

    with pytest.raises(Exception, match='runs outside of pods'):
        await one.task


@pytest.mark.guarantee('LDR-006')
async def test_the_namespace_is_that_of_the_pod_by_default(fleet, monkeypatch):
    monkeypatch.setenv('POD_NAMESPACE', 'default')
    await fleet.run('a', namespace=None)
    await fleet.wait_until_promoted('a')

    assert await fleet.find_lease() is not None


@pytest.mark.guarantee('LDR-006')
async def test_a_missing_namespace_is_named_and_waited_for(fleet, sandbox, logs):
    await fleet.run('a', namespace='absent')
    await wait_until(lambda: any('Cannot create the Lease' in line for line in logs(logging.ERROR)))
    assert 'Check that the namespace absent exists.' in logs(logging.ERROR)[0]
    await asyncio.sleep(60)
    assert len(logs(logging.ERROR)) == 1
    await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': 'absent'}})
    await fleet.wait_until_promoted('a')


@pytest.mark.guarantee('LDR-006')
@pytest.mark.parametrize('verbs, missing', [([], 'get'), (['get'], 'create')])
async def test_missing_rights_are_named(virtual_time, registry, verbs, missing, logs):
    rbac = 'rbac.authorization.k8s.io'
    rules = [{'apiGroups': ['coordination.k8s.io'], 'resources': ['leases'], 'verbs': verbs}]
    async with kopf.testing.Sandbox(tls=False, rbac=True) as sandbox:
        user = await sandbox.add_user('operator')
        await sandbox.create(
            {
                'apiVersion': f'{rbac}/v1',
                'kind': 'ClusterRole',
                'metadata': {'name': 'operator'},
                'rules': rules if verbs else [],
            }
        )
        await sandbox.create(
            {
                'apiVersion': f'{rbac}/v1',
                'kind': 'ClusterRoleBinding',
                'metadata': {'name': 'operator'},
                'roleRef': {'apiGroup': rbac, 'kind': 'ClusterRole', 'name': 'operator'},
                'subjects': [{'apiGroup': rbac, 'kind': 'User', 'name': 'operator'}],
            }
        )
        stop_flag = asyncio.Event()
        task = asyncio.create_task(
            kopf.operator(
                registry=registry,
                settings=build_settings(),
                vault=vaults.Vault(
                    {'user': kopf.ConnectionInfo(server=sandbox.url, token=user.token)}
                ),
                clusterwide=True,
                stop_flag=stop_flag,
            )
        )
        hint = f'Grant the verb {missing} for leases.coordination.k8s.io in the namespace default'
        await wait_until(lambda: any(hint in line for line in logs(logging.ERROR)))
        await asyncio.sleep(30)
        stop_flag.set()
        await task

    assert len([line for line in logs(logging.ERROR) if hint in line]) == 1


@pytest.mark.guarantee('LDR-012', 'LDR-013')
@pytest.mark.parametrize('standby', ['hot', 'cold'])
async def test_probes_and_metrics_are_served_by_all_replicas(
    fleet, cluster, run_operator, standby, logs
):
    async with aiohttp.ClientSession() as session:
        for name, is_leading in [('a', 1), ('b', 0)]:
            site = Site(session)
            await run_operator(
                settings=build_settings(standby=standby),
                registry=fleet.build_registry(name),
                liveness_endpoint=site.url,
            )
            await site.wait_until('/healthz', 200)
            text = await site.wait_until('/readyz?verbose', 200)
            metrics = {'kopf_leader', 'leader_election_master_status'}
            _, exposed = await site.fetch('/metrics')
            assert all(
                f'{metric}{{name="{LEASE}"}} {is_leading}.0' in exposed for metric in metrics
            )
            assert (f'the Lease default/{LEASE}: leads' in text) == bool(is_leading)
            if is_leading:
                await fleet.wait_until_promoted('a')

    lines = logs(logging.INFO)
    holder = (await fleet.get_spec())['holderIdentity']
    assert any(line.startswith(f'The replica {holder} leads') for line in lines)
    assert any(line.endswith(f'is held by {holder}.') for line in lines)


@pytest.mark.guarantee('LDR-014')
async def test_usual_peerings_are_ignored_with_an_election(town, cluster, peering):
    settings = build_settings()
    await town.run('low', priority=1)
    await town.run('elected', settings=settings, priority=0)
    await cluster.create('one')
    await wait_until(lambda: ('elected', 'one') in {(who, name) for who, _, name in town.events})


@pytest.mark.guarantee('LDR-014')
async def test_replicas_do_not_pause_each_other_and_are_all_paused_by_others(
    town, cluster, sandbox, peering
):
    for name in 'ab':
        await town.run(name, settings=build_settings(), peering_name='default')
    await wait_until_members(town, 2)
    await cluster.create('one')
    await cluster.wait_until_handled('one')
    assert town.handled == [('a', 'one')]

    await sandbox.patch(
        'clusterkopfpeerings', 'default', {'status': {'freezer': build_record(100, lifetime=30)}}
    )
    await asyncio.sleep(2)
    await cluster.create('two')
    await asyncio.sleep(20)
    assert town.handled == [('a', 'one')]

    await asyncio.sleep(30)
    assert town.handled == [('a', 'one'), ('a', 'two')]


async def wait_until_members(town, count):
    async with asyncio.timeout(60):
        while len(await town.get_records()) < count:
            await asyncio.sleep(0.1)


@pytest.mark.guarantee('LDR-013')
@pytest.mark.parametrize('standby', ['hot', 'cold'])
async def test_webhooks_are_served_by_all_replicas_and_written_by_the_leader(
    fleet, sandbox, cluster, standby
):
    halls = {}
    for name in 'ab':
        registry, halls[name] = fleet.build_registry(name), Hall(sandbox)

        @kopf.on.validate('kopfexamples', registry=registry)
        async def validate(name, warnings, **_):
            warnings.append(f'seen {name}')

        settings = build_settings(standby=standby)
        settings.admission.managed, settings.admission.server = MANAGED, halls[name]
        await fleet.run(name, settings=settings, registry=registry)
        if name == 'a':
            await fleet.wait_until_promoted('a')
            await wait_for_records(sandbox, 1)
            writes = len(list_writes(sandbox))
    await asyncio.sleep(100)
    assert len(list_writes(sandbox)) == writes
    await cluster.create('one')

    assert halls['a'].is_open
    assert len(halls['b'].paths) == 1  # the service of the sandbox leads to the last replica

    await fleet.operators['a'].stop()
    await fleet.wait_until_promoted('b')
    assert len(await wait_for_records(sandbox, 1)) == 1
