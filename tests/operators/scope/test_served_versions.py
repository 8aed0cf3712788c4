"""
Two served versions of one resource: two resources with handlers, daemons and indices of their own,
and one memo.
"""

import asyncio
import datetime
import json

import pytest
from clusters import LAST_HANDLED, Cluster, build_crd, wait_until

import kopf

VERSIONS = ['v1', 'v2']


@pytest.fixture
async def cluster(sandbox):
    crd = build_crd()
    [version] = crd['spec']['versions']
    crd['spec']['versions'].append({**version, 'name': 'v2', 'storage': False})
    await sandbox.apply(crd)
    return Cluster(sandbox)


@pytest.mark.guarantee('FND-008')
async def test_daemons_timers_and_indices_are_those_of_the_version(
    cluster, registry, run_operator, calls
):
    for version in VERSIONS:

        @kopf.daemon('kopf.dev', version, 'kopfexamples', id='daemon', registry=registry)
        async def daemon_fn(stopped, resource, **_):
            calls.append(f'daemon of {resource.version}')
            await stopped.wait()
            calls.append(f'end of {resource.version}')

        @kopf.timer(
            'kopf.dev', version, 'kopfexamples', id='timer', interval=1000, registry=registry
        )
        async def timer_fn(resource, **_):
            calls.append(f'timer of {resource.version}')

        kopf.index('kopf.dev', version, 'kopfexamples', id='versions', registry=registry)(
            lambda resource, name, **_: {name: resource.version}
        )

    @kopf.on.event('configmaps', registry=registry)
    async def event_fn(name, versions, **_):
        if name == 'probe':
            calls.append(sorted(versions['obj']))

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) >= 4)
    await cluster.sandbox.create(
        {
            'apiVersion': 'v1',
            'kind': 'ConfigMap',
            'metadata': {'name': 'probe', 'namespace': 'default'},
        }
    )
    await wait_until(lambda: ['v1', 'v2'] in calls)
    assert sorted(map(str, calls)) == [
        "['v1', 'v2']",
        'daemon of v1',
        'daemon of v2',
        'timer of v1',
        'timer of v2',
    ]

    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    assert sorted(map(str, calls))[-4:-2] == ['end of v1', 'end of v2']


@pytest.mark.guarantee('FND-008')
@pytest.mark.parametrize('slow', VERSIONS)
async def test_objects_stay_until_the_daemons_of_all_versions_exit(
    cluster, registry, run_operator, calls, slow
):
    for version in VERSIONS:

        @kopf.daemon('kopf.dev', version, 'kopfexamples', id='daemon', registry=registry)
        async def daemon_fn(stopped, resource, **_):
            calls.append(f'daemon of {resource.version}')
            await stopped.wait()
            if resource.version == slow:
                await asyncio.sleep(20)
                assert await cluster.get() is not None
            calls.append(f'end of {resource.version}')

    await run_operator()
    await cluster.create()
    await wait_until(lambda: len(calls) == 2)

    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert sorted(calls) == ['daemon of v1', 'daemon of v2', 'end of v1', 'end of v2']


@pytest.mark.guarantee('FND-008')
async def test_objects_are_resumed_for_each_version(cluster, registry, run_operator, calls):
    for version in VERSIONS:

        @kopf.on.resume('kopf.dev', version, 'kopfexamples', id='resume', registry=registry)
        async def resume_fn(resource, **_):
            calls.append(resource.version)

    await cluster.create()
    await run_operator()
    await asyncio.sleep(60)

    assert sorted(calls) == ['v1', 'v2']


@pytest.mark.guarantee('FND-008', 'MEM-002')
async def test_versions_are_handled_in_turn_with_one_memo(cluster, registry, run_operator, calls):
    busy = []

    for version in VERSIONS:

        @kopf.on.resume(
            'kopf.dev', version, 'kopfexamples', id=f'resume-{version}', registry=registry
        )
        async def resume_fn(memo, resource, **_):
            calls.append((resource.version, len(busy)))
            memo.setdefault('versions', []).append(resource.version)
            busy.append(resource.version)
            await asyncio.sleep(10)
            busy.pop()
            if len(memo.versions) == 2:
                calls.append(sorted(memo.versions))

    await cluster.create()
    await run_operator()
    await asyncio.sleep(60)

    assert calls[-1] == ['v1', 'v2']
    assert [number for _, number in calls[:-1]] == [0, 0]


@pytest.mark.guarantee('FND-008')
async def test_changes_are_handled_for_each_version(cluster, registry, run_operator, calls):
    for version in VERSIONS:

        @kopf.on.create(
            'kopf.dev', version, 'kopfexamples', id=f'create-{version}', registry=registry
        )
        @kopf.on.update(
            'kopf.dev', version, 'kopfexamples', id=f'update-{version}', registry=registry
        )
        @kopf.on.delete(
            'kopf.dev', version, 'kopfexamples', id=f'delete-{version}', registry=registry
        )
        async def fn(reason, resource, old, new, **_):
            sizes = [None if state is None else state['spec'].get('size') for state in (old, new)]
            calls.append(f'{reason} {sizes} in {resource.version}')
            await asyncio.sleep(1)

    await run_operator()
    await cluster.create(spec={'size': 1})
    await asyncio.sleep(60)
    assert sorted(calls) == ['create [None, 1] in v1', 'create [None, 1] in v2']

    calls.clear()
    await cluster.patch({'spec': {'size': 2}})
    await asyncio.sleep(60)
    assert sorted(calls) == ['update [1, 2] in v1', 'update [1, 2] in v2']

    calls.clear()
    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    assert sorted(calls) == ['delete [2, 2] in v1', 'delete [2, 2] in v2']


@pytest.mark.guarantee('FND-008')
async def test_deletion_retried_for_one_version_is_not_repeated_for_another(
    cluster, registry, run_operator, calls
):
    for version in VERSIONS:

        @kopf.on.delete(
            'kopf.dev', version, 'kopfexamples', id=f'delete-{version}', registry=registry
        )
        async def fn(resource, retry, **_):
            calls.append((resource.version, retry))
            if resource.version == 'v1' and retry < 2:
                raise kopf.TemporaryError('later', delay=30)

    await run_operator()
    await cluster.create()
    await asyncio.sleep(60)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert sorted(calls) == [('v1', 0), ('v1', 1), ('v1', 2), ('v2', 0)]


@pytest.mark.guarantee('FND-008')
async def test_version_with_no_handlers_does_not_hold_the_deletion(
    cluster, registry, run_operator, calls
):
    @kopf.on.delete('kopf.dev', 'v1', 'kopfexamples', registry=registry)
    async def delete_fn(**_):
        calls.append('deleted')

    @kopf.on.update('kopf.dev', 'v2', 'kopfexamples', registry=registry)
    async def update_fn(**_):
        calls.append('updated')

    await run_operator()
    await cluster.create()
    await asyncio.sleep(60)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    assert calls == ['deleted']


@pytest.mark.guarantee('FND-008')
@pytest.mark.parametrize('kind', ['delete', 'daemon'])
async def test_versions_do_not_fight_for_the_finalizer(
    cluster, sandbox, registry, run_operator, calls, kind
):
    """One version has nothing to do with deletions; the other one needs the finalizer."""

    @kopf.on.create('kopf.dev', 'v1', 'kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')

    @(kopf.on.delete if kind == 'delete' else kopf.daemon)(
        'kopf.dev', 'v2', 'kopfexamples', id='fn', registry=registry
    )
    async def fn(**kwargs):
        if kind == 'daemon':
            await kwargs['stopped'].wait()
        calls.append('end')

    await run_operator()
    await cluster.create()
    await asyncio.sleep(3600)
    patches = [request for request in sandbox.requests if request.verb == 'patch']
    assert len(patches) <= 3
    assert (await cluster.get())['metadata']['finalizers']

    await cluster.delete()
    await cluster.wait(lambda body: body is None)
    assert calls == ['create', 'end']


@pytest.mark.guarantee('FND-008', 'FND-005')
async def test_versions_with_different_content_do_not_hammer(
    cluster, registry, run_operator, calls, monkeypatch
):
    """Each version would see a change in what the other one has recorded."""
    for version in VERSIONS:

        @kopf.on.create(
            'kopf.dev', version, 'kopfexamples', id=f'create-{version}', registry=registry
        )
        @kopf.on.update(
            'kopf.dev', version, 'kopfexamples', id=f'update-{version}', registry=registry
        )
        async def fn(resource, patch, **_):
            calls.append(resource.version)
            patch.metadata.annotations['last'] = resource.version

    await run_operator()
    await cluster.create()
    await asyncio.sleep(3600)

    assert len(calls) < 60  # each version counts on its own


@pytest.mark.guarantee('FND-008')
@pytest.mark.parametrize('gone', VERSIONS)
async def test_version_that_is_not_served_any_more_does_not_hold_the_deletion(
    cluster, registry, run_operator, calls, gone
):
    for version in VERSIONS:

        @kopf.on.delete(
            'kopf.dev', version, 'kopfexamples', id=f'delete-{version}', registry=registry
        )
        async def fn(resource, **_):
            calls.append(resource.version)
            if resource.version == gone:
                raise kopf.TemporaryError('later', delay=3600)

    await run_operator()
    await cluster.create()
    await asyncio.sleep(60)
    await cluster.delete()
    await wait_until(lambda: len(calls) == 2)
    await asyncio.sleep(600)
    assert await cluster.find() is not None

    definition = await cluster.sandbox.get('customresourcedefinitions', 'kopfexamples.kopf.dev')
    versions = [
        {**version, 'served': version['name'] != gone} for version in definition['spec']['versions']
    ]
    await cluster.sandbox.patch(
        'customresourcedefinitions', 'kopfexamples.kopf.dev', {'spec': {'versions': versions}}
    )
    await cluster.wait(lambda body: body is None)

    assert sorted(calls) == VERSIONS


@pytest.mark.guarantee('FND-008')
async def test_changes_handled_by_another_operator_during_a_pause_are_not_handled_again(
    cluster, registry, settings, run_operator, calls
):
    for version in VERSIONS:

        @kopf.on.update(
            'kopf.dev', version, 'kopfexamples', id=f'update-{version}', registry=registry
        )
        async def fn(resource, old, new, **_):
            calls.append(f'{old["spec"]["size"]} to {new["spec"]["size"]} in {resource.version}')

    settings.peering.clusterwide = True
    await cluster.sandbox.apply(
        build_crd('clusterkopfpeerings', 'ClusterKopfPeering', scope='Cluster')
    )
    await cluster.sandbox.create(
        {'apiVersion': 'kopf.dev/v1', 'kind': 'ClusterKopfPeering', 'metadata': {'name': 'default'}}
    )
    await run_operator()
    await cluster.create(spec={'size': 1})
    await asyncio.sleep(60)

    now = datetime.datetime.now(datetime.UTC).isoformat()
    other = {'priority': 100, 'lifetime': 600, 'lastseen': now}
    await cluster.sandbox.patch('clusterkopfpeerings', 'default', {'status': {'other': other}})
    await asyncio.sleep(60)
    annotations = {LAST_HANDLED: json.dumps({'spec': {'size': 2}})}
    await cluster.patch({'spec': {'size': 2}, 'metadata': {'annotations': annotations}})
    await cluster.sandbox.patch('clusterkopfpeerings', 'default', {'status': {'other': None}})
    await asyncio.sleep(60)
    assert calls == []

    await cluster.patch({'spec': {'size': 3}})
    await asyncio.sleep(60)
    assert sorted(calls) == ['2 to 3 in v1', '2 to 3 in v2']


@pytest.mark.guarantee('FND-008')
async def test_changes_by_one_version_are_seen_by_the_other_one(
    cluster, registry, run_operator, calls
):
    @kopf.on.event('kopf.dev', 'v1', 'kopfexamples', registry=registry)
    async def event_fn(patch, spec, status, **_):
        if status.get('go') and 'y' not in spec:
            patch.spec['y'] = 1

    @kopf.on.create('kopf.dev', 'v2', 'kopfexamples', registry=registry)
    @kopf.on.update('kopf.dev', 'v2', 'kopfexamples', registry=registry)
    async def fn(spec, **_):
        calls.append(dict(spec))

    await run_operator()
    await cluster.create()
    await asyncio.sleep(30)
    await cluster.patch({'status': {'go': True}})
    await asyncio.sleep(300)

    assert calls == [{'x': 1}, {'x': 1, 'y': 1}]


@pytest.mark.guarantee('FND-008')
async def test_versions_are_handled_in_turn_though_one_of_them_is_listed_later(
    cluster, registry, run_operator, calls
):
    busy = []
    for version in ['v1', 'v2']:

        @kopf.on.resume(
            'kopf.dev', version, 'kopfexamples', id=f'resume-{version}', registry=registry
        )
        async def resume_fn(resource, **_):
            busy.append(resource.version)
            calls.append(len(busy))
            await asyncio.sleep(5)
            busy.remove(resource.version)

    await cluster.create()
    cluster.sandbox.faults.inject(path='/apis/kopf.dev/v2/kopfexamples', latency=1.0)
    await run_operator()
    await asyncio.sleep(60)

    assert calls == [1, 1]
