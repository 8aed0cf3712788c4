"""
Level-triggered functions in unlucky circumstances: several of them for one object, deletions while
they wait, resources that appear late, and streams with gaps.
"""

import asyncio

import pytest
from clusters import build_crd
from replicas_of_operators import Fleet

import kopf
from kopf._core.engines.reconciling import caches, stores


async def settle(seconds=5.0):
    """Let everything happen that follows soon, in virtual time."""
    await asyncio.sleep(seconds)


async def start(cluster, run_operator):
    """Start an operator, and wait until it watches."""
    await run_operator()
    await cluster.wait_until_watched()


@pytest.mark.guarantee('RCL-008')
async def test_functions_of_fields_are_called_for_deletions(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, deletion=True, field='spec.x')
    async def fn(deleting, **_):
        calls.append(deleting)

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()
    await cluster.delete('obj')
    await settle()

    assert calls == [False, True]
    assert await cluster.sandbox.list('kopfexamples') == []


@pytest.mark.guarantee('RCL-002')
async def test_functions_see_the_changes_of_each_other(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def specify(spec, patch, **_):
        calls.append('specify')
        patch.spec['y'] = spec['x']

    @kopf.on.reconcile('kopfexamples', registry=registry)
    async def report(spec, patch, **_):
        calls.append('report')
        patch.status['y'] = spec.get('y')

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle()
    await cluster.patch({'spec': {'x': 2}})
    await settle(600)

    assert (await cluster.get())['status'] == {'y': 2}
    assert len(calls) == 12  # three times for each of two changes: what, how, and nothing left


@pytest.mark.guarantee('RCL-002')
async def test_functions_that_answer_each_other_are_slowed_down(
    cluster, registry, calls, run_operator, logs
):
    for id in ('one', 'two'):

        @kopf.on.reconcile('kopfexamples', registry=registry, id=id)
        async def count(param, status, patch, **_):
            calls.append(param)
            patch.status['count'] = status.get('count', 0) + 1

    await start(cluster, run_operator)
    await cluster.create('obj')
    await settle(600)

    assert len(calls) < 100
    assert any('handled again and again' in line for line in logs())


@pytest.mark.guarantee('RCL-001')
@pytest.mark.parametrize('order', ['abc', 'acb'])
async def test_permits_are_not_lost_with_the_objects_that_wait_for_them(
    cluster, registry, calls, run_operator, order
):
    @kopf.on.reconcile('kopfexamples', registry=registry, workers=1)
    async def fn(name, **_):
        calls.append(name)
        await asyncio.sleep(10)

    await start(cluster, run_operator)
    for name in order:
        await cluster.create(name)
        await settle(1)
    await cluster.delete('b')
    await settle(600)

    assert calls == ['a', 'c']


@pytest.mark.guarantee('RCL-001')
async def test_permits_are_not_lost_with_repeated_requests(cluster, registry, calls, run_operator):
    @kopf.on.reconcile('kopfexamples', registry=registry, workers=1)
    async def fn(name, **_):
        calls.append(name)
        await asyncio.sleep(10)

    await start(cluster, run_operator)
    await cluster.create('a')
    await cluster.create('b')
    await settle(1)
    for x in range(2, 5):
        await cluster.patch({'spec': {'x': x}}, 'b')
        await settle(1)
    await cluster.create('c')
    await settle(600)

    assert calls == ['a', 'b', 'c']


@pytest.mark.guarantee('RCL-001')
async def test_permits_are_not_lost_with_mismatching_objects(
    cluster, registry, calls, run_operator
):
    unwanted = set()

    @kopf.on.reconcile(
        'kopfexamples', registry=registry, workers=1, when=lambda name, **_: name not in unwanted
    )
    async def fn(name, **_):
        calls.append(name)
        await asyncio.sleep(10)

    await start(cluster, run_operator)
    for name in 'abc':
        await cluster.create(name)
    await settle(1)
    unwanted.add('b')
    await settle(600)

    assert calls == ['a', 'c']


@pytest.mark.guarantee('RCL-004')
async def test_resource_that_appears_late_sees_objects_that_were_listed_before(
    sandbox, registry, calls, run_operator
):
    @kopf.on.event('configmaps', registry=registry)
    def watch(**_):
        pass

    @kopf.on.reconcile('laters', registry=registry, watches={'configmaps': kopf.ref('spec.config')})
    async def fn(related, **_):
        calls.append([body.metadata.name for body in related['configmaps']])

    metadata = {'name': 'obj', 'namespace': 'default'}
    await sandbox.create({'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': metadata})
    await run_operator()
    await settle()
    await sandbox.apply(build_crd('laters', 'Later'))
    await settle(30)
    later = {'apiVersion': 'kopf.dev/v1', 'kind': 'Later', 'metadata': metadata}
    await sandbox.create({**later, 'spec': {'config': 'obj'}})
    await settle()

    assert calls == [['obj']]


@pytest.mark.guarantee('RCL-004')
@pytest.mark.parametrize('streaming', [True, False])
async def test_stores_follow_gaps_in_streams(
    cluster, registry, settings, run_operator, monkeypatch, streaming
):
    notes = []

    class Store(stores.Store):
        def note_gap(self, namespace):
            notes.append('gap')
            super().note_gap(namespace)

        def put(self, type, body):
            notes.append(type)
            return super().put(type, body)

        def note_listed(self, namespace, version=None):
            notes.append(('listed', version is not None and int(version) > 0))
            return super().note_listed(namespace, version)

    monkeypatch.setattr(stores, 'Store', Store)
    settings.watching.initial_streaming = streaming
    kopf.on.reconcile('kopfexamples', registry=registry)(lambda **_: None)
    await cluster.create('obj')
    await start(cluster, run_operator)
    await settle()
    assert notes == ['gap', None, ('listed', True)]
    notes.clear()

    cluster.sandbox.faults.inject(code=503, resource='kopfexamples')
    cluster.sandbox.faults.end_streams(410)
    await cluster.patch({'spec': {'x': 2}})
    await cluster.sandbox.compact()
    cluster.sandbox.faults.lift()
    await settle(60)
    assert notes == ['gap', 'MODIFIED', ('listed', True)]


@pytest.mark.guarantee('RCL-004')
async def test_listing_of_one_namespace_is_not_checked_for_all_others(
    sandbox, cluster, registry, calls, run_operator, monkeypatch
):
    checks = []
    list_targets = caches.Caches.list_targets

    def count(self, primary):
        checks.append(primary)
        return list_targets(self, primary)

    @kopf.on.reconcile('kopfexamples', registry=registry, owns=['configmaps'])
    async def fn(name, **_):
        calls.append(name)

    monkeypatch.setattr(caches.Caches, 'list_targets', count)
    names = [f'ns{number}' for number in range(20)]
    for name in names:
        await sandbox.create({'apiVersion': 'v1', 'kind': 'Namespace', 'metadata': {'name': name}})
    await cluster.create('obj')
    await run_operator(namespaces=['default', *names])
    await settle()

    assert calls == ['obj']
    assert len(checks) < 200  # one or two for each of 42 streams


@pytest.mark.guarantee('RCL-010')
@pytest.mark.parametrize('standby', ['hot', 'cold'])
async def test_replicas_that_stand_by_reconcile_everything_once_when_they_lead(
    sandbox, cluster, calls, run_operator, standby
):
    fleet = Fleet(sandbox, run_operator)

    def build_registry(replica):
        registry = fleet.build_registry(replica)

        @kopf.on.reconcile('kopfexamples', registry=registry, owns=['configmaps'])
        async def fn(name, spec, **_):
            calls.append((replica, name, spec['x']))

        return registry

    one = await fleet.run('a', standby=standby, registry=build_registry('a'))
    await fleet.wait_until_promoted('a')
    await cluster.create('obj1')
    await fleet.run('b', standby=standby, registry=build_registry('b'))
    await settle(20)
    await cluster.create('obj2')
    await cluster.create('obj3')
    await cluster.patch({'spec': {'x': 2}}, 'obj2')
    await settle(20)
    await cluster.delete('obj3')
    await settle(20)
    assert {replica for replica, *_ in calls} == {'a'}
    calls.clear()

    await one.stop()
    await fleet.wait_until_promoted('b')
    await settle(20)
    assert sorted(calls) == [('b', 'obj1', 1), ('b', 'obj2', 2)]
