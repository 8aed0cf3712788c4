"""
Owned and watched objects: which of their changes reconcile their parents, and how they are read.
"""

import asyncio

import pytest
from clusters import build_crd

import kopf
from kopf._core.reactor import inventory


async def settle(seconds=5.0):
    """Let everything happen that follows soon, in virtual time."""
    await asyncio.sleep(seconds)


def build_child(name, parent, **data):
    owner = kopf.build_owner_reference(parent)
    return {
        'apiVersion': 'v1',
        'kind': 'ConfigMap',
        'metadata': {'name': name, 'namespace': 'default', 'ownerReferences': [owner]},
        'data': data,
    }


def build_secret(name):
    return {
        'apiVersion': 'v1',
        'kind': 'Secret',
        'metadata': {'name': name, 'namespace': 'default'},
    }


def declare(registry, calls, **options):
    @kopf.on.reconcile('kopfexamples', registry=registry, owns=['configmaps'], **options)
    async def fn(name, triggers, owned, **_):
        calls.append((name, *sorted(triggers), *(body['metadata']['name'] for body in owned['cm'])))


@pytest.mark.guarantee('RCL-002')
async def test_changes_of_children_reconcile_only_their_parents(
    sandbox, cluster, registry, calls, run_operator
):
    declare(registry, calls)
    await run_operator()
    await cluster.wait_until_watched()
    parent = await cluster.create('one')
    await cluster.create('two')
    await settle()
    calls.clear()

    await sandbox.create(build_child('child', parent))
    await settle()
    await sandbox.patch('configmaps', 'child', {'data': {'x': '1'}})
    await settle()
    await sandbox.delete('configmaps', 'child')
    await settle()

    assert calls == [('one', 'owned', 'child'), ('one', 'owned', 'child'), ('one', 'owned')]
    assert cluster.writes == []


@pytest.mark.guarantee('RCL-002')
async def test_child_that_changes_its_owner_reconciles_both(
    sandbox, cluster, registry, calls, run_operator
):
    declare(registry, calls)
    await run_operator()
    await cluster.wait_until_watched()
    one, two = await cluster.create('one'), await cluster.create('two')
    await sandbox.create(build_child('child', one))
    await settle()
    calls.clear()
    await sandbox.patch('configmaps', 'child', build_child('child', two))
    await settle()

    assert sorted(calls) == [('one', 'owned'), ('two', 'owned', 'child')]


@pytest.mark.guarantee('RCL-004', 'RCL-005')
async def test_restart_waits_for_all_children_and_costs_no_requests(
    sandbox, cluster, registry, calls, run_operator
):
    for number in range(5):
        parent = await cluster.create(f'obj{number}')
        await sandbox.create(build_child(f'child{number}', parent))
    declare(registry, calls)
    sandbox.requests.clear()
    await run_operator()
    await settle(60)

    assert sorted((name, child) for name, *_, child in calls) == [
        (f'obj{number}', f'child{number}') for number in range(5)
    ]
    asked = [asked for asked in sandbox.requests if asked.user_agent.startswith('kopf/')]
    assert [one for one in asked if one.method != 'GET' or one.name] == []


@pytest.mark.guarantee('RCL-002')
async def test_references_reconcile_even_before_their_targets_exist(
    sandbox, cluster, registry, calls, run_operator
):
    @kopf.on.reconcile(
        'kopfexamples', registry=registry, watches={'secrets': kopf.ref('spec.secret')}
    )
    def fn(name, spec, related, triggers, **_):
        secret = related.get('secrets', spec['secret'])
        calls.append((name, *sorted(triggers), secret is not None))

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create('one', spec={'secret': 'password'})
    await cluster.create('two', spec={'secret': 'other'})
    await settle()
    assert calls == [('one', 'self', False), ('two', 'self', False)]
    calls.clear()

    await sandbox.create(build_secret('password'))
    await settle()
    assert calls == [('one', 'watched', True)]

    await cluster.patch({'spec': {'secret': 'password'}}, 'two')
    await settle()
    calls.clear()
    await sandbox.delete('secrets', 'password')
    await settle()
    assert sorted(calls) == [('one', 'watched', False), ('two', 'watched', False)]


@pytest.mark.guarantee('RCL-002')
async def test_resource_that_appears_later_reconciles_its_parents(
    sandbox, cluster, registry, calls, run_operator
):
    @kopf.on.reconcile('kopfexamples', registry=registry, owns=['laters'])
    async def fn(triggers, owned, **_):
        calls.append((*sorted(triggers), len(owned['laters'])))

    await run_operator()
    await cluster.wait_until_watched()
    parent = await cluster.create('one')
    await settle()
    assert calls == [('self', 0)]

    await sandbox.apply(build_crd('laters', 'Later'))
    await settle(30)
    child = build_child('child', parent)
    await sandbox.create({**child, 'apiVersion': 'kopf.dev/v1', 'kind': 'Later'})
    await settle()
    assert calls[-1] == ('owned', 1)


@pytest.mark.guarantee('RCL-011')
async def test_undeclared_relatives_are_a_clear_error(
    cluster, registry, calls, run_operator, caplog
):
    @kopf.on.reconcile('kopfexamples', registry=registry, owns=['configmaps'])
    async def fn(owned, **_):
        owned['secrets']

    await run_operator()
    await cluster.create('one')
    await settle()

    assert any('Add the missing resource to owns=' in line for line in caplog.messages)


@pytest.mark.guarantee('RCL-011')
async def test_failing_mapping_functions_affect_nothing_else(
    sandbox, cluster, registry, calls, run_operator, caplog
):
    def find_parents(name, **_):
        if name == 'bad':
            raise RuntimeError('boo')
        return ['one']

    @kopf.on.reconcile('kopfexamples', registry=registry, watches={'secrets': find_parents})
    async def fn(triggers, **_):
        calls.append(tuple(sorted(triggers)))

    await run_operator()
    await cluster.wait_until_watched()
    await cluster.create('one')
    await settle()
    calls.clear()
    await sandbox.create(build_secret('bad'))
    await sandbox.create(build_secret('good'))
    await settle()

    assert calls == [('watched',)]
    assert any('find_parents' in line for line in caplog.messages)


@pytest.mark.guarantee('RCL-005')
async def test_related_objects_are_not_handled_themselves(
    sandbox, cluster, registry, calls, run_operator
):
    memories = inventory.Memories()
    declare(registry, calls)
    await run_operator(memories=memories)
    await cluster.wait_until_watched()
    parent = await cluster.create('one')
    for number in range(3):
        await sandbox.create(build_child(f'child{number}', parent))
    await settle()

    assert len(memories) == 1
    asked = [one for one in sandbox.requests if one.user_agent.startswith('kopf/')]
    assert [one for one in asked if one.method != 'GET'] == []


@pytest.mark.guarantee('RCL-005')
async def test_objects_are_reconciled_if_all_is_listed_while_the_finalizer_is_being_added(
    sandbox, cluster, registry, calls, run_operator
):
    declare(registry, calls, watches={'secrets': kopf.ref('spec.secret')}, deletion=True)
    await cluster.create('obj', spec={'secret': 'password'})
    sandbox.faults.inject(verb='list', resource='secrets', latency=1)
    sandbox.faults.inject(verb='patch', resource='kopfexamples', latency=3)
    await run_operator()
    await settle(100)

    assert [call[0] for call in calls] == ['obj']


@pytest.mark.guarantee('RCL-005')
async def test_objects_are_reconciled_if_all_is_listed_while_other_handlers_run(
    sandbox, cluster, registry, calls, run_operator
):
    declare(registry, calls, watches={'secrets': kopf.ref('spec.secret')})

    @kopf.on.resume('kopfexamples', registry=registry)
    async def resume(**_):
        await asyncio.sleep(3)

    await cluster.create('obj', spec={'secret': 'password'})
    operator = await run_operator()
    await settle()
    await operator.stop()
    calls.clear()
    sandbox.faults.inject(verb='list', resource='secrets', latency=1)
    await run_operator()
    await settle(100)

    assert [call[0] for call in calls] == ['obj']
