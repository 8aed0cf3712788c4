"""
Our finalizer goes when nothing needs it any more; throttled and waiting objects are let go at once
when they are deleted; an object is never taken for another one of the same name.
"""

import asyncio
import json

import pytest
from clusters import FINALIZER, LAST_HANDLED, wait_until

import kopf


def build_handled(**metadata):
    """The metadata of an object that an operator with deletion handlers has handled."""
    handled = {LAST_HANDLED: json.dumps({'spec': {'x': 1}})}
    return {'annotations': handled, 'finalizers': [FINALIZER], **metadata}


def has_no_finalizer(body):
    return body is not None and not body['metadata'].get('finalizers')


@pytest.mark.guarantee('FND-009')
async def test_finalizer_is_withdrawn_when_the_deletion_handlers_are_removed_from_the_code(
    cluster, registry, run_operator, calls
):
    @kopf.on.create('kopfexamples', registry=registry)
    @kopf.on.update('kopfexamples', registry=registry)
    async def fn(**_):
        calls.append('called')

    await cluster.create(**build_handled())
    await run_operator()
    await cluster.wait(has_no_finalizer)

    assert calls == []
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('FND-009')
async def test_finalizer_is_withdrawn_from_objects_of_resources_with_only_event_handlers_if_they_were_handled(
    cluster, sandbox, registry, run_operator
):
    kopf.on.event('kopfexamples', registry=registry)(lambda **_: None)
    kopf.on.create('configmaps', registry=registry)(lambda **_: None)
    await cluster.create(**build_handled())
    await cluster.create('other', finalizers=[FINALIZER])
    await run_operator()
    await cluster.wait(has_no_finalizer)
    await asyncio.sleep(60)

    assert [asked.name for asked in cluster.writes] == ['obj']
    assert (await cluster.get('other'))['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('FND-009', 'HND-029')
async def test_operators_with_only_event_handlers_and_indices_touch_nothing(
    cluster, registry, run_operator, calls
):
    kopf.on.event('kopfexamples', registry=registry)(lambda **_: calls.append('event'))
    kopf.index('kopfexamples', registry=registry)(lambda **_: 1)
    await cluster.create(**build_handled())
    await run_operator()
    await wait_until(lambda: calls)
    await cluster.delete()
    await asyncio.sleep(60)

    assert cluster.writes == []
    assert (await cluster.get())['metadata']['finalizers'] == [FINALIZER]


@pytest.mark.guarantee('FND-009')
async def test_object_that_is_being_deleted_is_let_go_if_nothing_needs_it(
    cluster, registry, run_operator, calls
):
    kopf.on.create('kopfexamples', registry=registry)(lambda **_: calls.append('create'))
    await cluster.create(**build_handled())
    await cluster.delete()
    await run_operator()
    await cluster.wait(lambda body: body is None)

    assert calls == []
    assert len(cluster.writes) == 1


@pytest.mark.guarantee('FND-009')
async def test_finalizer_stays_while_anything_needs_it(cluster, registry, run_operator):
    kopf.on.create('kopfexamples', registry=registry)(lambda **_: None)
    kopf.on.delete('kopfexamples', labels={'wanted': 'yes'}, registry=registry)(lambda **_: None)
    await cluster.create(**build_handled(labels={'wanted': 'yes'}))
    await run_operator()
    await asyncio.sleep(60)
    assert (await cluster.get())['metadata']['finalizers'] == [FINALIZER]

    await cluster.patch({'metadata': {'labels': {'wanted': 'no'}}})
    await cluster.wait(has_no_finalizer)


# Deletions of objects that are left alone.


@pytest.mark.guarantee('FND-015')
@pytest.mark.parametrize('has_events', [False, True])
async def test_throttled_object_that_is_deleted_is_handled_as_deleted_at_once(
    cluster, registry, run_operator, calls, settings, has_events
):
    settings.queueing.error_delays = [1000]

    def fail(**_):
        if 'failing' in calls:
            raise ZeroDivisionError

    @kopf.daemon('kopfexamples', registry=registry)
    async def daemon_fn(stopped, **_):
        calls.append('started')
        await stopped.wait()
        calls.append('stopped')

    if has_events:

        @kopf.on.event('kopfexamples', registry=registry)
        async def event_fn(type, **_):
            calls.append(type)

    kopf.on.update('kopfexamples', when=fail, registry=registry)(lambda **_: None)
    await run_operator()
    await cluster.create()
    await wait_until(lambda: 'started' in calls)
    await asyncio.sleep(10)
    calls.append('failing')
    await cluster.patch({'spec': {'x': 2}})
    await asyncio.sleep(10)
    since = asyncio.get_running_loop().time()
    await cluster.patch({'metadata': {'finalizers': None}})
    await cluster.delete()
    await wait_until(lambda: 'stopped' in calls)

    assert asyncio.get_running_loop().time() - since < 5
    assert not has_events or calls[-1] == 'DELETED' or 'DELETED' in calls


@pytest.mark.guarantee('FND-015')
async def test_object_that_waits_for_a_retry_is_handled_as_deleted_at_once(
    cluster, registry, run_operator, calls
):
    from kopf._core.reactor import inventory

    memories = inventory.Memories()

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(**_):
        calls.append('create')
        raise kopf.TemporaryError('later', delay=3600)

    await run_operator(memories=memories)
    await cluster.create()
    await wait_until(lambda: calls)
    await asyncio.sleep(10)
    assert len(memories) == 1
    await cluster.delete()
    await wait_until(lambda: not len(memories), timeout=5)

    assert calls == ['create']


# Namesakes.


@pytest.mark.guarantee('FND-006')
async def test_every_patch_is_only_for_the_object_itself(
    sandbox, cluster, registry, run_operator, monkeypatch
):
    from kopf._cogs.clients import requests

    payloads = []
    original = requests.send

    def send(call, **kwargs):
        if call.method == 'PATCH':
            payloads.append(json.loads(call.body))
        return original(call, **kwargs)

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(patch, retry, **_):
        patch.spec['y'] = 1
        patch.fns.append(lambda body: body['spec'].setdefault('z', 1))
        if not retry:
            raise kopf.TemporaryError('again', delay=1)
        return 'result'

    @kopf.on.delete('kopfexamples', registry=registry)
    async def delete_fn(**_):
        pass

    @kopf.timer('kopfexamples', interval=10, registry=registry)
    async def tick(patch, **_):
        patch.status['ticks'] = 1

    monkeypatch.setattr(requests, 'send', send)
    await run_operator()
    created = await cluster.create()
    await cluster.wait_until_handled(y=1)
    await asyncio.sleep(60)
    await cluster.delete()
    await cluster.wait(lambda body: body is None)

    uid = created['metadata']['uid']
    test = {'op': 'test', 'path': '/metadata/uid', 'value': uid}
    assert len(payloads) >= 5
    assert all(
        test in payload if isinstance(payload, list) else payload['metadata']['uid'] == uid
        for payload in payloads
    )


@pytest.mark.guarantee('FND-006')
@pytest.mark.parametrize(
    'do',
    [
        pytest.param(lambda patch: patch.spec.update(y=1), id='spec'),
        pytest.param(lambda patch: patch.status.update(y=1), id='status'),
        pytest.param(
            lambda patch: patch.fns.append(lambda body: body['spec'].update(y=1)), id='functions'
        ),
        pytest.param(lambda patch: 'result', id='result'),
    ],
)
@pytest.mark.parametrize('has_status', [False, True], ids=['no-subresource', 'subresource'])
async def test_nothing_is_written_to_a_namesake(
    sandbox, registry, run_operator, calls, do, has_status
):
    from clusters import Cluster, build_crd

    await sandbox.apply(build_crd(has_status=has_status))
    cluster = Cluster(sandbox)

    @kopf.on.create('kopfexamples', registry=registry)
    async def create_fn(uid, spec, patch, **_):
        calls.append(spec['x'])
        if spec['x'] == 1:
            await cluster.delete()
            await cluster.create(spec={'x': 2})
            return do(patch)

    await run_operator()
    await cluster.create(spec={'x': 1})
    await cluster.wait_until_handled(x=2)
    await asyncio.sleep(300)
    body = await cluster.get()

    assert calls == [1, 2]
    assert body['spec'] == {'x': 2}
    assert not body.get('status')
